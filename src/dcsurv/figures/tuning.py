"""Figures of a search of settings, from the table of its trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dcsurv.figures.style import (
    DARK,
    DASHED,
    GREY,
    PALE,
    PALETTE,
    RED,
    WIDTH,
    check_columns,
    mark,
    new_figure,
    styled,
)
from dcsurv.target import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# How trials that are not complete are marked, and called.
_ENDED = {
    "pruned": (GREY, "stopped: behind"),
    "slow": (PALETTE[1], "stopped: slow"),
    "failed": (RED, "failed"),
    "lost": (PALETTE[2], "lost, begun again"),
}
# Where a setting without part in a trial crosses its axis, below the axis's own values.
_NO_PART = -0.13
_BETTER = {"maximize": "higher", "minimize": "lower"}


@styled
def search_history(trials: pd.DataFrame, criterion: str, direction: str = "maximize") -> Figure:
    """Draw the criterion of every complete trial in order, the best so far, and below, which were not completed.

    Parameters
    ----------
    trials : DataFrame
        Columns ``number``, ``state`` and the criterion's.
    criterion : str
        Column of ``trials`` that the search went by.
    direction : str, default "maximize"
        Whether to ``"maximize"`` or ``"minimize"``.

    Returns
    -------
    matplotlib.figure.Figure
        Trials on the horizontal axis; below, marks of those that were not completed.

    Examples
    --------
    >>> import pandas as pd
    >>> from dcsurv.figures.tuning import search_history
    >>> trials = pd.DataFrame({"number": [0, 1, 2], "state": "complete", "C-td": [0.61, 0.66, 0.64]})
    >>> search_history(trials, "C-td").axes[0].get_ylabel().splitlines()[0]
    'C-td over the folds'
    """
    check_columns(trials, ("number", "state", criterion), "trials")
    complete = _complete(trials)
    figure = new_figure(WIDTH, 3.4)
    ax, rug = figure.subplots(2, 1, sharex=True, height_ratios=[7, 1])
    values = complete[criterion].to_numpy(np.float64)
    ax.plot(complete["number"], values, "o", markersize=4, color=PALETTE[0], alpha=0.7)
    best = (np.fmax if direction == "maximize" else np.fmin).accumulate(values)
    end = trials["number"].max()
    if len(best):
        ax.step([*complete["number"], end], [*best, best[-1]], where="post", color=DARK)
    ax.set(ylabel=f"{criterion} over the folds\n({_BETTER[direction]} is better)")
    ax.margins(x=0.02)
    handles = [
        mark("complete", marker="o", markersize=4, color=PALETTE[0]),
        mark("best so far", linestyle="-", color=DARK),
    ]
    for state, (color, label) in _ENDED.items():
        some = trials.loc[trials["state"] == state, "number"]
        if len(some):
            rug.plot(some, np.zeros(len(some)), "|", markersize=9, color=color)
            handles.append(mark(f"{label} ({len(some)})", marker="|", markersize=9, color=color))
    rug.set(yticks=[], xlabel="trial", ylim=(-1, 1))
    rug.spines["left"].set_visible(False)
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 3))
    return figure


@styled
def parameter_importance(importance: pd.Series, criterion: str) -> Figure:
    """Draw the share of the criterion that each parameter explains, the largest on top.

    Parameters
    ----------
    importance : Series
        The shares, from 0 to 1, by the name of the parameter.
    criterion : str
        What they are shares of.

    Returns
    -------
    matplotlib.figure.Figure
        One bar per parameter.
    """
    if importance.empty:
        raise ValueError("importance is empty. Pass a share for at least one parameter.")
    ordered = importance.sort_values()
    figure = new_figure(0.8 * WIDTH, 0.8 + 0.24 * len(ordered))
    ax = figure.subplots()
    ax.barh([_name(name) for name in ordered.index], ordered, color=PALETTE[0], height=0.7)
    for k, share in enumerate(ordered):
        ax.text(share, k, f" {100 * share:.0f} %", va="center", fontsize=8, color=DARK)
    ax.set(xlabel=f"importance for {criterion} (PED-ANOVA)", xlim=(0, 1.12 * ordered.max() or 1))
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    ax.tick_params(axis="y", length=0)
    return figure


@styled
def parallel_settings(
    trials: pd.DataFrame,
    parameters: Sequence[str],
    criterion: str,
    direction: str = "maximize",
    *,
    log: Sequence[str] = (),
) -> Figure:
    """Draw every complete trial as a line over its settings, coloured by the criterion; the best one stands out.

    Parameters
    ----------
    trials : DataFrame
        Columns ``state``, the criterion's and the parameters'. A missing setting has no part in its trial.
    parameters : sequence of str
        Columns of ``trials`` to draw; those that never vary are left out.
    criterion : str
        Column of ``trials`` that the search went by.
    direction : str, default "maximize"
        Whether to ``"maximize"`` or ``"minimize"``.
    log : sequence of str, default ()
        Parameters to be shown on a log scale.

    Returns
    -------
    matplotlib.figure.Figure
        One vertical axis per parameter; the best trial in red.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    check_columns(trials, ("state", criterion, *parameters), "trials")
    complete = _complete(trials).sort_values(criterion, ascending=direction == "maximize")
    if complete.empty:
        raise ValueError("trials has no complete trial, so there is nothing to draw.")
    varying = [name for name in parameters if complete[name].astype(object).nunique(dropna=False) > 1] or list(
        parameters
    )
    values = complete[criterion].to_numpy(np.float64)
    scale = Normalize(values.min(), values.max() if np.ptp(values) else values.min() + 1e-9)
    colors = "viridis" if direction == "maximize" else "viridis_r"
    figure = new_figure(max(WIDTH, 1.0 + 0.75 * (1 + len(varying))), 4.0)
    ax = figure.subplots()
    height = np.column_stack([_axis(ax, k, complete[name], name in log) for k, name in enumerate(varying)])
    shade = ScalarMappable(scale, colors)
    steps = np.arange(len(varying))
    for row, value in zip(height[:-1], values[:-1], strict=True):
        ax.plot(steps, row, color=shade.to_rgba(value), linewidth=0.9, alpha=0.75)
    ax.plot(steps, height[-1], color=RED, linewidth=2, marker="o", markersize=4)  # sorted: the last is the best
    ax.set_xticks(steps, [_name(name) for name in varying], rotation=35, ha="right", rotation_mode="anchor")
    ax.set(yticks=[], xlim=(-0.25, len(varying) - 0.35), ylim=(_NO_PART - 0.06, 1.06))
    ax.tick_params(axis="x", length=0)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.set_title(f"red: the best trial, {criterion} {values[-1]:.4g}", color=RED, loc="left")
    figure.colorbar(shade, ax=ax, label=f"{criterion} over the folds", pad=0.02, fraction=0.04)
    return figure


@styled
def pareto_front(
    trials: pd.DataFrame,
    front: pd.DataFrame,
    objectives: tuple[str, str],
    directions: tuple[str, str],
    *,
    chosen: int | None = None,
) -> Figure:
    """Draw two objectives of the complete trials and the front, which no other trial beats in both.

    Parameters
    ----------
    trials : DataFrame
        Columns ``number``, ``state`` and both objectives'.
    front : DataFrame
        Columns ``number`` and both objectives', of the trials on the front.
    objectives : tuple of (str, str)
        The two columns.
    directions : tuple of (str, str)
        For each whether to ``"maximize"`` or ``"minimize"``.
    chosen : int or None, default None
        Number of the trial to be marked as the choice.

    Returns
    -------
    matplotlib.figure.Figure
        The first objective on the horizontal axis.
    """
    check_columns(trials, ("number", "state", *objectives), "trials")
    check_columns(front, ("number", *objectives), "front")
    first, second = objectives
    others = _complete(trials)
    others = others[~others["number"].isin(front["number"])]
    figure = new_figure(0.75 * WIDTH, 3.8)
    ax = figure.subplots()
    ax.plot(others[first], others[second], "o", markersize=4, color=PALE, markeredgecolor=GREY, markeredgewidth=0.5)
    line = front.sort_values(first)
    ax.plot(line[first], line[second], color=PALETTE[0], linestyle=DASHED, linewidth=1)
    ax.plot(line[first], line[second], "o", markersize=5, color=PALETTE[0])
    handles = [
        mark("on the front", marker="o", markersize=5, color=PALETTE[0]),
        mark("beaten in both", marker="o", markersize=4, color=PALE, markeredgecolor=GREY),
    ]
    if chosen is not None:
        row = front[front["number"] == chosen]
        ax.plot(row[first], row[second], "o", markersize=11, fillstyle="none", color=RED, markeredgewidth=1.5)
        label = f"nearest to the best of both (trial {chosen})"
        handles.insert(0, mark(label, marker="o", markersize=8, fillstyle="none", color=RED))
    ax.set_xlabel(f"{first} ({_BETTER[directions[0]]} is better)")
    ax.set_ylabel(f"{second} ({_BETTER[directions[1]]} is better)")
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def _axis(ax: Axes, at: int, column: pd.Series, log: bool) -> FloatArray:
    """Draw one axis with its ends or values, and return where each trial crosses it."""
    known = column.dropna()
    levels = sorted(set(known), key=lambda value: (isinstance(value, str), value))
    numeric = all(isinstance(value, int | float | np.number) and not isinstance(value, bool) for value in levels)
    if numeric and len(levels) > 6:
        low, high = float(levels[0]), float(levels[-1])
        values = column.to_numpy(np.float64)
        scaled = np.log(values) if log else values
        height = (scaled - np.nanmin(scaled)) / (np.nanmax(scaled) - np.nanmin(scaled))
        ticks: list[tuple[float, Any]] = [(0.0, low), (1.0, high)]
    else:
        places = np.linspace(0, 1, len(levels)) if len(levels) > 1 else np.array([0.5])
        where = dict(zip(levels, places, strict=True))
        height = column.map(where).to_numpy(np.float64)
        ticks = [(float(place), level) for level, place in where.items()]
    ax.plot([at, at], [0, 1], color=DARK, linewidth=0.8, zorder=1)
    if column.isna().any():
        ticks.append((_NO_PART, "none"))
    for place, value in ticks:
        ax.text(at + 0.05, place, _value(value), fontsize=7, va="center", color=DARK, zorder=4, bbox=_HALO)
    return np.where(np.isnan(height), _NO_PART, height)


_HALO = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}


def _value(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return value if isinstance(value, str) else f"{value:.3g}"


def _name(parameter: Any) -> str:
    return str(parameter).split("__")[-1].replace("_", " ")


def _complete(trials: pd.DataFrame) -> pd.DataFrame:
    return trials[trials["state"] == "complete"].sort_values("number")
