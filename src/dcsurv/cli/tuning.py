"""``dcsurv tune``: search the settings of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dcsurv.cli import options as o
from dcsurv.cli.app import app
from dcsurv.cli.choices import build
from dcsurv.cli.data import ask_cohort, fit_command
from dcsurv.cli.fitting import refuse
from dcsurv.cli.shell import Shell, err, fail
from dcsurv.cli.tables import add, plain_table, show_cohort, show_table
from dcsurv.cohort import Cohort, check_cohort, require_features


@app.command()
def tune(
    data: o.DataFile,
    time: o.Time,
    event: o.Event,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Settings to write (.json), for fit --settings.", show_default=False
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="NAME",
            help="Whose settings; `dcsurv models` lists the names.",
        ),
    ] = "dcs",
    trials: Annotated[int, typer.Option(metavar="N", help="Trials of the study in the end.", min=1)] = 50,
    criterion: Annotated[
        str,
        typer.Option(
            metavar="METRIC", help="CDAUC, C-td, IBS or DDC; two of them with a comma for the best compromise."
        ),
    ] = "CDAUC",
    space: Annotated[
        str, typer.Option(metavar="NAME", help="What is searched: 'default', or 'paper' for the published ranges.")
    ] = "default",
    folds: Annotated[int, typer.Option(metavar="N", help="Folds of the cross-validation.", min=2)] = 5,
    all_patients: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Search on all patients. Default: on the four fifths that `fit` with the same seed trains on, so "
            "that its held-out patients stay unseen.",
        ),
    ] = False,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="File or postgresql:// address that keeps the study: a stopped search goes on there.",
            show_default=False,
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Dask scheduler, such as tcp://host:8786.", show_default=False)
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Begin no more trials after this long.", min=1, show_default=False),
    ] = None,
    trial_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Stop a trial that takes more computing time than this.", min=1, show_default=False
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Also draw the search: its history, what mattered, the settings.", show_default=False
        ),
    ] = None,
    quick: o.Quick = False,
    set_: o.Settings = None,
    seed: o.Seed = 0,
    jobs: o.Jobs = None,
    event_value: o.EventValue = None,
    start: o.Start = None,
    date_format: o.DateFormat = None,
    unit: o.UnitOption = None,
    categorical: o.Categorical = None,
    numeric: o.Numeric = None,
    drop: o.Drop = None,
    delimiter: o.Delimiter = None,
    decimal: o.Decimal = None,
    encoding: o.Encoding = None,
    sheet: o.Sheet = None,
    as_json: o.AsJson = False,
) -> None:
    """Search the settings of a model by cross-validation, and write the best ones to a file.

    Then fit with them: `dcsurv fit ... --settings FILE`. Ctrl-C ends the search; with --storage the same command goes
    on.
    """
    from dcsurv.experiments.tuning import save_settings
    from dcsurv.experiments.tuning import tune as search

    shell = Shell(as_json)
    folds, trials = (2, min(trials, 3)) if quick else (folds, trials)
    kept = [] if storage is None or "://" in storage else [Path(storage)]
    o.check_output(output, data, *kept, suffixes=(".json",))
    cohort = ask_cohort(
        data, time=time, event=event, event_value=event_value, start=start, date_format=date_format, unit=unit,
        categorical=categorical, numeric=numeric, drop=drop, delimiter=delimiter, decimal=decimal, encoding=encoding,
        sheet=sheet,
    )  # fmt: skip
    show_cohort(shell, cohort)
    refuse(check_cohort(cohort))
    require_features(cohort)
    part = cohort if all_patients else training_part(cohort, seed)
    estimator = build(
        model, settings_file=None, parameters=o.settings(set_), unit=cohort.unit, seed=seed, jobs=1, quick=quick
    )
    metrics = [name.strip() for name in criterion.split(",") if name.strip()]
    try:
        found = search(
            estimator, part.features, part.y, n_trials=trials, space=space,  # type: ignore[arg-type]
            criterion=metrics[0] if len(metrics) == 1 else metrics, folds=folds, storage=storage,
            workers=1 if cluster else jobs or o.cores(), cluster=cluster, timeout=timeout,
            trial_timeout=trial_timeout, random_state=seed, progress=err.is_terminal,
        )  # fmt: skip
    except KeyboardInterrupt:
        more = "the same command goes on from there." if storage else "with --storage FILE a search can go on later."
        fail("Stopped", f"no settings were written; {more}", 130)
    best = found.best_params
    labels = dict(zip(found.criterion.labels, _as_tuple(found.best_value), strict=True))
    words = "all patients" if all_patients else f"the part that fit --seed {seed} trains on"
    tuned_on = {"file": cohort.name, "sha256": cohort.digest, "patients": len(part), "all": all_patients, "seed": seed}
    counts = {str(state): int(number) for state, number in found.trials["state"].value_counts().items()}
    save_settings(
        output, found.best_estimator(), criterion=list(labels), value=found.best_value, trials=counts, tuned_on=tuned_on
    )
    drawn = [] if figures is None else found.save_figures(figures)
    table = plain_table("setting", "value")
    for name, value in best.items():
        add(table, name, f"{value:.4g}" if isinstance(value, float) else str(value))
    show_table(shell, f"Best of {len(found.trials)} trials on {len(part):,} patients ({words})", table)
    shell.show()
    shell.say(", ".join(f"{name} {value:.4f}" for name, value in labels.items()) + f", mean over {folds} folds.")
    command = fit_command(
        data, time=time, event=event, event_value=event_value, start=start, date_format=date_format, unit=unit,
        categorical=categorical, numeric=numeric, drop=drop, delimiter=delimiter, decimal=decimal, encoding=encoding,
        sheet=sheet, seed=seed or None, settings=output, model=None if model in ("dcs", "calibrated") else model,
    )  # fmt: skip
    shell.say(f"{output}: {command}")
    shell.result(
        {
            "settings": str(output),
            "figures": [str(path) for path in drawn],
            "best": best,
            "value": labels,
            "trials": counts,
            "tuned_on": tuned_on,
            "data": cohort.to_dict(),
        }
    )


def training_part(cohort: Cohort, seed: int) -> Cohort:
    """Return the patients that `fit` does not hold out."""
    from dcsurv.cohort.evaluation import TEST_SHARE
    from dcsurv.target import train_test_indices

    train, _ = train_test_indices(cohort.y, test_size=TEST_SHARE, random_state=seed)
    return cohort.take(train)


def _as_tuple(value: Any) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,)
