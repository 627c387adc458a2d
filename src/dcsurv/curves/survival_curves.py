"""Survival curves S(t | x) of patients.

A recalibration map may ride along as ``transform``; it is applied to S(t) *after* interpolating, because mapping the
nodes first could change the order of two patients between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, get_args, overload

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.curves.checks import check_followed, check_index, check_times, check_values, one_time
from dcsurv.curves.interpolated import SMALLEST_SURVIVAL, Interpolated, Interpolation, Transform
from dcsurv.curves.one_patient import SurvivalFunction
from dcsurv.curves.summaries import area_below, time_at
from dcsurv.messages import plural
from dcsurv.target import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class SurvivalCurves(Interpolated):
    """Survival curves of n patients on a common set of T node times.

    Parameters
    ----------
    times : array-like of float
        Node times, strictly ascending, finite, not negative, (T,). S(0) = 1 is implied when they start later.
    values : array-like of float
        S at the nodes, within [0, 1] and never rising along time, (n, T); (T,) is one patient.
    interpolation : {"linear", "constant_hazard", "step"}, default "linear"
        Between nodes: ``"linear"`` in S (what the paper does), ``"constant_hazard"`` (linear in log S), or
        ``"step"`` (the value of the last node at or before t, as Kaplan-Meier).
    transform : callable or None, default None
        An increasing map of survival probabilities, ``transform(survival, times) -> survival``, applied after
        interpolating; the two arguments broadcast against each other. It must keep 0 and 1 in [0, 1].
    followed_to : array-like of float or None, default None
        Until when patients like each of these were followed, (n,); :meth:`plot` draws dashed what lies beyond. NaN, or
        None for all: not known.
    index : pandas Index, sequence or None, default None
        Names of the patients, n of them, such as the index of the table that was predicted from.

    Notes
    -----
    ``curves.values``, or ``np.asarray(curves)``, is the plain array (n, T) that scikit-survival returns with
    ``return_array=True``; ``curves[i]`` is one of the functions that it returns without.

    Beyond the last node a curve is held constant; ``curves(t)`` warns then.

    Examples
    --------
    >>> from dcsurv import SurvivalCurves
    >>> curves = SurvivalCurves([1, 2, 4], [[0.9, 0.5, 0.2], [0.8, 0.7, 0.6]], index=["Ann", "Bob"])
    >>> curves
    SurvivalCurves(2 patients, 3 times from 1 to 4, linear)
    >>> curves(3).round(2)
    array([0.35, 0.65])
    >>> curves[0](3).round(2)
    np.float64(0.35)
    >>> curves.median()
    array([ 2., nan])
    >>> curves.values.shape
    (2, 3)
    >>> curves.to_frame()
    time  1.0  2.0  4.0
    Ann   0.9  0.5  0.2
    Bob   0.8  0.7  0.6
    """

    def __init__(
        self,
        times: npt.ArrayLike,
        values: npt.ArrayLike,
        *,
        interpolation: Interpolation = "linear",
        transform: Transform | None = None,
        followed_to: npt.ArrayLike | None = None,
        index: Any = None,
    ) -> None:
        if interpolation not in get_args(Interpolation):
            raise ValueError(
                f"interpolation is {interpolation!r}, but 'linear', 'constant_hazard' or 'step' is expected."
            )
        self.times = check_times(times)
        table = check_values(values, len(self.times))
        self.interpolation = interpolation
        self.transform = transform
        self.followed_to = check_followed(followed_to, table.shape[1])
        self.index = check_index(index, table.shape[1])
        self._knots = self.times
        if self.times[0] > 0:
            self._knots = np.append(0.0, self.times)
            table = np.concatenate([np.ones((1, table.shape[1]), dtype=table.dtype), table])
        self._table = np.ascontiguousarray(table)
        self._log_table = None

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, *, interpolation: Interpolation = "linear") -> SurvivalCurves:
        """Read curves from a DataFrame.

        Parameters
        ----------
        frame : DataFrame
            One row per patient, the times as column names. pycox and lifelines keep one column per patient: pass
            ``frame.T`` for theirs.
        interpolation : {"linear", "constant_hazard", "step"}, default "linear"
            How the curves run between these times.

        Returns
        -------
        SurvivalCurves
            The curves, with the index of the frame.
        """
        try:
            times = frame.columns.to_numpy(dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"the column names {list(frame.columns[:3])}... are not times. Expected one row per patient and "
                "one column per time; transpose the frame if it is the other way round."
            ) from None
        return cls(times, frame.to_numpy(dtype=np.float64), interpolation=interpolation, index=frame.index)

    @classmethod
    def from_rows(
        cls,
        times: FloatArray,
        rows: npt.NDArray[Any],
        *,
        interpolation: Interpolation = "linear",
        followed_to: FloatArray | None = None,
        index: pd.Index | None = None,
    ) -> SurvivalCurves:
        """Take curves from a computation that makes no others: nothing is checked.

        Parameters
        ----------
        times : array of float
            Node times, strictly ascending, not negative, (T,).
        rows : array of float
            S at the nodes, within [0, 1] and never rising, one row per node, (T, n).
        interpolation : {"linear", "constant_hazard", "step"}, default "linear"
            How the curves run between these times.
        followed_to : array of float or None, default None
            Until when patients like each of these were followed, (n,).
        index : pandas Index or None, default None
            Names of the patients.

        Returns
        -------
        SurvivalCurves
            The curves.
        """
        out = object.__new__(cls)
        out.times, out.interpolation, out.transform = times, interpolation, None
        out.followed_to, out.index = followed_to, index
        out._knots, out._table, out._log_table = times, np.ascontiguousarray(rows), None
        if times[0] > 0:
            out._knots = np.append(0.0, times)
            out._table = np.concatenate([np.ones((1, rows.shape[1]), dtype=rows.dtype), rows])
        return out

    # --- what it holds ---------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        mapped = ", recalibrated" if self.transform is not None else ""
        return (
            f"SurvivalCurves({plural(len(self), 'patient')}, {plural(len(self.times), 'time')} from "
            f"{self.times[0]:g} to {self.times[-1]:g}, {self.interpolation}{mapped})"
        )

    @property
    def rows(self) -> npt.NDArray[Any]:
        """S at the nodes, one row each, before any transform, (T, n)."""
        return self._table[len(self._knots) - len(self.times) :]

    def to_frame(self, index: Any = None) -> pd.DataFrame:
        """Return the curves as a table.

        Parameters
        ----------
        index : pandas Index, sequence or None, default None
            Names of the patients; None: those that the curves carry, else their numbers.

        Returns
        -------
        DataFrame
            One row per patient and one column per time.
        """
        patients = self.index if index is None else index
        return pd.DataFrame(self.values, index=patients, columns=pd.Index(self.times, name="time"))

    @overload
    def __getitem__(self, rows: int | np.integer[Any]) -> SurvivalFunction: ...
    @overload
    def __getitem__(self, rows: slice | Sequence[int] | IntArray | BoolArray) -> SurvivalCurves: ...
    def __getitem__(self, rows: Any) -> SurvivalFunction | SurvivalCurves:
        if isinstance(rows, (int, np.integer)):
            if not -len(self) <= rows < len(self):
                raise IndexError(f"curve {rows} was asked for, but there are {len(self)}.")
            one = int(rows) % len(self)
            return SurvivalFunction(self[one : one + 1])
        out = self._with_table(self._knots, self._table[:, rows])
        out.followed_to = None if self.followed_to is None else self.followed_to[rows]
        out.index = None if self.index is None else self.index[rows]
        return out

    def __iter__(self) -> Iterator[SurvivalFunction]:
        return (self[i] for i in range(len(self)))

    def with_transform(self, transform: Transform | None) -> SurvivalCurves:
        """Return the same curves carrying another map.

        Parameters
        ----------
        transform : callable or None
            The map, see :class:`SurvivalCurves`; None takes the one there is away.

        Returns
        -------
        SurvivalCurves
            The curves with that map.
        """
        out = self._with_table(self._knots, self._table)
        out.transform = transform
        return out

    def project(self, times: npt.ArrayLike, *, interpolation: Interpolation | None = None) -> SurvivalCurves:
        """Return curves with other nodes, their values read from these; without a transform.

        Parameters
        ----------
        times : array-like of float
            The new nodes, strictly ascending.
        interpolation : {"linear", "constant_hazard", "step"} or None, default None
            How the new curves run between them; None: as these do.

        Returns
        -------
        SurvivalCurves
            The projected curves.
        """
        nodes = check_times(times)
        return SurvivalCurves(
            nodes,
            self.evaluate(nodes),
            interpolation=interpolation or self.interpolation,
            followed_to=self.followed_to,
            index=self.index,
        )

    def _with_table(self, knots: FloatArray, table: npt.NDArray[Any]) -> SurvivalCurves:
        """Build from values that were checked before."""
        out = object.__new__(SurvivalCurves)
        out.times = knots[-len(self.times) :] if knots is self._knots else knots
        out.interpolation, out.transform = self.interpolation, self.transform
        out.followed_to, out.index = self.followed_to, self.index
        out._knots, out._table, out._log_table = knots, np.ascontiguousarray(table), None
        return out

    def risk(self, t: npt.ArrayLike) -> FloatArray:
        """Return the probability of the event by a time, 1 - S(t).

        Parameters
        ----------
        t : array-like of float
            One time or several.

        Returns
        -------
        array of float
            (n,) for one time, (n, m) for m times.
        """
        return 1.0 - self(t)

    def cumulative_hazard(self, t: npt.ArrayLike) -> FloatArray:
        """Return -log S(t); S below 1e-12 counts as 1e-12, so that nothing is infinite.

        Parameters
        ----------
        t : array-like of float
            One time or several.

        Returns
        -------
        array of float
            (n,) for one time, (n, m) for m times.
        """
        return -np.log(np.maximum(self(t), SMALLEST_SURVIVAL))

    # --- summaries -------------------------------------------------------------------------------------------

    def median(self) -> FloatArray:
        """Return the median survival time of each patient, (n,); NaN where the curve stays above one half."""
        return self.quantile(0.5)

    def quantile(self, p: float) -> FloatArray:
        """Return the first time by which the event has a probability, S(t) <= 1 - p.

        Parameters
        ----------
        p : float
            A probability above 0 and below 1.

        Returns
        -------
        array of float
            One time per patient, (n,); NaN where it is never reached.
        """
        if not 0 < p < 1:
            raise ValueError(f"p is {p}, but a probability between 0 and 1 is expected; 0.5 is the median.")
        return time_at(self, self._knots, 1 - p)

    def rmst(self, t: float | None = None) -> FloatArray:
        """Return the mean survival time restricted to a time: the area under S up to it.

        Parameters
        ----------
        t : float or None, default None
            Up to when; None: the last node.

        Returns
        -------
        array of float
            One mean per patient, (n,). Exact without a transform; with one, the trapezoid rule on eight pieces per
            interval.
        """
        return area_below(self, self._knots, float(self.times[-1]) if t is None else one_time(t))

    def conditional(self, after: float) -> SurvivalCurves:
        """Return the curves of patients known to have survived until a time: S(after + u) / S(after) over u.

        Parameters
        ----------
        after : float
            Until when they are known to have survived.

        Returns
        -------
        SurvivalCurves
            Curves over the time since then; a transform is worked into the node values.
        """
        start = one_time(after)
        if start >= self.times[-1]:
            raise ValueError(
                f"after is {start:g}, but the curves end at {self.times[-1]:g}: nothing is known beyond. "
                "Choose an earlier time."
            )
        alive = self.evaluate_rows(np.array([start]))[0]
        if (alive <= 0).any():
            raise ValueError(
                f"{int((alive <= 0).sum())} of {len(self)} curves are 0 at {start:g}; survival from there on is "
                "undefined. Choose an earlier time or leave these patients out."
            )
        later = np.append(start, self._knots[self._knots > start])
        table = np.minimum(self.evaluate_rows(later) / alive, 1.0)
        out = self._with_table(later - start, table)
        out.transform = None
        out.followed_to = None if self.followed_to is None else np.maximum(self.followed_to - start, 0.0)
        return out

    def plot(
        self,
        ax: Axes | None = None,
        *,
        rows: Sequence[int] | None = None,
        labels: Sequence[str] | None = None,
        time_unit: str = "",
    ) -> Axes:
        """Draw the curves of some patients; what lies beyond the follow-up of patients like these is dashed.

        Parameters
        ----------
        ax : Axes or None, default None
            Where to draw; None: on a new figure.
        rows : sequence of int or None, default None
            Row numbers of the patients; None: the first ten.
        labels : sequence of str or None, default None
            What to call them; None: by their numbers.
        time_unit : str, default ""
            What the times are measured in, such as ``"days"``.

        Returns
        -------
        Axes
            What was drawn on.
        """
        from dcsurv.curves.drawing import draw_curves

        return draw_curves(self, ax, rows=rows, labels=labels, time_unit=time_unit)


def as_curves(curves: Any, n_rows: int | None = None) -> SurvivalCurves:
    """Take curves in any form that metrics accept.

    Parameters
    ----------
    curves : SurvivalCurves, tuple or DataFrame
        Also ``(values, times)``, or a DataFrame with one row per patient and one column per time.
    n_rows : int or None, default None
        How many there must be; None: any number.

    Returns
    -------
    SurvivalCurves
        The curves.
    """
    if isinstance(curves, pd.DataFrame):
        out = SurvivalCurves.from_frame(curves)
    elif isinstance(curves, tuple) and len(curves) == 2:
        out = SurvivalCurves(curves[1], curves[0])
    elif isinstance(curves, SurvivalCurves):
        out = curves
    else:
        raise ValueError(
            f"curves are expected as SurvivalCurves, as a tuple (values, times) or as a DataFrame with one row per "
            f"patient; got {type(curves).__name__}."
        )
    if n_rows is not None and len(out) != n_rows:
        raise ValueError(
            f"curves and y differ: {plural(len(out), 'curve')} for {plural(n_rows, 'patient')}. Pass predictions for "
            "the same patients, in the same order, one row each."
        )
    return out
