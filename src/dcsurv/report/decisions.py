"""Whether acting on the predictions would help: decision curves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dcsurv.curves import SurvivalCurves
from dcsurv.figures import evaluation as draw
from dcsurv.metrics import net_benefit
from dcsurv.report.blocks import Picture, Section, number, percent
from dcsurv.report.study import Study

_SHOWN = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_MAX_ROWS = 4


def decisions(study: Study) -> Section:
    """Net benefit at each horizon against treating all, nobody, and by the reference."""
    section = Section("decisions", "Decision curves: would acting on it help?")
    section.say(
        "Suppose that patients are treated (or examined more closely) if their predicted risk reaches a threshold. "
        "The threshold says how many needless treatments one is willing to accept for one that is needed: at 20%, "
        "four. The net benefit counts patients treated rightly minus, weighted by that exchange rate, patients "
        "treated needlessly. A model helps at thresholds where its line lies above both “treat all” and “treat none”."
    )
    models = {study.name: study.curves}
    if study.reference_curves is not None:
        models[study.reference_name] = study.reference_curves
    pictures: list[Picture] = []
    recorded: list[dict[str, Any]] = []
    for t in study.horizons:
        with section.trying(f"Net benefit at {study.when(t)}"):
            tables = _net_benefits(study, models, t)
            pictures.append(_picture(study, t, tables, f"decision-{len(pictures) + 1}"))
            recorded += _at_thresholds(tables, study.name, t)
    section.show(*pictures)
    if recorded:
        header = ["horizon", "threshold", "treated", *models, "treat all"]
        section.table("Net benefit at some thresholds", header, [_cells(study, row) for row in recorded])
    else:
        section.warn(
            "No decision curve could be drawn: there is no horizon with events before it and patients after it."
        )
    section.convention(
        "Net benefit of Vickers and colleagues for censored outcomes: the share of patients treated, times their "
        "risk by the horizon, minus the share treated times their survival times p/(1 − p); treated means risk ≥ p. "
        "Treat none: 0. "
        + (
            "The risk of the treated is the share of events among them, weighted by 1/G given the "
            f"{'features' if study.follow_up.by == 'features' else 'predicted risk'}. "
            if study.follow_up.depends
            else "The risk of the treated is that of Kaplan-Meier, which assumes that within them censoring does not "
            "depend on the risk. "
        )
        + "No intervals: a decision weighs expected benefit."
    )
    section.numbers["net_benefit"] = recorded
    return section


def _net_benefits(study: Study, models: dict[str, SurvivalCurves], t: float) -> dict[str, pd.DataFrame]:
    """Return by model the net benefit at every percent up to where hardly anybody is treated any more."""
    risk = 1.0 - study.curves.evaluate(np.array([t]))[:, 0]
    levels = np.arange(1, max(10, min(99, int(100 * np.quantile(risk, 0.98)))) + 1) / 100
    censoring = study.weighting()["censoring"]
    return {
        name: net_benefit(study.y, curves, t, thresholds=levels, censoring=censoring) for name, curves in models.items()
    }


def _picture(study: Study, t: float, tables: dict[str, pd.DataFrame], name: str) -> Picture:
    helps = _helpful(tables[study.name])
    return Picture(
        name,
        draw.decision_curve(tables, label=f"by {study.when(t, brief=True)}"),
        f"Net benefit against the threshold at {study.when(t)}. The model is above treating all and treating nobody "
        f"{helps}.",
        f"Event by {study.when(t)}. The model helps {helps}.",
    )


def _at_thresholds(tables: dict[str, pd.DataFrame], name: str, t: float) -> list[dict[str, Any]]:
    """Return what the model, the others and treating all give at a few thresholds."""
    own = tables[name]
    levels = own["threshold"].to_numpy()
    rows = []
    for level in _sparse([level for level in _SHOWN if level <= levels[-1]]):
        at = int(np.argmin(np.abs(levels - level)))
        rows.append(
            {
                "horizon": t,
                "threshold": level,
                "treated": float(own["treated"].iloc[at]),
                "treat_all": float(own["treat_all"].iloc[at]),
                "net_benefit": {model: float(table["net_benefit"].iloc[at]) for model, table in tables.items()},
            }
        )
    return rows


def _cells(study: Study, row: dict[str, Any]) -> list[str]:
    benefits = [number(value) for value in row["net_benefit"].values()]
    shares = [percent(row["threshold"], 0), percent(row["treated"], 0)]
    return [study.when(row["horizon"]), *shares, *benefits, number(row["treat_all"])]


def _helpful(table: pd.DataFrame) -> str:
    """Say at which thresholds the model beats treating all and treating none."""
    better = (table["net_benefit"] > np.maximum(table["treat_all"], 0) + 1e-9).to_numpy()
    if not better.any():
        return "at none of the thresholds shown"
    starts = np.flatnonzero(better & ~np.append(False, better[:-1]))
    ends = np.flatnonzero(better & ~np.append(better[1:], False))
    longest = sorted(range(len(starts)), key=lambda k: starts[k] - ends[k])[:3]
    level = table["threshold"].to_numpy()
    parts = [
        f"{100 * level[starts[k]]:.0f}% to {100 * level[ends[k]]:.0f}%"
        if starts[k] < ends[k]
        else f"{100 * level[starts[k]]:.0f}%"
        for k in sorted(longest)
    ]
    return "at thresholds " + (", ".join(parts[:-1]) + " and " if len(parts) > 1 else "") + parts[-1]


def _sparse(levels: list[float]) -> list[float]:
    if len(levels) <= _MAX_ROWS:
        return levels
    keep = np.rint(np.linspace(0, len(levels) - 1, _MAX_ROWS)).astype(int)
    return [levels[k] for k in keep]
