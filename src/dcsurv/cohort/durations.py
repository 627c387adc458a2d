"""Times with a unit: ``5y``, ``6m``, ``30d``, or a plain number in the unit of the file."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from dcsurv.cohort.errors import CohortError

Unit: TypeAlias = Literal["days", "weeks", "months", "years"]

# Days in each unit: a year of the Julian calendar, a month of a twelfth of it.
DAYS_IN: dict[str, float] = {"days": 1.0, "weeks": 7.0, "months": 365.25 / 12, "years": 365.25}
_LETTERS = {
    **dict.fromkeys(("d", "day", "days"), "days"),
    **dict.fromkeys(("w", "week", "weeks"), "weeks"),
    **dict.fromkeys(("m", "mo", "month", "months"), "months"),
    **dict.fromkeys(("y", "yr", "year", "years"), "years"),
}
# Horizons that a reader would choose, for when nobody has.
_ROUND = ("1d", "2d", "3d", "1w", "2w", "1m", "2m", "3m", "6m", "9m", "1y", "18m", "2y", "3y", "5y", "7y", "10y",
          "15y", "20y", "30y")  # fmt: skip


@dataclass(frozen=True)
class Horizon:
    """A time of interest: ``time`` in the unit of the outcome, ``label`` as a reader would write it."""

    label: str
    time: float

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.label, "time": self.time}


def check_unit(unit: str | None) -> Unit | None:
    """Return the full name of a unit (``d``, ``month``, ... are understood), or None."""
    if unit is None:
        return None
    if unit.strip().lower() not in _LETTERS:
        raise CohortError(f"the unit is {unit!r}, but days, weeks, months or years is expected.")
    return _LETTERS[unit.strip().lower()]  # type: ignore[return-value]


def parse_duration(text: str, unit: str | None = None) -> Horizon:
    """Read a duration such as ``5y``, ``6m``, ``30d``, ``2w`` or ``365`` (in the unit of the outcome).

    Parameters
    ----------
    unit
        What the times of the outcome are measured in. Needed only where the text names a unit of its own.
        A year has 365.25 days, a month a twelfth of that.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-zA-Z]*)\s*", text)
    letters = match[2].lower() if match else ""
    if match is None or (letters and letters not in _LETTERS):
        raise CohortError(
            f"{text.strip()!r} is no duration. Write a number in the unit of the file, such as 365, or a number with "
            "its unit: 30d, 2w, 6m (months), 5y."
        )
    number = float(match[1])
    if not (number > 0 and math.isfinite(number)):
        raise CohortError(f"{text.strip()!r} is no duration after time 0.")
    if not letters:
        return Horizon(f"{number:g}", number)
    known = check_unit(unit)
    if known is None:
        raise CohortError(
            f"{text.strip()!r} names a unit, but it is not known what the times of the file are measured in. Say so "
            "with --unit days (or weeks, months, years), or write the horizon as a plain number in the file's unit."
        )
    return Horizon(f"{number:g}{_LETTERS[letters][0]}", number * DAYS_IN[_LETTERS[letters]] / DAYS_IN[known])


def parse_horizons(text: str, unit: str | None = None) -> list[Horizon]:
    """Read several durations, separated by commas, in ascending order."""
    found = [parse_duration(part, unit) for part in text.split(",") if part.strip()]
    if not found:
        raise CohortError("no horizon was given. Write, for example, 1y,5y.")
    by_time = {horizon.time: horizon for horizon in found}
    return [by_time[time] for time in sorted(by_time)]


def choose_horizons(y: Any, unit: str | None, last: float) -> list[Horizon]:
    """Choose up to three round horizons near the quartiles of the event times, none beyond ``last``."""
    from dcsurv.metrics import default_horizons

    quartiles = default_horizons(y)
    if check_unit(unit) is None:
        rounded = [Horizon(f"{number:g}", number) for number in (_two_digits(q) for q in quartiles)]
    else:
        possible = [parse_duration(text, unit) for text in _ROUND]
        rounded = [min(possible, key=lambda h, q=q: abs(math.log(h.time / q))) for q in quartiles]  # type: ignore[misc]
    kept = {horizon.time: horizon for horizon in rounded if 0 < horizon.time <= last}
    if not kept:
        number = _two_digits(float(np.median(quartiles)))
        return [Horizon(f"{number:g}", number)]
    return [kept[time] for time in sorted(kept)]


def describe_time(time: float, unit: str | None) -> str:
    """Return a time as text, ``1826 days (5.0 years)``."""
    known = check_unit(unit)
    if known is None:
        return f"{time:,.4g}" if time < 1000 else f"{time:,.0f}"
    number = f"{time:,.0f}" if time >= 100 else f"{time:.3g}"
    years = time * DAYS_IN[known] / DAYS_IN["years"]
    return f"{number} {known}" + (f" ({years:.1f} years)" if known != "years" and years >= 1 else "")


def horizon_times(horizons: Sequence[Horizon]) -> list[float]:
    """Return the times alone."""
    return [horizon.time for horizon in horizons]


def _two_digits(number: float) -> float:
    return float(f"{number:.2g}")
