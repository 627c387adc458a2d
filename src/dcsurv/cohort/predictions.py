"""Predictions for a table of any length, chunk by chunk, with a note on every row that is not like training."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

from dcsurv._compile import expect_much
from dcsurv.cohort.card import ModelCard, levels_of
from dcsurv.cohort.cut_rows import CutRows
from dcsurv.cohort.errors import CohortError, no_such_column
from dcsurv.cohort.features import Odd, apply_columns, require_columns
from dcsurv.cohort.formats import TableFormat
from dcsurv.cohort.reading import read_chunks
from dcsurv.curves import SurvivalCurves
from dcsurv.durations import Horizon
from dcsurv.messages import Message, listed, plural
from dcsurv.target import FloatArray

if TYPE_CHECKING:
    from dcsurv.models import SurvivalModel
    from dcsurv.models.base import Features
    from dcsurv.preprocessing import OutsideCounts

# Rows that are read at once, of which each is the work of a thread, and patients whose curves stay in its cache.
_CHUNK, _PIECE = 16_384, 1024
# From so many rows on, compiled code is worth waiting for.
_MANY = 2000
# Intervals of the trapezoid rule for the mean time survived, which recalibrated curves need: within 0.2 per mille
# of the library's own rmst, in a tenth of the time.
_INTERVALS = 256
DECIMALS = 6
# Rows that a refusal names.
_SHOWN_ROWS = 10

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


@dataclass
class Predictor:
    """A model that predicts tables: survival and risk at horizons, median, restricted mean, bands and reach.

    Parameters
    ----------
    model : SurvivalModel
        A fitted model.
    card : ModelCard
        What its columns hold.
    horizons : sequence of Horizon
        Times of interest, the earliest first.
    keep : sequence of str, default ()
        Columns of the table, such as an identifier, that are copied to the predictions.
    bands : float or None, default None
        Level of the bands around survival, or None for none. It is part of the columns' names: ``survival_5y_lower90``.
    interval : float or None, default None
        Confidence of the lower bound of the time, ``time_lower90``, or None for none.
    formulas : bool, default False
        Whether kept cells that a spreadsheet would run as a formula are written to CSV as they are; by default an
        apostrophe comes before them.

    Attributes
    ----------
    rows : int
        Patients predicted so far.
    escaped : int
        Cells that were written with an apostrophe.
    odd : dict
        Values that had to be taken for missing, by column and reason.
    beyond : dict of str to int
        Of these patients, for how many each horizon lies beyond what training patients like them were followed.
    outside : OutsideCounts or None
        How many of them have values outside the range of training; None before any, and where that is not known.
    cut : int
        How many rows of a text file end too early.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.cohort import ModelCard, Predictor, parse_horizons
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric()
    >>> model = dcsurv.CoxPH(time_unit="days").fit(X, y)
    >>> predictor = Predictor(model, ModelCard.of(model), parse_horizons("5y", "days"))
    >>> predictor.predict(X.head(2))[["row", "survival_5y", "risk_5y"]].round(2)
       row  survival_5y  risk_5y
    0    1         0.87     0.13
    1    2         0.63     0.37
    """

    model: SurvivalModel
    card: ModelCard
    horizons: Sequence[Horizon]
    keep: Sequence[str] = ()
    bands: float | None = None
    interval: float | None = None
    formulas: bool = False
    rows: int = field(default=0, init=False)
    escaped: int = field(default=0, init=False)
    odd: dict[tuple[str, str], Odd] = field(default_factory=dict, init=False)
    beyond: dict[str, int] = field(default_factory=dict, init=False)
    outside: OutsideCounts | None = field(default=None, init=False)
    cut: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._levels = levels_of(self.model)
        # What is said of a row with none, one, two ... of the last horizons beyond the follow-up.
        late = [horizon.label for horizon in self.horizons if horizon.time > self.model.nodes[-1]]
        everybody = f"beyond all follow-up, curves held constant: {' '.join(late)}" if late else ""
        labels = [horizon.label for horizon in self.horizons]
        early = [labels[: len(labels) - len(late)][len(labels) - count :] for count in range(len(labels) + 1)]
        such = [f"beyond the follow-up of such patients: {' '.join(some)}" if some else "" for some in early]
        self._late_notes = np.array(["; ".join(filter(None, (text, everybody))) for text in such], dtype=object)

    def names(self) -> list[str]:
        """Return the names of the predictions, in order: the row, numbers, and notes."""
        return ["row", *self.numbers(), "notes"]

    def numbers(self) -> list[str]:
        """Return the names of the predictions that are numbers, in order."""
        names = []
        for horizon in self.horizons:
            name = f"survival_{horizon.label}"
            names += [name] if self.bands is None else [name, *_ends(name, self.bands)]
        names += [f"risk_{horizon.label}" for horizon in self.horizons]
        names += [] if self.interval is None else [_ends("time", self.interval)[0]]
        return [*names, "median", f"mean_to_{self.horizons[-1].label}", "followed_to"]

    def chunks(self, form: TableFormat) -> Iterator[pd.DataFrame]:
        """Yield the predictions of a file, in its order.

        Parameters
        ----------
        form : TableFormat
            How the file is read, from :func:`inspect_table`.

        Yields
        ------
        DataFrame
            The predictions of the next patients.
        """
        text = form.kind == "csv"
        for frame, found in in_order(lambda one: (one[0], self._predicted(*one, text)), self._read(form), _cores()):
            yield self._table(frame, found)

    def refuse_unlike(self, form: TableFormat) -> None:
        """Refuse a file with rows that are not like those of training, before anything is predicted.

        Parameters
        ----------
        form : TableFormat
            How the file is read, from :func:`inspect_table`.

        Raises
        ------
        CohortError
            With the first of such rows, and what is wrong with their columns.
        """
        beyond = [horizon.label for horizon in self.horizons if horizon.time > self.model.nodes[-1]]
        if beyond:
            raise CohortError(
                f"{listed(beyond)} lies beyond the follow-up of the training patients.",
                parameter="strict",
                remedy=Message("Ask for earlier horizons, or leave {strict} out."),
            )
        rows, count = 0, 0
        shown: list[str] = []
        outside: OutsideCounts | None = None
        for frame, cut in self._read(form):
            found = self._looked_at(frame, cut, form.kind == "csv")
            count += len(found.notes)
            few = sorted(found.notes)[: _SHOWN_ROWS - len(shown)]
            shown += [f"row {rows + row + 1}: {found.notes[row]}" for row in few]
            if found.outside is not None:
                outside = found.outside if outside is None else outside + found.outside
            rows += len(frame)
        if count:
            more = f"; and {plural(count - len(shown), 'row')} more" if count > len(shown) else ""
            units = "" if outside is None else "".join(f" {text}" for text in outside.other_units())
            raise CohortError(
                f"{count:,} of {plural(rows, 'row')} of {form.path.name} "
                f"{'is' if count == 1 else 'are'} not like those of training. {'; '.join(shown)}{more}.{units}",
                parameter="strict",
                remedy=Message("Correct them, or leave {strict} out: they are predicted with a note then."),
            )

    def _read(self, form: TableFormat) -> Iterator[tuple[pd.DataFrame, dict[int, str]]]:
        """Yield the next patients of a file, with notes on rows that end too early."""
        for name in self.keep:
            if name not in form.columns:
                raise no_such_column(name, "keep", list(form.columns))
        require_columns(self.card.columns, form.columns)
        needed = [column.name for column in self.card.columns if column.kind != "left out"]
        form = replace(form, verbatim=tuple(name for name in self.keep if name not in needed))
        numbers = [one.name for one in self.card.columns if one.kind == "number" and one.name not in self.keep]
        ends = CutRows(form)
        first = 0
        wanted = [*needed, *self.keep, *form.columns[-1:]]
        for chunk in read_chunks(form, columns=wanted, rows=_CHUNK, numbers=numbers):
            yield chunk, ends.notes(chunk, first)
            first += len(chunk)

    def predict(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Predict the patients of a table.

        Parameters
        ----------
        frame : DataFrame
            One row per patient, with the columns of the model.

        Returns
        -------
        DataFrame
            One row of predictions per row.
        """
        return self._table(frame, self._predicted(frame, {}, from_text=False))

    def _looked_at(self, frame: pd.DataFrame, cut: dict[int, str], from_text: bool) -> _Chunk:
        """Return the features of some patients, and what is not like training; nothing is changed."""
        features, odd = apply_columns(frame, self.card.columns, self._levels, from_text=from_text)
        outside = self.model.look_outside(features)
        parts = [*(() if outside is None else (outside.notes(),)), *(one.notes() for one in odd), cut]
        notes: dict[int, str] = {}
        for part in parts:
            for row, text in part.items():
                notes[row] = f"{notes[row]}; {text}" if row in notes else text
        return _Chunk(features, notes, odd, None if outside is None else outside.counts, len(cut))

    def _predicted(self, frame: pd.DataFrame, cut: dict[int, str], from_text: bool) -> _Chunk:
        """Return what is predicted for some patients; nothing is changed."""
        if len(frame) >= _MANY:
            expect_much()
        found = self._looked_at(frame, cut, from_text)
        found.numbers = self.numbers_of(found.features)
        return found

    def numbers_of(self, features: pd.DataFrame) -> FloatArray:
        """Predict patients whose features are in their types already.

        Parameters
        ----------
        features : DataFrame
            What :func:`apply_columns` returns.

        Returns
        -------
        array of float
            A row for each of :meth:`numbers`, a column per patient, rounded as files have them.
        """
        prepared = self.model.prepare(features)
        out = np.empty((len(self.numbers()), len(features)))
        for start in range(0, len(features), _PIECE):
            self._write(prepared[start : start + _PIECE], out[:, start : start + _PIECE])
        return np.round(out, DECIMALS, out=out)

    def _write(self, prepared: Features, out: FloatArray) -> None:
        """Predict a few patients, one row of ``out`` for each prediction."""
        times = np.array([horizon.time for horizon in self.horizons])
        if self.bands is None:
            curves = self.model.curves_of(prepared)
            survival = curves.evaluate_rows(times)
            rows = list(survival)
        else:
            curves, band = self.model.curves_with_band(prepared, times, self.bands)
            survival = band.survival.T
            rows = [row for three in zip(survival, band.lower.T, band.upper.T, strict=True) for row in three]
        rows += list(1 - survival)
        if self.interval is not None:
            rows.append(self.model.interval_of(prepared, self.interval, both=False)[0])
        last = self.horizons[-1].time
        rows += [curves.median(), _restricted_mean(curves, last), self.model.followed_to_of(prepared)]
        for target, row in zip(out, rows, strict=True):
            target[:] = row

    def _table(self, frame: pd.DataFrame, found: _Chunk) -> pd.DataFrame:
        """Give rows their numbers and notes, and count what was odd and whose horizons lie beyond the follow-up."""
        assert found.numbers is not None
        for one in found.odd:
            key = (one.column, one.what)
            self.odd[key] = self.odd[key] + one if key in self.odd else replace(one, cells=())
        if found.outside is not None:
            self.outside = found.outside if self.outside is None else self.outside + found.outside
        self.cut += found.cut
        count = np.zeros(len(frame), dtype=np.int64)
        for horizon in self.horizons:
            late = found.numbers[-1] < horizon.time
            count += late
            self.beyond[horizon.label] = self.beyond.get(horizon.label, 0) + int(late.sum())
        notes = self._late_notes[count]
        for row, text in found.notes.items():
            notes[row] = f"{text}; {notes[row]}" if notes[row] else text
        out: dict[str, Any] = {"row": np.arange(self.rows + 1, self.rows + len(frame) + 1)}
        out |= {name: frame[name].to_numpy() for name in self.keep}
        self.rows += len(frame)
        out |= dict(zip(self.numbers(), found.numbers, strict=True))
        return pd.DataFrame(out | {"notes": notes}, copy=False)


@dataclass
class _Chunk:
    """Some patients: their features, what is not like training, and their predictions, one row each."""

    features: pd.DataFrame
    notes: dict[int, str]
    odd: list[Odd]
    outside: OutsideCounts | None
    cut: int
    numbers: FloatArray | None = None


def in_order(function: Callable[[_Item], _Found], items: Iterable[_Item], n_threads: int) -> Iterator[_Found]:
    """Yield what a function returns for each item, in their order, from several threads."""
    if n_threads == 1:
        yield from map(function, items)
        return
    from concurrent.futures import Future, ThreadPoolExecutor

    waiting: deque[Future[_Found]] = deque()
    pool = ThreadPoolExecutor(n_threads)
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > n_threads:  # no more are read than there is work for
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # whoever interrupts does not wait for what nobody will read


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _ends(name: str, level: float) -> tuple[str, str]:
    """Return the names of the columns with the two ends of a band or interval, which say of what level."""
    return f"{name}_lower{100 * level:g}", f"{name}_upper{100 * level:g}"


def _restricted_mean(curves: SurvivalCurves, end: float) -> FloatArray:
    """Return the mean time survived up to ``end``, the area under each curve."""
    if curves.transform is None:
        return curves.rmst(end)
    rows = curves.evaluate_rows(np.linspace(0, end, _INTERVALS + 1))
    total = np.zeros(rows.shape[1])
    for row in rows:  # in this order, however many patients there are
        total += row
    return (total - (rows[0] + rows[-1]) / 2) * (end / _INTERVALS)
