"""What survival curves are made of, checked: times, probabilities that never rise, patients."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.target import FloatArray

# A curve may rise by this much through rounding (float32 products, averages) and is then flattened silently.
ROUNDING = 1e-6


def check_times(times: npt.ArrayLike) -> FloatArray:
    """Return node times: finite, not negative, strictly ascending."""
    out = np.ascontiguousarray(times, dtype=np.float64)
    if out.ndim != 1 or len(out) == 0:
        raise ValueError(f"times has shape {out.shape}, but a one-dimensional array of node times is expected.")
    if not np.isfinite(out).all() or out[0] < 0:
        raise ValueError(f"times must be finite and not negative; got values from {out.min():g} to {out.max():g}.")
    if (np.diff(out) <= 0).any():
        where = int(np.flatnonzero(np.diff(out) <= 0)[0])
        raise ValueError(
            f"times must be strictly ascending, but {out[where]:g} is followed by {out[where + 1]:g} at position "
            f"{where + 1}. Sort them (with their values) and drop duplicates."
        )
    return out


def check_values(values: npt.ArrayLike, n_times: int) -> npt.NDArray[Any]:
    """Return the values with one row per node, float32 if they came so, else float64."""
    table = np.asarray(values)
    if table.dtype != np.float32:
        try:
            table = table.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"values must be numbers; got {table.dtype}.") from None
    if table.ndim == 1:
        table = table[None, :]
    if table.ndim != 2 or table.shape[1] != n_times:
        raise ValueError(
            f"values has shape {np.shape(values)}, but (patients, {n_times}) is expected: one column per time. "
            "Transpose it if it has one row per time."
        )
    if len(table) == 0:
        raise ValueError("values has no rows. Pass the curve of at least one patient.")
    if np.isnan(table).any():
        raise ValueError(f"values holds NaN in {int(np.isnan(table).any(axis=1).sum())} of {len(table)} curves.")
    low, high = float(table.min()), float(table.max())
    if low < -ROUNDING or high > 1 + ROUNDING:
        raise ValueError(
            f"survival probabilities must lie in [0, 1]; got values from {low:g} to {high:g}. If these are risks or "
            "cumulative hazards, convert them first: 1 - risk, exp(-hazard)."
        )
    table = table.T
    rise = np.diff(table, axis=0)
    if rise.size and rise.max() > ROUNDING:
        node, patient = np.unravel_index(int(rise.argmax()), rise.shape)
        raise ValueError(
            f"a survival curve must never rise, but curve {patient} rises by {rise.max():.3g} after time number "
            f"{node}. If these are probabilities of the event, pass 1 - values."
        )
    if (rise.size and rise.max() > 0) or low < 0 or high > 1:
        table = np.minimum.accumulate(np.clip(table, 0, 1), axis=0)
    return table


def check_index(index: Any, n: int) -> pd.Index | None:
    """Return the names of the patients, or None where they have none."""
    if index is None:
        return None
    out = index if isinstance(index, pd.Index) else pd.Index(index)
    if len(out) != n:
        raise ValueError(f"index has {len(out)} entries, but one per curve, {n}, is expected.")
    return out


def check_followed(followed_to: npt.ArrayLike | None, n: int) -> FloatArray | None:
    """Return until when patients were followed, one time each, or None."""
    if followed_to is None:
        return None
    out = np.asarray(followed_to, dtype=np.float64)
    if out.shape != (n,):
        raise ValueError(f"followed_to has shape {out.shape}, but one time per curve, ({n},), is expected.")
    return out


def one_time(t: float) -> float:
    """Return a single time to read curves at."""
    asked = check_query(t)
    if asked.ndim:
        raise ValueError(f"one time is expected here; got {asked.size}. Call it for each.")
    return float(asked)


def check_query(t: npt.ArrayLike) -> FloatArray:
    """Return one time or several to read curves at, in any order."""
    asked = np.asarray(t, dtype=np.float64)
    if asked.ndim > 1:
        raise ValueError(f"t has shape {asked.shape}, but one time or a one-dimensional array is expected.")
    if not np.isfinite(asked).all() or (asked < 0).any():
        raise ValueError("times to read a curve at must be finite and not negative.")
    return asked
