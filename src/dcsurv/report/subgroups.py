"""Whether the model works as well for some patients as for others."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dcsurv.figures import evaluation as draw
from dcsurv.messages import plural
from dcsurv.metrics import evaluate
from dcsurv.report.blocks import NOT_COMPUTED, Picture, Section, number, p_value, records, with_interval
from dcsurv.report.group_differences import group_differences
from dcsurv.report.levels import FEW_VALUES, SMALL_CELL, Levels, is_number, pooled_levels, small_cells, thirds
from dcsurv.report.performance import intervals_text
from dcsurv.report.study import Study

# Groups by these are asked for first: who the patients are, and where they were treated.
# In English, German, French, Spanish, Italian, Dutch and Portuguese.
_PERSON = re.compile(
    r"(^|[\W\d_])(sex|gender|female|male|age|ethnicity|race|centre|center|site|hospital|region|alter|geschlecht|zentrum|"
    r"klinik|âge|sexe|hôpital|edad|sexo|centro|età|eta|sesso|ospedale|leeftijd|geslacht|ziekenhuis|idade)([\W\d_]|$)"
)
_MAX_COLUMNS = 5
_MIN_PATIENTS, _MIN_EVENTS, _FEW_EVENTS = 20, 10, 30
# What is measured of a group, with its standard deviation over the resamples.
_MEASURED = ("c_td", "sd_c_td", "ratio", "sd_ratio")
# A corrected p below this is worth naming, and how many of them are.
_CLEAR, _MOST_TOLD = 0.05, 4


def is_person(name: str) -> bool:
    """Whether a feature says who a patient is or where the patient was treated: age, sex, centre."""
    return _PERSON.search(unicodedata.normalize("NFC", name).lower()) is not None


def subgroups(study: Study) -> Section:
    """Discrimination and observed / expected in groups of patients."""
    section = Section("subgroups", "Subgroups: does it work for everybody?")
    t = study.middle_horizon
    columns = _columns(study)
    if not columns:
        section.say("There is no feature with few levels, and none was named: there are no groups to look at.")
        return section
    table, withheld = _evaluated(study, columns, t)
    chosen = "named by the user" if study.subgroups is not None else "chosen by name (sex, age, site) or few levels"
    found = group_differences(table)
    section.say(f"Groups {chosen}. {_verdict(found, study)}")
    with section.folded("The groups in numbers, and their differences"):
        _tabulate(section, study, table, t)
        _tabulate_differences(section, found)
    if (table["flag"] != "").any():
        section.note(
            f"Groups with fewer than {_MIN_PATIENTS} patients or {_MIN_EVENTS} events are not evaluated; those with "
            f"fewer than {_FEW_EVENTS} events are marked: few events."
        )
    if withheld:
        section.note(
            f"Where a group has 1 to {SMALL_CELL - 1} patients with the event, or without it, the events in the groups "
            "of that feature are not shown, so that nobody can be recognised."
        )
    overall = None
    with section.trying("C-td of all patients"):
        overall = float(evaluate(study.y, study.curves, metrics=["C-td"])["value"].iloc[0])
    section.show(*_pictures(study, table, t, overall))
    section.convention(
        "C-td and observed / expected as in the sections above, within each group; the censoring weights of observed / "
        f"expected are those of the group’s own patients. Numbers with more than {FEW_VALUES} values are "
        "cut at the thirds of these patients. Differences: a group against all other groups of its feature; no patient "
        "is in both, so that the bootstrap variances of the two add up (O/E: of its logarithm). The normal "
        "distribution gives interval and p, and Holm’s procedure corrects p for all differences shown. "
        + intervals_text(study)
    )
    section.numbers["groups"] = [_without_spread(row) for row in _plain(table)]
    section.numbers["differences"] = _plain(found)
    return section


def _plain(table: pd.DataFrame) -> list[dict[str, Any]]:
    return records(table.astype(object).where(table.notna(), None))


def _without_spread(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith(("others_", "sd_"))}


def _verdict(found: pd.DataFrame, study: Study) -> str:
    """Say which groups differ from the others once all comparisons are corrected for."""
    if found.empty:
        return (
            "Whether they differ cannot be told: no two groups could be evaluated."
            if study.n_bootstrap
            else "Whether they differ was not tested, because resampling was turned off."
        )
    comparisons = f"{plural(len(found), 'comparison')} (Holm’s correction)"
    apart = [row for row in _plain(found) if row["p_corrected"] < _CLEAR]
    if not apart:
        return (
            f"In {comparisons} no group differs from the others more clearly than chance makes groups differ, which "
            "with few events proves little."
        )
    told = [
        f"{row['metric']} of {row['column']}: {row['group']} "
        + (
            f"is {number(row['ratio'], 2)} times that of the others"
            if row["metric"] == "O/E"
            else f"differs from the others by {number(row['difference'])}"
        )
        + f" ({p_value(row['p_corrected'])})"
        for row in apart[:_MOST_TOLD]
    ]
    more = f"; and {len(apart) - _MOST_TOLD} more" if len(apart) > _MOST_TOLD else ""
    return f"In {comparisons} these stand out: {'; '.join(told)}{more}."


def _tabulate_differences(section: Section, found: pd.DataFrame) -> None:
    if found.empty:
        return
    section.table(
        "Differences between a group and the others",
        ["", "metric", "group against the others", "p", "p, corrected"],
        [
            [
                f"{row['column']}: {row['group']}",
                row["metric"],
                f"× {with_interval(row['ratio'], row['lower'], row['upper'], 2)}"
                if row["metric"] == "O/E"
                else with_interval(row["difference"], row["lower"], row["upper"]),
                p_value(row["p"]).removeprefix("p = ").removeprefix("p "),
                p_value(row["p_corrected"]).removeprefix("p = ").removeprefix("p "),
            ]
            for row in _plain(found)
        ],
    )


def _evaluated(study: Study, columns: dict[str, Levels], t: float | None) -> tuple[pd.DataFrame, bool]:
    """Evaluate every group; also return whether numbers of events are withheld."""
    rows: list[dict[str, Any]] = []
    withheld = False
    for column, levels in columns.items():
        groups = [(group, (levels.labels == group).to_numpy()) for group in levels.order]
        found = [{"column": column, "group": group} | _one(study, inside, t) for group, inside in groups]
        known = levels.labels.notna().to_numpy()
        for k, (row, (_, inside)) in enumerate(zip(found, groups, strict=True)):
            if len(groups) == 2 and k == 1:
                continue  # the same comparison again, the other way round
            others = found[1] if len(groups) == 2 else _one(study, known & ~inside, t)
            row |= {f"others_{key}": others[key] for key in _MEASURED}
        if small_cells([[study.y["event"][i].sum(), (~study.y["event"][i]).sum()] for _, i in groups]):
            withheld = True  # of all groups, because the sum is known
            found = [row | {"events": None} for row in found]
        rows += found
    return pd.DataFrame(rows), withheld


def _tabulate(section: Section, study: Study, table: pd.DataFrame, t: float | None) -> None:
    header = ["", "patients", "events", "C-td"]
    if t is not None:
        header.append(f"observed / expected at {study.when(t)}")
    printed: list[list[str]] = []
    indented: set[int] = set()
    for name, part in table.groupby("column", sort=False):
        printed.append([str(name)] + [""] * (len(header) - 1))
        for _, row in part.iterrows():
            indented.add(len(printed))
            printed.append(_texts(row, t))
    section.table("Performance in groups", header, printed, indented=frozenset(indented))


def _pictures(study: Study, table: pd.DataFrame, t: float | None, overall: float | None) -> list[Picture]:
    pictures = []
    drawable = table.rename(columns={"c_td": "value", "c_td_lower": "lower", "c_td_upper": "upper"})
    drawable = drawable[drawable["value"].notna()]
    if len(drawable):
        pictures.append(
            Picture(
                "subgroups-c-td",
                draw.forest(drawable, xlabel="C-td (higher is better)", overall=overall),
                "Forest plot of C-td in the groups; the numbers are in the table above.",
                "C-td in the groups with 95% interval; dashed: all patients.",
            )
        )
    drawable = table.rename(columns={"ratio": "value", "ratio_lower": "lower", "ratio_upper": "upper"})
    drawable = drawable[drawable["value"] > 0]
    if t is not None and len(drawable):
        drawable = drawable.assign(lower=drawable["lower"].clip(lower=0.05))
        pictures.append(
            Picture(
                "subgroups-o-e",
                draw.forest(drawable, xlabel="observed / expected (1 is perfect)", overall=1.0, logarithmic=True),
                "Forest plot of observed over expected risk in the groups; the numbers are in the table above.",
                f"Observed over expected risk at {study.when(t)} in the groups with 95% interval; dashed: perfect. "
                "Above 1 the model underestimates the risk of the group.",
            )
        )
    return pictures


def _columns(study: Study) -> dict[str, Levels]:
    """Return by column a label for every patient."""
    if isinstance(study.subgroups, Mapping):
        out = {str(name): pd.Series(np.asarray(labels, dtype=object)) for name, labels in study.subgroups.items()}
        return {name: _labels(labels.infer_objects()) for name, labels in out.items()}
    if study.subgroups is not None:
        names = list(study.subgroups)
    else:
        few = [c for c in study.X.columns if 2 <= study.X[c].nunique() <= FEW_VALUES]
        person = [c for c in study.X.columns if is_person(str(c)) and study.X[c].nunique() >= 2]
        names = list(dict.fromkeys(person + few))[:_MAX_COLUMNS]
    return {str(name): _labels(study.X[name]) for name in names}


def _labels(column: pd.Series) -> Levels:
    return thirds(column) if is_number(column) else pooled_levels(column.reset_index(drop=True))


def _one(study: Study, inside: Any, t: float | None) -> dict[str, Any]:
    """Evaluate one group, as far as it can be."""
    y, curves = study.y[inside], study.curves[np.flatnonzero(inside)]
    n, events = len(y), int(y["event"].sum())
    empty = dict.fromkeys((*_MEASURED, "c_td_lower", "c_td_upper", "ratio_lower", "ratio_upper"), np.nan)
    small = n < _MIN_PATIENTS or events < _MIN_EVENTS
    row: dict[str, Any] = {"patients": n, "events": events, "flag": "too few to evaluate" if small else "", **empty}
    if small:
        return row | {"patients": n if n >= _MIN_PATIENTS else None, "events": None}
    if events < _FEW_EVENTS:
        row["flag"] = "few events"
    for metric, key in (("C-td", "c_td"), ("O/E", "ratio")):
        if metric == "O/E" and t is None:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # a few resamples without events: the interval says enough
                table = evaluate(
                    y,
                    curves,
                    n_bootstrap=study.n_bootstrap,
                    horizons=None if t is None else [t],
                    metrics=[metric],
                    random_state=study.random_state,
                    **study.weighting(np.flatnonzero(inside)),
                )
        except ValueError:
            row["flag"] = row["flag"] or f"no {metric}"
            continue
        row[key] = float(table["value"].iloc[0])
        if study.n_bootstrap:
            row |= {f"{key}_lower": float(table["lower"].iloc[0]), f"{key}_upper": float(table["upper"].iloc[0])}
            row[f"sd_{key}"] = float(table["sd"].iloc[0])
    return row


def _texts(row: pd.Series, t: float | None) -> list[str]:
    flag = f" ({row['flag']})" if row["flag"] else ""
    counts = [
        f"under {_MIN_PATIENTS}" if pd.isna(row["patients"]) else f"{int(row['patients']):,}",
        NOT_COMPUTED if pd.isna(row["events"]) else f"{int(row['events']):,}",
    ]
    cells = [f"{row['group']}{flag}", *counts, with_interval(row["c_td"], row["c_td_lower"], row["c_td_upper"])]
    return (
        cells if t is None else [*cells, with_interval(row["ratio"], row["ratio_lower"], row["ratio_upper"], digits=2)]
    )
