"""Calibration at a horizon: does a predicted risk mean what it says? Calibration curve, ICI, observed / expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

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


class HorizonFit:
    """Predicted and observed risk at one horizon, prepared for any number of weightings of the same patients.

    Parameters
    ----------
    risk
        The predicted risks, (n,), in the order in which the patients came.
    basis
        The spline basis of the calibration curve at these, (n, k).
    """

    def __init__(self, risk: FloatArray, basis: FloatArray, *, horizon: float, censoring: CensoringModel) -> None:
        cohort = censoring.cohort
        self.cohort, self.censoring, self.horizon = cohort, censoring, horizon
        self.risk, self.basis = risk[cohort.order], basis[cohort.order]
        self.gone = cohort.time <= horizon

    def observed(self, outcome_weight: FloatArray) -> FloatArray:
        """Return the smoothed share of events by the horizon at each patient's predicted risk, (B, n)."""
        from dcsurv.metrics._kernels import weighted_logistic

        out = np.full(outcome_weight.shape, np.nan)
        weighted_logistic(self.basis, self.gone.astype(np.float64), outcome_weight, _RIDGE, out)
        return out

    def gaps(self, estimate: CensoringEstimate) -> tuple[FloatArray, FloatArray]:
        """Return |observed - predicted| and how much each patient counts, under each weighting, both (B, n)."""
        known, counted = estimate.known(self.horizon)
        return np.abs(self.observed(known) - self.risk), counted

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


def _at_horizons(setting: Setting) -> list[HorizonFit]:
    """Return what the metrics of a setting share at each horizon."""
    if "horizons" not in setting.kept:
        for t in setting.horizons:
            if ("risk", t) not in setting.of_curves:
                risk = 1.0 - setting.curves.evaluate_rows(np.array([t]))[0]
                setting.of_curves["risk", t] = risk, _spline_basis(risk)
        setting.kept["horizons"] = [
            HorizonFit(*setting.of_curves["risk", t], horizon=float(t), censoring=setting.censoring)
            for t in setting.horizons
        ]
    fits: list[HorizonFit] = setting.kept["horizons"]
    return fits


def _gaps(fit: HorizonFit, weighting: Weighting) -> tuple[FloatArray, FloatArray]:
    key = "gaps", fit.horizon
    if key not in weighting.kept:
        weighting.kept[key] = fit.gaps(weighting.censoring)
    found: tuple[FloatArray, FloatArray] = weighting.kept[key]
    return found


def _prepare_gap(summary: Callable[[FloatArray, FloatArray], float], setting: Setting) -> Prepared:
    """Prepare a summary of the distances between predicted and observed risk over the patients."""
    fits = _at_horizons(setting)

    def values(weighting: Weighting) -> FloatArray:
        return np.array(
            [[summary(*row) for row in zip(*_gaps(fit, weighting), strict=True)] for fit in fits], dtype=np.float64
        )

    return Prepared(values, horizons=tuple(fit.horizon for fit in fits))


def _mean_gap(gap: FloatArray, counting: FloatArray) -> float:
    return float(gap @ counting / counting.sum()) if counting.any() else np.nan


def _quantile_gap(share: float, gap: FloatArray, counting: FloatArray) -> float:
    """Return the smallest gap that a share of the patients who count do not exceed."""
    use = np.flatnonzero(counting > 0)
    if len(use) == 0 or np.isnan(gap[use]).any():
        return np.nan
    order = use[np.argsort(gap[use])]
    cumulated = np.cumsum(counting[order])
    return float(gap[order[np.searchsorted(cumulated, share * cumulated[-1])]])


def _prepare_ratio(setting: Setting) -> Prepared:
    parts = []
    for part in _at_horizons(setting):
        if part.risk.any():
            parts.append(part)
        else:
            warn(f"O/E at {part.horizon:g} is left out: every predicted risk there is 0.")

    def ratio(part: HorizonFit, weighting: Weighting) -> FloatArray:
        observed, expected = part.shares(weighting.weight, weighting.censoring)
        return np.divide(observed, expected, out=np.full(len(weighting.weight), np.nan), where=expected > 0)

    def values(weighting: Weighting) -> FloatArray:
        return np.array([ratio(part, weighting) for part in parts])

    return Prepared(values, horizons=tuple(part.horizon for part in parts))


_CURVE = "IPCW logistic natural cubic spline of cloglog risk, four knots"
ICI = register_metric(
    Metric(
        name="ICI",
        aspect="calibration",
        better="lower",
        meaning="Mean distance between the predicted and the observed risk by a horizon.",
        convention=_CURVE,
        prepare=partial(_prepare_gap, _mean_gap),
        per_horizon=True,
        weighted=True,
        null=True,
    )
)
E50 = register_metric(
    Metric(
        name="E50",
        aspect="calibration",
        better="lower",
        meaning="Median distance between the predicted and the observed risk by a horizon.",
        convention=_CURVE,
        prepare=partial(_prepare_gap, partial(_quantile_gap, 0.5)),
        per_horizon=True,
        weighted=True,
        null=True,
    )
)
E90 = register_metric(
    Metric(
        name="E90",
        aspect="calibration",
        better="lower",
        meaning="Distance between predicted and observed risk by a horizon that 9 of 10 patients stay below.",
        convention=_CURVE,
        prepare=partial(_prepare_gap, partial(_quantile_gap, 0.9)),
        per_horizon=True,
        weighted=True,
        null=True,
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
    risk = 1.0 - predicted.evaluate_rows(np.array([t]))[0]
    fit = HorizonFit(risk, _spline_basis(risk), horizon=t, censoring=model)
    estimate = model.estimate(weight)
    known, counting = (part[0] for part in estimate.known(t))
    observed = fit.observed(known[None, :])[0]
    gap = np.abs(observed - fit.risk)
    use = counting > 0
    order = np.flatnonzero(use)[np.argsort(fit.risk[use], kind="stable")]
    event_share, expected = (float(part[0]) for part in fit.shares(weight, estimate))
    if expected <= 0:
        raise ValueError(f"every predicted risk at {t:g} is 0, so observed / expected is undefined. Check the curves.")
    return HorizonCalibration(
        horizon=t,
        predicted=fit.risk[order],
        observed=observed[order],
        ici=_mean_gap(gap, counting),
        e50=_quantile_gap(0.5, gap, counting),
        e90=_quantile_gap(0.9, gap, counting),
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
