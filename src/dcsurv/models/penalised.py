"""Newton's steps on a penalised partial likelihood, with penalties that the data choose.

Coefficients of a group are taken as drawn from a normal distribution of mean 0; its variance, one over the penalty, is
the one under which the data are likeliest once the coefficients are integrated out (Laplace's approximation).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from dcsurv.models.partial_likelihood import PartialLikelihood, Point
from dcsurv.target import FloatArray, IntArray

_MAX_STEPS = 40
_MAX_ROUNDS = 200
# No step changes a patient's log risk by more.
_LONGEST_STEP = 4.0


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
        Log partial likelihood at the coefficients.
    steps
        Number of Newton's steps.
    """

    coef: FloatArray
    penalty: FloatArray
    freedom: FloatArray
    value: float
    steps: int


def fit_penalised(
    likelihood: PartialLikelihood,
    group: IntArray,
    start: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    strength: float = 1.0,
) -> PenalisedFit:
    """Maximise log likelihood minus half the penalty times the squares of the coefficients of each group.

    Parameters
    ----------
    group
        Group of each term, (p,).
    start, lower, upper
        Of the penalty of each group, (groups,); equal bounds fix it.
    strength
        What the chosen penalties are multiplied by.
    """
    terms = likelihood.terms
    coef = np.zeros(terms.shape[1])
    log_risk = np.zeros(len(terms))
    point = likelihood.at_log_risk(log_risk)
    penalty = np.clip(start, lower, upper)
    fixed = bool((lower == upper).all())
    step_no, damped = 0, False
    information = likelihood.information(point)
    while step_no < _MAX_STEPS:
        step_no += 1
        wanted = information @ coef + likelihood.slope(point)
        if not fixed:
            penalty = choose_penalties(information, wanted, group, penalty, lower, upper)
        ridge = (strength * penalty)[group]
        step = _solve(information, ridge, wanted) - coef
        moved = terms @ step
        largest = float(np.abs(moved).max(initial=0.0))
        coef, log_risk, point, share = _searched(likelihood, coef, log_risk, point, step, moved, ridge)
        information = likelihood.information(point)
        if largest * share < (1e-7 if fixed else 2e-4) or share == 0.0:
            break
    ridge = (strength * penalty)[group]
    share_of = 1.0 - ridge * np.diag(_inverse(information, ridge))
    freedom = np.bincount(group, weights=share_of, minlength=len(penalty))
    return PenalisedFit(coef, strength * penalty, freedom, point.value, step_no)


def _searched(
    likelihood: PartialLikelihood,
    coef: FloatArray,
    log_risk: FloatArray,
    point: Point,
    step: FloatArray,
    moved: FloatArray,
    ridge: FloatArray,
) -> tuple[FloatArray, FloatArray, Point, float]:
    """Go along a step as far as the penalised likelihood grows; return where, and the share of the step taken."""
    before = point.value - 0.5 * ridge @ coef**2
    share = min(1.0, _LONGEST_STEP / max(float(np.abs(moved).max(initial=0.0)), 1e-300))
    for _ in range(25):
        there = coef + share * step
        risk_there = log_risk + share * moved
        point_there = likelihood.at_log_risk(risk_there)
        if point_there.value - 0.5 * ridge @ there**2 >= before - 1e-10 * abs(before):
            return there, risk_there, point_there, share
        share /= 2
    return coef, log_risk, point, 0.0


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
