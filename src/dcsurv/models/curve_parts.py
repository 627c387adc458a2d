"""What a model hands over when it predicts: enough to make curves, chunk by chunk."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy.typing as npt

from dcsurv.curves import Interpolation, SurvivalCurves, Transform
from dcsurv.target import FloatArray


class CurveParts(NamedTuple):
    """What a chunk's curves are made of.

    Attributes
    ----------
    times : array of shape (T,)
        The nodes.
    survival : array of shape (n, T)
        S at the nodes.
    interpolation : {"linear", "step", "constant_hazard"}
        How to read between them.
    transform : callable or None, default None
        A map of ``(survival, times)`` to be applied after reading.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.models import CurveParts
    >>> CurveParts(np.array([1.0, 2.0]), np.array([[0.9, 0.5]]), "step").curves().median()
    array([2.])
    """

    times: FloatArray
    survival: npt.NDArray[Any]
    interpolation: Interpolation
    transform: Transform | None = None

    def curves(self) -> SurvivalCurves:
        """Put them together.

        Returns
        -------
        SurvivalCurves
            The curves.
        """
        return SurvivalCurves(self.times, self.survival, interpolation=self.interpolation, transform=self.transform)
