"""What a reader of a model file could learn about the patients behind it, found in the file itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dcsurv.messages import plural, short
from dcsurv.persistence import Arrays, Header

# Arrays whose values are times of patients, by the end of their names: nodes of curves, or quantiles.
_TIMES = ("times_", "baseline.times", "grid.nodes", "ensemble.nodes", "curve_times")
_LOWER, _SCALE, _LAST = "network.embedding.lower", "network.embedding.scale", "network.embedding.last"


class Learnt(NamedTuple):
    """Something that a file tells.

    Attributes
    ----------
    what : str
        What kind of thing: "patients", "table", "columns", "levels", "numbers", "edges", "times" or "dates".
    about : str
        Of what: a column, a table, an array.
    text : str
        In words.
    values : list
        The values themselves.

    Examples
    --------
    >>> from dcsurv.cohort.privacy import Learnt
    >>> Learnt("levels", "stage", "I (about 120), II (about 80)", ["I", "II"]).what
    'levels'
    """

    what: str
    about: str
    text: str
    values: list[Any]


def what_a_reader_learns(header: Header, arrays: Arrays) -> list[Learnt]:
    """List what is in a model file that comes from patients, or from their table.

    Parameters
    ----------
    header : dict
        The header of a file, from :func:`dcsurv.persistence.read`.
    arrays : dict
        Its arrays.

    Returns
    -------
    list of Learnt
        What there is, the table first and the times last.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.cohort.privacy import what_a_reader_learns
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric()
    >>> header, arrays = dcsurv.CoxPH().fit(X, y).to_saved()
    >>> found = what_a_reader_learns(header, arrays)
    >>> [(one.about, one.text) for one in found if one.what == "patients"]
    [('training', '1,904 patients, 1,103 events, the longest time 10661')]
    """
    inside = header
    while "model" in inside:
        inside = inside["model"]
    return [
        *_patients(header, inside),
        *_tables(header, inside),
        *_features(inside, int(inside["training"]["patients"])),
        *_edges(inside, arrays),
        *_times(inside, arrays),
    ]


def _patients(header: Header, inside: Header) -> Iterator[Learnt]:
    training = inside["training"]
    counted = f"{plural(training['patients'], 'patient')}, {plural(training['events'], 'event')}"
    longest = float(training["last_time"])
    yield Learnt("patients", "training", f"{counted}, the longest time {longest:g}", [longest])
    for one in _recalibrations(header):
        counted = f"{plural(one['patients'], 'patient')}, {plural(one['events'], 'event')}"
        yield Learnt("patients", "recalibration", counted, [one["patients"], one["events"]])


def _recalibrations(header: Header) -> Iterator[Header]:
    while "model" in header:
        yield header["fitted_on"]
        header = header["model"]


def _tables(header: Header, inside: Header) -> Iterator[Learnt]:
    card = inside.get("card") or {}
    data = card.get("data") or {}
    named = [(data.get("file"), data.get("sha256"), card.get("created"))]
    named += [(one["name"], one["digest"], one["date"]) for one in _recalibrations(header)]
    for name, digest, date in named:
        if name:
            yield Learnt("table", "name", name, [name])
        if digest:
            text = f"SHA-256 {digest[:16]}…: who has the very file can tell that it was this one"
            yield Learnt("table", "fingerprint", text, [digest])
        if date:
            yield Learnt("dates", "made", date, [date])
    outcome = card.get("outcome")
    if outcome is not None:
        values = [*outcome["coding"]["events"], *outcome["coding"]["censored"]]
        yield Learnt("levels", outcome["event"], f"values of the event column: {', '.join(values)}", values)
    left_out = [column["name"] for column in card.get("columns", []) if column["kind"] == "left out"]
    if left_out:
        yield Learnt("columns", "left out", f"names only: {', '.join(left_out)}", left_out)


def _features(inside: Header, patients: int) -> Iterator[Learnt]:
    names = inside["features"]["names"] or []
    if names:
        yield Learnt("columns", "features", ", ".join(names), list(names))
    population = {one["name"]: one for one in (inside.get("population") or {"features": []})["features"]}
    for column in (inside["preprocessing"] or {"columns": []})["columns"]:
        name, summary = column["name"], population.get(column["name"])
        if column["levels"] is not None:
            counts = _counts(summary, patients)
            told = [f"{one} (about {counts[one]:,})" if one in counts else one for one in column["levels"]]
            yield Learnt("levels", name, ", ".join(told), list(column["levels"]))
        else:
            exact = [column["mean"], column["scale"], column["median"] * column["scale"] + column["mean"]]
            text = f"mean {short(exact[0])}, standard deviation {short(exact[1])}, median {short(exact[2])}"
            yield Learnt("numbers", name, text, exact)
    for name, one in population.items():
        if not one["levels"]:
            low, high = one["values"][0], one["values"][-1]
            text = f"{len(one['values'])} quantiles from {short(low)} to {short(high)}, rounded"
            yield Learnt("edges", name, text, list(one["values"]))
        if one.get("edges"):
            text = f"all lie between {short(one['edges'][0])} and {short(one['edges'][1])}, which are round numbers"
            yield Learnt("edges", name, text, list(one["edges"]))


def _counts(summary: Header | None, patients: int) -> dict[str, int]:
    """Return about how many patients have each level that a population tells the share of."""
    if summary is None:
        return {}
    shares = np.diff(summary["at"], prepend=0.0) * (1 - summary["missing"]) * patients
    return {str(level): round(float(n)) for level, n in zip(summary["values"], shares, strict=True)}


def _edges(inside: Header, arrays: Arrays) -> Iterator[Learnt]:
    """Tell the outer edges of bins, which are the smallest and the largest value that a network was trained with."""
    columns = (inside["preprocessing"] or {"columns": []})["columns"]
    place, at = {}, 0
    for column in columns:  # after preprocessing, a category has a column for each level but one
        place[column["name"]] = at
        at += 1 if column["kind"] == "number" else max(1, len(column["levels"]) - 1)
    for name in sorted(arrays):
        if not name.endswith(_LOWER):
            continue
        lower, scale, last = (arrays[name.removesuffix(_LOWER) + one] for one in (_LOWER, _SCALE, _LAST))
        for column in columns:
            k = place[column["name"]]
            if column["kind"] != "number" or not last[k].any():
                continue
            end = int(last[k].argmax())
            outer = np.array([lower[k, 0], lower[k, end] + 1 / scale[k, end]], dtype=np.float64)
            low, high = (outer * column["scale"] + column["mean"]).tolist()
            text = f"{name}: the outer edges of its bins are {short(low)} and {short(high)}"
            yield Learnt("edges", column["name"], text, [low, high])


def _times(inside: Header, arrays: Arrays) -> Iterator[Learnt]:
    for name in sorted(arrays):
        if name.endswith(_TIMES):
            times = arrays[name]
            text = f"{plural(len(times), 'time')} from {short(float(times[0]))} to {short(float(times[-1]))}"
            yield Learnt("times", name, text, times.tolist())
    backing = inside.get("backing")
    if backing is not None:
        text = f"the first event time and quantiles of all: {plural(len(backing['times']), 'time')}"
        yield Learnt("times", "backing", text, list(backing["times"]))
