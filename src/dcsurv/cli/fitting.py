"""``dcsurv fit``: evaluate on patients held out, then fit to all of them."""

from __future__ import annotations

import json
import shlex
import shutil
import time as clock
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from dcsurv.cli import options as o
from dcsurv.cli.app import app
from dcsurv.cli.choices import HELP, build, has_grid
from dcsurv.cli.data import ask_cohort, describe
from dcsurv.cli.shell import Shell, note
from dcsurv.cli.tables import show_cohort, show_findings, show_metrics
from dcsurv.cli.words import option
from dcsurv.cohort import (
    Cohort,
    CohortError,
    Horizon,
    ModelCard,
    check_cohort,
    choose_horizons,
    last_usable_time,
    parse_horizons,
    require_features,
)
from dcsurv.messages import say


class EvaluateBy(StrEnum):
    """How a model is evaluated."""

    HOLDOUT = "holdout"
    CV = "cv"
    NONE = "none"


@app.command()
def fit(
    data: o.DataFile,
    time: o.Time,
    event: o.Event,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Model file to write, such as model.safetensors.", show_default=False
        ),
    ],
    model: Annotated[str | None, typer.Option("--model", metavar="NAME", help=HELP, show_default=False)] = None,
    event_value: o.EventValue = None,
    start: o.Start = None,
    date_format: o.DateFormat = None,
    unit: o.UnitOption = None,
    horizons: o.Horizons = None,
    evaluate: Annotated[
        EvaluateBy,
        typer.Option(
            help="On whom to evaluate: a fifth of the patients held out, everybody in turn (cross-validation), or "
            "nobody."
        ),
    ] = EvaluateBy.HOLDOUT,
    folds: Annotated[int, typer.Option(metavar="N", help="Parts of --evaluate cv.", min=2)] = 5,
    refit: Annotated[
        bool,
        typer.Option(
            "--refit/--no-refit",
            help="Write a model fitted to all patients, or (with holdout) the evaluated one, fitted to four fifths.",
        ),
    ] = True,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write an HTML report on the held-out patients (with --evaluate holdout).",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings that `dcsurv tune` has found.", show_default=False)
    ] = None,
    set_: o.Settings = None,
    quick: o.Quick = False,
    seed: o.Seed = 0,
    jobs: o.Jobs = None,
    bootstrap: o.Resamples = 200,
    categorical: o.Categorical = None,
    numeric: o.Numeric = None,
    drop: o.Drop = None,
    delimiter: o.Delimiter = None,
    decimal: o.Decimal = None,
    encoding: o.Encoding = None,
    sheet: o.Sheet = None,
    as_json: o.AsJson = False,
) -> None:
    """Fit a model to a table of patients and write it to one file.

    First a model is fitted to four fifths of the patients and evaluated on the others, beside CoxPH; then the model
    that is written is fitted to all patients. The numbers tell how good this way of fitting is on new patients.
    """
    from dcsurv.training import watch

    shell = Shell(as_json)
    o.check_output(output, data)
    if report is not None:
        o.check_output(report, data, output, suffixes=(".html",))
        if evaluate is not EvaluateBy.HOLDOUT:
            raise CohortError("--report needs held-out patients: use it with --evaluate holdout.")
    if not refit and evaluate is not EvaluateBy.HOLDOUT:
        raise CohortError(
            "--no-refit keeps the model that was evaluated on held-out patients: use it with --evaluate holdout."
        )
    cohort = ask_cohort(
        data, time=time, event=event, event_value=event_value, start=start, date_format=date_format, unit=unit,
        categorical=categorical, numeric=numeric, drop=drop, delimiter=delimiter, decimal=decimal, encoding=encoding,
        sheet=sheet,
    )  # fmt: skip
    show_cohort(shell, cohort)
    asked = parse_horizons(horizons, cohort.unit) if horizons else []
    findings = check_cohort(cohort, asked)
    refuse(findings)
    require_features(cohort)
    estimator = build(
        model, settings_file=settings, parameters=o.settings(set_), unit=cohort.unit, seed=seed, jobs=jobs or o.cores(),
        quick=quick,
    )  # fmt: skip
    told = [f for f in findings if f.severity == "warning" or f.code == "follow-up-depends-on-features"]
    warned = [f for f in told if has_grid(estimator) or f.code != "events-per-bucket"]
    if warned:
        shell.show()
        show_findings(shell, warned)
    chosen = asked or choose_horizons(cohort.y, cohort.unit, last_usable_time(cohort.time, cohort.event))
    if settings is not None:
        warn_of_tuning(settings, cohort, evaluate, seed)
    shell.show()
    started = clock.monotonic()
    with shell.steps() as step, watch(step.epoch):
        fitted, card = train(
            estimator, cohort, chosen, evaluate=evaluate, refit=refit, folds=folds, seed=seed, bootstrap=bootstrap,
            report=report, step=step,
        )  # fmt: skip
        step(f"writing {output}")
        fitted.save(output)
    show_evaluation(shell, card, type(estimator).__name__)
    shell.show()
    shell.say(f"{output}: {fitted.display_name}, {card.trained_on}, {clock.monotonic() - started:.0f} s.")
    if report is not None:
        shell.say(f"{report}: report on the held-out patients.")
    shell.say(f"Next: dcsurv predict {shlex.quote(str(output))} new_patients.csv -o predictions.csv")
    shell.result(
        {**describe(cohort, findings), "model": str(output), "kind": type(fitted).__name__, "card": fitted.card_}
    )


def warn_of_tuning(settings: Path, cohort: Cohort, evaluate: EvaluateBy, seed: int) -> None:
    """Say so if the search of the settings has seen the patients that now evaluate them."""
    tuned_on = json.loads(settings.read_text(encoding="utf-8")).get("tuned_on", {})
    if tuned_on.get("sha256") != cohort.digest or evaluate is EvaluateBy.NONE:
        return
    if tuned_on["all"] or tuned_on["seed"] != seed or evaluate is EvaluateBy.CV:
        note(
            "The settings were searched on patients who now also evaluate the model, so the numbers are a little too "
            "good. Search without --all and fit with the same --seed and --evaluate holdout to avoid it."
        )


def refuse(findings: list[Any]) -> None:
    """End with the first thing that makes a fit impossible."""
    bad = [finding for finding in findings if finding.severity == "error"]
    if bad:
        raise CohortError(" ".join(f"{say(f.message, option)} {say(f.remedy, option)}" for f in bad))


def train(
    estimator: Any,
    cohort: Cohort,
    horizons: list[Horizon],
    *,
    evaluate: EvaluateBy,
    refit: bool,
    folds: int,
    seed: int,
    bootstrap: int,
    report: Path | None,
    step: Any,
) -> tuple[Any, ModelCard]:
    """Evaluate as asked, fit the model to keep, and give it its card."""
    from dcsurv.cohort.evaluation import cross_validate, fit, hold_out

    evaluation, kept = None, None
    trained_on = f"fitted to all {len(cohort):,} patients"
    if evaluate is EvaluateBy.HOLDOUT:
        with _offering_none():
            held = hold_out(estimator, cohort, horizons, seed=seed, n_bootstrap=bootstrap, progress=step)
        evaluation = held.evaluation
        if report is not None:
            step(f"writing {report}")
            report_held_out(report, held, cohort, horizons, bootstrap, seed)
        if not refit:
            kept, trained_on = (
                held.model,
                f"fitted to {len(held.train):,} of {len(cohort):,} patients, the others held out",
            )
    elif evaluate is EvaluateBy.CV:
        with _offering_none():
            evaluation = cross_validate(estimator, cohort, horizons, folds=folds, seed=seed, progress=step)
    if kept is None:
        step(f"fitting to all {len(cohort):,} patients")
        kept = fit(estimator, cohort)
    return kept, give_card(kept, cohort, horizons, trained_on, evaluation)


@contextmanager
def _offering_none() -> Iterator[None]:
    """Say, where there are too few events to evaluate, how to go without."""
    from dcsurv.cohort.evaluation import TooFewEvents

    try:
        yield
    except TooFewEvents as error:
        remedy = "Fit without an evaluation, with --evaluate none, or bring more patients."
        raise CohortError(error.message, remedy=remedy) from None


def give_card(
    model: Any, cohort: Cohort, horizons: list[Horizon], trained_on: str, evaluation: Any | None
) -> ModelCard:
    """Let what is known about data and evaluation travel with a model."""
    from dcsurv.cohort.card import now

    card = ModelCard(
        columns=cohort.columns,
        horizons=horizons,
        outcome=cohort.outcome,
        unit=cohort.unit,
        data=cohort.to_dict(),
        trained_on=trained_on,
        created=now(),
        evaluation=None if evaluation is None else evaluation.to_dict(),
    )
    card.attach(model)
    return card


def report_held_out(path: Path, held: Any, cohort: Cohort, horizons: list[Horizon], bootstrap: int, seed: int) -> Any:
    """Write the report of a model on the patients that were held out from it."""
    return write_page(
        path, held.model, cohort.features.iloc[held.test], cohort.y[held.test],
        X_train=cohort.features.iloc[held.train], y_train=cohort.y[held.train], reference=held.reference,
        horizons=[horizon.time for horizon in horizons], unit=cohort.unit, data_name=cohort.name,
        n_bootstrap=bootstrap, random_state=seed,
    )  # fmt: skip


def write_page(path: Path, *arguments: Any, **options: Any) -> Any:
    """Write a report; if that fails, no folder with some of its figures stays behind."""
    from dcsurv.report import write_report

    figures = path.with_name(f"{path.stem}_figures")
    there_before = figures.exists()
    try:
        return write_report(path, *arguments, **options)
    except BaseException:
        if not there_before:
            shutil.rmtree(figures, ignore_errors=True)
        raise


def show_evaluation(shell: Shell, card: ModelCard, name: str) -> None:
    """Show what was measured when a model was fitted."""
    found = card.evaluation
    if found is None:
        shell.say("Not evaluated.")
        return
    columns = {name: found["metrics"]}
    if found["reference"]:
        columns[found["reference"]["model"]] = found["reference"]["metrics"]
    title = f"On {found['patients']:,} patients ({found['events']:,} events) not used for training"
    show_metrics(shell, title, columns, card.horizons, card.unit)
    intervals = any(row.get("lower") is not None for row in found["metrics"])
    how = found["how"][:1].upper() + found["how"][1:]
    shell.show(f"{how}. {'In brackets: 95 % bootstrap intervals.' if intervals else ''}", style="dim", markup=False)
    for text in found["notes"]:
        note(text)
