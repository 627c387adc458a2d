"""What is in the file of a calculator: how values are read there, whom patients are compared with, what it tells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from dcsurv.cohort import ModelCard, apply_columns, describe_time
from dcsurv.cohort.card import levels_of
from dcsurv.cohort.cells import LANGUAGES, fold
from dcsurv.cohort.columns import FEW_VALUES, Column
from dcsurv.cohort.privacy import Learnt, what_a_reader_learns
from dcsurv.explanation.elsewhere import plan_for_one
from dcsurv.messages import plural
from dcsurv.models import SurvivalModel
from dcsurv.plain import level_text

# Words for yes and no that a value may be written with, besides the levels themselves.
_WORDS = sorted({word for pair in LANGUAGES for words in pair for word in words} | {"0", "1"})
# Few at a time: a column that holds many other words than its levels would be refused as a whole.
_AT_ONCE = FEW_VALUES - 1


def readings_of(model: SurvivalModel) -> list[dict[str, Any]]:
    """Return, feature by feature, what a program has to know to read a value as the command line does.

    Parameters
    ----------
    model : SurvivalModel
        A fitted model.

    Returns
    -------
    list of dict
        Name, kind, levels, values that mean that nothing is known, and for words without case what level they mean.
    """
    levels = levels_of(model)
    return [
        {
            "name": column.name,
            "kind": column.kind,
            "levels": levels.get(column.name, []),
            "missing_values": list(column.missing_values),
            "words": {} if column.kind == "number" else _words(column, levels[column.name]),
        }
        for column in ModelCard.of(model).columns
        if column.kind != "left out"
    ]


def _words(column: Column, levels: list[str]) -> dict[str, str | None]:
    """Return which level each word means, by the word without case; None if it means that nothing is known."""
    out: dict[str, str | None] = {}
    words = list(dict.fromkeys([*(fold(level) for level in levels), *levels, *_WORDS]))
    for start in range(0, len(words), _AT_ONCE):
        some = words[start : start + _AT_ONCE]
        features, odd = apply_columns(pd.DataFrame({column.name: some}), [column], {column.name: levels})
        unknown = {row for one in odd for row, _ in one.cells}
        for row, (word, level) in enumerate(zip(some, features[column.name], strict=True)):
            if row not in unknown:
                out[fold(word)] = None if pd.isna(level) else str(level)
    return out


def compared_with(model: SurvivalModel) -> dict[str, Any]:
    """Return the made-up patients that an explanation compares with, and in which orders features join, as plain data.

    Parameters
    ----------
    model : SurvivalModel
        A fitted model.
    """
    plan = plan_for_one(model)
    kinds = {column.name: column.kind for column in ModelCard.of(model).columns}
    columns = [_cells(plan.table[name], kinds[name] == "number") for name in plan.table.columns]
    return {
        "background": plan.background,
        "method": plan.method,
        "rows": [list(row) for row in zip(*columns, strict=True)],
        "partners": None if plan.partners is None else plan.partners.tolist(),
        "orders": None if plan.orders is None else plan.orders.tolist(),
    }


def _cells(values: Iterable[Any], numbers: bool) -> list[Any]:
    return [None if pd.isna(one) else float(one) if numbers else level_text(one) for one in values]


def what_it_tells(model: SurvivalModel) -> list[Learnt]:
    """List what a reader of a calculator's file could learn about the patients behind the model.

    It is what the model's own file tells, without what the calculator does not take from it: the fingerprint of the
    table, its outcome, and columns that were left out.

    Parameters
    ----------
    model : SurvivalModel
        A fitted model.

    Returns
    -------
    list of Learnt
        What there is, the patients first and made-up ones last.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.datasets import load_metabric
    >>> from dcsurv.service.inside import what_it_tells
    >>> X, y = load_metabric()
    >>> found = what_it_tells(dcsurv.CoxPH(time_unit="days").fit(X, y))
    >>> found[-1].about, found[-1].text
    ('comparison', '100 made-up patients')
    """
    header, arrays = model.to_saved()
    card = getattr(model, "card_", None)
    inside = header
    while "model" in inside:
        inside = inside["model"]
    if card is not None:
        inside["card"] = card
    features = set(inside["features"]["names"] or [])
    kept = [
        one
        for one in what_a_reader_learns(header, arrays)
        if one.about not in ("fingerprint", "left out") and (one.what != "levels" or one.about in features)
    ]
    rows = compared_with(model)["rows"]
    return [*kept, Learnt("made up", "comparison", plural(len(rows), "made-up patient"), rows)]


def told(model: SurvivalModel) -> list[str]:
    """Say in few sentences what a calculator's file tells; the page has them in other languages, too.

    Parameters
    ----------
    model : SurvivalModel
        A fitted model.

    Returns
    -------
    list of str
        Sentences.
    """
    found = what_it_tells(model)
    of = {what: [one for one in found if one.what == what] for what in {one.what for one in found}}
    training, unit = model.innermost.training_summary_, ModelCard.of(model).unit
    developed = f"{plural(training['patients'], 'patient')}, of whom {training['events']:,} had the event"
    out = [f"It was developed with {developed}. The longest time is {describe_time(training['last_time'], unit)}."]
    for one in ModelCard.of(model).recalibrated_on:
        out.append(f"It was recalibrated with {plural(one.patients, 'patient')}, of whom {one.events:,} had the event.")
    if names := [one.text for one in of.get("table", [])]:
        out.append(f"Names of tables: {', '.join(names)}.")
    if levels := "; ".join(f"{one.about}: {one.text.replace('(about ', '(≈ ')}" for one in of.get("levels", [])):
        counted = ", and about how many patients have each" if "(≈ " in levels else ""
        out.append(f"Levels{counted}: {levels}.")
    if numbers := ", ".join(one.about for one in of.get("numbers", [])):
        # A file of an older version does not know them.
        edges = ", and round numbers between which all patients lie" if model.training_ranges is not None else ""
        out.append(f"Mean, standard deviation and median{edges}: {numbers}.")
    most = max((len(one.values) for one in of.get("times", [])), default=0)
    if most:
        out.append(
            f"Up to {plural(most, 'time')} at which patients had the event or were last seen. Anyone who knows the day "
            "of a patient's event may find it here, and nothing else about that patient beside it."
        )
    drawn = "to compare with, drawn from quantiles and levels of the features; nobody's row"
    return [*out, *(f"{one.text} {drawn}." for one in of["made up"])]
