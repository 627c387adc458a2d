"""Bands around survival curves, from the spread of several models."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dcsurv.target import FloatArray

# Survival this close to 0 or 1 counts as this on the complementary log-log scale.
_EDGE = 1e-12


class Band(NamedTuple):
    """Survival of each patient with a band around it.

    Attributes
    ----------
    times : array of shape (T,)
        The times.
    lower : array of shape (n, T)
        Lower end of the band.
    survival : array of shape (n, T)
        Survival.
    upper : array of shape (n, T)
        Upper end of the band.

    Examples
    --------
    >>> from dcsurv import CalibratedEnsemble, CoxPH
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 200)
    >>> model = CalibratedEnsemble(estimator=CoxPH(), n_members=2).fit(cohort.X, cohort.y)
    >>> band = model.predict_band(cohort.X[:5], [1.0, 5.0])
    >>> band.survival.shape, bool((band.lower <= band.upper).all())
    ((5, 2), True)
    """

    times: FloatArray
    lower: FloatArray
    survival: FloatArray
    upper: FloatArray


def band_around(times: FloatArray, survival: FloatArray, reach: FloatArray) -> Band:
    """Return the band around survival, (n, T), that reaches so far to both sides on the scale log(-log S), (n, T)."""
    certain = (survival <= 0) | (survival >= 1)
    middle = log_hazard(survival)
    lower, upper = (
        np.minimum.accumulate(np.where(certain, survival, np.exp(-np.exp(middle + sign * reach))), axis=1)
        for sign in (1, -1)
    )
    return Band(times, np.minimum(lower, survival), survival, np.maximum(upper, survival))


def log_hazard(survival: FloatArray) -> FloatArray:
    """Return log(-log S)."""
    return np.log(-np.log(np.clip(survival, _EDGE, 1 - _EDGE)))
