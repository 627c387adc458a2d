"""The terms of an additive model: every column as a straight line, and the bends of the columns that are numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dcsurv.models.bends import Bends, bends_of, is_number, knots_of
from dcsurv.target import FloatArray, IntArray

# Columns with at least so many distinct values are numbers, whose effect may bend.
_LEAST_DISTINCT = 10
# Tables with more columns have straight effects only.
_MOST_BENT = 150
# Values further outside the training range than this share of it are held there.
_MARGIN = 0.25


@dataclass(frozen=True)
class Terms:
    """How the columns of a table become the terms of an additive model.

    Attributes
    ----------
    center, scale : array of float
        What is taken from each column, and what it is divided by, (p,).
    lower, upper : array of float
        Where scaled values are held, (p,).
    varying : array of int
        Columns that are not constant.
    bends : tuple of Bends
        Of scaled columns.
    """

    center: FloatArray
    scale: FloatArray
    lower: FloatArray
    upper: FloatArray
    varying: IntArray
    bends: tuple[Bends, ...]

    @classmethod
    def of(cls, columns: FloatArray, weight: FloatArray, events: int, knots: int | None) -> Terms:
        """Return the terms for a table.

        Parameters
        ----------
        knots
            Of each spline; None follows the number of events.
        """
        p = columns.shape[1]
        share = weight / weight.sum()
        center = share @ columns
        scale = np.sqrt(share @ (columns - center) ** 2)
        varying = np.flatnonzero(np.ptp(columns, axis=0) > 0)
        scale[np.setdiff1d(np.arange(p), varying)] = 1.0
        lower, upper = np.full(p, -np.inf), np.full(p, np.inf)
        bends = []
        if knots is None:
            knots = int(np.clip(3 + events // 50, 3, 6))
        for k in varying if p <= _MOST_BENT and knots >= 3 else ():
            scaled = (columns[:, k] - center[k]) / scale[k]
            ordered = np.sort(scaled)
            if not is_number(ordered, _LEAST_DISTINCT):
                continue
            margin = _MARGIN * (ordered[-1] - ordered[0])
            lower[k], upper[k] = ordered[0] - margin, ordered[-1] + margin
            places = knots_of(ordered, knots)
            one = bends_of(scaled, int(k), places, weight) if len(places) >= 3 else None
            if one is not None:
                bends.append(one)
        return cls(center, scale, lower, upper, varying, tuple(bends))

    def __call__(self, X: npt.NDArray[np.floating]) -> FloatArray:
        """Return the terms of some patients, (n, terms): straight ones, then bends."""
        held = np.clip((X.astype(np.float64) - self.center) / self.scale, self.lower, self.upper)
        return np.column_stack([held[:, self.varying], *(one(held[:, one.column]) for one in self.bends)])

    @property
    def group(self) -> IntArray:
        """0 for straight terms, 1 for bends, (terms,)."""
        bent = sum(one.mix.shape[1] for one in self.bends)
        return np.repeat(np.arange(2), [len(self.varying), bent])
