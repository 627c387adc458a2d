"""What of new patients lies outside the range that a model has learnt from: notes on rows, and counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dcsurv.messages import plural
from dcsurv.target import FloatArray, IntArray

if TYPE_CHECKING:
    from dcsurv.preprocessing.ranges import Ranges

# A few held-out patients lie a little outside by chance. Python warns if this share of a column lies outside by more
# than this share of the range.
_MANY, CLEAR = 0.05, 0.1
# Rows by which units are compared, and how many a column needs for it.
SAMPLE, _ENOUGH = 512, 10
# How many of a column's values lie outside if its unit is another: most of them, or some if a factor explains them.
_MOST, _SOME = 0.9, 0.2
# So many features are named in a sentence.
_SHOWN = 5


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
                taken.setdefault(row, []).append(f"{self.ranges.names[k]} {as_it_is(edge)}")
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
            sample if len(sample) <= 4 * SAMPLE else sample[::2],
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


def as_it_is(value: float) -> str:
    """Write a value as it is, with up to six digits."""
    return f"{value:.6g}"
