"""Net benefit: would acting on the predicted risk do more good than harm, and more than treating all or nobody?"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.metrics.censoring import Censoring, CensoringModel, resolve_follow_up
from dcsurv.metrics.inputs import SortedCohort, check_times, counted
from dcsurv.metrics.resampling import check_confidence, check_n_bootstrap, resample_counts
from dcsurv.target import FloatArray, IntArray

# Flags of patients x thresholds are handled in chunks of about this many numbers, so that memory stays small.
_CHUNK = 4_000_000
# Where all are treated the difference to treating all is 0, but for this.
_ROUNDING = 1e-9


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
    n_bootstrap: int = 0,
    confidence: float = 0.95,
    random_state: int = 0,
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
    n_bootstrap : int, default 0
        Number of resamples of the patients behind the intervals, which hold for each threshold by itself; 0 leaves
        them out. Whether a model helps at some threshold or other is for :func:`helpful_thresholds`.
    confidence : float, default 0.95
        Share of the resamples inside the percentile intervals.
    random_state : int, default 0
        Seed of the resamples.

    Returns
    -------
    DataFrame
        One row per threshold: ``threshold, net_benefit, treat_all, treated``, the last being :math:`\pi`. NaN where
        the treated patients were all lost from sight before the horizon, so that nobody knows how they fared; 0 where
        nobody is treated. With resampling ``lower, upper`` of the net benefit, which is also the difference to
        treating nobody, and ``over_all, over_all_lower, over_all_upper``, the difference to treating all.

    References
    ----------
    A. J. Vickers et al.: Extensions to decision curve analysis, a novel method for evaluating diagnostic tests,
    prediction models and molecular markers. BMC Medical Informatics and Decision Making 8 (2008), its method for
    censored outcomes; with marginal weights, the chance of having been censored must not depend on the predicted risk.
    """
    n_bootstrap = check_n_bootstrap(n_bootstrap)
    check_confidence(confidence)
    if n_bootstrap and sample_weight is not None:
        raise ValueError(
            "sample_weight and n_bootstrap cannot be combined: resampling draws patients with equal probability. "
            "Leave one of them out."
        )
    if np.ndim(horizon) or not 0 < horizon < np.inf:
        raise ValueError(f"horizon is {horizon!r}, but one finite time above 0 is expected.")
    levels = _check_thresholds(thresholds)
    follow_up = resolve_follow_up(censoring, X, y, [curves], sample_weight)
    y, predicted, counts = counted(y, curves, sample_weight)
    cohort = SortedCohort(y, min_events=0)
    model = CensoringModel(cohort, None, "before", follow_up)
    decision = _Decision(model, 1.0 - cohort.rows(predicted, np.array([float(horizon)]))[0], float(horizon), levels)
    benefit, everybody, treated = (part[0] for part in decision.values(cohort.weights(counts)))
    table = pd.DataFrame({"threshold": levels, "net_benefit": benefit, "treat_all": everybody, "treated": treated})
    if n_bootstrap:
        drawn = decision.drawn(n_bootstrap, random_state)
        table["lower"], table["upper"] = _interval(drawn.benefit, confidence)
        table["over_all"] = benefit - everybody
        table["over_all_lower"], table["over_all_upper"] = _interval(drawn.over_all, confidence)
    return table


def helpful_thresholds(
    y: Any,
    curves: Any,
    horizons: npt.ArrayLike,
    *,
    thresholds: npt.ArrayLike | None = None,
    X: Any | None = None,
    censoring: Censoring = "auto",
    n_bootstrap: int = 1000,
    confidence: float = 0.95,
    random_state: int = 0,
) -> pd.DataFrame:
    r"""Return at which thresholds a model is shown to help: to do better than treating all and than treating nobody.

    Who looks at a hundred thresholds finds one at which noise does better than both. So the lower limits hold for all
    thresholds, all horizons and both differences at once: with s the standard error of a difference d and c the
    quantile, over resamples, of the largest (d* - d) / s of all of them, the limit is d - c s. The model helps where
    both limits are above 0; a model that helps nowhere is said to help somewhere in at most one of twenty cohorts.

    Parameters
    ----------
    y : outcome
        Outcome of n patients; see :func:`dcsurv.make_outcome`.
    curves : SurvivalCurves, tuple or DataFrame
        Their predicted curves: SurvivalCurves, ``(values, times)``, or a DataFrame with one row per patient.
    horizons : array-like of float
        The times that are looked at.
    thresholds : array-like of float or None, default None
        Threshold probabilities, above 0 and below 1; None: 1%, 2%, ..., 99%.
    X : DataFrame, array or None, default None
        Features of the patients; see :func:`brier_score`.
    censoring : {"auto", "marginal", "by-features", "by-risk"} or FollowUp, default "auto"
        How censoring weights depend on them; see :func:`net_benefit`.
    n_bootstrap : int, default 1000
        Number of resamples of the patients.
    confidence : float, default 0.95
        How sure all limits together are to be.
    random_state : int, default 0
        Seed of the resamples.

    Returns
    -------
    DataFrame
        One row per horizon and threshold: ``horizon, threshold, net_benefit, over_all, lower, over_all_lower, helps``;
        ``lower`` is the limit of the net benefit, which is the difference to treating nobody.

    Notes
    -----
    Where few patients are treated, or few are not, resamples of them are too much alike. So s is at least what it
    would be if the two ways were equally good, the risk of those whom they treat differently being the threshold:
    :math:`\sqrt{p / (1 - p) \sum w_i^2} / n`.

    Examples
    --------
    >>> from dcsurv.datasets import simulate
    >>> from dcsurv.metrics import helpful_thresholds
    >>> cohort = simulate("independent", 600)
    >>> table = helpful_thresholds(cohort.y, cohort.truth, [4, 8], n_bootstrap=100)
    >>> bool(table["helps"].any())
    True
    >>> noise = cohort.truth[::-1]  # the curves of other patients
    >>> bool(helpful_thresholds(cohort.y, noise, [4, 8], n_bootstrap=100)["helps"].any())
    False
    """
    n_bootstrap = check_n_bootstrap(n_bootstrap, may_be_zero=False)
    check_confidence(confidence)
    times, levels = check_times(horizons, "horizons"), _check_thresholds(thresholds)
    follow_up = resolve_follow_up(censoring, X, y, [curves])
    y, predicted, _ = counted(y, curves, None)
    cohort = SortedCohort(y, min_events=0)
    model = CensoringModel(cohort, None, "before", follow_up)
    risks = 1.0 - cohort.rows(predicted, times)
    once = cohort.weights(None)
    differences, errors, highest, tables = [], [], [], []
    for t, risk in zip(times, risks, strict=True):
        decision = _Decision(model, risk, float(t), levels)
        benefit, everybody, _ = (part[0] for part in decision.values(once))
        drawn = decision.drawn(n_bootstrap, random_state)  # the same seed: the same patients
        found = np.stack([benefit, benefit - everybody])
        draws = np.stack([drawn.benefit, drawn.over_all], axis=1)  # (B, 2, T)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Degrees of freedom|All-NaN|Mean of empty", RuntimeWarning)
            error = np.fmax(np.nanstd(draws, axis=0), decision.least_errors())
            score = np.divide(draws - found, error, out=np.full_like(draws, np.nan), where=error > 0)
            highest.append(np.nanmax(np.where(np.isnan(score), -np.inf, score), axis=(1, 2)))
        differences.append(found)
        errors.append(error)
        tables.append(pd.DataFrame({"horizon": t, "threshold": levels, "net_benefit": benefit}))
    critical = max(0.0, float(np.quantile(np.max(highest, axis=0), confidence)))
    lower = [found - critical * error for found, error in zip(differences, errors, strict=True)]
    table = pd.concat(tables, ignore_index=True)
    table["over_all"] = np.concatenate([found[1] for found in differences])
    table["lower"], table["over_all_lower"] = (np.concatenate([part[k] for part in lower]) for k in (0, 1))
    return table.assign(helps=(table["lower"] > _ROUNDING) & (table["over_all_lower"] > _ROUNDING))


def _check_thresholds(thresholds: npt.ArrayLike | None) -> FloatArray:
    levels = default_thresholds() if thresholds is None else np.atleast_1d(np.asarray(thresholds, dtype=np.float64))
    if levels.ndim != 1 or len(levels) == 0 or not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"thresholds must be probabilities above 0 and below 1; got {thresholds!r}.")
    return levels


def _interval(draws: FloatArray, confidence: float) -> FloatArray:
    """Return the percentile interval at each threshold, (2, T); NaN where no resample defines it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
        out: FloatArray = np.nanquantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return out


@dataclass(frozen=True)
class _Draws:
    """The net benefit, and its difference to treating all, in each resample, both (B, T)."""

    benefit: FloatArray
    over_all: FloatArray


class _Decision:
    """Treating from each threshold of the risk on, at one horizon, for any number of weightings of the patients."""

    def __init__(self, model: CensoringModel, risk: FloatArray, horizon: float, levels: FloatArray) -> None:
        cohort = model.cohort
        if cohort.time[-1] < horizon:
            raise ValueError(
                f"net benefit cannot be computed at {horizon:g}: the last patient was seen at {cohort.time[-1]:g}. "
                "Choose an earlier horizon."
            )
        self.model, self.cohort, self.risk, self.horizon, self.levels = model, cohort, risk, horizon, levels
        self.odds = levels / (1 - levels)
        self.gone = cohort.time <= horizon

    def values(self, weight: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return net benefit, that of treating all, and the share treated, (B, T), under each weighting, (B, n)."""
        known = None
        if self.model.follow_up is not None:
            known, weight = self.model.estimate(weight).known(self.horizon)
        total = weight.sum(axis=1, keepdims=True)
        if (total <= 0).any():
            raise ValueError(f"net benefit cannot be computed at {self.horizon:g}: nobody could be followed so far.")
        sums = self._kaplan_meier(weight) if known is None else self._weighted(known)
        return sums[0] / total, sums[1] / total, self._flagged(weight) / total

    def drawn(self, n_bootstrap: int, random_state: int) -> _Draws:
        """Return what resamples of the patients give."""
        chunks = []
        for counts in resample_counts(len(self.cohort), n_bootstrap, random_state):
            benefit, everybody, _ = self.values(counts[:, self.cohort.order])
            chunks.append((benefit, benefit - everybody))
        return _Draws(*(np.concatenate(part) for part in zip(*chunks, strict=True)))

    def least_errors(self) -> FloatArray:
        """Return standard errors of the differences to none and to all if the risk of those concerned is p, (2, T)."""
        known, counting = self.model.estimate(np.ones((1, len(self.cohort)))).known(self.horizon)
        treated = self._flagged(known**2)[0]
        concerned = np.stack([treated, (known**2).sum() - treated])
        return np.sqrt(self.odds * np.maximum(concerned, 0.0)) / counting.sum()

    @cached_property
    def _by_risk(self) -> tuple[IntArray, IntArray]:
        """The patients from the highest risk down, and how many of them each threshold treats."""
        order = np.argsort(-self.risk, kind="stable")
        return order, np.searchsorted(-self.risk[order], -self.levels, side="right")

    def _flagged(self, mass: FloatArray) -> FloatArray:
        """Return the sum over those treated at each threshold, (B, T)."""
        order, treated = self._by_risk
        summed = np.concatenate([np.zeros((len(mass), 1)), np.cumsum(mass[:, order], axis=1)], axis=1)
        return summed[:, treated]

    def _weighted(self, known: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the summed benefit of the treated and of all, from the weights of those whose state is known."""
        cases, others = known * self.gone, known * ~self.gone
        benefit = self._flagged(cases) - self._flagged(others) * self.odds
        return benefit, cases.sum(axis=1, keepdims=True) - others.sum(axis=1, keepdims=True) * self.odds

    def _kaplan_meier(self, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the summed benefit of the treated and of all, whose risk is that of their Kaplan-Meier curve."""
        order, treated = self._by_risk
        sizes, which = np.unique(np.append(treated, len(order)), return_inverse=True)  # thresholds may treat the same
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        count, survival = np.empty((2, len(weight), len(sizes)))
        step = max(1, _CHUNK // len(self.cohort))
        for start in range(0, len(sizes), step):
            some = slice(start, start + step)
            chosen = rank < sizes[some, None]
            for b, own in enumerate(weight):
                count[b, some], survival[b, some] = self._of_treated(own * chosen)
        count, survival = count[:, which], survival[:, which]
        odds = np.broadcast_to(self.odds, (len(weight), len(self.odds)))
        benefit = np.where(count > 0, count * (1 - survival), 0.0)
        harm = np.where(count > 0, count * survival, 0.0)
        return benefit[:, :-1] - harm[:, :-1] * odds, benefit[:, -1:] - harm[:, -1:] * odds

    def _of_treated(self, flagged: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return how many are treated and their survival at the horizon; NaN if all were lost from sight before."""
        survival = self.cohort.read(self.cohort.survival(flagged), np.array([self.horizon]))[:, 0]
        in_sight = flagged[:, self.cohort.time >= self.horizon].any(axis=1)
        return flagged.sum(axis=1), np.where(in_sight | (survival <= 0), survival, np.nan)
