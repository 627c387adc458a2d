"""Numbers that stand for something else: codes for missing values, and slips of the pen."""

from __future__ import annotations

import re

import numpy as np

from dcsurv.target import BoolArray, FloatArray

# Numbers that people write where there is none: nines, eights or sevens, or something negative.
_CODE = re.compile(r"-?(9+|8+|7+|9+[78])(\.(9+|8+|7+))?|-1")
# How often a code occurs at least: where it lies beyond all other values by more than they span, or by a part of that.
_LEAST, _OFTEN, _OFTEN_SHARE, _PART = 2, 5, 0.01, 0.25
# A digit is a code among few whole numbers only; so many codes stand together at most.
_FEW, _TOGETHER = 10, 3
# Where -1 is next to them: so many different counts, and no more of its kind.
_COUNTS, _SELDOM = 5, 0.2
# A value so many times as far from the median as nearly all others is a slip; at most so many of them.
_FAR, _SLIPS = 1000.0, 0.01


def missing_codes(values: FloatArray) -> tuple[float, ...]:
    """Return numbers that stand apart from all others as codes for missing values do: 999, -99, or 9 among 1 to 4.

    Parameters
    ----------
    values
        A column of numbers, NaN where one is missing.
    """
    known = values[~np.isnan(values)]
    distinct, counts = np.unique(known, return_counts=True)
    found: list[float] = []
    # The highest, the lowest, and once more the highest, which a code at the other end may have hidden.
    for order in (-1, 1, -1):
        outer, often = distinct[::order], counts[::order]
        n_codes = next((k for k, one in enumerate(outer[:_TOGETHER]) if not _CODE.fullmatch(f"{one:.15g}")), _TOGETHER)
        for k in range(min(n_codes, len(outer) - 2), 0, -1):
            if _stand_apart(outer[:k], outer[k:], int(often[:k].min()), len(known)):
                found += outer[:k].tolist()
                kept = ~np.isin(distinct, outer[:k])
                distinct, counts = distinct[kept], counts[kept]
                break
    return tuple(sorted(found))


def _stand_apart(codes: FloatArray, rest: FloatArray, count: int, n: int) -> bool:
    """Whether codes, each of which occurs so often among n values, lie apart from the rest."""
    low, high = float(rest.min()), float(rest.max())
    span = high - low
    gap = float(codes.min() - high if codes.min() > high else low - codes.max())
    if count < _LEAST:
        return False
    if (np.abs(codes) < 10).any():
        # A digit: the only negative one among counts, of which -1, 0 and 1 are none, or far from a few levels.
        whole = not (rest % 1).any()
        negative = codes.max() < 0 <= low and (gap > 1 or (len(rest) >= _COUNTS and count < _SELDOM * n))
        return bool(whole and (negative or (gap > span and len(rest) <= _FEW)))
    return bool(gap > span or (gap > _PART * span and count >= max(_OFTEN, _OFTEN_SHARE * n)))


def slips(values: FloatArray) -> BoolArray:
    """Return which numbers lie so far from all others that they can only be slips: an age of 1e30.

    Parameters
    ----------
    values
        A column of numbers, NaN where one is missing.
    """
    none = np.zeros(len(values), dtype=bool)
    known = values[~np.isnan(values)]
    if len(known) < 20:
        return none
    low, middle, high = np.quantile(known, [0.05, 0.5, 0.95])
    with np.errstate(over="ignore", invalid="ignore"):
        spread = high - low
        if not 0 < spread < np.inf:
            return none
        far = np.abs(values - middle) > _FAR * spread
    return far if 0 < far.sum() <= max(1, _SLIPS * len(known)) else none
