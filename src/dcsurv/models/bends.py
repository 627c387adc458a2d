"""Bends of numeric features: natural cubic splines, freed of what a straight line says already.

Between its outer knots a bend is cubic, beyond them straight. The bends of one column are uncorrelated with each
other, with a constant and with the column itself; the more a bend curves, the smaller it is made, so that one penalty
on all of them is a penalty on curvature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dcsurv.arithmetic import Value
from dcsurv.persistence import Arrays, read_array
from dcsurv.target import FloatArray

# A bend with no more than this share of its variance beside a straight line is none.
_LEAST_VARIANCE = 1e-6
# Knots are at least this share of the distance between the outer ones apart, and this share of a standard deviation:
# where a few patients are far from all others, splines between these would be rounding errors.
_CLOSEST, _CLOSEST_OF_ALL = 1e-3, 1e-4
# Quantiles of the outer knots: with three, there is too little to learn beyond.
_OUTER_OF_THREE, _OUTER = 0.10, 0.05


@dataclass(frozen=True)
class Bends:
    """Functions of one column.

    Attributes
    ----------
    column : int
        Which column.
    knots : array of float
        Ascending, (K,).
    mix : array of float
        How the functions are made of the natural splines, (K - 2, B).
    line : array of float
        Constant and slope that are taken away, (2, B).
    """

    column: int
    knots: FloatArray
    mix: FloatArray
    line: FloatArray

    def __call__(self, x: FloatArray) -> FloatArray:
        """Return the functions at some values of the column, (n, B)."""
        out: FloatArray = natural_spline(x, self.knots) @ self.mix - (self.line[0] + x[:, None] * self.line[1])
        return out

    def slope(self, x: FloatArray) -> FloatArray:
        """Return the derivatives of the functions at some values of the column, (n, B)."""
        inside = np.minimum(x, self.knots[-1])
        width = self.knots[-1] - self.knots[:-1]
        beyond = 3 * np.clip(inside[:, None] - self.knots[:-1], 0.0, None) ** 2 / width
        out: FloatArray = (beyond[:, :-1] - beyond[:, -1:]) / (self.knots[-1] - self.knots[0]) @ self.mix
        return out - self.line[1]

    def summed(self, coef: FloatArray) -> Bends:
        """Return the one function that is their sum with these coefficients."""
        return Bends(self.column, self.knots, (self.mix @ coef)[:, None], (self.line @ coef)[:, None])


def natural_spline(x: FloatArray, knots: FloatArray) -> FloatArray:
    """Return the natural cubic splines with these knots, less the straight ones, (n, K - 2)."""
    inside = np.minimum(x, knots[-1])
    beyond = np.maximum(inside[:, None] - knots[:-1], 0.0)
    beyond *= beyond * beyond / (knots[-1] - knots[:-1])  # a power of three would take a hundred times as long
    # To the right of the last knot straight: written so, nothing large is subtracted from anything large.
    slope = 3 * (knots[-2] - knots[:-2])
    out: FloatArray = beyond[:, :-1] - beyond[:, -1:] + (x - inside)[:, None] * slope
    return out / (knots[-1] - knots[0])


def bends_arithmetic(bends: Sequence[Bends], columns: Value) -> Value:
    """Return the sum of summed bends, one function per column, as arithmetic, (n, 1).

    Parameters
    ----------
    columns : Value
        The column of each bend, (n, bends).
    """
    own = np.repeat(np.arange(len(bends)), [len(one.knots) - 1 for one in bends])
    knots = np.concatenate([one.knots[:-1] for one in bends])
    lasts = np.array([one.knots[-1] for one in bends])
    size = np.array([one.knots[-1] - one.knots[0] for one in bends])
    # Of the cubes beyond each knot: what the splines are mixed of, the last one taken from all.
    cubes = [np.append(one.mix[:, 0], -one.mix[:, 0].sum()) for one in bends]
    factor = np.concatenate(cubes) / (size[own] * (lasts[own] - knots))
    slope = np.array([3 * (one.knots[-2] - one.knots[:-2]) @ one.mix[:, 0] for one in bends]) / size
    inside = columns.at_most(lasts)
    beyond = (inside.take(own) - knots).relu()
    line = np.array([one.line[:, 0] for one in bends])
    total = (beyond * beyond * beyond) @ factor[:, None] + (columns - inside) @ slope[:, None]
    return total - columns @ line[:, 1:] - float(line[:, 0].sum())


def curvature(knots: FloatArray) -> FloatArray:
    """Return the integrals of the products of the second derivatives of these splines, (K - 2, K - 2)."""
    # Second derivatives are straight between knots, so that Simpson's rule is exact.
    bent = 6 * np.clip(knots[:, None] - knots[:-1], 0.0, None) / (knots[-1] - knots[:-1])
    second = (bent[:, :-1] - bent[:, -1:]) / (knots[-1] - knots[0])
    middle = (second[1:] + second[:-1]) / 2
    width = np.diff(knots)[:, None] / 6
    out: FloatArray = sum(
        times * (width * part).T @ part for times, part in ((1, second[1:]), (4, middle), (1, second[:-1]))
    )
    return out


def place_knots(ascending: FloatArray, count: int) -> FloatArray:
    """Return knots for a scaled column, its values given in order: each value where there are few, else quantiles."""
    knots = ascending[np.r_[True, np.diff(ascending) > 0]]
    if len(knots) > count:
        outer = _OUTER_OF_THREE if count <= 3 else _OUTER
        knots = np.quantile(ascending, np.linspace(outer, 1 - outer, count))
    far = np.diff(knots) > max(_CLOSEST * (knots[-1] - knots[0]), _CLOSEST_OF_ALL)
    return knots[np.r_[True, far]]


def find_bends(x: FloatArray, column: int, knots: FloatArray, weight: FloatArray) -> Bends | None:
    """Return the bends of a column with these values and knots; None where a line says as much."""
    if len(knots) < 3:
        return None
    share = np.sqrt(weight / weight.sum())[:, None]
    basis = natural_spline(x, knots)
    straight = np.column_stack([np.ones(len(x)), x])
    line = np.linalg.lstsq(share * straight, share * basis, rcond=None)[0]
    rest = share * (basis - straight @ line)
    size, axes = np.linalg.eigh(rest.T @ rest)
    kept = size > _LEAST_VARIANCE * float(((share * basis) ** 2).sum())
    if not kept.any():
        return None
    even = axes[:, kept] / np.sqrt(size[kept])
    # Of the bends with variance 1: the one that curves least, and so on.
    rough, turned = np.linalg.eigh(even.T @ curvature(knots) @ even)
    rough = np.maximum(rough, 1e-9 * rough[-1])
    mix = even @ (turned * np.sqrt(rough[0] / rough))
    return Bends(column, knots, mix, line @ mix)


def to_arrays(bends: Sequence[Bends]) -> Arrays:
    """Return summed bends, one function per column, as plain arrays."""
    return {
        "bends.column": np.array([one.column for one in bends], dtype=np.int64),
        "bends.knots": np.array([len(one.knots) for one in bends], dtype=np.int64),
        "bends.places": np.concatenate([np.zeros(0), *(one.knots for one in bends)]),
        "bends.mix": np.concatenate([np.zeros(0), *(one.mix[:, 0] for one in bends)]),
        "bends.line": np.array([one.line[:, 0] for one in bends]).reshape(len(bends), 2),
    }


def from_arrays(arrays: Arrays, n_columns: int) -> list[Bends]:
    """Return the bends that :func:`to_arrays` wrote.

    Raises
    ------
    ValueError
        If they cannot be those of a model with so many columns.
    """
    column = read_array(arrays, "bends.column", (None,), dtype=np.int64)
    count = read_array(arrays, "bends.knots", column.shape, dtype=np.int64)
    if ((count < 3) | (count > arrays["bends.places"].size)).any():
        raise ValueError("the bends of its effects have numbers of knots that cannot be")
    n = int(count.sum())
    places, mix = read_array(arrays, "bends.places", (n,)), read_array(arrays, "bends.mix", (n - 2 * len(count),))
    line = read_array(arrays, "bends.line", (len(count), 2))
    if len(np.unique(column)) < len(column) or ((column < 0) | (column >= n_columns)).any():
        raise ValueError(f"the bends of its effects are those of other columns than its {n_columns}")
    ends = np.cumsum(count)
    found = []
    for k, (j, end) in enumerate(zip(column, ends, strict=True)):
        knots = places[end - count[k] : end]
        if (np.diff(knots) <= 0).any():
            raise ValueError("the bends of its effects have knots that do not ascend")
        last = end - 2 * (k + 1)
        found.append(Bends(int(j), knots, mix[last - count[k] + 2 : last, None], line[k][:, None]))
    return found
