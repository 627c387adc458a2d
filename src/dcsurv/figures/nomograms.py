"""A nomogram: a model of few features on one sheet. From plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dcsurv.figures.style import DARK, WIDTH, check_columns, new_figure, plain, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@styled
def nomogram(points: pd.DataFrame, risks: pd.DataFrame, *, unit: str | None = None) -> Figure:
    """Draw a nomogram: points of each feature's values, their sum, and the risk by each time.

    Parameters
    ----------
    points : DataFrame
        Columns ``feature, value, points``.
    risks : DataFrame
        Columns ``time, total, risk``.
    unit : str or None, default None
        What times are measured in.

    Returns
    -------
    matplotlib.figure.Figure
        One line per feature; below them total points and risks.
    """
    from dcsurv.durations import describe_time

    check_columns(points, ("feature", "value", "points"), "the table of points")
    check_columns(risks, ("time", "total", "risk"), "the table of risks")
    features = list(dict.fromkeys(points["feature"]))
    times = list(dict.fromkeys(risks["time"]))
    lines = 1 + len(features)
    figure = new_figure(WIDTH, 0.5 + 0.42 * (lines + 1 + len(times)))
    upper, lower = figure.subplots(2, 1, height_ratios=[lines, 1 + len(times)])
    _scale(upper, 0, "points", [(float(p), f"{p:.0f}") for p in np.arange(0, 101, 10)], 106)
    for row, name in enumerate(features, start=1):
        part = points[points["feature"] == name].sort_values("points")
        marks = [(float(p), plain(v, 12)) for p, v in zip(part["points"], part["value"], strict=True)]
        _scale(upper, row, plain(name), marks, 106)
    upper.set(xlim=(-2, 104), ylim=(lines - 0.4, -0.7))
    top = float(risks["total"].max())
    step = next(s for s in (10, 20, 50, 100, 200) if top / s <= 12 or s == 200)
    _scale(lower, 0, "total points", [(float(p), f"{p:.0f}") for p in np.arange(0, top + 1, step)], 1.06 * top)
    for row, t in enumerate(times, start=1):
        part = risks[risks["time"] == t]
        wanted = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99]
        inside = [r for r in wanted if part["risk"].min() <= r <= part["risk"].max()]
        marks = [(float(np.interp(r, part["risk"], part["total"])), f"{100 * r:.0f}%") for r in inside]
        _scale(lower, row, f"risk by {'' if unit else 'time '}{describe_time(t, unit, brief=True)}", marks, 1.06 * top)
    lower.set(xlim=(-0.02 * top, 1.04 * top), ylim=(len(times) + 0.6, -0.7))
    return figure


def _scale(ax: Axes, row: int, name: str, marks: Sequence[tuple[float, str]], span: float) -> None:
    """Draw one line with its marks; a text that would cover its neighbour goes above the line if there is room."""
    ax.axis("off")
    places = [place for place, _ in marks]
    ax.plot([min(places, default=0.0), max(places, default=0.0)], [row, row], color=DARK, linewidth=0.8)
    ax.text(-0.01, row, name, ha="right", va="center", fontsize=8.5, color=DARK, transform=ax.get_yaxis_transform())
    free = [-np.inf, -np.inf]  # below the line, and above
    for place, text in sorted(marks):
        ax.plot([place, place], [row, row + 0.14], color=DARK, linewidth=0.8)
        half = 0.0085 * max(len(text), 2) * span
        above = int(place - half < free[0])
        if place - half >= free[above]:
            y, side = (row - 0.06, "bottom") if above else (row + 0.2, "top")
            ax.text(place, y, text, ha="center", va=side, fontsize=7.5, color=DARK)
            free[above] = place + half
