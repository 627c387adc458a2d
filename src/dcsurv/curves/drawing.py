"""The curves of a few patients as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dcsurv.durations import time_label
from dcsurv.target import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dcsurv.curves.survival_curves import SurvivalCurves

# More curves than this are not told apart by a legend.
_MOST_LABELS = 10


def draw_curves(
    curves: SurvivalCurves,
    ax: Axes | None = None,
    *,
    rows: Sequence[int] | None = None,
    labels: Sequence[str] | None = None,
    time_unit: str = "",
) -> Axes:
    """Draw the curves of some patients; see :meth:`SurvivalCurves.plot`."""
    import matplotlib.pyplot as plt

    chosen = list(range(min(len(curves), _MOST_LABELS))) if rows is None else list(rows)
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    names = [f"patient {i}" for i in chosen] if labels is None else list(labels)
    if len(names) != len(chosen):
        raise ValueError(f"{len(names)} labels arrived for {len(chosen)} curves.")
    style: Any = "steps-post" if curves.interpolation == "step" else "default"
    ends = np.full(len(curves), np.inf) if curves.followed_to is None else np.nan_to_num(curves.followed_to, nan=np.inf)
    for i, name in zip(chosen, names, strict=True):
        known, beyond = _parts(curves[[i]], float(ends[i]))
        (line,) = ax.plot(*known, label=name, drawstyle=style)
        if len(beyond[0]):
            ax.plot(*beyond, color=line.get_color(), linestyle=(0, (4, 3)), drawstyle=style)
    ax.set(xlabel=time_label(time_unit), ylabel="probability of survival")
    ax.set_ylim(0, 1.02)
    ax.set_xlim(left=0)
    ax.spines[["top", "right"]].set_visible(False)
    if len(chosen) <= _MOST_LABELS:
        ax.legend(frameon=False, fontsize="small")
    return ax


def _parts(curve: SurvivalCurves, end: float) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
    """Return times and survival of one curve up to a time, and from there on; empty if nothing lies beyond."""
    knots = np.union1d(0.0, curve.times)
    if end >= knots[-1]:
        return (knots, curve.evaluate(knots)[0]), (np.zeros(0), np.zeros(0))
    before, after = (np.union1d(some, end) for some in (knots[knots < end], knots[knots > end]))
    return (before, curve.evaluate(before)[0]), (after, curve.evaluate(after)[0])
