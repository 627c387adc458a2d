"""Net benefit: would acting on the predicted risk do more good than harm, and more than treating all or nobody?"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.metrics.censoring import Censoring, CensoringModel, resolve_follow_up
from dcsurv.metrics.inputs import SortedCohort, counted
from dcsurv.target import FloatArray

# Flags of patients x thresholds are handled in chunks of about this many numbers, so that memory stays small.
_CHUNK = 4_000_000


def default_thresholds() -> FloatArray:
    """Return the threshold probabilities 1%, 2%, ..., 99%."""
    return np.arange(1, 100) / 100


def net_benefit(
    y: Any,
    curves: Any,
    horizon: float,
    *,
    thresholds: npt.ArrayLike | None = None,
    X: Any | None = None,
    censoring: Censoring = "auto",
    sample_weight: npt.ArrayLike | None = None,
) -> pd.DataFrame:
    r"""Return the net benefit of treating patients whose predicted risk by a horizon reaches a threshold.

    With :math:`\pi` the share of patients whose risk :math:`1 - S(t|x)` is at least the threshold p, and
    :math:`\hat F(t)` the Kaplan-Meier risk of the event by t among these patients,

    .. math:: NB(p) = \pi \hat F(t) - \pi (1 - \hat F(t)) \frac{p}{1 - p},

    true positives minus false positives per patient, a false positive counting p / (1 - p) of a true one. Without
    censoring before t this is TP/n - FP/n p/(1-p). "Treat all" takes everybody, "treat none" has net benefit 0.

    Parameters
    ----------
    y : outcome
        Outcome of n patients; see :func:`dcsurv.make_outcome`.
    curves : SurvivalCurves, tuple or DataFrame
        Their predicted curves: SurvivalCurves, ``(values, times)``, or a DataFrame with one row per patient.
    horizon : float
        The time t by which the event is to be prevented or prepared for.
    thresholds : array-like of float or None, default None
        Threshold probabilities, above 0 and below 1; None: 1%, 2%, ..., 99%.
    X : DataFrame, array or None, default None
        Features of the patients; see :func:`brier_score`.
    censoring : {"auto", "marginal", "by-features", "by-risk"} or FollowUp, default "auto"
        How censoring weights depend on them; see :func:`brier_score`. With weights by features or risk, the risk of the
        treated is not theirs by Kaplan-Meier, but the share of events among them with the patients whose state at t is
        known weighted by ``1/G(. | x)``; patients who do not count at t are left out of all shares.
    sample_weight : array-like of float or None, default None
        One non-negative weight per patient; None: all count the same.

    Returns
    -------
    DataFrame
        One row per threshold: ``threshold, net_benefit, treat_all, treated``, the last being :math:`\pi`. NaN where
        the treated patients were all lost from sight before the horizon, so that nobody knows how they fared; 0 where
        nobody is treated.

    References
    ----------
    A. J. Vickers et al.: Extensions to decision curve analysis, a novel method for evaluating diagnostic tests,
    prediction models and molecular markers. BMC Medical Informatics and Decision Making 8 (2008), its method for
    censored outcomes; with marginal weights, the chance of having been censored must not depend on the predicted risk.
    """
    levels = default_thresholds() if thresholds is None else np.atleast_1d(np.asarray(thresholds, dtype=np.float64))
    if levels.ndim != 1 or len(levels) == 0 or not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"thresholds must be probabilities above 0 and below 1; got {thresholds!r}.")
    if np.ndim(horizon) or not 0 < horizon < np.inf:
        raise ValueError(f"horizon is {horizon!r}, but one finite time above 0 is expected.")
    follow_up = resolve_follow_up(censoring, X, y, [curves], sample_weight)
    y, predicted, counts = counted(y, curves, sample_weight)
    cohort = SortedCohort(y, min_events=0)
    if cohort.time[-1] < horizon:
        raise ValueError(
            f"net benefit cannot be computed at {horizon:g}: the last patient was seen at {cohort.time[-1]:g}. "
            "Choose an earlier horizon."
        )
    weight = cohort.weights(counts)
    risk = 1.0 - cohort.rows(predicted, np.array([float(horizon)]))[0]
    known = None
    if follow_up is not None:
        known, weight = CensoringModel(cohort, None, "before", follow_up).estimate(weight).known(float(horizon))
    total = weight.sum()
    if total <= 0:
        raise ValueError(f"net benefit cannot be computed at {horizon:g}: nobody could be followed so far.")
    benefit, treated = np.empty(len(levels)), np.empty(len(levels))
    size = max(1, _CHUNK // len(cohort))
    for start in range(0, len(levels), size):
        some = levels[start : start + size]
        chosen = risk >= some[:, None]
        benefit[start : start + size] = _benefit(cohort, weight * chosen, known, horizon, some)
        treated[start : start + size] = (weight * chosen).sum(axis=1) / total
    everybody = _benefit(cohort, weight, known, horizon, levels)
    return pd.DataFrame(
        {"threshold": levels, "net_benefit": benefit / total, "treat_all": everybody / total, "treated": treated}
    )


def _benefit(
    cohort: SortedCohort, flagged: FloatArray, known: FloatArray | None, horizon: float, levels: FloatArray
) -> FloatArray:
    """Return the summed benefit of treating the flagged patients, a row of weights for each threshold.

    ``known``: weights of those whose state at the horizon is known; None takes the Kaplan-Meier risk of the flagged.
    """
    count = flagged.sum(axis=1)
    if known is not None:
        gone = cohort.time <= horizon
        mass = known * (flagged > 0)
        return (mass * gone).sum(axis=1) - (mass * ~gone).sum(axis=1) * levels / (1 - levels)
    survival = cohort.read(cohort.survival(flagged), np.array([float(horizon)]))[:, 0]
    benefit = count * (1 - survival) - count * survival * levels / (1 - levels)
    in_sight = flagged[:, cohort.time >= horizon].any(axis=1)
    defined = in_sight | (survival <= 0)
    return np.where(count > 0, np.where(defined, benefit, np.nan), 0.0)
