"""Newton's steps on a penalised likelihood, with penalties that the data choose.

The coefficients of a group are taken as drawn from a normal distribution with mean 0. Its variance, one over the
penalty, is the one with which the data are likeliest once the coefficients are integrated out (Laplace's
approximation); no patients are held out, and nothing is fitted twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from dcsurv.target import BoolArray, FloatArray, IntArray

_MAX_STEPS = 50
# Coefficients and penalties may chase each other: after so many steps penalties go half of the way, and later none.
_FREE_STEPS, _CHOOSING_STEPS = 8, 16
_MAX_HALVINGS = 30
# No step changes a patient's linear predictor (terms times coefficients) by more.
_LONGEST_STEP = 4.0
# A step that changes no linear predictor by more than this is the last one.
SMALLEST_STEP = 1e-4
# Rounds of the penalties' update before every step, each going on by this factor, and the change that ends them.
_MAX_ROUNDS = 60
_FURTHER = 1.7
_SMALLEST_CHANGE = 1e-3
# With fewer terms of other groups, as a share of those of the first, the first is turned to its axes for these rounds.
_FEW_OTHERS = 0.2


class Likelihood(Protocol):
    """A log likelihood that is concave in its coefficients."""

    @property
    def terms(self) -> FloatArray:
        """One row per patient, one column per coefficient, (n, p)."""

    def evaluate(self, coef: FloatArray, linear: FloatArray) -> Any:
        """Return the likelihood at coefficients and terms @ coef: its ``value``, and what the other methods need."""

    def slope(self, point: Any) -> FloatArray:
        """Return its derivative there, (p,)."""

    def information(self, point: Any) -> FloatArray:
        """Return minus its second derivative there, (p, p)."""


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

    def and_another(self, start: float, lower: float, upper: float) -> Penalties:
        """Return the same with one more group, which is not bound to the others."""
        return replace(
            self,
            ratio=self.ratio if len(self.start) > 1 else 0.0,
            start=np.r_[self.start, start],
            lower=np.r_[self.lower, lower],
            upper=np.r_[self.upper, upper],
        )

    def from_here(self, used: FloatArray) -> Penalties:
        """Return the same with a start at penalties that coefficients got."""
        return replace(self, start=np.where(self.lower < self.upper, used / self.strength, used))

    def bounded(self, penalty: FloatArray) -> FloatArray:
        """Return penalties within the bounds."""
        if len(penalty) > 1:
            penalty = np.r_[penalty[0], max(penalty[1], min(self.ratio * penalty[0], self.most)), penalty[2:]]
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
        At the coefficients, without the penalty.
    marginal
        Log likelihood of the data once the coefficients are integrated out, but for a constant.
    """

    coef: FloatArray
    penalty: FloatArray
    freedom: FloatArray
    log_likelihood: float
    marginal: float


def fit_penalised(
    likelihood: Likelihood,
    group: IntArray,
    penalties: Penalties,
    start: FloatArray | None = None,
    smallest_step: float = SMALLEST_STEP,
) -> PenalisedFit:
    """Maximise the log likelihood minus half of each group's penalty times its squared coefficients.

    Parameters
    ----------
    likelihood
        Of the terms.
    group
        Group of each term, 0 or 1, (p,); terms of group -1 are not penalised.
    penalties
        Start and bounds.
    start
        Coefficients to start with, (p,); None starts with 0.
    smallest_step
        A step that changes no linear predictor by more is the last one.
    """
    coef = np.zeros(likelihood.terms.shape[1]) if start is None else start
    linear = likelihood.terms @ coef
    point = likelihood.evaluate(coef, linear)
    information = likelihood.information(point)
    chosen = penalties.bounded(penalties.start)
    held = group >= 0
    for count in range(_MAX_STEPS):
        target = information @ coef + likelihood.slope(point)
        if penalties.free and held.any() and count < _CHOOSING_STEPS:
            before = chosen
            chosen = choose_penalties(*_without_free(information, target, held), group[held], chosen, penalties)
            if count > _FREE_STEPS:
                chosen = np.sqrt(before * chosen)
        ridge = np.where(held, penalties.used(chosen)[group], 0.0)
        step = _inverse(information, ridge) @ target - coef
        moved = likelihood.terms @ step
        longest = float(np.abs(moved).max())
        share, point = _share(likelihood, point, linear, moved, coef, step, ridge, longest)
        coef, linear = coef + share * step, linear + share * moved
        information = likelihood.information(point)
        if share * longest < smallest_step:
            break
    used = penalties.used(chosen)
    ridge = np.where(held, used[group], 0.0)
    inverse = _inverse(information, ridge)
    remaining = (1.0 - ridge * np.diag(inverse))[held]
    marginal = point.value + 0.5 * (np.log(ridge[held]).sum() - ridge @ coef**2 + _log_determinant(inverse))
    return PenalisedFit(coef, used, _sums(group[held], remaining, len(used)), float(point.value), float(marginal))


def _without_free(information: FloatArray, target: FloatArray, held: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return a quadratic log likelihood with the coefficients that are not penalised integrated out."""
    if held.all():
        return information, target
    across = information[np.ix_(held, ~held)]
    known = across @ _inverse(information[np.ix_(~held, ~held)], np.zeros(int((~held).sum())))
    return information[np.ix_(held, held)] - known @ across.T, target[held] - known @ target[~held]


def _share(
    likelihood: Likelihood,
    point: Any,
    linear: FloatArray,
    moved: FloatArray,
    coef: FloatArray,
    step: FloatArray,
    ridge: FloatArray,
    longest: float,
) -> tuple[float, Any]:
    """Return how much of a step to take, so that the penalised likelihood does not fall, and the likelihood there."""
    before = point.value - 0.5 * ridge @ coef**2
    allowed = before - 1e-11 * abs(before)  # rounding
    share = min(1.0, _LONGEST_STEP / longest) if longest > 0 else 1.0
    for _ in range(_MAX_HALVINGS):
        there = coef + share * step
        after = likelihood.evaluate(there, linear + share * moved)
        if after.value - 0.5 * ridge @ there**2 >= allowed:
            return share, after
        share /= 2
    return 0.0, point


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
    turned = None
    if (group > 0).sum() < _FEW_OTHERS * (group == 0).sum():
        turned = _TurnedGroup(information, target, group)
    for _ in range(_MAX_ROUNDS):
        if turned is not None:
            diagonal, coef = turned.solve(penalty)
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


class _TurnedGroup:
    """A quadratic log likelihood with the terms of the first group turned to their axes: what follows costs little.

    Sums of squares and of a diagonal over the group are the same along all axes.
    """

    def __init__(self, information: FloatArray, target: FloatArray, group: IntArray) -> None:
        self.first = group == 0
        self.others = group[~self.first]
        along, axes = np.linalg.eigh(information[np.ix_(self.first, self.first)])
        self.along, self.target = np.maximum(along, 0.0), axes.T @ target[self.first]
        self.across = axes.T @ information[np.ix_(self.first, ~self.first)]
        self.rest, self.target_rest = information[np.ix_(~self.first, ~self.first)], target[~self.first]

    def solve(self, penalty: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the diagonal of the penalised information's inverse, and the coefficients."""
        own = 1.0 / (self.along + penalty[0])
        known = own[:, None] * self.across
        inverse = np.linalg.inv(self.rest + np.diag(penalty[self.others]) - self.across.T @ known)
        rest = inverse @ (self.target_rest - known.T @ self.target)
        diagonal, coef = np.empty(len(self.first)), np.empty(len(self.first))
        diagonal[self.first] = own + np.einsum("ij,jk,ik->i", known, inverse, known)
        diagonal[~self.first] = np.diag(inverse)
        coef[self.first], coef[~self.first] = own * self.target - known @ rest, rest
        return diagonal, coef


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
            out: FloatArray = inverse + inverse.T  # its upper half is 0
            np.fill_diagonal(out, inverse.diagonal())
            return out
        # Rounding has made it indefinite: columns that determine each other, and hardly a penalty.
        added = max(10 * added, 1e-12 * float(np.trace(information)), 1e-12)
    return np.diag(1.0 / (ridge + added))


def _log_determinant(inverse: FloatArray) -> float:
    return float(np.log(np.maximum(np.linalg.eigvalsh(inverse), 1e-300)).sum())
