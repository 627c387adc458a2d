"""Figures of an evaluation, each one panel that is still readable on a phone.

They take plain numbers (arrays, tables by model), so that a report, a notebook or a paper can draw them alike. None
shows a row of the data: curves are drawn on grids, predictions as histograms and groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.figures.style import (
    DARK,
    DASHED,
    GREY,
    PALE,
    PALETTE,
    PANEL_HEIGHT,
    PANEL_WIDTH,
    check_columns,
    mark,
    new_figure,
    plain,
    styled,
    time_label,
)
from dcsurv.target import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    tables : mapping of str to DataFrame
        By model: ``time, value`` and maybe ``lower, upper``.
    ylabel : str
        Name of the metric.
    unit : str or None, default None
        What the times are measured in.
    horizons : sequence of float, default ()
        Marked by thin vertical lines.
    chance : float or None, default None
        What guessing would score, a horizontal line.

    Returns
    -------
    matplotlib.figure.Figure
        Lines that can be told apart without colours.

    Examples
    --------
    >>> import pandas as pd
    >>> from dcsurv.figures.evaluation import metric_over_time
    >>> auc = pd.DataFrame({"time": [1.0, 2.0, 3.0], "value": [0.8, 0.7, 0.72]})
    >>> metric_over_time({"CoxPH": auc}, ylabel="AUC(t)", chance=0.5).axes[0].get_ylabel()
    'AUC(t)'
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
    band: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    reference: tuple[str, npt.ArrayLike, npt.ArrayLike] | None = None,
    label: str = "",
) -> Figure:
    """Draw observed against predicted risk, with groups of patients and the histogram of the predictions.

    Parameters
    ----------
    predicted : array-like, shape (n,)
        The smooth calibration curve, ascending: predicted risks.
    observed : array-like, shape (n,)
        Observed risks beside them.
    risks : array-like
        All predicted risks; only their histogram is drawn.
    groups : DataFrame or None, default None
        Columns ``predicted, observed`` and maybe ``lower, upper``: patients grouped by predicted risk.
    band : tuple of array-like or None, default None
        Lower and upper end of a band around the curve, at the same predicted risks.
    reference : tuple or None, default None
        Name, predicted and observed risks of another model, whose curve is drawn beside.
    label : str, default ""
        Of what the risk is, such as "by 5 years".

    Returns
    -------
    matplotlib.figure.Figure
        The curve, and below it the histogram.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.figures.evaluation import calibration_curve
    >>> risks = np.linspace(0.05, 0.6, 50)
    >>> calibration_curve(risks, risks**1.1, risks=risks, label="by 5 years").axes[1].get_xlabel()
    'predicted risk by 5 years'
    """
    x, y = np.asarray(predicted, dtype=np.float64), np.asarray(observed, dtype=np.float64)
    shown = np.quantile(x, np.linspace(0.005, 0.995, 100))  # a grid: no patient's own prediction is in the file
    figure = new_figure(PANEL_WIDTH, PANEL_HEIGHT + 0.7)
    ax, below = figure.subplots(2, 1, height_ratios=[6, 1], sharex=True)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=DASHED)
    ax.plot(shown, np.interp(shown, x, y), color=PALETTE[0], linewidth=1.6)
    top = max(float(x.max()), float(y.max()))
    handles = [mark("smooth calibration curve", color=PALETTE[0], linestyle="-")]
    if band is not None:
        ends = [np.interp(shown, x, np.asarray(end, dtype=np.float64)) for end in band]
        ax.fill_between(shown, *ends, color=PALETTE[0], alpha=0.15, linewidth=0)
        top = max(top, float(ends[1].max()))
    if reference is not None:
        name, *curve = reference
        other_x, other_y = (np.asarray(part, dtype=np.float64) for part in curve)
        at = np.quantile(other_x, np.linspace(0.005, 0.995, 100))
        ax.plot(at, np.interp(at, other_x, other_y), color=PALETTE[2], linewidth=1.2)
        top = max(top, float(other_x.max()), float(other_y.max()))
        handles.append(mark(plain(name, 24), color=PALETTE[2], linestyle="-"))
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
    figure.legend(handles=handles, loc="outside upper left", ncols=2, columnspacing=1, handlelength=1.6)
    return figure


@styled
def d_calibration_bins(bins: Mapping[str, FloatArray]) -> Figure:
    """Draw the D-calibration histogram: the share of patients in each tenth of S(z|x), flat for a perfect model.

    Parameters
    ----------
    bins : mapping of str to array of float
        By model, at most two, the shares; see :func:`dcsurv.metrics.d_calibration`.

    Returns
    -------
    matplotlib.figure.Figure
        Bars side by side.
    """
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
    tables : mapping of str to DataFrame
        By model, what :func:`dcsurv.metrics.net_benefit` returns, at one horizon; ``lower`` and ``upper`` make a band,
        and a column ``helps``, as of :func:`dcsurv.metrics.helpful_thresholds`, a bar.
    label : str, default ""
        Of what the risk is, such as "by 5 years".

    Returns
    -------
    matplotlib.figure.Figure
        Thresholds on the horizontal axis.
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
        if {"lower", "upper"} <= set(table):
            level = 100 * table["threshold"]
            ax.fill_between(level, table["lower"], table["upper"], color=look["color"], alpha=0.15, linewidth=0)
            top = max(top, float(table["upper"].max()))
    helped = next((table for table in tables.values() if "helps" in table and table["helps"].any()), None)
    if helped is not None:
        level = 100 * helped.loc[helped["helps"], "threshold"].to_numpy()
        ends = level - 0.5, level + 0.5  # one threshold alone is seen, too
        ax.hlines(np.full(len(level), -0.17 * top), *ends, color=PALETTE[0], linewidth=4, label="the model helps")
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
    table : DataFrame
        Columns ``column, group, value, lower, upper``; a NaN value leaves its row empty.
    xlabel : str
        Name of the estimate.
    overall : float or None, default None
        The value of all patients, a dashed vertical line.
    logarithmic : bool, default False
        Whether the axis is logarithmic.

    Returns
    -------
    matplotlib.figure.Figure
        Groups under the name of their column.

    Examples
    --------
    >>> import pandas as pd
    >>> from dcsurv.figures.evaluation import forest
    >>> groups = pd.DataFrame({"column": "sex", "group": ["female", "male"], "value": [0.70, 0.66]})
    >>> figure = forest(groups.assign(lower=groups["value"] - 0.03, upper=groups["value"] + 0.03), xlabel="C-td")
    >>> [label.get_text().strip() for label in figure.axes[0].get_yticklabels()]
    ['sex', 'female', 'male']
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
def importance_at_horizons(table: pd.DataFrame, *, xlabel: str) -> Figure:
    """Draw how much each feature matters at each horizon.

    Parameters
    ----------
    table : DataFrame
        Columns ``feature, horizon, value, lower, upper``, the horizon as text, the most important feature first.
    xlabel : str
        What the values are.

    Returns
    -------
    matplotlib.figure.Figure
        One row per feature, one mark per horizon.
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


def _plain_log_ticks(ax: Axes) -> None:
    from matplotlib.ticker import NullLocator

    low, high = ax.get_xlim()
    coarse, middle = (0.1, 0.3, 1.0, 3.0, 10.0), (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    fine = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4, 1.6, 2.0)
    candidates = fine if low > 0.38 and high < 2.2 else middle if low > 0.12 and high < 8 else coarse
    steps = [t for t in candidates if low <= t <= high]
    ax.set_xticks(steps, [f"{t:g}" for t in steps])
    ax.xaxis.set_minor_locator(NullLocator())
