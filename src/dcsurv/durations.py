"""Times with a unit, the one vocabulary of them: ``5y``, ``6m``, ``30d``, or a plain number in the outcome's unit."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from dcsurv.messages import InputError, Message, Parameter, short

Unit: TypeAlias = Literal["days", "weeks", "months", "years"]

# Days in each unit: a year of the Julian calendar, a month of a twelfth of it.
DAYS_IN: dict[Unit, float] = {"days": 1.0, "weeks": 7.0, "months": 365.25 / 12, "years": 365.25}
_UNITS: dict[str, Unit] = {
    "d": "days", "day": "days", "days": "days",
    "w": "weeks", "week": "weeks", "weeks": "weeks",
    "m": "months", "mo": "months", "month": "months", "months": "months",
    "y": "years", "yr": "years", "year": "years", "years": "years",
}  # fmt: skip


class UnknownUnit(InputError):
    """A duration names a unit, and it is not known what the times of the outcome are measured in."""


# Of a horizon in a file, in any unit: areas up to later ones would overflow.
_LONGEST = 1e18


@dataclass(frozen=True)
class Horizon:
    """A time of interest.

    Parameters
    ----------
    label : str
        The time as a reader would write it, such as ``5y``.
    time : float
        The time in the unit of the outcome.

    Examples
    --------
    >>> from dcsurv.durations import parse_duration
    >>> parse_duration("5y", "days")
    Horizon(label='5y', time=1826.25)
    """

    label: str
    time: Annotated[float, msgspec.Meta(gt=0, le=_LONGEST)]

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.label, "time": self.time}


def find_unit(name: str | None) -> Unit | None:
    """Return the unit that a name such as ``d``, ``Month`` or ``years`` means, or None."""
    return None if name is None else _UNITS.get(name.strip().lower())


def check_unit(unit: str | None) -> Unit | None:
    """Return the full name of a unit, None for None, and refuse what is no unit."""
    found = find_unit(unit)
    if unit is not None and found is None:
        raise InputError(
            Message("{unit} is {given!r}, but days, weeks, months or years is expected.", given=unit),
            parameter="unit",
            remedy=Message("Convert the times into one of these, or leave {unit} out."),
        )
    return found


def number_label(number: float) -> str:
    """Return a number of a label: up to six digits, and large and tiny ones in full, so that a label can be read."""
    short_text = f"{number:g}"
    return format(Decimal(repr(number)).normalize(), "f") if "e" in short_text else short_text


def parse_duration(text: str, unit: str | None = None) -> Horizon:
    """Read a duration such as ``5y``, ``6m``, ``30d``, ``2w`` or ``365`` (in the unit of the outcome).

    Parameters
    ----------
    text : str
        A number, with or without a unit. A year has 365.25 days, a month a twelfth of that.
    unit : str or None, default None
        What the times of the outcome are measured in. Needed only where the text names a unit of its own.

    Returns
    -------
    Horizon
        The time in the unit of the outcome, and how to write it.

    Raises
    ------
    InputError
        If the text is no duration, or names a unit and that of the outcome is not known.

    Examples
    --------
    >>> from dcsurv.cohort import parse_duration
    >>> parse_duration("6m", unit="years")
    Horizon(label='6m', time=0.5)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-zA-Z]*)\s*", text)
    own = find_unit(match[2]) if match else None
    if match is None or (match[2] and own is None):
        raise InputError(
            f"{text.strip()!r} is not a duration.",
            parameter="horizons",
            remedy="Write a number in the unit of the outcome, such as 365, or a number with its unit: 30d, 2w, 6m "
            "(months), 5y.",
        )
    number = float(match[1])
    if not (number > 0 and math.isfinite(number)):
        raise InputError(
            f"{text.strip()!r} is not a duration after time 0.",
            parameter="horizons",
            remedy="Write a later time, such as 365, or one with its unit: 30d, 5y.",
        )
    if own is None:
        return Horizon(number_label(number), number)
    known = check_unit(unit)
    if known is None:
        raise UnknownUnit(
            f"{text.strip()!r} names a unit, but it is not known what the times of the outcome are measured in.",
            parameter="unit",
            remedy=Message(
                "Say so with {unit} (or weeks, months, years), or write the horizon as a plain number in the unit of "
                "the outcome.",
                unit=Parameter("unit", "days"),
            ),
        )
    return Horizon(f"{number_label(number)}{own[0]}", number * DAYS_IN[own] / DAYS_IN[known])


def parse_horizons(text: str, unit: str | None = None) -> list[Horizon]:
    """Read several durations, separated by commas, in ascending order.

    Parameters
    ----------
    text : str
        Such as ``1y,5y``.
    unit : str or None, default None
        What the times of the outcome are measured in; see :func:`parse_duration`.

    Returns
    -------
    list of Horizon
        Each time once, the earliest first.

    Examples
    --------
    >>> from dcsurv.cohort import parse_horizons
    >>> [horizon.label for horizon in parse_horizons("5y, 18m, 5y", unit="days")]
    ['18m', '5y']
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    found = [parse_duration(part, unit) for part in parts]
    bare = [part for part in parts if not part[-1].isalpha()]
    if 0 < len(bare) < len(parts):  # 1,5y would be one day and five years
        named = next(part for part in parts if part not in bare)
        raise InputError(
            f"{bare[0]!r} has no unit, but {named!r} has one.",
            parameter="horizons",
            remedy="Give every horizon its unit, such as 1y,5y, or none; the decimal sign is a point: 1.5y.",
        )
    if not found:
        raise InputError("no horizon was given.", parameter="horizons", remedy="Write, for example, 1y,5y.")
    by_time = {horizon.time: horizon for horizon in found}
    return [by_time[time] for time in sorted(by_time)]


def describe_time(time: float, unit: str | None, *, brief: bool = False) -> str:
    """Return a time as a reader would write it.

    Parameters
    ----------
    time : float
        A time in the unit of the outcome.
    unit : str or None
        That unit. One that is none of days, weeks, months and years is written as it is.
    brief : bool, default False
        Leave out the years or months beside other units.

    Returns
    -------
    str
        Whole years as years, whole months as months, other times with the years or months beside.

    Examples
    --------
    >>> from dcsurv.cohort import describe_time
    >>> describe_time(1826.25, "days"), describe_time(2000, "days"), describe_time(14.5, None)
    ('5 years', '2,000 days (5.5 years)', '14.5')
    >>> describe_time(365.25 / 2, "days")
    '6 months'
    """
    known = find_unit(unit)
    word = known[:-1] if known and time == 1 else known or unit or ""
    text = f"{short(time)} {word}".rstrip()
    if known is None or known == "years":
        return text
    years = time * DAYS_IN[known] / DAYS_IN["years"]
    if round(years) >= 1 and abs(years - round(years)) < 1e-3 * years:
        return f"{round(years):,} year{'' if round(years) == 1 else 's'}"
    months = 12 * years
    if known != "months" and round(months) >= 1 and abs(months - round(months)) < 1e-6 * months:  # as 6m is
        return f"{round(months):,} month{'' if round(months) == 1 else 's'}"
    if brief:
        return text
    if years >= 1.5:
        return f"{text} ({years:,.1f} years)"
    return f"{text} ({12 * years:.1f} months)" if known != "months" and 12 * years >= 2 else text


def time_label(unit: str | None) -> str:
    """Return what to write at an axis of times: ``time (days)``."""
    return f"time ({unit})" if unit else "time"
