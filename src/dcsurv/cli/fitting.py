"""``dcsurv fit``: evaluate on patients held out, then fit to all of them."""

from __future__ import annotations

import json
import shlex
import time as clock
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

from dcsurv.cli import options as o
from dcsurv.cli.app import command
from dcsurv.cli.choices import HELP, build, has_grid
from dcsurv.cli.data import ask_cohort, describe
from dcsurv.cli.groups import described
from dcsurv.cli.options import EvaluateBy
from dcsurv.cli.reporting import report_held_out
from dcsurv.cli.shell import Shell, note
from dcsurv.cli.tables import show_cohort, show_evaluation, show_families, show_findings
from dcsurv.cli.words import option
from dcsurv.cohort import (
    Cohort,
    CohortError,
    Finding,
    Horizon,
    ModelCard,
    check_cohort,
    choose_horizons,
    last_usable_time,
    parse_horizons,
    require_features,
)
from dcsurv.messages import listed, plural, say
from dcsurv.parallel import on_cluster, watch_tasks
from dcsurv.writing import together


@command
def fit(
    data: o.DataFile,
    *,
    outcome: o.OutcomeOptions,
    features: o.FeatureOptions,
    model: Annotated[str | None, described("--model", metavar="NAME", help=HELP, panel=o.TRAINING)] = None,
    settings: Annotated[
        Path | None, described(metavar="FILE", help="Settings that `dcsurv tune` has found.", panel=o.TRAINING)
    ] = None,
    set_: o.Settings = None,
    computing: o.ComputingOptions,
    cluster: o.Cluster = None,
    evaluation: o.FitEvaluationOptions,
    reading: o.ReadingOptions,
    output: Annotated[Path, o.written_to("Model file to write, such as model.safetensors.")],
    report: Annotated[
        Path | None,
        described(
            metavar="FILE",
            help="Also write an HTML report on the held-out patients (with --evaluate holdout).",
            panel=o.OUTPUT,
        ),
    ] = None,
    shell: Shell,
) -> None:
    """Fit a model to a table of patients and write it to one file.

    First models are fitted to parts of the patients and evaluated on the others, beside CoxPH: on a fifth, or with
    few events on everybody in turn. Then the model that is written is fitted to all patients. The numbers tell how good
    this way of fitting is on new patients.
    """
    given = [data] if settings is None else [data, settings]
    o.check_output(output, *given)
    if report is not None:
        o.check_page(report, *given, output, option="--report")
    evaluation.check(report)
    cohort = ask_cohort(data, outcome, features, reading)
    show_cohort(shell, cohort)
    asked = parse_horizons(evaluation.horizons, cohort.unit) if evaluation.horizons else []
    findings = check_cohort(cohort, asked)
    refuse(findings)
    require_features(cohort)
    estimator = build(
        model, settings_file=settings, parameters=o.settings(set_), unit=cohort.unit, seed=computing.seed,
        jobs=computing.workers, quick=computing.quick,
    )  # fmt: skip
    _show_warnings(shell, findings, estimator)
    searched = settings is not None and searched_on_training_part(settings, cohort, computing.seed)
    by = evaluation.chosen(cohort, holds_out=report is not None or searched)
    if settings is not None:
        warn_of_tuning(settings, cohort, by, computing.seed)
    shell.show()
    chosen = asked or choose_horizons(cohort.y, cohort.unit, last_usable_time(cohort.time, cohort.event))
    started = clock.monotonic()
    with nullcontext() if cluster is None else on_cluster(cluster):
        fitted, card = _train_and_save(
            shell, estimator, cohort, chosen, by, evaluation, computing, cluster, report, output
        )
    show_families(shell, fitted)
    _note_rare_levels(fitted)
    show_evaluation(shell, card, type(estimator).__name__)
    shell.show()
    shell.say(f"{output}: {fitted.display_name}, {card.trained_on}, {clock.monotonic() - started:.0f} s.")
    if report is not None:
        shell.say(f"{report}: report on the held-out patients.")
    shell.say(f"Next: dcsurv predict {shlex.quote(str(output))} new_patients.csv -o predictions.csv")
    shell.result(
        {**describe(cohort, findings), "model": str(output), "kind": type(fitted).__name__, "card": fitted.card_}
    )


def _show_warnings(shell: Shell, findings: list[Finding], estimator: Any) -> None:
    """Show what may mislead about a model of this kind."""
    told = [f for f in findings if f.severity == "warning" or f.code == "follow-up-depends-on-features"]
    warned = [f for f in told if f.code != "events-per-bucket" or has_grid(estimator)]
    if warned:
        shell.show()
        show_findings(shell, warned)


def _note_rare_levels(model: Any) -> None:
    """Name the levels that are not learnt, which the file does not know any more."""
    prepared = model.preprocessor_
    if prepared is not None and prepared.rare_levels_:
        named = [f"{column} ({', '.join(levels)})" for column, levels in prepared.rare_levels_.items()]
        note(
            f"Levels that fewer than {prepared.least_patients} patients have count as missing, and the file does not "
            f"name them: {listed(named)}."
        )


def searched_on_training_part(settings: Path, cohort: Cohort, seed: int) -> bool:
    """Whether settings were searched on the very patients that a fit with this seed does not hold out."""
    tuned_on = json.loads(settings.read_text(encoding="utf-8")).get("tuned_on", {})
    return tuned_on.get("sha256") == cohort.digest and not tuned_on["all"] and tuned_on["seed"] == seed


def warn_of_tuning(settings: Path, cohort: Cohort, evaluate: EvaluateBy, seed: int) -> None:
    """Say so if the search of the settings has seen the patients that now evaluate them."""
    tuned_on = json.loads(settings.read_text(encoding="utf-8")).get("tuned_on", {})
    if tuned_on.get("sha256") != cohort.digest or evaluate is EvaluateBy.NONE:
        return
    if not searched_on_training_part(settings, cohort, seed) or evaluate is EvaluateBy.CV:
        note(
            "The settings were searched on patients who now also evaluate the model, so the numbers are a little too "
            "good. Search without --all and fit with the same --seed and --evaluate holdout to avoid it."
        )


def refuse(findings: list[Finding]) -> None:
    """End with all that makes a fit impossible."""
    bad = [finding for finding in findings if finding.severity == "error"]
    if bad:
        texts = [f"{say(f.message, option)} {say(f.remedy, option)}".strip() for f in bad]
        raise CohortError(" ".join([texts[0], *(text[:1].upper() + text[1:] for text in texts[1:])]))


def _train_and_save(
    shell: Shell,
    estimator: Any,
    cohort: Cohort,
    horizons: list[Horizon],
    by: EvaluateBy,
    how: o.FitEvaluationOptions,
    computing: o.ComputingOptions,
    cluster: str | None,
    report: Path | None,
    output: Path,
) -> tuple[Any, ModelCard]:
    """Evaluate as asked, fit the model to keep, give it its card and write it."""
    from dcsurv.cohort.evaluation import fit as fit_to
    from dcsurv.cohort.evaluation import hold_out
    from dcsurv.training import watch

    seed = computing.seed
    found, kept = None, None
    if by is EvaluateBy.CV:  # which has a bar of its own
        found = _cross_validated(shell, estimator, cohort, horizons, how, computing, cluster)
    trained_on = f"fitted to all {plural(len(cohort), 'patient')}"
    with together(output.parent), shell.steps() as step, watch(step.epoch), watch_tasks(step.tasks):
        if by is EvaluateBy.HOLDOUT:
            with _offering_none():
                held = hold_out(estimator, cohort, horizons, seed=seed, n_bootstrap=how.bootstrap, progress=step)
            found = held.evaluation
            if report is not None:
                step(f"writing {report}")
                told = f"This page describes the model {held_out_words(held, cohort)}. {output.name} holds " + (
                    f"a model of the same kind, {trained_on}." if how.refit else "this very model."
                )
                report_held_out(report, held, cohort, horizons, how.bootstrap, seed, told)
            if not how.refit:
                kept, trained_on = held.model, held_out_words(held, cohort)
        if kept is None:
            step(f"fitting to all {plural(len(cohort), 'patient')}")
            kept = fit_to(estimator, cohort)
        card = give_card(kept, cohort, horizons, trained_on, found)
        step(f"writing {output}")
        kept.save(output)
    return kept, card


def _cross_validated(
    shell: Shell,
    estimator: Any,
    cohort: Cohort,
    horizons: list[Horizon],
    how: o.FitEvaluationOptions,
    computing: o.ComputingOptions,
    cluster: str | None,
) -> Any:
    """Evaluate by cross-validation, and say why if nobody has asked for it."""
    from dcsurv.cohort.evaluation import TEST_SHARE
    from dcsurv.validation.cross_validation import cross_validated

    if how.evaluate is EvaluateBy.AUTO:
        shell.say(
            f"A fifth of the patients would have about {plural(round(TEST_SHARE * cohort.events), 'event')}, too few "
            "to judge a model by: everybody is predicted in turn instead (cross-validation)."
        )
    with _offering_none():
        return cross_validated(
            estimator, cohort, horizons, folds=how.folds, seed=computing.seed, workers=computing.workers,
            cluster=cluster, once=computing.quick,
        )  # fmt: skip


def held_out_words(held: Any, cohort: Cohort) -> str:
    """Say whom the model of a hold-out evaluation was fitted to."""
    return f"fitted to {len(held.train):,} of {plural(len(cohort), 'patient')}, the others held out"


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
