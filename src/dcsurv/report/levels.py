"""How features are shown by their levels, so that nobody can be recognised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dcsurv.messages import short

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


def level_text(value: Any) -> str:
    return short(float(value)) if isinstance(value, float | np.floating) else str(value)


def pooled_levels(column: pd.Series) -> pd.Series:
    """Return the levels as text, rare ones and those beyond the most frequent few as "other"."""
    texts = column.astype(object).map(level_text, na_action="ignore")
    counts = texts.value_counts()
    kept = counts[counts >= SMALL_CELL].head(_MAX_LEVELS)
    rest = int(counts.sum() - kept.sum())
    if 0 < rest < SMALL_CELL and len(kept):
        kept = kept.iloc[:-1]  # alone, the rest would be a small cell itself
    if rest == 0:
        return texts
    other = f"other ({len(counts) - len(kept)} levels)"
    return texts.where(texts.isin(kept.index) | texts.isna(), other)


def small_cells(counts: Any) -> bool:
    """Whether some counts are so small that they may point to a patient."""
    values = np.asarray(counts)
    return bool(((values > 0) & (values < SMALL_CELL)).any())
