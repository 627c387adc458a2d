"""What a table holds, before it is a cohort: the outcome found, the columns guessed, rows of one patient counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.cohort.cells import level_texts
from dcsurv.cohort.columns import Column, guess_columns
from dcsurv.cohort.errors import CohortError, holds_outcome, no_such_column
from dcsurv.cohort.formats import clean_name
from dcsurv.cohort.identifiers import is_patient_number
from dcsurv.cohort.outcome import OutcomeColumns, find_outcome
from dcsurv.cohort.reading import Table
from dcsurv.messages import Message, Parameter, listed, printable
from dcsurv.target import BoolArray, FloatArray

# Values that mean that nothing is known: of all features, or by column.
MissingValues: TypeAlias = Sequence[Any] | Mapping[str, Sequence[Any]]
# Times and events of the rows that have both, and which rows these are.
FoundOutcome: TypeAlias = tuple[FloatArray, BoolArray, BoolArray]


@dataclass(frozen=True)
class Source:
    """A table with unique names, wherever it came from."""

    frame: pd.DataFrame
    name: str
    digest: str | None = None
    format: str = ""
    repeated: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    from_text: bool = False

    @classmethod
    def of_file(cls, table: Table) -> Source:
        form = table.format
        return cls(
            table.frame, printable(form.path.name), table.digest, form.describe(), form.repeated, table.notes,
            from_text=form.kind == "csv",
        )  # fmt: skip

    def outcome_by(self, outcome: OutcomeColumns) -> FoundOutcome:
        """Read the outcome; at least one row has to have it."""
        found = outcome.read(self.frame, from_text=self.from_text)
        if not found[2].any():
            raise CohortError(
                f"no row of {self.name} has both a time and an event.",
                parameter="time",
                remedy=Message("Check {time} and {event}."),
            )
        return found


@dataclass(frozen=True)
class Understood:
    """What was found in a table; `repeated` counts, by column, the rows that repeat a patient's number."""

    outcome: OutcomeColumns
    found: FoundOutcome
    columns: list[Column]
    groups: npt.NDArray[np.int64] | None
    repeated: dict[str, int]


def understand(
    source: Source,
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
) -> Understood:
    """Find the outcome of a table and guess what its other columns hold; see :func:`dcsurv.cohort.read_cohort`."""
    asked = (("time", time), ("event", event), ("start", start), ("group", group))
    for parameter, name in asked[:2]:
        if name is None:
            raise CohortError(
                Message("{parameter} is None.", parameter=Parameter(parameter)),
                parameter=parameter,
                remedy=f"Name a column. The table has {listed([str(one) for one in source.frame.columns], 12)}.",
            )
    named = {parameter: clean_name(name) for parameter, name in asked if name is not None}
    _check_list(event_values, "event_values")
    for parameter, name in named.items():
        if name in source.repeated:
            raise CohortError(
                Message(
                    "{parameter} names the column {name!r}, but the table has more than one of that name.",
                    parameter=Parameter(parameter),
                    name=name,
                ),
                parameter=parameter,
                remedy="Rename the other one.",
            )
    group = named.pop("group", None)
    if group is not None:
        _check_group(source.frame, group, named)
    outcome = find_outcome(source.frame, **named, event_values=event_values, unit=unit, date_format=date_format)
    found = source.outcome_by(outcome)
    complete = of_rows(source.frame, found[2])
    told = {
        "categorical": _cleaned(categorical, "categorical"),
        "numeric": _cleaned(numeric, "numeric"),
        "drop": _cleaned(drop, "drop"),
    }
    _check_list(missing_values, "missing_values")
    by_column = [clean_name(name) for name in missing_values] if isinstance(missing_values, Mapping) else []
    for parameter, names in {**told, "missing_values": by_column}.items():
        for name in names:
            if name in named.values():
                raise holds_outcome(name, parameter, "Name other columns: it is no feature anyway.")
    # Columns by themselves: pandas would copy a table to leave out some.
    rest = {name: complete[name] for name in complete.columns if name not in named.values()}
    columns = guess_columns(
        pd.DataFrame(rest, index=complete.index, copy=False),
        **told,
        missing_values=_by_column(missing_values, list(rest)),
    )
    groups = None
    if group is not None:
        columns = [Column(one.name, "left out", one.missing, "group") if one.name == group else one for one in columns]
        groups = _group_of_each(complete[group])
    own = [one.name for one in columns if one.reason == "identifier" and is_patient_number(one.name)]
    repeated = {name: int(complete[name].dropna().duplicated().sum()) for name in own}
    return Understood(outcome, found, columns, groups, {} if group else repeated)


def of_rows(frame: pd.DataFrame, which: BoolArray) -> pd.DataFrame:
    """Return rows of a table, numbered anew; all of them without a copy."""
    return frame if which.all() else frame.loc[which].reset_index(drop=True)


def _check_group(frame: pd.DataFrame, group: str, named: Mapping[str, str]) -> None:
    if group not in frame.columns:
        raise no_such_column(group, "group", [str(column) for column in frame.columns])
    if group in named.values():
        raise holds_outcome(group, "group", "Name the column that says which rows belong to one patient.")


def _group_of_each(column: pd.Series) -> npt.NDArray[np.int64]:
    """Return a number for each row that rows of one patient share; a row without a label is a patient of its own."""
    codes = pd.factorize(level_texts(column))[0].astype(np.int64)
    alone = codes < 0
    codes[alone] = len(codes) + np.arange(alone.sum())
    return codes


def _by_column(given: MissingValues, columns: Sequence[str]) -> dict[str, list[str]]:
    """Return the values that mean missing, as text, for every column that has some."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(columns, _texts(given)) if len(given) else {}
    named = {clean_name(name): values for name, values in given.items()}
    for name in named:
        if name not in columns:
            raise no_such_column(name, "missing_values", columns)
    return {name: _texts([values] if _is_one(values) else values) for name, values in named.items()}


def _texts(values: Sequence[Any]) -> list[str]:
    return [str(one) for one in level_texts(pd.Series([*values], dtype=object))]


def _cleaned(names: Sequence[str], parameter: str) -> list[str]:
    _check_list(names, parameter)
    return [clean_name(name) for name in names]


def _is_one(value: Any) -> bool:
    return isinstance(value, str) or not np.iterable(value)


def _check_list(given: Any, parameter: str) -> None:
    """Refuse one value where several may be named: a text would be taken letter by letter."""
    if _is_one(given):
        raise CohortError(
            Message(
                "{parameter} is {given}.",
                parameter=Parameter(parameter),
                given=f"the text {given!r}" if isinstance(given, str) else repr(given),
            ),
            parameter=parameter,
            remedy=Message("Pass a list, such as {example}.", example=Parameter(parameter, [given])),
        )
