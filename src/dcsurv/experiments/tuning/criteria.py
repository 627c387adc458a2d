"""What a search optimises: one metric, a weighted sum of several, or two at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from dcsurv.experiments.tuning.spaces import TuningError
from dcsurv.follow_up import FollowUp
from dcsurv.metrics import concordance_index_td, cumulative_dynamic_auc, ddc, integrated_brier_score

Direction: TypeAlias = Literal["maximize", "minimize"]

# Every metric in its default convention: censoring weights follow the features where these predict censoring; else they
# come from the training rows of the fold.
_METRICS: Final[dict[str, tuple[Direction, Callable[..., float]]]] = {
    "C-td": ("maximize", lambda y, curves, **_: concordance_index_td(y, curves)),
    "CDAUC": ("maximize", lambda y, curves, **weights: cumulative_dynamic_auc(y, curves, **weights).mean),
    "IBS": ("minimize", lambda y, curves, **weights: integrated_brier_score(y, curves, **weights)),
    "DDC": ("minimize", lambda y, curves, **_: ddc(y, curves)),
}


@dataclass(frozen=True)
class Criterion:
    """The objectives of a search.

    Attributes
    ----------
    metrics
        Names out of C-td, CDAUC, IBS and DDC.
    weights
        One per metric for a weighted sum (in which IBS and DDC count negatively); None where every metric is an
        objective of its own.
    """

    metrics: tuple[str, ...]
    weights: tuple[float, ...] | None = None

    @classmethod
    def make(cls, criterion: str | Sequence[str] | Mapping[str, float] | Criterion) -> Criterion:
        """Read a criterion: a name, a pair of names (two objectives), or weights by name (one weighted sum)."""
        if isinstance(criterion, Criterion):
            return criterion
        if isinstance(criterion, str):
            return cls((_metric(criterion),))
        if isinstance(criterion, Mapping):
            weights = tuple(float(weight) for weight in criterion.values())
            if not weights or not all(0 < weight < math.inf for weight in weights):
                raise TuningError(f"criterion is {dict(criterion)!r}, but weights above 0 by metric are expected.")
            return cls(tuple(map(_metric, criterion)), weights)
        names = tuple(map(_metric, criterion))
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
        parts = zip(self.metrics, self.weights, strict=True)
        return (" ".join(f"{'+' if _METRICS[m][0] == 'maximize' else '−'} {w:g} {m}" for m, w in parts).lstrip("+ "),)

    @property
    def directions(self) -> tuple[Direction, ...]:
        return ("maximize",) if self.weights is not None else tuple(_METRICS[name][0] for name in self.metrics)

    def measure(self, y: Any, curves: Any, y_train: Any, follow_up: FollowUp) -> dict[str, float]:
        """Return every metric of predicted curves; refuse what is not a number."""
        weights = {"y_train": y_train, "censoring": follow_up}
        out = {name: float(_METRICS[name][1](y, curves, **weights)) for name in self.metrics}
        for name, value in out.items():
            if not math.isfinite(value):
                raise FloatingPointError(f"{name} of the held-out patients is {value}.")
        return out

    def objectives(self, measured: Sequence[Mapping[str, float]]) -> tuple[float, ...]:
        """Return the objectives from the metrics of one or more folds, of which the mean counts."""
        means = {name: sum(fold[name] for fold in measured) / len(measured) for name in self.metrics}
        if self.weights is None:
            return tuple(means.values())
        signs = [1 if _METRICS[name][0] == "maximize" else -1 for name in self.metrics]
        return (sum(s * w * means[name] for name, w, s in zip(self.metrics, self.weights, signs, strict=True)),)

    def upward(self, objectives: Sequence[float]) -> tuple[float, ...]:
        """Return objectives turned so that higher is better."""
        return tuple(v if d == "maximize" else -v for v, d in zip(objectives, self.directions, strict=True))


def _metric(name: Any) -> str:
    """Find a metric by its name, whatever its capitals and hyphens."""
    for known in _METRICS:
        if str(name).lower().replace("-", "").replace("_", "") == known.lower().replace("-", ""):
            return known
    raise TuningError(f"there is no criterion {name!r}; there are {', '.join(_METRICS)}.")
