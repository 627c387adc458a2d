"""Figures of a validation: how stable predictions and calibration are, and how good a model is in each centre."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.figures.style import (
    DARK,
    DASHED,
    GREY,
    PALE,
    PALETTE,
    PANEL_WIDTH,
    check_columns,
    mark,
    new_figure,
    plain,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Bins of the predicted risk: a figure shows groups of patients, no single one.
_BINS = 30
_FEWEST_IN_BIN = 5


@styled
def prediction_instability(risk: npt.ArrayLike, refits: npt.ArrayLike, *, label: str = "") -> Figure:
    """Draw the risks that refits predict against those of the model, for the same patients.

    Parameters
    ----------
    risk : array-like of shape (n,)
        Risks that the model predicts.
    refits : array-like of shape (B, n)
        Risks that its refits to bootstrap samples predict.
    label : str, default ""
        Of what the risk is, such as "by 5 years".

    Returns
    -------
    matplotlib.figure.Figure
        A map of how often which pair occurs, and the range that holds 95 % of the refits.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.figures.instability import prediction_instability
    >>> risk = np.linspace(0.1, 0.6, 200)
    >>> refits = risk + np.random.default_rng(0).normal(0, 0.03, (20, 200))
    >>> prediction_instability(risk, refits, label="by 5 years").axes[0].get_xlabel()
    'risk by 5 years that the model predicts'
    """
    own, others = np.asarray(risk, dtype=np.float64), np.asarray(refits, dtype=np.float64)
    figure = new_figure(PANEL_WIDTH, PANEL_WIDTH - 0.4)
    ax = figure.subplots()
    top = min(1.0, 1.02 * float(max(own.max(), np.quantile(others, 0.999))))
    edges = np.linspace(0, top, _BINS + 1)
    counts, _, _ = np.histogram2d(np.tile(own, len(others)), others.ravel(), bins=(edges, edges))
    shade = np.ma.masked_equal(counts.T, 0) ** 0.4  # rare pairs are to be seen, too
    ax.pcolormesh(edges, edges, shade, cmap="Blues", vmin=0, rasterized=True)
    ax.plot([0, top], [0, top], color=GREY, linewidth=0.9, linestyle=DASHED)
    middle, limits = [], []
    for low, high in itertools.pairwise(edges):
        inside = (own >= low) & (own < high)
        if inside.sum() >= _FEWEST_IN_BIN:
            middle.append(own[inside].mean())
            limits.append(np.quantile(others[:, inside], [0.025, 0.975]))
    if middle:
        for side in np.transpose(limits):
            ax.plot(middle, side, color=PALETTE[1], linewidth=1.3)
    what = f"risk {plain(label, 40)} ".replace("  ", " ")
    ax.set(xlabel=f"{what}that the model predicts", ylabel=f"{what}that refits predict", xlim=(0, top), ylim=(0, top))
    handles = [
        mark("refits", color=PALETTE[0], marker="s", markersize=5),
        mark("95 % of the refits", color=PALETTE[1], linestyle="-"),
        mark("no change", color=GREY, linestyle=DASHED),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=3)
    return figure


@styled
def calibration_instability(own: pd.DataFrame, refits: Sequence[pd.DataFrame], *, label: str = "") -> Figure:
    """Draw the calibration curve of the model and those of its refits, on the same patients.

    Parameters
    ----------
    own : DataFrame
        ``predicted`` and ``observed`` risk of the model.
    refits : sequence of DataFrame
        The same of each refit.
    label : str, default ""
        Of what the risk is, such as "by 5 years".

    Returns
    -------
    matplotlib.figure.Figure
        One thin line for each refit.

    Examples
    --------
    >>> import pandas as pd
    >>> from dcsurv.figures.instability import calibration_instability
    >>> curve = pd.DataFrame({"predicted": [0.1, 0.5], "observed": [0.12, 0.45]})
    >>> len(calibration_instability(curve, [curve, curve]).axes[0].lines)
    4
    """
    for table in (own, *refits):
        check_columns(table, ("predicted", "observed"), "a calibration curve")
    figure = new_figure(PANEL_WIDTH, PANEL_WIDTH - 0.4)
    ax = figure.subplots()
    top = min(1.0, 1.05 * max(float(table[["predicted", "observed"]].max().max()) for table in (own, *refits)))
    ax.plot([0, top], [0, top], color=GREY, linewidth=0.9, linestyle=DASHED)
    for table in refits:
        ax.plot(table["predicted"], table["observed"], color=PALETTE[0], linewidth=0.6, alpha=0.45)
    ax.plot(own["predicted"], own["observed"], color=PALETTE[1], linewidth=1.8)
    what = f"risk {plain(label, 40)}".strip()
    ax.set(xlabel=f"predicted {what}", ylabel=f"observed {what}", xlim=(0, top), ylim=(0, top))
    handles = [
        mark("model", color=PALETTE[1], linestyle="-", linewidth=1.8),
        mark("refits", color=PALETTE[0], linestyle="-"),
        mark("perfect", color=GREY, linestyle=DASHED),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=3)
    return figure


@styled
def forest(centres: pd.DataFrame, mean: pd.DataFrame, *, label: str) -> Figure:
    """Draw a metric of each centre with its interval, and their mean with the range for another centre.

    Parameters
    ----------
    centres : DataFrame
        ``centre, patients, events, value, lower, upper``, one row per centre.
    mean : DataFrame
        ``mean, lower, upper, new_lower, new_upper`` in one row, or no row.
    label : str
        Name of the metric.

    Returns
    -------
    matplotlib.figure.Figure
        A forest plot.

    Examples
    --------
    >>> import pandas as pd
    >>> from dcsurv.figures.instability import forest
    >>> rows = pd.DataFrame({"centre": ["A", "B"], "patients": [90, 80], "events": [40, 30], "value": [0.7, 0.65],
    ...                      "lower": [0.62, 0.55], "upper": [0.77, 0.74]})
    >>> forest(rows, rows.iloc[:0], label="C-td").axes[0].get_xlabel()
    'C-td'
    """
    check_columns(centres, ("centre", "patients", "events", "value", "lower", "upper"), "centres")
    n = len(centres)
    figure = new_figure(PANEL_WIDTH + 0.8, 1.1 + 0.27 * (n + 1))
    ax = figure.subplots()
    places = np.arange(n, 0, -1)
    ax.hlines(places, centres["lower"], centres["upper"], color=DARK, linewidth=0.9)
    ax.plot(centres["value"], places, "s", color=PALETTE[0], markersize=4.5)
    names = [
        f"{plain(name)} ({patients:,}; {events:,})"
        for name, patients, events in zip(centres["centre"], centres["patients"], centres["events"], strict=True)
    ]
    if len(mean):
        row = mean.iloc[0]
        ax.axvline(row["mean"], color=PALE, linewidth=0.9, zorder=0)
        if np.isfinite(row["new_lower"]):
            ax.hlines(0, row["new_lower"], row["new_upper"], color=PALETTE[1], linewidth=0.9, linestyle=DASHED)
        ax.hlines(0, row["lower"], row["upper"], color=PALETTE[1], linewidth=2.2)
        ax.plot([row["mean"]], [0], "D", color=PALETTE[1], markersize=5)
        places, names = np.append(places, 0), [*names, "mean; another centre (dashed)"]
    ax.set_yticks(places, names)
    ax.tick_params(axis="y", length=0)
    ax.set(xlabel=plain(label, 40), ylim=(-0.7, n + 0.7))
    ax.set_title("centre (patients; events)", loc="left", fontsize=8, color=GREY)
    return figure
