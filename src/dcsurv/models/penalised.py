"""Newton's steps on a penalised partial likelihood, with penalties that the data choose.

The coefficients of a group are taken as drawn from a normal distribution with mean 0. Its variance, one over the
penalty, is the one with which the data are likeliest once the coefficients are integrated out (Laplace's
approximation); no patients are held out, and nothing is fitted twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dcsurv.models.partial_likelihood import PartialLikelihood, Point
from dcsurv.target import FloatArray, IntArray

_MAX_STEPS = 50
_MAX_HALVINGS = 30
# No step changes a patient's log risk by more.
_LONGEST_STEP = 4.0
# A step that changes no log risk by more than this is the last one.
_SMALLEST_STEP = 1e-4
# Rounds of the penalties' update before every step, each going on by this factor, and the change that ends them.
_MAX_ROUNDS = 60
_FURTHER = 1.7
_SMALLEST_CHANGE = 1e-3


@dataclass(frozen=True)
class Penalties:
    """What is known about the penalties beforehand.

    Attributes
    ----------
    start, lower, upper
        Of each group, (groups,); where the bounds are the same, the penalty is.
    ratio, most
        The second group's penalty is at least ``ratio`` times the first's, or at least ``most`` if that is less.
    strength
        What chosen penalties are multiplied by.
    """

    start: FloatArray
    lower: FloatArray
    upper: FloatArray
    ratio: float = 0.0
    most: float = np.inf
    strength: float = 1.0

    @property
    def free(self) -> bool:
        """Whether there is anything to choose."""
        return bool((self.lower < self.upper).any())

    def used(self, chosen: FloatArray) -> FloatArray:
        """Return the penalties that coefficients get."""
        return np.where(self.lower < self.upper, self.strength * chosen, chosen)

    def bounded(self, penalty: FloatArray) -> FloatArray:
        """Return penalties within the bounds."""
        if len(penalty) > 1:
            penalty = np.array([penalty[0], max(penalty[1], min(self.ratio * penalty[0], self.most))])
        return np.clip(penalty, self.lower, self.upper)


@dataclass(frozen=True)
class PenalisedFit:
    """What was found.

    Attributes
    ----------
    coef
        One coefficient per term, (p,).
    penalty
        The penalty of each group, (groups,).
    freedom
        Effective degrees of freedom of each group, (groups,).
    log_likelihood
        Log partial likelihood, without the penalty.
    """

    coef: FloatArray
    penalty: FloatArray
    freedom: FloatArray
    log_likelihood: float


def fit_penalised(likelihood: PartialLikelihood, group: IntArray, penalties: Penalties) -> PenalisedFit:
    """Maximise the log likelihood minus half of each group's penalty times its squared coefficients.

    Parameters
    ----------
    likelihood
        Of the terms.
    group
        Group of each term, 0 or 1, (p,).
    penalties
        Start and bounds.
    """
    coef, log_risk = np.zeros(likelihood.terms.shape[1]), np.zeros(len(likelihood.terms))
    point = likelihood.at_log_risk(log_risk)
    information = likelihood.information(point)
    chosen = penalties.bounded(penalties.start)
    for _ in range(_MAX_STEPS):
        target = information @ coef + likelihood.slope(point)
        if penalties.free:
            chosen = choose_penalties(information, target, group, chosen, penalties)
        ridge = penalties.used(chosen)[group]
        step = _inverse(information, ridge) @ target - coef
        moved = likelihood.terms @ step
        longest = float(np.abs(moved).max())
        share = _share(likelihood, point, log_risk, moved, coef, step, ridge, longest)
        coef, log_risk = coef + share * step, log_risk + share * moved
        point = likelihood.at_log_risk(log_risk)
        information = likelihood.information(point)
        if share * longest < _SMALLEST_STEP:
            break
    used = penalties.used(chosen)
    remaining = 1.0 - used[group] * np.diag(_inverse(information, used[group]))
    return PenalisedFit(coef, used, _sums(group, remaining, len(used)), point.value)


def _share(
    likelihood: PartialLikelihood,
    point: Point,
    log_risk: FloatArray,
    moved: FloatArray,
    coef: FloatArray,
    step: FloatArray,
    ridge: FloatArray,
    longest: float,
) -> float:
    """Return how much of a step to take, so that the penalised likelihood does not fall."""
    before = point.value - 0.5 * ridge @ coef**2
    allowed = before - 1e-11 * abs(before)  # rounding
    share = min(1.0, _LONGEST_STEP / longest) if longest > 0 else 1.0
    for _ in range(_MAX_HALVINGS):
        there = likelihood.at_log_risk(log_risk + share * moved).value
        if there - 0.5 * ridge @ (coef + share * step) ** 2 >= allowed:
            return share
        share /= 2
    return 0.0


def choose_penalties(
    information: FloatArray, target: FloatArray, group: IntArray, penalty: FloatArray, penalties: Penalties
) -> FloatArray:
    """Return the penalties with which a quadratic log likelihood, b'c - c'Ic / 2, is likeliest.

    By the rounds of Fellner and Schall: a penalty becomes the degrees of freedom that it leaves to its group, divided
    by the sum of squares of the group's coefficients. Each round makes the data likelier.

    Parameters
    ----------
    information
        I, (p, p).
    target
        b, (p,).
    group
        Group of each term, (p,).
    penalty
        Where to start, (groups,).
    penalties
        The bounds.
    """
    groups = len(penalty)
    size = _sums(group, np.ones(len(group)), groups)
    if groups == 1:  # turned to its axes once, a round costs nothing
        along, axes = np.linalg.eigh(information)
        along, target = np.maximum(along, 0.0), axes.T @ target
    for _ in range(_MAX_ROUNDS):
        if groups == 1:
            diagonal = 1.0 / (along + penalty[0])
            coef = diagonal * target
        else:
            inverse = _inverse(information, penalty[group])
            diagonal, coef = np.diag(inverse), inverse @ target
        freedom = np.maximum(size - penalty * _sums(group, diagonal, groups), 0.0)
        new = freedom / np.maximum(_sums(group, coef**2, groups), 1e-300)
        # Where a penalty grows without bound its rounds are short: go on in the same direction.
        ratio = np.clip(_FURTHER * np.log(np.maximum(new / penalty, 1e-300)), -4.0, 4.0)
        new = penalties.bounded(penalty * np.exp(ratio))
        change = float(np.abs(np.log(new / penalty)).max())
        penalty = new
        if change < _SMALLEST_CHANGE:
            break
    return penalty


def _sums(group: IntArray, values: FloatArray, groups: int) -> FloatArray:
    return np.bincount(group, weights=values, minlength=groups).astype(np.float64)


def _inverse(information: FloatArray, ridge: FloatArray) -> FloatArray:
    """Return the inverse of the penalised information."""
    from scipy.linalg.lapack import dpotrf, dpotri

    added = 0.0
    for _ in range(30):
        factor, failed = dpotrf(information + np.diag(ridge + added), lower=1)
        if not failed:
            inverse, _ = dpotri(factor, lower=1)
            out: FloatArray = np.tril(inverse) + np.tril(inverse, -1).T
            return out
        # Rounding has made it indefinite: columns that determine each other, and hardly a penalty.
        added = max(10 * added, 1e-12 * float(np.trace(information)), 1e-12)
    return np.diag(1.0 / (ridge + added))
