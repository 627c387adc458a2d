"""The features of a table whose columns are known: in their types, the same for every later table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dcsurv.cohort.cells import NO, YES, examples, level_texts, to_numbers
from dcsurv.cohort.columns import FEW_VALUES, NUMBER_SHARE, Column
from dcsurv.cohort.errors import CohortError
from dcsurv.cohort.notation import remedy_for
from dcsurv.messages import Message, did_you_mean, listed, plural

_SEVERAL = {"not a number": "not numbers"}


@dataclass(frozen=True)
class Odd:
    """Values of a column that are not what the column holds, and therefore count as missing."""

    column: str
    what: str
    count: int
    examples: tuple[str, ...]

    def describe(self) -> str:
        """Return a sentence for the user."""
        one = self.count == 1
        return (
            f"{plural(self.count, 'value')} of {self.column!r} {'is' if one else 'are'} "
            f"{self.what if one else _SEVERAL.get(self.what, self.what)}, such as {listed(self.examples, 5)}, and "
            f"{'counts' if one else 'count'} as missing."
        )

    def __add__(self, other: Odd) -> Odd:
        examples = tuple(dict.fromkeys(self.examples + other.examples))
        return Odd(self.column, self.what, self.count + other.count, examples)


def apply_columns(
    frame: pd.DataFrame, columns: Iterable[Column], levels: Mapping[str, Sequence[str]] | None = None
) -> tuple[pd.DataFrame, list[Odd]]:
    """Return the features in their types, and what had to be taken for missing.

    Parameters
    ----------
    frame : DataFrame
        One row per patient.
    columns : iterable of Column
        What the columns hold, of this table or of an earlier one.
    levels : mapping of str to sequence of str, or None, default None
        Known levels of categories, by column; others count as missing. By default all are known.

    Returns
    -------
    features : DataFrame
        The columns that are not left out, in their order.
    odd : list of Odd
        Values that are not what their column holds, and count as missing.

    Raises
    ------
    CohortError
        If a column is not there, or holds something else than before.
    """
    used = [column for column in columns if column.kind != "left out"]
    require_columns(used, [str(name) for name in frame.columns])
    parts: dict[str, pd.Series] = {}
    odd: list[Odd] = []
    for column in used:
        values, found = _apply(frame[column.name], column, (levels or {}).get(column.name))
        parts[column.name] = values
        if found:
            odd.append(found)
    return pd.DataFrame(parts, index=frame.index, copy=False), odd


def require_columns(columns: Sequence[Column], present: Sequence[str]) -> None:
    """Refuse a table that lacks columns of the model."""
    known = set(present)
    absent = [column.name for column in columns if column.kind != "left out" and column.name not in known]
    if absent:
        used = {column.name for column in columns}
        others = [name for name in present if name not in used]
        raise CohortError(
            f"the model needs {listed(absent, 12)}, which the table does not have. It has {listed(present, 12)}.",
            remedy=f"{did_you_mean(absent[0], others)}Columns are found by name, in any order: rename those that are "
            "there, or add them.",
        )


def _apply(values: pd.Series, column: Column, levels: Sequence[str] | None) -> tuple[pd.Series, Odd | None]:
    if column.kind == "number" and values.dtype == np.float64 and not np.isinf(values.to_numpy()).any():
        return values, None
    known = values.dropna()
    if column.kind == "category":
        out = level_texts(values)
        bad = pd.Series(False, index=known.index) if levels is None else ~out[known.index].isin(set(levels))
        out = out.where(~bad.reindex(values.index, fill_value=False))
        what = "unknown to the model"
    elif column.kind == "number":
        out = to_numbers(values)
        bad = out[known.index].isna()
        what = "not a number"
    else:
        folded = level_texts(known).str.casefold()
        positive, negative = folded.isin(YES | {"1"}), folded.isin(NO | {"0"})
        bad = ~(positive | negative)
        words = pd.Series(np.where(positive, "yes", "no"), index=known.index).where(~bad)
        out = words.reindex(values.index).astype(pd.CategoricalDtype(["no", "yes"]))
        what = "neither yes nor no"
    if not bad.any():
        return out, None
    odd = Odd(column.name, what, int(bad.sum()), tuple(examples(known[bad])[:5]))
    if bad.mean() > 1 - NUMBER_SHARE and len(known) >= FEW_VALUES:
        kind = {"number": "numbers", "yes/no": "yes and no"}.get(column.kind, f"one of {listed(levels or (), 8)}")
        more = remedy_for(odd.examples) if column.kind == "number" else ""
        raise CohortError(
            f"{odd.count} of {len(known)} values of {column.name!r} are {_SEVERAL.get(what, what)}, such as "
            f"{listed(odd.examples, 3)}, where the model expects {kind}.",
            parameter="decimal",
            remedy=Message("Check that it is the right column. {more}", more=more),
        )
    return out, odd
