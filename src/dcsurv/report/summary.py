"""The report at a glance: a few numbers, and what they say in words."""

from __future__ import annotations

from dcsurv.report.blocks import Section, Tiles, number, percent, with_interval
from dcsurv.report.performance import ENOUGH_EVENTS
from dcsurv.report.study import Study


def summary(study: Study, sections: dict[str, Section]) -> Section:
    """Pick the main numbers of the other sections, and read them."""
    section = Section("summary", "At a glance")
    if study.seen:
        section.warn(
            "The model was fitted to, or recalibrated with, these very patients: every number on this page flatters "
            "it. What it can do shows only on patients that it has not seen."
        )
    tiles: list[tuple[str, str, str]] = [
        ("patients", f"{len(study.y):,}", f"{study.kind.replace('-', ' ')}, {study.n_events:,} with the event"),
    ]
    words: list[str] = []
    own = {
        row["metric"]: row
        for key in ("discrimination", "error")
        for row in sections[key].numbers.get("metrics", [])
        if row["model"] == study.name
    }
    if "C-td" in own:
        row = own["C-td"]
        tiles.append(("C-td", number(row["value"]), _interval(row) or "ranking; 0.5 is guessing"))
        words.append(
            "Of two patients, the one who had the event first was predicted to be worse off in about "
            f"{100 * row['value']:.0f} of 100 pairs (C-td {number(row['value'])}; guessing: 50)."
        )
    if "CDAUC" in own:
        tiles.append(("CDAUC", number(own["CDAUC"]["value"]), _interval(own["CDAUC"])))
    t = study.middle_horizon
    at = next((c for c in sections["calibration"].numbers.get("horizons", []) if c["horizon"] == t), None)
    if t is not None and at is not None:
        tiles.append(("observed / expected", number(at["ratio"], 2), f"by {study.when(t)}; 1 is perfect"))
        words.append(
            f"By {study.when(t)} the model expected {percent(at['expected_risk'], 0)} of the patients to have had the "
            f"event; {percent(at['observed_risk'], 0)} had."
        )
        if at["ici"] is not None:
            tiles.append(("ICI", number(at["ici"]), f"mean error of the risk by {study.when(t)}"))
            words[-1] += (
                f" On average predicted and observed risk differ by {100 * at['ici']:.1f} percentage points (ICI)."
            )
    spread = sections["distribution"].numbers.get("d_calibration", [])
    if spread:
        last = spread[-1]
        tiles.append(("DDC", number(last["ddc"], 4), f"floor of a perfect model {number(last['floor'], 4)}"))
        if len(spread) > 1:
            words.append(
                "Recalibration brought the DDC, the distance from perfect calibration, from "
                f"{number(spread[0]['ddc'], 4)} to {number(last['ddc'], 4)}; a perfect model would score about "
                f"{number(last['floor'], 4)} here."
            )
    if own.get("IBS", {}).get("gain") is not None:
        gain = own["IBS"]["gain"]
        against = f"{percent(abs(gain))} {'better' if gain >= 0 else 'worse'} than Kaplan-Meier"
        tiles.append(("Brier score", number(own["IBS"]["value"]), against))
        words.append(
            f"The squared error of the predictions is {percent(abs(gain), 0)} {'smaller' if gain >= 0 else 'larger'} "
            "than that of the same Kaplan-Meier curve for everybody."
        )
    difference = next(iter(sections["discrimination"].numbers.get("difference", [])), None)
    if difference is not None:
        apart = difference["lower"] > 0 or difference["upper"] < 0
        gap = with_interval(difference["difference"], difference["lower"], difference["upper"])
        words.append(
            f"Against {study.reference_name} the C-td differs by {gap}; "
            + ("more than chance would do." if apart else "this may well be chance.")
        )
    section.blocks.append(Tiles(tiles))
    for text in words:
        section.say(text)
    if study.n_events < ENOUGH_EVENTS:
        section.warn(
            f"All of this rests on {study.n_events} event{'' if study.n_events == 1 else 's'}; about {ENOUGH_EVENTS} "
            "are needed to judge a model. What could not be computed is said in the sections."
        )
    return section


def _interval(row: dict[str, float | None]) -> str:
    lower, upper = row["lower"], row["upper"]
    return "" if lower is None or upper is None else f"95% interval {number(lower)} to {number(upper)}"
