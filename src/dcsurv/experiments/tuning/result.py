"""What a search found: its trials, the best settings, figures, and the file that keeps settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from dcsurv.calibration import COMPANIONS, CalibratedEnsemble, default_member
from dcsurv.experiments.tuning.criteria import Criterion
from dcsurv.experiments.tuning.spaces import named_estimator
from dcsurv.experiments.tuning.study import is_lost, is_own, is_surplus, quiet
from dcsurv.kinds import kind_of, make_model
from dcsurv.models.saved_model import plain_random_state
from dcsurv.plain import plain
from dcsurv.preprocessing import Preprocessor
from dcsurv.search_space import Choice, Space, TuningError
from dcsurv.writing import make_folder, together, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = 1


class TuningResult:
    """The trials of a study and what is best among them, as :func:`dcsurv.tune` returns them.

    Parameters
    ----------
    study : Study
        Optuna's study, for all that is not here.
    estimator : estimator
        The unfitted model that was tuned.
    space : dict
        What was searched.
    criterion : Criterion
        What was optimised.

    Attributes
    ----------
    trials : DataFrame
        One row per trial: ``number``, ``state`` (complete; pruned: fell behind; slow: stopped for its time; failed;
        lost: its process was killed, and it was begun again under another number), one column per objective (empty
        unless complete), ``folds`` (how many ended), ``seconds``, ``cause``, then the settings.

    Examples
    --------
    >>> from dcsurv import CoxPH, tune
    >>> from dcsurv.datasets import simulate
    >>> from dcsurv.experiments.tuning import Float
    >>> cohort = simulate("independent", 200)
    >>> space = {"penalizer": Float(1e-3, 1.0, log=True)}
    >>> result = tune(CoxPH(), cohort.X, cohort.y, n_trials=2, space=space, folds=2)
    >>> result.trials["state"].tolist(), list(result.best_params)
    (['complete', 'complete'], ['penalizer'])
    """

    def __init__(self, study: Any, estimator: Any, space: Space, criterion: Criterion) -> None:
        self.study, self.space, self.criterion = study, space, criterion
        self._estimator = estimator
        with quiet():
            ended = [t for t in study.get_trials(deepcopy=False) if t.state.is_finished()]
        self._frozen = [trial for trial in ended if not is_surplus(trial)]
        self.trials = pd.DataFrame(
            [self._row(trial) for trial in self._frozen],
            columns=["number", "state", *criterion.labels, "folds", "seconds", "cause", *space],
        )

    def _row(self, trial: Any) -> dict[str, Any]:
        told = trial.user_attrs
        complete = told.get("state") == "complete"
        return {
            "number": trial.number,
            "state": "lost" if is_lost(trial) else told.get("state", "failed"),
            **dict(zip(self.criterion.labels, trial.values if complete else [np.nan] * 2, strict=False)),
            "folds": len(told.get("folds", ())),
            "seconds": told.get("seconds"),
            "cause": told.get("cause", ""),
            **told.get("settings", trial.params),
        }

    # --- the best -----------------------------------------------------------------------------------------

    @property
    def front(self) -> pd.DataFrame:
        """The complete trials that no other one beats in every objective, best first in the first objective."""
        complete = self.trials[self.trials["state"] == "complete"]
        values = np.array(
            [self.criterion.upward(row) for row in complete[list(self.criterion.labels)].to_numpy().tolist()]
        )
        beaten = [any((other >= own).all() and (other > own).any() for other in values) for own in values]
        front = complete[~np.array(beaten, dtype=bool)]
        return front.sort_values(self.criterion.labels[0], ascending=self.criterion.directions[0] == "minimize")

    @property
    def best_trial(self) -> pd.Series:
        """The row of the best trial; of two objectives, the one of the front that lies nearest to the best of both.

        Nearest where both objectives are scaled to run from 0 to 1 over the front.
        """
        front = self.front
        if front.empty:
            causes = self.trials.loc[self.trials["cause"] != "", "cause"]
            told = f" The last one: {causes.iloc[-1].rstrip('.')}." if len(causes) else ""
            raise TuningError(f"no trial is complete ({self.n_trials} tried), so there are no best settings.{told}")
        if len(self.criterion.labels) == 1:
            return front.iloc[0]
        values = np.array(
            [self.criterion.upward(row) for row in front[list(self.criterion.labels)].to_numpy().tolist()]
        )
        spread = np.ptp(values, axis=0)
        distance = np.linalg.norm((values.max(axis=0) - values) / np.where(spread > 0, spread, 1), axis=1)
        return front.iloc[int(distance.argmin())]

    @property
    def best_params(self) -> dict[str, Any]:
        """The best settings, as ``estimator.set_params`` takes them."""
        number = int(self.best_trial["number"])
        settings: dict[str, Any] = next(t for t in self._frozen if t.number == number).user_attrs["settings"]
        return dict(settings)

    @property
    def best_value(self) -> float | tuple[float, ...]:
        """The criterion of the best trial, the mean over the folds; a pair for two objectives."""
        values = tuple(float(self.best_trial[label]) for label in self.criterion.labels)
        return values[0] if len(values) == 1 else values

    @property
    def n_trials(self) -> int:
        """How many trials there were, without those that were lost with their process and begun again."""
        return sum(self.counts().values())

    def counts(self) -> dict[str, int]:
        """Return how many trials there are by state, without those that were lost and begun again.

        Returns
        -------
        dict of str to int
            The most frequent state first.
        """
        states = self.trials.loc[self.trials["state"] != "lost", "state"]
        return {str(state): int(number) for state, number in states.value_counts().items()}

    @property
    def own_value(self) -> float | tuple[float, ...] | None:
        """The criterion of the settings that the estimator came with; None if that trial did not end all folds."""
        numbers = [trial.number for trial in self._frozen if is_own(trial)]
        rows = self.trials[self.trials["number"].isin(numbers) & (self.trials["state"] == "complete")]
        if rows.empty:
            return None
        values = tuple(float(rows.iloc[0][label]) for label in self.criterion.labels)
        return values[0] if len(values) == 1 else values

    def best_estimator(self) -> Any:
        """Return the estimator with the best settings, unfitted: fit it to the whole training part.

        Returns
        -------
        estimator
            A copy.
        """
        return clone(self._estimator).set_params(**self.best_params)

    def save_settings(self, path: str | PathLike[str]) -> None:
        """Write the best settings to a JSON file; see :func:`read_settings`.

        Parameters
        ----------
        path : str or path-like
            The file.
        """
        found = {
            "criterion": self.criterion.labels[0] if len(self.criterion.labels) == 1 else list(self.criterion.labels),
            "value": self.best_value,
            "own_value": self.own_value,
            "trials": self.counts(),
        }
        save_settings(path, self.best_estimator(), **found)

    # --- figures ------------------------------------------------------------------------------------------

    def importance(self) -> pd.Series:
        """Return how much of the criterion each searched parameter explains (PED-ANOVA), in shares of 1.

        Complete trials only. Of two objectives, the first counts.
        """
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

        complete = self.trials[self.trials["state"] == "complete"]
        varying = [name for name in self.space if complete[name].nunique(dropna=False) > 1]
        if len(complete) < 2 or not varying:
            raise TuningError("importance needs at least two complete trials with different settings.")
        with quiet():
            shares = get_param_importances(
                self.study,
                evaluator=PedAnovaImportanceEvaluator(),
                params=varying,
                target=lambda trial: trial.values[0],
            )
        return pd.Series(shares, name="importance").sort_values(ascending=False)

    def plot_history(self) -> Figure:
        """Draw every trial's criterion in the order of trials, and the best so far."""
        from dcsurv.figures.tuning import search_history

        return search_history(self.trials, self.criterion.labels[0], self.criterion.directions[0])

    def plot_importance(self) -> Figure:
        """Draw what share of the criterion each parameter explains."""
        from dcsurv.figures.tuning import parameter_importance

        return parameter_importance(self.importance(), self.criterion.labels[0])

    def plot_parallel(self) -> Figure:
        """Draw every complete trial as a line over its settings, coloured by the criterion."""
        from dcsurv.figures.tuning import parallel_settings

        log = [name for name, dimension in self.space.items() if not isinstance(dimension, Choice) and dimension.log]
        return parallel_settings(
            self.trials, list(self.space), self.criterion.labels[0], self.criterion.directions[0], log=log
        )

    def plot_front(self) -> Figure:
        """Draw the two objectives of every complete trial and the front between them."""
        from dcsurv.figures.tuning import pareto_front

        if len(self.criterion.labels) != 2:
            raise TuningError("a front needs two objectives: tune with a pair, such as criterion=('CDAUC', 'DDC').")
        labels = (self.criterion.labels[0], self.criterion.labels[1])
        directions = (self.criterion.directions[0], self.criterion.directions[1])
        return pareto_front(self.trials, self.front, labels, directions, chosen=int(self.best_trial["number"]))

    def save_figures(self, folder: str | PathLike[str]) -> list[Path]:
        """Draw what the trials allow (history, settings, importance, front), each as SVG and PNG.

        Parameters
        ----------
        folder : str or path-like
            Where to; it is made if it is not there.

        Returns
        -------
        list of Path
            The files.
        """
        from dcsurv.figures import save

        drawn = {"history": self.plot_history, "parallel": self.plot_parallel}
        if (self.trials["state"] == "complete").sum() > 2:
            drawn["importance"] = self.plot_importance
        if len(self.criterion.labels) == 2:
            drawn["front"] = self.plot_front
        with together(Path(folder)):
            make_folder(Path(folder))
            return [path for name, draw in drawn.items() for path in save(draw(), Path(folder) / name)]


def save_settings(path: str | PathLike[str], estimator: Any, **found: Any) -> None:
    """Write the model and settings of an unfitted estimator to a JSON file, with what was found about them.

    Parameters
    ----------
    path : str or path-like
        The file.
    estimator : estimator
        An unfitted model.
    **found : object
        Plain data to keep beside the settings, such as ``criterion`` and ``value``.
    """
    name, parameters = _as_data(estimator)
    document = {"format": FORMAT, "model": name, "parameters": parameters, **found, "dcsurv": version("dcsurv")}
    try:
        text = json.dumps(plain(document), indent=1)
    except TypeError as error:
        raise TuningError(f"{error}: it cannot be kept in a settings file.") from None
    write_atomically(Path(path), f"{text}\n".encode())


def read_settings(path: str | PathLike[str]) -> Any:
    """Return the unfitted estimator of a settings file.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    estimator
        With the settings of the file.

    Raises
    ------
    TuningError
        If the file is none, or names a model or parameters that there are not.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TuningError(f"there is no settings file at {path}.") from None
    except (OSError, ValueError) as error:
        raise TuningError(f"{path} is not a settings file: {error}.") from None
    if not isinstance(document, dict) or not isinstance(document.get("model"), str):
        raise TuningError(f"{path} is not a settings file: it names no model.")
    if document.get("format", FORMAT) != FORMAT:
        raise TuningError(f"{path} has format {document['format']}, but this version of dcsurv reads format {FORMAT}.")
    parameters = dict(document.get("parameters", {}))
    name: str = document["model"]
    estimator = named_estimator(_OLDER_NAMES.get(name, name))
    if name in _OLDER_NAMES:
        estimator.set_params(companions=())  # there were no other families then
    if isinstance(parameters.get("estimator"), str):
        estimator.set_params(estimator=named_estimator(parameters.pop("estimator")))
    if isinstance(parameters.get("preprocess"), Mapping):
        parameters["preprocess"] = Preprocessor(**{k: _immutable(v) for k, v in parameters["preprocess"].items()})
    unknown = [name for name in parameters if name not in estimator.get_params()]
    if unknown:
        raise TuningError(f"{path} sets {unknown}, which a {document['model']} does not have.")
    return estimator.set_params(**{name: _immutable(value) for name, value in parameters.items()})


# What files of version 0.1 call some models.
_OLDER_NAMES = {"ensemble": "calibrated"}


def _as_data(estimator: Any) -> tuple[str, dict[str, Any]]:
    """Return an estimator's name and the parameters in which it differs from the default of that name."""
    kind = kind_of(estimator)
    if kind is None or not kind.by_name:
        raise TuningError(
            f"settings of a {type(estimator).__name__} cannot be kept in a file: it is not a registered model."
        )
    default = make_model(kind.name).get_params()
    out: dict[str, Any] = {}
    member = estimator.get_params(deep=False).get("estimator")
    if member is None and isinstance(estimator, CalibratedEnsemble):
        # In full, so that the file means the same model where the default is another one.
        member = default_member()
        if estimator.companions is None:
            out["companions"] = COMPANIONS
    if member is not None:
        member_name, member_parameters = _as_data(member)
        out |= {"estimator": member_name} | {f"estimator__{name}": value for name, value in member_parameters.items()}
    for name, value in estimator.get_params(deep=False).items():
        if name == "estimator" or (value == default[name] and type(value) is type(default[name])):
            continue
        if isinstance(value, Preprocessor):
            out[name] = value.get_params()
        elif name == "random_state":
            out |= plain_random_state({name: value})
        elif value is None or isinstance(value, bool | int | float | str | np.generic | list | tuple):
            out[name] = value
        else:
            raise TuningError(f"{name} is {value!r}, which a settings file cannot hold.")
    return kind.name, out


def _immutable(value: Any) -> Any:
    """Return JSON's lists as the tuples that they were."""
    return tuple(value) if isinstance(value, list) else value
