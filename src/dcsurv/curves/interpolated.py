"""Values at the nodes of curves, and the one interpolation between them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from dcsurv.curves.checks import check_query
from dcsurv.target import FloatArray, IntArray

Interpolation: TypeAlias = Literal["linear", "constant_hazard", "step"]
Transform: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]

# -log S is infinite where S = 0; survival below this counts as this.
SMALLEST_SURVIVAL = 1e-12


class Interpolated:
    """Curves of n patients that are known at common nodes and read anywhere.

    Attributes
    ----------
    times : array of float
        The nodes, (T,).
    interpolation : {"linear", "constant_hazard", "step"}
        How curves run between the nodes.
    transform : callable or None
        A map of the values, applied after interpolating.
    """

    times: FloatArray
    interpolation: Interpolation
    transform: Transform | None
    _knots: FloatArray  # 0 and the nodes, (K,)
    _table: npt.NDArray[Any]  # (K, n): a time reads two neighbouring rows for all patients at once
    _log_table: FloatArray | None

    def __len__(self) -> int:
        return int(self._table.shape[1])

    @property
    def values(self) -> FloatArray:
        """S at ``times``, (n, T), the transform applied: what ``return_array=True`` is elsewhere."""
        return self.evaluate(self.times)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self.values, dtype=dtype)

    def __call__(self, t: npt.ArrayLike) -> FloatArray:
        """Return S(t) of every patient: (n,) for one time, (n, m) for m times."""
        asked = check_query(t)
        if (asked > self.times[-1]).any():
            warnings.warn(
                f"S(t) was asked for at {asked.max():g}, beyond the last node {self.times[-1]:g}; the curves are "
                "held constant there.",
                UserWarning,
                stacklevel=2,
            )
        out = self.evaluate(np.atleast_1d(asked))
        return out[:, 0] if asked.ndim == 0 else out

    def evaluate(self, t: FloatArray) -> FloatArray:
        """Return S(t) at checked times; beyond the last node held constant without a word.

        Parameters
        ----------
        t : array of float
            Times, finite and not negative, (m,).

        Returns
        -------
        array of float
            S(t), (n, m).
        """
        return self.evaluate_rows(t).T

    def evaluate_rows(self, t: FloatArray, first: int = 0) -> FloatArray:
        """Return S(t) with one row per time.

        The layout in which metrics read curves: all patients at one time lie side by side.

        Parameters
        ----------
        t : array of float
            Times, finite and not negative, (m,).
        first : int, default 0
            Leave out the patients before this one.

        Returns
        -------
        array of float
            S(t), (m, n - first).
        """
        from dcsurv._interpolation import blend_rows

        left, share = self._locate(t)
        out = np.empty((len(t), len(self) - first))
        blend_rows(self._scaled(), left, share, first, out)
        return self._finish(out, t[:, None])

    def at_own(self, time: npt.ArrayLike) -> FloatArray:
        """Return each patient's curve at that patient's own time.

        Parameters
        ----------
        time : array-like of float
            One time per patient, (n,).

        Returns
        -------
        array of float
            S_i(time_i), (n,).
        """
        from dcsurv._interpolation import blend_own

        own = check_query(time)
        if own.shape != (len(self),):
            raise ValueError(f"time has shape {own.shape}, but one time per curve, ({len(self)},), is expected.")
        left, share = self._locate(own)
        out = np.empty(len(self))
        blend_own(self._scaled(), left, share, out)
        return self._finish(out, own)

    def _locate(self, t: FloatArray) -> tuple[IntArray, FloatArray]:
        """Find the knot to the left of each time and how far it lies towards the next one."""
        left = np.searchsorted(self._knots, t, side="right") - 1
        share = np.zeros(len(left))
        inside = left < len(self._knots) - 1
        if self.interpolation != "step":
            below = self._knots[left[inside]]
            share[inside] = (t[inside] - below) / (self._knots[left[inside] + 1] - below)
        return left, share

    def _scaled(self) -> npt.NDArray[Any]:
        """Return the node values on the scale on which they are interpolated linearly."""
        if self.interpolation != "constant_hazard":
            return self._table
        if self._log_table is None:
            self._log_table = np.log(np.maximum(self._table.astype(np.float64), SMALLEST_SURVIVAL))
        return self._log_table

    def _finish(self, out: FloatArray, t: FloatArray) -> FloatArray:
        if self.interpolation == "constant_hazard":
            np.exp(out, out=out)
        return out if self.transform is None else self.transform(out, t)
