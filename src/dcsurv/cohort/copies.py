"""Columns that say the same as another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from dcsurv.target import FloatArray

# A number no fraction hits, so that equal values come out equal although they are rounded differently.
_STEPS = 1e6 * np.pi / 3
_SAME = 1e-9
# Numbers that correlate as highly as this are the same measurement, rounded.
NEARLY = 0.9995
# So many columns are compared with each other, in so many rows; fewer common rows say little.
_MOST_COLUMNS, _ROWS, _FEWEST = 300, 3000, 20


def find_copies(columns: Mapping[str, pd.Series]) -> dict[str, str]:
    """Return columns that follow from an earlier one: the same values, in another unit, or other words for them.

    Parameters
    ----------
    columns
        Features in their types, in their order.

    Returns
    -------
    dict
        From each copy to the column that says the same.
    """
    known: dict[bytes, list[str]] = {}
    out: dict[str, str] = {}
    canonical: dict[str, FloatArray] = {}
    for name, column in columns.items():
        values = _canonical(column)
        if values is None:
            continue
        # Missing cells are NaN, which becomes one and the same whole number.
        key = np.where(np.isnan(values), -1, np.round(np.nan_to_num(values) * _STEPS)).astype(np.int64).tobytes()
        for other in known.get(key, ()):
            if np.allclose(canonical[other], values, rtol=_SAME, atol=_SAME, equal_nan=True):
                out[name] = other
                break
        else:
            known.setdefault(key, []).append(name)
            canonical[name] = values
    return out


def _canonical(column: pd.Series) -> FloatArray | None:
    """Return what is the same for copies: of numbers the place between two patients, of levels the order of arrival."""
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
        values = column.to_numpy(np.float64)
        distinct = np.unique(values[~np.isnan(values)][:1000])
        if len(distinct) > 2:
            low, high = float(np.nanmin(values)), float(np.nanmax(values))
            with np.errstate(over="ignore", invalid="ignore"):
                place = (values - low) / (high - low)
            if not np.isfinite(place[~np.isnan(values)]).all():
                return None
            first = place[~np.isnan(place)][0]
            return np.asarray(1 - place if first > 0.5 else place)
    codes = pd.factorize(column)[0].astype(np.float64)
    codes[codes < 0] = np.nan
    return codes if len(np.unique(codes[~np.isnan(codes)])) > 1 else None


def nearly_same(features: pd.DataFrame) -> list[tuple[str, str, float]]:
    """Return pairs of numeric columns of which one all but follows from the other, and their correlation.

    Parameters
    ----------
    features
        Features in their types.
    """
    names = [str(name) for name in features.columns if features[name].dtype == np.float64]
    if not 2 <= len(names) <= _MOST_COLUMNS:
        return []
    rows = np.sort(np.random.default_rng(0).permutation(len(features))[:_ROWS])
    with np.errstate(all="ignore"):
        found = features[names].iloc[rows].corr(min_periods=_FEWEST).to_numpy()
    pairs: Sequence[tuple[int, int]] = np.argwhere(np.triu(np.abs(found) >= NEARLY, 1)).tolist()  # type: ignore[assignment]
    return [(names[j], names[i], float(found[i, j])) for i, j in pairs]
