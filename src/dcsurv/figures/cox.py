"""Figures of a fitted Cox model: its hazard ratios, and whether they stay the same over time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.figures.style import (
    DARK,
    DASHED,
    GREY,
    PALETTE,
    PANEL_WIDTH,
    check_columns,
    mark,
    new_figure,
    plain,
    styled,
    time_label,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# More rows or panels than these are not read by anybody; the surest effects and the clearest changes are shown.
MOST_ROWS, MOST_PANELS = 40, 12
_TICKS = 6
# First digits of the ticks of a log axis, from many to few.
_DIGITS = (1, 1.2, 1.5, 2, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 8), (1, 2, 5), (1, 3), (1,)
_LABEL_INCHES, _NUMBER_INCHES, _LETTERS = 1.72, 1.12, 28
# A hazard ratio further from 1 than this, and an interval that reaches further beyond them all than by this factor, end
# in an arrow.
_FURTHEST, _REACH = 50.0, 8.0
# Standard errors on each side in a 95 % interval.
_WIDTH = NormalDist().inv_cdf(0.975)


@styled
def hazard_ratios(summary: pd.DataFrame, per: Mapping[str, float] | None = None) -> Figure:
    """Draw a forest plot of hazard ratios with their 95 % intervals, on a log axis.

    Parameters
    ----------
    summary : DataFrame
        ``summary_`` of a fitted :class:`dcsurv.CoxPH`. Of more than 40 rows, those surest to differ from 1 are drawn.
    per : mapping of str to float or None, default None
        By feature, the change whose hazard ratio to draw, such as ``{"age": 5}``; default: the ``step`` in the table,
        a power of ten that is easy to picture.

    Returns
    -------
    matplotlib.figure.Figure
        One row per column of the model, the levels of a category under its name, with the numbers beside.

    Examples
    --------
    >>> from dcsurv import CoxPH, figures
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric(labels="measured")
    >>> figure = figures.hazard_ratios(CoxPH().fit(X, y).summary_, per={"age": 5})
    >>> figure.axes[0].get_xscale()
    'log'
    """
    needed = ("feature", "level", "reference", "coef", "se", "step", "z")
    check_columns(summary, needed, "the table of hazard ratios")
    unknown = sorted(set(per or {}) - set(summary["feature"]))
    if unknown:
        raise ValueError(f"per names {unknown}, but the features are {list(dict.fromkeys(summary['feature']))}.")
    rows = _forest_rows(_most_sure(summary), per or {})
    figure = new_figure(PANEL_WIDTH + 0.4, 0.75 + 0.21 * len(rows))
    ax = figure.subplots()
    ax.set_xscale("log")
    ax.axvline(1.0, color=GREY, linewidth=0.9, linestyle=DASHED, zorder=0)
    drawn = [row for row in rows if row["ratio"] is not None]
    low, high = _limits(drawn)
    for at, row in enumerate(rows):
        if row["ratio"] is not None:
            _draw_interval(ax, at, row, low, high)
    ax.set_yticks(range(len(rows)), [row["label"] for row in rows], ha="left")
    for at, row in enumerate(rows):
        if row["ratio"] is None:
            ax.get_yticklabels()[at].set_fontweight("bold")
    ax.tick_params(axis="y", length=0, pad=72 * _LABEL_INCHES)
    ax.set(xlim=(low / 1.06, high * 1.06), ylim=(len(rows) - 0.4, -0.6), xlabel="hazard ratio (95% interval)")
    ax.spines["left"].set_visible(False)
    beside = ax.secondary_yaxis("right")
    beside.set_yticks(range(len(rows)), [row["text"] for row in rows], ha="right")
    beside.tick_params(axis="y", length=0, pad=72 * _NUMBER_INCHES)
    beside.spines["right"].set_visible(False)
    _log_ticks(ax.xaxis, low, high)
    return figure


@styled
def effects_over_time(effects: pd.DataFrame, tests: pd.DataFrame | None = None, *, unit: str | None = None) -> Figure:
    """Draw hazard ratios as smooth functions of time beside the constant ones that a Cox model takes them for.

    Where hazards are proportional, the dashed line stays inside the band.

    Parameters
    ----------
    effects : DataFrame
        ``effects_over_time_`` of a fitted :class:`dcsurv.CoxPH`.
    tests : DataFrame or None, default None
        ``proportional_hazards_`` of the same model: adds p, and puts the features whose effect changes most clearly
        first. At most 12 columns are drawn.
    unit : str or None, default None
        What the times are measured in.

    Returns
    -------
    matplotlib.figure.Figure
        One panel per column of the model, hazard ratios on a log axis. The axis of time is spaced so that about as
        many events lie in each part of it.

    Examples
    --------
    >>> from dcsurv import CoxPH, figures
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric(labels="measured")
    >>> model = CoxPH().fit(X, y)
    >>> figure = figures.effects_over_time(model.effects_over_time_, model.proportional_hazards_, unit="days")
    >>> len(figure.axes)
    9
    """
    needed = ("column", "feature", "level", "reference", "step", "coef", "time", "effect", "lower", "upper")
    check_columns(effects, needed, "the table of effects over time")
    names = list(dict.fromkeys(effects["column"]))
    parts = {name: effects[effects["column"] == name] for name in names}
    p = {}
    if tests is not None:
        check_columns(tests, ("p",), "the table of tests")
        p = {name: float(tests["p"].get(part["feature"].iloc[0], math.nan)) for name, part in parts.items()}
        names.sort(key=lambda name: math.inf if math.isnan(p[name]) else p[name])
    names = names[:MOST_PANELS]
    n_rows = math.ceil(len(names) / 2)
    figure = new_figure(PANEL_WIDTH + 0.4, 0.75 + 1.65 * n_rows)
    panels = figure.subplots(n_rows, min(2, len(names)), sharex=True, squeeze=False).ravel()
    for ax, name in zip(panels, names, strict=False):
        _draw_effect(ax, parts[name], p.get(name))
    for ax in panels[len(names) :]:
        ax.remove()
    for ax in panels[: len(names)][-2:]:
        ax.tick_params(labelbottom=True)
    figure.supxlabel(f"{time_label(unit)}, spaced by events")
    figure.supylabel("hazard ratio")
    handles = [
        mark("over time, with 95% band", color=PALETTE[0], linestyle="-", linewidth=1.6),
        mark("constant, as in the model", color=DARK, linestyle=DASHED, linewidth=0.9),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=2, columnspacing=1, handlelength=1.8)
    return figure


def _most_sure(summary: pd.DataFrame) -> pd.DataFrame:
    if len(summary) <= MOST_ROWS:
        return summary
    kept = summary["z"].abs().sort_values(ascending=False, kind="stable").index[:MOST_ROWS]
    return summary[summary.index.isin(kept)]


def _forest_rows(summary: pd.DataFrame, per: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the rows of a forest plot from top to bottom; headings of categories have no ratio."""
    rows: list[dict[str, Any]] = []
    for feature, part in summary.groupby("feature", sort=False):
        heading = len(part) > 1 and bool(part["level"].notna().all())
        if heading:
            rows.append({"label": _label(feature, f" (vs {part['reference'].iloc[0]})"), "ratio": None, "text": ""})
        for _, row in part.iterrows():
            category = bool(pd.notna(row["level"]))
            step = float(per.get(str(feature), 1.0 if category or np.isnan(row["step"]) else row["step"]))
            if heading:
                label = f"\u00a0\u00a0\u00a0{plain(row['level'], _LETTERS - 3)}"
            else:
                label = _label(
                    feature, f": {row['level']} vs {row['reference']}" if category else f", per {step:,.10g}"
                )
            # Of the coefficient, not of the ratio per unit, which may lie beyond all numbers where units are tiny.
            coef, width = step * row["coef"], abs(step) * _WIDTH * row["se"]
            with np.errstate(over="ignore"):
                ratio, lower, upper = np.exp([coef, coef - width, coef + width])
            rows.append({"label": label, "ratio": ratio, "lower": lower, "upper": upper})
            rows[-1]["text"] = _text(ratio, lower, upper)
    return rows


def _label(feature: object, ending: str, letters: int = _LETTERS) -> str:
    """Return the name of a feature with what it is measured by; the longer of the two gives way."""
    room = max(letters - len(ending), letters // 2)
    name = plain(feature, room)
    return name + plain(f"x{ending}", letters - min(room, len(str(feature))) + 1)[1:]


def _text(ratio: float, lower: float, upper: float) -> str:
    if math.isnan(lower):
        return _number(ratio)
    return f"{_number(ratio)} ({_number(lower)} to {_number(upper)})"


def _number(value: float) -> str:
    return ">999" if value >= 999.5 else f"{value:.2f}" if value < 10 else f"{value:.3g}"


def _limits(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Return the ends of the axis: room for all hazard ratios, and for their intervals unless they are endless."""
    ratios = [min(max(row["ratio"], 1 / _FURTHEST), _FURTHEST) for row in rows]
    low, high = min(*ratios, 1.0), max(*ratios, 1.0)
    ends = [(row["lower"], row["upper"]) for row in rows if np.isfinite(row["lower"]) and np.isfinite(row["upper"])]
    if ends:
        low = max(min(low, *(lower for lower, _ in ends)), low / _REACH)
        high = min(max(high, *(upper for _, upper in ends)), high * _REACH)
    return min(low, 0.9), max(high, 1.1)


def _draw_interval(ax: Axes, at: int, row: dict[str, Any], low: float, high: float) -> None:
    look: dict[str, Any] = {"color": PALETTE[0], "linewidth": 1.2}
    lower, upper = (row["ratio"],) * 2 if math.isnan(row["lower"]) else (row["lower"], row["upper"])
    ax.plot(np.clip([lower, upper], low, high), [at, at], **look)
    for beyond, end, marker in ((lower < low, low, "<"), (upper > high, high, ">")):
        if beyond:
            ax.plot(end, at, marker=marker, markersize=4, **look)
    if low <= row["ratio"] <= high:
        ax.plot(row["ratio"], at, marker="s", markersize=4, color=PALETTE[0])


def _draw_effect(ax: Axes, part: pd.DataFrame, p: float | None) -> None:
    first = part.iloc[0]
    category = bool(pd.notna(first["level"]))
    step = 1.0 if category else float(first["step"])
    effect, lower, upper = (step * part[name].to_numpy(np.float64) for name in ("effect", "lower", "upper"))
    # The band widens where events are few: the middle of it decides how much is seen.
    low = min(effect.min(), float(np.quantile(lower, 0.1)), 0.0)
    high = max(effect.max(), float(np.quantile(upper, 0.9)), 0.0)
    margin = 0.06 * (high - low)
    bottom, top = math.exp(max(low - margin, -20)), math.exp(min(high + margin, 20))
    ax.set_yscale("log")
    ax.axhline(1.0, color=GREY, linewidth=0.6, zorder=0)
    at = np.linspace(0, 1, len(part))
    band = np.exp(np.clip([lower, upper], -30, 30))
    ax.fill_between(at, *band, color=PALETTE[0], alpha=0.18, linewidth=0)
    ax.plot(at, np.exp(effect), color=PALETTE[0], linewidth=1.6)
    ax.axhline(math.exp(step * float(first["coef"])), color=DARK, linewidth=0.9, linestyle=DASHED)
    ax.set(xlim=(0, 1), ylim=(bottom, top))
    _log_ticks(ax.yaxis, bottom, top)
    _time_ticks(ax, part["time"].to_numpy(np.float64))
    ending = f": {first['level']} vs {first['reference']}" if category else f", per {step:,.10g}"
    ax.set_title(_label(first["feature"], ending, 26), loc="left", fontsize=8, fontweight="bold", pad=13)
    if p is not None and not math.isnan(p):
        text = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
        ax.annotate(text, (0, 1), (0, 3), xycoords="axes fraction", textcoords="offset points", fontsize=8)


def _time_ticks(ax: Axes, times: npt.NDArray[np.float64]) -> None:
    """Label an axis of evenly spaced points with round times."""
    marks: dict[float, str] = {}
    for share in (0.05, 0.35, 0.65, 0.95):
        time = float(f"{np.quantile(times, share):.2g}")
        place = float(np.interp(time, times, np.linspace(0, 1, len(times))))
        if times[0] <= time <= times[-1] and all(abs(place - other) > 0.12 for other in marks):
            marks[place] = f"{time:g}"
    ax.set_xticks(list(marks), list(marks.values()))


def _log_ticks(axis: Any, low: float, high: float) -> None:
    """Label a log axis with a few plain numbers."""
    from matplotlib.ticker import MaxNLocator, NullLocator

    if high / low < 2:
        steps = [float(t) for t in MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(low, high)]
    else:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        choices = [[d * 10.0**k for k in range(first, last + 1) for d in digits] for digits in _DIGITS]
        inside = [sum(low <= t <= high for t in choice) for choice in choices]
        steps = choices[next((k for k, count in enumerate(inside) if count <= _TICKS), -1)]
    steps = [float(f"{t:.6g}") for t in steps if low <= t <= high]
    axis.set_ticks(steps, [f"{t:g}" for t in steps])
    axis.set_minor_locator(NullLocator())
