"""The paper's figures, and the schematics of the documentation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dcsurv.curves import SurvivalCurves, as_curves
from dcsurv.datasets import NAMES
from dcsurv.durations import time_label
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
    wrapped,
)
from dcsurv.metrics import list_metrics
from dcsurv.nonparametric import kaplan_meier
from dcsurv.target import unpack

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Where results differ by more than this factor, a linear axis would press the small ones into one dot.
_LOG_FROM = 10.0
_PANELS_PER_ROW = 4


@styled
def events_per_node(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw how many events fall to each output node: Fig. 3 and supplement Fig. 2 of the paper.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        By dataset, what ``experiments.paper_data.figure_3`` returns: ``spacing, node, time`` (days) and ``events``.

    Returns
    -------
    matplotlib.figure.Figure
        One row per dataset, one histogram per spacing. The dashed line is the mean over the nodes.
    """
    if not tables:
        raise ValueError("tables is empty. Pass the table of at least one dataset by name.")
    for name, table in tables.items():
        check_columns(table, ("spacing", "node", "time", "events"), f"the table of {name!r}")
    spacings = list(dict.fromkeys(next(iter(tables.values()))["spacing"]))
    figure = new_figure(WIDTH, 0.5 + 1.7 * len(tables))
    panels = figure.subplots(len(tables), len(spacings), sharey="row", squeeze=False)
    for row, (name, table) in zip(panels, tables.items(), strict=True):
        if set(table["spacing"]) != set(spacings):
            raise ValueError(f"the table of {name!r} has the spacings {sorted(set(table['spacing']))}, not {spacings}.")
        for ax, spacing in zip(row, spacings, strict=True):
            part = table[table["spacing"] == spacing]
            ax.bar(part["node"], part["events"], width=0.85, color=PALETTE[0])
            level = float(part["events"].mean())
            ax.axhline(level, color=DARK, linewidth=0.8, linestyle=DASHED)
            ax.set_xticks(part["node"], [f"{time:g}" for time in part["time"]], rotation=90)
            ax.tick_params(axis="x", length=0)
        row[0].set_ylabel(f"{_display(name)}\nevents")
        ax.text(1.02, level, "mean", transform=ax.get_yaxis_transform(), va="center", fontsize=8)
    for ax, spacing in zip(panels[0], spacings, strict=True):
        ax.set_title(f"{spacing} spacing")
    figure.supxlabel("time of the node, the end of its interval (days)")
    return figure


@styled
def comparable_pairs(table: pd.DataFrame) -> Figure:
    """Draw comparable pairs against the censoring rate c, observed and estimated: supplement Fig. 1 of the paper.

    Parameters
    ----------
    table : DataFrame
        What ``experiments.paper_data.supplement_figure_1`` returns: ``dataset, resampled, censoring_rate``, the
        pairs ``A`` and ``B`` divided by n^2, and ``F``. The dataset ``uniform`` is drawn in red.

    Returns
    -------
    matplotlib.figure.Figure
        (a) both kinds of pairs with (1-c)^2 / 2 and (1-c) / 2; (b) F with 1 / (1-c).
    """
    check_columns(table, ("dataset", "resampled", "censoring_rate", "A", "B", "F"), "the table of pairs")
    names = list(dict.fromkeys(table["dataset"]))
    colors = {name: PALETTE[k % len(PALETTE)] for k, name in enumerate(names)} | {"uniform": RED}
    figure = new_figure(WIDTH, 3.5)
    pairs, factor = figure.subplots(1, 2)
    c = np.linspace(0, min(0.97, float(table["censoring_rate"].max()) + 0.02), 200)
    for ax, estimate in ((pairs, (1 - c) ** 2 / 2), (pairs, (1 - c) / 2), (factor, 1 / (1 - c))):
        ax.plot(c, estimate, color=GREY, linewidth=1, zorder=1)
    for (name, resampled), part in table.groupby(["dataset", "resampled"], sort=False):
        size = 3.5 if resampled else 8.0
        style: dict[str, Any] = {"linestyle": "none", "color": colors[name], "markerfacecolor": "none"}
        pairs.plot(part["censoring_rate"], part["A"], marker="o", markersize=size, **style)
        pairs.plot(part["censoring_rate"], part["B"], marker="x", markersize=size, **style)
        factor.plot(part["censoring_rate"], part["F"], marker="D", markersize=0.8 * size, **style)
    pairs.set(ylabel="comparable pairs / $n^2$", ylim=(0, 0.52))
    factor.set(ylabel="$F$ = new pairs / old pairs", yscale="log")
    factor.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    factor.minorticks_off()
    pairs.text(0.44, 0.10, "$(1-c)^2/2$", color=DARK, ha="right")
    slope = math.degrees(math.atan(-0.5))
    along: dict[str, Any] = {"rotation": slope, "rotation_mode": "anchor", "transform_rotates_text": True}
    pairs.text(0.62, 0.18, "$(1-c)/2$", color=DARK, va="top", **along)
    factor.text(0.76, 3.4, "$1/(1-c)$", color=DARK)
    for ax, letter in ((pairs, "a"), (factor, "b")):
        ax.set(xlabel="censoring rate $c$", xlim=(0, 1))
        ax.set_title(letter, loc="left", fontweight="bold")
    handles = [mark(_display(name), color=colors[name], marker="s", markersize=5) for name in names]
    marks = {"old: event-event pairs, |A|": ("o", 5.0), "new: event-any pairs, |B|": ("x", 5.0)}
    marks |= {"cohort as it is": ("D", 6.5), "resampled": ("D", 3.0)}
    for label, (marker, size) in marks.items():
        handles.append(mark(label, color=DARK, marker=marker, markersize=size, markerfacecolor="none"))
    figure.legend(handles=handles, loc="outside lower center", ncols=math.ceil(len(handles) / 2))
    return figure


@styled
def survival_curves(
    curves: Mapping[str, SurvivalCurves], y: Any, rows: Sequence[int], time_unit: str = "days"
) -> Figure:
    """Draw the predicted curves of the same few patients, one panel per model.

    Parameters
    ----------
    curves : mapping of str to SurvivalCurves
        By model, the curves of the patients of ``y``, in the same order.
    y : outcome
        Of these patients; see :func:`dcsurv.make_outcome`. Its Kaplan-Meier curve is the grey line.
    rows : sequence of int
        The patients to show, as row numbers of ``y``, at most six.
    time_unit : str, default "days"
        What the times are measured in.

    Returns
    -------
    matplotlib.figure.Figure
        A marker sits at each patient's own time: filled for an event, open for a censoring. Where that lies beyond a
        model's last node, the curve, held constant there, is dotted.

    Examples
    --------
    >>> from dcsurv import CoxPH, figures
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric()
    >>> curves = CoxPH().fit(X, y).predict_survival_function(X[:100])
    >>> figure = figures.survival_curves({"CoxPH": curves}, y[:100], rows=[3, 14, 15])
    >>> figure.axes[0].get_title()
    'CoxPH'
    """
    time, event = unpack(y)
    shown = [int(row) for row in rows]
    if not curves:
        raise ValueError("curves is empty. Pass the curves of at least one model by name.")
    if not 1 <= len(set(shown)) == len(shown) <= len(PALETTE):
        raise ValueError(f"rows is {shown}, but one to {len(PALETTE)} different patients can be told apart.")
    if min(shown) < 0 or max(shown) >= len(time):
        raise ValueError(f"rows is {shown}, but y has the rows 0 to {len(time) - 1}.")
    n_rows = math.ceil(len(curves) / _PANELS_PER_ROW)
    n_columns = math.ceil(len(curves) / n_rows)
    legend_columns = min(_PANELS_PER_ROW, 1 + n_columns)
    legend_height = 0.2 * math.ceil((1 + len(shown)) / legend_columns)
    figure = new_figure(min(WIDTH, 1.6 + 2.4 * n_columns), 0.4 + legend_height + 1.75 * n_rows)
    panels = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False)
    flat = panels.ravel()
    cohort = kaplan_meier((time, event))
    for ax, (name, predicted) in zip(flat, curves.items(), strict=False):
        ax.step(np.append(0, cohort.times), np.append(1, cohort.values), where="post", color=GREY, linewidth=0.8)
        own = as_curves(predicted, len(time))[shown]
        _draw_patients(ax, own, time[shown], event[shown], float(time.max()))
        ax.set_title(wrapped(name))
    flat[0].set(xlim=(0, 1.03 * time.max()), ylim=(0, 1.02), yticks=[0, 0.5, 1])
    for ax in flat[len(curves) :]:
        ax.remove()
    for ax in flat[len(curves) - n_columns : len(curves)]:  # the lowest of each column, also in a row not filled
        ax.tick_params(labelbottom=True)
    for ax in panels[:, 0]:
        ax.set_ylabel("probability of survival")
    figure.supxlabel(time_label(time_unit))
    handles = []
    for color, row in zip(PALETTE, shown, strict=False):
        label, fill = ("event", color) if event[row] else ("censored", "white")
        style = {"color": color, "linestyle": "-", "marker": "o", "markersize": 5, "markerfacecolor": fill}
        handles.append(mark(f"patient {row} ({label})", **style))
    handles.append(mark("Kaplan-Meier", color=GREY, linestyle="-", linewidth=0.8))
    figure.legend(handles=handles, loc="outside upper center", ncols=legend_columns)
    return figure


def _draw_patients(ax: Axes, own: SurvivalCurves, time: Any, event: Any, end: float) -> None:
    last = float(own.times[-1])
    t = np.union1d(np.linspace(0, min(end, last), 201), own.times[own.times <= end])
    style: Any = "steps-post" if own.interpolation == "step" else "default"
    for color, survival, z, here, seen in zip(PALETTE, own(t), time, own.at_own(time), event, strict=False):
        ax.plot(t, survival, color=color, drawstyle=style)
        if z > last:
            ax.plot([last, z], [here, here], color=color, linestyle=":")
        fill = color if seen else "white"
        ax.plot(z, here, marker="o", markersize=5, color=color, markerfacecolor=fill, zorder=3, clip_on=False)


@styled
def metric_table(table: pd.DataFrame, printed: pd.DataFrame | None = None) -> Figure:
    """Draw mean and standard deviation of one metric, models as rows and datasets as columns.

    Parameters
    ----------
    table : DataFrame
        One row per model and dataset: ``metric`` (the same in all rows), ``model, dataset, mean, sd``.
    printed : DataFrame or None, default None
        The paper's figures, with the same columns, drawn paler beside ours; those of other models or datasets are
        left out.

    Returns
    -------
    matplotlib.figure.Figure
        Every dataset has an axis of its own; all are logarithmic if the means differ by more than a factor of ten.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    for part, what in ((table, "table"), (printed, "printed")):
        if part is not None:
            check_columns(part, ("metric", "model", "dataset", "mean", "sd"), what)
            if part.duplicated(["model", "dataset"]).any():
                raise ValueError(f"{what} has a model twice for one dataset. Aggregate it to one row for each.")
    series = [(table, "ours", "o", PALETTE[0])]
    if printed is not None:
        series.append((printed.merge(table[["model", "dataset"]]), "paper", "D", "#AAAAAA"))
        if series[1][0].empty:
            raise ValueError("printed has no model and dataset that table has. Are their names spelled alike?")
    both = pd.concat([part for part, *_ in series])
    metrics, means = sorted(set(both["metric"])), both["mean"]
    if len(metrics) > 1:
        raise ValueError(f"the rows are of the metrics {metrics}. Pass those of one metric.")
    models, datasets = list(dict.fromkeys(table["model"])), list(dict.fromkeys(table["dataset"]))
    labels = [wrapped(model) for model in models]
    row_height = 0.18 + 0.14 * (1 + max(label.count("\n") for label in labels))
    logarithmic = means.min() > 0 and means.max() > _LOG_FROM * means.min()
    figure = new_figure(1.5 + 1.9 * len(datasets), 1.2 + row_height * len(models))
    panels = figure.subplots(1, len(datasets), sharey=True, squeeze=False)[0]
    for ax, dataset in zip(panels, datasets, strict=True):
        ax.set_xscale("log" if logarithmic else "linear")
        for k, (part, label, marker, color) in enumerate(series):
            here = part[part["dataset"] == dataset]
            height = here["model"].map(models.index) + 0.34 * (k - (len(series) - 1) / 2)
            ax.errorbar(here["mean"], height, xerr=here["sd"], fmt=marker, color=color, markersize=4, label=label)
        if logarithmic:
            low, high = ax.get_xlim()
            ticks = LogLocator(subs=(1, 3) if high < 300 * low else (1,))  # more would not fit side by side
            ax.xaxis.set(major_locator=ticks, major_formatter="{x:g}", minor_locator=NullLocator())
        else:
            ax.locator_params(axis="x", nbins=5, prune="both")
        ax.set_title(_display(dataset))
        ax.grid(axis="y", color=PALE, linewidth=0.6)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
    panels[0].set_yticks(range(len(models)), labels)
    panels[0].set_ylim(len(models) - 0.5, -0.5)
    kind = metrics[0].partition("@")[0]  # "ICI@Q2" is the ICI at a horizon
    better = next((f" ({metric.direction})" for metric in list_metrics() if metric.name == kind), "")
    figure.supxlabel(f"{metrics[0]}{better}, mean ± sd")
    if printed is not None:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure


@styled
def censoring_schematic() -> Figure:
    """Draw what censoring means, Fig. 1 of the paper: a patient is observed until z, with an event or without.

    Returns
    -------
    matplotlib.figure.Figure
        Five patients, three of them censored.
    """
    figure = new_figure(4.8, 2.6)
    ax = figure.subplots()
    end = 10.0
    for k, (z, d) in enumerate([(4.2, 1), (7.6, 0), (2.6, 0), (8.6, 1), (end, 0)], start=1):
        color = PALETTE[0] if d else PALETTE[1]
        ax.plot([z, end + 1.2], [k, k], color="none" if d else GREY, linewidth=1, linestyle=":")
        ax.plot([0, z], [k, k], color=color, linewidth=2)
        ax.plot(z, k, marker="o", markersize=8, color=color, markerfacecolor=color if d else "white", mew=1.6)
        ax.text(z, k - 0.3, f"$z_{k}$", ha="center", va="bottom", bbox={"color": "white", "pad": 0.5})
        ax.text(end + 1.6, k, f"$d_{k} = {d}$", va="center")
    ax.axvline(end, color=GREY, linewidth=0.8, linestyle=DASHED, zorder=0)
    ax.set(xlim=(0, end + 3), ylim=(5.5, 0.2), xlabel="time since the start of observation")
    ax.set_yticks(range(1, 6), [f"patient {k}" for k in range(1, 6)])
    ax.set_xticks([0, end], ["0", "end of study"])
    ax.tick_params(length=0)
    handles = [
        mark("event", color=PALETTE[0], marker="o", markersize=7),
        mark("censored", color=PALETTE[1], marker="o", markersize=7, markerfacecolor="white", mew=1.6),
        mark("not observed", color=GREY, linestyle=":"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


@styled
def network_schematic() -> Figure:
    """Draw the DCS network from features to curve, and what its two losses pull at: Fig. 2 of the paper.

    Returns
    -------
    matplotlib.figure.Figure
        The network on the left, the losses on the right.
    """
    figure = new_figure(WIDTH, 3.4)
    net, curve = figure.subplots(1, 2, width_ratios=[1.5, 1])
    net.set(xlim=(0, 10), ylim=(0, 8))
    net.axis("off")
    for x, title in ((1.8, "encoder"), (4.15, "decoder"), (6.55, "aggregation"), (8.6, "hazards")):
        net.text(x, 8.2, title, ha="center", fontweight="bold")
    net.plot([0.3] * 5, np.linspace(2.9, 5.1, 5), "o", markersize=9, color=DARK, fillstyle="none")
    net.text(0.3, 5.6, r"$\mathbf{x}$", ha="center")
    net.plot([2.4, 2.8, 2.8, 2.8], [4, 4, 1.2, 7], color=DARK, linewidth=1)
    _arrow(net, (0.5, 4), (1.2, 4))
    _box(net, 1.8, 4, "dense\nlayers", PALETTE[0])
    for step, at in (("1", 7), ("2", 5), ("L", 1.2)):
        for start, stop in ((2.8, 3.6), (4.7, 5.95), (7.15, 8.25)):
            _arrow(net, (start, at), (stop, at))
        # The optional skip leaves the encoding before the decoder and joins the decoder's output.
        net.plot([3.1, 3.1, 5.35], [at, at - 0.8, at - 0.8], color=GREY, linewidth=1, linestyle="--")
        _arrow(net, (5.35, at - 0.8), (5.35, at), color=GREY, linestyle="--")
        _box(net, 4.15, at, "LSTM", PALETTE[2])
        _box(net, 6.55, at, "dense", PALETTE[1])
        net.text(8.4, at, f"$h_{step}$", va="center")
    for top, bottom in ((6.55, 5.45), (4.55, 3.5), (2.7, 1.65)):
        _arrow(net, (3.9, top), (3.9, bottom))
        _arrow(net, (4.4, bottom), (4.4, top), color=GREY, linestyle="--")
    for x in (4.15, 6.55, 8.6):
        net.text(x, 3.1, r"$\vdots$", ha="center", va="center")
    _arrow(net, (9.1, 4), (9.95, 4), linewidth=2, mutation_scale=14)
    net.text(4.15, -0.3, "dashed: optional skip and backward direction", ha="center", fontsize=8, color=GREY)
    _draw_losses(curve)
    return figure


def _draw_losses(ax: Axes) -> None:
    """Draw S of two patients on the nodes, with the pull of the RPS and the push of the kernel loss."""
    nodes, z = np.arange(9), 4
    own, other = np.exp(-((nodes / 5.0) ** 1.6)), np.exp(-((nodes / 10.0) ** 1.6))
    for node in nodes[1:]:
        _arrow(ax, (node, own[node]), (node, 1.0 if node < z else 0.0), color=RED)
    ax.plot(nodes, other, marker="o", markersize=3, color=GREY)
    ax.plot(nodes, own, marker="o", markersize=3, color=DARK)
    _arrow(ax, (z, own[z]), (z, other[z]), color=PALETTE[1], arrowstyle="<|-|>", linewidth=1.8, mutation_scale=10)
    ax.text(8.2, other[-1], r"$\mathbf{x}_j$", va="center", color=GREY)
    ax.text(8.2, own[-1], r"$\mathbf{x}_i$", va="center")
    ax.text(4.2, 0.98, "RPS: to 1 before $z_i$,\nto 0 from $z_i$ on", color=RED, fontsize=8, va="center")
    ax.text(0.3, 0.12, "kernel: apart\nat $z_i$ if $d_i = 1$\nand $z_i < z_j$", color="#B34700", fontsize=8)
    ax.set(xlim=(0, 8.8), ylim=(0, 1.1), xlabel="time", yticks=[0, 1])
    ax.set_title(r"$\hat{S}_l = \prod_{k \leq l}\,(1 - h_k)$")
    ax.set_xticks([z], ["$z_i$"])


def _box(ax: Axes, x: float, y: float, text: str, color: str) -> None:
    frame = {"boxstyle": "square,pad=0.6", "facecolor": (color, 0.25), "edgecolor": DARK, "linewidth": 0.8}
    ax.text(x, y, text, ha="center", va="center", fontsize=8, bbox=frame)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], color: str = DARK, **style: Any) -> None:
    default = {"arrowstyle": "-|>", "linewidth": 1, "mutation_scale": 8, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=default | {"color": color} | style)


def _display(dataset: str) -> str:
    return dataset.upper() if dataset in NAMES else f"{dataset} (synthetic)" if dataset == "uniform" else dataset
