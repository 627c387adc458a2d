"""The refits that a validation rests on: to whom a model is fitted, whom it then predicts, and what is kept of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from dcsurv.curves import SurvivalCurves
from dcsurv.experiments.plan import expected_cost, settings_of
from dcsurv.experiments.store import Row
from dcsurv.follow_up import FollowUp
from dcsurv.messages import InputError
from dcsurv.metrics import Metric, Setting
from dcsurv.metrics.evaluation import PreparedMetrics, Values
from dcsurv.models.curve_model import held_out_curves
from dcsurv.target import FloatArray, IntArray

# Whose fit it is: the model that is validated, or the one that it is compared with.
Role: TypeAlias = Literal["model", "reference"]
# To whom: everybody, a bootstrap sample, all but one fold, all but one centre.
Part: TypeAlias = Literal["whole", "resample", "fold", "centre"]

_WHOM: Final[dict[Part, str]] = {
    "whole": "all patients", "resample": "bootstrap sample {}", "fold": "all but fold {}",
    "centre": "all but centre {}",
}  # fmt: skip

# A metric and its horizon, None where it has none.
MetricKey: TypeAlias = tuple[str, float | None]

# Curves of different fits are read at common times: all observed ones, or as many quantiles of them.
_NODES: Final = 512
# Outcomes dealt out anew, to see what a metric is where predictions say nothing.
_SHUFFLES: Final = 5
# Refits stored under another number are not read.
_FORMAT: Final = 1


class ValidationError(InputError):
    """A validation that cannot be made, or that went wrong on the way.

    Parameters
    ----------
    message : str
        What was wrong and what arrived.
    parameter : str or None, default None
        The parameter concerned, if it is one.
    remedy : str, default ""
        What to do.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.datasets import simulate
    >>> from dcsurv.validation import ValidationError
    >>> cohort = simulate("independent", 50)
    >>> try:
    ...     dcsurv.validate(dcsurv.CoxPH(), cohort.X, cohort.y, folds=10)
    ... except ValidationError as error:
    ...     print(error.parameter, "|", error.remedy)
    folds | Use fewer folds, or bring more patients.
    """


@dataclass(frozen=True)
class Patients:
    """The patients of a validation and what is measured on them: the same for every refit."""

    X: pd.DataFrame
    y: npt.NDArray[np.void]
    horizons: FloatArray
    metrics: tuple[Metric, ...]
    follow_up: FollowUp | None
    groups: IntArray | None = None  # rows that belong to one patient

    @cached_property
    def nodes(self) -> FloatArray:
        """The times at which curves of different fits are read, horizons among them."""
        times = np.unique(self.y["time"])
        if len(times) > _NODES:
            times = np.quantile(times, np.linspace(0, 1, _NODES), method="nearest")
        return np.union1d(times, self.horizons)

    @cached_property
    def digest(self) -> str:
        """A digest of all that decides what a refit gives."""
        digest = hashlib.sha256()
        for part in (pd.util.hash_pandas_object(self.X).to_numpy(), self.y["time"], self.y["event"], self.horizons):
            digest.update(np.ascontiguousarray(part).tobytes())
        if self.groups is not None:
            digest.update(self.groups.tobytes())
        digest.update("|".join([*map(str, self.X.columns), *(metric.name for metric in self.metrics)]).encode())
        return digest.hexdigest()

    def part(self, rows: IntArray) -> Patients:
        """Return some of the patients, for what can be measured in a small group: not calibration."""
        follow_up = None if self.follow_up is None else self.follow_up.take(rows)
        metrics = tuple(metric for metric in self.metrics if metric.aspect != "calibration")
        return Patients(self.X.iloc[rows], self.y[rows], self.horizons, metrics, follow_up)

    def measured(self, curves: SurvivalCurves) -> PreparedMetrics:
        """Return the metrics of the patients' curves, prepared for any weights."""
        return PreparedMetrics(self.metrics, Setting(self.y, curves, follow_up=self.follow_up, asked=self.horizons))


@dataclass(frozen=True)
class Refit:
    """One model, fitted to one part of the patients.

    Attributes
    ----------
    rows
        To whom it is fitted; ``counts`` says how often each of them counts, None: once.
    predicted
        Whose curves are wanted.
    """

    role: Role
    part: Part
    number: int
    rows: IntArray
    predicted: IntArray
    seed: int
    counts: FloatArray | None = field(repr=False)
    estimator: Any = field(repr=False)
    patients: Patients = field(repr=False)

    @cached_property
    def key(self) -> str:
        """The name of its files; everything that decides its result goes into it."""
        drawn = hashlib.sha256()
        for part in (self.rows, self.predicted, self.counts):
            drawn.update(b"" if part is None else np.ascontiguousarray(part).tobytes())
        made_with = [_FORMAT, version("dcsurv"), settings_of(self.estimator)]
        identity = [*made_with, self.patients.digest, self.seed, drawn.hexdigest()]
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        return f"{self.role}_{self.part}{self.number}_{digest[:10]}"

    @property
    def label(self) -> str:
        """What it is called in messages."""
        return f"{type(self.estimator).__name__}, {self.whom}"

    @property
    def whom(self) -> str:
        """Which patients it is fitted to, in words."""
        return _WHOM[self.part].format(self.number + 1)

    @property
    def cost(self) -> float:
        """A rough guess of the time it takes, in arbitrary units."""
        return expected_cost(self.estimator, len(self.rows))


def seeds(random_state: int, stream: int, count: int) -> list[int]:
    """Return seeds that are the same for the same state, whatever else is drawn."""
    return [int(seed >> 1) for seed in np.random.SeedSequence([random_state, stream]).generate_state(count)]


def resampled_counts(n: int, resamples: int, random_state: int, groups: IntArray | None = None) -> list[FloatArray]:
    """Return for each bootstrap sample how often each row was drawn; more samples begin with the same ones.

    Rows of one group are drawn together.
    """
    place = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    n_drawn = int(place.max()) + 1
    out = []
    for seed in seeds(random_state, 1, resamples):
        drawn = np.random.default_rng(seed).integers(0, n_drawn, n_drawn)
        out.append(np.bincount(drawn, minlength=n_drawn)[place].astype(np.float64))
    return out


def prepared_estimator(estimator: Any, seed: int) -> Any:
    """Return a copy of a model with a seed of its own, which runs in one process."""
    copy = clone(estimator)
    own = copy.get_params(deep=False)
    if "n_jobs" in own:
        copy.set_params(n_jobs=1)
    # A model that hands its seed on, as an ensemble does, is seeded itself; else the parts of a pipeline are.
    named = ["random_state"] if "random_state" in own else [
        name for name in copy.get_params() if name.endswith("__random_state")
    ]  # fmt: skip
    return copy.set_params(**dict.fromkeys(named, seed))


def fit_and_predict(refit: Refit) -> tuple[Row, SurvivalCurves]:
    """Fit, predict and measure; return what is kept."""
    patients = refit.patients
    model = _fitted(refit)
    curves = _read(held_out_curves(model, patients.X.iloc[refit.predicted]), patients.nodes)
    row: Row = {"role": refit.role, "part": refit.part, "number": refit.number}
    if refit.part == "whole":
        row["apparent"] = _records(patients.measured(curves).once(None))
        row["no_information"] = _records(_without_information(patients, curves, refit.seed))
    if refit.part == "resample":
        assert refit.counts is not None
        drawn = np.zeros(len(patients.y))
        drawn[refit.rows] = refit.counts
        prepared = patients.measured(curves)
        weights = {"training": drawn, "original": None, "out_of_bag": (drawn == 0).astype(np.float64)}
        row |= {name: _records(prepared.once(weight)) for name, weight in weights.items()}
        return row, SurvivalCurves(patients.horizons, curves.evaluate(patients.horizons), interpolation="linear")
    return row, curves


def _read(curves: SurvivalCurves, nodes: FloatArray) -> SurvivalCurves:
    """Return curves on common nodes, those with steps falling to the first step along a line.

    A step curve is 1 for everybody until the first event of those whom the model was fitted to. Where the first event
    of the others is earlier, as in one fold of every cross-validation, all pairs with it would be ties, and a model
    with steps would look worse than one with lines for nothing.
    """
    values = curves.evaluate(nodes)
    early = nodes < curves.times[0]
    if curves.interpolation == "step" and early.any():
        fallen = 1 - curves.evaluate(curves.times[:1])
        values[:, early] = 1 - fallen * nodes[early] / curves.times[0]
    return SurvivalCurves(nodes, values, interpolation="linear")


def _fitted(refit: Refit) -> Any:
    X, y = refit.patients.X.iloc[refit.rows], refit.patients.y[refit.rows]
    groups, together = refit.patients.groups, {}
    if groups is not None and has_fit_parameter(refit.estimator, "groups"):
        together = {"groups": groups[refit.rows]}
    if refit.counts is None:
        model = refit.estimator.fit(X, y, **together)
    elif has_fit_parameter(refit.estimator, "sample_weight"):
        # Weights, not repeated rows: copies of one patient in different folds of a model that cross-fits inside would
        # let it predict those that it has learned.
        model = refit.estimator.fit(X, y, sample_weight=refit.counts, **together)
    else:
        copies = np.repeat(np.arange(len(y)), refit.counts.astype(np.int64))
        model = refit.estimator.fit(X.iloc[copies], y[copies])
    if getattr(model, "training_summary_", {}).get("stopped_by") == "interrupt":
        raise KeyboardInterrupt
    return model


def _without_information(patients: Patients, curves: SurvivalCurves, seed: int) -> Values:
    """Return the metrics of predictions that belong to other patients."""
    generator = np.random.default_rng(seed)
    found = [
        replace(patients, y=patients.y[generator.permutation(len(patients.y))]).measured(curves).once(None)
        for _ in range(_SHUFFLES)
    ]
    return {key: np.mean([one[key] for one in found if key in one], axis=0) for key in found[0]}


def metric_key(name: str, horizon: float) -> MetricKey:
    """Return the key of a metric, whose horizon may be NaN."""
    return name, None if np.isnan(horizon) else float(horizon)


def _records(values: Mapping[tuple[str, float], FloatArray]) -> list[list[Any]]:
    """Return metrics as JSON holds them: name, horizon or None, value."""
    return [[*metric_key(name, t), float(value[0])] for (name, t), value in values.items()]


def from_records(records: Sequence[Sequence[Any]]) -> dict[MetricKey, float]:
    """Return metrics by name and horizon."""
    return {(name, t): value for name, t, value in records}
