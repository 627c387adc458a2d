"""The two scores of the neutral benchmark, in its own conventions: only for figures beside those that it published."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from dcsurv.curves import SurvivalCurves
from dcsurv.nonparametric import censoring_curve
from dcsurv.target import FloatArray, unpack

# Times count up to the first at which a larger share of the test patients is no longer at risk.
_LARGEST_SHARE_GONE: Final = 0.8
_LOWEST_WEIGHT: Final = 0.001
# Survival values that are held at once.
_BLOCK: Final = 1 << 22
_DIGITS: Final = 10


def isbs(y: Any, curves: SurvivalCurves, y_train: Any) -> float:
    """Return the integrated survival Brier score as mlr3proba computes it.

    Graf's score at the distinct test times; an event at z is weighted by 1 / G(z), a patient alive at t by 1 / G(t),
    where G is the Kaplan-Meier curve of censoring on the training patients, at least 0.001; then the trapezoid rule,
    divided by the length of the interval. Times end at the first at which more than 80 % of the test patients are no
    longer at risk. One censoring curve serves all patients, which rewards models that learn how long somebody was
    followed; :func:`dcsurv.metrics.evaluate` does better.

    Parameters
    ----------
    y : outcome
        Outcome of the n test patients.
    curves : SurvivalCurves
        Their predicted curves.
    y_train : outcome
        Outcome of the training patients.

    Returns
    -------
    float
        Lower is better.
    """
    time, event = unpack(y)
    times = score_times(time)
    # Events at a time count as at risk of being censored there, as survfit(Surv(time, 1 - status)) has it.
    G = censoring_curve(y_train, events_first=False)
    at_event = np.where(event, 1 / np.maximum(G(time), _LOWEST_WEIGHT), 0.0)
    alive_weight = 1 / np.maximum(G(times), _LOWEST_WEIGHT)
    scores = np.empty(len(times))
    step = max(1, _BLOCK // len(time))
    for first in range(0, len(times), step):
        some = slice(first, first + step)
        survival = curves.evaluate(times[some])
        alive = time[:, None] > times[some]
        lost = np.where(alive, (1 - survival) ** 2 * alive_weight[some], survival**2 * at_event[:, None])
        scores[some] = lost.mean(axis=0)
    if len(times) == 1:
        return float(scores[0])
    return float(np.trapezoid(scores, times) / (times[-1] - times[0]))


def score_times(time: FloatArray) -> FloatArray:
    """Return the distinct test times up to the one at which more than 80 % are no longer at risk."""
    times = np.unique(time)
    gone = np.searchsorted(np.sort(time), times, side="left") / len(time)
    beyond = np.flatnonzero(gone > _LARGEST_SHARE_GONE)
    return times if len(beyond) == 0 else times[: beyond[0] + 1]


def harrell(y: Any, risk: FloatArray) -> float:
    """Return Harrell's C of a predicted risk.

    Of the pairs with different times, the earlier one an event; tied risks count one half.

    Parameters
    ----------
    y : outcome
        Outcome of n patients.
    risk : array of float
        Their risks, (n,): higher means an earlier event. For curves: minus the restricted mean survival time.

    Returns
    -------
    float
        Higher is better; 0.5 without a comparable pair.
    """
    time, event = unpack(y)
    order = np.argsort(time, kind="stable")
    time, event, risk = time[order], event[order], np.asarray(risk, dtype=np.float64)[order]
    later = np.searchsorted(time, time, side="right")
    pairs = concordant = 0.0
    for i in np.flatnonzero(event):
        others = risk[later[i] :]
        pairs += len(others)
        concordant += np.count_nonzero(others < risk[i]) + 0.5 * np.count_nonzero(others == risk[i])
    return concordant / pairs if pairs else 0.5


def predicted_risk(curves: SurvivalCurves) -> FloatArray:
    """Return minus the restricted mean survival time, as a share of the time up to the last node.

    Rounded, so that sums in another order do not break the ties of patients whose curves are the same.

    Parameters
    ----------
    curves : SurvivalCurves
        Curves of n patients.

    Returns
    -------
    array of float
        Higher means an earlier event, (n,).
    """
    return -np.round(curves.rmst() / curves.times[-1], _DIGITS)
