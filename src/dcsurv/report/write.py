"""Put the page together: study, sections, figures, HTML."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from dcsurv.cohort import ModelCard, OutcomeColumns
from dcsurv.cohort.evaluation import Progress
from dcsurv.figures.style import save, style_context
from dcsurv.messages import Message, printable
from dcsurv.plain import plain
from dcsurv.report import (
    decisions,
    examples,
    follow_up,
    hazards,
    importance,
    performance,
    population,
    probabilities,
    provenance,
    subgroups,
)
from dcsurv.report.blocks import Section
from dcsurv.report.study import Study, make_study
from dcsurv.report.summary import summary
from dcsurv.report.svg import inline_svg
from dcsurv.report.tripod import checklists
from dcsurv.writing import make_folder, remove_file, require_folder, together, write_atomically

_OF_A_REPORT = re.compile(
    r"(follow-up|missing|hazard-ratios(-over-time)?|auc|brier|d-calibration|examples|subgroups-(c-td|o-e)|"
    r"importance-(auc|brier)|beeswarm|nomogram|(why|bands|what-if)-\d+|"
    r"(calibration|decision)-\d+)\.(svg|png)"
)


# Who the patients are, how good the model is, what it says, and only then what it is made of.
_ORDER = (
    "cohort", "follow-up", "discrimination", "calibration", "distribution", "error", "decisions", "subgroups",
    "examples", "importance", "hazards", "model", "missing", "limits", "provenance",
)  # fmt: skip


@dataclass(frozen=True)
class Report:
    """Where a report was written and what it says.

    Attributes
    ----------
    path : Path
        The HTML file.
    figures : list of Path, default []
        The figures' files, SVG and PNG.
    numbers : dict of str to Any, default {}
        Every number printed in the report, by section, as plain data (JSON).
    left_out : list of tuple, default []
        Horizons that these patients can say nothing about, each with the reason.

    Examples
    --------
    >>> from pathlib import Path
    >>> from dcsurv.report import Report
    >>> report = Report(Path("report.html"), numbers={"cohort": {"patients": 381}})
    >>> report.numbers["cohort"]["patients"]
    381
    """

    path: Path
    figures: list[Path] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    left_out: list[tuple[float, str]] = field(default_factory=list)


def write_report(
    path: str | os.PathLike[str],
    model: Any,
    X: Any,
    y: Any,
    *,
    X_train: Any | None = None,
    y_train: Any | None = None,
    reference: Any | None = None,
    horizons: npt.ArrayLike | None = None,
    unit: str | None = None,
    subgroups: Sequence[str] | Mapping[str, Any] | None = None,
    patients: Sequence[int] | Mapping[str, int] | None = None,
    title: str | None = None,
    data_name: str | None = None,
    outcome: OutcomeColumns | None = None,
    file_holds: str | None = None,
    validation: Mapping[str, Any] | None = None,
    seen: bool = False,
    n_bootstrap: int = 200,
    random_state: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Evaluate a fitted model on held-out patients and write a self-contained HTML page about it.

    Parameters
    ----------
    path : str or path-like
        The ``.html`` to write. Its figures also go to ``<stem>_figures/`` beside it, as SVG and PNG.
    model : SurvivalModel
        A fitted model of dcsurv.
    X : DataFrame or array
        Features of patients that the model was not trained on.
    y : outcome
        Of the same patients; see :func:`dcsurv.make_outcome`.
    X_train : DataFrame, array or None, default None
        Features of those that it was trained on: for the table of patients and typical patients. Without them the
        report says what it used instead.
    y_train : outcome or None, default None
        Outcome of the same patients: for the Kaplan-Meier comparison, unless the model was recalibrated since. That of
        ``y`` is refused; a warning, also on the page, tells of patients that the model was not fitted to.
    reference : SurvivalModel or None, default None
        A fitted model to compare with, usually :class:`dcsurv.CoxPH`.
    horizons : array-like or None, default None
        Times to look at, in the unit of ``y``; None: the quartiles of the event times.
    unit : str or None, default None
        What the times are measured in; None: the model's ``time_unit``.
    subgroups : sequence of str, mapping of str to labels, or None, default None
        Names of columns to look at separately, or labels of the patients by name; None: chosen by name and number of
        levels.
    patients : sequence of int, mapping of str to int, or None, default None
        Rows of ``X`` (from 0) with real patients whose curves to draw, possibly by what to call them; None: made-up
        typical ones. No row of the data is in the report unless it is asked for here.
    title : str or None, default None
        Title of the page.
    data_name : str or None, default None
        What to call the data.
    outcome : OutcomeColumns or None, default None
        The columns that held the outcome and how events were coded, for the page to name; None: those of the table that
        the model was fitted to, where its card knows them.
    file_holds : str or None, default None
        What the model's file holds, in words, if it is not the model of this page: that of a page about held-out
        patients is often fitted again, to all of them.
    validation : mapping or None, default None
        What a validation of this way of fitting has found: ``to_dict()`` of what ``dcsurv.validate`` returns, or the
        ``validation.json`` that it saved. Its verdict is the page's answer to whether the model is better than the
        reference; without it the page does not give one.
    seen : bool, default False
        Whether the model was fitted to, or recalibrated with, these very patients; the page then warns.
    n_bootstrap : int, default 200
        Resamples behind the intervals; 0 leaves them out.
    random_state : int, default 0
        Seed of resampling and shuffling.
    progress : callable or None, default None
        Called with the title of each section before it is computed.

    Returns
    -------
    Report
        Its path, the figures and all numbers.

    Examples
    --------
    >>> from dcsurv import CoxPH, train_test_indices, write_report
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric(labels="measured")
    >>> X = X[["age", "chemotherapy"]]
    >>> train, test = train_test_indices(y, random_state=0)
    >>> model = CoxPH(time_unit="days").fit(X.iloc[train], y[train])
    >>> report = write_report("report.html", model, X.iloc[test], y[test], horizons=[1826], n_bootstrap=0)
    >>> report.path.name, report.numbers["cohort"]["patients"]
    ('report.html', 381)
    """
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"path is {str(path)!r}, but the report is a web page: end its name in .html.")
    require_folder(target.parent)
    if isinstance(subgroups, str):
        raise ValueError(f"subgroups is the text {subgroups!r}; pass a list, such as [{subgroups!r}].")
    if n_bootstrap != 0 and n_bootstrap < 2:
        raise ValueError(f"n_bootstrap is {n_bootstrap!r}, but 0 or at least 2 resamples are expected.")
    tell = progress or (lambda _: None)
    tell("Predictions")
    study = make_study(
        model,
        X,
        y,
        X_train=X_train,
        y_train=y_train,
        reference=reference,
        horizons=horizons,
        unit=unit,
        n_bootstrap=int(n_bootstrap),
        random_state=random_state,
        subgroups=subgroups,
        patients=_named(patients),
        data_name=data_name,
        outcome=outcome or ModelCard.outcome_of(model),
        file_holds=file_holds,
        validation=validation,
        seen=seen,
    )
    folder = target.with_name(f"{target.stem}_figures")
    heading = title or f"Evaluation report{f': {data_name}' if data_name else ''}"
    with warnings.catch_warnings(), together(target.parent):
        # A letter that the figures' font lacks is drawn as a box in the PNG; the page has the reader's fonts.
        warnings.filterwarnings("ignore", r"Glyph .* missing from", UserWarning)
        sections = _sections(study, tell)
        tell("Figures")
        drawn, figures = draw_pictures(sections, folder)
        page = render_page(
            title=heading, under=_under(study), sections=sections, drawn=drawn, folder=folder.name,
            holds="This page holds no rows of patients"
            + (" except the curves that were asked for" if study.patients else ""),
        )  # fmt: skip
        write_atomically(target, page.encode())
    numbers = {section.key: plain(section.numbers, finite=True) for section in sections}
    return Report(target, figures, numbers, study.left_out)


def _under(study: Study) -> str:
    """Say below the title what the page is about."""
    parts = [study.full_name, *([study.data_name] if study.data_name else [])]
    parts.append(f"{len(study.y):,} {study.kind} patients, {study.n_events:,} events")
    return " · ".join([*parts, *([f"times in {study.unit}"] if study.unit else [])])


def _named(patients: Sequence[int] | Mapping[str, int] | None) -> list[tuple[str, int]] | None:
    """Return what to call the patients to draw, and their rows."""
    if patients is None:
        return None
    if isinstance(patients, Mapping):
        return [(str(name), int(row)) for name, row in patients.items()]
    return [(f"patient in row {row}", int(row)) for row in patients]


def draw_pictures(sections: list[Section], folder: Path) -> tuple[dict[str, str], list[Path]]:
    """Return the figures as parts of the page, by name, and their files, before which an earlier page's give way."""
    make_folder(folder)
    drawn: dict[str, str] = {}
    files: list[Path] = []
    for picture in (picture for section in sections for picture in section.pictures()):
        with style_context():  # laid out once for all three files
            picture.figure.draw_without_rendering()
        picture.figure.set_layout_engine("none")
        files += save(picture.figure, folder / picture.name)
        drawn[picture.name] = inline_svg(picture.figure, picture.name, picture.alt)
    for old in folder.iterdir() if folder.is_dir() else ():
        if _OF_A_REPORT.fullmatch(old.name) and old not in files:
            remove_file(old)
    return drawn, files


def _sections(study: Study, tell: Progress) -> list[Section]:
    """Compute the sections in an order in which each has what it needs, and return them in that of the page."""
    out: dict[str, Section] = {}
    steps: list[tuple[str, Callable[[Any], Section | None]]] = [
        ("The patients", population.cohort),
        ("Censoring and follow-up", follow_up.follow_up),
        ("Missing values", population.missing),
        ("The model", provenance.model),
        ("Hazard ratios", hazards.hazard_ratios),
        ("Discrimination", performance.discrimination),
        ("Calibration at the horizons", probabilities.at_horizons),
        ("Calibration over the whole distribution", probabilities.over_the_distribution),
        ("Brier score", performance.error),
        ("Decision curves", decisions.decisions),
        ("Subgroups", subgroups.subgroups),
    ]
    for what, compute in steps:
        tell(what)
        section = compute(study)
        if section is not None:
            out[section.key] = section
    tell("Importance of the features")
    rests_on, order = importance.importance(study)
    tell("Example predictions")
    typical = examples.examples(study, order)
    for section in (typical, rests_on, provenance.limits(study), provenance.provenance(study)):
        out[section.key] = section
    titles = {key: section.title for key, section in out.items()}
    return [summary(study, out), *(out[key] for key in _ORDER if key in out), *checklists(titles)]


def _shown(value: Any) -> Any:
    """Return what a page shows of a value: text from a table without control characters; figures as they are."""
    return printable(value) if type(value) is str or isinstance(value, Message) else value


def render_page(**page: Any) -> str:
    """Return a page with its title, what stands below it, sections, figures and what is said about its contents."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("dcsurv", "report"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html").render(**page)
