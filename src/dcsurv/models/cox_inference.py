"""What a Cox fit says about its coefficients: robust errors, the test of proportional hazards, effects over time.

Everything rests on the risk sets with Efron's rule for ties: at a time with d events the k-th of them (k = 0 .. d-1)
meets a risk set from which the share k / d of those who have the event has left. Nothing here is per patient when it
leaves this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dcsurv.models.baseline import relative_risk
from dcsurv.nonparametric import kaplan_meier
from dcsurv.target import FloatArray, IntArray

CURVE_POINTS = 40
# A natural cubic spline: knots at the ends and the thirds of the events give as many parameters, too few to tell of a
# single patient once there are enough events.
_KNOTS = 4
_LEAST_TIMES = 20
# Directions in which a score varies less than this share of the most varying one carry rounding errors only.
_RANK_TOLERANCE = 1e-9


@dataclass(frozen=True)
class RiskSets:
    """The risk sets of a fitted Cox model, one per event, in order of time.

    Attributes
    ----------
    X
        Columns of the patients, centred, in order of time, (n, p).
    weight, risk
        Sample weight and exp(β x) of these patients, (n,).
    time, event
        Their outcome, (n,).
    at
        The row of the patient with each event, (d,).
    start
        The first event at each distinct time, (m,).
    tied
        Of each event, which of these times is its own, (d,).
    share
        k / d of each event among those at the same time, (d,).
    mean
        Mean of the columns in the risk set of each event, (d, p).
    hazard
        Increment of the baseline hazard at each event, (d,).
    mass
        Mean weight of the events at the same time, (d,).
    """

    X: FloatArray
    weight: FloatArray
    risk: FloatArray
    time: FloatArray
    event: npt.NDArray[np.bool_]
    at: IntArray
    start: IntArray
    tied: IntArray
    share: FloatArray
    mean: FloatArray
    hazard: FloatArray
    mass: FloatArray

    @classmethod
    def of(
        cls,
        X: FloatArray,
        time: FloatArray,
        event: npt.NDArray[np.bool_],
        coef: FloatArray,
        weight: FloatArray | None = None,
    ) -> RiskSets:
        """Sort patients and sum over those at risk; rows of weight zero count nowhere."""
        weight = np.ones(len(time)) if weight is None else weight
        order = np.argsort(time, kind="stable")
        order = order[weight[order] > 0]
        time, event, weight = time[order], event[order], weight[order]
        centred = X[order] - X.mean(axis=0)
        risk = relative_risk(centred @ coef)
        at = np.flatnonzero(event)
        when = time[at]
        _, start, tied, ties = np.unique(when, return_index=True, return_inverse=True, return_counts=True)
        share = (np.arange(len(at)) - start[tied]) / ties[tied]
        mass = weight * risk
        since = np.searchsorted(time, when, "left")
        both = np.column_stack([mass, mass[:, None] * centred])  # sums of these over a risk set: S0 and S1
        at_risk = np.cumsum(both[::-1], axis=0)[::-1][since]
        sums = at_risk - share[:, None] * np.add.reduceat(both[at], start, axis=0)[tied]
        mean_weight = (np.add.reduceat(weight[at], start) / ties)[tied]
        return cls(
            X=centred, weight=weight, risk=risk, time=time, event=event, at=at, start=start, tied=tied, share=share,
            mean=sums[:, 1:] / sums[:, :1], hazard=mean_weight / sums[:, 0], mass=mean_weight,
        )  # fmt: skip

    def schoenfeld(self) -> FloatArray:
        """Return what each event's patient has above the mean at risk (of the ties, where there are any), (d, p)."""
        ties = np.bincount(self.tied)[self.tied]
        out: FloatArray = self.X[self.at] - self._of_ties(self.mean) / ties[:, None]
        return out

    def information(self, g: FloatArray) -> FloatArray:
        """Return the sum over the events of g times the variance of the columns at risk, (p, p)."""
        exposure, _ = self._exposure(g)
        inside = (self.weight * self.risk * exposure)[:, None] * self.X
        means = (g * self.mass)[:, None] * self.mean
        out: FloatArray = self.X.T @ inside - self.mean.T @ means
        return out

    def score_residuals(self) -> FloatArray:
        """Return each patient's share in the score of the partial likelihood, (n, p), in order of time."""
        exposure, met = self._exposure(np.ones(len(self.at)))
        out: FloatArray = -self.risk[:, None] * (exposure[:, None] * self.X - met)
        out[self.at] += self.schoenfeld()
        return out

    def _exposure(self, g: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the sums of g times the hazard, and of that times the mean at risk, over the events each row meets."""
        step = (g * self.hazard)[:, None] * np.column_stack([np.ones(len(self.at)), self.mean])
        running = np.vstack([np.zeros((1, step.shape[1])), np.cumsum(step, axis=0)])
        met = running[np.searchsorted(self.time[self.at], self.time, "right")]
        # Those with the event are there with a share of themselves only.
        met[self.at] -= self._of_ties(self.share[:, None] * step)
        return met[:, 0], met[:, 1:]

    def _of_ties(self, values: FloatArray) -> FloatArray:
        """Return for each event the sum over the events at the same time."""
        out: FloatArray = np.add.reduceat(values, self.start, axis=0)[self.tied]
        return out


def robust_variance(sets: RiskSets, variance: FloatArray) -> FloatArray:
    """Return the sandwich estimate of the covariance of β, (p, p), which holds for weights of any kind."""
    influence = (sets.weight[:, None] * sets.score_residuals()) @ variance
    out: FloatArray = influence.T @ influence
    return out


def transformed_time(sets: RiskSets) -> FloatArray:
    """Return 1 - KM(t-) at each event: time on a scale on which late, lonely events do not decide alone, (d,)."""
    return 1.0 - kaplan_meier((sets.time, sets.event)).before(sets.time[sets.at])


def proportional_hazards_test(
    sets: RiskSets, variance: FloatArray, groups: Sequence[IntArray]
) -> list[tuple[float, int]]:
    """Test whether effects change over time: the score test of an added term g(t) x, with g = 1 - KM(t-).

    The exact test, as R's ``cox.zph`` makes since survival 3.0, not the approximation that takes the variance at risk
    as constant.

    Parameters
    ----------
    variance
        Covariance of β without weights, the inverse of the (penalised) information, (p, p).
    groups
        Columns to test together, such as the levels of a category.

    Returns
    -------
    For each group χ² and its degrees of freedom; 0 of them where there is nothing to test.
    """
    g = transformed_time(sets)
    g -= g.mean()
    score = (g[:, None] * sets.schoenfeld()).sum(axis=0)
    across = sets.information(g)
    # What of the added term's information is left once β may move as well.
    left = sets.information(g * g) - across @ variance @ across
    return [_quadratic(score[group], left[np.ix_(group, group)]) for group in groups]


def _quadratic(score: FloatArray, information: FloatArray) -> tuple[float, int]:
    """Return u' I⁻¹ u and the rank of I."""
    size = np.sqrt(np.clip(np.diag(information), 0.0, None))
    usable = size > 0
    if not usable.any() or not np.isfinite(information).all():
        return float("nan"), 0
    u = score[usable] / size[usable]
    values, vectors = np.linalg.eigh(information[np.ix_(usable, usable)] / np.outer(size[usable], size[usable]))
    kept = values > _RANK_TOLERANCE * values[-1]
    along = vectors.T @ u
    return float((along[kept] ** 2 / values[kept]).sum()), int(kept.sum())


@dataclass(frozen=True)
class EffectCurves:
    """Coefficients as smooth functions of time.

    Attributes
    ----------
    times
        Evenly spaced on the scale 1 - KM(t-), from the first to the last event, (T,).
    effect
        β(t) of each column, (p, T).
    spread
        Standard error of β(t) as a multiple of that of β, (T,).
    """

    times: FloatArray
    effect: FloatArray
    spread: FloatArray


def effects_over_time(sets: RiskSets, coef: FloatArray, variance: FloatArray) -> EffectCurves | None:
    """Smooth the scaled Schoenfeld residuals over time by a natural cubic spline; None where events are too few."""
    when, place = np.unique(sets.time[sets.at]), transformed_time(sets)
    if len(when) < _LEAST_TIMES:
        return None
    knots = np.quantile(place, np.linspace(0, 1, _KNOTS))
    if np.diff(knots).min() <= 0:  # too many at one time
        return None
    d = len(place)
    scaled = coef + d * sets.schoenfeld() @ variance
    grid = np.linspace(knots[0], knots[-1], CURVE_POINTS)
    basis, at_grid = _natural_spline(place, knots), _natural_spline(grid, knots)
    inverse = np.linalg.inv(basis.T @ basis)
    effect = at_grid @ (inverse @ (basis.T @ scaled))
    spread = np.sqrt(d * np.einsum("ij,jk,ik->i", at_grid, inverse, at_grid))
    # Back to time: each point of the grid lies between two event times.
    times = np.interp(grid, np.unique(place), when)
    return EffectCurves(times, np.ascontiguousarray(effect.T), spread)


def _natural_spline(x: FloatArray, knots: FloatArray) -> FloatArray:
    """Return a basis of the natural cubic splines with these knots, (n, number of knots)."""
    beyond = np.clip(x[:, None] - knots, 0.0, None) ** 3
    bent = (beyond[:, :-1] - beyond[:, -1:]) / (knots[-1] - knots[:-1])
    return np.column_stack([np.ones(len(x)), x, bent[:, :-1] - bent[:, -1:]])
