"""The first page: what is predicted, for whom, how well, whether to trust it, and where it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dcsurv.messages import plural
from dcsurv.report.blocks import Answers, Section, Tiles, number, p_value, percent, with_interval
from dcsurv.report.group_differences import holm, two_sided
from dcsurv.report.performance import imprecise
from dcsurv.report.population import outcome_words
from dcsurv.report.provenance import which_model
from dcsurv.report.study import Study

# A corrected p below this says that the probabilities are off.
_CLEAR = 0.05
_Z = 1.959963984540054  # of a 95 % interval


def summary(study: Study, sections: dict[str, Section]) -> Section:
    """Answer in a minute what a reader comes with; the other sections hold the evidence."""
    section = Section("summary", "At a glance")
    if study.seen:
        section.warn(
            "The model was fitted to, or recalibrated with, these very patients: every number on this page flatters "
            "it. What it can do shows only on patients that it has not seen."
        )
    tiles = [tile for tile in (_ranking(study, sections), _at_the_horizon(study, sections)) if tile is not None]
    if tiles:
        section.blocks.append(Tiles(tiles))
    trust, numbers = _trust(study, sections)
    answers = [
        ("What does it predict?", _predicts(study)),
        ("For whom?", _for_whom(study, sections)),
        ("Can its probabilities be trusted?", trust),
        (f"Is it better than {_reference(study)}?", _difference(study, sections)),
        ("Is it better than no model?", _error(study, sections)),
        ("Which model is this?", f"{study.full_name}. {which_model(study)}"),
        ("What are its limits?", _limits(study, sections)),
    ]
    section.blocks.append(Answers([(question, answer) for question, answer in answers if answer]))
    section.numbers |= {"outcome": None if study.outcome is None else study.outcome.to_dict(), "trust": numbers}
    return section


def _own(study: Study, section: Section) -> dict[str, dict[str, Any]]:
    """Return the metrics of the model itself by name."""
    return {row["metric"]: row for row in section.numbers.get("metrics", []) if row["model"] == study.name}


def _predicts(study: Study) -> str:
    last = study.when(float(study.curves.times[-1]))
    return f"The probability of living without the event up to any time until {last}. {outcome_words(study)}"


def _for_whom(study: Study, sections: dict[str, Section]) -> str:
    trained = getattr(study.model.innermost, "training_summary_", {})
    followed = sections["follow-up"].numbers.get("median_follow_up")
    learnt = (
        f"For patients like the {trained['patients']:,} ({plural(trained['events'], 'event')}) that it was fitted to. "
        if "patients" in trained
        else ""
    )
    return (
        f"{learnt}This page rests on {plural(len(study.y), 'patient')} "
        + ("that it knows" if study.seen else "that it has not seen")
        + f", {study.n_events:,} with the event"
        + (f", followed for a median of {study.when(followed)}." if followed is not None else ".")
    )


def _ranking(study: Study, sections: dict[str, Section]) -> tuple[str, str, str] | None:
    row = _own(study, sections["discrimination"]).get("C-td")
    if row is None:
        return None
    interval = "" if row["lower"] is None else f" 95% interval {number(row['lower'])} to {number(row['upper'])}."
    text = (
        f"Of two patients, the one who had the event first was predicted to be worse off in about "
        f"{100 * row['value']:.0f} of 100 pairs; guessing: 50.{interval}"
    )
    return "Does it rank patients? C-td", number(row["value"]), text


def _at_the_horizon(study: Study, sections: dict[str, Section]) -> tuple[str, str, str] | None:
    t = study.middle_horizon
    at = next((c for c in sections["calibration"].numbers.get("horizons", []) if c["horizon"] == t), None)
    if t is None or at is None:
        return None
    interval = at["ratio_interval"]
    text = (
        f"By {study.when(t)} it expected {percent(at['expected_risk'], 0)} of the patients to have had the event; "
        f"{percent(at['observed_risk'], 0)} had. 1 is perfect."
    )
    if interval is not None:
        text += f" 95% interval {number(interval[0], 2)} to {number(interval[1], 2)}."
    return "Is the level of risk right? Observed / expected", number(at["ratio"], 2), text


@dataclass(frozen=True)
class _Test:
    """A test of the probabilities: of what, its p-value, and what was found in words."""

    what: str
    p: float
    told: str


def _trust(study: Study, sections: dict[str, Section]) -> tuple[str, dict[str, Any] | None]:
    """Judge the probabilities: against what a perfect model would score, and by their slope."""
    horizons = [c for c in sections["calibration"].numbers.get("horizons", []) if c.get("ici_null")]
    distances = [_distance(study, c) for c in horizons]
    tests = distances + [test for c in horizons if (test := _slope(study, c)) is not None]
    for row in sections["distribution"].numbers.get("d_calibration", [])[-1:]:
        told = "Events came at other times than predicted, over the whole distribution (DDC)."
        tests.append(_Test("distribution", row["p_value"], told))
    if not tests:
        return "That cannot be told: there are too few events or too few patients under observation.", None
    corrected = holm([test.p for test in tests])
    least = min(range(len(tests)), key=corrected.__getitem__)
    tried = f"({plural(len(tests), 'test')} of calibration, corrected for their number: {p_value(corrected[least])}.)"
    numbers = {"p": {test.what: p for test, p in zip(tests, corrected, strict=True)}}
    if corrected[least] < _CLEAR:
        return f"Not as they are. {tests[least].told} {tried} Recalibrate before use.", numbers
    if distances:
        told = min(distances, key=lambda test: test.p).told
    else:
        told = (
            "At no horizon are there enough events for a calibration curve, and with "
            f"{plural(study.n_events, 'event')} this proves little."
        )
    return f"These tests do not speak against it. {told} {tried}", numbers


def _distance(study: Study, at: dict[str, Any]) -> _Test:
    """Compare the mean distance of predicted and observed risk with that of a perfect model."""
    null, when = at["ici_null"], f"by {study.when(at['horizon'])}"
    told = (
        f"Predicted and observed risk {when} differ by {100 * at['ici']:.1f} percentage points on average (ICI); a "
        f"perfect model would show {100 * null['floor']:.1f} on these patients by chance, and in 95 of 100 cohorts "
        f"less than {100 * null['null_95']:.1f}."
    )
    return _Test(f"ICI {when}", null["p_value"], told)


def _slope(study: Study, at: dict[str, Any]) -> _Test | None:
    """Test whether risks are spread out as they should be; None without an interval."""
    slope, interval = at["slope"], at["slope_interval"]
    if interval is None:
        return None
    # The side of the interval on which 1 lies tells how far away that is: intervals of slopes are skewed.
    error = abs(slope - interval[0 if slope > 1 else 1]) / _Z
    if not error > 0:  # also NaN
        return None
    spread = "are less spread out" if slope > 1 else "are more extreme"
    when = f"by {study.when(at['horizon'])}"
    shown = with_interval(slope, interval[0], interval[1], 2)
    told = f"Predicted risks {when} {spread} than those observed (slope {shown}; 1 is perfect)."
    return _Test(f"slope {when}", two_sided((slope - 1) / error), told)


def _error(study: Study, sections: dict[str, Section]) -> str:
    row = _own(study, sections["error"]).get("IBS", {})
    gain = row.get("gain")
    if gain is None:
        return ""
    whose = "training patients" if study.baseline_of == "training" else "evaluated patients themselves"
    return (
        f"The squared error of its predictions is {percent(abs(gain), 0)} {'smaller' if gain >= 0 else 'larger'} than "
        f"that of the same Kaplan-Meier curve for everybody, which is that of the {whose}."
    )


def _reference(study: Study) -> str:
    if study.reference is not None:
        return study.reference_name
    return str((study.validation or {}).get("reference") or "another")


def _difference(study: Study, sections: dict[str, Section]) -> str:
    """Give the verdict of a validation; one set of patients, the present one, has none."""
    if study.validation is not None and study.validation.get("verdict"):
        verdict, behind = str(study.validation["verdict"]), str(study.validation.get("rests_on") or "")
        return f"By refits to resamples of the training patients (validation): {verdict.rstrip('.')}. {behind}".strip()
    found = sections["discrimination"].numbers.get("difference", [])
    row = next((row for row in found if row["metric"] == "C-td"), None)
    if row is None:
        return ""
    gap = with_interval(row["difference"], row["lower"], row["upper"])
    return (
        f"On these patients its C-td minus that of {study.reference_name} is {gap}. One set of patients cannot settle "
        "it; validation can."
    )


def _limits(study: Study, sections: dict[str, Section]) -> str:
    parts = [
        imprecise(study, sections["discrimination"].numbers.get("metrics", [])),
        "Predictions hold for patients of the same kind, measured in the same way, under the care that they got."
        if study.seen
        else "The patients come from the same source as those it was fitted to unless you made sure of another; "
        "elsewhere it is usually worse.",
        "This is research software: a prediction is no diagnosis and no reason by itself to give or withhold a "
        "treatment.",
    ]
    return " ".join(part for part in parts if part)
