"""One call that validates a model: refits, and everything that is learned from them."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv._frames import as_pandas
from dcsurv.curves import SurvivalCurves
from dcsurv.experiments.dispatch import check_options, run_all
from dcsurv.experiments.plan import PlanError
from dcsurv.experiments.store import ResultStore, Row
from dcsurv.follow_up import FollowUp, study_follow_up
from dcsurv.kinds import make_model
from dcsurv.messages import Message, Parameter, did_you_mean, plural
from dcsurv.metrics import Metric, Setting, default_horizons
from dcsurv.metrics.catalogue import choose_metrics
from dcsurv.metrics.censoring import resolve_follow_up
from dcsurv.metrics.inputs import check_times
from dcsurv.metrics.resampling import check_confidence
from dcsurv.models import CoxPH
from dcsurv.models.coxph import has_too_many_columns
from dcsurv.target import FloatArray, IntArray, check_groups, check_outcome, fold_indices
from dcsurv.validation.centres import Centre, find_centres, others
from dcsurv.validation.estimates import Pooled
from dcsurv.validation.instability import Instability
from dcsurv.validation.refits import (
    Patients,
    Refit,
    Role,
    ValidationError,
    fit_and_predict,
    prepared_estimator,
    resampled_counts,
    seeds,
)
from dcsurv.validation.validation import Found, Validation
from dcsurv.writing import scratch_folder

# With fewer events in a fold, a model cannot be fitted to the others and judged on it.
_MIN_EVENTS: Final = 5
# Streams of seeds, one for each use.
_FOLDS, _MODELS = 2, 3


def validate(
    model: Any,
    X: Any,
    y: Any,
    *,
    reference: Any = "coxph",
    by: Any = None,
    groups: Any = None,
    horizons: npt.ArrayLike | None = None,
    metrics: Sequence[str | Metric] | None = None,
    resamples: int = 20,
    repeats: int = 3,
    folds: int = 5,
    confidence: float = 0.95,
    random_state: int = 0,
    folder: str | PathLike[str] | None = None,
    workers: int = 1,
    cluster: str | None = None,
    progress: bool = False,
) -> Validation:
    """Find out how good a way of fitting is on new patients, and how far single predictions can be trusted.

    The model is fitted to all patients, to bootstrap samples of them and to all but one fold, again and again; so is
    the reference, on the same patients. Nothing of this changes ``model``, which need not be fitted.

    Parameters
    ----------
    model : estimator
        What to validate: its settings are what counts, not what it was fitted to.
    X : DataFrame or array-like
        Features, one row per patient.
    y : outcome
        Their outcomes; see :func:`dcsurv.make_outcome`.
    reference : str, estimator or None, default "coxph"
        What to compare with, by the name of its kind or unfitted; None: nothing. A CoxPH is not compared with itself.
    by : str, array-like or None, default None
        A centre or period per patient, for internal-external validation: each is predicted by a model fitted to the
        others. The name of a column of ``X`` takes that column out of the features; an array leaves them as they are.
        Fifths of a column of numbers with more than 20 values are periods.
    groups : str, array-like or None, default None
        A label per row that rows of one patient share: they are in the same fold, and drawn together. The name of a
        column of ``X`` takes that column out of the features.
    horizons : array-like of float or None, default None
        Times of interest; None: the quartiles of the event times.
    metrics : sequence of str or Metric, or None, default None
        Which to compute; see :func:`dcsurv.metrics.evaluate`.
    resamples : int, default 20
        Bootstrap samples to refit to, for optimism and instability; 0 for none. 20 give a first answer, 200 one for the
        record; the column ``monte_carlo`` says what the number costs.
    repeats : int, default 3
        How often the patients are dealt into folds anew.
    folds : int, default 5
        Folds of the cross-validation.
    confidence : float, default 0.95
        Of all intervals.
    random_state : int, default 0
        Seed of everything random: resamples, folds, and the models, each with a seed of its own.
    folder : str, path-like or None, default None
        Where refits are kept: a validation that was stopped, however abruptly, goes on there where it was, and more
        resamples need only the new ones. None: nowhere.
    workers : int, default 1
        Processes on this machine, one thread each. The result does not depend on it.
    cluster : str or None, default None
        Address of a Dask scheduler, such as ``tcp://host:8786``, whose workers have dcsurv installed.
    progress : bool, default False
        Show how far it is, and about how long the rest takes.

    Returns
    -------
    Validation
        Tables, figures, and the verdict.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 300)
    >>> found = dcsurv.validate(dcsurv.SplineCox(), cohort.X, cohort.y, by="centre", resamples=3, repeats=1)
    >>> print(found.verdict)
    no clear difference
    >>> found.summary().columns[:3].tolist()
    ['metric', 'horizon', 'cross_validated']

    References
    ----------
    F. E. Harrell, K. L. Lee, D. B. Mark: Multivariable prognostic models. Statistics in Medicine 15 (1996).

    B. Efron, R. Tibshirani: Improvements on cross-validation: the .632+ bootstrap method. Journal of the American
    Statistical Association 92 (1997).

    R. D. Riley, G. S. Collins: Stability of clinical prediction models developed using statistical or machine learning
    methods. Biometrical Journal 65 (2023).
    """
    check_confidence(confidence)
    _check_numbers(resamples, repeats, folds)
    patients, labels = _patients(X, y, by, groups, horizons, metrics)
    plan = _Plan(patients, resamples, repeats, folds, random_state)
    centres, notes = ([], []) if labels is None else find_centres(labels, patients)
    estimators: dict[Role, Any] = {"model": model}
    compared = _reference(reference, model)
    if isinstance(compared, CoxPH) and has_too_many_columns(patients.X):
        notes.append(f"CoxPH, for comparison, is left out: {patients.X.shape[1]:,} columns are too many for it.")
        compared = None
    if compared is not None:
        estimators["reference"] = compared
    refits = {role: plan.refits(role, estimator, centres) for role, estimator in estimators.items()}
    with _kept(folder) as store, _as_validation_error():
        check_options(workers, cluster)
        every = [refit for own in refits.values() for refit in own]
        run_all(every, fit_and_predict, store, workers=workers, cluster=cluster, progress=progress)
        found = {role: _collect(own, store, plan, notes) for role, own in refits.items()}
    own = found["model"]
    if own is None:
        raise ValidationError(notes[-1])
    names: dict[Role, str] = {
        "model": type(model).__name__,
        "reference": "" if compared is None else type(compared).__name__,
    }
    return Validation(
        patients=patients, names=names, model=own, reference=found.get("reference"), centres=centres,
        design=plan.describe(), notes=tuple(dict.fromkeys(notes)), confidence=confidence, random_state=random_state,
        unit=getattr(model, "time_unit", None),
    )  # fmt: skip


def _check_numbers(resamples: int, repeats: int, folds: int) -> None:
    for name, value, least in (("resamples", resamples, 0), ("repeats", repeats, 1), ("folds", folds, 2)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least or (
            name == "resamples" and value == 1
        ):  # fmt: skip
            what = "0 or a whole number of at least 2" if name == "resamples" else f"a whole number of at least {least}"
            said = Message("{name} is {value!r}, but {what} is expected.", name=Parameter(name), value=value, what=what)
            raise ValidationError(said, parameter=name)


def _patients(X: Any, y: Any, by: Any, groups: Any, horizons: Any, metrics: Any) -> tuple[Patients, Any]:
    """Check what was passed; return the patients, and the label of each one's centre, if there are any."""
    X = as_pandas(X)
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X)).add_prefix("x")
    frame = frame.reset_index(drop=True)
    labels = _column(frame, by, "by")
    together = check_groups(_column(frame, groups, "groups"), len(frame))
    frame = frame.drop(columns=list({name for name in (by, groups) if isinstance(name, str)}))
    outcome = check_outcome(y, n_rows=len(frame), min_events=1)
    asked = default_horizons(outcome) if horizons is None else check_times(horizons, "horizons")
    chosen = choose_metrics(metrics)
    follow_up = _follow_up(frame, outcome)
    # Only times that these patients can say something about; a warning says which are left out.
    usable = Setting(outcome, _nobody_at_risk(len(outcome)), follow_up=follow_up, asked=asked).horizons
    return Patients(frame, outcome, usable, chosen, follow_up, together), labels


def _column(frame: pd.DataFrame, given: Any, parameter: str) -> Any:
    """Return the labels in a column that is named, or those that were given."""
    if not isinstance(given, str):
        return given
    if given not in frame:
        near = did_you_mean(given, [str(name) for name in frame.columns])
        raise ValidationError(
            Message(
                "{parameter} names {given!r}, which is no column of X.", parameter=Parameter(parameter), given=given
            ),
            parameter=parameter,
            remedy=near.rstrip(),
        )
    return frame[given]


def _follow_up(X: pd.DataFrame, y: npt.NDArray[np.void]) -> FollowUp | None:
    """Return what censoring weights follow, the same for every refit: features, or else the risk that CoxPH sees."""
    try:
        curves = make_model("coxph").fit(X, y).curves_for(X)
    except ValueError:
        found = study_follow_up(X, y)
        return found if found.depends else None
    return resolve_follow_up("auto", X, y, [curves])


def _nobody_at_risk(n: int) -> SurvivalCurves:
    return SurvivalCurves([1.0], np.ones((n, 1)))


def _reference(reference: Any, model: Any) -> Any | None:
    if isinstance(reference, str):
        made = make_model(reference)
        return None if type(made) is type(model) else made
    return reference


@dataclass(frozen=True)
class _Plan:
    """Who is drawn, who is in which fold, and with which seeds: the same for every model."""

    patients: Patients
    resamples: int
    repeats: int
    folds: int
    random_state: int

    def refits(self, role: Role, estimator: Any, centres: Sequence[Centre]) -> list[Refit]:
        """Return every refit of one model."""
        n, groups = len(self.patients.y), self.patients.groups
        everybody = np.arange(n)
        parts: list[tuple[Any, int, IntArray, IntArray, FloatArray | None]] = []
        if self.resamples:
            parts.append(("whole", 0, everybody, everybody, None))
        for b, drawn in enumerate(resampled_counts(n, self.resamples, self.random_state, groups)):
            parts.append(("resample", b, np.flatnonzero(drawn), everybody, drawn[drawn > 0]))
        for k, (train, test) in enumerate(self.dealt()):
            parts.append(("fold", k, train, test, None))
        for c, centre in enumerate(centres):
            parts.append(("centre", c, others(n, centre, groups), centre.rows, None))
        out = []
        for part, number, rows, predicted, counts in parts:
            stream = _MODELS + ("whole", "resample", "fold", "centre").index(part)
            seed = seeds(self.random_state, stream, number + 1)[number]
            fitted = prepared_estimator(estimator, seed)
            out.append(Refit(role, part, number, rows, predicted, seed, counts, fitted, self.patients))
        return out

    def dealt(self) -> list[tuple[IntArray, IntArray]]:
        """Return training and test rows of every fold, repeat after repeat."""
        y = self.patients.y
        out = []
        for seed in seeds(self.random_state, _FOLDS, self.repeats):
            out += fold_indices(y, n_folds=self.folds, random_state=seed, groups=self.patients.groups)
        fewest = min(int(y["event"][test].sum()) for _, test in out)
        if fewest < _MIN_EVENTS:
            raise ValidationError(
                f"with {plural(int(y['event'].sum()), 'event')} among {plural(len(y), 'patient')}, a fold of "
                f"{self.folds} has {fewest}, but at least {_MIN_EVENTS} are needed to say anything.",
                parameter="folds",
                remedy="Use fewer folds, or bring more patients.",
            )
        return out

    def describe(self) -> str:
        """Say in words what was done."""
        again = "" if self.repeats == 1 else f", {self.repeats} times"
        drawn = f"; {self.resamples} bootstrap samples" if self.resamples else ""
        return (
            f"{self.folds}-fold cross-validation{again}: metrics of the out-of-fold predictions, ranking within "
            f"folds, the others of all patients together{drawn} (seed {self.random_state})"
        )


def _collect(refits: Sequence[Refit], store: ResultStore, plan: _Plan, notes: list[str]) -> Found | None:
    """Return what a model's refits gave; None, with a note, if one failed that cannot be done without."""
    rows = {refit.key: store.read(refit.key) for refit in refits}
    for refit in refits:
        if rows[refit.key] is None and refit.part != "resample":
            who = type(refit.estimator).__name__
            notes.append(f"{who} could not be fitted to {refit.whom}: {_cause(store, refit)}")
            return None
    parts = {part: [one for one in refits if one.part == part] for part in ("whole", "resample", "fold", "centre")}
    drawn = [one for one in parts["resample"] if rows[one.key] is not None]
    lost = len(parts["resample"]) - len(drawn)
    if lost:
        failed = next(one for one in parts["resample"] if rows[one.key] is None)
        notes.append(
            f"{type(failed.estimator).__name__} could not be fitted to {lost} of {len(parts['resample'])} bootstrap "
            f"samples, which are left out: {_cause(store, failed)}"
        )
        if lost > len(parts["resample"]) // 2:
            return None
    patients = plan.patients
    repeats, dealt = [], []
    for r in range(plan.repeats):
        values = np.empty((len(patients.y), len(patients.nodes)), dtype=np.float32)
        own = parts["fold"][r * plan.folds : (r + 1) * plan.folds]
        for one in own:
            values[one.predicted] = store.curves(one.key).values
        repeats.append(SurvivalCurves(patients.nodes, values, interpolation="linear"))
        dealt.append([one.predicted for one in own])
    whole: Row | None = None
    unstable = None
    if parts["whole"]:
        whole = rows[parts["whole"][0].key]
        risk = 1 - store.curves(parts["whole"][0].key).evaluate(patients.horizons)
        unstable = Instability(
            patients.horizons, risk, 1 - np.stack([store.curves(one.key).values for one in drawn]).astype(np.float64)
        )
    return Found(
        pooled=Pooled(patients, repeats, dealt), whole=whole, resamples=[_row(rows[one.key]) for one in drawn],
        instability=unstable, by_centre=[store.curves(one.key) for one in parts["centre"]],
    )  # fmt: skip


def _row(row: Row | None) -> Row:
    assert row is not None
    return row


def _cause(store: ResultStore, refit: Refit) -> str:
    return str((store.failure(refit.key) or {"cause": "it is not known why"})["cause"])


@contextlib.contextmanager
def _kept(folder: str | PathLike[str] | None) -> Iterator[ResultStore]:
    """Yield the place where refits are kept, or one that is gone afterwards."""
    if folder is not None:
        yield ResultStore(Path(folder))
        return
    with scratch_folder() as place:
        yield ResultStore(place)


@contextlib.contextmanager
def _as_validation_error() -> Iterator[None]:
    with warnings.catch_warnings():
        try:
            yield
        except PlanError as error:
            raise ValidationError.of(error) from error
