"""What a search optimises: one metric, a weighted sum of several, or two at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from dcsurv.follow_up import FollowUp
from dcsurv.metrics import Metric, find_metric, list_metrics
from dcsurv.metrics.evaluation import measure
from dcsurv.search_space import TuningError

Direction: TypeAlias = Literal["maximize", "minimize"]


@dataclass(frozen=True)
class Criterion:
    """The objectives of a search.

    Attributes
    ----------
    metrics : tuple of str
        Names of metrics without horizons, such as C-td, CDAUC, IBS and DDC.
    weights : tuple of float or None, default None
        One per metric for a weighted sum (in which those count negatively of which lower is better, such as IBS and
        DDC); None where every metric is an objective of its own.

    Examples
    --------
    >>> from dcsurv.experiments.tuning import Criterion
    >>> Criterion.make(("cdauc", "ddc")).directions
    ('maximize', 'minimize')
    >>> Criterion.make({"CDAUC": 1, "DDC": 0.5}).labels
    ('1 CDAUC − 0.5 DDC',)
    """

    metrics: tuple[str, ...]
    weights: tuple[float, ...] | None = None
    # Kept, not looked up by name: in another process they bring along the module that declares them.
    _records: tuple[Metric, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_records", tuple(map(_record, self.metrics)))

    @classmethod
    def make(cls, criterion: str | Sequence[str] | Mapping[str, float] | Criterion) -> Criterion:
        """Read a criterion.

        Parameters
        ----------
        criterion : str, sequence of str, mapping of str to float, or Criterion
            The name of a metric, a pair of names (two objectives), or weights by name (one weighted sum).

        Returns
        -------
        Criterion
            The criterion.
        """
        if isinstance(criterion, Criterion):
            return criterion
        if isinstance(criterion, str):
            return cls((_record(criterion).name,))
        if isinstance(criterion, Mapping):
            weights = tuple(float(weight) for weight in criterion.values())
            if not weights or not all(0 < weight < math.inf for weight in weights):
                raise TuningError(f"criterion is {dict(criterion)!r}, but weights above 0 by metric are expected.")
            return cls(tuple(_record(name).name for name in criterion), weights)
        names = tuple(_record(name).name for name in criterion)
        if len(names) != 2 or names[0] == names[1]:
            raise TuningError(
                f"criterion is {criterion!r}, but a metric, a pair of two different ones, or weights by metric are "
                "expected, such as {'CDAUC': 1, 'DDC': 0.5}."
            )
        return cls(names)

    @property
    def labels(self) -> tuple[str, ...]:
        """What the objectives are called."""
        if self.weights is None:
            return self.metrics
        parts = zip(self._records, self.weights, strict=True)
        return (" ".join(f"{'+' if m.better == 'higher' else '−'} {w:g} {m.name}" for m, w in parts).lstrip("+ "),)

    @property
    def directions(self) -> tuple[Direction, ...]:
        """Which way each objective is better."""
        if self.weights is not None:
            return ("maximize",)
        return tuple("maximize" if metric.better == "higher" else "minimize" for metric in self._records)

    def measure(self, y: Any, curves: Any, follow_up: FollowUp) -> dict[str, float]:
        """Return every metric of predicted curves; refuse what is not a number.

        Censoring weights follow the features where these predict censoring; else they are the same for all.

        Parameters
        ----------
        y : outcome
            Outcome of the held-out patients.
        curves : SurvivalCurves
            Their predicted curves.
        follow_up : FollowUp
            How long the held-out patients could be followed.

        Returns
        -------
        dict of str to float
            The value of each metric by its name.
        """
        out = measure(y, curves, self._records, follow_up)
        for name, value in out.items():
            if not math.isfinite(value):
                raise FloatingPointError(f"{name} of the held-out patients is {value}.")
        return out

    def objectives(self, measured: Sequence[Mapping[str, float]]) -> tuple[float, ...]:
        """Return the objectives from the metrics of one or more folds, of which the mean counts.

        Parameters
        ----------
        measured : sequence of mapping of str to float
            For each fold, what :meth:`measure` returned.

        Returns
        -------
        tuple of float
            One number per objective.
        """
        means = {name: sum(fold[name] for fold in measured) / len(measured) for name in self.metrics}
        if self.weights is None:
            return tuple(means.values())
        signs = [1 if metric.better == "higher" else -1 for metric in self._records]
        return (sum(s * w * means[name] for name, w, s in zip(self.metrics, self.weights, signs, strict=True)),)

    def upward(self, objectives: Sequence[float]) -> tuple[float, ...]:
        """Return objectives turned so that higher is better.

        Parameters
        ----------
        objectives : sequence of float
            What :meth:`objectives` returned.

        Returns
        -------
        tuple of float
            The same numbers, with the other sign where lower is better.
        """
        return tuple(v if d == "maximize" else -v for v, d in zip(objectives, self.directions, strict=True))


def _record(name: Any) -> Metric:
    """Find a metric that a search can optimise by its name, whatever its capitals and hyphens."""
    try:
        metric = find_metric(name)
    except ValueError:
        metric = None
    if metric is None or not metric.optimisable:
        possible = ", ".join(metric.name for metric in list_metrics() if metric.optimisable)
        raise TuningError(f"there is no criterion {name!r}; there are {possible}.")
    return metric
