"""The options of the commands: those that several have, described once, in groups where they belong together."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from dcsurv.cli.groups import DescribedOption, OptionGroup, described
from dcsurv.cohort import Cohort
from dcsurv.cohort.errors import CohortError
from dcsurv.writing import check_folder_writable, check_writable

# Panels of the help, in which options stand that belong to no group.
TRAINING, EVALUATION, OUTPUT = "Training", "Evaluation", "Output"

DataFile = Annotated[
    Path, typer.Argument(help="Table of patients, one row each: CSV, Parquet or Excel (.xlsx).", show_default=False)
]
ModelFile = Annotated[Path, typer.Argument(help="Model file, as `dcsurv fit` writes it.", show_default=False)]

_EventValue = Annotated[
    list[str] | None,
    described(
        "--event-value",
        metavar="VALUE",
        help="Value of the event column that means the event; all others count as censored. May be repeated. Default: "
        "guessed, and shown.",
    ),
]
_Start = Annotated[
    str | None,
    described(
        metavar="COLUMN",
        help="Column with each patient's start date; --time then names the date of the event or last contact.",
    ),
]


_DateFormat = Annotated[
    str | None, described(metavar="FORMAT", help="How dates are written, such as %d/%m/%Y. Default: guessed.")
]


@dataclass(frozen=True)
class OutcomeOptions(OptionGroup, panel="Outcome columns"):
    """Where a table that is new to us keeps the outcome."""

    time: Annotated[
        str, described("--time", metavar="COLUMN", help="Column with the time to the event or to the last contact.")
    ]
    event: Annotated[
        str, described("--event", metavar="COLUMN", help="Column that says whether the event was observed.")
    ]
    event_value: _EventValue = None
    start: _Start = None
    date_format: _DateFormat = None
    unit: Annotated[
        str | None,
        described("--unit", metavar="UNIT", help="What times are measured in: days, weeks, months or years."),
    ] = None


@dataclass(frozen=True)
class OtherOutcomeOptions(OptionGroup, panel="Outcome columns"):
    """Where a table keeps the outcome, if that is not as in the table that the model was fitted to."""

    time: Annotated[
        str | None,
        described("--time", metavar="COLUMN", help="Time column, if it has another name than in training."),
    ] = None
    event: Annotated[
        str | None,
        described("--event", metavar="COLUMN", help="Event column, if it has another name than in training."),
    ] = None
    event_value: _EventValue = None
    start: _Start = None
    date_format: _DateFormat = None


@dataclass(frozen=True)
class FeatureOptions(OptionGroup, panel="Features"):
    """What columns hold, where the guess is to be overruled."""

    categorical: Annotated[
        list[str] | None, described(metavar="COLUMNS", help="Columns to take as groups: a,b. May be repeated.")
    ] = None
    numeric: Annotated[
        list[str] | None, described(metavar="COLUMNS", help="Columns to take as numbers: a,b. May be repeated.")
    ] = None
    drop: Annotated[
        list[str] | None, described(metavar="COLUMNS", help="Columns to leave out: a,b. May be repeated.")
    ] = None
    missing_values: Annotated[
        list[str] | None,
        described(
            metavar="VALUES",
            help="Values of features that mean that nothing is known: 999,-99, or of one column, stage=9. May be "
            "repeated.",
        ),
    ] = None
    group: Annotated[
        str | None,
        described(
            metavar="COLUMN",
            help="Column that says which rows belong to one patient: they stay together in every split. It is no "
            "feature.",
        ),
    ] = None

    def codes(self, columns: tuple[str, ...]) -> dict[str, list[str]] | list[str]:
        """Return the values that mean missing, by column if any was given for one column."""
        given = [part.strip() for text in self.missing_values or [] for part in text.split(",") if part.strip()]
        plain = [part for part in given if "=" not in part]
        if len(plain) == len(given):
            return plain
        out: dict[str, list[str]] = {name: list(plain) for name in columns} if plain else {}
        for part in given:
            name, sign, value = part.rpartition("=")
            if sign:
                out.setdefault(name.strip(), []).append(value.strip())
        return out


@dataclass(frozen=True)
class ReadingOptions(OptionGroup, panel="Reading the file"):
    """How a file is read, where the guess is to be overruled."""

    delimiter: Annotated[
        str | None, described(metavar="SIGN", help="What separates columns: , ; tab | space. Default: guessed.")
    ] = None
    decimal: Annotated[str | None, described(metavar="SIGN", help="Decimal sign: . or , Default: guessed.")] = None
    encoding: Annotated[
        str | None,
        described(metavar="NAME", help="Encoding of the text, such as utf-8 or cp1252. Default: guessed."),
    ] = None
    sheet: Annotated[str | None, described(metavar="NAME", help="Sheet of an Excel workbook. Default: the first.")] = (
        None
    )

    def as_parameters(self) -> dict[str, str | None]:
        """Return them as parameters of the library's readers."""
        return {
            "delimiter": self.delimiter, "decimal": self.decimal, "encoding": self.encoding, "sheet": self.sheet,
        }  # fmt: skip


@dataclass(frozen=True)
class ComputingOptions(OptionGroup, panel=TRAINING):
    """How much is computed, and with which random numbers."""

    quick: Annotated[
        bool, described("--quick", help="A small model and few epochs: a look at the output, not a result.")
    ] = False
    seed: Annotated[
        int,
        described(
            metavar="N",
            help="Seed of everything random: the same seed gives the same result.",
            min=0,
            show_default=True,
        ),
    ] = 0
    jobs: Annotated[
        int | None, described(metavar="N", help="Processes that train at the same time. Default: one per core.", min=1)
    ] = None

    @property
    def workers(self) -> int:
        """How many processes train at the same time."""
        return self.jobs or cores()


def _resamples(number: int) -> int:
    if number == 1:
        raise typer.BadParameter("one resample makes no interval. Give 0 for no intervals, or many, such as 200.")
    return number


_Bootstrap = Annotated[
    int,
    described(
        metavar="N",
        help="Resamples of the test patients behind each interval; 0: no intervals.",
        min=0,
        callback=_resamples,
        show_default=True,
    ),
]
Horizons = Annotated[
    str | None,
    described(
        metavar="LIST",
        help="Times of interest, such as 1y,5y or 6m,30d (with --unit), or plain numbers in the unit of the file. "
        "Default: round times near the quartiles of the event times.",
        panel=EVALUATION,
    ),
]


def horizons_like_model(panel: str | None = None) -> DescribedOption:
    """Describe the option ``--horizons`` of a command for a model that has horizons of its own."""
    return described(metavar="LIST", help="Times of interest, such as 1y,5y. Default: those of the model.", panel=panel)


class EvaluateBy(StrEnum):
    """How a model is evaluated."""

    AUTO = "auto"
    HOLDOUT = "holdout"
    CV = "cv"
    NONE = "none"


@dataclass(frozen=True)
class FitEvaluationOptions(OptionGroup, panel=EVALUATION):
    """How the model that `fit` makes is evaluated."""

    horizons: Horizons = None
    evaluate: Annotated[
        EvaluateBy,
        described(
            help="On whom to evaluate: a fifth of the patients held out, everybody in turn (cross-validation), or "
            "nobody. auto: a fifth if it has about 50 events, else everybody in turn.",
            show_default=True,
        ),
    ] = EvaluateBy.AUTO
    folds: Annotated[int, described(metavar="N", help="Folds of cross-validation.", min=2, show_default=True)] = 5
    refit: Annotated[
        bool,
        described(
            "--refit/--no-refit",
            help="Write a model fitted to all patients, or (with holdout) the evaluated one, fitted to four fifths.",
            show_default=True,
        ),
    ] = True
    bootstrap: _Bootstrap = 200

    def check(self, report: Path | None) -> None:
        """Refuse what does not go together."""
        if self.evaluate in (EvaluateBy.AUTO, EvaluateBy.HOLDOUT):
            return
        if report is not None:
            raise CohortError("--report needs held-out patients: use it with --evaluate holdout.")
        if not self.refit:
            raise CohortError(
                "--no-refit keeps the model that was evaluated on held-out patients: use it with --evaluate holdout."
            )

    def chosen(self, cohort: Cohort, *, holds_out: bool) -> EvaluateBy:
        """Return how to evaluate: what asks for held-out patients decides, then how many events they have."""
        from dcsurv.validation.cross_validation import one_split_is_enough

        if self.evaluate is not EvaluateBy.AUTO:
            return self.evaluate
        holds_out = holds_out or not self.refit or one_split_is_enough(cohort)
        return EvaluateBy.HOLDOUT if holds_out else EvaluateBy.CV


@dataclass(frozen=True)
class MeasuringOptions(OptionGroup, panel=EVALUATION):
    """How a fitted model is measured."""

    horizons: Annotated[str | None, horizons_like_model()] = None
    bootstrap: _Bootstrap = 200
    seed: Annotated[
        int,
        described(
            metavar="N", help="Seed of the resamples: the same seed gives the same result.", min=0, show_default=True
        ),
    ] = 0


Settings = Annotated[
    list[str] | None,
    described(
        "--set",
        metavar="NAME=VALUE",
        help="A parameter of the model, such as max_epochs=50. May be repeated.",
        panel=TRAINING,
    ),
]
Cluster = Annotated[
    str | None, described(metavar="ADDRESS", help="Dask scheduler, such as tcp://host:8786.", panel=TRAINING)
]


def written_to(text: str, metavar: str = "FILE", **said: Any) -> DescribedOption:
    """Describe the option ``-o`` of a command."""
    return described("-o", "--output", metavar=metavar, help=text, panel=OUTPUT, **said)


def column_names(given: list[str] | None, columns: tuple[str, ...] | list[str] = ()) -> list[str]:
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


def check_output(path: Path, *sources: Path, suffixes: tuple[str, ...] = (), option: str = "-o") -> None:
    """Refuse an output that cannot be written, or is another file of the command, before hours are spent on it."""
    if path.is_dir():
        raise CohortError(f"{option} names the folder {path}. Name a file in it.")
    if not path.parent.is_dir():
        raise CohortError(f"the folder {path.parent} does not exist. Create it first.")
    if any(path.exists() and source.exists() and path.samefile(source) for source in sources):
        raise CohortError(f"{option} names {path}, which is read here. Name another file.")
    if any(os.path.realpath(path) == os.path.realpath(source) for source in sources):  # also of links that lead nowhere
        raise CohortError(f"{path} is named twice, for two things that would overwrite each other. Name two files.")
    if suffixes and path.suffix.lower() not in suffixes:
        raise CohortError(f"{option} names {path.name}, but a name that ends in {' or '.join(suffixes)} is expected.")
    check_writable(path)


def check_page(path: Path, *sources: Path, option: str = "-o") -> None:
    """Refuse a page that cannot be written, or the folder of figures beside it, before hours are spent on it."""
    check_output(path, *sources, suffixes=(".html",), option=option)
    figures = path.with_name(f"{path.stem}_figures")
    if figures.exists() and not figures.is_dir():
        raise CohortError(f"the figures go to the folder {figures}, which is a file. Give {option} another name.")
    check_folder_writable(figures)


def check_folder(folder: Path, option: str = "-o") -> None:
    """Refuse a folder for results that cannot be written to, before hours are spent on it."""
    if folder.exists() and not folder.is_dir():
        raise CohortError(f"{option} names the file {folder}. Name a folder.")
    if not folder.parent.is_dir():
        raise CohortError(f"the folder {folder.parent} does not exist. Create it first.")
    check_folder_writable(folder)
