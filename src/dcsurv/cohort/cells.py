"""What single cells mean: numbers, levels, yes and no."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from dcsurv.plain import level_text

YES = frozenset(
    {
        "yes",
        "y",
        "true",
        "t",
        "ja",
        "j",
        "wahr",
        "oui",
        "vrai",
        "si",
        "sí",
        "sì",
        "sim",
        "+",
        "present",
        "pos",
        "positive",
    }
)
NO = frozenset(
    {"no", "n", "false", "f", "nein", "falsch", "non", "faux", "não", "nao", "nee", "absent", "neg", "negative"}
)


def to_numbers(values: pd.Series) -> pd.Series:
    """Return numbers, NaN where a value is missing or no finite number."""
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "fiu":
        out = values if values.dtype == np.float64 else values.astype(np.float64)
    else:
        out = pd.Series(
            pd.to_numeric(values.astype(object), errors="coerce").to_numpy(np.float64, na_value=np.nan),
            index=values.index,
            name=values.name,
        )
    infinite = np.isinf(out.to_numpy())
    return out.where(~infinite) if infinite.any() else out


def level_texts(values: pd.Series) -> pd.Series:
    """Return levels as text, in which 1, 1.0 and "1.0" are the same; missing ones stay missing."""
    uniques = {value: level_text(_number_in(value)) for value in values.dropna().unique()}
    return values.map(uniques).astype(object)


def _number_in(cell: Any) -> Any:
    """Return the number in a cell of a text file that holds a whole one, such as 1.0, else the cell."""
    return cell.split(".")[0] if isinstance(cell, str) and re.fullmatch(r"[+-]?\d+\.0+", cell) else cell


def examples(values: pd.Series) -> list[str]:
    return [str(value) for value in values.value_counts().index]
