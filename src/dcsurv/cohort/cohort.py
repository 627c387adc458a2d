"""A user's patients: features in their types, outcomes, and what was done to get there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.cohort.columns import Column, Odd, apply_columns, guess_columns
from dcsurv.cohort.errors import CohortError, listed
from dcsurv.cohort.formats import clean_name
from dcsurv.cohort.outcome import OutcomeColumns, find_outcome
from dcsurv.cohort.reading import Table, read_table
from dcsurv.nonparametric import censoring_curve
from dcsurv.target import BoolArray, FloatArray, make_outcome

# A horizon is usable while this many patients are still under observation, and while at least this share of them
# would not have been censored yet: beyond, a few patients stand for all.
_AT_RISK, _UNCENSORED = 10, 0.05


@dataclass(frozen=True)
class Cohort:
    """Patients of one table.

    Attributes
    ----------
    features
        One row per patient with an outcome; numbers, text and the two words no and yes.
    time, event
        The outcome as the file has it; :attr:`y` checks it.
    columns
        What each column was taken as, also those that were left out.
    outcome
        Where the outcome came from.
    rows
        Which row of the file each patient is, from 1, as in the predictions' ``row``; None if it is not known.
    incomplete
        Number of rows without a time or an event, which are not among the patients.
    name, digest
        Name of the file, and the SHA-256 of its bytes.
    """

    features: pd.DataFrame
    time: FloatArray
    event: BoolArray
    columns: list[Column]
    outcome: OutcomeColumns
    rows: npt.NDArray[np.int64] | None = None
    incomplete: int = 0
    name: str = "table"
    digest: str | None = None
    format: str = ""
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.time)

    @cached_property
    def y(self) -> npt.NDArray[np.void]:
        """The checked outcome."""
        return make_outcome(self.time, self.event)

    @property
    def unit(self) -> str | None:
        return self.outcome.unit

    @property
    def events(self) -> int:
        return int(self.event.sum())

    def take(self, rows: npt.NDArray[np.int64]) -> Cohort:
        """Return some of the patients."""
        return replace(
            self, features=self.features.iloc[rows], time=self.time[rows], event=self.event[rows],
            rows=None if self.rows is None else self.rows[rows],
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return what is known about the table without any patient's values."""
        return {
            "file": self.name,
            "format": self.format,
            "sha256": self.digest,
            "patients": len(self),
            "events": self.events,
            "rows_without_outcome": self.incomplete,
            "last_time": float(self.time.max()),
        }


def read_cohort(
    path: str | Path,
    *,
    time: str,
    event: str,
    start: str | None = None,
    event_values: Sequence[str] = (),
    unit: str | None = None,
    date_format: str | None = None,
    categorical: Sequence[str] = (),
    numeric: Sequence[str] = (),
    drop: Sequence[str] = (),
    **options: Any,
) -> Cohort:
    """Read a table of patients, guess what its columns hold, and find the outcome.

    Parameters
    ----------
    time, event
        Names of the columns with the time under observation and with what ended it.
    start
        A column of dates: then ``time`` holds dates too, and the duration is what lies between.
    event_values
        Values of the event column that mean the event; guessed if none are given.
    unit
        What times are measured in: days, weeks, months or years.
    categorical, numeric, drop
        Columns whose kind is not to be guessed.
    **options
        See :func:`read_table`.
    """
    table = read_table(path, **options)
    return make_cohort(
        table, time=time, event=event, start=start, event_values=event_values, unit=unit, date_format=date_format,
        categorical=categorical, numeric=numeric, drop=drop, digest=file_digest(Path(path)),
    )  # fmt: skip


def make_cohort(
    table: Table,
    *,
    time: str,
    event: str,
    start: str | None = None,
    event_values: Sequence[str] = (),
    unit: str | None = None,
    date_format: str | None = None,
    categorical: Sequence[str] = (),
    numeric: Sequence[str] = (),
    drop: Sequence[str] = (),
    digest: str | None = None,
) -> Cohort:
    """Do what :func:`read_cohort` does after reading."""
    frame = table.frame
    named = {
        option: clean_name(name) for option, name in (("--time", time), ("--event", event), ("--start", start)) if name
    }
    for option, name in named.items():
        if name in table.format.repeated:
            raise CohortError(
                f"{option} names the column {name!r}, but the file has more than one of that name. Rename the other "
                "one in the file."
            )
    outcome = find_outcome(
        frame, time=named["--time"], event=named["--event"], start=named.get("--start"), event_values=event_values,
        unit=unit, date_format=date_format,
    )  # fmt: skip
    rest = frame.loc[outcome.read(frame)[2]].drop(columns=[*named.values()])
    columns = guess_columns(
        rest,
        categorical=[clean_name(name) for name in categorical],
        numeric=[clean_name(name) for name in numeric],
        drop=[clean_name(name) for name in drop if clean_name(name) not in named.values()],
    )
    return cohort_from(table, outcome, columns, None, digest)[0]  # the columns' notes say what counts as missing


def cohort_from(
    table: Table,
    outcome: OutcomeColumns,
    columns: list[Column],
    levels: Mapping[str, Sequence[str]] | None,
    digest: str | None,
) -> tuple[Cohort, list[Odd]]:
    """Take the patients with an outcome out of a table whose columns are known."""
    durations, happened, complete = outcome.read(table.frame)
    if not complete.any():
        raise CohortError(f"no row of {table.format.path.name} has both a time and an event. Check --time and --event.")
    features, odd = apply_columns(table.frame.loc[complete].reset_index(drop=True), columns, levels)
    cohort = Cohort(
        features, durations, happened, columns, outcome, rows=np.flatnonzero(complete) + 1,
        incomplete=int((~complete).sum()), name=table.format.path.name, digest=digest, format=table.format.describe(),
        notes=list(table.notes),
    )  # fmt: skip
    return cohort, odd


def require_features(cohort: Cohort) -> None:
    """Refuse a table of which no column is left to predict from."""
    if cohort.features.shape[1] == 0:
        left_out = [f"{column.name} ({column.text})" for column in cohort.columns]
        reason = f" All were left out: {listed(left_out)}." if left_out else ""
        raise CohortError(f"besides the outcome, {cohort.name} has no column to predict from.{reason}")


def last_usable_time(time: FloatArray, event: BoolArray) -> float:
    """Return the last time with at least 10 patients under observation, and not nearly everybody censored before.

    With fewer than 20 patients, the time until which half of them are under observation.
    """
    ordered = np.sort(time)
    at_risk = min(_AT_RISK, max(1, len(time) // 2))
    last = float(ordered[len(ordered) - at_risk])
    g = censoring_curve(make_outcome(np.maximum(time, 0), event))
    thin = g.times[g.values < _UNCENSORED]
    return min(last, float(thin[0])) if len(thin) else last


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, its fingerprint."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
