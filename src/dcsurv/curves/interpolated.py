"""Values at the nodes of curves, and the one interpolation between them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from dcsurv._compile import pays
from dcsurv.curves.checks import check_query
from dcsurv.target import FloatArray, IntArray

Interpolation: TypeAlias = Literal["linear", "constant_hazard", "step"]
Transform: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]

# -log S is infinite where S = 0; survival below this counts as this.
SMALLEST_SURVIVAL = 1e-12
# Up to so many values, plain NumPy is quicker than the wait for compiled code, and gives the same bits.
_FEW = 1_000_000


class BeyondLastNodeWarning(UserWarning):
    """Survival is asked for at a time later than the curves know; they are held constant there.

    Examples
    --------
    >>> import warnings
    >>> from dcsurv.curves import BeyondLastNodeWarning
    >>> warnings.filterwarnings("error", category=BeyondLastNodeWarning)  # to refuse such times
    >>> warnings.resetwarnings()
    """


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
                BeyondLastNodeWarning,
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
        left, share = self._locate(t)
        table, count = self._scaled(), len(self) - first
        if not pays(count * len(t), _FEW):
            out = _blended(table[left, first:], table[np.minimum(left + 1, len(table) - 1), first:], share[:, None])
        else:
            from dcsurv._interpolation import blend_rows

            out = np.empty((len(t), count))
            blend_rows(table, left, share, first, out)
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
        own = check_query(time)
        if own.shape != (len(self),):
            raise ValueError(f"time has shape {own.shape}, but one time per curve, ({len(self)},), is expected.")
        left, share = self._locate(own)
        table, patient = self._scaled(), np.arange(len(self))
        if not pays(len(self), _FEW):
            out = _blended(table[left, patient], table[np.minimum(left + 1, len(table) - 1), patient], share)
        else:
            from dcsurv._interpolation import blend_own

            out = np.empty(len(self))
            blend_own(table, left, share, out)
        return self._finish(out, own)

    def first_at(self, level: float) -> FloatArray:
        """Return the first time at which the curves, without any transform, are at or below a level.

        Parameters
        ----------
        level : float
            Between 0 and 1.

        Returns
        -------
        array of float
            One time per patient, (n,); NaN where it is never reached.
        """
        table = self._scaled()
        if self.interpolation == "constant_hazard":
            level = float(np.log(max(level, SMALLEST_SURVIVAL)))
        reached = table <= level
        hit = reached.argmax(axis=0)
        patient = np.arange(len(self))
        out = np.where(reached[hit, patient], self._knots[hit], np.nan)
        inside = np.flatnonzero(hit > 0)  # elsewhere never, or from the beginning
        if self.interpolation != "step" and len(inside):
            hit = hit[inside]
            above, below = table[hit - 1, inside].astype(np.float64), table[hit, inside].astype(np.float64)
            start, end = self._knots[hit - 1], self._knots[hit]
            out[inside] = np.minimum(start + (end - start) * ((above - level) / (above - below)), end)
        return out

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


def _blended(below: npt.NDArray[Any], above: npt.NDArray[Any], share: FloatArray) -> FloatArray:
    """Return (1 - share) * below + share * above."""
    out = above.astype(np.float64)
    out -= below
    out *= share
    out += below
    return out
