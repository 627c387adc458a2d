"""``dcsurv check``, and reading a cohort for the other commands."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import typer

from dcsurv.cli import options as o
from dcsurv.cli.app import command
from dcsurv.cli.groups import OptionGroup, option_words
from dcsurv.cli.shell import FAILED, Shell
from dcsurv.cli.tables import show_cohort, show_findings
from dcsurv.cli.words import option
from dcsurv.cohort import (
    Cohort,
    Finding,
    Horizon,
    ModelCard,
    Table,
    check_cohort,
    make_cohort,
    parse_horizons,
    read_table,
)
from dcsurv.cohort.errors import CohortError
from dcsurv.durations import UnknownUnit
from dcsurv.messages import plural, say


@command
def check(
    data: o.DataFile,
    *,
    outcome: o.OutcomeOptions,
    features: o.FeatureOptions,
    horizons: o.Horizons = None,
    reading: o.ReadingOptions,
    shell: Shell,
) -> None:
    """Look at a table before anything is trained: what will hurt, and what to do about it.

    Finds duplicate rows, times of 0, columns that give the outcome away, constant and id-like columns, too few patients
    for the columns, missing values and the last usable horizon. Ends with 1 if a model cannot be fitted.
    """
    cohort = ask_cohort(data, outcome, features, reading)
    findings = check_cohort(cohort, parse_horizons(horizons, cohort.unit) if horizons else [])
    show_cohort(shell, cohort)
    shell.show()
    show_findings(shell, findings)
    shell.show()
    bad = sum(finding.severity == "error" for finding in findings)
    suspicious = sum(finding.severity == "warning" for finding in findings)
    if bad:
        shell.say(f"{plural(bad, 'error')} to repair before a model can be fitted.")
    else:
        what = f"{plural(suspicious, 'warning')}." if suspicious else "Nothing stands in the way."
        shell.say(f"{what} Next: {fit_command(data, outcome, features, reading, horizons=horizons)}")
    shell.result(describe(cohort, findings))
    if bad:
        raise typer.Exit(FAILED)


def fit_command(data: Path, *groups: OptionGroup, **more: Any) -> str:
    """Return the command line that fits a model to a table with the same options, all that were given.

    Parameters
    ----------
    data
        The table.
    *groups
        Groups of options of the present command that `fit` has as well.
    **more
        Other options, by name; None for those that were not given.
    """
    words = ["dcsurv", "fit", str(data), *(word for group in groups for word in group.given())]
    for name, value in more.items():
        words += option_words(f"--{name}", value)
    return shlex.join([*words, "-o", "model.safetensors"])


def ask_cohort(data: Path, outcome: o.OutcomeOptions, features: o.FeatureOptions, reading: o.ReadingOptions) -> Cohort:
    """Read the cohort that the options of a command describe."""
    return cohort_in(read_table(data, **reading.as_parameters()), outcome, features)


def cohort_in(table: Table, outcome: o.OutcomeOptions, features: o.FeatureOptions, *drop: str) -> Cohort:
    """Return the cohort in a table; ``drop`` names more columns to leave out."""
    columns = table.format.columns
    others = tuple(name for name in columns if name not in {outcome.time, outcome.event, outcome.start})
    return make_cohort(
        table, time=outcome.time, event=outcome.event, event_values=outcome.event_value or (), start=outcome.start,
        date_format=outcome.date_format, unit=outcome.unit, categorical=o.column_names(features.categorical, columns),
        numeric=o.column_names(features.numeric, columns), drop=[*o.column_names(features.drop, columns), *drop],
        missing_values=features.codes(others), group=features.group,
    )  # fmt: skip


def describe(cohort: Cohort, findings: list[Finding]) -> dict[str, Any]:
    """Return what is known about a cohort as plain data."""
    return {
        "data": cohort.to_dict(),
        "outcome": cohort.outcome.to_dict(),
        "columns": [{**column.to_dict(), "note": column.text} for column in cohort.columns],
        "notes": [say(text, option) for text in cohort.notes],
        "findings": [finding.to_dict(option) for finding in findings],
    }


def horizons_for(card: ModelCard, horizons: str | None) -> list[Horizon]:
    """Return the horizons asked for, or those of the model."""
    if not horizons:
        return card.horizons
    try:
        return parse_horizons(horizons, card.unit)
    except UnknownUnit as error:
        raise CohortError(
            f"{error.message.removesuffix('.')}: the model was fitted without --unit.",
            parameter="horizons",
            remedy="Write horizons as plain numbers, as the model's times are, or fit it again with --unit.",
        ) from None
