"""The features of a table whose columns are known: in their types, the same for every later table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dcsurv.cohort.cells import (
    NO,
    YES,
    examples,
    fold,
    is_yes,
    level_texts,
    meaning_the_same,
    respelled,
    spellings,
    to_numbers,
    yes_and_no,
)
from dcsurv.cohort.columns import FEW_VALUES, NUMBER_SHARE, Column, known_values
from dcsurv.cohort.errors import CohortError
from dcsurv.cohort.notation import remedy_for
from dcsurv.messages import Message, did_you_mean, listed, plural

# Longer cells are cut where they are quoted.
_LONG = 40
_SEVERAL = {"not a number": "not numbers"}


@dataclass(frozen=True)
class Odd:
    """Values of a column that are not what the column holds, and therefore count as missing."""

    column: str
    what: str
    count: int
    examples: tuple[str, ...]
    cells: tuple[tuple[int, str], ...] = ()  # rows of a table, counted from 0, with what is there

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

    def notes(self) -> dict[int, str]:
        """Return what to say of each row, by row."""
        return {row: f"{self.column} {text!r} is {self.what}, taken as missing" for row, text in self.cells}


def apply_columns(
    frame: pd.DataFrame,
    columns: Iterable[Column],
    levels: Mapping[str, Sequence[str]] | None = None,
    *,
    from_text: bool = False,
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
    from_text : bool, default False
        Whether the table comes from a text file, for which the decimal sign can be told.

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
        values, found = _apply(frame[column.name], column, (levels or {}).get(column.name), from_text)
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


def shortened(text: str) -> str:
    """Return a cell as short as fits in a sentence."""
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


def _apply(
    values: pd.Series, column: Column, levels: Sequence[str] | None, from_text: bool
) -> tuple[pd.Series, Odd | None]:
    values = known_values(values, column.missing_values)
    if column.kind == "number" and values.dtype == np.float64 and not np.isinf(values.to_numpy()).any():
        return values, None
    known = values.dropna()
    if column.kind == "category":
        out = level_texts(values)
        if levels is None:
            same = spellings(out)
            out = out.replace(same) if same and not column.chosen else out
            bad = pd.Series(False, index=known.index)
        else:
            out = respelled(out, levels)
            bad = ~out[known.index].isin(set(levels))
        out = out.where(~bad.reindex(values.index, fill_value=False))
        what = "unknown to the model"
    elif column.kind == "number":
        out = to_numbers(values)
        bad = out[known.index].isna()
        what = "not a number"
    else:
        out, bad = _yes_or_no(values, levels)
        what = "neither yes nor no"
    if not bad.any():
        return out, None
    rows = np.flatnonzero(values.notna().to_numpy())[bad.to_numpy(dtype=bool)]
    cells = tuple((int(row), shortened(str(cell))) for row, cell in zip(rows, known[bad], strict=True))
    odd = Odd(column.name, what, int(bad.sum()), tuple(examples(known[bad])[:5]), cells)
    if bad.mean() > 1 - NUMBER_SHARE and len(known) >= FEW_VALUES:
        kind = {"number": "numbers", "yes/no": "yes and no"}.get(column.kind, f"one of {listed(levels or (), 8)}")
        more = remedy_for(odd.examples, from_text=from_text) if column.kind == "number" else ""
        raise CohortError(
            f"{odd.count} of {len(known)} values of {column.name!r} are {_SEVERAL.get(what, what)}, such as "
            f"{listed(odd.examples, 3)}, where the model expects {kind}.",
            parameter="decimal" if from_text else None,
            remedy=Message("Check that it is the right column. {more}", more=more),
        )
    return out, odd


def _yes_or_no(values: pd.Series, levels: Sequence[str] | None) -> tuple[pd.Series, pd.Series]:
    """Return a column of two words, in the language of the table that the model knows, and which cells are neither."""
    texts = level_texts(values.dropna())
    folded = texts.map(fold)
    positive, negative = folded.isin(YES | {"1"}), folded.isin(NO | {"0"})
    no, yes = (yes_and_no(texts) if levels is None else None) or ("no", "yes")
    for level in levels or ():
        no, yes = (no, level) if is_yes(level) else (level, yes)
    positive |= folded.isin(meaning_the_same(yes))  # also letters that mean yes in their language only
    bad = ~(positive | negative)
    words = pd.Series(np.where(positive, yes, no), index=texts.index).where(~bad)
    return words.reindex(values.index).astype(pd.CategoricalDtype([no, yes])), bad
