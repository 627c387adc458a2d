"""Figures that say why: waterfall, bands over time, beeswarm, what-if, nomogram. From plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dcsurv.figures.nomograms import nomogram as nomogram
from dcsurv.figures.style import (
    DARK,
    DASHED,
    GREY,
    PALE,
    PALETTE,
    PANEL_HEIGHT,
    PANEL_WIDTH,
    mark,
    new_figure,
    plain,
    styled,
    time_label,
)
from dcsurv.target import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Rows or bands that can be told apart; the others are drawn together.
MOST_SHOWN = 9
_MOST_BANDS = 4
_MOST_DOTS = 400
_MOST_LINES = 40
_LETTERS = 26
_RAISES, _LOWERS = PALETTE[1], PALETTE[0]


def _largest(size: FloatArray, most: int) -> tuple[list[int], list[int]]:
    """Return the places of the largest, the largest first, and those of the rest."""
    order = [int(k) for k in np.argsort(-size, kind="stable")]
    return (order, []) if len(order) <= most else (order[: most - 1], order[most - 1 :])


@styled
def waterfall(values: FloatArray, labels: Sequence[str], *, base: float, when: str) -> Figure:
    """Draw the way from the average risk to the risk of one patient, feature by feature.

    Parameters
    ----------
    values : array of shape (p,)
        How much each feature raises the risk.
    labels : sequence of str
        The features with the patient's values.
    base : float
        The average risk.
    when : str
        By when, in words.

    Returns
    -------
    matplotlib.figure.Figure
        A bar per feature, the largest first.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.figures import explanation
    >>> figure = explanation.waterfall(np.array([0.2, -0.05]), ["age = 81", "grade = 1"], base=0.3, when="5 years")
    >>> figure.axes[0].get_xlabel()
    'risk by 5 years (%)'
    """
    kept, rest = _largest(np.abs(values), MOST_SHOWN)
    steps = [float(values[k]) for k in kept] + ([float(values[rest].sum())] if rest else [])
    names = [plain(labels[k], _LETTERS) for k in kept] + ([f"{len(rest)} other features"] if rest else [])
    figure = new_figure(PANEL_WIDTH, 1.3 + 0.3 * len(steps))
    ax = figure.subplots()
    ends = base + np.cumsum(steps)
    starts = np.append(base, ends[:-1])
    for row, (start, step) in enumerate(zip(starts, steps, strict=True)):
        ax.barh(row, 100 * step, left=100 * start, height=0.62, color=_RAISES if step > 0 else _LOWERS)
        ax.plot([100 * (start + step)] * 2, [row + 0.31, row + 0.69], color=GREY, linewidth=0.7)
    low, high = 100 * min(base, *ends), 100 * max(base, *ends)
    room = 0.2 * max(high - low, 1.0)
    for row, (start, step) in enumerate(zip(starts, steps, strict=True)):
        edge = 100 * max(start, start + step)
        text = f"{100 * step:+.1f}".replace("-", "−")
        ax.text(edge + 0.08 * room, row, text, va="center", ha="left", fontsize=8, color=DARK)
    ax.axvline(100 * base, color=GREY, linewidth=0.8, linestyle=DASHED, zorder=0)
    ax.set_yticks(range(len(steps)), names)
    ax.set(xlim=(low - 0.25 * room, high + room), ylim=(len(steps) - 0.4, -0.6), xlabel=f"risk by {when} (%)")
    ax.tick_params(axis="y", length=0)
    handles = [
        mark("raises the predicted risk", color=_RAISES, marker="s"),
        mark("lowers it", color=_LOWERS, marker="s"),
        mark(f"average risk {100 * base:.1f}%", color=GREY, linestyle=DASHED),
        mark(f"this patient {100 * ends[-1]:.1f}%", color="none"),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=2, columnspacing=1.2)
    return figure


@styled
def bands_over_time(
    times: FloatArray,
    values: FloatArray,
    base: FloatArray,
    labels: Sequence[str],
    *,
    unit: str | None = None,
    scale: str = "survival",
) -> Figure:
    """Draw what the features add to and take from the survival of one patient over time.

    Parameters
    ----------
    times : array of shape (T,)
        The times.
    values : array of shape (p, T)
        What each feature adds.
    base : array of shape (T,)
        Average survival.
    labels : sequence of str
        The features with the patient's values.
    unit : str or None, default None
        What times are measured in.
    scale : str, default "survival"
        What the values are of.

    Returns
    -------
    matplotlib.figure.Figure
        Bands above 0 raise survival, bands below lower it; above, the patient's curve and the average.
    """
    kept, rest = _largest(np.abs(values).mean(axis=1), _MOST_BANDS + 1)
    parts = [values[k] for k in kept] + ([values[rest].sum(axis=0)] if rest else [])
    names = [plain(labels[k], _LETTERS) for k in kept] + ([f"{len(rest)} other features"] if rest else [])
    colors = [*PALETTE[: len(kept)], *([GREY] if rest else [])]
    survival = scale == "survival"
    figure = new_figure(PANEL_WIDTH, PANEL_HEIGHT + (1.9 if survival else 0.6))
    if survival:
        above, ax = figure.subplots(2, 1, height_ratios=[1, 1.3], sharex=True)
        t = np.append(0.0, times)
        above.plot(t, 100 * np.append(1.0, base), color=GREY, linestyle=DASHED)
        above.plot(t, 100 * np.append(1.0, base + values.sum(axis=0)), color=DARK, linewidth=1.6)
        above.set(ylim=(0, 102), ylabel="survival (%)")
    else:
        ax = figure.subplots()
    factor = 100.0 if survival else 1.0
    up, down = np.zeros(len(times)), np.zeros(len(times))
    for part, color in zip(parts, colors, strict=True):
        raised, lowered = np.maximum(part, 0), np.minimum(part, 0)
        ax.fill_between(times, factor * up, factor * (up + raised), color=color, alpha=0.75, linewidth=0)
        ax.fill_between(times, factor * down, factor * (down + lowered), color=color, alpha=0.75, linewidth=0)
        up, down = up + raised, down + lowered
    ax.plot(times, factor * values.sum(axis=0), color=DARK, linewidth=1.4)
    ax.axhline(0, color=GREY, linewidth=0.8)
    ylabel = "change of survival\n(percentage points)" if survival else f"change of the {scale}"
    ax.set(xlim=(0, times[-1]), xlabel=time_label(unit), ylabel=ylabel)
    handles = [mark(name, color=color, marker="s") for name, color in zip(names, colors, strict=True)]
    handles += [mark("this patient", color=DARK, linestyle="-"), mark("average", color=GREY, linestyle=DASHED)]
    figure.legend(handles=handles[: None if survival else -1], loc="outside upper left", ncols=2, columnspacing=1)
    return figure


@styled
def beeswarm(values: FloatArray, ranks: FloatArray, features: Sequence[str], *, when: str) -> Figure:
    """Draw what each feature makes of the risk of every patient, a dot each.

    Parameters
    ----------
    values : array of shape (n, p)
        How much each feature raises the risk of each patient.
    ranks : array of shape (n, p)
        Where the patient's value lies among all, from 0 (lowest) to 1; NaN, such as for a category, is grey.
    features : sequence of str
        Names of the features.
    when : str
        By when, in words.

    Returns
    -------
    matplotlib.figure.Figure
        A row per feature, the most important first.
    """
    from matplotlib.colors import LinearSegmentedColormap

    kept = [int(k) for k in np.argsort(-np.abs(values).mean(axis=0), kind="stable")][: MOST_SHOWN + 3]
    rows = np.linspace(0, len(values) - 1, min(len(values), _MOST_DOTS)).astype(np.int64)
    colors = LinearSegmentedColormap.from_list("low to high", [_LOWERS, PALE, _RAISES])
    figure = new_figure(PANEL_WIDTH, 1.2 + 0.34 * len(kept))
    ax = figure.subplots()
    ax.axvline(0, color=GREY, linewidth=0.8, linestyle=DASHED, zorder=0)
    width = max(float(np.abs(values).max()), 1e-9)
    for row, k in enumerate(kept):
        own = values[rows, k]
        shade = ranks[rows, k]
        fill = np.where(np.isnan(shade)[:, None], [0.53, 0.53, 0.53, 1.0], colors(np.nan_to_num(shade, nan=0.5)))
        ax.scatter(100 * own, row + _offsets(own, width), c=fill, s=7, linewidth=0.2, edgecolor=GREY)
    ax.set_yticks(range(len(kept)), [plain(features[k]) for k in kept])
    ax.set(ylim=(len(kept) - 0.4, -0.6), xlabel=f"change of the risk by {when}\n(percentage points)")
    ax.tick_params(axis="y", length=0)
    handles = [
        mark("low value", color=_LOWERS, marker="o", markersize=4),
        mark("middle", color=PALE, marker="o", markersize=4),
        mark("high value", color=_RAISES, marker="o", markersize=4),
    ]
    if np.isnan(ranks[:, kept]).any():
        handles.append(mark("no order", color=GREY, marker="o", markersize=4))
    figure.legend(handles=handles, loc="outside upper left", ncols=4, columnspacing=1, handletextpad=0.1)
    return figure


def _offsets(values: FloatArray, width: float) -> FloatArray:
    """Return how far dots move off their line so that those with about the same value lie beside each other."""
    bins = np.round(40 * values / width).astype(np.int64)
    out = np.zeros(len(values))
    crowd = max(int(np.bincount(bins - bins.min()).max(initial=1)), 1)
    step = 0.76 / max(crowd, 12)
    for one in np.unique(bins):
        members = np.flatnonzero(bins == one)
        place = np.arange(1, len(members) + 1) // 2
        out[members] = np.where(np.arange(len(members)) % 2, place, -place) * step
    return out


@styled
def what_if_curves(
    grid: npt.NDArray[Any],
    curves: FloatArray,
    mean: FloatArray,
    local: FloatArray | None,
    density: FloatArray,
    feature: str,
    *,
    own: tuple[float, float] | None = None,
    when: str,
) -> Figure:
    """Draw predicted survival at one time against the value of a feature, with the data's density beneath.

    Parameters
    ----------
    grid : array of shape (G,)
        Values of the feature.
    curves : array of shape (n, G)
        Survival of each patient with each value.
    mean : array of shape (G,)
        Their mean, partial dependence.
    local : array of shape (G,) or None
        Accumulated local effects.
    density : array of shape (G,)
        Share of patients near each value.
    feature : str
        Its name.
    own : tuple of float or None, default None
        Where one patient is: the value of the feature (of a category, the place of its level), and survival with it.
    when : str
        At what time, in words.

    Returns
    -------
    matplotlib.figure.Figure
        Lines above, density below.
    """
    figure = new_figure(PANEL_WIDTH, PANEL_HEIGHT + 0.6)
    ax, below = figure.subplots(2, 1, height_ratios=[5, 1], sharex=True)
    numbers = grid.dtype.kind == "f"
    at = grid.astype(np.float64) if numbers else np.arange(len(grid), dtype=np.float64)
    rows = np.linspace(0, len(curves) - 1, min(len(curves), _MOST_LINES)).astype(np.int64)
    one = len(curves) == 1
    for row in rows:
        look = {"color": PALETTE[0], "linewidth": 1.6} if one else {"color": GREY, "linewidth": 0.5, "alpha": 0.5}
        ax.plot(at, 100 * curves[row], marker="" if numbers else "o", markersize=3, **look)
    handles = [mark("this patient" if one else "single patients", linestyle="-", color=PALETTE[0] if one else GREY)]
    if own is not None:
        ax.plot(own[0], 100 * own[1], marker="D", color=PALETTE[1], markersize=6, linestyle="", zorder=3)
        handles.append(mark("own value", marker="D", linestyle="", color=PALETTE[1]))
    if not one:
        ax.plot(at, 100 * mean, color=PALETTE[0], linewidth=1.8, marker="" if numbers else "o", markersize=4)
        handles.append(mark("their mean", linestyle="-", color=PALETTE[0]))
    if local is not None and not one:
        ax.plot(at, 100 * local, color=PALETTE[1], linestyle=DASHED, linewidth=1.6)
        handles.append(mark("accumulated local effects", linestyle=DASHED, color=PALETTE[1]))
    ax.set(ylabel=f"survival at {when} (%)", ylim=(0, 102))
    if numbers and len(at) > 10:
        below.fill_between(at, density, color=PALE, linewidth=0, step="mid")
    else:
        below.bar(at, density, width=0.5 * (np.diff(at).min() if len(at) > 1 else 1.0), color=PALE)
    if not numbers:
        below.set_xticks(at, [plain(value, 12) for value in grid])
    below.set(xlabel=plain(feature), ylim=(0, None), ylabel="patients")
    below.set_yticks([])
    figure.legend(handles=handles, loc="outside upper left", ncols=2, columnspacing=1)
    return figure


@styled
def what_if_map(
    grid: Sequence[npt.NDArray[Any]],
    mean: FloatArray,
    density: Sequence[FloatArray],
    features: Sequence[str],
    *,
    when: str,
) -> Figure:
    """Draw mean predicted survival at one time for every pair of values of two features.

    Parameters
    ----------
    grid : sequence of two arrays
        Values of the features.
    mean : array of shape (G, H)
        Survival for each pair.
    density : sequence of two arrays
        Share of patients near each value.
    features : sequence of str
        Their names.
    when : str
        At what time, in words.

    Returns
    -------
    matplotlib.figure.Figure
        A map with the number in every field; names of values that few patients have are in brackets.
    """
    figure = new_figure(max(PANEL_WIDTH, 1.4 + 0.5 * len(grid[0])), 1.2 + 0.3 * len(grid[1]))
    ax = figure.subplots()
    ax.imshow(mean.T, cmap="Blues_r", vmin=min(0.0, float(mean.min())), vmax=1.35, aspect="auto", origin="lower")
    for k in range(mean.shape[0]):
        for j in range(mean.shape[1]):
            color = "#ffffff" if mean[k, j] < 0.45 else DARK
            ax.text(k, j, f"{100 * mean[k, j]:.0f}", ha="center", va="center", fontsize=8, color=color)
    for axis, values, shares in zip((ax.xaxis, ax.yaxis), grid, density, strict=True):
        names = [plain(f"{value:.3g}" if isinstance(value, float) else value, 10) for value in values.tolist()]
        axis.set_ticks(
            range(len(values)),
            [name if share >= 0.01 else f"({name})" for name, share in zip(names, shares, strict=True)],
        )
    ax.set(xlabel=plain(features[0]), ylabel=plain(features[1]))
    ax.tick_params(length=0)
    ax.set_title(f"mean survival at {when} (%)", loc="left", color=DARK)
    return figure
