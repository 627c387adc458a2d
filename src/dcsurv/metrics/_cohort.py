"""A test cohort as the metrics see it: sorted by time, with its censoring weights for any number of resamples."""

from __future__ import annotations

import warnings
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from dcsurv.curves import SurvivalCurves, as_curves
from dcsurv.grid import check_convention
from dcsurv.nonparametric import StepFunction, censoring_curve
from dcsurv.target import BoolArray, FloatArray, IntArray, check_outcome, check_sample_weight, unpack

CensoringWeights: TypeAlias = Literal["before", "at"]


def counted(
    y: Any, curves: Any, sample_weight: npt.ArrayLike | None
) -> tuple[npt.NDArray[np.void], SurvivalCurves, FloatArray | None]:
    """Check outcome, curves and weights, and leave out the patients whose weight is 0, as if they were not there."""
    outcome = check_outcome(y)
    predicted = as_curves(curves, len(outcome))
    if sample_weight is None:
        return outcome, predicted, None
    weight = check_sample_weight(sample_weight, len(outcome))
    keep = weight > 0
    return (outcome, predicted, weight) if keep.all() else (outcome[keep], predicted[keep], weight[keep])


class Cohort:
    """The outcome sorted by time, with the distinct times and the weights that resampling needs.

    Weights come as a matrix with one row per weighting (resample), columns in the order of the sorted patients.
    """

    def __init__(self, y: Any, *, min_events: int = 1) -> None:
        time, event = unpack(y, min_events=min_events)
        # Events before censorings at a tied time; the order within does not matter.
        self.order: IntArray = np.lexsort((~event, time))
        self.time: FloatArray = time[self.order]
        self.event: BoolArray = event[self.order]
        self.distinct, start, self.group = np.unique(self.time, return_index=True, return_inverse=True)
        self.start: IntArray = np.append(start, len(time)).astype(np.int64)

    def __len__(self) -> int:
        return len(self.time)

    def weights(self, sample_weight: npt.ArrayLike | None) -> FloatArray:
        """Return one weighting, (1, n), in sorted order."""
        return check_sample_weight(sample_weight, len(self))[self.order][None, :]

    def rows(self, curves: SurvivalCurves, t: FloatArray) -> FloatArray:
        """Return S(t) with one row per time and the patients in sorted order, (m, n)."""
        return curves.evaluate_rows(t)[:, self.order]

    def survival(self, weight: FloatArray) -> FloatArray:
        """Return Kaplan-Meier survival at the distinct times under each weighting, (B, K)."""
        return self._product_limit(weight, self.event, lost_last=False)

    def censoring(self, weight: FloatArray) -> FloatArray:
        """Return the censoring curve G at the distinct times under each weighting, (B, K)."""
        return self._product_limit(weight, ~self.event, lost_last=True)

    def _product_limit(self, weight: FloatArray, lost: BoolArray, *, lost_last: bool) -> FloatArray:
        from dcsurv.metrics._kernels import product_limit

        out = np.empty((len(weight), len(self.distinct)))
        product_limit(weight, self.start, lost, lost_last, out)
        return out

    def read(self, at_distinct: FloatArray, times: FloatArray) -> FloatArray:
        """Read step curves that are 1 before the first distinct time, (B, K), at other times, (B, m)."""
        where = np.searchsorted(self.distinct, times, side="right")
        return np.concatenate([np.ones((len(at_distinct), 1)), at_distinct], axis=1)[:, where]


class CensoringModel:
    """Inverse-probability-of-censoring weights from the training outcome or from the test cohort itself.

    Parameters
    ----------
    weights
        ``"before"`` weighs an event at z by 1/G(z-), the probability of having been able to see it; ``"at"`` by
        1/G(z), as scikit-survival does. They differ where events and censorings share a time.
    """

    def __init__(self, cohort: Cohort, y_train: Any | None, weights: CensoringWeights) -> None:
        if weights not in get_args(CensoringWeights):
            raise ValueError(f"censoring_weights is {weights!r}, but 'before' or 'at' is expected.")
        self.cohort = cohort
        self.weights = weights
        self.train = None if y_train is None else censoring_curve(y_train)

    def event_probability(self, weight: FloatArray, curve: FloatArray | None) -> FloatArray:
        """Return G(z_i-) or G(z_i) for every patient under each weighting, (B, n) or (1, n)."""
        cohort = self.cohort
        if self.train is not None:
            read = self.train.before if self.weights == "before" else self.train
            return np.where(cohort.time <= self.train.times[-1], read(cohort.time), 0.0)[None, :]
        at = self.curve(weight) if curve is None else curve
        if self.weights == "before":
            at = np.concatenate([np.ones((len(at), 1)), at[:, :-1]], axis=1)
        return at[:, cohort.group]

    def curve(self, weight: FloatArray) -> FloatArray:
        """Return the cohort's own G at the distinct times under each weighting, (B, K)."""
        return self.cohort.censoring(weight)

    def case_weights(self, weight: FloatArray, curve: FloatArray | None = None) -> FloatArray:
        """Return weight / G for events, 0 for censored patients and where G has run out, (B, n)."""
        probability = self.event_probability(weight, curve)
        use = self.cohort.event & (probability > 0)
        return np.divide(weight, probability, out=np.zeros_like(weight), where=np.broadcast_to(use, weight.shape))

    def runs_out(self) -> float:
        """Return the time from which on nothing can be weighed: G is 0, or lies beyond the training follow-up."""
        cohort = self.cohort
        g = self.train or StepFunction(cohort.distinct, self.curve(np.ones((1, len(cohort))))[0], 1.0)
        gone = g.times[g.values <= 0]
        if len(gone):
            return float(gone[0])
        return np.inf if self.train is None else float(np.nextafter(g.times[-1], np.inf))


def keep_usable(times: FloatArray, model: CensoringModel, *, what: str, needs_cases: bool = True) -> FloatArray:
    """Drop the times where a metric is undefined, and say so."""
    cohort = model.cohort
    first = float(cohort.time[cohort.event][0]) if needs_cases else 0.0
    end = float(cohort.time[-1])
    end = min(end, model.runs_out())
    keep = (times >= first) & (times < end)
    if keep.all():
        return times
    if not keep.any():
        raise ValueError(
            f"{what} cannot be computed at any of the {len(times)} times from {times.min():g} to {times.max():g}: "
            f"it needs events before and patients under observation after a time, with a censoring weight, which "
            f"these data give from {first:g} to before {end:g}. Choose times in between."
        )
    warnings.warn(
        f"{what}: {int((~keep).sum())} of {len(times)} times were left out, because there are no events before "
        f"them, no patients after them, or no censoring weight; the last time used is {times[keep].max():g}.",
        UserWarning,
        stacklevel=4,
    )
    return times[keep]


def check_times(times: npt.ArrayLike, name: str = "times") -> FloatArray:
    """Return evaluation times as an ascending array."""
    out = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if out.ndim != 1 or len(out) == 0 or not np.isfinite(out).all() or (out < 0).any():
        raise ValueError(f"{name} must be one or more finite times that are not negative; got {times!r}.")
    if (np.diff(out) <= 0).any():
        raise ValueError(f"{name} must be in strictly ascending order; got {out[:5]}.")
    return out


def paper_nodes(convention: str, y_train: Any | None) -> FloatArray | None:
    """Return the times on which the paper projects all curves, or None in the default convention."""
    check_convention(convention)
    if convention == "default":
        return None
    if y_train is None:
        raise ValueError(
            "convention='paper' projects curves on the event and censoring times of the training part: pass y_train."
        )
    return np.unique(unpack(y_train)[0])


def node_before(nodes: FloatArray, t: FloatArray) -> FloatArray:
    """Return the last node at or before each time (the first one for earlier times)."""
    return nodes[np.maximum(np.searchsorted(nodes, t, side="right") - 1, 0)]


def node_after(nodes: FloatArray, t: FloatArray) -> FloatArray:
    """Return the first node strictly after each time (the last one for later times)."""
    return nodes[np.minimum(np.searchsorted(nodes, t, side="right"), len(nodes) - 1)]


def check_tolerance(tied_tol: float) -> None:
    """Refuse a tolerance that ties nothing or everything by accident."""
    if not 0 <= tied_tol < np.inf:
        raise ValueError(f"tied_tol is {tied_tol!r}, but a number of at least 0 is expected, such as 1e-8.")
