"""``dcsurv demo``: the main job, from a table to a model, predictions and a report."""

from __future__ import annotations

import time as clock
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from dcsurv.cli import options as o
from dcsurv.cli.app import command
from dcsurv.cli.choices import build
from dcsurv.cli.fitting import give_card, held_out_words
from dcsurv.cli.reporting import holds_this, report_held_out
from dcsurv.cli.shell import Shell
from dcsurv.cli.tables import add, plain_table, show_cohort, show_evaluation, show_table
from dcsurv.cohort import (
    Cohort,
    CohortError,
    ModelCard,
    Predictor,
    inspect_table,
    parse_horizons,
    read_cohort,
    write_predictions,
)
from dcsurv.messages import plural
from dcsurv.writing import check_folder_writable, make_folder, together, where_now, write_atomically

_HORIZONS = "2y,5y,10y"
# The files that are written, with what they are.
_TABLE, _NEWCOMERS, _MODEL, _WORDS, _PREDICTIONS, _REPORT = (
    "metabric.csv", "new_patients.csv", "model.safetensors", "model.words.json", "predictions.csv", "report.html",
)  # fmt: skip
# Among the embedded data.
_WORDS_FILE = "metabric.words.json"
_FILES = (_TABLE, _NEWCOMERS, _MODEL, _WORDS, _PREDICTIONS, _REPORT)


@command
def demo(
    *,
    computing: o.ComputingOptions,
    output: Annotated[
        Path, o.written_to("Where the files go; made if it is not there.", "FOLDER", show_default=True)
    ] = Path("dcsurv-demo"),
    shell: Shell,
) -> None:
    """Show all of it on 1,904 women with breast cancer (METABRIC), in under two minutes.

    Fits the calibrated model to four fifths of them, evaluates it on the others beside CoxPH, and writes model,
    predictions and report.
    """
    started = clock.monotonic()
    if output.exists() and not output.is_dir():
        raise CohortError(f"-o names {output}, which is a file. Name a folder.")
    check_folder_writable(output)
    with together(output):
        make_folder(output)
        write_atomically(output / _TABLE, _metabric().to_csv(index=False).encode())
        cohort = read_cohort(where_now(output / _TABLE), time="days", event="died", unit="days")
        show_cohort(shell, cohort)
        shell.show()
        card, kind, predicted = _run(shell, output, cohort, computing)
    show_evaluation(shell, card, kind)
    _show_files(shell, output, predicted, clock.monotonic() - started)
    if computing.quick:
        shell.say("With --quick the model is a small one, trained for a few epochs: a look, not a result.")
    shell.say("As a calculator in the browser:")
    shell.say(f"  dcsurv serve {output / _MODEL}")
    shell.say("With your own table:")
    shell.say("  dcsurv check patients.csv --time days --event died")
    shell.say("  dcsurv fit patients.csv --time days --event died --unit days -o model.safetensors")
    shell.say("  dcsurv predict model.safetensors new_patients.csv -o predictions.csv")
    shell.result(
        {
            "folder": str(output),
            "files": {name: str(output / name) for name in _FILES},
            "evaluation": card.evaluation,
            "quick": computing.quick,
        }
    )


def _run(shell: Shell, output: Path, cohort: Cohort, computing: o.ComputingOptions) -> tuple[ModelCard, str, int]:
    """Fit, evaluate, predict and report; return the model's card and kind, and how many patients were predicted."""
    from dcsurv.cohort.evaluation import hold_out

    horizons = parse_horizons(_HORIZONS, cohort.unit)
    bootstrap = 20 if computing.quick else 200
    estimator = build(
        "calibrated", settings_file=None, parameters={}, quick=computing.quick, unit=cohort.unit, seed=computing.seed,
        jobs=computing.workers,
    )  # fmt: skip
    with shell.steps() as step:
        held = hold_out(estimator, cohort, horizons, seed=computing.seed, n_bootstrap=bootstrap, progress=step)
        card = give_card(held.model, cohort, horizons, held_out_words(held, cohort), held.evaluation)
        held.model.save(output / _MODEL)
        write_atomically(
            output / _WORDS, resources.files("dcsurv.datasets").joinpath("data/metabric.words.json").read_bytes()
        )
        step("predicting the held-out patients")
        write_atomically(output / _NEWCOMERS, cohort.features.iloc[held.test].to_csv(index=False).encode())
        predictor = Predictor(held.model, card, horizons, bands=0.9)
        for _ in write_predictions(predictor, inspect_table(where_now(output / _NEWCOMERS)), output / _PREDICTIONS):
            pass
        step("writing the report")
        report_held_out(
            output / _REPORT, held, cohort, horizons, bootstrap, computing.seed, holds_this(output / _MODEL, card)
        )
    return card, type(held.model).__name__, predictor.rows


def _show_files(shell: Shell, output: Path, predicted: int, seconds: float) -> None:
    """Show what was written."""
    files = plain_table("file", "what it is")
    times = _HORIZONS.replace(",", ", ")
    for name, text in (
        (_REPORT, "the report; open it in a browser"),
        (_MODEL, "the model; dcsurv info says what is in it"),
        (_WORDS, "what a calculator calls its features"),
        (_PREDICTIONS, f"survival of {plural(predicted, 'held-out patient')} at {times}, with bands"),
        (_NEWCOMERS, "those patients, without their outcomes"),
        (_TABLE, "all patients with their outcomes"),
    ):
        add(files, str(output / name), text)
    show_table(shell, f"Written to {output}, in {seconds:.0f} s", files)
    shell.show()


def _metabric() -> Any:
    """Return METABRIC as a researcher would keep it: one table, outcome included."""
    from dcsurv.datasets import load_metabric

    X, y = load_metabric(labels="measured")  # the usual names of the genes are exchanged: wrong on a page for people
    return X.assign(days=np.round(y["time"], 2), died=y["event"].astype(int))
