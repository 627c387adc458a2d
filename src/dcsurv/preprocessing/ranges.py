"""The range that a model has learnt from, and which values of new patients lie outside."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.preprocessing.outside import CLEAR, SAMPLE, Outside, OutsideCounts, as_it_is
from dcsurv.preprocessing.units import sign_of_unit
from dcsurv.target import FloatArray, IntArray

# A value is far outside if it lies beyond the range by more than the range is wide.
_FAR = 1.0
# Fewer patients than this never stand for themselves.
_FEW = 5
_NO_ROWS: IntArray = np.zeros(0, dtype=np.int64)

RANGES_UNKNOWN = (
    "The model's file was written by an older version and does not know the ranges of its training patients (ranges "
    "unknown): values outside them are not noticed. Fit the model again."
)


@dataclass(frozen=True, eq=False)
class Ranges:
    """Between which values the numbers of the training patients lay.

    Parameters
    ----------
    places : array of int
        Positions of the numbers among the features.
    names : tuple of str
        Their names.
    low : array of float
        From where each was seen.
    high : array of float
        Up to where.
    middle : array of float
        Their medians.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.preprocessing import Population
    >>> ranges = Population.of(np.linspace(20, 90, 100)[:, None]).ranges
    >>> ranges.look(np.array([[50.0], [91.0], [560.0]])).notes()[2]
    'outside training range: x0 560 (15 to 95); not to be used, predicted as x0 95'
    """

    places: IntArray
    names: tuple[str, ...]
    low: FloatArray
    high: FloatArray
    middle: FloatArray

    def look(self, X: Any) -> Outside:
        """Compare patients with those of training.

        Parameters
        ----------
        X : DataFrame or array
            Features in the order of the model.

        Returns
        -------
        Outside
            What lies outside.
        """
        n, width = len(X), len(self.names)
        known, beyond, clear = (np.zeros(width, dtype=np.int64) for _ in range(3))
        furthest = np.full(width, np.nan)
        nothing = np.ones(n, dtype=bool)
        step = max(1, -(-n // SAMPLE))
        sample = np.empty((len(range(0, n, step)), width))
        rows, columns, found = [_NO_ROWS], [_NO_ROWS], [np.zeros(0)]
        for k, values in enumerate(self._columns(X)):
            missing = np.isnan(values)
            known[k] = n - int(missing.sum())
            nothing &= missing
            sample[:, k] = values[::step]
            outside = np.flatnonzero((values < self.low[k]) | (values > self.high[k]))
            if len(outside):
                beyond[k] = len(outside)
                there = values[outside]
                distance = np.maximum(self.low[k] - there, there - self.high[k])
                furthest[k] = there[distance.argmax()]
                clear[k] = int((distance > CLEAR * (self.high[k] - self.low[k])).sum())
                rows.append(outside)
                columns.append(np.full(len(outside), k))
                found.append(there)
        empty = np.flatnonzero(nothing)
        if len(empty):
            empty = empty[np.asarray(pd.isna(_rows(X, empty))).all(axis=1)]
        at, column, value = np.concatenate(rows), np.concatenate(columns), np.concatenate(found)
        far = at[self.are_far(column, value)]
        counts = OutsideCounts(
            self,
            n,
            len(np.unique(at)),
            len(empty),
            len(np.union1d(far, empty)),
            known,
            beyond,
            clear,
            furthest,
            sample,
        )
        return Outside(self, counts, at, column, value, empty)

    def clamped(self, X: Any) -> Any:
        """Return features in which values far outside the range are at its edge; others are as they were.

        Parameters
        ----------
        X : DataFrame or array
            Features in the order of the model.

        Returns
        -------
        DataFrame or array
            The same object where nothing is far outside.
        """
        low, high = self.limits
        out = X
        for k, values in enumerate(self._columns(X)):
            far = (values < low[k]) | (values > high[k])
            if not far.any():
                continue
            inside = np.where(far, np.clip(values, self.low[k], self.high[k]), values)
            place = int(self.places[k])
            if isinstance(X, pd.DataFrame):
                out = out.copy(deep=False) if out is X else out
                out.isetitem(place, inside)
            else:
                out = out.copy() if out is X else out
                out[:, place] = inside
        return out

    @property
    def limits(self) -> tuple[FloatArray, FloatArray]:
        """Beyond what a value is far outside; a feature that never changed has no scale to say so."""
        reach = np.where(self.high > self.low, _FAR * (self.high - self.low), np.inf)
        return self.low - reach, self.high + reach

    def are_far(self, columns: IntArray, values: FloatArray) -> npt.NDArray[np.bool_]:
        """Tell which values lie so far outside that a prediction is not to be used.

        Parameters
        ----------
        columns : array of int
            Which numbers they are.
        values : array of float
            The values.

        Returns
        -------
        array of bool
            One for each.
        """
        low, high = self.limits
        beyond: npt.NDArray[np.bool_] = (values < low[columns]) | (values > high[columns])
        return beyond

    def cell(self, k: int, value: float | None) -> str:
        """Return a value beside its range: ``age 560 (15 to 100)``.

        Parameters
        ----------
        k : int
            Which number.
        value : float or None
            Its value; None names none.

        Returns
        -------
        str
            Words for a note.
        """
        named = self.names[k] if value is None else f"{self.names[k]} {as_it_is(value)}"
        return f"{named} ({as_it_is(self.low[k])} to {as_it_is(self.high[k])})"

    def unit_of(self, k: int, values: FloatArray) -> str | None:
        """Say what a factor between the medians is a sign of.

        Parameters
        ----------
        k : int
            Which number.
        values : array of float
            New ones.

        Returns
        -------
        str or None
            None if no factor explains them.
        """
        return sign_of_unit(values, float(self.low[k]), float(self.high[k]), float(self.middle[k]))

    def _columns(self, X: Any) -> Iterator[FloatArray]:
        for place in self.places:
            column = X.iloc[:, place] if isinstance(X, pd.DataFrame) else X[:, place]
            if getattr(column.dtype, "kind", "O") in "fiu" and isinstance(column.dtype, np.dtype):
                yield np.asarray(column, dtype=np.float64)
            else:
                numbers = pd.to_numeric(pd.Series(column).astype(object), errors="coerce")
                yield numbers.to_numpy(np.float64, na_value=np.nan)


def edges_of(values: FloatArray) -> tuple[float, float]:
    """Return the range of known values, made wider to round numbers, so that no patient's own value is in it.

    Parameters
    ----------
    values : array of float
        At least one.

    Returns
    -------
    low : float
        At most the least of them.
    high : float
        At least the greatest.
    """
    low, high = float(values.min()), float(values.max())
    width = high - low
    if not (width > 0 and math.isfinite(width)):
        return low, high
    power = 10.0 ** math.floor(math.log10(width / 10))
    step = max(size * power for size in (1, 2, 5) if size * power <= width / 10)
    if (values == np.rint(values)).all():
        step = max(step, 1.0)
    below, above = math.floor(low / step), math.ceil(high / step)
    # A round number may be somebody's.
    below -= int(below * step == low and (values == low).sum() < _FEW)
    above += int(above * step == high and (values == high).sum() < _FEW)
    # Written anew in few digits: 3 * 0.1 is not 0.3.
    return min(float(f"{below * step:.12g}"), low), max(float(f"{above * step:.12g}"), high)


def _rows(X: Any, rows: IntArray) -> Any:
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]
