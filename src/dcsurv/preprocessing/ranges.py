"""Whether new patients are like those of training: values outside the range that a model has learnt from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.messages import plural, short
from dcsurv.target import FloatArray, IntArray

# A value is far outside if it lies beyond the range by more than the range is wide.
_FAR = 1.0
# A few held-out patients lie a little outside by chance. Python warns if this share of a column lies outside by more
# than this share of the range.
_MANY, _CLEAR = 0.05, 0.1
# Fewer patients than this never stand for themselves.
_FEW = 5
# Rows by which units are compared, and how many a column needs for it.
_SAMPLE, _ENOUGH = 512, 10
# How many of a column's values lie outside if its unit is another: most of them, or some if a factor explains them.
_MOST, _SOME = 0.9, 0.2
_TOLERANCE, _EXPLAINED = math.log(1.25), 0.9
# How many times larger numbers get, and of what that is the sign: the unit that they are in, and that of training.
_FACTORS = (
    (365.25, "days", "years"),
    (365.25 / 7, "weeks", "years"),
    (12.0, "months", "years"),
    (30.44, "days", "months"),
    (7.0, "days", "weeks"),
    (2.54, "centimetres", "inches"),
    (2.2046, "pounds", "kilograms"),
    (18.02, "mg/dl", "mmol/l"),
    (88.4, "µmol/l", "mg/dl"),
    (10.0, "", ""),
    (100.0, "", ""),
    (1000.0, "", ""),
)
_NO_ROWS: IntArray = np.zeros(0, dtype=np.int64)
# So many features are named in a sentence.
_SHOWN = 5
_UNITS = (*_FACTORS, *((1 / factor, learnt, given) for factor, given, learnt in _FACTORS))


RANGES_UNKNOWN = (
    "The model's file was written by an older version and does not know the ranges of its training patients (ranges "
    "unknown): values outside them are not noticed. Fit the model again."
)


class OutsideTrainingWarning(UserWarning):
    """Patients have values that the model has not learnt from, or none at all.

    Examples
    --------
    >>> import warnings
    >>> from dcsurv.preprocessing import OutsideTrainingWarning
    >>> warnings.filterwarnings("error", category=OutsideTrainingWarning)  # to refuse such patients
    >>> warnings.resetwarnings()
    """


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
        step = max(1, -(-n // _SAMPLE))
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
                clear[k] = int((distance > _CLEAR * (self.high[k] - self.low[k])).sum())
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
        named = self.names[k] if value is None else f"{self.names[k]} {_number(value)}"
        return f"{named} ({_number(self.low[k])} to {_number(self.high[k])})"

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
        middle, learnt = float(np.median(values)) if len(values) else 0.0, float(self.middle[k])
        if middle * learnt <= 0:
            return None
        ratio = math.log(middle / learnt)
        factor, given, before = min(_UNITS, key=lambda one: abs(ratio - math.log(one[0])))
        inside = (values / factor >= self.low[k]) & (values / factor <= self.high[k])
        if abs(ratio - math.log(factor)) > _TOLERANCE or inside.mean() < _EXPLAINED:
            return None
        size = f"about {short(factor)} times larger" if factor > 1 else f"about {short(1 / factor)} times smaller"
        return f"it looks like {given}, the model learned {before} ({size})" if given else f"they are {size}"

    def _columns(self, X: Any) -> Iterator[FloatArray]:
        for place in self.places:
            column = X.iloc[:, place] if isinstance(X, pd.DataFrame) else X[:, place]
            if getattr(column.dtype, "kind", "O") in "fiu" and isinstance(column.dtype, np.dtype):
                yield np.asarray(column, dtype=np.float64)
            else:
                numbers = pd.to_numeric(pd.Series(column).astype(object), errors="coerce")
                yield numbers.to_numpy(np.float64, na_value=np.nan)


@dataclass(frozen=True, eq=False)
class Outside:
    """What of some patients lies outside the range of training, row by row.

    Parameters
    ----------
    ranges : Ranges
        Of training.
    counts : OutsideCounts
        How much it is.
    rows : array of int
        Rows of the values that lie outside, counted from 0.
    columns : array of int
        Their columns, among the names of the ranges.
    values : array of float
        The values.
    empty : array of int
        Rows without any value at all.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.preprocessing import Population
    >>> ranges = Population.of(np.linspace(20, 90, 100)[:, None]).ranges
    >>> ranges.look(np.array([[50.0], [np.nan]])).notes()
    {1: 'every feature is missing; not to be used'}
    """

    ranges: Ranges
    counts: OutsideCounts
    rows: IntArray
    columns: IntArray
    values: FloatArray
    empty: IntArray

    def notes(self) -> dict[int, str]:
        """Return what to say of each row that is not like training, by row.

        Returns
        -------
        dict of int to str
            Such as ``outside training range: age 560 (15 to 100); not to be used, predicted as age 100``.
        """
        said: dict[int, list[str]] = {}
        taken: dict[int, list[str]] = {}
        far = self.ranges.are_far(self.columns, self.values).tolist()
        cells = zip(self.rows.tolist(), self.columns.tolist(), self.values.tolist(), far, strict=True)
        for row, k, value, is_far in cells:
            said.setdefault(row, []).append(self.ranges.cell(k, value))
            if is_far:
                edge = min(max(value, float(self.ranges.low[k])), float(self.ranges.high[k]))
                taken.setdefault(row, []).append(f"{self.ranges.names[k]} {_number(edge)}")
        out = {row: f"outside training range: {', '.join(texts)}" for row, texts in said.items()}
        for row, texts in taken.items():
            out[row] += f"; not to be used, predicted as {', '.join(texts)}"
        return out | {int(row): "every feature is missing; not to be used" for row in self.empty}


@dataclass(frozen=True, eq=False)
class OutsideCounts:
    """How much of a table lies outside the range of training; those of its parts can be added.

    Parameters
    ----------
    ranges : Ranges
        Of training.
    patients : int
        How many were looked at.
    outside : int
        How many of them have a value outside.
    empty : int
        How many have no value at all.
    unusable : int
        How many have predictions that are not to be used: a value far outside, or none at all.
    known : array of int
        How many have a value, by column.
    beyond : array of int
        How many have one outside, by column.
    clear : array of int
        How many have one outside by more than a tenth of the range, by column.
    furthest : array of float
        The value that lies furthest outside, by column; NaN where none does.
    sample : array of float, shape (some, columns)
        Values of some of them.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.preprocessing import Population
    >>> ranges = Population.of(np.linspace(20, 90, 100)[:, None]).ranges
    >>> counts = ranges.look(np.array([[50.0], [97.0]])).counts + ranges.look(np.array([[99.0]])).counts
    >>> counts.describe()
    ['2 of 3 patients have values outside the training range, such as x0 99 (15 to 95).']
    """

    ranges: Ranges
    patients: int
    outside: int
    empty: int
    unusable: int
    known: IntArray
    beyond: IntArray
    clear: IntArray
    furthest: FloatArray
    sample: FloatArray

    def __add__(self, other: OutsideCounts) -> OutsideCounts:
        sample = np.concatenate([self.sample, other.sample])
        return OutsideCounts(
            self.ranges,
            self.patients + other.patients,
            self.outside + other.outside,
            self.empty + other.empty,
            self.unusable + other.unusable,
            self.known + other.known,
            self.beyond + other.beyond,
            self.clear + other.clear,
            np.where(self._distance() >= other._distance(), self.furthest, other.furthest),
            sample if len(sample) <= 4 * _SAMPLE else sample[::2],
        )

    @property
    def deserves_warning(self) -> bool:
        """Whether this is more than a few held-out patients show by chance."""
        return self.unusable > 0 or bool((self.clear > _MANY * self.known).any())

    def describe(self, *, values: bool = True) -> list[str]:
        """Return sentences with counts; none if all patients are like those of training.

        Parameters
        ----------
        values : bool, default True
            Whether the furthest values are named, which are those of single patients.

        Returns
        -------
        list of str
            What lies outside, which predictions are not to be used, and whether a column looks like another unit.
        """
        out = []
        if self.outside:
            columns = int((self.beyond > 0).sum())
            shown = np.argsort(-self.beyond, kind="stable")[: min(_SHOWN, columns)].tolist()
            furthest = [float(self.furthest[k]) if values else None for k in shown]
            examples = ", ".join(self.ranges.cell(k, value) for k, value in zip(shown, furthest, strict=True))
            more = f" and {plural(columns - len(shown), 'other feature')}" if columns > len(shown) else ""
            have = "has" if self.outside == 1 else "have"
            out.append(
                f"{self.outside:,} of {plural(self.patients, 'patient')} {have} values outside the training range, "
                f"such as {examples}{more}."
            )
        if self.empty:
            have = "has" if self.empty == 1 else "have"
            out.append(f"{self.empty:,} of {plural(self.patients, 'patient')} {have} no value of any feature.")
        if self.unusable:
            out.append(
                f"The predictions of {plural(self.unusable, 'patient')} are not to be used: a value further outside "
                "than the range is wide is taken for its edge, a missing one for the usual."
            )
        return [*out, *self.other_units()]

    def other_units(self) -> list[str]:
        """Say which columns look as if they were in another unit than in training.

        Returns
        -------
        list of str
            One sentence for each.
        """
        out = []
        for k in np.flatnonzero((self.known >= _ENOUGH) & (self.beyond > _SOME * self.known)).tolist():
            values = self.sample[:, k][~np.isnan(self.sample[:, k])]
            where = f"{self.beyond[k]:,} of {self.known[k]:,} values of {self.ranges.names[k]!r} lie outside"
            if found := self.ranges.unit_of(k, values):
                out.append(f"{where}: {found}. Check its unit.")
            elif self.beyond[k] > _MOST * self.known[k]:
                out.append(f"{where}. Is it another unit, or another measurement?")
        return out

    def _distance(self) -> FloatArray:
        found = np.maximum(self.ranges.low - self.furthest, self.furthest - self.ranges.high)
        return np.nan_to_num(found, nan=-1.0, posinf=np.finfo(np.float64).max)


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


def _number(value: float) -> str:
    """Write a value as it is, with up to six digits."""
    return f"{value:.6g}"


def _rows(X: Any, rows: IntArray) -> Any:
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]
