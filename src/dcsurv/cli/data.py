"""``dcsurv check``, and reading a cohort for the other commands."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import typer

from dcsurv.cli import options as o
from dcsurv.cli.app import app
from dcsurv.cli.shell import FAILED, Shell
from dcsurv.cli.tables import show_cohort, show_findings
from dcsurv.cli.words import option
from dcsurv.cohort import (
    Cohort,
    Finding,
    Horizon,
    ModelCard,
    check_cohort,
    make_cohort,
    parse_horizons,
    read_table,
)
from dcsurv.messages import plural, say


@app.command()
def check(
    data: o.DataFile,
    time: o.Time,
    event: o.Event,
    event_value: o.EventValue = None,
    start: o.Start = None,
    date_format: o.DateFormat = None,
    unit: o.UnitOption = None,
    horizons: o.Horizons = None,
    categorical: o.Categorical = None,
    numeric: o.Numeric = None,
    drop: o.Drop = None,
    delimiter: o.Delimiter = None,
    decimal: o.Decimal = None,
    encoding: o.Encoding = None,
    sheet: o.Sheet = None,
    as_json: o.AsJson = False,
) -> None:
    """Look at a table before anything is trained: what will hurt, and what to do about it.

    Finds duplicate rows, times of 0, columns that give the outcome away, constant and id-like columns, too few events,
    missing values and the last usable horizon. Ends with 1 if a model cannot be fitted.
    """
    shell = Shell(as_json)
    cohort = ask_cohort(
        data, time=time, event=event, event_value=event_value, start=start, date_format=date_format, unit=unit,
        categorical=categorical, numeric=numeric, drop=drop, delimiter=delimiter, decimal=decimal, encoding=encoding,
        sheet=sheet,
    )  # fmt: skip
    asked = parse_horizons(horizons, cohort.unit) if horizons else []
    findings = check_cohort(cohort, asked)
    show_cohort(shell, cohort)
    shell.show()
    show_findings(shell, findings)
    bad = [finding for finding in findings if finding.severity == "error"]
    suspicious = [finding for finding in findings if finding.severity == "warning"]
    shell.show()
    command = fit_command(
        data, time=time, event=event, event_value=event_value, start=start, date_format=date_format, unit=unit,
        horizons=horizons, categorical=categorical, numeric=numeric, drop=drop, delimiter=delimiter, decimal=decimal,
        encoding=encoding, sheet=sheet,
    )  # fmt: skip
    if bad:
        shell.say(f"{plural(len(bad), 'error')} to repair before a model can be fitted.")
    else:
        what = plural(len(suspicious), "warning") + ". " if suspicious else "Nothing stands in the way. "
        shell.say(f"{what}Next: {command}")
    shell.result(describe(cohort, findings))
    if bad:
        raise typer.Exit(FAILED)


def fit_command(data: Path, **options: object) -> str:
    """Return the command line that fits a model to a table with the same options, those that were given."""
    words = ["dcsurv", "fit", str(data)]
    for name, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                words += [f"--{name.replace('_', '-')}", str(one)]
    return shlex.join([*words, "-o", "model.safetensors"])


def ask_cohort(
    data: Path,
    *,
    time: str,
    event: str,
    event_value: list[str] | None,
    start: str | None,
    date_format: str | None,
    unit: str | None,
    categorical: list[str] | None,
    numeric: list[str] | None,
    drop: list[str] | None,
    delimiter: str | None,
    decimal: str | None,
    encoding: str | None,
    sheet: str | None,
) -> Cohort:
    """Read the cohort that the options of a command describe."""
    table = read_table(data, delimiter=delimiter, decimal=decimal, encoding=encoding, sheet=sheet)
    columns = table.format.columns
    return make_cohort(
        table, time=time, event=event, event_values=event_value or (), start=start, date_format=date_format, unit=unit,
        categorical=o.names(categorical, columns), numeric=o.names(numeric, columns), drop=o.names(drop, columns),
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
    return parse_horizons(horizons, card.unit) if horizons else card.horizons
