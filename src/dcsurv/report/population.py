"""The patients: who they are, and what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.figures import patients as draw
from dcsurv.report.blocks import NOT_COMPUTED, Picture, Section, percent
from dcsurv.report.levels import SMALL_CELL, Levels, is_number, level_texts, pooled_levels, small_cells
from dcsurv.report.study import Study

_MAX_FEATURES = 40
_HIDDEN = "hidden"


def cohort(study: Study) -> Section:
    """Describe the features, for all patients and by event status."""
    section = Section("cohort", "The patients")
    X, event = study.X, study.y["event"]
    n, n_events = len(X), study.n_events
    groups = {"all": np.ones(n, dtype=bool), "event": event, "censored": ~event}
    header = [
        "",
        f"all\nn\u00a0=\u00a0{n:,}",
        f"event\nn\u00a0=\u00a0{n_events:,}",
        f"censored\nn\u00a0=\u00a0{n - n_events:,}",
        "missing",
    ]
    if study.X_train is not None:
        header.append(f"training\nn\u00a0=\u00a0{len(study.X_train):,}")
    rows: list[list[str]] = []
    indented: set[int] = set()
    described: dict[str, Any] = {}
    for name in X.columns[:_MAX_FEATURES]:
        train = None if study.X_train is None else study.X_train[name]
        found, described[str(name)] = _describe(X[name], groups, train)
        indented |= set(range(len(rows) + 1, len(rows) + len(found)))  # below the first, its levels
        rows += found
    # The same words as on the first page: a recalibrated model may have seen them only then.
    fitted = "fitted to, or recalibrated with," if study.seen else "not trained on"
    section.say(
        f"{n:,} patients whom the model was {fitted} are what every number below rests "
        f"on{f', from {study.data_name}' if study.data_name else ''}; {n_events:,} of them had the event. "
        + outcome_words(study)
    )
    with section.folded("Who they are: features by event status"):
        section.table("Features by event status", header, rows, indented=frozenset(indented))
        if X.shape[1] > _MAX_FEATURES:
            section.note(f"The table shows the first {_MAX_FEATURES} of {X.shape[1]} features.")
    section.convention(
        "Numbers: median (lower and upper quartile) of the known values. Categories: patients (share of the known "
        f"values). Levels with fewer than {SMALL_CELL} patients are pooled as “other”, and where a cell by event "
        f"status would count 1 to {SMALL_CELL - 1} patients, the split by status of that feature is hidden, so that "
        "nobody can be recognised; beside a hidden count of training patients another one is hidden. Check what your "
        "own rules on disclosure ask for before you share this page. Event "
        "and censored patients differ in follow-up; no test is made between them."
    )
    section.numbers |= {"patients": n, "events": n_events, "features": described}
    return section


def outcome_words(study: Study) -> str:
    """Name the columns of the outcome, and say how the event was coded."""
    found = study.outcome
    if found is None:
        return "The outcome came as times and events; which columns of which table they were is not known here."
    since = f"from the date in ‘{found.start}’ to that in ‘{found.time}’" if found.start else f"in ‘{found.time}’"
    return f"The event is in the column ‘{found.event}’: {found.coding.describe()}; the time is {since}" + (
        f", in {study.unit}." if study.unit else "."
    )


def _describe(
    column: pd.Series, groups: dict[str, npt.NDArray[np.bool_]], train: pd.Series | None
) -> tuple[list[list[str]], dict[str, Any]]:
    """Return the rows of a feature in the table, that of its name and those of its levels, and its numbers."""
    missing = int(column.isna().sum())
    missing_text = f"{missing:,} ({percent(missing / len(column))})" if missing else "0"
    if is_number(column):
        digits = _digits(column)
        cells = [_quartiles(column[rows], digits) for rows in groups.values()]
        row = [f"{column.name}, median (quartiles)", *cells, missing_text]
        trained = [] if train is None else [_quartiles(train, digits)]
        return [row + trained], {"all": cells[0], "event": cells[1], "censored": cells[2], "missing": missing}
    levels = _levels(pooled_levels(column), groups, train)
    heading = [f"{column.name}, n (%)", "", "", "", missing_text, *([] if train is None else [""])]
    inner = [[level, *texts[:3], "", *texts[3:]] for level, texts in levels.items()]
    return [heading, *inner], {"levels": levels, "missing": missing}


def missing(study: Study) -> Section:
    """Describe missing values."""
    section = Section("missing", "Missing values")
    share = study.X.isna().mean()
    some = share[share > 0].sort_values(ascending=False)
    complete = float(study.X.notna().all(axis=1).mean())
    section.numbers |= {"complete_rows": complete, "share": {str(k): float(v) for k, v in some.items()}}
    if some.empty:
        section.say(f"No value is missing in the {study.X.shape[1]} features of these patients.")
    else:
        most = some.index[0]
        section.say(
            f"{len(some)} of {study.X.shape[1]} features have missing values, most of them {most} "
            f"({percent(some.iloc[0])}). {percent(complete)} of the patients have all values."
        )
        shown = some.head(25)
        caption = "Share of missing values" + (f", the 25 features with most of {len(some)}" if len(some) > 25 else "")
        listing = ", ".join(f"{name} {percent(value)}" for name, value in shown.head(5).items())
        section.show(
            Picture(
                "missing", draw.missing_values(shown), f"Bars of the share of missing values: {listing}.", caption + "."
            )
        )
        empty = [str(name) for name in share.index[share == 1]]
        if empty:
            section.warn(f"Without a single value here: {', '.join(empty)}.")
    preprocessor = getattr(study.model, "preprocessor_", None)
    section.convention(
        "How the model treats them: numbers get the median, categories the most frequent level of the training "
        "patients; levels that it has never seen count as missing."
        if type(preprocessor).__name__ == "Preprocessor"
        else "The model has no imputation of the library’s own; see its settings."
    )
    return section


def _quartiles(column: pd.Series, digits: int) -> str:
    known = pd.to_numeric(column, errors="coerce").dropna().to_numpy(dtype=np.float64)
    if len(known) < SMALL_CELL:
        return NOT_COMPUTED
    low, middle, high = (f"{value:,.{digits}f}" for value in np.quantile(known, [0.25, 0.5, 0.75]))
    return f"{middle} ({low}\u2060–\u2060{high})".replace("-", "−")  # word joiners: no line ends at the dash


def _digits(column: pd.Series) -> int:
    """Return how many digits after the point show the spread of a feature to two figures."""
    known = column.dropna().to_numpy(dtype=np.float64)
    spread = float(np.subtract(*np.quantile(known, [0.75, 0.25]))) if len(known) else 0.0
    if spread <= 0 or (known == np.round(known)).all():
        return 0 if len(known) and (known == np.round(known)).all() else 2
    return int(np.clip(1 - np.floor(np.log10(spread)), 0, 6))


def _levels(levels: Levels, groups: dict[str, npt.NDArray[np.bool_]], train: pd.Series | None) -> dict[str, list[str]]:
    """Return by level the cells of the table: all, event, censored and, if there is one, training."""
    counts = pd.DataFrame({key: levels.labels[rows].value_counts() for key, rows in groups.items()})
    counts = counts.fillna(0).astype(int).loc[levels.order]
    hide = small_cells(counts[["event", "censored"]])
    out: dict[str, list[str]] = {}
    trained = None if train is None else _training_cells(train, levels)
    for level, row in counts.iterrows():
        cells = []
        for key in groups:
            total = int(counts[key].sum())
            hidden = (hide and key != "all") or 0 < row[key] < SMALL_CELL
            cells.append(_HIDDEN if hidden else f"{row[key]:,} ({percent(row[key] / total)})" if total else "0")
        out[str(level)] = cells if trained is None else [*cells, trained[str(level)]]
    return out


def _training_cells(train: pd.Series, levels: Levels) -> dict[str, str]:
    """Count the levels of the training patients; beside a small cell, another one is hidden, or the sum would tell."""
    texts = level_texts(train).dropna()
    shown = [level for level in levels.order if level != levels.other]
    counts = {level: int((texts == level).sum()) for level in shown}
    if levels.other is not None:
        counts[levels.other] = int((~texts.isin(shown)).sum())
    hidden = {level for level, count in counts.items() if 0 < count < SMALL_CELL}
    large = [level for level in levels.order if counts[level] >= SMALL_CELL]
    if hidden and large:
        hidden.add(min(large, key=lambda level: counts[level]))
    return {
        level: _HIDDEN if level in hidden else f"{count:,} ({percent(count / max(1, len(texts)))})"
        for level, count in counts.items()
    }
