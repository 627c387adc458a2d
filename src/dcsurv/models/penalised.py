"""Newton's steps on a penalised likelihood, with penalties that the data choose.

Coefficients of a group are taken as drawn from a normal distribution of mean 0; its variance, one over the penalty, is
the one under which the data are likeliest once the coefficients are integrated out (Laplace's approximation).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from dcsurv.target import BoolArray, FloatArray, IntArray

_MAX_STEPS = 40
_MAX_ROUNDS = 200
# No step changes a patient's log risk by more.
_LONGEST_STEP = 4.0


class Likelihood(Protocol):
    """A log likelihood that is concave in its coefficients."""

    terms: FloatArray

    def evaluate(self, coef: FloatArray, linear: FloatArray) -> Any:
        """Return the likelihood at coefficients and terms @ coef: its ``value``, and what the other methods need."""

    def slope(self, point: Any) -> FloatArray:
        """Return its derivative, (p,)."""

    def information(self, point: Any) -> FloatArray:
        """Return minus its second derivative, (p, p)."""


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
    value
        Log likelihood at the coefficients.
    marginal
        Log likelihood once the coefficients are integrated out (Laplace), up to a constant.
    steps
        Number of Newton's steps.
    """

    coef: FloatArray
    penalty: FloatArray
    freedom: FloatArray
    value: float
    marginal: float
    steps: int


def fit_penalised(
    likelihood: Likelihood,
    group: IntArray,
    penalty: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    strength: float = 1.0,
    start: FloatArray | None = None,
    exact: float = 2e-4,
) -> PenalisedFit:
    """Maximise log likelihood minus half the penalty times the squares of the coefficients of each group.

    Parameters
    ----------
    group
        Group of each coefficient, (p,); those of group -1 are not penalised.
    penalty, lower, upper
        Penalty of each group to start with, and its bounds, (groups,); equal bounds fix it.
    strength
        What the chosen penalties are multiplied by.
    start
        Coefficients to start with, (p,); None starts at 0.
    exact
        Steps end when one changes no patient's linear predictor by more.
    """
    terms = likelihood.terms
    coef = np.zeros(terms.shape[1]) if start is None else start
    linear = terms @ coef
    point = likelihood.evaluate(coef, linear)
    penalty = np.clip(penalty, lower, upper)
    fixed = bool((lower == upper).all())
    held = group >= 0
    step_no = 0
    information = likelihood.information(point)
    while step_no < _MAX_STEPS:
        step_no += 1
        wanted = information @ coef + likelihood.slope(point)
        if not fixed and held.any():
            penalty = choose_penalties(*_reduced(information, wanted, held), group[held], penalty, lower, upper)
        ridge = _ridge(strength * penalty, group)
        step = _solve(information, ridge, wanted) - coef
        moved = terms @ step
        largest = float(np.abs(moved).max(initial=0.0))
        coef, linear, point, share = _searched(likelihood, coef, linear, point, step, moved, ridge)
        information = likelihood.information(point)
        if largest * share < (min(exact, 1e-7) if fixed else exact) or share == 0.0:
            break
    ridge = _ridge(strength * penalty, group)
    share_of = 1.0 - ridge * np.diag(_inverse(information, ridge))
    freedom = np.bincount(group[held], weights=share_of[held], minlength=len(penalty)).astype(np.float64)
    marginal = point.value - 0.5 * float(ridge @ coef**2 - np.log(ridge[held]).sum() + _log_det(information, ridge))
    return PenalisedFit(coef, strength * penalty, freedom, point.value, marginal, step_no)


def _ridge(penalty: FloatArray, group: IntArray) -> FloatArray:
    return np.where(group >= 0, penalty[np.maximum(group, 0)], 0.0)


def _reduced(information: FloatArray, wanted: FloatArray, held: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return a quadratic log likelihood without the coefficients that are not penalised, which are integrated out."""
    free = ~held
    if not free.any():
        return information, wanted
    across = information[np.ix_(free, held)]
    known = _solve(information[np.ix_(free, free)], np.zeros(int(free.sum())), np.column_stack([across, wanted[free]]))
    return information[np.ix_(held, held)] - across.T @ known[:, :-1], wanted[held] - across.T @ known[:, -1]


def _searched(
    likelihood: Likelihood,
    coef: FloatArray,
    linear: FloatArray,
    point: Any,
    step: FloatArray,
    moved: FloatArray,
    ridge: FloatArray,
) -> tuple[FloatArray, FloatArray, Any, float]:
    """Go along a step as far as the penalised likelihood grows; return where, and the share of the step taken."""
    before = point.value - 0.5 * ridge @ coef**2
    share = min(1.0, _LONGEST_STEP / max(float(np.abs(moved).max(initial=0.0)), 1e-300))
    for _ in range(25):
        there = coef + share * step
        linear_there = linear + share * moved
        point_there = likelihood.evaluate(there, linear_there)
        if point_there.value - 0.5 * ridge @ there**2 >= before - 1e-10 * abs(before):
            return there, linear_there, point_there, share
        share /= 2
    return coef, linear, point, 0.0


def choose_penalties(
    information: FloatArray,
    wanted: FloatArray,
    group: IntArray,
    penalty: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
) -> FloatArray:
    """Return the penalties under which a quadratic log likelihood is likeliest (Fellner and Schall's rounds).

    Parameters
    ----------
    information, wanted
        Of the log likelihood b'c - c'Ic / 2: I, (p, p), and b, (p,).
    """
    size = np.bincount(group, minlength=len(penalty)).astype(np.float64)
    for _ in range(_MAX_ROUNDS):
        ridge = penalty[group]
        inverse = _inverse(information, ridge)
        coef = inverse @ wanted
        squares = np.bincount(group, weights=coef**2, minlength=len(penalty))
        left = np.bincount(group, weights=np.diag(inverse), minlength=len(penalty))
        freedom = np.maximum(size - penalty * left, 0.0)
        new = np.clip(freedom / np.maximum(squares, 1e-300), lower, upper)
        # Steps are short where a penalty grows without bound: go further the same way.
        ratio = np.log(new / penalty)
        new = np.clip(penalty * np.exp(np.clip(1.7 * ratio, -4.0, 4.0)), lower, upper)
        change = np.abs(np.log(new / penalty)).max(initial=0.0)
        penalty = new
        if change < 1e-3:
            break
    return penalty


def _inverse(information: FloatArray, ridge: FloatArray) -> FloatArray:
    return _solve(information, ridge, np.eye(len(ridge)))


def _solve(information: FloatArray, ridge: FloatArray, right: FloatArray) -> FloatArray:
    matrix = information + np.diag(ridge)
    extra = 0.0
    for _ in range(20):
        try:
            out: FloatArray = cho_solve(cho_factor(matrix + extra * np.eye(len(ridge)), check_finite=False), right)
            return out
        except LinAlgError:
            extra = max(10 * extra, 1e-10 * max(float(np.trace(matrix)) / len(ridge), 1e-300))
    return np.zeros_like(right)


def _log_det(information: FloatArray, ridge: FloatArray) -> float:
    size = np.linalg.eigvalsh(information + np.diag(ridge))
    return float(np.log(np.maximum(size, 1e-12 * max(float(size[-1]), 1e-300))).sum()) if len(size) else 0.0
