"""Calibration: do the predicted probabilities mean what they say?

Over the whole distribution (D-calibration, DDC), and at a horizon (calibration curve, ICI, observed / expected).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, xlogy
from scipy.stats import chi2

from dcsurv.curves import SurvivalCurves, as_curves
from dcsurv.grid import Convention
from dcsurv.metrics._cohort import Cohort, counted, node_after, paper_nodes
from dcsurv.metrics.censoring import Censoring, CensoringEstimate, CensoringModel, keep_usable, resolve_follow_up
from dcsurv.nonparametric import censoring_curve
from dcsurv.target import BoolArray, FloatArray, check_sample_weight, unpack

N_BINS = 10
# Knots of the calibration curve, as quantiles of the predicted risk (Harrell's choice for four knots).
_KNOTS = (0.05, 0.35, 0.65, 0.95)
# A hint of ridge keeps the curve's fit defined when all predictions are nearly alike or all outcomes the same.
_RIDGE = 1e-3
_RISK_LIMIT = 1e-6


@dataclass(frozen=True)
class DCalibration:
    """The histogram of S(z|x) in ten bins with its distance from flat.

    Attributes
    ----------
    bins
        Share of the patients in each bin, lowest survival first.
    score
        Sum over bins of (share - 1/10)^2.
    statistic, p_value
        Haider's chi-square test; a small p says that the model is not D-calibrated.
    """

    bins: FloatArray
    score: float
    statistic: float
    p_value: float


@dataclass(frozen=True)
class HorizonCalibration:
    """Calibration of the predicted risk 1 - S(t|x) at one horizon.

    Attributes
    ----------
    predicted, observed
        The calibration curve: predicted risk (ascending) and the share that had the event, smoothed.
    ici, e50, e90
        Mean, median and 90th percentile over patients of ``|observed - predicted|``.
    expected_risk, observed_risk
        Mean predicted risk and Kaplan-Meier risk of the patients who count.
    ratio
        observed_risk / expected_risk.
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


def bin_contributions(survival: FloatArray, event: BoolArray) -> FloatArray:
    """Return how much of each patient falls in each bin, (n, 10); every row sums to 1.

    An event falls in the bin of S(z). A censored patient is spread over where S may end up below S(z) = s in bin k:
    (s - k/10) / s in that bin and 0.1 / s in each lower one; s = 0 puts all of it in the first bin.
    """
    edges = np.arange(N_BINS) / N_BINS
    # searchsorted against the very edges decides what "on an edge" means; s * 10 would round .3 down to bin 2.
    own = np.searchsorted(edges, survival, side="right") - 1
    n = len(survival)
    rows = np.arange(n)
    out = np.zeros((n, N_BINS))
    safe = np.where(survival > 0, survival, 1.0)
    out[:] = np.where((edges < edges[own][:, None]) & ~event[:, None], (1 / N_BINS) / safe[:, None], 0.0)
    share = np.where(survival > 0, (survival - edges[own]) / safe, 1.0)
    out[rows, own] = np.where(event, 1.0, share)
    return out


def divergence(bins: FloatArray) -> FloatArray:
    """Return sum_b P(b) ln(P(b) / 0.1) along the last axis."""
    return np.asarray(xlogy(bins, bins * N_BINS).sum(axis=-1))


def survival_at_own_time(
    y: Any, curves: Any, convention: Convention, y_train: Any | None
) -> tuple[FloatArray, BoolArray]:
    """Return S(z_i | x_i) as D-calibration reads it, and the events, in the order of ``y``."""
    time, event = unpack(y)
    nodes = paper_nodes(convention, y_train)
    own = time if nodes is None else node_after(nodes, time)
    return as_curves(curves, len(time)).at_own(own), event


def d_calibration(
    y: Any,
    curves: Any,
    *,
    sample_weight: npt.ArrayLike | None = None,
    convention: Convention = "default",
    y_train: Any | None = None,
) -> DCalibration:
    """Test whether S(z|x) is uniform over patients, as it is for a perfect model (Haider et al., 2020).

    Bins are [k/10, (k+1)/10), the last one closed. A censored patient is spread over the bins where the event may
    still fall. Weights count as copies: the test takes their sum for the number of patients.
    ``convention="paper"`` projects on the times in ``y_train`` and reads the first node strictly after z.
    """
    y, predicted, counts = counted(y, curves, sample_weight)
    survival, event = survival_at_own_time(y, predicted, convention, y_train)
    weight = check_sample_weight(counts, len(event))
    bins = weight @ bin_contributions(survival, event) / weight.sum()
    score = float(((bins - 1 / N_BINS) ** 2).sum())
    statistic = float(score * N_BINS * weight.sum())
    return DCalibration(bins, score, statistic, float(chi2.sf(statistic, N_BINS - 1)))


def ddc(
    y: Any,
    curves: Any,
    *,
    sample_weight: npt.ArrayLike | None = None,
    convention: Convention = "default",
    y_train: Any | None = None,
) -> float:
    """Return the distributional divergence for calibration: Kullback-Leibler from the D-calibration bins to flat.

    DDC = sum_b P(b) ln(P(b) / 0.1), 0 for a flat histogram and at most ln 10. A perfect model does not reach 0 on a
    finite cohort: :func:`ddc_floor` says what it would score. For conventions see :func:`d_calibration`.
    """
    return float(
        divergence(d_calibration(y, curves, sample_weight=sample_weight, convention=convention, y_train=y_train).bins)
    )


def ddc_floor(y: Any, curves: Any, *, n_simulations: int = 200, random_state: int = 0) -> float:
    """Return the mean DDC that these curves would score if they were the truth, on a cohort of this size.

    Outcomes are simulated from the model's own curves: event times from S(t|x), censoring times from the
    Kaplan-Meier censoring curve of ``y``, follow-up ending at the last time of ``y``.
    """
    time, _ = unpack(y)
    if n_simulations < 1:
        raise ValueError(f"n_simulations is {n_simulations}, but at least 1 is needed.")
    model = as_curves(curves, len(time))
    rng = np.random.default_rng(random_state)
    g = censoring_curve(y)
    end = float(time.max())
    total = 0.0
    for _ in range(n_simulations):
        # G falls to each value at g.times; a draw that it never reaches is censored at the end of follow-up.
        place = np.searchsorted(-g.values, -rng.random(len(time)), side="left")
        censored_at = np.append(g.times, end)[np.minimum(place, len(g.times))]
        at_censoring = model.at_own(np.minimum(censored_at, end))
        at_event = rng.random(len(time))  # S(T|x) of an event time drawn from the curve is uniform
        event = at_event >= at_censoring
        total += float(divergence(bin_contributions(np.maximum(at_event, at_censoring), event).mean(axis=0)))
    return total / n_simulations


class IntegratedCalibration:
    """The calibration curve at one horizon, prepared for any number of weightings of the same patients."""

    def __init__(self, curves: SurvivalCurves, horizon: float, censoring: CensoringModel) -> None:
        cohort = censoring.cohort
        self.cohort, self.censoring, self.horizon = cohort, censoring, horizon
        self.risk = 1.0 - cohort.rows(curves, np.array([horizon]))[0]
        self.basis = _spline_basis(self.risk)
        self.gone = cohort.time <= horizon

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
    y_train
        Outcome from which one censoring curve for all is estimated; default: ``y`` itself.
    X, censoring
        See :func:`brier_score`. With weights by features, curve and means are those of the patients who count.
    """
    follow_up = resolve_follow_up(censoring, X, y, sample_weight)
    y, predicted, counts = counted(y, curves, sample_weight)
    cohort = Cohort(y)
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
