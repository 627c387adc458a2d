"""The search: propose, run, record, until there are enough trials."""

from __future__ import annotations

import hashlib
import numbers
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from os import PathLike
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.base import clone

from dcsurv.calibration import COMPANIONS, CalibratedEnsemble, default_member
from dcsurv.experiments.plan import PlanError, identity_text
from dcsurv.experiments.tuning.criteria import Criterion
from dcsurv.experiments.tuning.progress import TrialBar
from dcsurv.experiments.tuning.result import TuningResult
from dcsurv.experiments.tuning.spaces import described, make_space, named_estimator, nearest
from dcsurv.experiments.tuning.study import Proposal, TrialStudy
from dcsurv.experiments.tuning.trials import TrialResult, TrialRunner, bars, can_share, make_folds, make_indices
from dcsurv.experiments.tuning.workers import Workers, make_workers
from dcsurv.models.grid_model import nodes_for
from dcsurv.search_space import Dimension, TuningError
from dcsurv.target import Outcome, check_groups, check_outcome


def tune(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    n_trials: int = 50,
    space: Literal["default", "paper"] | Mapping[str, Dimension] = "default",
    criterion: str | Sequence[str] | Mapping[str, float] = "CDAUC",
    folds: int | Sequence[tuple[Any, Any]] = 5,
    groups: Any = None,
    start: Sequence[Mapping[str, Any]] = (),
    keep: float = 0.3,
    trial_timeout: float | None = None,
    storage: str | PathLike[str] | None = None,
    study_name: str | None = None,
    workers: int = 1,
    cluster: str | None = None,
    timeout: float | None = None,
    random_state: int = 0,
    progress: bool = False,
) -> TuningResult:
    """Search the settings of a model by cross-validation on the patients given, and on nobody else.

    Settings are proposed by Optuna's Bayesian search (TPE). Everything that is fitted, preprocessing included, is
    fitted on the training rows of a fold; the criterion is the mean over the folds' other rows, in the default
    conventions of :mod:`dcsurv.metrics`.

    Parameters
    ----------
    estimator : estimator or str
        An unfitted estimator, whose other parameters stay as they are, or a name: coxph, deepsurv, coxtime, drsa,
        kamran, dcs, dcs-log, dcs-linear, ensemble.
    X : DataFrame or array-like
        Features of the training part. Keep the test part to yourself.
    y : outcome
        Outcomes of the same patients; see :func:`dcsurv.make_outcome`.
    n_trials : int, default 50
        Trials that the study is to have in the end, those of earlier runs and of other processes included.
    space : {"default", "paper"} or mapping, default "default"
        ``"default"``, ``"paper"``, or your own: a mapping from parameters (also nested ones, such as
        ``estimator__lam``) to :class:`Float`, :class:`Int` or :class:`Choice`.
    criterion : str, sequence of str or mapping, default "CDAUC"
        ``"CDAUC"``, ``"C-td"``, ``"IBS"`` or ``"DDC"``; a pair such as ``("CDAUC", "DDC")`` for two objectives and
        the front between them; or weights, ``{"CDAUC": 1, "DDC": 0.5}``, for one number.
    folds : int or sequence of tuple, default 5
        Number of folds, stratified by event, or pairs of (training rows, held-out rows) of your own, which must not
        share a row.
    groups : array-like or None, default None
        A label per row that rows of one patient share: they stay in one fold.
    start : sequence of mapping, default ()
        Settings to try first. The estimator's own come before them.
    keep : float, default 0.3
        Share of the trials meant to be carried through all folds. The others are stopped at certain epochs of the
        first fold or after a fold, where they fall behind; 1 stops none.
    trial_timeout : float or None, default None
        Seconds of computing time that a trial may take; one that takes longer, or cannot be done within them, is
        stopped and says so.
    storage : str, path-like or None, default None
        Where the study is kept: None (in memory), the path of a file, or ``postgresql://user:password@host/database``.
        A search that was killed goes on there, and several processes or machines can join it. A trial that was running
        is begun again, now in a process of its own: should it end that (out of memory, say), it has failed.
    study_name : str or None, default None
        Name of the study in its storage; None: the model's.
    workers : int, default 1
        Processes on this machine, one thread each.
    cluster : str or None, default None
        Address of a Dask scheduler, such as ``tcp://host:8786``, whose workers run the trials.
    timeout : float or None, default None
        Seconds after which no more trials are begun.
    random_state : int, default 0
        Seeds proposals, folds and models. With one worker and no time limits, the same seed gives the same trials,
        also where the search was killed and went on.
    progress : bool, default False
        Show a progress bar with the best value so far and the time that is left.

    Returns
    -------
    TuningResult
        The trials, and the best settings among them.

    Raises
    ------
    TuningError
        Before anything is trained, if the search or its storage cannot be used.
    """
    template = _template(estimator, random_state)
    judged = Criterion.make(criterion)
    outcome = check_outcome(y, n_rows=len(X), min_events=2)
    chosen = make_space(space, template, outcome)
    _check_numbers(n_trials, keep, trial_timeout, timeout, workers, cluster, random_state)
    known = [_own_settings(template, chosen, outcome), *(_checked_start(values, chosen) for values in start)]
    together = check_groups(groups, len(outcome))
    indices = make_indices(folds, outcome, random_state, together)
    identity = {
        "model": _model_identity(template, chosen),
        "data": _digest(*_columns(X), outcome["time"], outcome["event"], *([] if together is None else [together])),
        "space": described(chosen),
        "criterion": [list(judged.metrics), judged.weights],
        "folds": f"{len(indices)} folds, {_digest(*(rows for pair in indices for rows in pair))}",
    }
    share = can_share(template, list(chosen))
    parts = make_folds(template, X, outcome, indices, share=share, groups=together)
    runner = clone(template).set_params(preprocess=None) if share else template
    evaluation = TrialRunner(runner, parts, judged, trial_timeout)
    name = type(template).__name__.lower() if study_name is None else study_name
    study = TrialStudy(storage, name, judged, chosen, identity, random_state)
    search = _Search(study, evaluation, n_trials, keep, timeout)
    with make_workers(evaluation, workers, cluster) as places, study.signs_of_life():
        study.start_from(known)
        with TrialBar(study, n_trials, shown=progress) as bar:
            search.run(places, bar)
    return TuningResult(study.optuna, _template(estimator, None), chosen, judged)


class _Search:
    """Keeps every place busy with a trial as long as the study wants more."""

    def __init__(
        self, study: TrialStudy, evaluation: TrialRunner, n_trials: int, keep: float, timeout: float | None
    ) -> None:
        self.study, self.evaluation = study, evaluation
        self.n_trials, self.keep = n_trials, keep
        self.end = np.inf if timeout is None else time.monotonic() + timeout

    def run(self, workers: Workers, bar: TrialBar) -> None:
        running: dict[Future[TrialResult], tuple[int, Proposal]] = {}
        free = list(range(len(workers.places)))
        proposal: Proposal | None = None
        try:
            while True:
                while free and self._wants_more():
                    proposal = self.study.propose(self.n_trials)
                    if proposal is None:
                        break
                    others = bars(self.study.courses(), self.keep, len(self.evaluation.folds))
                    place = free.pop()
                    running[workers.submit(place, proposal.settings, others, proposal.losses)] = place, proposal
                    proposal = None
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    place, ended = running.pop(future)
                    outcome = workers.outcome(place, future)
                    self.study.record(ended, outcome)
                    bar.advance(ended, outcome)
                    free.append(place)
        except BaseException:  # Ctrl-C, or a storage that is gone
            for given in (*(p for _, p in running.values()), *([] if proposal is None else [proposal])):
                self.study.give_back(given)
            raise

    def _wants_more(self) -> bool:
        if time.monotonic() >= self.end:
            return False
        self.study.recover()
        return self.study.begun() < self.n_trials


def _template(estimator: Any, random_state: int | None) -> Any:
    """Return the estimator to be tuned, with a seed where it has none."""
    if isinstance(estimator, str):
        out = named_estimator(estimator)
    else:
        needed = ("fit", "predict_survival_function", "get_params")
        if isinstance(estimator, type) or not all(hasattr(estimator, name) for name in needed):
            raise TuningError(
                f"estimator is {estimator!r}, but the name of a model or an unfitted estimator with fit and "
                "predict_survival_function is expected."
            )
        out = clone(estimator)
    if isinstance(out, CalibratedEnsemble) and out.estimator is None:
        changed = {"companions": COMPANIONS} if out.companions is None else {}
        out.set_params(estimator=default_member(), **changed)  # so that its parameters have names
    if random_state is not None and out.get_params().get("random_state", 0) is None:
        out.set_params(random_state=random_state)
    return out


def _own_settings(template: Any, space: Mapping[str, Dimension], y: Outcome) -> dict[str, Any]:
    parameters = template.get_params()
    for name in ("n_nodes", "estimator__n_nodes"):
        if name in parameters and parameters[name] is None:
            parameters[name] = nodes_for(int(y["event"].sum()))  # as a fit would choose
    return nearest(dict(space), {name: parameters[name] for name in space})


def _checked_start(values: Mapping[str, Any], space: Mapping[str, Dimension]) -> dict[str, Any]:
    outside = [
        f"{name}={value!r}" for name, value in values.items() if name not in space or not space[name].holds(value)
    ]
    if outside:
        raise TuningError(f"start holds {', '.join(outside)}, which is not in the space.")
    return dict(values)


def _model_identity(template: Any, space: Mapping[str, Dimension]) -> str:
    """Return the class and the parameters that are not searched as text."""
    parameters = {name: value for name, value in template.get_params().items() if name not in space}
    for name in [name for name, value in parameters.items() if hasattr(value, "get_params")]:
        if any(other.startswith(f"{name}__") for other in space):
            del parameters[name]  # its parameters stand for it, without those that are searched
    try:
        text = identity_text(parameters)
    except PlanError as error:
        raise TuningError.of(error) from None
    return f"{type(template).__name__} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _columns(X: Any) -> list[Any]:
    if isinstance(X, pd.DataFrame):
        names = np.array([str(name) for name in X.columns])
        return [names, pd.util.hash_pandas_object(X, index=False).to_numpy()]
    return [pd.util.hash_pandas_object(pd.DataFrame(np.asarray(X)), index=False).to_numpy()]


def _digest(*parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def _check_numbers(
    n_trials: Any, keep: Any, trial_timeout: Any, timeout: Any, workers: Any, cluster: Any, random_state: Any
) -> None:
    for name, value in (("n_trials", n_trials), ("workers", workers)):
        if not isinstance(value, numbers.Integral) or value < 1:
            raise TuningError(f"{name} is {value!r}, but a whole number of at least 1 is expected.")
    if not isinstance(random_state, numbers.Integral) or random_state < 0:
        raise TuningError(f"random_state is {random_state!r}, but a whole number from 0 on is expected.")
    if not 0 < keep <= 1:
        raise TuningError(f"keep is {keep!r}, but a share above 0 and up to 1 is expected, such as 0.3.")
    for name, value in (("trial_timeout", trial_timeout), ("timeout", timeout)):
        if value is not None and not value > 0:
            raise TuningError(f"{name} is {value!r}, but None or a number of seconds above 0 is expected.")
    if cluster is not None and workers != 1:
        raise TuningError("workers and cluster exclude each other: a cluster has its own workers.")
