"""``dcsurv predict``: a file of any length to a file of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dcsurv.cli import options as o
from dcsurv.cli.app import app
from dcsurv.cli.data import horizons_for
from dcsurv.cli.shell import Shell, note
from dcsurv.cohort import CohortError, ModelCard, Predictor, describe_time, inspect_table, write_predictions
from dcsurv.cohort.formats import clean_name


@app.command()
def predict(
    model: o.ModelFile,
    data: o.DataFile,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Predictions to write: .csv or .parquet.", show_default=False
        ),
    ],
    horizons: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Times of interest, such as 1y,5y. Default: those of the model.", show_default=False
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS",
            help="Columns to copy to the predictions, such as an identifier. May be repeated.",
            show_default=False,
        ),
    ] = None,
    bands: Annotated[
        bool, typer.Option("--bands/--no-bands", help="Add bands from the spread of an ensemble's members.")
    ] = True,
    level: Annotated[float, typer.Option(help="Level of the bands.", min=0.01, max=0.99)] = 0.9,
    delimiter: o.Delimiter = None,
    decimal: o.Decimal = None,
    encoding: o.Encoding = None,
    sheet: o.Sheet = None,
    as_json: o.AsJson = False,
) -> None:
    """Predict every patient of a table, also of one that is larger than memory.

    Columns written: row (from 1), those of --keep, survival_T (with _lower and _upper if there are bands) and risk_T
    for each horizon T, median (empty where survival stays above one half) and mean_to_T, the mean time survived up to
    the last horizon, and followed_to, until when training patients like this one were followed: what is predicted for
    later was learnt from others. Columns of the table are found by name; those that the model does not know are
    ignored.
    """
    from dcsurv.persistence import load

    shell = Shell(as_json)
    o.check_output(output, data, model, suffixes=(".csv", ".parquet"))
    fitted = load(model)
    card = ModelCard.of(fitted)
    chosen = horizons_for(card, horizons)
    last = float(fitted.nodes[-1])
    late = [horizon.label for horizon in chosen if horizon.time > last]
    if late:
        note(
            f"{', '.join(late)} lies beyond the follow-up of the training patients ({describe_time(last, card.unit)}); "
            "curves are held constant from there on, so survival is overstated."
        )
    form = inspect_table(data, delimiter=delimiter, decimal=decimal, encoding=encoding, sheet=sheet)
    kept = [clean_name(name) for name in o.names(keep, form.columns)]
    has_bands = fitted.has_band
    predictor = Predictor(fitted, card, chosen, kept, level if bands and has_bands else None)
    clash = [name for name in kept if name in predictor.names()]
    if clash:
        raise CohortError(f"--keep names {clash[0]!r}, which is also the name of a prediction. Rename it in the file.")
    with shell.counting("predicting") as count:
        for rows in write_predictions(predictor, form, output):
            count(rows)
    for odd in predictor.odd.values():
        note(odd.describe())
    far = [f"{label} ({count:,} of {predictor.rows:,})" for label, count in predictor.beyond.items() if count]
    if far:
        note(
            f"For some patients a horizon lies beyond what patients like them were followed in training: "
            f"{', '.join(far)}. There the model goes by patients with other features; followed_to says from when on."
        )
    for text in form.notes:
        note(text)
    times = ", ".join(horizon.label for horizon in chosen)
    shell.say(f"{output}: predictions for {predictor.rows:,} patients at {times}.")
    shell.result(
        {
            "output": str(output),
            "rows": predictor.rows,
            "horizons": [horizon.to_dict() for horizon in chosen],
            "columns": predictor.names(),
            "kept": kept,
            "bands": predictor.bands,
            "beyond_follow_up": predictor.beyond,
            "counted_as_missing": [
                {"column": odd.column, "what": odd.what, "count": odd.count, "examples": list(odd.examples)}
                for odd in predictor.odd.values()
            ],
        }
    )
