"""Bends of numeric features: natural cubic splines, freed of what a straight line says already.

Between its outer knots a bend is cubic, beyond them straight. The bends of one column are uncorrelated with each
other, with a constant and with the column itself; the more a bend curves, the smaller it is made, so that one penalty
on all of them is a penalty on curvature.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dcsurv.target import FloatArray, IntArray

# A bend that a straight line explains up to this share of its variance is none.
_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True)
class Bends:
    """The bends of one column.

    Attributes
    ----------
    column : int
        Which column.
    knots : array of float
        Ascending, (K,).
    line : array of float
        Constant and slope to take from each bend, (2, B).
    mix : array of float
        How the bends are mixed of the natural splines, (K - 2, B).
    """

    column: int
    knots: FloatArray
    line: FloatArray
    mix: FloatArray

    def __call__(self, x: FloatArray) -> FloatArray:
        """Return the bends of some values, (n, B)."""
        out: FloatArray = natural_spline(x, self.knots) @ self.mix - (self.line[0] + x[:, None] * self.line[1])
        return out


def natural_spline(x: FloatArray, knots: FloatArray) -> FloatArray:
    """Return the natural cubic splines with these knots that are not straight lines, (n, K - 2)."""
    beyond = np.clip(x[:, None] - knots, 0.0, None) ** 3
    bent = (beyond[:, :-1] - beyond[:, -1:]) / (knots[-1] - knots[:-1])
    out: FloatArray = (bent[:, :-1] - bent[:, -1:]) / (knots[-1] - knots[0])
    return out


def bends_of(x: FloatArray, column: int, knots: FloatArray, weight: FloatArray) -> Bends | None:
    """Return the bends of a column, fitted to its values; None where they say nothing that a line does not."""
    basis = natural_spline(x, knots)
    share = weight / weight.sum()
    straight = np.column_stack([np.ones(len(x)), x])
    line = np.linalg.solve((straight * share[:, None]).T @ straight, (straight * share[:, None]).T @ basis)
    rest = basis - straight @ line
    variance = (rest * share[:, None]).T @ rest
    size, axes = np.linalg.eigh(variance)
    kept = size > _LEAST_VARIANCE * max(float(np.trace((basis * share[:, None]).T @ basis)), 1e-300)
    if not kept.any():
        return None
    whitened = axes[:, kept] / np.sqrt(size[kept])
    # Among bends of unit variance, the directions of least and most curvature.
    rough, turned = np.linalg.eigh(whitened.T @ curvature(knots) @ whitened)
    rough = np.maximum(rough, 1e-9 * rough[-1])
    mix = whitened @ (turned * np.sqrt(rough[0] / rough))
    mix *= np.where(mix[np.abs(mix).argmax(axis=0), np.arange(mix.shape[1])] < 0, -1.0, 1.0)
    return Bends(column, knots, line @ mix, mix)


def curvature(knots: FloatArray) -> FloatArray:
    """Return the integrals of the products of second derivatives of the natural splines, (K - 2, K - 2)."""
    # Second derivatives are straight between knots, so that their values there say all (Simpson's rule is exact).
    bent = 6 * np.clip(knots[:, None] - knots, 0.0, None)
    bent = (bent[:, :-1] - bent[:, -1:]) / (knots[-1] - knots[:-1])
    second = (bent[:, :-1] - bent[:, -1:]) / (knots[-1] - knots[0])
    middle = (second[1:] + second[:-1]) / 2
    width = np.diff(knots)[:, None] / 6
    out: FloatArray = (width * second[1:]).T @ second[1:] + (width * second[:-1]).T @ second[:-1]
    return out + 4 * (width * middle).T @ middle


def knots_of(ordered: FloatArray, count: int) -> FloatArray:
    """Return knots at quantiles of a column's ascending values, fewer where values are the same."""
    outer = 0.10 if count <= 3 else 0.05
    places = np.linspace(outer, 1 - outer, count)
    return np.unique(np.quantile(ordered, places))


def is_number(ordered: FloatArray, least: int) -> bool:
    """Whether a column, in ascending order, has at least so many distinct values."""
    return int((np.diff(ordered) > 0).sum()) + 1 >= least


def columns_of(bends: list[Bends]) -> IntArray:
    """Return the column of every bend, (sum of B,)."""
    return np.concatenate([np.full(one.mix.shape[1], one.column) for one in bends] or [np.zeros(0, dtype=np.int64)])
