"""Cells and columns that are not what they seem: codes, slips of the pen, spellings, copies, rows of one patient."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dcsurv.cohort.codes import missing_codes, slips
from dcsurv.cohort.cohort import Cohort
from dcsurv.cohort.copies import nearly_same
from dcsurv.cohort.findings import Finding
from dcsurv.messages import Message, Parameter, listed, plural
from dcsurv.plain import level_text
from dcsurv.target import BoolArray, FloatArray

# Up to this share of rows, an identifier that repeats may be a slip; more are several rows of one patient.
_FEW_REPEATED = 0.01


def repeated_patients(cohort: Cohort) -> Iterator[Finding]:
    """Find identifiers of patients that repeat."""
    for name, rows in cohort.repeated.items():
        if not rows:
            continue
        many = rows > _FEW_REPEATED * len(cohort)
        yield Finding(
            "error" if many else "warning",
            "repeated-ids",
            f"{plural(rows, 'row repeats', 'rows repeat')} an identifier in {name!r}: it seems that some patients have "
            "several rows.",
            Message(
                "In the training and in the test part they would flatter the results: keep rows of one patient "
                "together with {group}, or keep one row of each. If every row is a patient of its own, use {drop}.",
                group=Parameter("group", name),
                drop=Parameter("drop", [name]),
            ),
            "group",
            (name,),
            {"rows": rows},
        )


def copies(cohort: Cohort) -> Iterator[Finding]:
    """Name the columns that were left out as copies, and those that nearly are."""
    same = [one for one in cohort.columns if one.reason == "copy"]
    if same:
        yield Finding(
            "note",
            "copied-columns",
            "left out, because an earlier column says the same: "
            + ", ".join(f"{one.name!r} (as {one.examples[0]!r})" for one in same[:6])
            + (f" and {len(same) - 6} more." if len(same) > 6 else "."),
            Message("Keep one with {categorical} or {numeric}."),
            "numeric",
            tuple(one.name for one in same),
        )
    for name, other, r in nearly_same(cohort.features):
        yield Finding(
            "warning",
            "collinear-columns",
            f"{name!r} all but follows from {other!r} (correlation {r:.4f}).",
            Message("The effects of such a pair cannot be told apart: use {drop}.", drop=Parameter("drop", [name])),
            "drop",
            (name, other),
            {"correlation": r},
        )


def spelled_differently(cohort: Cohort) -> Iterator[Finding]:
    """Name the columns in which spellings of one level were put together."""
    found = [one for one in cohort.columns if one.spellings]
    if found:
        shown = [
            f"{one.name} ({', '.join(f'{a!r} as {b!r}' for a, b in sorted(one.spellings.items())[:4])})"
            for one in found[:4]
        ]
        yield Finding(
            "note",
            "level-spellings",
            f"spellings of one level were put together: {'; '.join(shown)}"
            + (f" and {len(found) - 4} more columns." if len(found) > 4 else "."),
            Message(
                "If they are levels of their own, keep them apart with {categorical}.",
                categorical=Parameter("categorical", [found[0].name]),
            ),
            "categorical",
            tuple(one.name for one in found),
        )


def half_read(cohort: Cohort) -> Iterator[Finding]:
    """Find columns that were meant to be numbers, of which too few can be read."""
    found = [one for one in cohort.columns if one.reason == "half numbers"]
    if found:
        shown = listed([f"{one.name} ({one.text})" for one in found], 4)
        yield Finding(
            "warning",
            "half-read-numbers",
            f"left out, because it mixes numbers with text: {shown}.",
            "Write plain numbers, all in one unit; a value beyond the limit of detection as that limit, and nothing "
            "where nothing is known.",
            None,
            tuple(one.name for one in found),
        )


def odd_numbers(cohort: Cohort) -> Iterator[Finding]:
    """Find numbers that cannot be computed with, slips of the pen, and codes for missing values."""
    from dcsurv.preprocessing.rules import too_large  # whose room brings scikit-learn, which predicting does without

    numbers = {str(name): cohort.features[name] for name in cohort.features.columns}
    known = {name: column.to_numpy() for name, column in numbers.items() if column.dtype == np.float64}
    for name, values in {cohort.outcome.time: cohort.time, **known}.items():
        if (bad := too_large(values)).any():
            yield Finding(
                "error",
                "too-large",
                f"{name!r} holds {_shown(cohort, values, bad)}: too large to compute with.",
                "Correct it, or use another unit.",
                None,
                (name,),
                {"rows": int(bad.sum())},
            )
        elif (bad := slips(values)).any():
            yield Finding(
                "warning",
                "extreme-values",
                f"{name!r} holds {_shown(cohort, values, bad)}, a thousand times as far from the others as these are "
                "from each other.",
                "Correct what was mistyped: one such value makes a column useless to most models.",
                None,
                (name,),
                {"rows": int(bad.sum())},
            )
    for name, values in known.items():
        if codes := missing_codes(values):
            texts = [level_text(code) for code in codes]
            rows = int(np.isin(values, codes).sum())
            yield Finding(
                "warning",
                "missing-codes",
                f"{name!r} holds {' and '.join(texts)} in {plural(rows, 'row')}, far from all other values: this looks "
                "like a code for a missing value, but counts as a number.",
                Message(
                    "If nothing is known there, say so with {missing_values}.",
                    missing_values=Parameter("missing_values", {name: list(codes)}),
                ),
                "missing_values",
                (name,),
                {"rows": rows},
            )


def _shown(cohort: Cohort, values: FloatArray, bad: BoolArray) -> str:
    """Say which numbers are meant, and where they stand in the table."""
    places = np.flatnonzero(bad)
    rows = places + 1 if cohort.rows is None else cohort.rows[places]
    shown = ", ".join(f"{values[k]:g} in row {row}" for k, row in zip(places[:3], rows, strict=False))
    return shown + (f" and {len(places) - 3} more such values" if len(places) > 3 else "")
