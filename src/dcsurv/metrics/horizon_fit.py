"""Predicted and observed risk at a horizon: the calibration curve, the observed share, the recalibration."""

from __future__ import annotations

import numpy as np

from dcsurv.metrics.censoring import CensoringEstimate, CensoringModel
from dcsurv.metrics.setting import Setting
from dcsurv.target import FloatArray

# Knots of the calibration curve, as quantiles of the predicted risk (Harrell's choice for four knots).
_KNOTS = (0.05, 0.35, 0.65, 0.95)
# A hint of ridge keeps the curve's fit defined when all predictions are nearly alike or all outcomes the same.
_RIDGE = 1e-3
_RISK_LIMIT = 1e-6
# The observed risk is averaged over so many strata of predicted risk, so that censoring may depend on it.
_STRATA = 10


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
        from dcsurv.metrics._calibration_kernels import weighted_logistic

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
            return self._stratified(weight), weight @ self.risk / weight.sum(axis=1)
        known, counted = estimate.known(self.horizon)
        total = counted.sum(axis=1)
        some = total > 0
        # Within each group the weighted share of events is one minus the Kaplan-Meier curve of the group.
        observed, expected = (
            np.divide(part, total, out=np.full(len(weight), np.nan), where=some)
            for part in ((known * self.gone).sum(axis=1), counted @ self.risk)
        )
        return observed, expected

    def _stratified(self, weight: FloatArray) -> FloatArray:
        """Return the mean over strata of predicted risk of the Kaplan-Meier risk within, (B,)."""
        from dcsurv.metrics._calibration_kernels import stratified_risk

        cohort, out = self.cohort, np.empty(len(weight))
        by_risk = np.argsort(self.risk, kind="stable")
        _, run = np.unique(self.risk[by_risk], return_inverse=True)
        stratified_risk(weight, by_risk, run, cohort.time, cohort.event, self.horizon, _STRATA, out)
        return out

    def recalibration(self, estimate: CensoringEstimate, *, slopes: bool) -> FloatArray:
        """Return the slope, or the intercept beside a slope of 1, of the cloglog regression on the prediction, (B,)."""
        from dcsurv.metrics._calibration_kernels import cloglog_regressions

        known, _ = estimate.known(self.horizon)
        out = np.empty(len(known))
        cloglog_regressions(cloglog(self.risk), self.gone.astype(np.float64), known, slopes, out)
        return out


def at_horizons(setting: Setting) -> list[HorizonFit]:
    """Return what the metrics of a setting share at each horizon."""
    if "horizons" not in setting.kept:
        for t in setting.horizons:
            if ("risk", t) not in setting.of_curves:
                risk = 1.0 - setting.curves.evaluate_rows(np.array([t]))[0]
                setting.of_curves["risk", t] = risk, spline_basis(risk)
        setting.kept["horizons"] = [
            HorizonFit(*setting.of_curves["risk", t], horizon=float(t), censoring=setting.censoring)
            for t in setting.horizons
        ]
    fits: list[HorizonFit] = setting.kept["horizons"]
    return fits


def cloglog(risk: FloatArray) -> FloatArray:
    """Return log(-log(1 - risk)), the logarithm of the cumulative hazard, finite also for a risk of 0 or 1."""
    out: FloatArray = np.log(-np.log1p(-np.clip(risk, _RISK_LIMIT, 1 - _RISK_LIMIT)))
    return out


def spline_basis(risk: FloatArray) -> FloatArray:
    """Return a natural cubic spline basis of cloglog(risk) with a constant, linear beyond the outer knots, (n, k)."""
    x = cloglog(risk)
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
