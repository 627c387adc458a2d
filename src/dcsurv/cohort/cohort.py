"""A user's patients: features in their types, outcomes, and what was done to get there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv._frames import as_pandas
from dcsurv.cohort.binary_files import tidy_objects
from dcsurv.cohort.columns import Column
from dcsurv.cohort.copies import find_copies
from dcsurv.cohort.errors import CohortError
from dcsurv.cohort.features import Odd, apply_columns
from dcsurv.cohort.formats import clean_names
from dcsurv.cohort.outcome import OutcomeColumns
from dcsurv.cohort.reading import Table, read_table
from dcsurv.cohort.understanding import FoundOutcome, MissingValues, Source, of_rows, understand
from dcsurv.messages import plural
from dcsurv.target import BoolArray, FloatArray, make_outcome


@dataclass(frozen=True, repr=False)
class Cohort:
    """Patients of one table; made by :meth:`from_frame` or :func:`read_cohort`.

    Parameters
    ----------
    features : DataFrame
        One row per patient with an outcome, under the labels of the table; numbers, text and the two words no and yes.
    time : array of float of shape (n,)
        Times as the table has them; :attr:`y` checks them.
    event : array of bool of shape (n,)
        Whether the event was observed then.
    columns : list of Column
        What each column was taken as, also those that were left out.
    outcome : OutcomeColumns
        Where the outcome came from.
    rows : array of int or None, default None
        Which row of the table each patient is, from 1, as in the predictions' ``row``; None if it is not known.
    incomplete : int, default 0
        Number of rows without a time or an event, which are not among the patients.
    name : str, default "table"
        What to call the table, such as the name of its file.
    digest : str or None, default None
        SHA-256 of the bytes of the file, if there is one.
    format : str, default ""
        How the file was read, in a few words.
    notes : list of str, default []
        What was guessed or renamed while reading and deserves a look.
    groups : array of int or None, default None
        Which patient, or family, each row belongs to; None if every row is a patient of its own.
    repeated : mapping of str to int, default {}
        Columns that look like patients' numbers, and how many rows repeat one.

    Examples
    --------
    >>> from dcsurv.cohort import Cohort
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric()
    >>> table = X.assign(days=y["time"], died=y["event"], clinic="A")
    >>> cohort = Cohort.from_frame(table, time="days", event="died", unit="days")
    >>> len(cohort), cohort.events, cohort.features.shape
    (1904, 1103, (1904, 9))
    >>> [(column.name, column.text) for column in cohort.columns if column.kind == "left out"]
    [('clinic', "is always 'A'")]
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
    groups: npt.NDArray[np.int64] | None = None
    repeated: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        time: str,
        event: str,
        start: str | None = None,
        event_values: Sequence[Any] = (),
        unit: str | None = None,
        date_format: str | None = None,
        categorical: Sequence[str] = (),
        numeric: Sequence[str] = (),
        drop: Sequence[str] = (),
        missing_values: MissingValues = (),
        group: str | None = None,
        name: str = "table",
    ) -> Cohort:
        """Take the patients out of a table: guess what its columns hold, and find the outcome.

        Parameters
        ----------
        frame : DataFrame
            One row per patient, outcome included; of pandas, polars or pyarrow. It is not changed.
        time : str
            Name of the column with the time under observation.
        event : str
            Name of the column that says what ended it.
        start : str or None, default None
            A column of dates: then ``time`` holds dates too, and the duration is what lies between.
        event_values : sequence, default ()
            Values of the event column that mean the event; all others then count as censored. Guessed if none are
            given.
        unit : str or None, default None
            What times are measured in: days, weeks, months or years. Between dates lie days by default.
        date_format : str or None, default None
            How dates are written, such as ``%d/%m/%Y``; guessed by default.
        categorical : sequence of str, default ()
            Columns to take as groups; what the others hold is guessed.
        numeric : sequence of str, default ()
            Columns to take as numbers.
        drop : sequence of str, default ()
            Columns to leave out.
        missing_values : sequence, or mapping of str to sequence, default ()
            Values of features that mean that nothing is known: ``[999, -99]``, or by column, ``{"stage": [9]}``.
        group : str or None, default None
            Column that says which rows belong to one patient, or family: they stay together wherever patients are
            divided. It is no feature.
        name : str, default "table"
            What to call the table.

        Returns
        -------
        Cohort
            The patients who have an outcome.

        Raises
        ------
        CohortError
            If a column is not there, or does not hold what it should; ``parameter`` and ``remedy`` say what to change.
        """
        frame = as_pandas(frame)
        if not isinstance(frame, pd.DataFrame):
            raise CohortError(
                f"a {type(frame).__name__} arrived, but a pandas DataFrame is expected.",
                parameter="frame",
                remedy="Tables of polars and pyarrow are taken, too; those of others often have a method to_pandas().",
            )
        names, repeated, notes = clean_names([str(column) for column in frame.columns])
        tidy = tidy_objects(frame.set_axis(list(names), axis=1).reset_index(drop=True))
        source = Source(tidy, name, repeated=repeated, notes=list(notes))
        cohort = _made(
            source, time=time, event=event, start=start, event_values=event_values, unit=unit, date_format=date_format,
            categorical=categorical, numeric=numeric, drop=drop, missing_values=missing_values, group=group,
        )  # fmt: skip
        assert cohort.rows is not None
        cohort.features.index = frame.index[cohort.rows - 1]
        return cohort

    def __repr__(self) -> str:
        # Without any patient's values, which notebooks would keep.
        time, event = self.outcome.time, self.outcome.event
        return (
            f"Cohort({self.name!r}: {plural(len(self), 'patient')}, {plural(self.events, 'event')}, "
            f"{plural(self.features.shape[1], 'feature')}; time {time!r} in {self.unit or 'no unit'}, event {event!r})"
        )

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

    @property
    def together(self) -> dict[str, npt.NDArray[np.int64]]:
        """What ``fit`` has to know of rows of one patient: its ``groups``, if there are any."""
        return {} if self.groups is None else {"groups": self.groups}

    def take(self, rows: npt.NDArray[np.int64]) -> Cohort:
        """Return some of the patients.

        Parameters
        ----------
        rows : array of int
            Their positions, from 0.

        Returns
        -------
        Cohort
            These patients, in this order.
        """
        return replace(
            self, features=self.features.iloc[rows], time=self.time[rows], event=self.event[rows],
            rows=None if self.rows is None else self.rows[rows],
            groups=None if self.groups is None else self.groups[rows],
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
    event_values: Sequence[Any] = (),
    unit: str | None = None,
    date_format: str | None = None,
    categorical: Sequence[str] = (),
    numeric: Sequence[str] = (),
    drop: Sequence[str] = (),
    missing_values: MissingValues = (),
    group: str | None = None,
    **options: Any,
) -> Cohort:
    """Read a table of patients, guess what its columns hold, and find the outcome.

    Parameters
    ----------
    path : str or Path
        The file: CSV, Parquet or Excel.
    time : str
        Name of the column with the time under observation.
    event : str
        Name of the column that says what ended it.
    start : str or None, default None
        A column of dates: then ``time`` holds dates too, and the duration is what lies between.
    event_values : sequence, default ()
        Values of the event column that mean the event; all others then count as censored. Guessed if none are given.
    unit : str or None, default None
        What times are measured in: days, weeks, months or years. Between dates lie days by default.
    date_format : str or None, default None
        How dates are written, such as ``%d/%m/%Y``; guessed by default.
    categorical : sequence of str, default ()
        Columns to take as groups; what the others hold is guessed.
    numeric : sequence of str, default ()
        Columns to take as numbers.
    drop : sequence of str, default ()
        Columns to leave out.
    missing_values : sequence, or mapping of str to sequence, default ()
        Values of features that mean that nothing is known, such as ``[999, -99]``, or by column, ``{"stage": [9]}``.
    group : str or None, default None
        Column that says which rows belong to one patient, or family: they stay together wherever patients are divided.
        It is no feature.
    **options : dict
        ``delimiter``, ``decimal``, ``encoding`` and ``sheet``, see :func:`read_table`.

    Returns
    -------
    Cohort
        The patients who have an outcome.

    See Also
    --------
    Cohort.from_frame : The same for a table in memory.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pandas as pd
    >>> from dcsurv.cohort import read_cohort
    >>> table = pd.DataFrame({"age": [61.5, 55.1, 70.2], "days": [120, 80, 300], "status": ["dead", "alive", "dead"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "patients.csv")
    ...     table.to_csv(path, index=False, sep=";", decimal=",")
    ...     cohort = read_cohort(path, time="days", event="status", unit="days")
    >>> cohort.format, cohort.features["age"].tolist(), cohort.event.tolist()
    ('CSV, semicolons, decimal comma, utf-8', [61.5, 55.1, 70.2], [True, False, True])
    """
    return make_cohort(
        read_table(path, **options), time=time, event=event, start=start, event_values=event_values, unit=unit,
        date_format=date_format, categorical=categorical, numeric=numeric, drop=drop, missing_values=missing_values,
        group=group,
    )  # fmt: skip


def make_cohort(table: Table, **columns: Any) -> Cohort:
    """Do what :func:`read_cohort` does after reading.

    Parameters
    ----------
    table : Table
        From :func:`read_table`.
    **columns : dict
        ``time``, ``event`` and all else that :func:`read_cohort` takes about columns.

    Returns
    -------
    Cohort
        The patients who have an outcome.
    """
    return _made(Source.of_file(table), **columns)


def _made(source: Source, **columns: Any) -> Cohort:
    told = understand(source, **columns)
    # The columns' notes say already what counts as missing.
    cohort, _ = _assembled(source, told.outcome, told.found, told.columns, None)
    return replace(_without_copies(cohort), groups=told.groups, repeated=told.repeated)


def _without_copies(cohort: Cohort) -> Cohort:
    """Leave out columns that say the same as an earlier one, unless somebody has asked for them."""
    chosen = {one.name for one in cohort.columns if one.chosen}
    copies = find_copies({str(name): cohort.features[name] for name in cohort.features.columns})
    copies = {name: other for name, other in copies.items() if name not in chosen}
    if not copies:
        return cohort
    columns = [
        replace(one, kind="left out", reason="copy", numbers={}, examples=(copies[one.name],), spellings={})
        if one.name in copies
        else one
        for one in cohort.columns
    ]
    return replace(cohort, features=cohort.features.drop(columns=list(copies)), columns=columns)


def cohort_from(
    table: Table, outcome: OutcomeColumns, columns: list[Column], levels: Mapping[str, Sequence[str]] | None
) -> tuple[Cohort, list[Odd]]:
    """Take the patients with an outcome out of a table whose columns are known."""
    source = Source.of_file(table)
    return _assembled(source, outcome, source.outcome_by(outcome), columns, levels)


def _assembled(
    source: Source,
    outcome: OutcomeColumns,
    found: FoundOutcome,
    columns: list[Column],
    levels: Mapping[str, Sequence[str]] | None,
) -> tuple[Cohort, list[Odd]]:
    durations, happened, complete = found
    features, odd = apply_columns(of_rows(source.frame, complete), columns, levels, from_text=source.from_text)
    cohort = Cohort(
        features, durations, happened, columns, outcome, rows=np.flatnonzero(complete) + 1,
        incomplete=int((~complete).sum()), name=source.name, digest=source.digest, format=source.format,
        notes=list(source.notes),
    )  # fmt: skip
    return cohort, odd
