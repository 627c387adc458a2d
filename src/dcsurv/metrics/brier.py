"""The Brier score: the squared error of S(t), weighted so that censoring does not bias it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dcsurv.curves import SurvivalCurves
from dcsurv.metrics.catalogue import Metric, register_metric
from dcsurv.metrics.censoring import (
    Censoring,
    CensoringEstimate,
    CensoringModel,
    CensoringWeights,
    keep_usable,
    resolve_follow_up,
)
from dcsurv.metrics.inputs import SortedCohort, check_times, counted
from dcsurv.metrics.setting import Prepared, Setting, Weighting
from dcsurv.target import FloatArray

_N_TIMES = 100


class Brier:
    """The Brier score over time, prepared for any number of weightings of the same patients, curves and times."""

    def __init__(self, curves: SurvivalCurves, times: FloatArray, censoring: CensoringModel) -> None:
        cohort = censoring.cohort
        self.cohort, self.times, self.censoring = cohort, times, censoring
        survival = cohort.rows(curves, times).T  # (n, m)
        gone = cohort.time[:, None] <= times
        self.alive = (~gone).astype(np.float64)
        self.case_loss = np.where(gone & cohort.event[:, None], survival**2, 0.0)
        self.control_loss = np.where(gone, 0.0, (1 - survival) ** 2)

    def over_time(self, weight: FloatArray, estimate: CensoringEstimate | None = None) -> FloatArray:
        """Return the score at each time under each weighting, (B, m); NaN where nobody is left under observation."""
        model = self.censoring
        estimate = estimate or model.estimate(weight)
        score, total = np.zeros((len(weight), len(self.times))), np.zeros((len(weight), len(self.times)))
        watched = np.zeros(score.shape, dtype=bool)
        case = estimate.case_weights()
        for k, (rows, counts) in enumerate(zip(model.groups, model.counts(self.times), strict=True)):
            some = weight[:, rows]
            later = estimate.later(k, self.times)
            known = (later > 0) & counts
            part = some @ self.control_loss[rows]
            np.divide(part, later, out=part, where=known)
            part += case[:, rows] @ self.case_loss[rows]
            score += np.where(known, part, 0.0)
            total += known * some.sum(axis=1, keepdims=True)
            watched |= known & (some @ self.alive[rows] > 0)
        np.divide(score, total, out=score, where=watched)
        score[~watched] = np.nan
        return score

    def integrated(self, score: FloatArray) -> FloatArray:
        """Return the trapezoid integral over time divided by the length of the interval, (B,).

        Late times at which a resample has nobody left are left out of its interval.
        """
        known = ~np.isnan(score)
        step = np.diff(self.times)
        inside = known[:, 1:] & known[:, :-1]
        area = np.where(inside, step * (score[:, 1:] + score[:, :-1]) / 2, 0.0).sum(axis=1)
        length = (inside * step).sum(axis=1)
        return np.divide(area, length, out=score[:, 0].copy(), where=length > 0)


def default_times(cohort: SortedCohort) -> FloatArray:
    """Return a hundred equal steps between the 5th and the 95th percentile of the observed times."""
    low, high = np.quantile(cohort.time, [0.05, 0.95])
    return np.unique(np.linspace(low, high, _N_TIMES))


def _prepare(setting: Setting) -> Prepared:
    times = keep_usable(default_times(setting.cohort), setting.censoring, what="Brier score", needs_cases=False)
    prepared = Brier(setting.curves, times, setting.censoring)

    def values(weighting: Weighting) -> FloatArray:
        return prepared.integrated(prepared.over_time(weighting.weight, weighting.censoring))

    return Prepared(values, times)


IBS = register_metric(
    Metric(
        name="IBS",
        aspect="error",
        better="lower",
        meaning="Squared error of the predicted probabilities of survival, averaged over time.",
        convention="trapezoid from the 5th to the 95th percentile of test times; G(z-) and G(t)",
        prepare=_prepare,
        weighted=True,
        decides=True,
    )
)


def brier_score(
    y: Any,
    curves: Any,
    times: npt.ArrayLike,
    *,
    y_train: Any | None = None,
    X: Any | None = None,
    censoring: Censoring = "auto",
    censoring_weights: CensoringWeights = "before",
    sample_weight: npt.ArrayLike | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return the times used and the Brier score at each.

    BS(t) = mean_i [ 1(z_i <= t, d_i = 1) S(t|x_i)^2 / G(z_i)  +  1(z_i > t) (1 - S(t|x_i))^2 / G(t) ]

    Parameters
    ----------
    y : outcome
        Outcome of n patients; see :func:`dcsurv.make_outcome`.
    curves : SurvivalCurves, tuple or DataFrame
        Their predicted curves: SurvivalCurves, ``(values, times)``, or a DataFrame with one row per patient.
    times : array-like of float
        Where to compute it, ascending.
    y_train : outcome or None, default None
        Outcome from which one censoring curve G for all is estimated; None: ``y`` itself.
    X : DataFrame, array or None, default None
        Features of the patients, of which G may depend.
    censoring : {"auto", "marginal", "by-features", "by-risk"} or FollowUp, default "auto"
        ``"marginal"``: one G for all. ``"by-features"``: G(t | x), estimated on these patients in groups of alike
        follow-up (:func:`dcsurv.study_follow_up`, whose result may be passed instead). ``"by-risk"``: the same in
        tenths of the predicted risk (:func:`dcsurv.follow_up.study_risk`). With groups, patients count at times that at
        least 5 % of their group could reach, and at all times if four fifths of it had had the event before.
        ``"auto"``: by features if ``X`` is there and predicts censoring, else by risk if that predicts censoring, else
        marginal.
    censoring_weights : {"before", "at"}, default "before"
        ``"before"`` takes G(z-) for events, as Graf et al. define it; ``"at"`` takes G(z) and equals
        scikit-survival's ``brier_score``.
    sample_weight : array-like of float or None, default None
        One non-negative weight per patient; None: all count the same.

    Returns
    -------
    times : array of float
        The times used.
    score : array of float
        The Brier score at these times.

    Notes
    -----
    Times where the censoring weights have run out are left out, with a warning that names the last one used.

    References
    ----------
    E. Graf et al.: Assessment and comparison of prognostic classification schemes for survival data.
    Statistics in Medicine 18 (1999).

    Examples
    --------
    >>> from dcsurv import SurvivalCurves, make_outcome
    >>> from dcsurv.metrics import brier_score
    >>> y = make_outcome(time=[1, 2, 3, 4], event=[1, 1, 0, 1])
    >>> sure = SurvivalCurves([1, 4], [[0.9, 0.0], [0.9, 0.0], [1.0, 0.9], [1.0, 0.9]])
    >>> times, score = brier_score(y, sure, [2.5])
    >>> score.round(4)
    array([0.1025])
    """
    prepared, weight = _for_curves(
        y, curves, check_times(times), y_train, X, censoring, censoring_weights, sample_weight
    )
    return prepared.times, prepared.over_time(weight)[0]


def integrated_brier_score(
    y: Any,
    curves: Any,
    *,
    times: npt.ArrayLike | None = None,
    y_train: Any | None = None,
    X: Any | None = None,
    censoring: Censoring = "auto",
    censoring_weights: CensoringWeights = "before",
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Return the Brier score averaged over time: the trapezoid integral divided by the interval's length.

    Parameters
    ----------
    y : outcome
        Outcome of n patients; see :func:`dcsurv.make_outcome`.
    curves : SurvivalCurves, tuple or DataFrame
        Their predicted curves: SurvivalCurves, ``(values, times)``, or a DataFrame with one row per patient.
    times : array-like of float or None, default None
        The times to integrate over, ascending; None: a hundred equal steps between the 5th and 95th percentile of the
        observed times.
    y_train : outcome or None, default None
        Outcome from which one censoring curve G for all is estimated; None: ``y`` itself.
    X : DataFrame, array or None, default None
        Features of the patients; see :func:`brier_score`.
    censoring : {"auto", "marginal", "by-features", "by-risk"} or FollowUp, default "auto"
        How censoring weights depend on them; see :func:`brier_score`.
    censoring_weights : {"before", "at"}, default "before"
        ``"before"`` takes G(z-) for events, as Graf et al. define it; ``"at"`` takes G(z) and equals
        scikit-survival's ``brier_score``.
    sample_weight : array-like of float or None, default None
        One non-negative weight per patient; None: all count the same.

    Returns
    -------
    float
        The mean score over time, 0 for a perfect model.
    """
    asked = None if times is None else check_times(times)
    prepared, weight = _for_curves(y, curves, asked, y_train, X, censoring, censoring_weights, sample_weight)
    return float(prepared.integrated(prepared.over_time(weight))[0])


def _for_curves(
    y: Any,
    curves: Any,
    times: FloatArray | None,
    y_train: Any | None,
    X: Any | None,
    censoring: Censoring,
    censoring_weights: CensoringWeights,
    sample_weight: npt.ArrayLike | None,
) -> tuple[Brier, FloatArray]:
    follow_up = resolve_follow_up(censoring, X, y, [curves], sample_weight)
    y, predicted, counts = counted(y, curves, sample_weight)
    cohort = SortedCohort(y)
    model = CensoringModel(cohort, y_train, censoring_weights, follow_up)
    asked = keep_usable(default_times(cohort) if times is None else times, model, what="Brier score", needs_cases=False)
    return Brier(predicted, asked, model), cohort.weights(counts)
