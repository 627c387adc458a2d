"""The columns of a table that hold the outcome: how events are coded, and how long each patient was seen."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from dcsurv.cohort.columns import NO, YES, level_texts, to_numbers
from dcsurv.cohort.dates import holds_dates, read_dates
from dcsurv.cohort.errors import CohortError, no_such_column
from dcsurv.durations import DAYS_IN, Unit, check_unit
from dcsurv.messages import Message, Parameter, listed, plural
from dcsurv.target import BoolArray, FloatArray

CodingSource: TypeAlias = Literal["0/1", "1/2", "words", "told"]

_HAPPENED = YES | {
    "x", "dead", "death", "died", "deceased", "event", "relapse", "relapsed", "recurrence", "recurred",
    "recurred/progressed", "progression", "progressed", "failure", "failed", "uncensored", "tot", "verstorben",
    "gestorben", "décédé", "mort", "muerto", "fallecido", "exitus",
}  # fmt: skip
_DID_NOT = NO | {
    "alive", "living", "lives", "survived", "censored", "censor", "cens", "no event", "none", "event-free",
    "event free", "disease free", "disease-free", "diseasefree", "lost to follow-up", "lost to follow up", "lost",
    "lebend", "lebt", "vivant", "vivo", "zensiert",
}  # fmt: skip


@dataclass(frozen=True)
class EventCoding:
    """Which values of the event column mean that the event was observed, and which that it was not.

    Parameters
    ----------
    events, censored : tuple of str
        Values as text, compared without regard to case; 1 and 1.0 are the same.
    how : {"0/1", "1/2", "words", "told"}
        Where the coding comes from: the usual numbers, those that R uses, words with a plain meaning, or the user.
    others_censored : bool, default False
        Whether every other value counts as censored, which is what naming the events means.
    """

    events: tuple[str, ...]
    censored: tuple[str, ...]
    how: CodingSource
    others_censored: bool = False

    def describe(self) -> Message:
        """Return the coding in words: ``2 = event, 1 = censored``."""
        return Message(
            "{events} = event, {censored} = censored ({how})",
            events=listed_values(self.events) or "nothing",
            censored=listed_values(self.censored) or "nothing",
            how=_HOW[self.how],
        )

    def read(self, column: pd.Series) -> pd.Series:
        """Return 1 for events, 0 for censored patients, NaN where the value is missing."""
        text = level_texts(column).str.casefold()
        event = text.isin([value.casefold() for value in self.events])
        censored = text.isin([value.casefold() for value in self.censored])
        if self.others_censored:
            censored = ~event & text.notna()
        unknown = text[~event & ~censored & text.notna()]
        if len(unknown):
            raise CohortError(
                Message(
                    "the event column {column!r} holds {unknown}, besides {coding}.",
                    column=str(column.name),
                    unknown=listed(sorted(set(unknown)), 5),
                    coding=self.describe(),
                ),
                parameter="event_values",
                remedy=Message("Say which values are events with {event_values}; all others then count as censored."),
            )
        return pd.Series(np.where(event, 1.0, 0.0), index=column.index).where(text.notna())

    def to_dict(self) -> dict[str, Any]:
        return {
            "events": list(self.events),
            "censored": list(self.censored),
            "how": self.how,
            "others_censored": self.others_censored,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> EventCoding:
        events, censored, told = tuple(saved["events"]), tuple(saved["censored"]), bool(saved["others_censored"])
        how = saved["how"]
        if how not in get_args(CodingSource):  # version 0.1.0 wrote words here
            numbers: dict[frozenset[str], CodingSource] = {frozenset("01"): "0/1", frozenset("12"): "1/2"}
            how = "told" if told else numbers.get(frozenset((*events, *censored)), "words")
        return cls(events, censored, how, told)


_HOW: dict[CodingSource, str] = {
    "0/1": "0/1",
    "1/2": Message(
        "guessed from 1/2: 2 is the event, as in R; if not, {event_values}",
        event_values=Parameter("event_values", ["1"]),
    ),
    "words": "guessed from the words",
    "told": Message("as told by {event_values}"),
}


def guess_coding(column: pd.Series, event_values: Sequence[Any] = ()) -> EventCoding:
    """Find out how events are coded: 0/1, 1/2, yes/no, dead/alive and the like, or as told.

    Parameters
    ----------
    column : Series
        The event column.
    event_values : sequence, default ()
        Values that mean the event; all others then count as censored. Guessed if there are none.

    Returns
    -------
    EventCoding
        The values of events and of censored patients.

    Raises
    ------
    CohortError
        If the coding is not clear, or a value that was told is not there.

    Examples
    --------
    >>> import pandas as pd
    >>> from dcsurv.cohort import guess_coding
    >>> print(guess_coding(pd.Series(["Alive", "dead", "dead"], name="status")).describe())
    dead = event, Alive = censored (guessed from the words)
    """
    name = str(column.name)
    texts = level_texts(column.dropna())
    counts = texts.value_counts()
    if len(counts) == 0:
        raise CohortError(
            f"the event column {name!r} has no value.", parameter="event", remedy=Message("Check {event}.")
        )
    found = sorted((str(value) for value in counts.index), key=_in_order)
    if len(event_values):
        return _told_coding(name, counts, found, event_values)
    if len(found) > 50:
        raise CohortError(
            f"the event column {name!r} holds {len(found)} different values, such as {listed(found, 3)}. It should say "
            "who had the event and who was censored, such as 1 and 0.",
            parameter="event",
            remedy=Message("Check {event}."),
        )
    if set(found) <= {"0", "1"}:
        return EventCoding(("1",), ("0",), "0/1")
    if set(found) == {"1", "2"}:
        return EventCoding(("2",), ("1",), "1/2")
    meanings = {value: _meaning(value) for value in found}
    if None not in meanings.values():
        events = tuple(value for value, happened in meanings.items() if happened)
        censored = tuple(value for value, happened in meanings.items() if not happened)
        return EventCoding(events, censored, "words")
    raise CohortError(
        f"the event column {name!r} holds {_counted(counts)}, and it is not clear which of them is the event.",
        parameter="event_values",
        remedy=Message(
            "Say so, for example with {event_values}; all other values then count as censored. If there are several "
            "kinds of event (competing risks), models treat the others as censored, and probabilities are those of a "
            "world without them.",
            event_values=Parameter("event_values", [str(counts.index[-1])]),
        ),
    )


def _told_coding(name: str, counts: pd.Series, found: list[str], event_values: Sequence[Any]) -> EventCoding:
    wanted = {_folded(value) for value in event_values}
    events = tuple(value for value in found if value.casefold() in wanted)
    missing = sorted(wanted - {value.casefold() for value in events})
    if missing:
        raise CohortError(
            Message(
                "{event_values} names {missing}, which the column {name!r} does not hold.",
                missing=listed(missing),
                name=name,
            ),
            parameter="event_values",
            remedy=f"It holds {_counted(counts)}.",
        )
    censored = tuple(value for value in found if value not in events)
    return EventCoding(events, censored, "told", others_censored=True)


def _meaning(value: str) -> bool | None:
    """Tell whether a word says that the event happened; also ``1:DECEASED``, as some portals write."""
    word = re.sub(r"^[01]\s*[:=\-)]\s*", "", value.casefold()).strip(" .!()")
    return True if word in _HAPPENED else False if word in _DID_NOT else None


def _folded(value: Any) -> str:
    one = pd.Series([value.strip() if isinstance(value, str) else value], dtype=object)
    return str(level_texts(one).iloc[0]).casefold()


def _in_order(value: str) -> tuple[int, float, str]:
    try:
        return 0, float(value), value
    except ValueError:
        return 1, 0.0, value


def _counted(counts: pd.Series) -> str:
    return ", ".join(f"{value!r} ({plural(count, 'row')})" for value, count in counts.iloc[:6].items()) + (
        f" and {len(counts) - 6} more" if len(counts) > 6 else ""
    )


def listed_values(values: Sequence[str]) -> str:
    """Return values as they are written in the file."""
    return " or ".join(values[:6]) + (f" or {len(values) - 6} others" if len(values) > 6 else "")


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
    unit : str or None, default None
        What the durations are measured in, where somebody said so.
    date_format : str or None, default None
        How dates are written, where somebody said so.
    """

    time: str
    event: str
    coding: EventCoding
    start: str | None = None
    unit: Unit | None = None
    date_format: str | None = None

    def read(self, frame: pd.DataFrame) -> tuple[FloatArray, BoolArray, BoolArray]:
        """Return times, events and which rows have both; the first two hold those rows only."""
        duration = self._durations(frame)
        happened = self.coding.read(frame[_found(frame, self.event, "event")])
        complete = (duration.notna() & happened.notna()).to_numpy()
        return (
            duration.to_numpy(np.float64)[complete],
            happened.to_numpy(np.float64)[complete] == 1.0,
            complete,
        )

    def _durations(self, frame: pd.DataFrame) -> pd.Series:
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
                remedy=Message(
                    "Write plain numbers, all in the same unit; decimal commas are read with {decimal}",
                    decimal=Parameter("decimal", ","),
                ),
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
    time, event : str
        Names of the columns with the time under observation and with what ended it.
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
    known = check_unit(unit) or ("days" if start else None)
    return OutcomeColumns(time, event, coding, start, known, date_format)


def _found(frame: pd.DataFrame, name: str, parameter: str) -> str:
    if name not in frame.columns:
        raise no_such_column(name, parameter, [str(column) for column in frame.columns])
    return name
