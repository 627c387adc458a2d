"""Survival curves S(t | x): the one type that models return, metrics read and figures draw.

The only interpolation of the library is here. A recalibration map may ride along as ``transform``; it is applied
to S(t) *after* interpolating, because mapping the nodes first could change the order of two patients between them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, overload

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.target import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Interpolation: TypeAlias = Literal["linear", "constant_hazard", "step"]
Transform: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]

# A curve may rise by this much through rounding (float32 products, averages) and is then flattened silently.
_ROUNDING = 1e-6
# -log S is infinite where S = 0; survival below this counts as this.
_SMALLEST_SURVIVAL = 1e-12
# Intervals are cut in this many pieces to integrate a curve that a transform bends between nodes.
_PIECES = 8
_BISECTIONS = 60


class SurvivalCurves:
    """Survival curves of n patients on a common set of T node times.

    Parameters
    ----------
    times
        Node times, strictly ascending, finite, not negative, (T,). S(0) = 1 is implied when they start later.
    values
        S at the nodes, within [0, 1] and never rising along time, (n, T); (T,) is one patient.
    interpolation
        Between nodes: ``"linear"`` in S (what the paper does), ``"constant_hazard"`` (linear in log S), or
        ``"step"`` (the value of the last node at or before t, as Kaplan-Meier).
    transform
        An increasing map of survival probabilities, ``transform(survival, times) -> survival``, applied after
        interpolating; the two arguments broadcast against each other. It must keep 0 and 1 in [0, 1].
    followed_to
        Until when patients like each of these were followed, (n,); :meth:`plot` draws dashed what lies beyond. NaN, or
        None for all: not known.

    Notes
    -----
    Beyond the last node a curve is held constant; ``curves(t)`` warns then.
    """

    def __init__(
        self,
        times: npt.ArrayLike,
        values: npt.ArrayLike,
        *,
        interpolation: Interpolation = "linear",
        transform: Transform | None = None,
        followed_to: npt.ArrayLike | None = None,
    ) -> None:
        if interpolation not in get_args(Interpolation):
            raise ValueError(
                f"interpolation is {interpolation!r}, but 'linear', 'constant_hazard' or 'step' is expected."
            )
        self.times = _check_times(times)
        table = _check_values(values, len(self.times))
        self.interpolation: Interpolation = interpolation
        self.transform = transform
        self.followed_to = _check_followed(followed_to, table.shape[1])
        if self.times[0] > 0:
            self._knots = np.concatenate([[0.0], self.times])
            table = np.concatenate([np.ones((1, table.shape[1]), dtype=table.dtype), table])
        else:
            self._knots = self.times
        # One row per node: a time reads two neighbouring rows for all patients at once.
        self._table = np.ascontiguousarray(table)
        self._log_table: FloatArray | None = None

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, *, interpolation: Interpolation = "linear") -> SurvivalCurves:
        """Read curves from a DataFrame with one row per patient and the times as column names.

        pycox and lifelines keep one column per patient: pass ``frame.T`` for theirs.
        """
        try:
            times = frame.columns.to_numpy(dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"the column names {list(frame.columns[:3])}... are not times. Expected one row per patient and "
                "one column per time; transpose the frame if it is the other way round."
            ) from None
        return cls(times, frame.to_numpy(dtype=np.float64), interpolation=interpolation)

    # --- what it holds ---------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._table.shape[1])

    def __repr__(self) -> str:
        mapped = ", recalibrated" if self.transform is not None else ""
        return (
            f"SurvivalCurves({len(self)} patients, {len(self.times)} times from {self.times[0]:g} to "
            f"{self.times[-1]:g}, {self.interpolation}{mapped})"
        )

    @property
    def values(self) -> FloatArray:
        """S at ``times``, (n, T), the transform applied."""
        return self.evaluate(self.times)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self.values, dtype=dtype)

    def to_frame(self, index: Any = None) -> pd.DataFrame:
        """Return one row per patient and one column per time."""
        return pd.DataFrame(self.values, index=index, columns=pd.Index(self.times, name="time"))

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
        return out

    def __iter__(self) -> Iterator[SurvivalFunction]:
        return (self[i] for i in range(len(self)))

    def with_transform(self, transform: Transform | None) -> SurvivalCurves:
        """Return the same curves carrying another map (or none)."""
        out = self._with_table(self._knots, self._table)
        out.transform = transform
        return out

    def project(self, times: npt.ArrayLike, *, interpolation: Interpolation | None = None) -> SurvivalCurves:
        """Return curves with other nodes, their values read from these; without a transform."""
        nodes = _check_times(times)
        return SurvivalCurves(
            nodes,
            self.evaluate(nodes),
            interpolation=interpolation or self.interpolation,
            followed_to=self.followed_to,
        )

    def _with_table(self, knots: FloatArray, table: npt.NDArray[Any]) -> SurvivalCurves:
        """Build from values that were checked before."""
        out = object.__new__(SurvivalCurves)
        out.times = knots[-len(self.times) :] if knots is self._knots else knots
        out.interpolation = self.interpolation
        out.transform = self.transform
        out.followed_to = self.followed_to
        out._knots = knots
        out._table = np.ascontiguousarray(table)
        out._log_table = None
        return out

    # --- S(t) ------------------------------------------------------------------------------------------------

    def __call__(self, t: npt.ArrayLike) -> FloatArray:
        """Return S(t) of every patient: (n,) for one time, (n, m) for m times."""
        asked = _check_query(t)
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
        """Return S(t), (n, m), for m checked times; beyond the last node held constant without a word."""
        return self.evaluate_rows(t).T

    def evaluate_rows(self, t: FloatArray, first: int = 0) -> FloatArray:
        """Return S(t) with one row per time, for the patients from ``first`` on, (m, n - first).

        The layout in which metrics read curves: all patients at one time lie side by side.
        """
        from dcsurv._interpolation import blend_rows

        left, share = self._locate(t)
        out = np.empty((len(t), len(self) - first))
        blend_rows(self._scale_table(), left, share, first, out)
        return self._finish(out, t[:, None])

    def at_own(self, time: npt.ArrayLike) -> FloatArray:
        """Return S_i(time_i), each patient's curve at that patient's own time, (n,)."""
        from dcsurv._interpolation import blend_own

        own = _check_query(time)
        if own.shape != (len(self),):
            raise ValueError(f"time has shape {own.shape}, but one time per curve, ({len(self)},), is expected.")
        left, share = self._locate(own)
        out = np.empty(len(self))
        blend_own(self._scale_table(), left, share, out)
        return self._finish(out, own)

    def risk(self, t: npt.ArrayLike) -> FloatArray:
        """Return the probability of the event by t, 1 - S(t)."""
        return 1.0 - self(t)

    def cumulative_hazard(self, t: npt.ArrayLike) -> FloatArray:
        """Return -log S(t); S below 1e-12 counts as 1e-12, so that nothing is infinite."""
        return -np.log(np.maximum(self(t), _SMALLEST_SURVIVAL))

    def _locate(self, t: FloatArray) -> tuple[IntArray, FloatArray]:
        """Find the knot to the left of each time and how far it lies towards the next one."""
        left = np.searchsorted(self._knots, t, side="right") - 1
        share = np.zeros(len(left))
        inside = left < len(self._knots) - 1
        if self.interpolation != "step":
            below = self._knots[left[inside]]
            share[inside] = (t[inside] - below) / (self._knots[left[inside] + 1] - below)
        return left, share

    def _scale_table(self) -> npt.NDArray[Any]:
        """Return the node values on the scale on which they are interpolated linearly."""
        if self.interpolation != "constant_hazard":
            return self._table
        if self._log_table is None:
            self._log_table = np.log(np.maximum(self._table.astype(np.float64), _SMALLEST_SURVIVAL))
        return self._log_table

    def _finish(self, out: FloatArray, t: FloatArray) -> FloatArray:
        if self.interpolation == "constant_hazard":
            np.exp(out, out=out)
        return out if self.transform is None else self.transform(out, t)

    # --- summaries -------------------------------------------------------------------------------------------

    def median(self) -> FloatArray:
        """Return the median survival time of each patient; NaN where the curve stays above one half."""
        return self.quantile(0.5)

    def quantile(self, p: float) -> FloatArray:
        """Return the first time by which the event has probability p, S(t) <= 1 - p; NaN where never reached."""
        if not 0 < p < 1:
            raise ValueError(f"p is {p}, but a probability between 0 and 1 is expected; 0.5 is the median.")
        level = 1 - p
        at_knots = self.evaluate_rows(self._knots)
        reached = at_knots <= level
        out = np.full(len(self), np.nan)
        rows = np.flatnonzero(reached.any(axis=0))
        if len(rows) == 0:
            return out
        hit = reached[:, rows].argmax(axis=0)
        low, high = self._knots[np.maximum(hit - 1, 0)], self._knots[hit]
        some = self[rows]
        for _ in range(_BISECTIONS):  # keeps S(high) <= level, for every interpolation and transform alike
            middle = (low + high) / 2
            below = some.at_own(middle) <= level
            high = np.where(below, middle, high)
            low = np.where(below, low, middle)
        out[rows] = high
        return out

    def rmst(self, t: float | None = None) -> FloatArray:
        """Return the mean survival time restricted to t (default: the last node), the area under S up to t.

        Exact without a transform; with one, the trapezoid rule on eight pieces per interval.
        """
        end = float(self.times[-1]) if t is None else _one_time(t)
        knots = np.append(self._knots[self._knots < end], end)
        if self.transform is not None:
            pieces = np.arange(_PIECES) / _PIECES
            knots = np.append((knots[:-1, None] + np.diff(knots)[:, None] * pieces).ravel(), end)
        width = np.diff(knots)
        rows = self.evaluate_rows(knots)
        before, after = rows[:-1], rows[1:]
        if self.interpolation == "step":
            mean = before
        elif self.interpolation == "constant_hazard" and self.transform is None:
            drop = np.log(np.maximum(before, _SMALLEST_SURVIVAL) / np.maximum(after, _SMALLEST_SURVIVAL))
            flat = drop < 1e-9
            mean = np.where(flat, before, (before - after) / np.where(flat, 1.0, drop))
        else:
            mean = (before + after) / 2
        return width @ mean

    def conditional(self, after: float) -> SurvivalCurves:
        """Return the curves of patients known to have survived until ``after``: S(after + u) / S(after) over u.

        A transform is worked into the node values.
        """
        start = _one_time(after)
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

    def _parts(self, row: int, end: float) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
        """Return times and survival of one curve up to a time, and from there on; empty if nothing lies beyond."""
        if end >= self.times[-1]:
            return (self._knots, self[[row]].evaluate(self._knots)[0]), (np.zeros(0), np.zeros(0))
        before, after = (
            np.union1d(some, end) for some in (self._knots[self._knots < end], self._knots[self._knots > end])
        )
        known, beyond = ((times, self[[row]].evaluate(times)[0]) for times in (before, after))
        return known, beyond

    def plot(
        self,
        ax: Axes | None = None,
        *,
        rows: Sequence[int] | None = None,
        labels: Sequence[str] | None = None,
        time_unit: str = "",
    ) -> Axes:
        """Draw the curves of some patients (default: the first ten) and return the axes.

        What lies beyond the follow-up of patients like these is dashed.
        """
        import matplotlib.pyplot as plt

        chosen = list(range(min(len(self), 10))) if rows is None else list(rows)
        if ax is None:
            _, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
        names = [f"patient {i}" for i in chosen] if labels is None else list(labels)
        if len(names) != len(chosen):
            raise ValueError(f"{len(names)} labels arrived for {len(chosen)} curves.")
        style: Any = "steps-post" if self.interpolation == "step" else "default"
        ends = np.full(len(self), np.inf) if self.followed_to is None else np.nan_to_num(self.followed_to, nan=np.inf)
        for i, name in zip(chosen, names, strict=True):
            known, beyond = self._parts(i, float(ends[i]))
            (line,) = ax.plot(*known, label=name, drawstyle=style)
            if len(beyond[0]):
                ax.plot(*beyond, color=line.get_color(), linestyle=(0, (4, 3)), drawstyle=style)
        ax.set(xlabel=f"time ({time_unit})" if time_unit else "time", ylabel="probability of survival")
        ax.set_ylim(0, 1.02)
        ax.set_xlim(left=0)
        ax.spines[["top", "right"]].set_visible(False)
        if len(chosen) <= 10:
            ax.legend(frameon=False, fontsize="small")
        return ax


class SurvivalFunction:
    """The survival curve of one patient, callable at one time or several."""

    def __init__(self, curves: SurvivalCurves) -> None:
        self._curves = curves

    @property
    def times(self) -> FloatArray:
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


def as_curves(curves: Any, n_rows: int | None = None) -> SurvivalCurves:
    """Take curves in any form that metrics accept: SurvivalCurves, ``(values, times)`` or a DataFrame."""
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
            f"there are {len(out)} curves for {n_rows} patients in y. Pass predictions for the same patients, in "
            "the same order, one row each."
        )
    return out


def _check_times(times: npt.ArrayLike) -> FloatArray:
    out = np.ascontiguousarray(times, dtype=np.float64)
    if out.ndim != 1 or len(out) == 0:
        raise ValueError(f"times has shape {out.shape}, but a one-dimensional array of node times is expected.")
    if not np.isfinite(out).all() or out[0] < 0:
        raise ValueError(f"times must be finite and not negative; got values from {out.min():g} to {out.max():g}.")
    if (np.diff(out) <= 0).any():
        where = int(np.flatnonzero(np.diff(out) <= 0)[0])
        raise ValueError(
            f"times must be strictly ascending, but {out[where]:g} is followed by {out[where + 1]:g} at position "
            f"{where + 1}. Sort them (with their values) and drop duplicates."
        )
    return out


def _check_values(values: npt.ArrayLike, n_times: int) -> npt.NDArray[Any]:
    """Return the values with one row per node, float32 if they came so, else float64."""
    table = np.asarray(values)
    if table.dtype != np.float32:
        try:
            table = table.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"values must be numbers; got {table.dtype}.") from None
    if table.ndim == 1:
        table = table[None, :]
    if table.ndim != 2 or table.shape[1] != n_times:
        raise ValueError(
            f"values has shape {np.shape(values)}, but (patients, {n_times}) is expected: one column per time. "
            "Transpose it if it has one row per time."
        )
    if len(table) == 0:
        raise ValueError("values has no rows. Pass the curve of at least one patient.")
    if np.isnan(table).any():
        raise ValueError(f"values holds NaN in {int(np.isnan(table).any(axis=1).sum())} of {len(table)} curves.")
    low, high = float(table.min()), float(table.max())
    if low < -_ROUNDING or high > 1 + _ROUNDING:
        raise ValueError(
            f"survival probabilities must lie in [0, 1]; got values from {low:g} to {high:g}. If these are risks or "
            "cumulative hazards, convert them first: 1 - risk, exp(-hazard)."
        )
    table = table.T
    rise = np.diff(table, axis=0)
    if rise.size and rise.max() > _ROUNDING:
        node, patient = np.unravel_index(int(rise.argmax()), rise.shape)
        raise ValueError(
            f"a survival curve must never rise, but curve {patient} rises by {rise.max():.3g} after time number "
            f"{node}. If these are probabilities of the event, pass 1 - values."
        )
    if (rise.size and rise.max() > 0) or low < 0 or high > 1:
        table = np.minimum.accumulate(np.clip(table, 0, 1), axis=0)
    return table


def _check_followed(followed_to: npt.ArrayLike | None, n: int) -> FloatArray | None:
    if followed_to is None:
        return None
    out = np.asarray(followed_to, dtype=np.float64)
    if out.shape != (n,):
        raise ValueError(f"followed_to has shape {out.shape}, but one time per curve, ({n},), is expected.")
    return out


def _one_time(t: float) -> float:
    asked = _check_query(t)
    if asked.ndim:
        raise ValueError(f"one time is expected here; got {asked.size}. Call it for each.")
    return float(asked)


def _check_query(t: npt.ArrayLike) -> FloatArray:
    asked = np.asarray(t, dtype=np.float64)
    if asked.ndim > 1:
        raise ValueError(f"t has shape {asked.shape}, but one time or a one-dimensional array is expected.")
    if not np.isfinite(asked).all() or (asked < 0).any():
        raise ValueError("times to read a curve at must be finite and not negative.")
    return asked
