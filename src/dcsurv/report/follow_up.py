"""How long the patients were followed, and what of the predictions lies beyond that."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.figures import patients as draw
from dcsurv.nonparametric import StepFunction, censoring_curve, kaplan_meier
from dcsurv.report.blocks import Picture, Section, number, percent, with_interval
from dcsurv.report.study import Study


def follow_up(study: Study) -> Section:
    """Describe censoring and follow-up."""
    section = Section("follow-up", "Censoring and follow-up")
    y = study.y
    last = float(y["time"].max())
    survival = kaplan_meier(y)
    medians = {
        "median_follow_up": _median(censoring_curve(y, events_first=False)),
        "median_survival": _median(survival),
    }
    censored = 1 - study.n_events / len(y)
    section.say(
        f"{study.n_events:,} of {len(y):,} patients had the event; {percent(censored)} were censored. Median follow-up "
        f"was {_when(study, medians['median_follow_up'])}, the longest {study.when(last)}. "
        + (
            f"Half of the patients had had the event by {study.when(medians['median_survival'])}."
            if medians["median_survival"] is not None
            else "Survival stayed above one half during follow-up, so that there is no median survival time."
        )
    )
    _warn_of_ends(section, study, last)
    interval = None
    with section.trying("The interval of the Kaplan-Meier curve"):
        interval = _interval(y)
    section.show(
        Picture(
            "follow-up",
            draw.follow_up(y, unit=study.unit, interval=interval),
            f"Kaplan-Meier curve of the {len(y)} patients, falling to {number(float(survival.values[-1]), 2)} at the "
            "end of follow-up, with the curve of follow-up and the numbers at risk below.",
            "Kaplan-Meier curve with 95% interval, follow-up (reverse Kaplan-Meier) and numbers at risk.",
        )
    )
    at_horizons = _at_horizons(section, study, survival, interval)
    section.numbers |= _reach(section, study)
    section.convention(
        "Median follow-up: reverse Kaplan-Meier, in which censoring is the event and patients with an event count as "
        "censored. Survival: Kaplan-Meier; interval: Greenwood’s variance on the log(−log) scale, pointwise. At "
        "risk: still under observation just before the time. Horizons (chosen by the user or, without a choice, the "
        "quartiles of the event times), exactly: "
        f"{', '.join(f'{t:g}' for t in study.horizons) or 'none could be used'}."
    )
    section.numbers |= {
        **medians,
        "censored_share": censored,
        "last_time": last,
        "horizons": at_horizons,
        "left_out": [{"horizon": t, "reason": reason} for t, reason in study.left_out],
    }
    return section


def _warn_of_ends(section: Section, study: Study, last: float) -> None:
    """Say which horizons are left out, and where the model ends before the patients do."""
    for t, reason in study.left_out:
        section.warn(f"The horizon {study.when(t)} is left out of this report: {reason}.")
    last_node = float(study.curves.times[-1])
    if last_node < last:
        section.note(
            f"The model predicts up to {study.when(last_node)}; beyond that its curves are held constant, and the few "
            "patients seen for longer are judged by that value."
        )


def _at_horizons(
    section: Section, study: Study, survival: StepFunction, interval: pd.DataFrame | None
) -> list[dict[str, Any]]:
    """Tabulate the survival of the cohort at the horizons, and return the numbers."""
    time, event = study.y["time"], study.y["event"]
    rows: list[dict[str, Any]] = []
    for t in study.horizons:
        low, high = (None, None) if interval is None else _read_interval(interval, t)
        rows.append(
            {
                "horizon": t,
                "at_risk": int((time >= t).sum()),
                "events": int((event & (time <= t)).sum()),
                "survival": float(survival(t)),
                "lower": low,
                "upper": high,
            }
        )
    if rows:
        with section.folded("The numbers at the horizons"):
            section.table(
                "Survival of the cohort at the horizons",
                ["horizon", "at risk", "events so far", "survival (95% interval)"],
                [
                    [
                        study.when(r["horizon"]),
                        f"{r['at_risk']:,}",
                        f"{r['events']:,}",
                        with_interval(r["survival"], r["lower"], r["upper"]),
                    ]
                    for r in rows
                ],
            )
    return rows


def _reach(section: Section, study: Study) -> dict[str, Any]:
    """Say which features decide how long a patient could be followed, and what is predicted beyond that."""
    found = study.follow_up
    risk = found.describe_risk()
    if found.depends and found.by == "risk":
        section.warn(
            f"{risk}: the weights on this page follow it. With one censoring curve for all, the Brier score, the AUC "
            "and the calibration at a horizon would be wrong. So patients are weighted within tenths of the predicted "
            "risk, and count at times that at least 5% of their tenth could reach, or if four fifths of it had had the "
            "event before."
        )
    elif found.depends:
        section.warn(
            f"{found.describe()} How long a patient could be followed depends on who it is; with one censoring curve "
            "for all, the Brier score, the AUC and the calibration at a horizon would be wrong, and would favour "
            "models that predict death where nobody could be followed. So the weights on this page follow the "
            "features, and patients count at times that at least 5% of those like them could reach."
        )
    elif not np.isnan(found.concordance):
        section.say(
            "The features hardly predict who is censored when (concordance "
            f"{number(found.concordance, 2)}; 0.5 is not at all), so one censoring curve serves for all."
        )
    if risk and found.by == "features":
        section.say(f"{risk}{'; the weights follow the features' if found.depends else ''}.")
    until = study.curves.followed_to
    reach: list[dict[str, Any]] = []
    if until is not None and np.isfinite(until).all():
        reach = [{"horizon": t, "beyond": float((until < t).mean())} for t in study.horizons]
        counted = found.followed_until[found.groups]
        for row in reach:
            row["counted"] = float((counted >= row["horizon"]).mean()) if found.depends else 1.0
        low, high = float(until.min()), float(until.max())
        if low < high:
            section.table(
                "How far patients like these were followed in training",
                ["horizon", "patients for whom it lies beyond that", "patients who count in the metrics"],
                [[study.when(r["horizon"]), percent(r["beyond"]), percent(r["counted"])] for r in reach],
            )
            section.note(
                f"Patients like these were followed to {study.when(low)}, or to as late as {study.when(high)}, "
                "depending on their features. What is predicted for later was learnt from patients with other "
                "features; it is drawn dashed."
            )
    return {
        "censoring": {
            "depends_on": found.by if found.depends else None,
            "concordance": found.concordance,
            "risk": None if found.risk is None else found.risk._asdict(),
            "features": [{"feature": one.feature, "concordance": one.concordance} for one in found.features],
        },
        "reach": reach,
    }


def _median(curve: StepFunction) -> float | None:
    reached = np.flatnonzero(curve.values <= 0.5)
    return float(curve.times[reached[0]]) if len(reached) else None


def _when(study: Study, t: float | None) -> str:
    return "not reached" if t is None else study.when(t)


def _interval(y: npt.NDArray[np.void]) -> pd.DataFrame:
    from lifelines import KaplanMeierFitter

    fitted = KaplanMeierFitter().fit(y["time"], y["event"]).confidence_interval_survival_function_
    table = pd.DataFrame(
        {"time": fitted.index, "lower": fitted.iloc[:, 0].to_numpy(), "upper": fitted.iloc[:, 1].to_numpy()}
    )
    return table.fillna({"lower": 0.0, "upper": 1.0}) if table["lower"].isna().all() else table.ffill()


def _read_interval(interval: pd.DataFrame, t: float) -> tuple[float, float]:
    at = int(np.searchsorted(interval["time"].to_numpy(), t, side="right")) - 1
    return float(interval["lower"].iloc[at]), float(interval["upper"].iloc[at])
