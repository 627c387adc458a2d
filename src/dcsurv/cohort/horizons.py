"""Which times a cohort can say something about."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from dcsurv.durations import Horizon, describe_time, find_unit, number_label, parse_duration
from dcsurv.nonparametric import last_usable_time
from dcsurv.target import Outcome

# Horizons that a reader would choose, for when nobody has.
_ROUND = ("1d", "2d", "3d", "1w", "2w", "1m", "2m", "3m", "6m", "9m", "1y", "18m", "2y", "3y", "5y", "7y", "10y",
          "15y", "20y", "30y")  # fmt: skip

WhyUnusable: TypeAlias = Literal["no event yet", "few under observation", "follow-up over", "training over"]


@dataclass(frozen=True)
class UnusableHorizon:
    """A time that a cohort can say nothing about.

    Parameters
    ----------
    time : float
        The time, in the unit of the outcome.
    why : {"no event yet", "few under observation", "follow-up over", "training over"}
        What is missing at that time.
    limit : float
        The first event, or the time until which patients were followed.

    Examples
    --------
    >>> from dcsurv.cohort import usable_horizons
    >>> from dcsurv.datasets import load_metabric
    >>> _, y = load_metabric()
    >>> usable, (late,) = usable_horizons([1826.25, 20000], y)
    >>> usable, late.why, late.describe("days")
    ([1826.25], 'follow-up over', 'follow-up of these patients ends at 10,656 days (29.2 years)')
    """

    time: float
    why: WhyUnusable
    limit: float

    def describe(self, unit: str | None) -> str:
        """Return the reason in words.

        Parameters
        ----------
        unit : str or None
            What times are measured in.

        Returns
        -------
        str
            Half a sentence.
        """
        limit = describe_time(self.limit, unit)
        return {
            "no event yet": "no patient here has had the event by then",
            "few under observation": f"too few of these patients are under observation after {limit}",
            "follow-up over": f"follow-up of these patients ends at {limit}",
            "training over": f"follow-up of the training patients ends at {limit}",
        }[self.why]


def usable_horizons(
    times: Iterable[float], y: Outcome, y_train: Outcome | None = None
) -> tuple[list[float], list[UnusableHorizon]]:
    """Tell the times that patients can say something about from those that they cannot.

    Parameters
    ----------
    times : iterable of float
        Times of interest, in the unit of the outcome.
    y : structured array of shape (n,)
        Outcomes of the patients to evaluate with.
    y_train : structured array of shape (m,) or None, default None
        Outcomes of the patients that the model was fitted to; it knows nothing beyond their follow-up.

    Returns
    -------
    usable : list of float
        Times with an event before, and at least 10 patients and a twentieth of all not censored before, after.
    unusable : list of UnusableHorizon
        The others, with the reason.
    """
    time, event = np.ascontiguousarray(y["time"]), y["event"]
    first = float(time[event].min()) if event.any() else np.inf
    last, end = last_usable_time(time, event), float(time.max())
    trained = np.inf if y_train is None else float(y_train["time"].max())
    usable: list[float] = []
    unusable: list[UnusableHorizon] = []
    for t in times:
        if t < first:
            unusable.append(UnusableHorizon(t, "no event yet", first))
        elif t >= end:
            unusable.append(UnusableHorizon(t, "follow-up over", end))
        elif t > last:
            unusable.append(UnusableHorizon(t, "few under observation", last))
        elif t >= trained:
            unusable.append(UnusableHorizon(t, "training over", trained))
        else:
            usable.append(t)
    return usable, unusable


def choose_horizons(y: Any, unit: str | None, last: float) -> list[Horizon]:
    """Choose up to three round horizons near the quartiles of the event times, none beyond the last usable time.

    Parameters
    ----------
    y : outcome
        Outcomes of the patients.
    unit : str or None
        What its times are measured in; without it, times are rounded to two digits.
    last : float
        The last time to choose; see :func:`last_usable_time`.

    Returns
    -------
    list of Horizon
        One to three, the earliest first.

    Examples
    --------
    >>> from dcsurv.cohort import choose_horizons
    >>> from dcsurv.datasets import load_metabric
    >>> _, y = load_metabric()
    >>> [horizon.label for horizon in choose_horizons(y, "days", last=8000)]
    ['3y', '7y', '10y']
    """
    from dcsurv.metrics.inputs import event_quartiles

    quartiles = event_quartiles(y)
    if find_unit(unit) is None:
        rounded = [Horizon(number_label(number), number) for number in (_two_digits(q) for q in quartiles)]
    else:
        possible = [parse_duration(text, unit) for text in _ROUND]
        rounded = [min(possible, key=lambda h, q=q: abs(math.log(h.time / q))) for q in quartiles]  # type: ignore[misc]
    kept = {horizon.time: horizon for horizon in rounded if 0 < horizon.time <= last}
    if not kept:
        number = _two_digits(float(np.median(quartiles)))
        return [Horizon(number_label(number), number)]
    return [kept[time] for time in sorted(kept)]


def _two_digits(number: float) -> float:
    return float(f"{number:.2g}")
