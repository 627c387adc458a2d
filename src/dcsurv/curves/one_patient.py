"""The curve of one patient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dcsurv.target import FloatArray

if TYPE_CHECKING:
    from dcsurv.curves.survival_curves import SurvivalCurves


class SurvivalFunction:
    """The survival curve of one patient, callable at one time or several.

    Parameters
    ----------
    curves : SurvivalCurves
        Curves of which the first is taken.

    Examples
    --------
    >>> from dcsurv import SurvivalCurves
    >>> one = SurvivalCurves([1, 2, 4], [[0.9, 0.5, 0.2], [0.8, 0.7, 0.6]])[1]
    >>> one
    SurvivalFunction(times from 1 to 4)
    >>> one([1, 3])
    array([0.8 , 0.65])
    >>> one.domain
    (0.0, 4.0)
    """

    def __init__(self, curves: SurvivalCurves) -> None:
        self._curves = curves

    @property
    def times(self) -> FloatArray:
        """The node times, (T,)."""
        return self._curves.times

    @property
    def values(self) -> FloatArray:
        """S at ``times``, (T,)."""
        return np.asarray(self._curves.values[0])

    @property
    def domain(self) -> tuple[float, float]:
        """Where the curve is known; beyond, it is held constant."""
        return 0.0, float(self.times[-1])

    def __call__(self, t: npt.ArrayLike) -> Any:
        return self._curves(t)[0]

    def __repr__(self) -> str:
        return f"SurvivalFunction(times from {self.times[0]:g} to {self.times[-1]:g})"
