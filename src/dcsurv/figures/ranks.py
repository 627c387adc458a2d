"""Mean ranks of many learners over many cohorts, and which of them cannot be told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dcsurv.figures.style import DARK, GREY, PALETTE, PANEL_WIDTH, new_figure, plain, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# In inches: a line of text, a bar of learners that cannot be told apart, and what stands above the first bar.
_LINE, _BAR, _HEAD = 0.19, 0.09, 0.62
_LETTER = 0.064  # in bold
_NAME_LETTERS = 16


@styled
def mean_ranks(
    ranks: pd.Series, groups: Sequence[tuple[int, int]], difference: float, *, highlight: str | None = None
) -> Figure:
    """Draw a critical-difference diagram: mean ranks on an axis, bars over those that cannot be told apart.

    Parameters
    ----------
    ranks : Series
        Mean ranks by learner, ascending.
    groups : sequence of tuple of int
        First and last position of the learners under each bar.
    difference : float
        The critical difference, drawn to scale above the axis.
    highlight : str or None, default None
        The learner that stands out.

    Returns
    -------
    matplotlib.figure.Figure
        Narrow enough for a phone.
    """
    values = ranks.to_numpy(dtype=float)
    if len(values) < 2 or (np.diff(values) < 0).any():
        raise ValueError("ranks must be ascending mean ranks of at least two learners; sort them first.")
    longest = max(len(plain(name, _NAME_LETTERS)) for name in ranks.index)
    side = 0.15 + _LETTER * (longest + 5)  # room for the names, and their ranks, on either side
    half = math.ceil(len(values) / 2)
    top = _HEAD + _BAR * (len(groups) + 1)  # where names begin
    height = top + _LINE * half + 0.05
    low, high = 1.0, float(math.ceil(max(len(values), values[-1])))
    scale = (PANEL_WIDTH - 2 * side) / (high - low)
    figure = new_figure(PANEL_WIDTH, height)
    figure.set_layout_engine("none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, PANEL_WIDTH), ylim=(height, 0))
    ax.axis("off")

    def x(rank: float) -> float:
        return side + (rank - low) * scale

    line: dict[str, Any] = {"color": DARK, "linewidth": 0.8, "solid_capstyle": "butt"}
    axis = _HEAD - 0.08
    ax.plot([x(low), x(high)], [axis, axis], **line)
    step = next(one for one in (1, 2, 5, 10, 20, 50) if (high - low) / one <= 8)
    for tick in [1, *range(step, int(high) + 1, step)]:
        if tick == 1 or tick - 1 >= step / 2:
            ax.plot([x(tick), x(tick)], [axis, axis - 0.05], **line)
            ax.text(x(tick), axis - 0.07, f"{tick}", ha="center", va="bottom", fontsize=8, color=DARK)
    shown = min(difference, high - low)
    for end in (0.0, shown * scale):
        ax.plot([side + end] * 2, [0.17, 0.25], **line)
    ax.plot([side, side + shown * scale], [0.21, 0.21], **line)
    text = f"critical difference {difference:.1f}"
    ax.text(side, 0.13, text, ha="left", va="bottom", fontsize=8, color=DARK)
    for k, (first, last) in enumerate(groups):
        y = _HEAD + _BAR * (k + 0.5)
        ends = [x(values[first]) - 0.03, x(values[last]) + 0.03]
        ax.plot(ends, [y, y], color=GREY, linewidth=3, solid_capstyle="butt", zorder=3)
    for k, (name, rank) in enumerate(zip(ranks.index, values, strict=True)):
        left = k < half
        y = top + _LINE * ((k if left else len(values) - 1 - k) + 0.5)
        ours = name == highlight
        colour = PALETTE[0] if ours else DARK
        end = side - 0.05 if left else PANEL_WIDTH - side + 0.05
        width, order = (2.0, 5) if ours else (0.6, 2)
        ax.plot([x(rank), x(rank), end], [axis, y, y], color=colour, linewidth=width, zorder=order)
        label = f"{plain(name, _NAME_LETTERS)} {rank:.1f}" if left else f"{rank:.1f} {plain(name, _NAME_LETTERS)}"
        weight = "bold" if ours else "normal"
        place = end - 0.04 if left else end + 0.04
        ax.text(
            place, y, label, ha="right" if left else "left", va="center", fontsize=8, color=colour, fontweight=weight
        )
    return figure
