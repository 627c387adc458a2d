"""Options that several commands have, described once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from dcsurv.cohort.errors import CohortError

DataFile = Annotated[
    Path, typer.Argument(help="Table of patients, one row each: CSV, Parquet or Excel (.xlsx).", show_default=False)
]
ModelFile = Annotated[Path, typer.Argument(help="Model file, as `dcsurv fit` writes it.", show_default=False)]

Time = Annotated[
    str,
    typer.Option(
        "--time", metavar="COLUMN", help="Column with the time to the event or to the last contact.", show_default=False
    ),
]
Event = Annotated[
    str,
    typer.Option(
        "--event", metavar="COLUMN", help="Column that says whether the event was observed.", show_default=False
    ),
]
OtherTime = Annotated[
    str | None,
    typer.Option(
        "--time", metavar="COLUMN", help="Time column, if it has another name than in training.", show_default=False
    ),
]
OtherEvent = Annotated[
    str | None,
    typer.Option(
        "--event", metavar="COLUMN", help="Event column, if it has another name than in training.", show_default=False
    ),
]
EventValue = Annotated[
    list[str] | None,
    typer.Option(
        "--event-value",
        metavar="VALUE",
        help="Value of the event column that means the event; all others count as censored. May be repeated. Default: "
        "guessed, and shown.",
        show_default=False,
    ),
]
Start = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column with each patient's start date; --time then names the date of the event or last contact.",
        show_default=False,
    ),
]
DateFormat = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT", help="How dates are written, such as %d/%m/%Y. Default: guessed.", show_default=False
    ),
]
UnitOption = Annotated[
    str | None,
    typer.Option(
        "--unit", metavar="UNIT", help="What times are measured in: days, weeks, months or years.", show_default=False
    ),
]
Horizons = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Times of interest, such as 1y,5y or 6m,30d (with --unit), or plain numbers in the unit of the file. "
        "Default: round times near the quartiles of the event times.",
        show_default=False,
    ),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMNS", help="Columns to take as groups: a,b. May be repeated.", show_default=False),
]
Numeric = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMNS", help="Columns to take as numbers: a,b. May be repeated.", show_default=False),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMNS", help="Columns to leave out: a,b. May be repeated.", show_default=False),
]
Delimiter = Annotated[
    str | None,
    typer.Option(metavar="SIGN", help="What separates columns: , ; tab | space. Default: guessed.", show_default=False),
]
Decimal = Annotated[
    str | None, typer.Option(metavar="SIGN", help="Decimal sign: . or , Default: guessed.", show_default=False)
]
Encoding = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Encoding of the text, such as utf-8 or cp1252. Default: guessed.", show_default=False
    ),
]
Sheet = Annotated[
    str | None, typer.Option(metavar="NAME", help="Sheet of an Excel workbook. Default: the first.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for machines.")]
Seed = Annotated[
    int, typer.Option(metavar="N", help="Seed of everything random: the same seed gives the same result.", min=0)
]
Jobs = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Processes that train at the same time. Default: one per core.", min=1, show_default=False
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A parameter of the model, such as max_epochs=50. May be repeated.",
        show_default=False,
    ),
]


def _resamples(number: int) -> int:
    if number == 1:
        raise typer.BadParameter("one resample makes no interval. Give 0 for no intervals, or many, such as 200.")
    return number


Resamples = Annotated[
    int,
    typer.Option(
        "--bootstrap",
        metavar="N",
        help="Resamples of the test patients behind each interval; 0: no intervals.",
        min=0,
        callback=_resamples,
    ),
]

Quick = Annotated[
    bool, typer.Option("--quick", help="A small model and few epochs: a look at the output, not a result.")
]


def names(given: list[str] | None, columns: tuple[str, ...] | list[str] = ()) -> list[str]:
    """Return the column names in repeated options, each possibly a list with commas; a name may hold a comma itself."""
    found: list[str] = []
    for text in given or []:
        found += [text] if text in columns else [part.strip() for part in text.split(",") if part.strip()]
    return found


def settings(given: list[str] | None) -> dict[str, Any]:
    """Return parameters given as NAME=VALUE; values are read as JSON (numbers, true, null), or else as text."""
    out: dict[str, Any] = {}
    for text in given or []:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise CohortError(f"--set {text!r} is not understood. Write NAME=VALUE, such as --set max_epochs=50.")
        try:
            out[name.strip()] = json.loads(value)
        except json.JSONDecodeError:
            out[name.strip()] = value.strip()
    return out


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_output(path: Path, *sources: Path, suffixes: tuple[str, ...] = ()) -> Path:
    """Refuse an output that cannot be written, or is another file of the command, before hours are spent on it."""
    if path.is_dir():
        raise CohortError(f"-o names the folder {path}. Name a file in it.")
    if not path.parent.is_dir():
        raise CohortError(f"the folder {path.parent} does not exist. Create it first.")
    if any(path.exists() and source.exists() and path.samefile(source) for source in sources):
        raise CohortError(f"-o names {path}, which is read here. Name another file.")
    if any(path.resolve() == source.resolve() for source in sources):
        raise CohortError(f"{path} is named twice, for two things that would overwrite each other. Name two files.")
    if suffixes and path.suffix.lower() not in suffixes:
        raise CohortError(f"-o names {path.name}, but a name that ends in {' or '.join(suffixes)} is expected.")
    return path
