"""Figures of patients: how long they were followed, what is missing, what is predicted for a few of them.

Each is one panel that is still readable on a phone, made from plain numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dcsurv.figures.style import (
    DARK,
    DASHED,
    GREY,
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
from dcsurv.nonparametric import censoring_curve, kaplan_meier
from dcsurv.target import FloatArray, unpack

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_AT_RISK_COLUMNS = 5


@styled
def follow_up(y: Any, *, unit: str | None = None, interval: pd.DataFrame | None = None) -> Figure:
    """Draw survival and follow-up of a cohort with the numbers at risk below.

    Parameters
    ----------
    y : outcome
        Of the patients; see :func:`dcsurv.make_outcome`.
    unit : str or None, default None
        What the times are measured in.
    interval : DataFrame or None, default None
        Columns ``time, lower, upper``: a pointwise interval of the Kaplan-Meier curve.

    Returns
    -------
    matplotlib.figure.Figure
        Kaplan-Meier curve and reverse Kaplan-Meier curve.

    Examples
    --------
    >>> from dcsurv.datasets import load_metabric
    >>> from dcsurv.figures import patients
    >>> X, y = load_metabric()
    >>> patients.follow_up(y, unit="days").axes[0].get_xlabel()
    'time (days)'
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
    """Draw the share of missing values of each feature.

    Parameters
    ----------
    share : Series
        The shares, from 0 to 1, by the name of the feature.

    Returns
    -------
    matplotlib.figure.Figure
        One bar per feature, in the order of ``share``.
    """
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
    times : array of float, shape (T,)
        Where the curves are known, ascending.
    survival : array of float, shape (n, T)
        Of each patient.
    labels : sequence of str
        What to call the patients, at most six.
    lower : array of float, shape (n, T), or None, default None
        Lower ends of the bands.
    upper : array of float, shape (n, T), or None, default None
        Upper ends of the bands.
    followed_to : array of float, shape (n,), or None, default None
        Until when patients like these were followed; what lies beyond is dashed.
    unit : str or None, default None
        What the times are measured in.
    step : bool, default False
        Whether curves run in steps.

    Returns
    -------
    matplotlib.figure.Figure
        One line per patient.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.figures import patients
    >>> times = np.linspace(1, 10, 10)
    >>> survival = np.exp(-np.outer([0.05, 0.2], times))
    >>> len(patients.patient_curves(times, survival, ["low risk", "high risk"]).axes[0].lines)
    2
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


def _steps(ax: Axes, curve: Any, end: float, **style: Any) -> None:
    t, values = np.append(0.0, curve.times), np.append(1.0, curve.values)
    ax.step(np.append(t, end), np.append(values, values[-1]), where="post", **style)
