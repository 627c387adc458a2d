"""How a column says who had the event: which of its values mean it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from dcsurv.cohort.cells import NO, YES, level_texts
from dcsurv.cohort.errors import CohortError
from dcsurv.messages import Message, Parameter, listed, plural

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
    events : tuple of str
        Values that mean the event, as text, compared without regard to case; 1 and 1.0 are the same.
    censored : tuple of str
        Values that mean that it was not observed.
    how : {"0/1", "1/2", "words", "told"}
        Where the coding comes from: the usual numbers, those that R uses, words with a plain meaning, or the user.
    others_censored : bool, default False
        Whether every other value counts as censored, which is what naming the events means.

    Examples
    --------
    >>> import pandas as pd
    >>> from dcsurv.cohort import guess_coding
    >>> status = pd.Series([0, 1, 2, 1], name="status")
    >>> coding = guess_coding(status, event_values=[2])
    >>> print(coding.describe())
    2 = event, 0 or 1 = censored (as told by event_values=)
    >>> coding.read(status).tolist()
    [0.0, 0.0, 1.0, 0.0]
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
        """Read an event column.

        Parameters
        ----------
        column : Series
            One value per patient.

        Returns
        -------
        Series
            1 for events, 0 for censored patients, NaN where the value is missing.
        """
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
        """Return a stored coding.

        Parameters
        ----------
        saved : mapping of str
            From :meth:`to_dict`.

        Returns
        -------
        EventCoding
            The same.
        """
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
