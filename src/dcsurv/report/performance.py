"""How well the model ranks patients, and how far its predictions lie from what happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dcsurv.curves import SurvivalCurves
from dcsurv.figures import evaluation as draw
from dcsurv.messages import plural
from dcsurv.metrics import (
    Metric,
    brier_score,
    compare,
    concordance_index_harrell,
    concordance_index_uno,
    evaluate,
    evaluate_over_time,
    find_metric,
    integrated_brier_score,
    list_metrics,
)
from dcsurv.metrics.catalogue import Aspect
from dcsurv.metrics.resampling import resample_counts
from dcsurv.report.blocks import NOT_COMPUTED, Picture, Section, number, percent, records, with_interval
from dcsurv.report.study import Study

# A width of the interval of C that evaluations aim at (Riley and colleagues, Statistics in Medicine 41, 2022).
_WIDEST = 0.1
# With fewer events even an interval is a guess.
_LEAST_EVENTS = 10
_BASELINE = "Kaplan-Meier"


def discrimination(study: Study) -> Section:
    """Concordance and AUC with intervals, beside the reference."""
    section = Section("discrimination", "Discrimination: does it rank patients correctly?")
    section.say(
        "A model discriminates if patients who have the event earlier were predicted to be worse off. 0.5 is "
        "guessing, 1 is perfect."
    )
    metrics = [metric for metric in judging("discrimination") if not metric.per_horizon]
    models = _models(study)
    rows = [row for metric in metrics for row in _measured(section, study, models, metric)]
    tau = study.horizons[-1] if study.horizons else None
    for name in ("Harrell’s C", "Uno’s C"):
        with section.trying(name):
            rows += [
                {"model": model, **_risk_concordance(study, curves, name, tau)} for model, curves in models.items()
            ]
    if rows:
        if wide := imprecise(study, rows):
            section.warn(wide)
        _side_by_side(section, f"Discrimination on the {study.kind} patients", rows, list(models))
    _auc_over_time(section, study, models)
    if study.reference_curves is not None and study.n_bootstrap:
        _differences(section, study, metrics)
    elif study.reference_curves is None:
        section.note("No reference model was passed, so there is none to compare with.")
    section.convention(
        f"{conventions(metrics)}Here z is a patient’s own time and S the predicted survival; CDAUC and AUC(t) compare "
        "patients at 50 times from the first to the last event. Harrell’s and Uno’s C: of minus the mean survival time "
        "restricted to the model’s last node; in Uno’s, events are weighted by 1/G(z−)²"
        + (f" and those before {study.when(tau)} count" if tau is not None else "")
        + ". "
        + study.weighted_by
        + intervals_text(study)
    )
    section.numbers["metrics"] = rows
    show_others(section, study, [metric for metric in judging("discrimination") if metric.per_horizon])
    return section


def imprecise(study: Study, rows: Sequence[dict[str, Any]]) -> str:
    """Say so, and how many events would do, if the interval of the model's C-td is wide; nothing otherwise."""
    own = next((row for row in rows if row["metric"] == "C-td" and row["model"] == study.name), None)
    if study.n_events < _LEAST_EVENTS:
        return f"All of this rests on {plural(study.n_events, 'event')}: nothing can be judged by it."
    if own is None or own["lower"] is None or not np.isfinite(own["upper"] - own["lower"]):
        return ""
    width = own["upper"] - own["lower"]
    if width <= _WIDEST:
        return ""
    # A standard error falls with the root of the number of events.
    needed = max(10, round(study.n_events * (width / _WIDEST) ** 2, -1))
    return (
        f"{plural(study.n_events, 'event')} of these patients leave C-td open between {number(own['lower'], 2)} and "
        f"{number(own['upper'], 2)}; about {needed:,.0f} would bring that to a width of {_WIDEST}. Read the intervals, "
        "not the single numbers."
    )


def error(study: Study) -> Section:
    """Brier score over time against Kaplan-Meier and the reference."""
    section = Section("error", "Overall error: Brier score")
    section.say(
        "The Brier score is the squared distance between the predicted probability of survival and what happened: 0 "
        "is perfect, lower is better. A useful model stays below the Kaplan-Meier curve, which gives every patient "
        "the same prediction."
    )
    models = _models(study) | {_BASELINE: study.baseline}
    section.numbers |= {
        "metrics": _integrated(section, study, models),
        "horizons": study.horizons,
        "brier_at_horizons": _brier_at_horizons(section, study, models),
    }
    _brier_table(section, study)
    _brier_over_time(section, study, models)
    ibs = find_metric("IBS")
    if study.reference_curves is not None and study.n_bootstrap:
        _differences(section, study, [ibs])
    section.convention(
        "Graf’s Brier score, weighted by 1/G(z−) for events and 1/G(t) for those observed longer. "
        f"{study.weighted_by}Integrated: trapezoid rule from the 5th to the 95th percentile of the observed times, "
        "divided by its length. Better "
        "than Kaplan-Meier by: 1 − model / Kaplan-Meier (index of prediction accuracy). Kaplan-Meier: of the "
        + ("training patients. " if study.baseline_of == "training" else "same patients, which flatters it a little. ")
        + intervals_text(study)
    )
    show_others(section, study, [metric for metric in judging("error") if metric != ibs])
    return section


def _integrated(section: Section, study: Study, models: dict[str, SurvivalCurves]) -> list[dict[str, Any]]:
    """Return the integrated Brier score of every model, and what it gains on Kaplan-Meier."""
    rows: list[dict[str, Any]] = []
    with section.trying("The integrated Brier score"):
        for name, curves in models.items():
            if name == _BASELINE:
                value = integrated_brier_score(study.y, curves, **study.weighting())
                rows.append({"model": name, "metric": "IBS", "value": value, "lower": None, "upper": None})
            else:
                rows.append({"model": name, **_of_row(_evaluated(study, curves, "IBS")[0])})
        empty = rows[-1]["value"]
        for row in rows[:-1]:
            row["gain"] = 1 - row["value"] / empty if empty > 0 else None
    return rows


def _brier_at_horizons(section: Section, study: Study, models: dict[str, SurvivalCurves]) -> dict[str, list[float]]:
    """Return the Brier score of every model at each horizon, NaN where it is undefined."""
    out: dict[str, list[float]] = {}
    if study.horizons:
        with section.trying("The Brier score at the horizons"):
            for name, curves in models.items():
                used, score = brier_score(study.y, curves, study.horizons, **study.weighting())
                out[name] = [dict(zip(used, score, strict=True)).get(t, np.nan) for t in study.horizons]
    return out


def _brier_table(section: Section, study: Study) -> None:
    rows, at_horizons = section.numbers["metrics"], section.numbers["brier_at_horizons"]
    if not rows:
        return
    section.table(
        "Brier score",
        ["model", "integrated", "better than Kaplan-Meier by", *(f"at {study.when(t)}" for t in study.horizons)],
        [
            [
                row["model"],
                with_interval(row["value"], row["lower"], row["upper"]),
                percent(row["gain"]) if "gain" in row else NOT_COMPUTED,
                *(number(value) for value in at_horizons.get(row["model"], [np.nan] * len(study.horizons))),
            ]
            for row in rows
        ],
    )


def _brier_over_time(section: Section, study: Study, models: dict[str, SurvivalCurves]) -> None:
    tables = _over_time(section, study, models, "Brier", "The Brier score over time")
    if not tables:
        return
    figure = draw.metric_over_time(
        tables, ylabel=f"Brier score ({find_metric('IBS').direction})", unit=study.unit, horizons=study.horizons
    )
    section.show(
        Picture(
            "brier",
            figure,
            _alt_over_time("Brier score over time", tables),
            "Brier score over time; the shaded band is the 95% bootstrap interval of the model.",
        )
    )


def judging(aspect: Aspect) -> list[Metric]:
    """Return the metrics that judge discrimination, error or calibration."""
    return [metric for metric in list_metrics() if metric.aspect == aspect]


def conventions(metrics: Sequence[Metric]) -> str:
    """Say how metrics are computed, in their records' words."""
    return "".join(f"{metric.name}: {metric.convention}. " for metric in metrics)


def show_others(section: Section, study: Study, metrics: Sequence[Metric]) -> None:
    """Show metrics that no section knows by name, such as those of extensions, and say what they mean."""
    models = _models(study)
    rows: list[dict[str, Any]] = []
    for metric in metrics:
        if metric.per_horizon and not study.horizons:
            continue
        found = _measured(section, study, models, metric)
        if found:
            section.say(f"{metric.name}: {metric.meaning} {metric.direction.capitalize()}.")
            section.convention(conventions([metric]))
            rows += found
    if rows:
        _side_by_side(section, "Other metrics", rows, list(models))
        section.numbers["others"] = rows


def intervals_text(study: Study) -> str:
    if not study.n_bootstrap:
        return "No intervals: resampling was turned off."
    return (
        f"Intervals: 95%, percentiles of {study.n_bootstrap} bootstrap samples of the patients, the model staying as "
        "it is."
    )


def _models(study: Study) -> dict[str, SurvivalCurves]:
    models = {study.name: study.curves}
    if study.reference_curves is not None:
        models[study.reference_name] = study.reference_curves
    return models


def _evaluated(study: Study, curves: SurvivalCurves, metric: str) -> list[dict[str, Any]]:
    """Return the rows of a metric, one or one per horizon, without what is shown beside it."""
    table = evaluate(
        study.y,
        curves,
        n_bootstrap=study.n_bootstrap,
        horizons=study.horizons or None,
        metrics=[metric],
        random_state=study.random_state,
        **study.weighting(),
    )
    return [row for row in records(table) if row["metric"] == metric]


def _measured(
    section: Section, study: Study, models: dict[str, SurvivalCurves], metric: Metric
) -> list[dict[str, Any]]:
    """Return a metric of every model; a horizon is part of the name."""
    rows: list[dict[str, Any]] = []
    with section.trying(metric.name):
        for name, curves in models.items():
            for row in _evaluated(study, curves, metric.name):
                rows.append({"model": name, **_of_row(row)})
                if metric.per_horizon:
                    rows[-1]["metric"] += f" at {study.when(row['horizon'])}"
    return rows


def _of_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a table of metrics as the report keeps it."""
    lower, upper = row.get("lower"), row.get("upper")
    return {
        "metric": str(row["metric"]),
        "value": float(row["value"]),
        "lower": None if lower is None else float(lower),
        "upper": None if upper is None else float(upper),
    }


def _risk_concordance(study: Study, curves: SurvivalCurves, metric: str, tau: float | None) -> dict[str, Any]:
    risk = -curves.rmst()

    def once(counts: Any) -> float:
        if metric == "Harrell’s C":
            return concordance_index_harrell(study.y, risk, sample_weight=counts)
        return concordance_index_uno(study.y, risk, tau=tau, sample_weight=counts, **study.weighting())

    value, draws = once(None), []
    if study.n_bootstrap:
        for chunk in resample_counts(len(study.y), study.n_bootstrap, study.random_state):
            for counts in chunk:
                try:
                    draws.append(once(counts))
                except ValueError:  # a resample without a comparable pair
                    continue
    lower, upper = np.quantile(draws, [0.025, 0.975]).tolist() if draws else (None, None)
    return {"metric": metric, "value": value, "lower": lower, "upper": upper}


def _side_by_side(section: Section, caption: str, rows: list[dict[str, Any]], models: list[str]) -> None:
    """Print one row per metric and one column per model."""
    by = {(row["metric"], row["model"]): row for row in rows}
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    table = []
    for metric in metrics:
        cells = [by.get((metric, name)) for name in models]
        texts = [NOT_COMPUTED if c is None else with_interval(c["value"], c["lower"], c["upper"]) for c in cells]
        table.append([metric, *texts])
    section.table(caption, ["", *models], table)


def _over_time(
    section: Section, study: Study, models: dict[str, SurvivalCurves], metric: str, what: str
) -> dict[str, pd.DataFrame]:
    """Return a metric over time by model, the first with its interval."""
    tables: dict[str, pd.DataFrame] = {}
    with section.trying(what):
        for k, (name, curves) in enumerate(models.items()):
            tables[name] = evaluate_over_time(
                study.y,
                curves,
                n_bootstrap=study.n_bootstrap if k == 0 else 0,
                metrics=[metric],
                random_state=study.random_state,
                **study.weighting(),
            )
    return tables


def _auc_over_time(section: Section, study: Study, models: dict[str, SurvivalCurves]) -> None:
    tables = _over_time(section, study, models, "AUC", "AUC over time")
    if not tables:
        return
    figure = draw.metric_over_time(
        tables,
        ylabel=f"AUC(t) ({find_metric('CDAUC').direction})",
        unit=study.unit,
        horizons=study.horizons,
        chance=0.5,
    )
    section.show(
        Picture(
            "auc",
            figure,
            _alt_over_time("AUC over time", tables),
            "AUC at each time; the shaded band is the 95% bootstrap interval of the model, wide where few events "
            "lie before or few patients after a time. Thin lines mark the horizons.",
        )
    )


def _alt_over_time(what: str, tables: dict[str, pd.DataFrame]) -> str:
    parts = [f"{name} from {t['value'].min():.2f} to {t['value'].max():.2f}" for name, t in tables.items()]
    return f"{what}: " + "; ".join(parts) + "."


def _differences(section: Section, study: Study, metrics: Sequence[Metric]) -> None:
    """Say for each metric how far model and reference lie apart, on the same resamples."""
    with section.trying("The comparison with the reference"):
        table = compare(
            study.y,
            {study.reference_name: study.reference_curves, study.name: study.curves},
            n_bootstrap=study.n_bootstrap,
            metrics=[metric.name for metric in metrics],
            random_state=study.random_state,
            **study.weighting(),
        )
        gaps = [
            f"{row['metric']} {with_interval(row['difference'], row['lower'], row['upper'])}" for row in records(table)
        ]
        section.say(
            f"Model minus {study.reference_name}, on the same resamples of these patients: {'; '.join(gaps)}. This "
            "compares two fitted models on one set of patients; which way of fitting is better shows when both are "
            "fitted again and again (validation)."
        )
        section.numbers["difference"] = records(table.drop(columns="horizon"))
