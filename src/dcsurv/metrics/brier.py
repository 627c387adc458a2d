"""The Brier score: the squared error of S(t), weighed so that censoring does not bias it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dcsurv.curves import SurvivalCurves
from dcsurv.metrics._cohort import CensoringModel, CensoringWeights, Cohort, check_times, counted, keep_usable
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

    def over_time(self, weight: FloatArray, curve: FloatArray | None = None) -> FloatArray:
        """Return the score at each time under each weighting, (B, m); NaN where nobody is left under observation."""
        if self.censoring.train is not None:
            later = np.broadcast_to(self.censoring.train(self.times), (len(weight), len(self.times)))
        else:
            curve = self.censoring.curve(weight) if curve is None else curve
            later = self.cohort.read(curve, self.times)
        known = (later > 0) & (weight @ self.alive > 0)
        score = weight @ self.control_loss
        np.divide(score, later, out=score, where=known)
        score += self.censoring.case_weights(weight, curve) @ self.case_loss
        score /= weight.sum(axis=1, keepdims=True)
        score[~known] = np.nan
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


def default_times(cohort: Cohort) -> FloatArray:
    """Return a hundred equal steps between the 5th and the 95th percentile of the observed times."""
    low, high = np.quantile(cohort.time, [0.05, 0.95])
    return np.unique(np.linspace(low, high, _N_TIMES))


def brier_score(
    y: Any,
    curves: Any,
    times: npt.ArrayLike,
    *,
    y_train: Any | None = None,
    censoring_weights: CensoringWeights = "before",
    sample_weight: npt.ArrayLike | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return the times used and the Brier score at each.

    BS(t) = mean_i [ 1(z_i <= t, d_i = 1) S(t|x_i)^2 / G(z_i)  +  1(z_i > t) (1 - S(t|x_i))^2 / G(t) ]

    Parameters
    ----------
    y_train
        Outcome from which the censoring curve G is estimated; default: ``y`` itself.
    censoring_weights
        ``"before"`` takes G(z-) for events, as Graf et al. define it; ``"at"`` takes G(z) and equals
        scikit-survival's ``brier_score``.

    Notes
    -----
    Times where the censoring weights have run out are left out, with a warning that names the last one used.

    References
    ----------
    E. Graf et al.: Assessment and comparison of prognostic classification schemes for survival data.
    Statistics in Medicine 18 (1999).
    """
    prepared, weight = _prepare(y, curves, check_times(times), y_train, censoring_weights, sample_weight)
    return prepared.times, prepared.over_time(weight)[0]


def integrated_brier_score(
    y: Any,
    curves: Any,
    *,
    times: npt.ArrayLike | None = None,
    y_train: Any | None = None,
    censoring_weights: CensoringWeights = "before",
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Return the Brier score averaged over time: the trapezoid integral divided by the interval's length.

    ``times`` default to a hundred equal steps between the 5th and 95th percentile of the observed times; for the
    other parameters see :func:`brier_score`.
    """
    asked = None if times is None else check_times(times)
    prepared, weight = _prepare(y, curves, asked, y_train, censoring_weights, sample_weight)
    return float(prepared.integrated(prepared.over_time(weight))[0])


def _prepare(
    y: Any,
    curves: Any,
    times: FloatArray | None,
    y_train: Any | None,
    censoring_weights: CensoringWeights,
    sample_weight: npt.ArrayLike | None,
) -> tuple[Brier, FloatArray]:
    y, predicted, counts = counted(y, curves, sample_weight)
    cohort = Cohort(y)
    model = CensoringModel(cohort, y_train, censoring_weights)
    asked = keep_usable(default_times(cohort) if times is None else times, model, what="Brier score", needs_cases=False)
    return Brier(predicted, asked, model), cohort.weights(counts)
