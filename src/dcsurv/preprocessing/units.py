"""Whether a column seems to be in another unit than it was in training."""

from __future__ import annotations

import math

import numpy as np

from dcsurv.durations import DAYS_IN, Unit
from dcsurv.messages import short
from dcsurv.target import FloatArray

# How near the factor between two medians has to be to that of a unit, and what share of the values it has to explain.
_TOLERANCE, _EXPLAINED = math.log(1.25), 0.9
_TIMES: tuple[tuple[Unit, Unit], ...] = (
    ("days", "years"), ("weeks", "years"), ("months", "years"), ("days", "months"), ("days", "weeks"),
)  # fmt: skip
# How many times larger numbers get, and of what that is the sign: the unit that they are in, and that of training.
_FACTORS = (
    *((DAYS_IN[learnt] / DAYS_IN[given], given, learnt) for given, learnt in _TIMES),
    (2.54, "centimetres", "inches"),
    (2.2046, "pounds", "kilograms"),
    (18.02, "mg/dl", "mmol/l"),
    (88.4, "µmol/l", "mg/dl"),
    (10.0, "", ""),
    (100.0, "", ""),
    (1000.0, "", ""),
)
_UNITS = (*_FACTORS, *((1 / factor, learnt, given) for factor, given, learnt in _FACTORS))


def sign_of_unit(values: FloatArray, low: float, high: float, learnt: float) -> str | None:
    """Say what a factor between two medians is a sign of.

    Parameters
    ----------
    values : array of float
        New ones.
    low : float
        From where they lay in training.
    high : float
        Up to where.
    learnt : float
        Their median in training.

    Returns
    -------
    str or None
        None if no factor explains them.
    """
    middle = float(np.median(values)) if len(values) else 0.0
    if middle * learnt <= 0:
        return None
    ratio = math.log(middle / learnt)
    factor, given, before = min(_UNITS, key=lambda one: abs(ratio - math.log(one[0])))
    inside = (values / factor >= low) & (values / factor <= high)
    if abs(ratio - math.log(factor)) > _TOLERANCE or inside.mean() < _EXPLAINED:
        return None
    size = f"about {short(factor)} times larger" if factor > 1 else f"about {short(1 / factor)} times smaller"
    return f"it looks like {given}, the model learned {before} ({size})" if given else f"they are {size}"
