"""Calibration at a horizon: does a predicted risk mean what it says? Calibration curve, ICI, observed / expected."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dcsurv.curves import SurvivalCurves
from dcsurv.metrics.catalogue import Metric, register_metric
from dcsurv.metrics.censoring import Censoring, CensoringEstimate, CensoringModel, keep_usable, resolve_follow_up
from dcsurv.metrics.inputs import SortedCohort, counted, warn
from dcsurv.metrics.setting import Prepared, Setting, Weighting
from dcsurv.target import FloatArray

# Knots of the calibration curve, as quantiles of the predicted risk (Harrell's choice for four knots).
_KNOTS = (0.05, 0.35, 0.65, 0.95)
# A hint of ridge keeps the curve's fit defined when all predictions are nearly alike or all outcomes the same.
_RIDGE = 1e-3
_RISK_LIMIT = 1e-6


@dataclass(frozen=True)
class HorizonCalibration:
    """Calibration of the predicted risk 1 - S(t|x) at one horizon.

    Attributes
    ----------
    horizon : float
        The time t.
    predicted : array of float
        The calibration curve: predicted risk, ascending.
    observed : array of float
        The calibration curve: the share with the event among patients with such a prediction, smoothed.
    ici : float
        Mean over patients of ``|observed - predicted|``.
    e50 : float
        Median over patients of ``|observed - predicted|``.
    e90 : float
        90th percentile over patients of ``|observed - predicted|``.
    expected_risk : float
        Mean predicted risk of the patients who count.
    observed_risk : float
        Kaplan-Meier risk of the patients who count.
    ratio : float
        observed_risk / expected_risk.

    Examples
    --------
    >>> from dcsurv.datasets import simulate
    >>> from dcsurv.metrics import calibration_at_horizon
    >>> cohort = simulate("independent", 1000)
    >>> found = calibration_at_horizon(cohort.y, cohort.truth, 5.0)
    >>> found.ici < 0.05, abs(found.ratio - 1) < 0.2  # the truth is calibrated
    (True, True)
    """

    horizon: float
    predicted: FloatArray
    observed: FloatArray
    ici: float
    e50: float
    e90: float
    expected_risk: float
    observed_risk: float
    ratio: float


class IntegratedCalibration:
    """The calibration curve at one horizon, prepared for any number of weightings of the same patients."""

    def __init__(self, curves: SurvivalCurves, horizon: float, censoring: CensoringModel) -> None:
        cohort = censoring.cohort
        self.cohort, self.censoring, self.horizon = cohort, censoring, horizon
        self.risk = 1.0 - cohort.rows(curves, np.array([horizon]))[0]
        self.gone = cohort.time <= horizon

    @cached_property
    def basis(self) -> FloatArray:
        """The spline basis of the calibration curve, (n, k)."""
        return _spline_basis(self.risk)

    def observed(self, outcome_weight: FloatArray) -> FloatArray:
        """Return the smoothed share of events by the horizon at each patient's predicted risk, (n,)."""
        return _weighted_logistic(self.basis, self.gone.astype(np.float64), outcome_weight)

    def ici(self, weight: FloatArray, estimate: CensoringEstimate | None = None) -> FloatArray:
        """Return the mean of |observed - predicted| over those who count under each weighting, (B,)."""
        known, counted = (estimate or self.censoring.estimate(weight)).known(self.horizon)
        out = np.full(len(weight), np.nan)
        for b in range(len(weight)):
            if known[b].any():
                out[b] = np.average(np.abs(self.observed(known[b]) - self.risk), weights=counted[b])
        return out

    def shares(self, weight: FloatArray, estimate: CensoringEstimate) -> tuple[FloatArray, FloatArray]:
        """Return observed and mean predicted risk by the horizon of those who count under each weighting, both (B,)."""
        if self.censoring.follow_up is None:
            observed = 1 - self.cohort.read(self.cohort.survival(weight), np.array([self.horizon]))[:, 0]
            return observed, weight @ self.risk / weight.sum(axis=1)
        known, counted = estimate.known(self.horizon)
        total = counted.sum(axis=1)
        some = total > 0
        # Within each group the weighted share of events is one minus the Kaplan-Meier curve of the group.
        observed, expected = (
            np.divide(part, total, out=np.full(len(weight), np.nan), where=some)
            for part in ((known * self.gone).sum(axis=1), counted @ self.risk)
        )
        return observed, expected


def _at_horizons(setting: Setting) -> list[IntegratedCalibration]:
    return [IntegratedCalibration(setting.curves, float(t), setting.censoring) for t in setting.horizons]


def _prepare_ici(setting: Setting) -> Prepared:
    parts = _at_horizons(setting)

    def values(weighting: Weighting) -> FloatArray:
        return np.array([part.ici(weighting.weight, weighting.censoring) for part in parts])

    return Prepared(values, horizons=tuple(part.horizon for part in parts))


def _prepare_ratio(setting: Setting) -> Prepared:
    parts = []
    for part in _at_horizons(setting):
        if part.risk.any():
            parts.append(part)
        else:
            warn(f"O/E at {part.horizon:g} is left out: every predicted risk there is 0.")

    def ratio(part: IntegratedCalibration, weighting: Weighting) -> FloatArray:
        observed, expected = part.shares(weighting.weight, weighting.censoring)
        return np.divide(observed, expected, out=np.full(len(weighting.weight), np.nan), where=expected > 0)

    def values(weighting: Weighting) -> FloatArray:
        return np.array([ratio(part, weighting) for part in parts])

    return Prepared(values, horizons=tuple(part.horizon for part in parts))


ICI = register_metric(
    Metric(
        name="ICI",
        aspect="calibration",
        better="lower",
        meaning="Mean distance between the predicted and the observed risk by a horizon.",
        convention="IPCW logistic natural cubic spline of cloglog risk, four knots",
        prepare=_prepare_ici,
        per_horizon=True,
        weighted=True,
    )
)
OBSERVED_EXPECTED = register_metric(
    Metric(
        name="O/E",
        aspect="calibration",
        better="one",
        meaning="Observed divided by expected events by a horizon.",
        convention="Kaplan-Meier risk / mean predicted risk",
        prepare=_prepare_ratio,
        per_horizon=True,
        weighted=True,
    )
)


def calibration_at_horizon(
    y: Any,
    curves: Any,
    horizon: float,
    *,
    y_train: Any | None = None,
    X: Any | None = None,
    censoring: Censoring = "auto",
    sample_weight: npt.ArrayLike | None = None,
) -> HorizonCalibration:
    """Compare the predicted risk of an event by a horizon with what happened.

    The calibration curve is a logistic regression of "event by the horizon" on a natural cubic spline (four knots) of
    the complementary log-log of the predicted risk, over the patients whose state at the horizon is known, weighted
    by the inverse probability of being known (G(z-) for events, G(t) for those observed longer). The integrated
    calibration index ICI is the mean distance between curve and diagonal over the patients, E50 and E90 are
    quantiles of it (Austin, Harrell, van Klaveren, 2020, who fit a hazard regression instead of weighting).

    Parameters
    ----------
    y : outcome
        Outcome of n patients; see :func:`dcsurv.make_outcome`.
    curves : SurvivalCurves, tuple or DataFrame
        Their predicted curves: SurvivalCurves, ``(values, times)``, or a DataFrame with one row per patient.
    horizon : float
        The time t, above 0.
    y_train : outcome or None, default None
        Outcome from which one censoring curve G for all is estimated; None: ``y`` itself.
    X : DataFrame, array or None, default None
        Features of the patients; see :func:`brier_score`.
    censoring : {"auto", "marginal", "by-features", "by-risk"} or FollowUp, default "auto"
        How censoring weights depend on them; see :func:`brier_score`. With weights by features or risk, curve and
        means are those of the patients who count.
    sample_weight : array-like of float or None, default None
        One non-negative weight per patient; None: all count the same.

    Returns
    -------
    HorizonCalibration
        The curve and what it amounts to.
    """
    follow_up = resolve_follow_up(censoring, X, y, [curves], sample_weight)
    y, predicted, counts = counted(y, curves, sample_weight)
    cohort = SortedCohort(y)
    model = CensoringModel(cohort, y_train, "before", follow_up)
    asked = np.atleast_1d(np.asarray(horizon, dtype=np.float64))
    if asked.shape != (1,) or not np.isfinite(asked[0]) or asked[0] <= 0:
        raise ValueError(f"horizon is {horizon!r}, but one finite time above 0 is expected.")
    t = float(keep_usable(asked, model, what="calibration at a horizon")[0])
    weight = cohort.weights(counts)
    prepared = IntegratedCalibration(predicted, t, model)
    estimate = model.estimate(weight)
    known, counting = (part[0] for part in estimate.known(t))
    observed = prepared.observed(known)
    use = counting > 0
    order = np.flatnonzero(use)[np.argsort(prepared.risk[use], kind="stable")]
    gap = np.abs(observed - prepared.risk)[order]
    by_gap = np.argsort(gap)
    cumulated = np.cumsum(counting[order][by_gap])
    e50, e90 = gap[by_gap][np.searchsorted(cumulated, np.array([0.5, 0.9]) * cumulated[-1])]
    event_share, expected = (float(part[0]) for part in prepared.shares(weight, estimate))
    if expected <= 0:
        raise ValueError(f"every predicted risk at {t:g} is 0, so observed / expected is undefined. Check the curves.")
    return HorizonCalibration(
        horizon=t,
        predicted=prepared.risk[order],
        observed=observed[order],
        ici=float(np.average(gap, weights=counting[order])),
        e50=float(e50),
        e90=float(e90),
        expected_risk=expected,
        observed_risk=event_share,
        ratio=event_share / expected,
    )


def _spline_basis(risk: FloatArray) -> FloatArray:
    """Return a natural cubic spline basis of cloglog(risk) with a constant, linear beyond the outer knots, (n, k)."""
    clipped = np.clip(risk, _RISK_LIMIT, 1 - _RISK_LIMIT)
    x = np.log(-np.log1p(-clipped))
    spread = x.std()
    x = (x - x.mean()) / spread if spread > 1e-12 else np.zeros_like(x)
    columns = [np.ones_like(x), x]
    knots = np.unique(np.quantile(x, _KNOTS))
    if len(knots) >= 3:
        last, before_last = knots[-1], knots[-2]

        def cube(k: float) -> FloatArray:
            return np.maximum(x - k, 0.0) ** 3

        scale = (last - knots[0]) ** 2
        for knot in knots[:-2]:
            bend = cube(knot) - (cube(before_last) * (last - knot) - cube(last) * (before_last - knot)) / (
                last - before_last
            )
            columns.append(bend / scale)
    return np.column_stack(columns)


def _weighted_logistic(basis: FloatArray, outcome: FloatArray, weight: FloatArray) -> FloatArray:
    """Fit a logistic regression by Newton's method and return its fitted probabilities."""
    use = weight > 0
    design, target, mass = basis[use], outcome[use], weight[use] / weight.sum()
    penalty = np.full(basis.shape[1], _RIDGE / max(int(use.sum()), 1))
    beta = np.zeros(basis.shape[1])
    share = float(np.clip(mass @ target, 1e-6, 1 - 1e-6))
    beta[0] = np.log(share / (1 - share))
    for _ in range(25):
        fitted = expit(design @ beta)
        gradient = design.T @ (mass * (target - fitted)) - penalty * beta
        curvature = (design * (mass * np.maximum(fitted * (1 - fitted), 1e-10))[:, None]).T @ design
        step = np.linalg.solve(curvature + np.diag(penalty), gradient)
        # A short leash: near separation Newton's step overshoots.
        step *= min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-300))
        beta += step
        if np.abs(step).max() < 1e-9:
            break
    return np.asarray(expit(basis @ beta))
