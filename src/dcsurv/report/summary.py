"""The report at a glance: a few numbers, and what they say in words."""

from __future__ import annotations

from typing import Any, TypeAlias

from dcsurv.report.blocks import Section, Tiles, number, percent, with_interval
from dcsurv.report.performance import ENOUGH_EVENTS
from dcsurv.report.study import Study

Tile: TypeAlias = tuple[str, str, str]


def summary(study: Study, sections: dict[str, Section]) -> Section:
    """Pick the main numbers of the other sections, and read them."""
    section = Section("summary", "At a glance")
    if study.seen:
        section.warn(
            "The model was fitted to, or recalibrated with, these very patients: every number on this page flatters "
            "it. What it can do shows only on patients that it has not seen."
        )
    patients = f"{study.kind.replace('-', ' ')}, {study.n_events:,} with the event"
    tiles: list[Tile] = [("patients", f"{len(study.y):,}", patients)]
    words: list[str] = []
    for read in (_ranking, _at_the_horizon, _distribution, _error, _difference):
        found = read(study, sections)
        tiles += found[0]
        words += found[1]
    section.blocks.append(Tiles(tiles))
    for text in words:
        section.say(text)
    if study.n_events < ENOUGH_EVENTS:
        section.warn(
            f"All of this rests on {study.n_events} event{'' if study.n_events == 1 else 's'}; about {ENOUGH_EVENTS} "
            "are needed to judge a model. What could not be computed is said in the sections."
        )
    return section


def _own(study: Study, section: Section) -> dict[str, dict[str, Any]]:
    """Return the metrics of the model itself by name."""
    return {row["metric"]: row for row in section.numbers.get("metrics", []) if row["model"] == study.name}


def _ranking(study: Study, sections: dict[str, Section]) -> tuple[list[Tile], list[str]]:
    own = _own(study, sections["discrimination"])
    tiles: list[Tile] = []
    words = []
    if "C-td" in own:
        row = own["C-td"]
        tiles.append(("C-td", number(row["value"]), _interval(row) or "ranking; 0.5 is guessing"))
        words.append(
            "Of two patients, the one who had the event first was predicted to be worse off in about "
            f"{100 * row['value']:.0f} of 100 pairs (C-td {number(row['value'])}; guessing: 50)."
        )
    if "CDAUC" in own:
        tiles.append(("CDAUC", number(own["CDAUC"]["value"]), _interval(own["CDAUC"])))
    return tiles, words


def _at_the_horizon(study: Study, sections: dict[str, Section]) -> tuple[list[Tile], list[str]]:
    t = study.middle_horizon
    at = next((c for c in sections["calibration"].numbers.get("horizons", []) if c["horizon"] == t), None)
    if t is None or at is None:
        return [], []
    tiles = [("observed / expected", number(at["ratio"], 2), f"by {study.when(t)}; 1 is perfect")]
    words = (
        f"By {study.when(t)} the model expected {percent(at['expected_risk'], 0)} of the patients to have had the "
        f"event; {percent(at['observed_risk'], 0)} had."
    )
    if at["ici"] is not None:
        tiles.append(("ICI", number(at["ici"]), f"mean error of the risk by {study.when(t)}"))
        words += f" On average predicted and observed risk differ by {100 * at['ici']:.1f} percentage points (ICI)."
    return tiles, [words]


def _distribution(study: Study, sections: dict[str, Section]) -> tuple[list[Tile], list[str]]:
    spread = sections["distribution"].numbers.get("d_calibration", [])
    if not spread:
        return [], []
    last = spread[-1]
    tiles = [("DDC", number(last["ddc"], 4), f"floor of a perfect model {number(last['floor'], 4)}")]
    if len(spread) == 1:
        return tiles, []
    return tiles, [
        "Recalibration brought the DDC, the distance from perfect calibration, from "
        f"{number(spread[0]['ddc'], 4)} to {number(last['ddc'], 4)}; a perfect model would score about "
        f"{number(last['floor'], 4)} here."
    ]


def _error(study: Study, sections: dict[str, Section]) -> tuple[list[Tile], list[str]]:
    row = _own(study, sections["error"]).get("IBS", {})
    gain = row.get("gain")
    if gain is None:
        return [], []
    against = f"{percent(abs(gain))} {'better' if gain >= 0 else 'worse'} than Kaplan-Meier"
    return [("Brier score", number(row["value"]), against)], [
        f"The squared error of the predictions is {percent(abs(gain), 0)} {'smaller' if gain >= 0 else 'larger'} "
        "than that of the same Kaplan-Meier curve for everybody."
    ]


def _difference(study: Study, sections: dict[str, Section]) -> tuple[list[Tile], list[str]]:
    found = sections["discrimination"].numbers.get("difference", [])
    row = next((row for row in found if row["metric"] == "C-td"), None)
    if row is None:
        return [], []
    apart = row["lower"] > 0 or row["upper"] < 0
    gap = with_interval(row["difference"], row["lower"], row["upper"])
    chance = "more than chance would do." if apart else "this may well be chance."
    return [], [f"Against {study.reference_name} the C-td differs by {gap}; {chance}"]


def _interval(row: dict[str, Any]) -> str:
    lower, upper = row["lower"], row["upper"]
    return "" if lower is None or upper is None else f"95% interval {number(lower)} to {number(upper)}"
