"""``dcsurv evaluate`` and ``recalibrate``: a model and patients with known outcomes."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dcsurv.cli import options as o
from dcsurv.cli.app import command
from dcsurv.cli.data import horizons_for
from dcsurv.cli.groups import described
from dcsurv.cli.patients import read_patients
from dcsurv.cli.shell import Shell, note
from dcsurv.cli.tables import add, plain_table, show_metrics, show_table
from dcsurv.cohort import Cohort, CohortError, ModelCard, describe_time, usable_horizons
from dcsurv.messages import fixed, plural

if TYPE_CHECKING:
    from dcsurv.calibration import Recalibrated
    from dcsurv.follow_up import FollowUp


@command
def evaluate(
    model: o.ModelFile,
    data: o.DataFile,
    outcome: o.OtherOutcomeOptions,
    measuring: o.MeasuringOptions,
    reading: o.ReadingOptions,
    shell: Shell,
) -> None:
    """Measure a model on patients with known outcomes that it was not fitted to."""
    from dcsurv.cohort.evaluation import Evaluation, evaluate_curves
    from dcsurv.metrics.censoring import study_censoring
    from dcsurv.models.time_units import other_time_unit
    from dcsurv.persistence import load

    fitted = load(model)
    card = ModelCard.of(fitted)
    cohort = read_patients(shell, data, fitted, outcome, reading)
    if used := card.seen(cohort.digest):
        note(
            f"This is the very file that the model was {used}: the numbers flatter it. What it can do on new "
            "patients is in `dcsurv info`, or in an evaluation on other patients."
        )
    chosen = horizons_for(card, measuring.horizons)
    curves = fitted.curves_for(cohort.features)
    if unit := other_time_unit(fitted, cohort.y, curves):
        note(unit)
    measured = evaluate_curves(
        cohort.y,
        curves,
        None,
        chosen,
        follow_up=study_censoring(cohort.y, [curves], cohort.features),
        n_bootstrap=measuring.bootstrap,
        seed=measuring.seed,
        unit=card.unit,
    )
    notes = (*measured.unmeasured, *measured.notes)
    how = f"all patients of {data.name}"
    found = Evaluation(how, len(cohort), cohort.events, measured.table, None, notes).to_dict()
    whom = f"{plural(len(cohort), 'patient')} ({plural(cohort.events, 'event')}) of {data.name}"
    column = "value (95 % interval)" if measuring.bootstrap else "value"
    show_metrics(shell, f"Measured on {whom}: {fitted.display_name}", {column: found["metrics"]}, chosen, card.unit)
    for text in notes:
        note(text)
    shell.result({"model": str(model), "data": cohort.to_dict(), **found})


@command
def recalibrate(
    model: o.ModelFile,
    data: o.DataFile,
    *,
    outcome: o.OtherOutcomeOptions,
    keep_ranking: Annotated[
        bool,
        described("--keep-ranking", help="Leave the order of the patients exactly as it was.", panel="Recalibration"),
    ] = False,
    reading: o.ReadingOptions,
    output: Annotated[Path, o.written_to("Recalibrated model file to write.")],
    shell: Shell,
) -> None:
    """Fit a model's probabilities to local patients, such as another hospital's; nothing is trained anew.

    With few events the model stays close to what it was; with many it follows them.
    """
    from dcsurv.calibration import recalibrate as fit_map
    from dcsurv.models.time_units import other_time_unit
    from dcsurv.persistence import load
    from dcsurv.preprocessing import OutsideTrainingWarning

    o.check_output(output, data, model)
    fitted = load(model)
    card = ModelCard.of(fitted)
    cohort = read_patients(shell, data, fitted, outcome, reading)
    if used := card.seen(cohort.digest):
        note(f"This is the very file that the model was {used}; recalibrate with patients that it has not seen.")
    if cohort.events == 0:
        raise CohortError(
            f"no event was observed in the {plural(len(cohort), 'patient')}: there is nothing to recalibrate with."
        )
    maps = ("rank",) if keep_ranking else ("horizon", "rank")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutsideTrainingWarning)  # said above and below
        done = fit_map(
            fitted, cohort.features, cohort.y, maps=maps, name=cohort.name, digest=cohort.digest,
            horizons=_usable(card, cohort) or None,
        )  # fmt: skip
    done.model.save(output)
    if unit := other_time_unit(fitted, done.y, done.curves):
        note(unit)
    if weights := _weights_follow(done.follow_up):
        note(weights)
    _show_change(shell, done, card)
    show_recalibration(shell, done.model, card)
    shell.show()
    shell.say(f"{output}: check it on patients that were not used here, with dcsurv evaluate {output} others.csv")
    shell.result(
        {
            "model": str(output),
            "fitted_on": asdict(done.model.fitted_on_),
            "maps": list(maps),
            "evaluation": done.model.evaluation_,
            "observed_expected_before": done.ratio_before,
            "observed_expected_after": done.ratio_after,
        }
    )


def _usable(card: ModelCard, cohort: Cohort) -> list[float]:
    """Return the horizons of a model that patients can say something about; say which others there are."""
    usable, unusable = usable_horizons([horizon.time for horizon in card.horizons], cohort.y)
    for one in unusable:
        note(f"Nothing is measured at {describe_time(one.time, card.unit)}: {one.describe(card.unit)}.")
    return usable


def _weights_follow(follow_up: FollowUp) -> str:
    """Say what censoring depends on, and with it the weights of the maps."""
    risk = follow_up.describe_risk()
    if follow_up.by == "risk" and follow_up.depends:
        return f"{risk}: the weights of the maps follow it."
    if follow_up.depends:
        return f"{follow_up.describe()} The weights of the maps follow the features." + (f" {risk}." if risk else "")
    return f"{risk}: one curve of censoring serves for all." if risk else ""


def _show_change(shell: Shell, done: Any, card: ModelCard) -> None:
    """Show what a recalibration did to the curves."""
    table = plain_table(
        "by", "mean change of survival", "observed / expected before", "after, same patients", right=(1, 2, 3),
    )  # fmt: skip
    rows = zip(done.horizons, done.mean_change, done.ratio_before, done.ratio_after, strict=True)
    for t, change, before, after in rows:
        add(table, describe_time(float(t), card.unit), fixed(change), f"{before:.2f}", f"{after:.2f}")
    show_table(shell, f"Recalibrated on {done.model.fitted_on_}", table)


def show_recalibration(shell: Shell, model: Recalibrated, card: ModelCard) -> None:
    """Show how good the curves were before and after a recalibration, on the patients that it was fitted to."""
    found = model.evaluation_
    if found is None:
        shell.say(f"Recalibrated on {model.fitted_on_}; how good it was then is not in the file.")
        return
    columns = {"before": found["before"]}
    if found["after"] is not None:
        columns["after"] = found["after"]
    show_metrics(shell, f"Before and after, on the {model.fitted_on_}", columns, card.horizons, card.unit)
    if found["after"] is not None:
        shell.show(
            "After: each patient's curve was mapped by maps fitted to the other folds of these patients.", style="dim"
        )
