"""``dcsurv predict``: a file of any length to a file of predictions."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from dcsurv.cli import options as o
from dcsurv.cli.app import command
from dcsurv.cli.data import horizons_for
from dcsurv.cli.groups import described
from dcsurv.cli.shell import Shell, note
from dcsurv.cohort import (
    CohortError,
    Counts,
    Horizon,
    ModelCard,
    Predictor,
    TableFormat,
    TablePart,
    describe_time,
    find_parts,
    inspect_table,
    predict_folder,
    write_predictions,
)
from dcsurv.cohort.formats import clean_name
from dcsurv.messages import plural
from dcsurv.parallel import on_cluster

_PREDICTIONS = "Predictions"


@command
def predict(
    model: o.ModelFile,
    data: Annotated[
        Path,
        typer.Argument(
            help="Table of patients, one row each: CSV, Parquet, Excel (.xlsx), or a folder of Parquet files.",
            show_default=False,
        ),
    ],
    *,
    horizons: Annotated[str | None, o.horizons_like_model(_PREDICTIONS)] = None,
    keep: Annotated[
        list[str] | None,
        described(
            metavar="COLUMNS",
            help="Columns to copy to the predictions, such as an identifier. May be repeated.",
            panel=_PREDICTIONS,
        ),
    ] = None,
    strict: Annotated[
        bool,
        described(
            "--strict",
            help="Refuse a table with rows that are not like those of training (values outside their range, unknown "
            "levels, no value at all, cut rows), and horizons beyond all follow-up; write nothing.",
            panel=_PREDICTIONS,
        ),
    ] = False,
    formulas: Annotated[
        bool,
        described(
            "--formulas/--no-formulas",
            help="Write copied cells that begin with =, +, - or @ to CSV as they are. Otherwise an apostrophe comes "
            "before them, so that no spreadsheet runs them.",
            show_default=True,
            panel=_PREDICTIONS,
        ),
    ] = False,
    bands: Annotated[
        bool,
        described(
            "--bands/--no-bands",
            help="Add confidence bands of survival, if the model is an ensemble.",
            show_default=True,
            panel=_PREDICTIONS,
        ),
    ] = True,
    interval: Annotated[
        bool,
        described(
            "--interval/--no-interval",
            help="Add a time that the patient outlives with the confidence of --level.",
            show_default=True,
            panel=_PREDICTIONS,
        ),
    ] = False,
    level: Annotated[
        float,
        described(
            help="Level of the bands and of the bound of the time.",
            min=0.01,
            max=0.99,
            show_default=True,
            panel=_PREDICTIONS,
        ),
    ] = 0.9,
    reading: o.ReadingOptions,
    cluster: Annotated[
        str | None,
        described(
            metavar="ADDRESS",
            help="Dask scheduler, such as tcp://host:8786, whose workers predict the files of a folder.",
            panel=_PREDICTIONS,
        ),
    ] = None,
    output: Annotated[Path, o.written_to("Predictions to write: .csv, .parquet or .xlsx; for a folder, a folder.")],
    shell: Shell,
) -> None:
    """Predict every patient of a table, also of one that is larger than memory.

    Columns written: row (from 1), those of --keep, survival_T and risk_T for each horizon T (with survival_T_lower90
    and survival_T_upper90, the confidence band of --level, if there are bands), with --interval time_lower90, a time
    that the event comes after with that confidence, median (empty where survival stays above one half) and mean_to_T,
    the mean time survived up to the last horizon, and followed_to, until when training patients like this one were
    followed: what is predicted for later was learnt from others. Last come notes, on what of the row is not like
    training (outside training range: age 560 (15 to 100)), whether its prediction is not to be used, and which horizons
    lie beyond the follow-up. Columns of the table are found by name; those that the model does not know are ignored.

    A folder of Parquet files becomes a folder with a file of predictions for each, whose rows are counted from 1. After
    an interruption the same command goes on: files that are done are kept. With --cluster, each file is a task, and the
    workers must find both folders where this machine does.
    """
    from dcsurv.persistence import load

    parts = _parts(data, output)
    if parts is None and cluster is not None:
        raise CohortError(
            f"--cluster is for a folder of Parquet files, and {data} is one file.",
            remedy="Leave --cluster out: one machine predicts a million patients in minutes.",
        )
    if parts is None:
        o.check_output(output, data, model, suffixes=(".csv", ".parquet", ".xlsx"))
    fitted = load(model)
    card = ModelCard.of(fitted)
    chosen = horizons_for(card, horizons)
    _warn_of_late(chosen, float(fitted.nodes[-1]), card)
    form = inspect_table(data if parts is None else parts[0].source, **reading.as_parameters())
    kept = [clean_name(name) for name in o.column_names(keep, form.columns)]
    if interval and fitted.time_bounds_ is None:
        raise CohortError(
            "--interval needs a model that has seen how its curves meet patients that it was not trained on.",
            remedy="Fit a calibrated ensemble (the default), or recalibrate the model on patients of your own.",
        )
    predictor = Predictor(
        fitted, card, chosen, kept, level if bands and fitted.has_band else None, level if interval else None, formulas
    )
    clash = [name for name in kept if name in predictor.names()]
    if clash:
        raise CohortError(f"--keep names {clash[0]!r}, which is also the name of a prediction. Rename it in the file.")
    done_before = sum(part.done for part in parts or ())
    with nullcontext() if cluster is None else on_cluster(cluster), shell.counting("predicting") as count:
        if parts is None:
            for rows in write_predictions(predictor, form, output, strict=strict):
                count(rows)
            found = Counts.of(predictor)
        else:
            found = Counts()
            for found in predict_folder(predictor, parts, output, _fingerprint(model), strict=strict):
                count(found.rows)
    _note_what_was_odd(predictor, found, form)
    _say_what_was_written(shell, output, predictor, found, parts, done_before)
    shell.result(
        {
            "output": str(output),
            "rows": found.rows,
            "horizons": [horizon.to_dict() for horizon in chosen],
            "columns": predictor.names(),
            "kept": kept,
            "bands": predictor.bands,
            "interval": predictor.interval,
            "beyond_follow_up": found.beyond,
            "outside_training_range": 0 if found.outside is None else found.outside.outside,
            "not_to_be_used": 0 if found.outside is None else found.outside.unusable,
            "cut_rows": found.cut,
            "counted_as_missing": [
                {"column": odd.column, "what": odd.what, "count": odd.count, "examples": list(odd.examples)}
                for odd in found.odd.values()
            ],
        }
    )


def _warn_of_late(horizons: list[Horizon], last: float, card: ModelCard) -> None:
    """Say which horizons lie beyond the follow-up of the training patients."""
    late = [horizon.label for horizon in horizons if horizon.time > last]
    if late:
        lies, end = "lies" if len(late) == 1 else "lie", describe_time(last, card.unit)
        note(
            f"{', '.join(late)} {lies} beyond the follow-up of the training patients ({end}); "
            "curves are held constant from there on, so survival is overstated."
        )


def _parts(data: Path, output: Path) -> list[TablePart] | None:
    """Return the parts of a folder with their places in another; None for a file."""
    if not data.is_dir():
        return None
    inside = data.resolve()
    if output.is_file() or output.suffix in (".csv", ".parquet", ".xlsx"):
        raise CohortError(f"{data} is a folder, so that -o must name a folder, too, not {output}.")
    o.check_folder(output)
    if inside == output.resolve() or inside in output.resolve().parents:
        raise CohortError(f"-o names {output}, which is in the folder that is read. Name another one.")
    return find_parts(data, output)


def _fingerprint(model: Path) -> str:
    return hashlib.sha256(model.read_bytes()).hexdigest()


def _say_what_was_written(
    shell: Shell, output: Path, predictor: Predictor, found: Counts, parts: list[TablePart] | None, done_before: int
) -> None:
    """Say for whom and when there are predictions now, and what their columns mean."""
    times = ", ".join(horizon.label for horizon in predictor.horizons)
    if parts is None or done_before < len(parts):
        shell.say(f"{output}: predictions for {plural(found.rows, 'patient')} at {times}.")
    if parts is not None and done_before:
        were = "was" if done_before == 1 else "were"
        shell.say(f"{output}: {plural(done_before, 'file')} of {len(parts)} had been predicted before and {were} kept.")
    if predictor.bands is not None:
        share = f"{100 * predictor.bands:g}"
        shell.say(f"Columns _lower{share} and _upper{share}: {share} % confidence band of the survival probability.")
    if predictor.interval is not None:
        share = f"{100 * predictor.interval:g}"
        shell.say(f"Column time_lower{share}: the event comes later than this in {share} % of such patients.")


def _note_what_was_odd(predictor: Predictor, found: Counts, form: TableFormat) -> None:
    """Say what the table held that the model did not expect, and for whom it predicts beyond its reach."""
    from dcsurv.preprocessing.ranges import RANGES_UNKNOWN

    for text in () if found.outside is None else found.outside.describe():
        note(text)
    for odd in found.odd.values():
        note(odd.describe())
    if found.cut:
        note(
            f"{plural(found.cut, 'row')} of {form.path.name} {'is' if found.cut == 1 else 'are'} cut: the cells that "
            "are not there count as missing."
        )
    far = [f"{label} ({count:,} of {found.rows:,})" for label, count in found.beyond.items() if count]
    if far:
        note(
            "For some patients a horizon lies beyond the time until which patients like them were followed in "
            f"training: {', '.join(far)}. There the model goes by patients with other features; followed_to says "
            "from when on."
        )
    for text in form.notes:
        note(text)
    if predictor.model.training_ranges is None:
        note(RANGES_UNKNOWN)
    if predictor.escaped:
        note(
            f"{plural(predictor.escaped, 'copied cell')} would be run as a formula by spreadsheets, and an apostrophe "
            "was put before; --formulas writes them as they are."
        )
