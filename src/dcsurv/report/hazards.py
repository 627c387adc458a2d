"""What a Cox model says about each feature: hazard ratios, and whether they stay the same over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from dcsurv import figures
from dcsurv.explanation import nomogram
from dcsurv.figures.cox import MOST_PANELS, MOST_ROWS
from dcsurv.models import CoxPH
from dcsurv.models.cox_summary import describe_test, p_text, ratio_text
from dcsurv.report.blocks import NOT_COMPUTED, Picture, Section, records
from dcsurv.report.study import Study


def hazard_ratios(study: Study) -> Section | None:
    """Hazard ratios of the model, or of its reference, if that is a Cox model; otherwise there is no such section."""
    candidates = {"the model": study.model, "the reference, CoxPH": study.reference}
    # Maps change probabilities, not what the model inside says about the features.
    inside = {whose: one.innermost for whose, one in candidates.items() if one is not None}
    whose, cox = next(((whose, one) for whose, one in inside.items() if isinstance(one, CoxPH)), ("", None))
    if cox is None:
        return None
    section = Section("hazards", "Hazard ratios")
    section.say(
        f"How the hazard, the risk of the event at any moment, changes with each feature in {whose}, the others being "
        "the same: 1 is no change, 2 twice the hazard. This describes the training patients; it does not say what an "
        "intervention would change."
    )
    with section.trying("Standard errors"):
        summary = cox.summary_
    tests = cox.proportional_hazards_
    first, *over_time = _pictures(study, cox, summary, tests)
    section.show(first)
    section.say(describe_test(tests))
    with section.folded("The numbers, and hazard ratios over time"):
        _tabulate(section, summary, tests)
        section.show(*over_time, *nomogram_picture(cox, study.horizons, study.when))
    for remark in cox.remarks_:
        section.note(remark)
    section.convention(
        "Hazard ratio: exp(β) of Cox’s model with Efron’s rule for ties, per unit in which the feature was passed, "
        "with Wald’s 95% interval and p. PH test: score test of β changing with 1 − KM(t), all levels of a category "
        "together, as in R’s cox.zph since survival 3.0. Over time: scaled Schoenfeld residuals of the training "
        "patients, smoothed by a natural cubic spline with 4 parameters; pointwise 95% band. No adjustment for looking "
        "at several features."
    )
    section.numbers |= {
        "model": whose,
        "hazard_ratios": records(summary.reset_index()),
        "proportional_hazards": records(tests.reset_index()),
    }
    return section


def nomogram_picture(cox: CoxPH, horizons: Sequence[float], when: Callable[[float], str]) -> list[Picture]:
    """Return the nomogram of a Cox model, if it can be drawn: it needs horizons, and features as they were passed."""
    if not horizons or cox.population_ is None or len(cox.summary_) > MOST_ROWS:
        return []
    try:
        sheet = nomogram(cox, list(horizons))
    except ValueError:
        return []
    return [
        Picture(
            "nomogram",
            sheet.plot(),
            f"Nomogram: points of every feature, and the risk by {', '.join(when(t) for t in horizons)} for their sum.",
            "Nomogram of the Cox model before any recalibration: read the points of each feature on the first line, "
            "add them up, and read the risk below the sum. Lines span the middle of the training patients.",
        )
    ]


def _tabulate(section: Section, summary: pd.DataFrame, tests: pd.DataFrame) -> None:
    rows: list[list[str]] = []
    indented: set[int] = set()
    for feature, part in summary.groupby("feature", sort=False):
        tested = p_text(float(tests["p"][feature])) or NOT_COMPUTED
        together = len(part) > 1
        if together:
            rows.append([f"{feature} (vs {part['reference'].iloc[0]})", "", "", tested])
            indented |= set(range(len(rows), len(rows) + len(part)))
        for _, row in part.iterrows():
            name = str(row["level"]) if together else str(feature)
            if not together and pd.notna(row["level"]):
                name += f": {row['level']} vs {row['reference']}"
            ratio, interval = ratio_text(row["hazard_ratio"], row["lower"], row["upper"])
            text = f"{ratio} ({interval.replace(' ', chr(0xA0))})" if interval else ratio
            rows.append([name, text, p_text(row["p"]) or NOT_COMPUTED, "" if together else tested])
    shown = rows[: 3 * MOST_ROWS]
    header = ["", "hazard ratio per unit (95% interval)", "p", "PH test, p"]
    section.table("Hazard ratios", header, shown, indented=frozenset(k for k in indented if k < len(shown)))
    if len(shown) < len(rows):
        section.note(f"The table shows the first {len(shown)} of {len(rows)} rows; model.summary_ has all.")


def _pictures(study: Study, cox: CoxPH, summary: pd.DataFrame, tests: pd.DataFrame) -> list[Picture]:
    surest = summary["z"].abs().sort_values(ascending=False).index[:3]
    pictures = [
        Picture(
            "hazard-ratios",
            figures.hazard_ratios(summary),
            f"Forest plot of the hazard ratios; surest to differ from 1: {', '.join(surest)}. The numbers are in the "
            "table above.",
            "Hazard ratios with 95% interval; numbers per the change that is named, such as per 10."
            + (f" The {MOST_ROWS} surest to differ from 1." if len(summary) > MOST_ROWS else ""),
        )
    ]
    effects = cox.effects_over_time_
    if not effects.empty:
        many = effects["column"].nunique() > MOST_PANELS
        pictures.append(
            Picture(
                "hazard-ratios-over-time",
                figures.effects_over_time(effects, tests, unit=study.unit),
                f"Hazard ratios as curves over time beside the constant ones of the model. {describe_test(tests)}",
                "Hazard ratios over time; where hazards are proportional, the dashed line stays inside the band."
                + (f" The {MOST_PANELS} that change most clearly." if many else ""),
            )
        )
    return pictures
