"""Calibration at a horizon: does a predicted risk mean what it says?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dcsurv.metrics.catalogue import Metric, register_metric
from dcsurv.metrics.censoring import Censoring, CensoringModel, keep_usable, resolve_follow_up
from dcsurv.metrics.horizon_fit import HorizonFit, at_horizons, spline_basis
from dcsurv.metrics.inputs import SortedCohort, counted, warn
from dcsurv.metrics.resampling import check_confidence, check_n_bootstrap, resample_counts
from dcsurv.metrics.setting import Prepared, Setting, Weighting
from dcsurv.target import FloatArray, IntArray

# The band of a calibration curve is computed at so many predicted risks, and straight in between.
_BAND_POINTS = 200


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
        Kaplan-Meier risk within tenths of predicted risk, averaged.
    ratio : float
        observed_risk / expected_risk.
    intercept : float
        Logarithm of observed over predicted cumulative hazard: of a regression on the prediction with slope 1.
    slope : float
        Of the same regression with a free slope; 1 is perfect, below 1 predictions are too extreme.
    lower : array of float or None, default None
        Lower end of a band of the calibration curve, for each predicted risk by itself; None without resampling.
    upper : array of float or None, default None
        Upper end of the band.

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
    intercept: float
    slope: float
    lower: FloatArray | None = None
    upper: FloatArray | None = None


def _gaps(fit: HorizonFit, weighting: Weighting) -> tuple[FloatArray, FloatArray]:
    key = "gaps", fit.horizon
    if key not in weighting.kept:
        weighting.kept[key] = fit.gaps(weighting.censoring)
    found: tuple[FloatArray, FloatArray] = weighting.kept[key]
    return found


def _prepare_gap(summary: Callable[[FloatArray, FloatArray], float], setting: Setting) -> Prepared:
    """Prepare a summary of the distances between predicted and observed risk over the patients."""
    fits = at_horizons(setting)

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


def _defined(name: str, setting: Setting, *, differ: bool = False) -> list[HorizonFit]:
    """Return the horizons at which a metric has a value: some predicted risk is above 0, or not all are the same."""
    out = []
    for fit in at_horizons(setting):
        if np.ptp(fit.risk) > 0 if differ else fit.risk.any():
            out.append(fit)
        else:
            alike = "the same" if differ else "0"
            warn(f"{name} at {fit.horizon:g} is left out: every predicted risk there is {alike}.")
    return out


def _prepare_ratio(setting: Setting) -> Prepared:
    parts = _defined("O/E", setting)

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


def _prepare_recalibration(slopes: bool, setting: Setting) -> Prepared:
    fits = _defined("Calibration slope" if slopes else "Calibration intercept", setting, differ=slopes)

    def values(weighting: Weighting) -> FloatArray:
        return np.array([fit.recalibration(weighting.censoring, slopes=slopes) for fit in fits])

    return Prepared(values, horizons=tuple(fit.horizon for fit in fits))


CALIBRATION_INTERCEPT = register_metric(
    Metric(
        name="Calibration intercept",
        aspect="calibration",
        better="zero",
        meaning="Logarithm of observed over predicted cumulative hazard by a horizon: below 0 risks are too high.",
        convention="IPCW regression of the event by the horizon on cloglog risk, cloglog link, slope 1",
        prepare=partial(_prepare_recalibration, False),
        per_horizon=True,
        weighted=True,
    )
)
CALIBRATION_SLOPE = register_metric(
    Metric(
        name="Calibration slope",
        aspect="calibration",
        better="one",
        meaning="How far observed risks by a horizon spread where predictions do: below 1 these are too extreme.",
        convention="IPCW regression of the event by the horizon on cloglog risk, cloglog link",
        prepare=partial(_prepare_recalibration, True),
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
        convention="Kaplan-Meier risk within tenths of predicted risk, averaged / mean predicted risk",
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
    n_bootstrap: int = 0,
    confidence: float = 0.95,
    random_state: int = 0,
) -> HorizonCalibration:
    """Compare the predicted risk of an event by a horizon with what happened.

    The calibration curve is a logistic regression of "event by the horizon" on a natural cubic spline (four knots) of
    the complementary log-log of the predicted risk, over the patients whose state at the horizon is known, weighted
    by the inverse probability of being known (G(z-) for events, G(t) for those observed longer). The integrated
    calibration index ICI is the mean distance between curve and diagonal over the patients, E50 and E90 are
    quantiles of it (Austin, Harrell, van Klaveren, 2020, who fit a hazard regression instead of weighting).

    Intercept and slope come from a regression of the same outcome with the same weights on the complementary log-log
    of the predicted risk, with that link: with hazards h times too high, the intercept is -log h at every horizon.
    Observed / expected compares the mean predicted risk with the Kaplan-Meier risk within tenths of predicted risk,
    averaged, so that censoring may depend on the prediction; with weights by features, with the weighted share.

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
    n_bootstrap : int, default 0
        Number of resamples of the patients behind the band of the curve; 0 leaves it out.
    confidence : float, default 0.95
        Share of the resampled curves inside the band, at each predicted risk by itself.
    random_state : int, default 0
        Seed of the resamples.

    Returns
    -------
    HorizonCalibration
        The curve and what it amounts to.
    """
    n_bootstrap = check_n_bootstrap(n_bootstrap)
    check_confidence(confidence)
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
    fit = HorizonFit(risk, spline_basis(risk), horizon=t, censoring=model)
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
        intercept=float(fit.recalibration(estimate, slopes=False)[0]),
        slope=float(fit.recalibration(estimate, slopes=True)[0]),
        **(_band(fit, order, n_bootstrap, confidence, random_state) if n_bootstrap else {}),
    )


def _band(
    fit: HorizonFit, order: IntArray, n_bootstrap: int, confidence: float, random_state: int
) -> dict[str, FloatArray]:
    """Return the percentile band of the calibration curve at the risks of the patients in an order."""
    some = order[np.unique(np.linspace(0, len(order) - 1, _BAND_POINTS).round().astype(np.int64))]
    draws = []
    for counts in resample_counts(len(fit.risk), n_bootstrap, random_state):
        known, _ = fit.censoring.estimate(counts[:, fit.cohort.order]).known(fit.horizon)
        draws.append(fit.observed(known)[:, some])
    ends = np.nanquantile(np.concatenate(draws), [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    lower, upper = (np.interp(fit.risk[order], fit.risk[some], end) for end in ends)
    return {"lower": lower, "upper": upper}
