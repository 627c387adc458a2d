"""What is learnt about one column: how a number is scaled, how a category is encoded."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.arithmetic import Value
from dcsurv.plain import level_text
from dcsurv.target import FloatArray

Float32Array: TypeAlias = npt.NDArray[np.float32]

# More levels than this are an identifier or free text, and one column per level helps nobody. Neither does a column in
# which most patients have a level of their own; as a name or a number of a patient it has no place in a model file.
_MAX_LEVELS = 255
_FEW_LEVELS, _OWN_LEVEL_SHARE = 20, 0.5
# What a column of booleans becomes in an array of numbers, or in a file.
_AS_NUMBERS = {"False": "0", "True": "1"}
# The sum of the squares of very many smaller numbers is a number still.
_LARGEST = 1e140


@dataclass(frozen=True)
class ScaledNumber:
    """How a number is scaled: (value - mean) / scale, missing -> median. A scale of 0 marks a constant."""

    name: str
    mean: float
    scale: float
    median: float
    levels: tuple[str, ...] | None = None  # of a category that enters as the position of its level

    def names_out(self) -> list[str]:
        return [self.name]

    def write(self, values: FloatArray, out: Float32Array) -> None:
        # A constant carried no information in fit: a model has learnt nothing about it, so it stays 0.
        scaled = (values - self.mean) * (1 / self.scale if self.scale else 0.0)
        missing = np.isnan(scaled)
        if missing.any():
            scaled[missing] = self.median
        out[:, 0] = scaled

    def arithmetic(self, value: Value) -> Value:
        return ((value - self.mean) * (1 / self.scale if self.scale else 0.0)).where_missing(self.median)


@dataclass(frozen=True)
class EncodedCategory:
    """The levels of a category in their order; the first one is the reference."""

    name: str
    levels: tuple[str, ...]
    most_frequent: int

    def names_out(self) -> list[str]:
        # One level (a constant) or two give one column.
        return [f"{self.name}_{level}" for level in self.levels[1:]] or [self.name]

    def write(self, positions: FloatArray, out: Float32Array) -> None:
        filled = np.where(np.isnan(positions), self.most_frequent, positions)
        out[:] = filled[:, None] == np.arange(1, out.shape[1] + 1)

    def arithmetic(self, position: Value) -> Value:
        return position.where_missing(float(self.most_frequent)).equals(np.arange(1.0, len(self.names_out()) + 1.0))


Rule: TypeAlias = ScaledNumber | EncodedCategory


def is_number(column: pd.Series) -> bool:
    if pd.api.types.is_datetime64_any_dtype(column.dtype) or pd.api.types.is_timedelta64_dtype(column.dtype):
        raise ValueError(
            f"column {column.name!r} holds {column.dtype} values. Turn it into a number first, such as the days "
            "since diagnosis, or drop it."
        )
    if pd.api.types.is_complex_dtype(column.dtype):
        raise ValueError(f"Complex data not supported: column {column.name!r}.")
    return pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype)


def numbers_of(column: pd.Series) -> FloatArray:
    """Return a numeric column as float64 with NaN where it is missing; refuse text and infinity."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "fiu":
        values = column.to_numpy(np.float64)
    else:
        try:
            values = pd.to_numeric(column.astype(object)).to_numpy(np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            known = column.astype(object).dropna()
            culprit = known[pd.to_numeric(known, errors="coerce").isna()].iloc[0]
            raise ValueError(
                f"column {column.name!r} held numbers in fit, but now it holds values such as {culprit!r}. "
                "Pass numbers, with NaN where one is missing."
            ) from None
    infinite = int(np.isinf(values).sum())
    if infinite:
        row = int(np.argmax(np.isinf(values))) + 1
        raise ValueError(
            f"column {column.name!r} holds {infinite} infinite values, the first in row {row}. Replace them by NaN if "
            "they mean missing."
        )
    return values


def fit_number(name: str, values: FloatArray, levels: tuple[str, ...] | None = None) -> ScaledNumber:
    known = values[~np.isnan(values)]
    if len(known) == 0:
        raise _no_value(name, len(values))
    if (bad := too_large(values)).any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"column {name!r} holds {values[row]:g} in row {row + 1}, a number too large to compute with. Correct it, "
            "or use another unit."
        )
    mean, scale = float(known.mean()), float(known.std())
    # The spread of a constant is rounding error of its mean.
    if scale <= 10 * np.finfo(np.float64).eps * abs(mean):
        return ScaledNumber(name, mean, 0.0, 0.0, levels)
    return ScaledNumber(name, mean, scale, (float(np.median(known)) - mean) / scale, levels)


def too_large(values: FloatArray) -> npt.NDArray[np.bool_]:
    """Return which numbers cannot be scaled, because their squares would have no end."""
    return np.abs(values) > _LARGEST


def fit_category(name: str, column: pd.Series, *, ordinal: bool, least_patients: int) -> tuple[Rule, list[str], int]:
    """Learn the levels of a category that enough patients have; return also the others, and how many patients are left.

    These count as missing.
    """
    codes, uniques = _factorize(column)
    observed = np.unique(codes[codes >= 0])
    if len(observed) == 0:
        raise _no_value(name, len(column))
    texts = [level_text(uniques[code]) for code in observed]
    if not isinstance(column.dtype, pd.CategoricalDtype):
        texts = _sorted_levels(texts)
    levels = tuple(dict.fromkeys(texts))
    n_known = int((codes >= 0).sum())
    if not ordinal and (len(levels) > _MAX_LEVELS or len(levels) > max(_FEW_LEVELS, _OWN_LEVEL_SHARE * n_known)):
        raise ValueError(
            f"column {name!r} has {len(levels)} different values in {n_known} rows, which looks like an identifier or "
            "free text. Drop it, group it, or make it a number."
        )
    positions, _ = positions_of(column, levels)
    counts = np.bincount(positions[~np.isnan(positions)].astype(np.int64), minlength=len(levels))
    kept = counts >= least_patients
    kept[counts.argmax()] = True
    rare = [level for level, stays in zip(levels, kept, strict=True) if not stays]
    if rare:
        levels = tuple(level for level in levels if level not in set(rare))
        positions, _ = positions_of(column, levels)
    if ordinal:
        return fit_number(name, positions, levels), rare, int(np.isnan(positions).sum())
    return EncodedCategory(name, levels, int(counts[kept].argmax())), rare, int(np.isnan(positions).sum())


def positions_of(column: pd.Series, levels: Sequence[str]) -> tuple[FloatArray, list[str]]:
    """Return each row's position among the levels, NaN if missing or unknown, and the unknown values."""
    codes, uniques = _factorize(column)
    known = {level: float(position) for position, level in enumerate(levels)}
    if known.keys() == _AS_NUMBERS.keys():
        known |= {number: known[level] for level, number in _AS_NUMBERS.items()}
    texts = [level_text(value) for value in uniques]
    # One entry more, for missing values, whose code is -1.
    lookup = np.array([*(known.get(text, np.nan) for text in texts), np.nan])
    present = np.unique(codes[codes >= 0])
    unknown = [texts[code] for code in present if texts[code] not in known]
    return lookup[codes], unknown


def _factorize(column: pd.Series) -> tuple[npt.NDArray[np.int64], list[Hashable]]:
    if isinstance(column.dtype, pd.CategoricalDtype):
        return np.asarray(column.cat.codes, dtype=np.int64), list(column.cat.categories)
    try:
        codes, uniques = pd.factorize(column)
    except TypeError:
        raise ValueError(
            f"column {column.name!r} holds values that are neither numbers nor text, such as {column.iloc[0]!r}."
        ) from None
    return np.asarray(codes, dtype=np.int64), list(uniques)


def _sorted_levels(texts: Sequence[str]) -> list[str]:
    """Sort as numbers if all are numbers, so that "10" comes after "2"; otherwise as text."""
    try:
        numbers = {text: float(text) for text in texts}
    except ValueError:
        return sorted(texts)
    if not all(map(math.isfinite, numbers.values())):
        return sorted(texts)
    return sorted(texts, key=lambda text: (numbers[text], text))


def _no_value(name: str, n_rows: int) -> ValueError:
    return ValueError(
        f"column {name!r} has no value in any of the {n_rows} rows given to fit, so it cannot be scaled or filled. "
        "Drop it."
    )
