"""What metrics take: the patients sorted by time, their curves and weights, times, and the paper's nodes."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dcsurv.curves import SurvivalCurves, as_curves
from dcsurv.grid import check_convention
from dcsurv.nonparametric import last_usable_time
from dcsurv.target import BoolArray, FloatArray, IntArray, check_outcome, check_sample_weight, unpack

_HERE = str(Path(__file__).parent)


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


class SortedCohort:
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
        from dcsurv.metrics._kernels import product_limit

        out = np.empty((len(weight), len(self.distinct)))
        product_limit(weight, self.start, self.event, False, out)
        return out

    def read(self, at_distinct: FloatArray, times: FloatArray) -> FloatArray:
        """Read step curves that are 1 before the first distinct time, (B, K), at other times, (B, m)."""
        where = np.searchsorted(self.distinct, times, side="right")
        return np.concatenate([np.ones((len(at_distinct), 1)), at_distinct], axis=1)[:, where]


def default_horizons(y: Any) -> FloatArray:
    """Return the horizons at which metrics look if none are asked for.

    Parameters
    ----------
    y : outcome
        Outcome of n patients; see :func:`dcsurv.make_outcome`.

    Returns
    -------
    array of float
        The quartiles of the event times after 0, but for those later than :func:`dcsurv.cohort.last_usable_time`; the
        first in any case.
    """
    quartiles = event_quartiles(y)
    last = last_usable_time(*unpack(y))
    return quartiles[(quartiles <= last) | (quartiles == quartiles[0])]


def event_quartiles(y: Any) -> FloatArray:
    """Return the quartiles of the event times after 0."""
    cohort = SortedCohort(y)
    events = cohort.time[cohort.event & (cohort.time > 0)]
    if len(events) == 0:
        raise ValueError("every event is at time 0, so there is no horizon to look at. Check the time column.")
    return np.unique(np.quantile(events, [0.25, 0.5, 0.75]))


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


def warn(message: str) -> None:
    """Warn in the name of the line that called a metric, however many functions lie between."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)
