"""``dcsurv explain``: why a model predicts what it predicts."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import pandas as pd

from dcsurv.cli import options as o
from dcsurv.cli.app import command
from dcsurv.cli.data import horizons_for
from dcsurv.cli.groups import described
from dcsurv.cli.shell import Shell, note
from dcsurv.cohort import CohortError, ModelCard, apply_columns, describe_time, read_table
from dcsurv.cohort.card import levels_of
from dcsurv.cohort.features import require_columns
from dcsurv.messages import plural
from dcsurv.plain import csv_bytes
from dcsurv.writing import write_atomically

_EXPLANATION = "Explanation"
# Rows unlike training that are named one by one.
_SHOWN_ROWS = 5


@command
def explain(
    model: o.ModelFile,
    data: o.DataFile,
    *,
    row: Annotated[
        list[int] | None,
        described(
            metavar="N",
            help="Explain the patient in this row, counted from 1, on a part of the page of its own. May be repeated. "
            "Default: all patients together.",
            min=1,
            panel=_EXPLANATION,
        ),
    ] = None,
    horizons: Annotated[str | None, o.horizons_like_model(_EXPLANATION)] = None,
    seed: Annotated[
        int,
        described(
            metavar="N",
            help="Seed of the patients to compare with and of sampling.",
            min=0,
            show_default=True,
            panel=_EXPLANATION,
        ),
    ] = 0,
    reading: o.ReadingOptions,
    output: Annotated[
        Path, o.written_to("Page to write (.html, with figures and a .csv beside it), or the numbers alone (.csv).")
    ],
    shell: Shell,
) -> None:
    """Say what each feature makes of the predictions: Shapley values of the risk at the horizons and over time.

    Patients are compared with made-up ones like those that the model was trained on. Columns of the CSV: patient,
    horizon, feature, feature_value, risk_change (0.1 is ten percentage points), standard_error if sampled,
    average_risk and risk. This describes the model; it does not say what an intervention would change.
    """  # fmt: skip
    from dcsurv.explanation import explain as values_of
    from dcsurv.persistence import load
    from dcsurv.preprocessing import OutsideTrainingWarning
    from dcsurv.report.explained import risk_table, write_explanation

    numbers = _numbers_beside(output, data, model)
    fitted = load(model)
    card = ModelCard.of(fitted)
    times = _times(fitted, card, horizons)
    table = read_table(data, **reading.as_parameters())
    require_columns(card.columns, list(table.frame.columns))
    from_text = table.format.kind == "csv"
    features, odd = apply_columns(table.frame, card.columns, levels_of(fitted), from_text=from_text)
    for one in odd:
        note(one.describe())
    rows = sorted(set(row or range(1, len(features) + 1)))
    if rows[-1] > len(features):
        raise CohortError(f"--row names row {rows[-1]}, which is not there; there are 1 to {len(features)}.")
    chosen = features.iloc[[one - 1 for one in rows]]
    labels = [f"patient in row {one}" for one in rows]
    _note_what_is_unlike_training(fitted, chosen, rows)
    with shell.steps() as step, warnings.catch_warnings():
        warnings.simplefilter("ignore", OutsideTrainingWarning)  # said above
        step(f"explaining {plural(len(chosen), 'patient')}")
        if output.suffix.lower() == ".csv":
            found = values_of(fitted, chosen, times=times, random_state=seed)
            write_atomically(output, csv_bytes(risk_table(found, times, labels)))
            written = [output]
        else:
            made = write_explanation(
                output, fitted, chosen, horizons=times, labels=labels, data_name=data.name, unit=card.unit,
                random_state=seed,
            )  # fmt: skip
            written = [output, numbers, *made.figures]
    shell.say(f"{output}: what the features make of the predictions for {plural(len(chosen), 'patient')}.")
    shell.result({"output": str(output), "rows": rows, "horizons": times, "files": [str(path) for path in written]})


def _numbers_beside(output: Path, data: Path, model: Path) -> Path:
    """Return where the numbers go, after a look at every file that would be written."""
    o.check_output(output, data, model, suffixes=(".html", ".csv"))
    numbers = output.with_suffix(".csv")
    if numbers != output:
        o.check_page(output, data, model)
        if numbers.exists() and numbers.samefile(data):
            raise CohortError(
                f"the numbers of the page would go to {numbers}, which is read here. Give -o another name."
            )
        o.check_output(numbers, model)
    return numbers


def _times(fitted: Any, card: ModelCard, horizons: str | None) -> list[float]:
    """Return the horizons that are explained: those within the follow-up of training."""
    last = float(fitted.nodes[-1])
    asked = horizons_for(card, horizons)
    times = [horizon.time for horizon in asked if horizon.time <= last]
    end = describe_time(last, card.unit)
    if not times:
        raise CohortError(
            f"all horizons lie beyond the follow-up of the training patients ({end}).",
            remedy="Ask for earlier ones with --horizons.",
        )
    if len(times) < len(asked):
        late = ", ".join(horizon.label for horizon in asked[len(times) :])
        note(f"Beyond the follow-up of the training patients ({end}), and left out: {late}.")
    return times


def _note_what_is_unlike_training(fitted: Any, chosen: pd.DataFrame, rows: list[int]) -> None:
    """Say which of the chosen rows the model has seen nothing like."""
    from dcsurv.preprocessing.ranges import RANGES_UNKNOWN

    outside = fitted.look_outside(chosen)
    if outside is None:
        note(RANGES_UNKNOWN)
    else:
        for place, text in sorted(outside.notes().items())[:_SHOWN_ROWS]:
            note(f"Row {rows[place]}: {text}.")
        for text in outside.counts.describe() if len(outside.notes()) > _SHOWN_ROWS else ():
            note(text)
