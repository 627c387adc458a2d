"""Curves in one number per patient: the time at which they reach a level, the area below them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dcsurv.curves.interpolated import SMALLEST_SURVIVAL
from dcsurv.target import FloatArray

if TYPE_CHECKING:
    from dcsurv.curves.survival_curves import SurvivalCurves

# Intervals are cut in this many pieces to integrate a curve that a transform bends between nodes.
_PIECES = 8
_BISECTIONS = 60


def time_at(curves: SurvivalCurves, knots: FloatArray, level: float) -> FloatArray:
    """Return the first time at which S(t) <= level, (n,); NaN where that is never reached."""
    source = getattr(curves.transform, "source_of", None)
    if curves.transform is not None and source is None:
        return _searched(curves, knots, level)
    # A map that is the same at all times is undone once, and the level found where the curves run straight.
    return curves.first_at(level if source is None else source(level))


def _searched(curves: SurvivalCurves, knots: FloatArray, level: float) -> FloatArray:
    """Find that time by bisection, whatever the interpolation and the transform are."""
    reached = curves.evaluate_rows(knots) <= level
    out = np.full(len(curves), np.nan)
    rows = np.flatnonzero(reached.any(axis=0))
    if len(rows) == 0:
        return out
    hit = reached[:, rows].argmax(axis=0)
    low, high = knots[np.maximum(hit - 1, 0)], knots[hit]
    some = curves[rows]
    for _ in range(_BISECTIONS):  # keeps S(high) <= level, for every interpolation and transform alike
        middle = (low + high) / 2
        below = some.at_own(middle) <= level
        high = np.where(below, middle, high)
        low = np.where(below, low, middle)
    out[rows] = high
    return out


def area_below(curves: SurvivalCurves, knots: FloatArray, end: float) -> FloatArray:
    """Return the integral of S from 0 to a time, (n,).

    Exact without a transform; with one, the trapezoid rule on eight pieces per interval.
    """
    knots = np.append(knots[knots < end], end)
    if curves.transform is not None:
        pieces = np.arange(_PIECES) / _PIECES
        knots = np.append((knots[:-1, None] + np.diff(knots)[:, None] * pieces).ravel(), end)
    width = np.diff(knots)
    rows = curves.evaluate_rows(knots)
    before, after = rows[:-1], rows[1:]
    if curves.interpolation == "step":
        mean = before
    elif curves.interpolation == "constant_hazard" and curves.transform is None:
        drop = np.log(np.maximum(before, SMALLEST_SURVIVAL) / np.maximum(after, SMALLEST_SURVIVAL))
        flat = drop < 1e-9
        mean = np.where(flat, before, (before - after) / np.where(flat, 1.0, drop))
    else:
        mean = (before + after) / 2
    return width @ mean
