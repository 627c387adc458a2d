"""Whether acting on the predictions would help: decision curves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dcsurv.curves import SurvivalCurves
from dcsurv.figures import evaluation as draw
from dcsurv.metrics import helpful_thresholds, net_benefit
from dcsurv.report.blocks import Picture, Section, number, percent, with_interval
from dcsurv.report.study import Study

_SHOWN = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_MAX_ROWS = 4
_LIMITS = ("lower", "upper", "over_all_lower", "over_all_upper")


def decisions(study: Study) -> Section:
    """Net benefit at each horizon against treating all, nobody, and by the reference."""
    section = Section("decisions", "Decision curves: would acting on it help?")
    section.say(
        "Suppose that patients are treated (or examined more closely) if their predicted risk reaches a threshold. "
        "The threshold says how many needless treatments one is willing to accept for one that is needed: at 20%, "
        "four. The net benefit counts patients treated rightly minus, weighted by that exchange rate, patients "
        "treated needlessly. A model helps at thresholds where it does better than both “treat all” and “treat none”; "
        "by chance the line of a useless one lies above both somewhere, so that this is said only where it is sure "
        "for all thresholds and horizons at once."
    )
    models = {study.name: study.curves}
    if study.reference_curves is not None:
        models[study.reference_name] = study.reference_curves
    pictures: list[Picture] = []
    recorded: list[dict[str, Any]] = []
    helps = _where_it_helps(study, section)
    for t in study.horizons:
        with section.trying(f"Net benefit at {study.when(t)}"):
            tables = _net_benefits(study, models, t)
            if helps is not None:
                own = helps.loc[helps["horizon"] == t, "helps"].to_numpy()
                tables[study.name]["helps"] = own[: len(tables[study.name])]
            pictures.append(_picture(study, t, tables, f"decision-{len(pictures) + 1}"))
            recorded += _at_thresholds(tables, study.name, t)
    section.show(*pictures)
    if recorded:
        header = ["horizon", "threshold", "treated", *models, "treat all", f"{study.name} − treat all"]
        section.table("Net benefit at some thresholds", header, [_cells(study, row) for row in recorded])
    else:
        section.warn(
            "No decision curve could be drawn: there is no horizon with events before it and patients after it."
        )
    section.convention(_convention(study))
    section.numbers |= {
        "net_benefit": recorded,
        "helps": None if helps is None else helps.loc[helps["helps"], ["horizon", "threshold"]].to_dict("records"),
    }
    return section


def _where_it_helps(study: Study, section: Section) -> pd.DataFrame | None:
    """Return at which thresholds and horizons the model is shown to help; None without bootstrap samples."""
    if not (study.n_bootstrap and study.horizons):
        return None
    with section.trying("Whether the model helps"):
        return helpful_thresholds(
            study.y,
            study.curves,
            sorted(study.horizons),
            censoring=study.weighting()["censoring"],
            n_bootstrap=study.n_bootstrap,
            random_state=study.random_state,
        )
    return None


def _convention(study: Study) -> str:
    return (
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
        + (
            f"Intervals: 95%, percentiles of {study.n_bootstrap} bootstrap samples, each threshold by itself. It helps "
            "where the lower limits of the differences to treating all and to treating none are above 0, and these "
            "limits hold with 95% for both differences, every percent from 1% to 99% and all horizons at once (the "
            "largest standardised deviation over bootstrap samples). "
            if study.n_bootstrap
            else "Without bootstrap samples there are no intervals, and nothing is said about where it helps. "
        )
        + "A decision also weighs what lies outside these numbers."
    )


def _net_benefits(study: Study, models: dict[str, SurvivalCurves], t: float) -> dict[str, pd.DataFrame]:
    """Return by model the net benefit at every percent up to where hardly anybody is treated any more."""
    risk = 1.0 - study.curves.evaluate(np.array([t]))[:, 0]
    levels = np.arange(1, max(10, min(99, int(100 * np.quantile(risk, 0.98)))) + 1) / 100
    censoring = study.weighting()["censoring"]
    return {
        name: net_benefit(
            study.y,
            curves,
            t,
            thresholds=levels,
            censoring=censoring,
            n_bootstrap=study.n_bootstrap if name == study.name else 0,
            random_state=study.random_state,
        )
        for name, curves in models.items()
    }


def _picture(study: Study, t: float, tables: dict[str, pd.DataFrame], name: str) -> Picture:
    helps = _helpful(tables[study.name])
    return Picture(
        name,
        draw.decision_curve(tables, label=f"by {study.when(t, brief=True)}"),
        f"Net benefit against the threshold at {study.when(t)}, with treating all and treating nobody. {helps}",
        f"Event by {study.when(t)}. {helps}",
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
                "over_all": float(own["net_benefit"].iloc[at] - own["treat_all"].iloc[at]),
                **{name: float(own[name].iloc[at]) for name in _LIMITS if name in own},
            }
        )
    return rows


def _cells(study: Study, row: dict[str, Any]) -> list[str]:
    own, *others = row["net_benefit"].values()
    benefits = [with_interval(own, row.get("lower"), row.get("upper")), *(number(value) for value in others)]
    shares = [percent(row["threshold"], 0), percent(row["treated"], 0)]
    over_all = with_interval(row["over_all"], row.get("over_all_lower"), row.get("over_all_upper"))
    return [study.when(row["horizon"]), *shares, *benefits, number(row["treat_all"]), over_all]


def _helpful(table: pd.DataFrame) -> str:
    """Say at which thresholds the model is shown to beat treating all and treating none."""
    if "helps" not in table:
        return ""
    better = table["helps"].to_numpy()
    if not better.any():
        return "The model is not shown to help at any threshold."
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
    at = "among others at thresholds" if len(starts) > len(parts) else "at thresholds"
    listed = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + f" and {parts[-1]}"
    return f"The model helps {at} {listed}."


def _sparse(levels: list[float]) -> list[float]:
    if len(levels) <= _MAX_ROWS:
        return levels
    keep = np.rint(np.linspace(0, len(levels) - 1, _MAX_ROWS)).astype(int)
    return [levels[k] for k in keep]
