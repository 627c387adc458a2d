"""The columns of a table that hold the outcome: how events are coded, and how long each patient was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dcsurv.cohort.cells import to_numbers
from dcsurv.cohort.coding import EventCoding, guess_coding
from dcsurv.cohort.dates import holds_dates, read_dates
from dcsurv.cohort.errors import CohortError, no_such_column
from dcsurv.cohort.notation import remedy_for
from dcsurv.durations import DAYS_IN, Unit, check_unit
from dcsurv.messages import InputError, Message, listed, plural
from dcsurv.target import BoolArray, FloatArray


@dataclass(frozen=True)
class OutcomeColumns:
    """Where a table keeps the outcome.

    Parameters
    ----------
    time : str
        The column of durations, or of the last dates where ``start`` is given.
    event : str
        The column that says what ended the observation.
    coding : EventCoding
        Which values of it mean the event.
    start : str or None, default None
        The column of dates at which patients start.
    unit : {"days", "weeks", "months", "years"} or None, default None
        What the durations are measured in, where somebody said so.
    date_format : str or None, default None
        How dates are written, where somebody said so.

    Examples
    --------
    >>> import pandas as pd
    >>> from dcsurv.cohort import find_outcome
    >>> table = pd.DataFrame({"from": ["2020-01-31", "2020-02-01"], "to": ["2021-01-31", "2020-03-01"], "died": [1, 0]})
    >>> times, events, complete = find_outcome(table, time="to", start="from", event="died").read(table)
    >>> times.tolist(), events.tolist()
    ([366.0, 29.0], [True, False])
    """

    time: str
    event: str
    coding: EventCoding
    start: str | None = None
    unit: Unit | None = None
    date_format: str | None = None

    def read(self, frame: pd.DataFrame, *, from_text: bool = False) -> tuple[FloatArray, BoolArray, BoolArray]:
        """Take the outcome out of a table.

        Parameters
        ----------
        frame : DataFrame
            One row per patient, with these columns.
        from_text : bool, default False
            Whether the table comes from a text file, for which the decimal sign can be told.

        Returns
        -------
        time : array of float of shape (m,)
            Durations of the rows that have a time and an event.
        event : array of bool of shape (m,)
            Whether the event was observed then.
        complete : array of bool of shape (n,)
            Which rows these are.
        """
        duration = self._durations(frame, from_text)
        happened = self.coding.read(frame[_found(frame, self.event, "event")])
        complete = (duration.notna() & happened.notna()).to_numpy()
        return (
            duration.to_numpy(np.float64)[complete],
            happened.to_numpy(np.float64)[complete] == 1.0,
            complete,
        )

    def _durations(self, frame: pd.DataFrame, from_text: bool) -> pd.Series:
        column = frame[_found(frame, self.time, "time")]
        if column.notna().sum() == 0:
            raise CohortError(
                f"the time column {self.time!r} has no value.", parameter="time", remedy=Message("Check {time}.")
            )
        if self.start is not None:
            first = read_dates(frame[_found(frame, self.start, "start")], "start", self.date_format)
            last = read_dates(column, "time", self.date_format)
            return (last - first).dt.total_seconds() / 86400 / DAYS_IN[self.unit or "days"]
        if holds_dates(column):
            raise CohortError(
                f"the time column {self.time!r} holds dates, such as {str(column.dropna().iloc[0])!r}, but the time "
                "from a patient's start to the event or the last contact is needed.",
                parameter="time",
                remedy=Message(
                    "Name the column with the start date as well, with {start}, or add a column with the days in "
                    "between."
                ),
            )
        numbers = to_numbers(column)
        bad = column[numbers.isna() & column.notna()]
        if len(bad):
            raise CohortError(
                f"the time column {self.time!r} holds "
                f"{plural(len(bad), 'value that is not a number', 'values that are not numbers')}, such as "
                f"{listed([str(value) for value in bad.unique()], 3)}.",
                parameter="time",
                remedy=remedy_for([str(value) for value in bad.unique()], from_text=from_text),
            )
        return numbers

    def to_dict(self) -> dict[str, Any]:
        return {
            "time": self.time,
            "event": self.event,
            "start": self.start,
            "unit": self.unit,
            "date_format": self.date_format,
            "coding": self.coding.to_dict(),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> OutcomeColumns:
        """Return stored columns.

        Parameters
        ----------
        saved : mapping of str
            From :meth:`to_dict`.

        Returns
        -------
        OutcomeColumns
            The same.
        """
        return cls(**{**saved, "coding": EventCoding.from_dict(saved["coding"])})


def find_outcome(
    frame: pd.DataFrame,
    *,
    time: str,
    event: str,
    start: str | None = None,
    event_values: Sequence[Any] = (),
    unit: str | None = None,
    date_format: str | None = None,
) -> OutcomeColumns:
    """Look at the named columns and find out how events are coded.

    Parameters
    ----------
    frame : DataFrame
        One row per patient.
    time : str
        Name of the column with the time under observation.
    event : str
        Name of the column that says what ended it.
    start : str or None, default None
        A column of dates: then ``time`` holds dates too, and the duration is what lies between.
    event_values : sequence, default ()
        Values of the event column that mean the event; guessed if none are given.
    unit : str or None, default None
        What times are measured in: days, weeks, months or years. Between dates lie days by default.
    date_format : str or None, default None
        How dates are written, such as ``%d/%m/%Y``; guessed by default.

    Returns
    -------
    OutcomeColumns
        The columns and their coding; its ``read`` takes the outcome out of a table.
    """
    for name, parameter in ((time, "time"), (event, "event"), *([(start, "start")] if start else [])):
        _found(frame, name, parameter)
    if time == event:
        raise CohortError(
            Message("{time} and {event} both name {column!r}.", column=time),
            parameter="event",
            remedy="They are two columns: how long, and what happened.",
        )
    coding = guess_coding(frame[event], event_values)
    try:
        known = check_unit(unit) or ("days" if start else None)
    except InputError as error:
        raise CohortError.of(error) from None
    return OutcomeColumns(time, event, coding, start, known, date_format)


def _found(frame: pd.DataFrame, name: str, parameter: str) -> str:
    if name not in frame.columns:
        raise no_such_column(name, parameter, [str(column) for column in frame.columns])
    return name
