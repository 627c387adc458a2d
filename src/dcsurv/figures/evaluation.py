"""Figures of an evaluation, each one panel that is still readable on a phone.

They take plain numbers (arrays, tables by model), so that a report, a notebook or a paper can draw them alike. None
shows a row of the data: curves are drawn on grids, predictions as histograms and groups.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv import durations
from dcsurv.figures.style import DARK, DASHED, GREY, PALE, PALETTE, check_columns, mark, new_figure, styled
from dcsurv.nonparametric import censoring_curve, kaplan_meier
from dcsurv.target import FloatArray, unpack

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_WIDTH, PANEL_HEIGHT = 4.4, 3.1
_LETTERS = 26
_AT_RISK_COLUMNS = 5


def plain(name: object, letters: int = _LETTERS) -> str:
    """Return a name from the data as matplotlib should print it: short, and a dollar sign is no formula."""
    text = textwrap.shorten(" ".join(str(name).split()) or " ", 10_000)
    text = text if len(text) <= letters else text[: letters - 1] + "…"
    return text.replace("$", r"\$")


def time_label(unit: str | None) -> str:
    return durations.time_label(plain(unit) if unit else None)


@styled
def follow_up(y: Any, *, unit: str | None = None, interval: pd.DataFrame | None = None) -> Figure:
    """Draw survival and follow-up of a cohort with the numbers at risk below.

    Parameters
    ----------
    y
        Outcome of the patients.
    interval
        Columns ``time, lower, upper``: a pointwise interval of the Kaplan-Meier curve.
    """
    time, event = unpack(y)
    end = float(time.max())
    figure = new_figure(PANEL_WIDTH, PANEL_HEIGHT + 0.3)
    ax, table = figure.subplots(2, 1, height_ratios=[6, 1], sharex=True)
    if interval is not None:
        check_columns(interval, ("time", "lower", "upper"), "interval")
        ax.fill_between(
            interval["time"],
            interval["lower"],
            interval["upper"],
            step="post",
            color=PALETTE[0],
            alpha=0.2,
            linewidth=0,
        )
    seen = censoring_curve((time, event), events_first=False)
    _steps(ax, seen, end, color=PALETTE[1], linestyle=DASHED)
    _steps(ax, kaplan_meier((time, event)), end, color=PALETTE[0])
    ax.set(ylim=(0, 1.02), xlim=(0, 1.02 * end if end > 0 else 1), ylabel="probability", xlabel=time_label(unit))
    ticks = [tick for tick in ax.get_xticks() if 0 <= tick <= end]
    ticks = ticks[:: -(-len(ticks) // (_AT_RISK_COLUMNS + 1))]
    ax.set_xticks(ticks)
    ax.tick_params(labelbottom=True)
    table.set_ylim(0, 1)
    table.axis("off")
    for tick in ticks:
        table.text(tick, 0.1, f"{int((time >= tick).sum()):,}", ha="center", va="center", fontsize=8, color=DARK)
    table.text(0, 0.9, "number at risk", ha="left", va="center", fontsize=8, color=DARK, fontstyle="italic")
    handles = [
        mark("still without the event (Kaplan-Meier)", color=PALETTE[0], linestyle="-"),
        mark("still under observation (reverse Kaplan-Meier)", color=PALETTE[1], linestyle=DASHED),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=1)
    return figure


@styled
def missing_values(share: pd.Series) -> Figure:
    """Draw the share of missing values of each feature, the feature's name being the index."""
    figure = new_figure(PANEL_WIDTH, 0.9 + 0.24 * len(share))
    ax = figure.subplots()
    ax.barh(range(len(share)), 100 * share.to_numpy(), color=PALETTE[0], height=0.7)
    for row, value in enumerate(share):
        ax.text(100 * value + 1, row, f"{100 * value:.1f}%", va="center", fontsize=8, color=DARK)
    ax.set_yticks(range(len(share)), [plain(name) for name in share.index])
    ax.set(xlim=(0, min(118, 112 * float(share.max()) + 12)), ylim=(len(share) - 0.4, -0.6), xlabel="missing (%)")
    ax.tick_params(axis="y", length=0)
    return figure


@styled
def metric_over_time(
    tables: Mapping[str, pd.DataFrame],
    *,
    ylabel: str,
    unit: str | None = None,
    horizons: Sequence[float] = (),
    chance: float | None = None,
) -> Figure:
    """Draw a metric over time, one line per model, with its interval where the table has one.

    Parameters
    ----------
    tables
        By model: ``time, value`` and maybe ``lower, upper``.
    horizons
        Marked by thin vertical lines.
    chance
        What guessing would score, a horizontal line.
    """
    figure = new_figure(PANEL_WIDTH, PANEL_HEIGHT)
    ax = figure.subplots()
    for t in horizons:
        ax.axvline(t, color=PALE, linewidth=0.8, zorder=0)
    if chance is not None:
        ax.axhline(chance, color=GREY, linewidth=0.8, linestyle=DASHED, zorder=0)
        where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "top"}
        ax.annotate("guessing", (0.02, chance), (0, -3), fontsize=8, color=GREY, **where)
    for (name, table), look in zip(tables.items(), _looks(), strict=False):
        check_columns(table, ("time", "value"), f"the table of {name!r}")
        if "lower" in table:
            ax.fill_between(table["time"], table["lower"], table["upper"], color=look["color"], alpha=0.15, linewidth=0)
        ax.plot(table["time"], table["value"], label=plain(name, 40), **look)
    ax.set(xlabel=time_label(unit), ylabel=ylabel)
    ax.set_xlim(left=0)
    if chance is not None:  # what the interval does at times with hardly an event must not flatten the curve
        lowest = min(float(table["value"].min()) for table in tables.values())
        ax.set_ylim(min(chance - 0.08, lowest - 0.02), 1.01)
    figure.legend(loc="outside upper left", ncols=min(3, len(tables)))
    return figure


@styled
def calibration_curve(
    predicted: npt.ArrayLike,
    observed: npt.ArrayLike,
    *,
    risks: npt.ArrayLike,
    groups: pd.DataFrame | None = None,
    label: str = "",
) -> Figure:
    """Draw observed against predicted risk, with groups of patients and the histogram of the predictions.

    Parameters
    ----------
    predicted, observed
        The smooth calibration curve, ascending in ``predicted``.
    risks
        All predicted risks; only their histogram is drawn.
    groups
        Columns ``predicted, observed`` and maybe ``lower, upper``: patients grouped by predicted risk.
    """
    x, y = np.asarray(predicted, dtype=np.float64), np.asarray(observed, dtype=np.float64)
    shown = np.quantile(x, np.linspace(0.005, 0.995, 100))  # a grid: no patient's own prediction is in the file
    figure = new_figure(PANEL_WIDTH, PANEL_HEIGHT + 0.7)
    ax, below = figure.subplots(2, 1, height_ratios=[6, 1], sharex=True)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=DASHED)
    ax.plot(shown, np.interp(shown, x, y), color=PALETTE[0], linewidth=1.6)
    top = max(float(x.max()), float(y.max()))
    handles = [mark("smooth calibration curve", color=PALETTE[0], linestyle="-")]
    if groups is not None:
        check_columns(groups, ("predicted", "observed"), "groups")
        ax.plot(groups["predicted"], groups["observed"], "o", color=PALETTE[1], markersize=4)
        if "lower" in groups:
            ax.vlines(groups["predicted"], groups["lower"], groups["upper"], color=PALETTE[1], linewidth=0.9)
        top = max(top, float(groups["upper" if "lower" in groups else "observed"].max()))
        handles.append(mark("groups of patients", color=PALETTE[1], marker="o", markersize=4, linestyle="-"))
    handles.append(mark("perfect", color=GREY, linestyle=DASHED))
    top = min(1.0, 1.08 * top + 0.02)
    ax.set(xlim=(0, top), ylim=(0, top), ylabel="observed risk")
    ax.tick_params(labelbottom=False)
    below.hist(np.clip(np.asarray(risks, dtype=np.float64), 0, top), bins=np.linspace(0, top, 31), color=GREY)
    below.set(yticks=[], xlabel=f"predicted risk{' ' + plain(label, 40) if label else ''}")
    below.set_ylabel("patients", fontsize=8)
    below.spines["left"].set_visible(False)
    figure.legend(handles=handles, loc="outside upper left", ncols=3, columnspacing=1, handlelength=1.6)
    return figure


@styled
def d_calibration_bins(bins: Mapping[str, FloatArray]) -> Figure:
    """Draw the D-calibration histogram: the share of patients in each tenth of S(z|x), flat for a perfect model."""
    figure = new_figure(PANEL_WIDTH, PANEL_HEIGHT)
    ax = figure.subplots()
    # The paler, earlier one first: what counts is the last.
    colors = [PALETTE[1], PALETTE[0]][-len(bins) :]
    width = 0.82 / len(bins)
    for k, ((name, share), color) in enumerate(zip(bins.items(), colors, strict=True)):
        at = np.arange(len(share)) + 0.5 + (k - (len(bins) - 1) / 2) * width
        ax.bar(at, 100 * np.asarray(share), width=0.94 * width, color=color, label=plain(name, 40))
    n_bins = len(next(iter(bins.values())))
    ax.axhline(100 / n_bins, color=DARK, linewidth=0.9, linestyle=DASHED)
    ax.set_xticks(range(0, n_bins + 1, 2), [f"{k / n_bins:.1f}" for k in range(0, n_bins + 1, 2)])
    ax.set(xlim=(0, n_bins), xlabel="predicted survival at the own time, S(z|x)", ylabel="patients (%)")
    handles, _ = ax.get_legend_handles_labels()
    handles.append(mark("perfect", color=DARK, linestyle=DASHED, linewidth=0.9))
    figure.legend(handles=handles, loc="outside upper left", ncols=3, columnspacing=1, handlelength=1.6)
    return figure


@styled
def decision_curve(tables: Mapping[str, pd.DataFrame], *, label: str = "") -> Figure:
    """Draw net benefit against the threshold, one line per model, with "treat all" and "treat none".

    Parameters
    ----------
    tables
        By model, what :func:`dcsurv.metrics.net_benefit` returns, at one horizon.
    """
    figure = new_figure(PANEL_WIDTH, PANEL_HEIGHT)
    ax = figure.subplots()
    everybody = next(iter(tables.values()))
    ax.plot(100 * everybody["threshold"], everybody["treat_all"], color=GREY, linewidth=1, label="treat all")
    ax.axhline(0, color=DARK, linewidth=0.9, linestyle=DASHED, label="treat none")
    top = float(everybody["treat_all"].iloc[0])
    for (name, table), look in reversed(list(zip(tables.items(), _looks(), strict=False))):
        check_columns(table, ("threshold", "net_benefit", "treat_all"), f"the table of {name!r}")
        ax.plot(100 * table["threshold"], table["net_benefit"], label=plain(name, 40), **look)
        top = max(top, float(table["net_benefit"].max()))
    ax.set(ylim=(-0.25 * top, 1.08 * top) if top > 0 else (-0.05, 0.05), xlim=(0, 100 * everybody["threshold"].max()))
    ax.set(
        ylabel="net benefit", xlabel=f"threshold: treat from this risk{' ' + plain(label, 30) if label else ''} on (%)"
    )
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside upper left", ncols=2)
    return figure


@styled
def forest(table: pd.DataFrame, *, xlabel: str, overall: float | None = None, logarithmic: bool = False) -> Figure:
    """Draw estimates with intervals, one row each, grouped under headings.

    Parameters
    ----------
    table
        Columns ``column, group, value, lower, upper``; a NaN value leaves its row empty.
    overall
        The value of all patients, a dashed vertical line.
    """
    check_columns(table, ("column", "group", "value", "lower", "upper"), "the table of groups")
    rows: list[tuple[str, float, float, float]] = []
    heads: list[int] = []
    for column, part in table.groupby("column", sort=False):
        heads.append(len(rows))
        rows.append((plain(column, 30), np.nan, np.nan, np.nan))
        names = ["\u00a0\u00a0\u00a0" + plain(group) for group in part["group"]]
        rows += zip(names, part["value"], part["lower"], part["upper"], strict=True)
    figure = new_figure(PANEL_WIDTH, 0.7 + 0.2 * len(rows))
    ax = figure.subplots()
    if logarithmic:
        ax.set_xscale("log")
    if overall is not None:
        ax.axvline(overall, color=GREY, linewidth=0.9, linestyle=DASHED, zorder=0)
    for at, (_, value, lower, upper) in enumerate(rows):
        if np.isfinite(value):
            ax.plot([lower, upper], [at, at], color=PALETTE[0], linewidth=1.2)
            ax.plot(value, at, marker="s", markersize=4, color=PALETTE[0])
    ax.set_yticks(range(len(rows)), [name for name, *_ in rows], ha="left")
    for at in heads:
        ax.get_yticklabels()[at].set_fontweight("bold")
    ax.tick_params(axis="y", length=0, pad=118)
    ax.set(ylim=(len(rows) - 0.4, -0.6), xlabel=xlabel)
    ax.spines["left"].set_visible(False)
    if logarithmic:
        _plain_log_ticks(ax)
    return figure


@styled
def patient_curves(
    times: FloatArray,
    survival: FloatArray,
    labels: Sequence[str],
    *,
    lower: FloatArray | None = None,
    upper: FloatArray | None = None,
    followed_to: FloatArray | None = None,
    unit: str | None = None,
    step: bool = False,
) -> Figure:
    """Draw predicted survival of a few patients, with bands where they are given.

    Parameters
    ----------
    times, survival, lower, upper
        (T,) and (n, T).
    followed_to
        Until when patients like these were followed, (n,); what lies beyond is dashed.
    """
    figure = new_figure(PANEL_WIDTH, PANEL_HEIGHT + 0.2)
    ax = figure.subplots()
    t = np.append(0.0, times)
    style: Any = "steps-post" if step else "default"
    dashed = False
    for k, (label, color) in enumerate(zip(labels, PALETTE, strict=False)):
        if lower is not None and upper is not None:
            low, high = np.append(1.0, lower[k]), np.append(1.0, upper[k])
            ax.fill_between(t, low, high, color=color, alpha=0.18, linewidth=0, step="post" if step else None)
        whole = np.append(1.0, survival[k])
        known = t <= (np.inf if followed_to is None or np.isnan(followed_to[k]) else followed_to[k])
        ax.plot(t[known], whole[known], color=color, drawstyle=style, label=plain(label, 40))
        if not known.all():
            first = max(int(known.sum()) - 1, 0)  # joined to the last known point
            ax.plot(t[first:], whole[first:], color=color, drawstyle=style, linestyle=DASHED, linewidth=1.0)
            dashed = True
    ax.set(xlim=(0, times[-1]), ylim=(0, 1.02), xlabel=time_label(unit), ylabel="probability of survival")
    handles, _ = ax.get_legend_handles_labels()
    if dashed:
        handles.append(mark("beyond the follow-up of such patients", color=GREY, linestyle=DASHED))
    figure.legend(handles=handles, loc="outside upper left", ncols=2)
    return figure


@styled
def importance_at_horizons(table: pd.DataFrame, *, xlabel: str) -> Figure:
    """Draw how much each feature matters at each horizon.

    Parameters
    ----------
    table
        Columns ``feature, horizon, value, lower, upper``, the horizon as text, the most important feature first.
    """
    check_columns(table, ("feature", "horizon", "value", "lower", "upper"), "the table of importances")
    features, horizons = list(dict.fromkeys(table["feature"])), list(dict.fromkeys(table["horizon"]))
    figure = new_figure(PANEL_WIDTH, 1.2 + 0.3 * len(features))
    ax = figure.subplots()
    ax.axvline(0, color=GREY, linewidth=0.8, linestyle=DASHED, zorder=0)
    for k, (horizon, look) in enumerate(zip(horizons, _looks(), strict=False)):
        part = table[table["horizon"] == horizon]
        at = part["feature"].map(features.index) + 0.22 * (k - (len(horizons) - 1) / 2)
        ax.hlines(at, part["lower"], part["upper"], color=look["color"], linewidth=1)
        ax.plot(part["value"], at, "o", color=look["color"], markersize=4, label=plain(horizon, 40))
    ax.set_yticks(range(len(features)), [plain(name) for name in features])
    ax.set(ylim=(len(features) - 0.4, -0.6), xlabel=xlabel)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", color=PALE, linewidth=0.6)
    ax.set_axisbelow(True)
    figure.legend(loc="outside upper left", ncols=3, columnspacing=1, handletextpad=0.2)
    return figure


def _looks() -> list[dict[str, Any]]:
    """Return colour and dash of the first, second, ... line: told apart without colours, too."""
    dashes: list[Any] = ["-", DASHED, (0, (1, 1.5)), (0, (6, 2, 1, 2)), "-", "-"]
    widths = [1.6, 1.3, 1.3, 1.2, 1.2, 1.2]
    return [
        {"color": color, "linestyle": dash, "linewidth": width}
        for color, dash, width in zip(PALETTE, dashes, widths, strict=True)
    ]


def _steps(ax: Axes, curve: Any, end: float, **style: Any) -> None:
    t, values = np.append(0.0, curve.times), np.append(1.0, curve.values)
    ax.step(np.append(t, end), np.append(values, values[-1]), where="post", **style)


def _plain_log_ticks(ax: Axes) -> None:
    from matplotlib.ticker import NullLocator

    low, high = ax.get_xlim()
    coarse, middle = (0.1, 0.3, 1.0, 3.0, 10.0), (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    fine = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4, 1.6, 2.0)
    candidates = fine if low > 0.38 and high < 2.2 else middle if low > 0.12 and high < 8 else coarse
    steps = [t for t in candidates if low <= t <= high]
    ax.set_xticks(steps, [f"{t:g}" for t in steps])
    ax.xaxis.set_minor_locator(NullLocator())
