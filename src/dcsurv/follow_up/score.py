"""A score of how early patients are censored, given their features: a Cox model with lines that may bend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dcsurv.arithmetic import Value
from dcsurv.nonparametric import StepFunction, breslow
from dcsurv.target import BoolArray, FloatArray, IntArray

# A penalty that counts as much as this many censorings keeps the slopes finite where a feature decides everything.
RIDGE = 2.0
_NEWTON_STEPS = 50
# Of very many columns those that tell most are used.
_MOST_COLUMNS = 30
# A column with more values than this may bend: besides itself it enters beyond each of these quantiles.
_FEW_VALUES, BENDS = 4, (1 / 3, 2 / 3)
_CHUNK = 1 << 16


@dataclass(frozen=True)
class CensoringScore:
    """A sum of bent lines, one per column that is used: the logarithm of the relative rate of censoring.

    Attributes
    ----------
    columns : array of int
        The columns that are used.
    knots : array of float
        Where each line may bend, (columns, bends).
    slopes : array of float
        Of each line, and what each bend adds to it, (columns, 1 + bends).
    cuts : array of float
        Between the groups, ascending.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.follow_up import CensoringScore
    >>> score = CensoringScore(np.array([0]), np.array([[1.0]]), np.array([[2.0, -2.0]]), np.array([1.0]))
    >>> score(np.array([[0.0], [0.5], [3.0]]))  # a line that ends at 1
    array([0., 1., 2.])
    """

    columns: IntArray
    knots: FloatArray
    slopes: FloatArray
    cuts: FloatArray

    def __call__(self, X: npt.NDArray[Any]) -> FloatArray:
        out = np.empty(len(X))
        for start in range(0, len(X), _CHUNK):  # the bends are several copies of the columns
            some = slice(start, start + _CHUNK)
            out[some] = bent(X[some][:, self.columns], self.knots) @ self.slopes.ravel()
        return out

    def arithmetic(self, X: Value) -> Value:
        """Return the score as arithmetic, (n, 1).

        Parameters
        ----------
        X : Value
            Columns, (n, p).
        """
        bends = self.knots.shape[1]
        beyond = (X.take(np.repeat(self.columns, bends)) - self.knots.ravel()).relu()
        return X.take(self.columns) @ self.slopes[:, :1] + beyond @ self.slopes[:, 1:].reshape(-1, 1)


def exposure_of(time: FloatArray, lost: BoolArray) -> FloatArray:
    """Return how many censorings a patient would have had by the own time at the rate of the cohort, (n,)."""
    times, hazard = breslow(time, lost, np.ones(len(time)))
    return StepFunction(times, hazard, 0.0)(time)


def bent(X: npt.NDArray[Any], knots: FloatArray) -> FloatArray:
    """Return each column and what of it lies beyond its knots, (n, columns x (1 + bends))."""
    values = np.asarray(X, dtype=np.float64)[:, :, None]
    return np.concatenate([values, np.maximum(values - knots, 0.0)], axis=2).reshape(len(values), -1)


def cross_fitted(
    X: npt.NDArray[Any], time: FloatArray, lost: BoolArray, fold: IntArray
) -> tuple[CensoringScore, FloatArray, FloatArray]:
    """Return a score of the rate of censoring, the mean of those without one fold, what each says of that fold, (n,).

    And how much the censorings tell in each direction of the columns, if none predicts them: eigenvalues of Cox's
    information, for :func:`dcsurv.follow_up.association.score_test`.
    """
    residual = lost - exposure_of(time, lost)
    size = np.maximum(X.std(axis=0), 1e-12)
    telling = np.abs(residual @ ((X - X.mean(axis=0)) / size))
    columns = np.sort(np.argsort(-telling, kind="stable")[:_MOST_COLUMNS])
    few = np.array([len(np.unique(X[:, k])) <= _FEW_VALUES for k in columns])
    knots = np.quantile(X[:, columns].astype(np.float64), BENDS, axis=0).T
    knots[few] = X[:, columns[few]].max(axis=0)[:, None]  # nothing lies beyond: straight
    design = bent(X[:, columns], knots)
    spread = np.maximum(design.std(axis=0), 1e-9)
    middle = design.mean(axis=0) / spread
    design = design / spread - middle
    held_out, slopes = np.zeros(len(X)), np.zeros(design.shape[1])
    n_folds = int(fold.max()) + 1
    for k in range(n_folds):
        slope = cox_slopes(design[fold != k], time[fold != k], lost[fold != k])
        held_out[fold == k] = design[fold == k] @ slope
        slopes += slope / n_folds
    held_out += middle @ slopes  # as the mean score counts it
    score = CensoringScore(columns, knots, (slopes / spread).reshape(len(columns), -1), np.zeros(0))
    told: FloatArray = np.linalg.eigvalsh(_information(design, time, lost)).astype(np.float64)
    return score, held_out, told


def _information(X: FloatArray, time: FloatArray, lost: BoolArray) -> FloatArray:
    """Return Cox's information on the slopes where all of them are 0, (columns, columns)."""
    order = np.argsort(-time, kind="stable")
    X, time, lost = X[order], time[order], lost[order]
    first = np.searchsorted(-time, -time, side="left")
    size = np.searchsorted(-time, -time, side="right")
    mean = (np.cumsum(X, axis=0)[size - 1] / size[:, None])[lost]
    share = np.cumsum((lost / size)[::-1])[::-1][first]
    out: FloatArray = (X * share[:, None]).T @ X - mean.T @ mean
    return out


def cox_slopes(X: FloatArray, time: FloatArray, lost: BoolArray) -> FloatArray:
    """Return the slopes of Cox's model of censoring with a ridge penalty, Breslow's rule for ties, by Newton's method.

    Columns are standardised. Not lifelines: where a feature decides everything its steps do not end.
    """
    order = np.argsort(-time, kind="stable")  # the risk set of a row: all rows up to it, and those tied with it
    X, time, lost = X[order], time[order], lost[order]
    first = np.searchsorted(-time, -time, side="left")
    last = np.searchsorted(-time, -time, side="right") - 1
    gone = np.flatnonzero(lost)

    def objective(slopes: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        score = X @ slopes
        risk = np.exp(score - score.max())
        at_risk = np.cumsum(risk)[last]
        value = (score - score.max() - np.log(at_risk))[gone].sum() - RIDGE / 2 * slopes @ slopes
        return float(value), risk, at_risk

    slopes = np.zeros(X.shape[1])
    value, risk, at_risk = objective(slopes)
    for _ in range(_NEWTON_STEPS):
        mean = (np.cumsum(risk[:, None] * X, axis=0)[last[gone]]) / at_risk[gone, None]
        gradient = (X[gone] - mean).sum(axis=0) - RIDGE * slopes
        # Each patient's share of the expected censorings up to the own time.
        share = risk * np.cumsum((lost / at_risk)[::-1])[::-1][first]
        curvature = (X * share[:, None]).T @ X - mean.T @ mean + RIDGE * np.eye(len(slopes))
        step = np.linalg.solve(curvature, gradient)
        for _ in range(30):
            better, *state = objective(slopes + step)
            if better >= value:
                break
            step = step / 2
        else:
            break
        gain, value = better - value, better
        slopes, (risk, at_risk) = slopes + step, state
        if gain < 1e-6 * len(gone):
            break
    return slopes
