"""``dcsurv demo``: the main job, from a table to a model, predictions and a report."""

from __future__ import annotations

import time as clock
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from dcsurv.cli import options as o
from dcsurv.cli.app import app
from dcsurv.cli.choices import build
from dcsurv.cli.fitting import give_card, report_held_out, show_evaluation
from dcsurv.cli.shell import Shell
from dcsurv.cli.tables import add, plain_table, show_cohort, show_table
from dcsurv.cohort import CohortError, Predictor, inspect_table, parse_horizons, read_cohort, write_predictions
from dcsurv.persistence import write_atomically

_HORIZONS = "2y,5y,10y"
_NAMES = ("metabric.csv", "new_patients.csv", "model.safetensors", "predictions.csv", "report.html")


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="Where the files go; made if it is not there.")
    ] = Path("dcsurv-demo"),
    quick: o.Quick = False,
    seed: o.Seed = 0,
    jobs: o.Jobs = None,
    as_json: o.AsJson = False,
) -> None:
    """Show all of it on 1,904 women with breast cancer (METABRIC), in under two minutes.

    Fits the calibrated model to four fifths of them, evaluates it on the others beside CoxPH, and writes model,
    predictions and report.
    """
    from dcsurv.cohort.evaluation import hold_out

    shell = Shell(as_json)
    started = clock.monotonic()
    if output.exists() and not output.is_dir():
        raise CohortError(f"-o names {output}, which is a file. Name a folder.")
    output.mkdir(parents=True, exist_ok=True)
    table, newcomers, model_file, predictions, page = (output / name for name in _NAMES)
    write_atomically(table, _metabric().to_csv(index=False).encode())
    cohort = read_cohort(table, time="days", event="died", unit="days")
    horizons = parse_horizons(_HORIZONS, "days")
    show_cohort(shell, cohort)
    shell.show()
    estimator = build(
        "calibrated", settings_file=None, parameters={}, quick=quick, unit="days",
        seed=seed, jobs=jobs or o.cores(),
    )  # fmt: skip
    bootstrap = 20 if quick else 200
    with shell.steps() as step:
        held = hold_out(estimator, cohort, horizons, seed=seed, n_bootstrap=bootstrap, progress=step)
        words = f"fitted to {len(held.train):,} of {len(cohort):,} patients, the others held out"
        card = give_card(held.model, cohort, horizons, words, held.evaluation)
        held.model.save(model_file)
        step("predicting the held-out patients")
        write_atomically(newcomers, cohort.features.iloc[held.test].to_csv(index=False).encode())
        predictor = Predictor(held.model, card, horizons, bands=0.9)
        for _ in write_predictions(predictor, inspect_table(newcomers), predictions):
            pass
        step("writing the report")
        report_held_out(page, held, cohort, horizons, bootstrap, seed)
    show_evaluation(shell, card, type(held.model).__name__)
    files = plain_table("file", "what it is")
    for path, text in (
        (page, "the report; open it in a browser"),
        (model_file, "the model; dcsurv info says what is in it"),
        (predictions, f"survival of {predictor.rows} held-out patients at {_HORIZONS.replace(',', ', ')}, with bands"),
        (newcomers, "those patients, without their outcomes"),
        (table, "all patients with their outcomes"),
    ):
        add(files, str(path), text)
    show_table(shell, f"Written to {output}, in {clock.monotonic() - started:.0f} s", files)
    shell.show()
    if quick:
        shell.say("With --quick the model is a small one, trained for a few epochs: a look, not a result.")
    shell.say("With your own table:")
    shell.say("  dcsurv check patients.csv --time days --event died")
    shell.say("  dcsurv fit patients.csv --time days --event died --unit days -o model.safetensors")
    shell.say("  dcsurv predict model.safetensors new_patients.csv -o predictions.csv")
    shell.result(
        {
            "folder": str(output),
            "files": {path.name: str(path) for path in (table, newcomers, model_file, predictions, page)},
            "evaluation": card.evaluation,
            "quick": quick,
        }
    )


def _metabric() -> Any:
    """Return METABRIC as a researcher would keep it: one table, outcome included."""
    from dcsurv.datasets import load_metabric

    X, y = load_metabric()
    return X.assign(days=np.round(y["time"], 2), died=y["event"].astype(int))
