"""Sentences for users that know which parameters they speak of, so that each way of use says them in its own words.

A Python user reads ``time=``, a user of the command line its option: the same message, said by two speakers.
"""

from __future__ import annotations

import difflib
import math
import re
import string
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

# What is longer is no word, and no message, that anybody reads to the end.
_LONGEST_WORD, _LONGEST_TEXT = 200, 20_000
# Ends of lines, and what keeps words together; Python calls them unprintable, too.
_HARMLESS = "\n\xa0\u2060"


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function, possibly with a value that is proposed for it: ``time=``, ``drop=['age']``."""

    name: str
    value: Any = None

    def __str__(self) -> str:
        return f"{self.name}=" if self.value is None else f"{self.name}={self.value!r}"


@dataclass(frozen=True)
class ModelParameter:
    """A parameter of a model with a value that is proposed for it: ``n_nodes=15``."""

    name: str
    value: Any

    def __str__(self) -> str:
        return f"{self.name}={self.value!r}"


@dataclass(frozen=True)
class ModelChoice:
    """A kind of model that is proposed, by the name of its class: ``CoxPH``."""

    name: str

    def __str__(self) -> str:
        return self.name


Reference: TypeAlias = Parameter | ModelParameter | ModelChoice
Speaker: TypeAlias = Callable[[Reference], str]


class Message(str):
    """A sentence in the words of Python, which others can say in theirs.

    Parameters
    ----------
    template : str
        A text with fields as in :meth:`str.format`. A field without a value is the parameter of that name.
    **values : object
        Values of the fields; references and other messages among them are said by the speaker.

    Examples
    --------
    >>> from dcsurv.messages import Message
    >>> message = Message("Check {time} for {column!r}.", column="days")
    >>> print(message)
    Check time= for 'days'.
    >>> message.say(lambda reference: f"the option {reference.name!r}")
    "Check the option 'time' for 'days'."
    """

    template: str
    values: dict[str, Any]

    def __new__(cls, template: str, **values: Any) -> Message:
        fields = [name for _, name, _, _ in string.Formatter().parse(template) if name]
        found = {**{name: Parameter(name) for name in fields}, **values}
        message = super().__new__(cls, _filled(template, found, str))
        message.template, message.values = template, found
        return message

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        return (self.template,), self.values

    def say(self, speaker: Speaker) -> str:
        """Return the sentence with references in the speaker's words."""
        return _filled(self.template, self.values, speaker)


def _filled(template: str, values: dict[str, Any], speaker: Speaker) -> str:
    return template.format(**{name: _said(value, speaker) for name, value in values.items()})


def _said(value: Any, speaker: Speaker) -> Any:
    if isinstance(value, Parameter | ModelParameter | ModelChoice):
        return speaker(value)
    return say(value, speaker) if isinstance(value, str) else value


def say(text: str, speaker: Speaker) -> str:
    """Return a text in the speaker's words if it is a message, else as it is."""
    return text.say(speaker) if isinstance(text, Message) else text


class InputError(ValueError):
    """Something that was passed cannot be used: what was wrong, what arrived, what to do.

    Parameters
    ----------
    message : str
        What was wrong and what arrived.
    parameter : str or None, default None
        The parameter concerned, if it is one.
    remedy : str, default ""
        What to do.

    Attributes
    ----------
    message, parameter, remedy
        As passed. The text of the error is the message and the remedy.
    """

    def __init__(self, message: str, *, parameter: str | None = None, remedy: str = "") -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.message, self.parameter, self.remedy = message, parameter, remedy

    def say(self, speaker: Speaker) -> str:
        """Return the text of the error in the speaker's words.

        Parameters
        ----------
        speaker : callable
            Says a parameter in the words of those who will read it.

        Returns
        -------
        str
            The message and the remedy.
        """
        return f"{say(self.message, speaker)} {say(self.remedy, speaker)}".strip()

    @classmethod
    def of(cls, error: Exception, where: str = "") -> Self:
        """Return another error as one of this kind, with its parameter and its remedy.

        Parameters
        ----------
        error : Exception
            What was raised.
        where : str, default ""
            What it concerns, to be said before: the name of a file.

        Returns
        -------
        InputError
            Not raised yet.

        Examples
        --------
        >>> from dcsurv.messages import InputError
        >>> print(InputError.of(InputError("the age is missing.", remedy="Add it."), "a.csv"))
        a.csv: the age is missing. Add it.
        """
        known = error if isinstance(error, InputError) else None
        message = str(error) if known is None else known.message
        if where:
            message = Message("{where}: {message}", where=where, message=message)
        if known is None:
            return cls(message)
        return cls(message, parameter=known.parameter, remedy=known.remedy)


class MissingExtra(InputError, ImportError):
    """A package is not installed that only some jobs need.

    Parameters
    ----------
    what : str
        What needs it.
    extra : str
        The extra of dcsurv that brings it.

    Examples
    --------
    >>> from dcsurv.messages import MissingExtra
    >>> print(MissingExtra("A Parquet file", "parquet"))
    A Parquet file needs a package that a plain install leaves out. Install it: pip install "dcsurv[parquet]"
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs a package that a plain install leaves out.",
            remedy=f'Install it: pip install "dcsurv[{extra}]"',
        )
        self.what, self.extra = what, extra

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        return MissingExtra, (self.what, self.extra)


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """Turn a failing import of a package that an extra brings into words that name the extra."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(what, extra) from error


def cause_of(error: Exception) -> str:
    """Say why something failed: by the sentence of an error about a value, else by the kind of the error, too."""
    text = str(error)
    return text if text and isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


def printable(text: str) -> str:
    """Return a text that may hold anything as a reader can be shown it, on a terminal or in a figure.

    Control characters, those that turn the direction of writing and halves of characters, which file names may hold,
    become escapes as in Python; what is too long to be read is cut. Ends of lines stay.
    """
    if not text.isprintable():
        text = "".join(one if one.isprintable() or one in _HARMLESS else repr(one)[1:-1] for one in text)
    text = re.sub(rf"(\S{{{_LONGEST_WORD // 2}}})\S{{{_LONGEST_WORD},}}", r"\1…", text)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def shortened(text: str, letters: int = 160) -> str:
    """Return a value to quote, cut if it is long."""
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def listed(items: Sequence[object], limit: int = 6) -> str:
    """Return a short list for a sentence: 'a', 'b' and 12 more."""
    shown = ", ".join(repr(shortened(item)) if isinstance(item, str) else str(item) for item in items[:limit])
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit} more"


def did_you_mean(asked: str, names: Sequence[str]) -> str:
    """Return a question that names the nearest of some names, with a space after it; nothing if none is near."""
    folded = {name.casefold(): name for name in names}
    near = difflib.get_close_matches(asked.casefold(), list(folded), n=1, cutoff=0.6)
    return f"Did you mean {folded[near[0]]!r}? " if near else ""


def plural(count: int, word: str, words: str | None = None) -> str:
    """Return a number with its word: 1 patient, 2 patients, 3 categories."""
    return f"{count:,} {word if count == 1 else words or word + 's'}"


def about_left(seconds: float) -> str:
    """Say about how long the rest will take."""
    return f"about {seconds / 60:.0f} min left" if seconds > 90 else f"about {seconds:.0f} s left"


def short(value: float) -> str:
    """Write a measurement or a time with as many digits as it deserves: 1,826, 62.4, 0.032; a dash for no number."""
    if not math.isfinite(value):
        return "–"
    if value == round(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    size = abs(value)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 10 else f"{value:.3g}"


def fixed(value: float, digits: int = 3) -> str:
    """Write a measurement with so many decimals; one that is only nearly 0 does not look as if it were: <0.001."""
    least = 10.0**-digits
    if 0 < abs(value) < least / 2:
        return f"<{least:.{digits}f}" if value > 0 else f">-{least:.{digits}f}"
    return f"{value:.{digits}f}"
