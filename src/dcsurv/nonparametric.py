"""Estimates that need no features: Kaplan-Meier, the censoring distribution, Breslow's baseline hazard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dcsurv.target import BoolArray, FloatArray, check_sample_weight, make_outcome, unpack

# Probability of being uncensored down to which weights by its inverse go: beyond, a few patients would stand for all.
LOWEST_CENSORING = 0.05
# How many patients have to be under observation at a time for it to be looked at, for the same reason.
_AT_RISK = 10


@dataclass(frozen=True)
class StepFunction:
    """A right-continuous step function: ``initial`` before the first time, ``values[k]`` from ``times[k]`` on.

    Attributes
    ----------
    times : array of float
        Where it may jump, ascending, (K,).
    values : array of float
        What it is from each of these times on, (K,).
    initial : float
        What it is before.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.nonparametric import StepFunction
    >>> step = StepFunction(np.array([1.0, 3.0]), np.array([0.8, 0.5]), initial=1.0)
    >>> step([0, 1, 2, 3])
    array([1. , 0.8, 0.8, 0.5])
    >>> step.before([1, 3])
    array([1. , 0.8])
    """

    times: FloatArray
    values: FloatArray
    initial: float

    def __call__(self, t: npt.ArrayLike) -> FloatArray:
        """Return the value at t."""
        return self._read(t, "right")

    def before(self, t: npt.ArrayLike) -> FloatArray:
        """Return the limit from the left, the value just before a time.

        Parameters
        ----------
        t : array-like of float
            One time or several.

        Returns
        -------
        array of float
            The value before each of them.
        """
        return self._read(t, "left")

    def _read(self, t: npt.ArrayLike, side: Any) -> FloatArray:
        at = np.searchsorted(self.times, np.asarray(t, dtype=np.float64), side=side)
        out: FloatArray = np.concatenate([[self.initial], self.values])[at]
        return out


def kaplan_meier(y: Any, *, sample_weight: npt.ArrayLike | None = None) -> StepFunction:
    """Estimate the survival curve S(t) of a cohort.

    S(t) = prod_{t_k <= t} (1 - d_k / n_k), with d_k events and n_k patients at risk at t_k. A patient censored
    at t_k is still at risk there.

    Parameters
    ----------
    y : outcome
        Outcome of n patients.
    sample_weight : array-like of float or None, default None
        One non-negative weight per patient; None: all count the same.

    Returns
    -------
    StepFunction
        S, at the distinct times of the cohort.

    Examples
    --------
    >>> from dcsurv import make_outcome
    >>> from dcsurv.nonparametric import kaplan_meier
    >>> kaplan_meier(make_outcome(time=[1, 2, 3, 4], event=[1, 0, 1, 0])).values
    array([0.75 , 0.75 , 0.375, 0.375])
    """
    time, event = unpack(y)
    return _product_limit(time, event, check_sample_weight(sample_weight, len(time)), events_first=False)


def censoring_curve(y: Any, *, sample_weight: npt.ArrayLike | None = None, events_first: bool = True) -> StepFunction:
    """Estimate G(t), the probability of not being censored by t: Kaplan-Meier with the two roles swapped.

    Parameters
    ----------
    y : outcome
        Outcome of n patients.
    sample_weight : array-like of float or None, default None
        One non-negative weight per patient; None: all count the same.
    events_first : bool, default True
        At a tied time the events come before the censorings, so that a patient with an event at t is no longer
        at risk of being censored at t (the usual convention, and scikit-survival's). False counts them, as
        lifelines does when it is given ``1 - event``.

    Returns
    -------
    StepFunction
        G, at the distinct times of the cohort.
    """
    time, event = unpack(y)
    weight = check_sample_weight(sample_weight, len(time))
    return _product_limit(time, ~event, weight, events_first=events_first)


def breslow(
    time: FloatArray, event: npt.NDArray[np.bool_], risk: FloatArray, weight: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the event times and Breslow's cumulative baseline hazard at them.

    H0(t) = sum_{t_k <= t} d_k / sum_{z_j >= t_k} exp(g_j)

    Parameters
    ----------
    time : array of float
        Observed times, (n,).
    event : array of bool
        Whether the event was observed, (n,).
    risk : array of float
        exp(g), the relative risk of each patient, (n,).
    weight : array of float or None, default None
        One non-negative weight per patient; None: all count the same.

    Returns
    -------
    times : array of float
        The distinct times of events.
    hazard : array of float
        H0 at these times.
    """
    if weight is None:
        weight = np.ones(len(time))
    order = np.argsort(time, kind="stable")
    distinct, start = np.unique(time[order], return_index=True)
    deaths = np.add.reduceat((weight * event)[order], start)
    # Reversed running sum: everybody with a time at or after t_k is at risk at t_k.
    at_risk = np.cumsum((weight * risk)[order][::-1])[::-1][start]
    seen = deaths > 0
    return distinct[seen], np.cumsum(deaths[seen] / at_risk[seen])


def _product_limit(
    time: FloatArray, event: npt.NDArray[np.bool_], weight: FloatArray, *, events_first: bool
) -> StepFunction:
    order = np.argsort(time, kind="stable")
    distinct, start = np.unique(time[order], return_index=True)
    lost = np.add.reduceat((weight * event)[order], start)
    other = np.add.reduceat((weight * ~event)[order], start)
    at_risk = np.cumsum((lost + other)[::-1])[::-1]
    if events_first:
        at_risk = at_risk - other
    share = np.divide(lost, at_risk, out=np.zeros_like(lost), where=lost > 0)
    # A last patient who leaves must bring the curve to exactly 0, whatever the running sums were rounded to.
    values = np.cumprod(np.clip(1.0 - share, 0.0, 1.0))
    return StepFunction(distinct, values, 1.0)


def last_usable_time(time: FloatArray, event: BoolArray) -> float:
    """Return the last time with at least 10 patients under observation, and not nearly everybody censored before.

    Parameters
    ----------
    time : array of shape (n,)
        Times under observation.
    event : array of bool of shape (n,)
        Whether the event was observed then.

    Returns
    -------
    float
        The time; with fewer than 20 patients, that until which half of them are under observation.
    """
    ordered = np.sort(time)
    last = float(ordered[len(ordered) - least_at_risk(len(time))])
    g = censoring_curve(make_outcome(np.maximum(time, 0), event))
    thin = g.times[g.values < LOWEST_CENSORING]
    return min(last, float(thin[0])) if len(thin) else last


def least_at_risk(patients: int) -> int:
    """Return how many of so many patients must be under observation at a horizon."""
    return min(_AT_RISK, max(1, patients // 2))
