"""A page about single predictions: what each feature makes of them, over time and at the horizons."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dcsurv.explanation import Explanation, WhatIf, explain, what_if
from dcsurv.explanation.mixing import said_time
from dcsurv.messages import plural, short
from dcsurv.models import CoxPH, SurvivalModel
from dcsurv.plain import csv_bytes
from dcsurv.report.blocks import Picture, Section, percent
from dcsurv.report.hazards import nomogram_picture
from dcsurv.report.write import Report, draw_pictures, render_page
from dcsurv.writing import together, write_atomically

# Patients who get a part of their own; of more, the page is about all of them together.
# Patients unlike training that the page names.
_MOST_NOTES = 5
_MOST_SINGLE = 3
_N_TIMES = 40
_FEATURES_SHOWN = 12
# The risk that the nearest change is asked for, as a share of the predicted one.
_SHARE_OF_RISK = 0.8


@dataclass(frozen=True)
class _Asked:
    """What a page is about."""

    model: SurvivalModel
    X: pd.DataFrame
    labels: Sequence[str]
    found: Explanation
    horizons: Sequence[float]
    unit: str | None

    @property
    def middle(self) -> float:
        return self.horizons[len(self.horizons) // 2]

    def when(self, t: float) -> str:
        return said_time(t, self.unit)


def write_explanation(
    path: str | os.PathLike[str],
    model: SurvivalModel,
    X: pd.DataFrame,
    *,
    horizons: Sequence[float],
    labels: Sequence[str] | None = None,
    title: str | None = None,
    data_name: str | None = None,
    unit: str | None = None,
    background: Any = None,
    random_state: int = 0,
) -> Report:
    """Explain predictions and write a self-contained HTML page about them, and their numbers as CSV beside it.

    Parameters
    ----------
    path : str or path-like
        The ``.html`` to write. Figures go to ``<stem>_figures/`` and numbers to ``<stem>.csv`` beside it.
    model : SurvivalModel
        A fitted model.
    X : DataFrame
        The patients, one to three for a part about each, more for one about all of them.
    horizons : sequence of float
        Times at which risks are explained.
    labels : sequence of str or None, default None
        What to call the patients; None: by their rows, from 1.
    title : str or None, default None
        Title of the page.
    data_name : str or None, default None
        What to call the table.
    unit : str or None, default None
        What times are measured in; None: the model's ``time_unit``.
    background : DataFrame or None, default None
        Whom to compare with, see :func:`dcsurv.explain`.
    random_state : int, default 0
        Seed.

    Returns
    -------
    Report
        The page, its figures and its numbers.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.datasets import load_metabric
    >>> from dcsurv.report import write_explanation
    >>> X, y = load_metabric(labels="measured")
    >>> X = X[["age", "chemotherapy"]]
    >>> model = dcsurv.CoxPH(time_unit="days").fit(X, y)
    >>> page = write_explanation("explained.html", model, X.head(1), horizons=[1826])
    >>> page.path.name, page.numbers["risks"]["features"]
    ('explained.html', ['age', 'chemotherapy'])
    """
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"path is {str(path)!r}, but the explanation is a web page: end its name in .html.")
    times = sorted(float(t) for t in horizons if 0 < t <= model.nodes[-1])
    if not times:
        raise ValueError(
            f"horizons is {list(horizons)!r}, but times up to {model.nodes[-1]:g}, the last node, are needed."
        )
    end = min(float(model.nodes[-1]), 1.5 * times[-1])
    grid = np.unique(np.concatenate([np.linspace(end / _N_TIMES, end, _N_TIMES), times]))
    names = list(labels) if labels is not None else [f"patient {row}" for row in range(1, len(X) + 1)]
    found = explain(model, X, times=grid, background=background, random_state=random_state)
    asked = _Asked(model, X.reset_index(drop=True), names, found, times, unit or getattr(model, "time_unit", None))
    folder = target.with_name(f"{target.stem}_figures")
    with warnings.catch_warnings(), together(target.parent):
        warnings.filterwarnings("ignore", r"Glyph .* missing from", UserWarning)
        sections = _sections(asked)
        drawn, figures = draw_pictures(sections, folder)
        whom = plural(len(X), "patient") + (f" of {data_name}" if data_name else "")
        page = render_page(
            title=title or "Why these predictions", under=f"{model.display_name} · {whom}", sections=sections,
            drawn=drawn, folder=folder.name, holds="This page holds what was asked for about these patients",
        )  # fmt: skip
        write_atomically(target, page.encode())
        write_atomically(target.with_suffix(".csv"), csv_bytes(risk_table(found, times, names)))
    return Report(target, figures, {section.key: section.numbers for section in sections})


def risk_table(found: Explanation, horizons: Sequence[float], labels: Sequence[str]) -> pd.DataFrame:
    """Return a row per patient, horizon and feature: what the feature makes of the risk."""
    parts = []
    for t in horizons:
        risk = found.at(t)
        part = risk.to_frame()
        part["patient"] = np.repeat(np.array(labels, dtype=object), len(found.features))
        part.insert(1, "horizon", t)
        part["average_risk"] = risk.base
        part["risk"] = np.repeat(risk.predicted, len(found.features))
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _sections(asked: _Asked) -> list[Section]:
    out = [_summary(asked)]
    if len(asked.X) <= _MOST_SINGLE:
        out += [_patient(asked, k) for k in range(len(asked.X))]
    else:
        out.append(_cohort(asked))
    sheet = nomogram_picture(asked.model, asked.horizons, asked.when) if isinstance(asked.model, CoxPH) else []
    if sheet:
        section = Section("nomogram-sheet", "The model on one sheet")
        section.show(*sheet)
        out.append(section)
    return [*out, _how(asked)]


def _summary(asked: _Asked) -> Section:
    section = Section("risks", "What is predicted")
    section.warn("This page is about patients of the table. Handle it as you handle their records.")
    outside = asked.model.look_outside(asked.X)
    for row, text in sorted(() if outside is None else outside.notes().items())[:_MOST_NOTES]:
        section.warn(f"{asked.labels[row]}: {text}.")
    found = asked.found
    shown = range(min(len(asked.X), _MOST_SINGLE))
    rows = []
    for t in asked.horizons:
        risk = found.at(t)
        own = [percent(float(risk.predicted[k])) for k in shown] if len(asked.X) <= _MOST_SINGLE else []
        middle = [] if own else [percent(float(np.median(risk.predicted)))]
        rows.append([f"risk by {asked.when(t)}", percent(risk.base), *own, *middle])
    names = [asked.labels[k] for k in shown] if len(asked.X) <= _MOST_SINGLE else ["median of these patients"]
    section.table("Predicted risks", ["", "average", *names], rows)
    section.say(
        f"Average: {found.background}. Below is how the features lead from there to the prediction. It describes the "
        "model; it does not say what would happen if a feature were changed."
    )
    section.numbers |= {
        "features": list(found.features),
        "horizons": list(asked.horizons),
        "base": [found.at(t).base for t in asked.horizons],
        "predicted": [found.at(t).predicted.tolist() for t in asked.horizons],
    }
    return section


def _patient(asked: _Asked, k: int) -> Section:
    """Show what the features make of one prediction, and what the model would say of others like it."""
    found, label = asked.found, asked.labels[k]
    section = Section(f"patient-{k + 1}", f"Why: {label}")
    risk = found.at(asked.middle)
    strongest = found.features[int(np.abs(risk.values[k]).argmax())]
    section.show(
        Picture(
            f"why-{k + 1}",
            found.plot("waterfall", patient=k, time=asked.middle),
            f"From the average risk {percent(risk.base)} to {percent(float(risk.predicted[k]))}; most by {strongest}.",
            f"The risk by {asked.when(asked.middle)}, from the average to this patient.",
        ),
        Picture(
            f"bands-{k + 1}",
            found.plot("bands", patient=k),
            f"Survival of the patient beside the average, and what each feature adds or takes over time: {strongest}.",
            "Survival over time, and below what each feature adds (above 0) or takes (below 0).",
        ),
    )
    _tabulate(section, asked, k)
    with section.trying("What-if curves"):
        varied = [what_if(asked.model, asked.X.iloc[[k]], name, times=[asked.middle]) for name in _to_vary(asked, k)]
        section.show(*(_what_if_picture(asked, one, 2 * k + number) for number, one in enumerate(varied)))
        for one in varied:
            section.say(_nearest_words(asked, one))
    return section


def _tabulate(section: Section, asked: _Asked, k: int) -> None:
    risks = [asked.found.at(t) for t in asked.horizons]
    changes = np.stack([risk.values[k] for risk in risks])
    order = np.argsort(-np.abs(changes).max(axis=0), kind="stable")[:_FEATURES_SHOWN]
    texts = asked.found.texts()[k]
    rows = [
        [f"{asked.found.features[j]} = {texts[j]}", *(_points(changes[h, j]) for h in range(len(risks)))] for j in order
    ]
    section.table("Change of the risk, percentage points", ["", *(f"by {asked.when(t)}" for t in asked.horizons)], rows)


def _to_vary(asked: _Asked, k: int) -> list[str]:
    """Return the two features that move this prediction most."""
    order = np.argsort(-np.abs(asked.found.at(asked.middle).values[k]), kind="stable")
    return [asked.found.features[j] for j in order[:2]]


def _what_if_picture(asked: _Asked, one: WhatIf, number: int) -> Picture:
    name, curve = one.features[0], one.curves[0, :, 0]
    return Picture(
        f"what-if-{number + 1}",
        one.plot(asked.middle),
        f"Predicted survival with other values of {name}: from {percent(float(curve.min()))} to "
        f"{percent(float(curve.max()))}.",
        f"What the model predicts with other values of {name}, all else the same; below, how common they are.",
    )


def _nearest_words(asked: _Asked, one: WhatIf) -> str:
    """Say with which realistic value the risk would be a fifth lower."""
    name, now = one.features[0], float(one.own[0, 0])
    wanted = 1 - _SHARE_OF_RISK * (1 - now)
    change = one.nearest(asked.middle, wanted)
    goal = f"a risk by {asked.when(asked.middle)} of {percent(1 - wanted)} or less, a fifth below the predicted one"
    if not change:
        return f"No usual value of {name} alone, the rest being the same, would have given {goal}."
    value = change[name]
    text = short(value) if isinstance(value, float) else str(value)
    return (
        f"Nearest realistic value of {name} for {goal}: {text} (then {percent(1 - change['survival'])}). It says what "
        "the model predicts for such a patient, not what a change would do."
    )


def _cohort(asked: _Asked) -> Section:
    """Show what the features make of the predictions of all patients."""
    section = Section("patients", f"What moves the predictions of {plural(len(asked.X), 'patient')}")
    found = asked.found
    changes = {t: np.abs(found.at(t).values).mean(axis=0) for t in asked.horizons}
    order = np.argsort(-changes[asked.middle], kind="stable")[:_FEATURES_SHOWN]
    words = ", ".join(f"{found.features[k]} {100 * changes[asked.middle][k]:.1f}" for k in order[:3])
    section.show(
        Picture(
            "beeswarm",
            found.plot("beeswarm", time=asked.middle),
            f"What each feature makes of the risk by {asked.when(asked.middle)}; largest mean change: {words}.",
            f"A dot is a patient; its place, how much the feature moves the risk by {asked.when(asked.middle)}. "
            "Categories are coloured in the order of their names.",
        )
    )
    section.table(
        "Mean absolute change of the risk, percentage points",
        ["", *(f"by {asked.when(t)}" for t in asked.horizons)],
        [[found.features[k], *(f"{100 * changes[t][k]:.1f}" for t in asked.horizons)] for k in order],
    )
    section.numbers["mean_change"] = {found.features[k]: [float(changes[t][k]) for t in asked.horizons] for k in order}
    return section


def _how(asked: _Asked) -> Section:
    found = asked.found
    section = Section("how", "How to read this")
    section.say(
        "Shapley values: of all orders in which the features of the patient can replace those of others, the mean "
        "change that a feature makes when its turn comes. Together with the average they add up to the prediction."
    )
    section.say(
        "A feature is replaced without regard to the others. Where features go together closely, some of the mixtures "
        "are unlikely patients, and each feature shows what the model makes of it by itself."
    )
    error = "" if found.error is None else f" Standard errors are at most {100 * float(found.error.max()):.2f} points."
    section.say(f"Values are {found.method}.{error}")
    section.numbers |= {"method": found.method, "background": found.background}
    return section


def _points(change: float) -> str:
    text = f"{100 * change:+.1f}".replace("-", "−")
    return "0.0" if text in ("+0.0", "−0.0") else text
