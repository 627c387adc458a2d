"""``dcsurv validate``: how good a way of fitting is on new patients, before a model is kept."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from dcsurv.cli import options as o
from dcsurv.cli.app import command
from dcsurv.cli.choices import HELP, build
from dcsurv.cli.data import cohort_in, fit_command
from dcsurv.cli.fitting import refuse
from dcsurv.cli.groups import OptionGroup, described
from dcsurv.cli.shell import INTERRUPTED, Shell, fail, note
from dcsurv.cli.tables import add, plain_table, show_cohort, show_table
from dcsurv.cohort import (
    Cohort,
    CohortError,
    Horizon,
    Table,
    check_cohort,
    choose_horizons,
    last_usable_time,
    parse_horizons,
    read_table,
    require_features,
    usable_horizons,
)
from dcsurv.cohort.errors import holds_outcome, no_such_column
from dcsurv.cohort.formats import clean_name
from dcsurv.messages import plural

if TYPE_CHECKING:
    from dcsurv.validation import Validation


@dataclass(frozen=True)
class ValidationOptions(OptionGroup, panel="Validation"):
    """How often the model is fitted anew, and to whom."""

    resamples: Annotated[
        int,
        described(
            metavar="N",
            help="Bootstrap samples to refit to, for optimism and instability; 0: none. 200 for the record.",
            min=0,
            show_default=True,
        ),
    ] = 20
    repeats: Annotated[
        int, described(metavar="N", help="How often patients are dealt into folds.", min=1, show_default=True)
    ] = 3
    folds: Annotated[int, described(metavar="N", help="Folds of the cross-validation.", min=2, show_default=True)] = 5
    by: Annotated[
        str | None,
        described(
            metavar="COLUMN",
            help="Centre or period: each is predicted by a model fitted to the others. The column is no feature then.",
        ),
    ] = None
    by_feature: Annotated[bool, described("--by-feature", help="Use the column of --by as a feature, too.")] = False
    horizons: o.Horizons = None


@command
def validate(
    data: o.DataFile,
    *,
    outcome: o.OutcomeOptions,
    features: o.FeatureOptions,
    model: Annotated[str | None, described("--model", metavar="NAME", help=HELP, panel=o.TRAINING)] = None,
    settings: Annotated[
        Path | None, described(metavar="FILE", help="Settings that `dcsurv tune` has found.", panel=o.TRAINING)
    ] = None,
    set_: o.Settings = None,
    computing: o.ComputingOptions,
    cluster: o.Cluster = None,
    design: ValidationOptions,
    reading: o.ReadingOptions,
    output: Annotated[Path, o.written_to("Folder for the page, tables and figures.", metavar="FOLDER")],
    shell: Shell,
) -> None:
    """Find out how good a model would be on new patients, and whether CoxPH would do as well.

    Fits the model again and again: to bootstrap samples and to all but one fold, beside CoxPH on the same patients.
    A command that was stopped goes on where it was.
    """
    from dcsurv.validation import validate as run

    o.check_folder(output)
    table = read_table(data, **reading.as_parameters())
    by = None if design.by is None else clean_name(design.by)
    if by is not None and by not in table.frame:
        raise no_such_column(by, "by", list(table.format.columns))
    if by in {clean_name(name) for name in (outcome.time, outcome.event, outcome.start) if name}:
        raise holds_outcome(str(by), "by", "Name the column of the centre or period.")
    cohort = cohort_in(table, outcome, features, *([] if by is None or design.by_feature else [by]))
    show_cohort(shell, cohort)
    asked = parse_horizons(design.horizons, cohort.unit) if design.horizons else []
    refuse(check_cohort(cohort, asked))
    require_features(cohort)
    estimator = build(
        model, settings_file=settings, parameters=o.settings(set_), unit=cohort.unit, seed=computing.seed, jobs=1,
        quick=computing.quick,
    )  # fmt: skip
    started = clock.monotonic()
    try:
        found = run(
            estimator, cohort.features, cohort.y, by=_labels(table, by, cohort), groups=cohort.groups,
            horizons=_horizons(cohort, asked),
            resamples=min(design.resamples, 3) if computing.quick else design.resamples,
            repeats=1 if computing.quick else design.repeats, folds=design.folds, random_state=computing.seed,
            folder=output / "refits", workers=1 if cluster else computing.workers, cluster=cluster, progress=True,
        )  # fmt: skip
    except KeyboardInterrupt:
        fail("Stopped", f"what is done is kept in {output / 'refits'}; the same command goes on there.", INTERRUPTED)
    page, *_ = found.save(output)
    _show(shell, found)
    shell.show()
    shell.say(f"{page}: the same in words and figures, {clock.monotonic() - started:.0f} s.")
    simpler = found.verdict is not None and found.verdict.text == "keep CoxPH"
    kept, own = ("coxph", None) if simpler else (model, settings)  # settings are of the model that is not kept
    shell.say(f"Next: {fit_command(data, outcome, features, reading, computing, model=kept, settings=own)}")
    shell.result({"folder": str(output), "data": cohort.to_dict(), **found.to_dict()})


def _labels(table: Table, by: str | None, cohort: Cohort) -> Any:
    """Return each patient's centre or period."""
    if by is None:
        return None
    assert cohort.rows is not None
    return table.frame[by].iloc[cohort.rows - 1].reset_index(drop=True)


def _horizons(cohort: Cohort, asked: list[Horizon]) -> list[float]:
    """Return the times that these patients can say something about."""
    chosen = asked or choose_horizons(cohort.y, cohort.unit, last_usable_time(cohort.time, cohort.event))
    labels = {horizon.time: horizon.label for horizon in chosen}
    usable, unusable = usable_horizons(labels, cohort.y)
    for one in unusable:
        note(f"Nothing is measured at {labels[one.time]}: {one.describe(cohort.unit)}.")
    if not usable:
        raise CohortError("none of the horizons can be measured on these patients. Ask for others with --horizons.")
    return usable


def _show(shell: Shell, found: Validation) -> None:
    """Show the numbers to report, how stable predictions are, and the verdict."""
    from dcsurv.validation.page import interval, named, number

    optimism = found.bootstrap is not None
    reference = found.names["reference"] if found.comparison is not None else ""
    header = ["metric", found.names["model"], *([reference] if reference else [])]
    header += ["apparent", "without optimism"] if optimism else []
    table = plain_table(*header, right=range(1, len(header)))
    for row in found.summary().to_dict("records"):
        value, limits = number(row["cross_validated"]), interval(row["lower"], row["upper"])
        if np.isfinite(row["floor"]):
            limits = f"floor {number(row['floor'])}, p {row['p_value']:.2f}"
        cells = [named(row, found.unit), f"{value} ({limits})" if limits else value]
        cells += [number(row["reference"])] if reference else []
        cells += [number(row["apparent"]), number(row["optimism_corrected"])] if optimism else []
        add(table, *cells)
    show_table(shell, "On patients not used for training", table)
    shell.show(
        f"{found.design}. In brackets: {found.confidence:.0%} intervals; of distances, which are above 0 for a perfect "
        "model, too, what that would score (floor) and how often at least as much as here (p).",
        style="dim",
        markup=False,
    )
    if found.instability is not None:
        own = found.instability.table().iloc[len(found.patients.horizons) // 2]
        shell.say(
            f"Single predictions: from one bootstrap sample to another, a patient's risk changes by {own['mape']:.3f} "
            f"on average, and for one in ten by more than {own['mape_90']:.3f}."
        )
    if found.centres_summary is not None:
        first = found.centres_summary[found.centres_summary["metric"] == "C-td"].to_dict("records")
        for row in first:
            shell.say(
                f"Other centres: C-td {row['mean']:.3f} ({interval(row['lower'], row['upper'])}) over "
                f"{plural(row['centres'], 'centre')}; another one: {interval(row['new_lower'], row['new_upper'])}."
            )
    if found.verdict is not None:
        shell.show()
        shell.say(f"Verdict: {found.verdict.text}.")
        shell.say(found.verdict.rests_on)
    for text in found.notes:
        note(text)
