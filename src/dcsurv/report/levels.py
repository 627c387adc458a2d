"""How features are shown by their levels, so that nobody can be recognised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dcsurv.messages import plural, short
from dcsurv.plain import level_text

# A count of this many patients or more says nothing about one of them.
SMALL_CELL = 5
# A number with at most this many different values is shown by its values, such as 0 and 1.
FEW_VALUES = 6
_MAX_LEVELS = 8


def is_number(column: pd.Series) -> bool:
    """Whether a feature is summed up by quartiles rather than by its levels."""
    if not pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
        return False
    return int(column.nunique()) > FEW_VALUES


@dataclass(frozen=True)
class Levels:
    """What patients are shown by.

    Attributes
    ----------
    labels
        The label of each patient; missing where the value is.
    order
        The labels in the order in which they are shown.
    other
        The one of them that stands for all levels which are not shown on their own, if there is one.
    """

    labels: pd.Series
    order: list[str]
    other: str | None = None


def level_texts(column: pd.Series) -> pd.Series:
    """Return the levels of a column as text, missing ones as they are."""
    return column.astype(object).map(level_text, na_action="ignore")


def pooled_levels(column: pd.Series) -> Levels:
    """Return the levels as text, rare ones and those beyond the most frequent few pooled as "other"."""
    texts = level_texts(column)
    counts = texts.value_counts()
    kept = counts[counts >= SMALL_CELL].head(_MAX_LEVELS)
    rest = int(counts.sum() - kept.sum())
    if 0 < rest < SMALL_CELL and len(kept):
        kept = kept.iloc[:-1]  # alone, the rest would be a small cell itself
    order = sorted((str(level) for level in kept.index), key=_place)
    if rest == 0:
        return Levels(texts, order)
    other = f"other ({plural(len(counts) - len(kept), 'level')})"
    return Levels(texts.where(texts.isin(kept.index) | texts.isna(), other), [*order, other], other)


def thirds(column: pd.Series) -> Levels:
    """Return the thirds of a number."""
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    low, high = np.nanquantile(values, [1 / 3, 2 / 3])
    names = [f"below {short(low)}", f"{short(low)} to {short(high)}", f"above {short(high)}"]
    place = np.where(values < low, 0, np.where(values <= high, 1, 2))
    labels = pd.Series(np.array(names, dtype=object)[place]).where(~np.isnan(values), None)
    return Levels(labels, [name for name in names if (labels == name).any()])


def _place(level: str) -> tuple[int, float, str]:
    """Sort numbers by their value, and other levels after them by their letters."""
    try:
        return 0, float(level), level
    except ValueError:
        return 1, 0.0, level


def small_cells(counts: Any) -> bool:
    """Whether some counts are so small that they may point to a patient."""
    values = np.asarray(counts)
    return bool(((values > 0) & (values < SMALL_CELL)).any())
