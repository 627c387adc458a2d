"""The columns of a table that hold the outcome: how events are coded, and how long each patient was seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dcsurv.cohort.columns import NO, YES, level_texts, to_numbers
from dcsurv.cohort.dates import holds_dates, read_dates
from dcsurv.cohort.durations import DAYS_IN, check_unit
from dcsurv.cohort.errors import CohortError, listed, no_such_column
from dcsurv.target import BoolArray, FloatArray

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

    Attributes
    ----------
    events, censored
        Values as text, compared without regard to case; 1 and 1.0 are the same.
    how
        Where the coding comes from, for the user.
    others_censored
        Whether every other value counts as censored, which is what naming the events means.
    """

    events: tuple[str, ...]
    censored: tuple[str, ...]
    how: str
    others_censored: bool = False

    def describe(self) -> str:
        """Return the coding in words: ``2 = event, 1 = censored``."""
        rest = listed_values(self.censored) if self.censored else "nothing"
        return f"{listed_values(self.events) or 'nothing'} = event, {rest} = censored ({self.how})"

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
                f"the event column {str(column.name)!r} holds {listed(sorted(set(unknown)), 5)}, besides "
                f"{self.describe()}. Say which values are events with --event-value; all others then count as censored."
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
    def from_dict(cls, saved: dict[str, Any]) -> EventCoding:
        return cls(tuple(saved["events"]), tuple(saved["censored"]), saved["how"], bool(saved["others_censored"]))


def guess_coding(column: pd.Series, event_values: Sequence[str] = ()) -> EventCoding:
    """Find out how events are coded: 0/1, 1/2, yes/no, dead/alive and the like, or as told."""
    name = str(column.name)
    texts = level_texts(column.dropna())
    counts = texts.value_counts()
    if len(counts) == 0:
        raise CohortError(f"the event column {name!r} has no value. Check --event.")
    found = sorted((str(value) for value in counts.index), key=_in_order)
    if event_values:
        wanted = {_plain(value) for value in event_values}
        events = tuple(value for value in found if value.casefold() in wanted)
        missing = sorted(wanted - {value.casefold() for value in events})
        if missing:
            raise CohortError(
                f"--event-value names {listed(missing)}, which the column {name!r} does not hold. It holds "
                f"{_counted(counts)}."
            )
        censored = tuple(value for value in found if value not in events)
        return EventCoding(events, censored, "as told by --event-value", others_censored=True)
    if len(found) > 50:
        raise CohortError(
            f"the event column {name!r} holds {len(found)} different values, such as {listed(found, 3)}. It should say "
            "who had the event and who was censored, such as 1 and 0. Check --event."
        )
    if set(found) <= {"0", "1"}:
        return EventCoding(("1",), ("0",), "0/1")
    if set(found) == {"1", "2"}:
        return EventCoding(("2",), ("1",), "guessed from 1/2: 2 is the event, as in R; if not, --event-value 1")
    meanings = {value: _meaning(value) for value in found}
    if None not in meanings.values():
        events = tuple(value for value, happened in meanings.items() if happened)
        censored = tuple(value for value, happened in meanings.items() if not happened)
        return EventCoding(events, censored, "guessed from the words")
    raise CohortError(
        f"the event column {name!r} holds {_counted(counts)}, and it is not clear which of them is the event. Say so, "
        f"for example with --event-value {_quoted(str(counts.index[-1]))}; all other values then count as censored. If "
        "there are several kinds of event (competing risks), models treat the others as censored, and probabilities "
        "are those of a world without them."
    )


def _meaning(value: str) -> bool | None:
    """Tell whether a word says that the event happened; also ``1:DECEASED``, as some portals write."""
    word = re.sub(r"^[01]\s*[:=\-)]\s*", "", value.casefold()).strip(" .!()")
    return True if word in _HAPPENED else False if word in _DID_NOT else None


def _plain(value: str) -> str:
    return str(level_texts(pd.Series([value.strip()], dtype=object)).iloc[0]).casefold()


def _in_order(value: str) -> tuple[int, float, str]:
    try:
        return 0, float(value), value
    except ValueError:
        return 1, 0.0, value


def _counted(counts: pd.Series) -> str:
    return ", ".join(f"{value!r} ({count} rows)" for value, count in counts.iloc[:6].items()) + (
        f" and {len(counts) - 6} more" if len(counts) > 6 else ""
    )


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value else value


def listed_values(values: Sequence[str]) -> str:
    """Return values as they are written in the file."""
    return " or ".join(values[:6]) + (f" or {len(values) - 6} others" if len(values) > 6 else "")


@dataclass(frozen=True)
class OutcomeColumns:
    """Where a table keeps the outcome.

    Attributes
    ----------
    time
        The column of durations, or of the last dates where ``start`` is given.
    start
        The column of dates at which patients start, or None.
    unit
        What the durations are measured in, or None where nobody said.
    """

    time: str
    event: str
    coding: EventCoding
    start: str | None = None
    unit: str | None = None
    date_format: str | None = None

    def read(self, frame: pd.DataFrame) -> tuple[FloatArray, BoolArray, BoolArray]:
        """Return times, events and which rows have both; the first two hold those rows only."""
        duration = self._durations(frame)
        happened = self.coding.read(frame[_found(frame, self.event, "--event")])
        complete = (duration.notna() & happened.notna()).to_numpy()
        return (
            duration.to_numpy(np.float64)[complete],
            happened.to_numpy(np.float64)[complete] == 1.0,
            complete,
        )

    def _durations(self, frame: pd.DataFrame) -> pd.Series:
        column = frame[_found(frame, self.time, "--time")]
        if column.notna().sum() == 0:
            raise CohortError(f"the time column {self.time!r} has no value. Check --time.")
        if self.start is not None:
            first = read_dates(frame[_found(frame, self.start, "--start")], "--start", self.date_format)
            last = read_dates(column, "--time", self.date_format)
            return (last - first).dt.total_seconds() / 86400 / DAYS_IN[self.unit or "days"]
        if holds_dates(column):
            raise CohortError(
                f"the time column {self.time!r} holds dates, such as {str(column.dropna().iloc[0])!r}, but the time "
                "from a patient's start to the event or the last contact is needed. Name the column with the start "
                "date as well, with --start, or add a column with the days in between."
            )
        numbers = to_numbers(column)
        bad = column[numbers.isna() & column.notna()]
        if len(bad):
            raise CohortError(
                f"the time column {self.time!r} holds {len(bad)} values that are no numbers, such as "
                f"{listed([str(value) for value in bad.unique()], 3)}. Write plain numbers, all in the same unit; "
                "decimal commas are read with --decimal ,"
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
    def from_dict(cls, saved: dict[str, Any]) -> OutcomeColumns:
        return cls(**{**saved, "coding": EventCoding.from_dict(saved["coding"])})


def find_outcome(
    frame: pd.DataFrame,
    *,
    time: str,
    event: str,
    start: str | None = None,
    event_values: Sequence[str] = (),
    unit: str | None = None,
    date_format: str | None = None,
) -> OutcomeColumns:
    """Look at the named columns and find out how events are coded."""
    for name, option in ((time, "--time"), (event, "--event"), *([(start, "--start")] if start else [])):
        _found(frame, name, option)
    if time == event:
        raise CohortError(f"--time and --event both name {time!r}. They are two columns: how long, and what happened.")
    coding = guess_coding(frame[event], event_values)
    known = check_unit(unit) or ("days" if start else None)
    return OutcomeColumns(time, event, coding, start, known, date_format)


def _found(frame: pd.DataFrame, name: str, option: str) -> str:
    if name not in frame.columns:
        raise no_such_column(name, option, [str(column) for column in frame.columns])
    return name
