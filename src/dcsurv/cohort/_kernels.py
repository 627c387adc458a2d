"""The compiled heart of writing predictions as text."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dcsurv._compile import compiled
from dcsurv.target import FloatArray

# What a number takes at most, with the comma before it: nine digits, a point and six more.
WIDTH = 18
_COMMA, _POINT, _MINUS, _ZERO, _E, _END = 44, 46, 45, 48, 101, 10


@compiled()
def write_numbers(values: FloatArray, first_row: int, out: npt.NDArray[np.uint8]) -> int:
    """Write numbers between 0 and a billion, rounded to six decimals, as Python does; return how many bytes.

    Parameters
    ----------
    values
        One row per column of the table, (columns, n). NaN leaves a cell empty.
    first_row
        If it is positive, lines begin with the number of the row, counted from this.
    out
        Receives the lines.
    """
    place = 0
    for i in range(values.shape[1]):
        if first_row > 0:
            place = _digits(first_row + i, out, place)
        for k in range(len(values)):
            if k > 0 or first_row > 0:
                out[place] = _COMMA
                place += 1
            if np.isnan(values[k, i]):
                continue
            millionths = np.int64(np.rint(values[k, i] * 1e6))
            if 0 < millionths < 100:  # below 0.0001 Python writes powers of ten
                lead, rest = (millionths // 10, millionths % 10) if millionths >= 10 else (millionths, 0)
                out[place] = _ZERO + lead
                place += 1
                if rest > 0:
                    out[place], out[place + 1] = _POINT, _ZERO + rest
                    place += 2
                power = 5 if millionths >= 10 else 6
                out[place], out[place + 1], out[place + 2], out[place + 3] = _E, _MINUS, _ZERO, _ZERO + power
                place += 4
                continue
            place = _digits(int(millionths // 1_000_000), out, place)
            out[place] = _POINT
            rest = millionths % 1_000_000
            for digit in range(6, 0, -1):
                out[place + digit] = _ZERO + rest % 10
                rest //= 10
            end = place + 6
            while end > place + 1 and out[end] == _ZERO:
                end -= 1
            place = end + 1
        out[place] = _END
        place += 1
    return place


@compiled()
def _digits(number: int, out: npt.NDArray[np.uint8], place: int) -> int:
    """Write a whole number; return the place after it."""
    count = 1
    power = 10
    while number >= power:
        count += 1
        power *= 10
    for digit in range(count - 1, -1, -1):
        out[place + digit] = _ZERO + number % 10
        number //= 10
    return place + count
