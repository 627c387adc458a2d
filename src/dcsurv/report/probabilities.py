"""Whether the predicted probabilities mean what they say: at the horizons, and over the whole distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dcsurv.curves import SurvivalCurves
from dcsurv.figures import evaluation as draw
from dcsurv.messages import plural
from dcsurv.metrics import HorizonCalibration, calibration_at_horizon, d_calibration, evaluate
from dcsurv.metrics.null import p_text
from dcsurv.report.blocks import NOT_COMPUTED, Picture, Section, number, percent, records, with_interval
from dcsurv.report.performance import intervals_text, judging, show_others
from dcsurv.report.study import Study
from dcsurv.target import FloatArray

# Patients per point of the calibration plot, at least, and points at most.
_PER_GROUP, _MAX_GROUPS = 30, 10
# With fewer events by the horizon a calibration curve is mostly noise.
_FEW_EVENTS, _TOO_FEW = 20, 10
_NULL = ("floor", "null_95", "p_value")
# What the section of the horizons tells about by name.
_AT_HORIZONS = ("Calibration intercept", "Calibration slope", "E50", "E90", "ICI", "O/E")


def at_horizons(study: Study) -> Section:
    """Calibration curves with ICI, E50, E90 and observed / expected at each horizon."""
    section = Section("calibration", "Calibration at the horizons")
    section.say(
        "Among patients with a predicted risk of 20%, about 20 of 100 should have the event. The curve should follow "
        "the dashed diagonal; above it the model underestimates the risk, below it overestimates it."
    )
    if not study.horizons:
        section.warn("No horizon can be looked at: it takes events before and patients under observation after it.")
        return section
    found = _curves_at_horizons(section, study)
    measured = _measured(section, study) if found else {}
    section.show(*(one.picture for one in found if one.picture is not None))
    section.numbers["horizons"] = [_numbers(one, measured) for one in found]
    if found:
        _horizon_table(section, study)
        _null_table(section, study, "Mean distance from the diagonal, and what chance gives a perfect model", ["ici"])
        with section.folded("Median and 90th percentile of the distance"):
            _null_table(section, study, "Median (E50) and 90th percentile (E90) of the distance", ["e50", "e90"])
    section.convention(
        "Predicted risk: mean of 1 − S(t|x). Observed risk: Kaplan-Meier within tenths of predicted risk, averaged. "
        "Intercept and slope: of a weighted regression of “event by the horizon” on the complementary log-log of the "
        "predicted risk, with that link, the intercept with slope 1: 0 and 1 are perfect; an intercept below 0 says "
        "that risks are too high, a slope below 1 that they are too extreme. Curve: logistic regression of “event by "
        "the horizon” on a natural cubic spline (four knots) of the complementary log-log of the predicted risk, "
        f"weighted by the inverse probability of being observed. {study.weighted_by}ICI, E50, E90: mean, median and "
        "90th percentile of "
        "the distance between curve and diagonal over the patients. Points: patients grouped by predicted risk (at "
        f"least {_PER_GROUP} each), mean prediction against Kaplan-Meier with 95% interval. Grey bars: how many "
        "patients have which prediction. No perfect model has an ICI, E50 or E90 of 0 on a finite cohort: what "
        "it would score on average and below what in 95 of 100 cohorts, and p, the chance that it would score no "
        "better, come from outcomes drawn from the curves and censored as these patients were. " + intervals_text(study)
    )
    others = [metric for metric in judging("calibration") if metric.per_horizon and metric.name not in _AT_HORIZONS]
    show_others(section, study, others)
    return section


@dataclass(frozen=True)
class _AtHorizon:
    """Calibration at a horizon, with its picture; none where a curve would say nothing."""

    result: HorizonCalibration
    picture: Picture | None


def _curves_at_horizons(section: Section, study: Study) -> list[_AtHorizon]:
    found: list[_AtHorizon] = []
    for t in study.horizons:
        with section.trying(f"Calibration at {study.when(t)}"):
            result = calibration_at_horizon(
                study.y, study.curves, t, n_bootstrap=study.n_bootstrap, random_state=study.random_state,
                **study.weighting(),
            )  # fmt: skip
            events = int((study.y["event"] & (study.y["time"] <= t)).sum())
            if min(events, len(study.y) - events) < _TOO_FEW:
                section.warn(
                    f"{events} of {len(study.y)} patients had the event by {study.when(t)}: too few, on one of the "
                    "two sides, for a calibration curve."
                )
                found.append(_AtHorizon(result, None))
                continue
            drawn = sum(one.picture is not None for one in found)
            found.append(_AtHorizon(result, _picture(study, result, drawn + 1)))
            if events < _FEW_EVENTS:
                section.warn(
                    f"Only {plural(events, 'event lies', 'events lie')} before {study.when(t)}: the curve there is "
                    "mostly noise."
                )
    return found


def _measured(section: Section, study: Study) -> dict[tuple[str, float], dict[str, Any]]:
    """Return the metrics at the horizons, with bootstrap intervals or with what a perfect model would score."""
    with section.trying("What ICI and observed / expected are to be compared with"):
        table = evaluate(
            study.y,
            study.curves,
            n_bootstrap=study.n_bootstrap,
            horizons=study.horizons,
            metrics=_AT_HORIZONS,
            random_state=study.random_state,
            **study.weighting(),
        )
        return {(row["metric"], row["horizon"]): row for row in records(table)}
    return {}


def _numbers(one: _AtHorizon, measured: dict[tuple[str, float], dict[str, Any]]) -> dict[str, Any]:
    c = one.result
    out: dict[str, Any] = {
        "horizon": c.horizon,
        "expected_risk": c.expected_risk,
        "observed_risk": c.observed_risk,
        "ratio": c.ratio,
        "intercept": c.intercept,
        "slope": c.slope,
    }
    for name, metric in (("ratio", "O/E"), ("intercept", "Calibration intercept"), ("slope", "Calibration slope")):
        row = measured.get((metric, c.horizon), {})
        out[f"{name}_interval"] = (row["lower"], row["upper"]) if "lower" in row else None
    curve: dict[str, Any] = {"ici": c.ici, "e50": c.e50, "e90": c.e90}
    for name in tuple(curve):
        row = measured.get((name.upper(), c.horizon), {})
        curve[f"{name}_null"] = {key: row[key] for key in _NULL} if row else None
    return out | (dict.fromkeys(curve) if one.picture is None else curve)


def _horizon_table(section: Section, study: Study) -> None:
    section.table(
        "Calibration at the horizons",
        ["horizon", "predicted risk", "observed risk", "observed / expected (95% interval)", "intercept", "slope"],
        [
            [
                study.when(c["horizon"]),
                percent(c["expected_risk"]),
                percent(c["observed_risk"]),
                *(_within(c[name], c[f"{name}_interval"], 2) for name in ("ratio", "intercept", "slope")),
            ]
            for c in section.numbers["horizons"]
        ],
    )


def _within(value: float | None, interval: tuple[float, float] | None, digits: int = 3) -> str:
    return number(value, digits) if interval is None else with_interval(value, *interval, digits)


def _null_table(section: Section, study: Study, caption: str, names: Sequence[str]) -> None:
    """Tabulate distances from the diagonal beside what a perfect model would score."""
    rows = [
        [
            f"{name.upper()} by {study.when(c['horizon'])}",
            number(c[name]),
            *(
                (number(null["floor"]), number(null["null_95"]), p_text(null["p_value"]))
                if null
                else [NOT_COMPUTED] * 3
            ),
        ]
        for c in section.numbers["horizons"]
        for name in names
        for null in [c[f"{name}_null"]]
        if c[name] is not None
    ]
    if rows:
        section.table(caption, ["", "this model", "a perfect model, mean", "95 of 100 below", "p"], rows)


def over_the_distribution(study: Study) -> Section:
    """D-calibration and DDC with its floor, before and after recalibration."""
    section = Section("distribution", "Calibration over the whole distribution")
    section.say(
        "If the curves were true, the predicted survival at each patient’s own time, S(z|x), would be spread evenly "
        "between 0 and 1: ten bars of the same height. The divergence from flat is the DDC. A perfect model does not "
        "reach 0 on a finite cohort; outcomes drawn from its curves say what it would score here."
    )
    versions: dict[str, SurvivalCurves] = {}
    if study.before is not None:
        versions[study.before_name] = study.before
    versions["after recalibration" if versions else study.name] = study.curves
    rows: list[dict[str, Any]] = []
    for name, curves in versions.items():
        with section.trying(f"D-calibration ({name})"):
            rows.append({"name": name, **_spread(study, curves)})
    if rows:
        _show_spread(section, rows)
    if study.before is None:
        section.note("This model has no recalibration maps, so there is one histogram only.")
    section.convention(
        "Ten bins [k/10, (k+1)/10); a censored patient is spread over the bins where the event may still fall. DDC: "
        "Kullback-Leibler divergence from flat, natural logarithm, 0 to 2.303. A perfect model: mean and 95th "
        "percentile of the DDC over outcomes drawn from the model’s own curves and censored as these patients were; p: "
        "the share of them with a DDC at least as high. Under heavy censoring even a wrong model has a small DDC, so "
        "compare with the floor."
    )
    section.numbers["d_calibration"] = rows
    others = [metric for metric in judging("calibration") if not metric.per_horizon and metric.name != "DDC"]
    show_others(section, study, others)
    return section


def _spread(study: Study, curves: SurvivalCurves) -> dict[str, Any]:
    """Return how evenly S(z|x) is spread: the bins, and DDC with what a perfect model would score."""
    table = evaluate(study.y, curves, metrics=["DDC"], random_state=study.random_state, **study.weighting())
    row = records(table)[0]
    bins = d_calibration(study.y, curves).bins
    return {"ddc": row["value"], **{key: row[key] for key in _NULL}, "bins": bins.tolist()}


def _show_spread(section: Section, rows: list[dict[str, Any]]) -> None:
    words = [f"{row['name']}: {', '.join(percent(share, 0) for share in row['bins'])}" for row in rows]
    section.show(
        Picture(
            "d-calibration",
            draw.d_calibration_bins({row["name"]: np.array(row["bins"]) for row in rows}),
            "Share of patients in ten bins of predicted survival, lowest first. " + "; ".join(words) + ".",
            "D-calibration: the share of patients in each tenth of S(z|x). Bars as high as the dashed line are "
            "perfect; higher bars on the left: patients lived longer than predicted, on the right: events came "
            "earlier.",
        )
    )
    section.table(
        "Distance from an even spread",
        ["", "DDC", "a perfect model, mean", "95th percentile", "p"],
        [
            [
                row["name"],
                number(row["ddc"], 4),
                number(row["floor"], 4),
                number(row["null_95"], 4),
                p_text(row["p_value"]),
            ]
            for row in rows
        ],
    )
    last = rows[-1]
    section.say(
        f"The DDC is {last['ddc'] / last['floor']:.1f} times its floor"
        + (f" ({rows[0]['name']} {rows[0]['ddc'] / rows[0]['floor']:.1f} times). " if len(rows) > 1 else ". ")
        + (
            "A perfect model could well score that, which with few patients proves little."
            if last["p_value"] >= 0.05
            else "A perfect model would hardly score that: the curves are not calibrated."
        )
    )


def _picture(study: Study, result: HorizonCalibration, k: int) -> Picture:
    t = result.horizon
    risk = 1.0 - study.curves.evaluate(np.array([t]))[:, 0]
    groups = _groups(study, risk, t)
    reference = None
    if study.reference_curves is not None:
        other = calibration_at_horizon(study.y, study.reference_curves, t, **study.weighting())
        reference = (study.reference_name, other.predicted, other.observed)
    figure = draw.calibration_curve(
        result.predicted, result.observed, risks=risk, groups=groups, label=f"by {study.when(t, brief=True)}",
        band=None if result.lower is None or result.upper is None else (result.lower, result.upper),
        reference=reference,
    )  # fmt: skip
    return Picture(
        f"calibration-{k}",
        figure,
        f"Calibration plot at {study.when(t)}: mean predicted risk {percent(result.expected_risk)}, observed "
        f"{percent(result.observed_risk)}, mean distance from the diagonal {number(result.ici)}.",
        f"Risk of the event by {study.when(t)}: observed against predicted."
        + (
            " The shaded band is the 95% bootstrap interval at each predicted risk." if result.lower is not None else ""
        ),
    )


def _groups(study: Study, risk: FloatArray, t: float) -> pd.DataFrame | None:
    """Return mean predicted and Kaplan-Meier risk, with interval, of groups by predicted risk."""
    from lifelines import KaplanMeierFitter

    n_groups = min(_MAX_GROUPS, len(risk) // _PER_GROUP)
    if n_groups < 2 or np.ptp(risk) == 0:
        return None
    edges = np.unique(np.quantile(risk, np.linspace(0, 1, n_groups + 1)[1:-1]))
    group = np.searchsorted(edges, risk, side="right")
    rows = []
    for k in range(len(edges) + 1):
        inside = group == k
        if inside.sum() < _PER_GROUP // 2 or study.y["time"][inside].max() < t:
            continue
        fitted = KaplanMeierFitter().fit(study.y["time"][inside], study.y["event"][inside])
        interval = fitted.confidence_interval_survival_function_
        at = int(np.searchsorted(interval.index.to_numpy(), t, side="right")) - 1
        low, high = interval.iloc[at]
        rows.append(
            {
                "predicted": float(risk[inside].mean()),
                "observed": 1 - float(fitted.predict(t)),
                "lower": 1 - float(high),
                "upper": 1 - float(low),
            }
        )
    return pd.DataFrame(rows) if rows else None
