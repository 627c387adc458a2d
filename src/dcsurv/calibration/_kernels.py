"""The compiled hearts of the maps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dcsurv._compile import compiled
from dcsurv.target import FloatArray


@compiled()
def piecewise_linear(
    values: FloatArray,
    points: FloatArray,
    mapped: FloatArray,
    slope: FloatArray,
    first: npt.NDArray[np.int32],
    out: FloatArray,
) -> None:
    """Write the piecewise linear function through ascending points at values, which lie anywhere between 0 and 1.

    Parameters
    ----------
    values
        Where, (n,).
    points, mapped
        The points, the first at 0 and the last at 1, (k,).
    slope
        Between them, (k - 1,).
    first
        The last point at or before each of equally spaced values between 0 and 1.
    out
        Receives the function, (n,).
    """
    steps = len(first) - 1
    last = len(slope) - 1
    for i in range(len(values)):
        x = values[i]
        part = min(first[min(max(int(x * steps) - 1, 0), steps)], last)
        while part < last and points[part + 1] <= x:
            part += 1
        out[i] = min(mapped[part] + (x - points[part]) * slope[part], mapped[part + 1])


@compiled()
def shift_and_hold(log_hazard: FloatArray, shift: FloatArray, slope: FloatArray) -> None:
    """Replace log H by shift + slope * log H, and hold it where it would fall, (T, n)."""
    for row in range(len(log_hazard)):
        a, b = shift[row], slope[row]
        target = log_hazard[row]
        before = log_hazard[max(row - 1, 0)]
        if row == 0:
            for i in range(len(target)):
                target[i] = target[i] * b + a
        else:
            for i in range(len(target)):
                value = target[i] * b + a
                earlier = before[i]
                target[i] = value if value > earlier else earlier
