"""``dcsurv evaluate``, ``recalibrate``, ``report`` and ``info``: what can be done with a model file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from dcsurv.cli import options as o
from dcsurv.cli.app import app
from dcsurv.cli.data import horizons_for
from dcsurv.cli.fitting import show_evaluation, write_page
from dcsurv.cli.shell import Shell, note
from dcsurv.cli.tables import add, plain_table, show_metrics, show_table
from dcsurv.cli.words import option
from dcsurv.cohort import Cohort, CohortError, ModelCard, describe_time, read_cohort_for
from dcsurv.messages import plural

if TYPE_CHECKING:
    from dcsurv.calibration import Recalibrated

_SHOWN = 12


@app.command()
def evaluate(
    model: o.ModelFile,
    data: o.DataFile,
    time: o.OtherTime = None,
    event: o.OtherEvent = None,
    event_value: o.EventValue = None,
    start: o.Start = None,
    horizons: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Times of interest, such as 1y,5y. Default: those of the model.", show_default=False
        ),
    ] = None,
    bootstrap: o.Resamples = 200,
    seed: o.Seed = 0,
    delimiter: o.Delimiter = None,
    decimal: o.Decimal = None,
    encoding: o.Encoding = None,
    sheet: o.Sheet = None,
    as_json: o.AsJson = False,
) -> None:
    """Measure a model on patients with known outcomes that it was not fitted to."""
    from dcsurv.cohort.evaluation import Evaluation, evaluate_curves
    from dcsurv.follow_up import study_follow_up
    from dcsurv.persistence import load

    shell = Shell(as_json)
    fitted = load(model)
    card = ModelCard.of(fitted)
    cohort = _patients(
        shell, data, fitted, time=time, event=event, event_value=event_value, start=start, delimiter=delimiter,
        decimal=decimal, encoding=encoding, sheet=sheet,
    )  # fmt: skip
    if used := card.seen(cohort.digest):
        note(
            f"This is the very file that the model was {used}: the numbers flatter it. What it can do on new "
            "patients is in `dcsurv info`, or in an evaluation on other patients."
        )
    chosen = horizons_for(card, horizons)
    measured = evaluate_curves(
        cohort.y,
        fitted.predict_survival_function(cohort.features),
        None,
        chosen,
        follow_up=study_follow_up(cohort.features, cohort.y),
        n_bootstrap=bootstrap,
        seed=seed,
        unit=card.unit,
    )
    notes = (*measured.unmeasured, *measured.notes)
    how = f"all patients of {data.name}"
    found = Evaluation(how, len(cohort), cohort.events, measured.table, None, notes).to_dict()
    title = f"{fitted.display_name} on {len(cohort):,} patients ({cohort.events:,} events) of {data.name}"
    show_metrics(shell, title, {"value (95 % interval)" if bootstrap else "value": found["metrics"]}, chosen, card.unit)
    for text in notes:
        note(text)
    shell.result({"model": str(model), "data": cohort.to_dict(), **found})


@app.command()
def recalibrate(
    model: o.ModelFile,
    data: o.DataFile,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="Recalibrated model file to write.", show_default=False),
    ],
    time: o.OtherTime = None,
    event: o.OtherEvent = None,
    event_value: o.EventValue = None,
    start: o.Start = None,
    keep_ranking: Annotated[
        bool, typer.Option("--keep-ranking", help="Leave the order of the patients exactly as it was.")
    ] = False,
    delimiter: o.Delimiter = None,
    decimal: o.Decimal = None,
    encoding: o.Encoding = None,
    sheet: o.Sheet = None,
    as_json: o.AsJson = False,
) -> None:
    """Fit a model's probabilities to local patients, such as another hospital's; nothing is trained anew.

    With few events the model stays close to what it was; with many it follows them.
    """
    from dcsurv.calibration import recalibrate as fit_map
    from dcsurv.persistence import load

    shell = Shell(as_json)
    o.check_output(output, data, model)
    fitted = load(model)
    card = ModelCard.of(fitted)
    cohort = _patients(
        shell, data, fitted, time=time, event=event, event_value=event_value, start=start, delimiter=delimiter,
        decimal=decimal, encoding=encoding, sheet=sheet,
    )  # fmt: skip
    if used := card.seen(cohort.digest):
        note(f"This is the very file that the model was {used}; recalibrate with patients that it has not seen.")
    if cohort.events == 0:
        raise CohortError(f"none of the {len(cohort)} patients has the event, so there is nothing to recalibrate with.")
    maps = ("rank",) if keep_ranking else ("horizon", "rank")
    done = fit_map(fitted, cohort.features, cohort.y, maps=maps, name=cohort.name, digest=cohort.digest)
    done.model.save(output)
    table = plain_table(
        "by", "mean change of survival", "observed / expected before", "after, same patients", right=(1, 2, 3),
    )  # fmt: skip
    rows = zip(done.horizons, done.mean_change, done.ratio_before, done.ratio_after, strict=True)
    for t, change, before, after in rows:
        add(table, describe_time(float(t), card.unit), f"{change:.3f}", f"{before:.2f}", f"{after:.2f}")
    show_table(shell, f"Recalibrated on {done.model.fitted_on_}", table)
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


@app.command()
def report(
    model: o.ModelFile,
    data: o.DataFile,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Report to write, .html.", show_default=False)
    ],
    train: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The table that the model was fitted to: adds what needs it, and CoxPH for comparison.",
            show_default=False,
        ),
    ] = None,
    time: o.OtherTime = None,
    event: o.OtherEvent = None,
    event_value: o.EventValue = None,
    start: o.Start = None,
    horizons: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Times of interest, such as 1y,5y. Default: those of the model.", show_default=False
        ),
    ] = None,
    subgroups: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMNS", help="Columns whose groups are reported on their own.", show_default=False),
    ] = None,
    patients: Annotated[
        str | None,
        typer.Option(
            metavar="ROWS",
            help="Draw the curves of these real patients, such as 1,5,9: rows of the file, from 1, as `predict` "
            "counts them.",
            show_default=False,
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the report.", show_default=False)] = None,
    bootstrap: o.Resamples = 200,
    seed: o.Seed = 0,
    delimiter: o.Delimiter = None,
    decimal: o.Decimal = None,
    encoding: o.Encoding = None,
    sheet: o.Sheet = None,
    as_json: o.AsJson = False,
) -> None:
    """Write an HTML report about a model on patients that it was not fitted to, with figures as SVG and PNG."""
    from dcsurv.models import CoxPH
    from dcsurv.persistence import load

    shell = Shell(as_json)
    o.check_output(output, data, model, suffixes=(".html",))
    fitted = load(model)
    card = ModelCard.of(fitted)
    options: dict[str, Any] = {
        "time": time, "event": event, "event_value": event_value, "start": start, "delimiter": delimiter,
        "decimal": decimal, "encoding": encoding, "sheet": sheet,
    }  # fmt: skip
    cohort = _patients(shell, data, fitted, **options)
    chosen = _rows(patients, cohort)
    if used := card.seen(cohort.digest):
        note(f"This is the very file that the model was {used}: the report flatters it, and says so.")
    before = None if train is None else _patients(shell, train, fitted, **options)
    with shell.steps() as step:
        reference = None
        if before is not None:
            step("fitting CoxPH for comparison")
            reference = CoxPH(time_unit=card.unit).fit(before.features, before.y)
        step(f"writing {output}")
        made = write_page(
            output, fitted, cohort.features, cohort.y,
            X_train=None if before is None else before.features, y_train=None if before is None else before.y,
            reference=reference, horizons=[horizon.time for horizon in horizons_for(card, horizons)], unit=card.unit,
            subgroups=o.names(subgroups, list(cohort.features.columns)) or None, patients=chosen, title=title,
            data_name=data.name, n_bootstrap=bootstrap, random_state=seed, seen=used is not None, same_cohort=False,
        )  # fmt: skip
    shell.say(f"{made.path}: the report, with {len(made.figures)} figures beside it.")
    shell.result({"report": str(made.path), "figures": [str(path) for path in made.figures], "numbers": made.numbers})


@app.command()
def models(as_json: o.AsJson = False) -> None:
    """List the models that `fit` and `tune` know, those of installed extensions among them."""
    from dcsurv.kinds import kinds

    shell = Shell(as_json)
    table = plain_table("name", "what it is")
    offered = [kind for kind in kinds() if kind.by_name]
    for kind in offered:
        others = f" (also {', '.join(kind.variants)})" if kind.variants else ""
        add(table, kind.name, kind.meaning + others)
    show_table(shell, "Models", table)
    shell.say("calibrated-NAME is an ensemble of that model, averaged and recalibrated on held-out folds.")
    shell.result(
        {"models": [{"name": kind.name, "meaning": kind.meaning, "variants": list(kind.variants)} for kind in offered]}
    )


@app.command()
def info(model: o.ModelFile, as_json: o.AsJson = False) -> None:
    """Say what a model file holds: model, training, columns, horizons, and how good it was when it was fitted."""
    from dcsurv.cli.cox import hazard_ratios_as_data, show_hazard_ratios
    from dcsurv.models import CoxPH
    from dcsurv.persistence import load, read

    shell = Shell(as_json)
    header, _ = read(model)
    fitted = load(model)
    card = ModelCard.of(fitted)
    inside = innermost_header(header)
    training = inside["training"]
    shell.say(f"{model}: {fitted.display_name}")
    trained_on = card.trained_on or f"fitted to {plural(training['patients'], 'patient')}"
    shell.say(f"  trained    {trained_on}, {plural(training['events'], 'event')} {card.created}")
    for entry in card.recalibrated_on:
        shell.say(f"  then       recalibrated on {entry}")
    if card.data:
        shell.say(f"  data       {card.data['file']}, SHA-256 {str(card.data['sha256'])[:16]}…")
    if card.outcome is not None:
        shell.say(
            f"  outcome    time {card.outcome.time!r}, event {card.outcome.event!r}: "
            f"{card.outcome.coding.describe().say(option)}"
        )
    shell.say(
        f"  unit       {card.unit or 'not given'}; predicts up to {describe_time(float(fitted.nodes[-1]), card.unit)}"
    )
    if fitted.follow_up_ is not None and fitted.follow_up_.depends:
        shell.say(f"  follow-up  {fitted.follow_up_.describe()}")
        low, high = (describe_time(float(t), card.unit) for t in np.quantile(fitted.follow_up_.followed_until, [0, 1]))
        shell.say(f"             Training patients were followed to between {low} and {high}, depending on them.")
    shell.say(f"  horizons   {', '.join(horizon.label for horizon in card.horizons)}")
    shell.say(
        f"  versions   {', '.join(f'{name} {number}' for name, number in inside['versions'].items())}; file format "
        f"{header['format']}"
    )
    changed = _changed(fitted.innermost)
    shell.say(f"  settings   {', '.join(f'{k}={v!r}' for k, v in changed.items()) or 'all as by default'}")
    _show_columns(shell, fitted, card)
    if isinstance(fitted, CoxPH):
        show_hazard_ratios(shell, fitted)
    for later in fitted.recalibrations:
        show_recalibration(shell, later, card)
    if card.evaluation is not None:
        show_evaluation(shell, card, fitted.innermost.display_name)
    kept = [
        "kind",
        "format",
        "parameters",
        "features",
        "training",
        "versions",
        "conventions",
        "time_unit",
        "follow_up",
        "card",
    ]
    later = [{"fitted_on": asdict(one.fitted_on_), "maps": list(one.maps)} for one in fitted.recalibrations]
    more = hazard_ratios_as_data(fitted) if isinstance(fitted, CoxPH) else {}
    own = {"kind": header["kind"], "format": header["format"], "recalibrations": later}
    shell.result({"model": str(model), **{name: inside.get(name) for name in kept}, **own, **more})


def innermost_header(header: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a file's header that tells of the model that was trained."""
    while "model" in header:
        header = header["model"]
    return header


def show_recalibration(shell: Shell, model: Recalibrated, card: ModelCard) -> None:
    """Show how good the curves were before and after a recalibration, on the patients that it was fitted to."""
    found = model.evaluation_
    if found is None:
        shell.say(f"Recalibrated on {model.fitted_on_}; how good it was then is not in the file.")
        return
    columns = {"before": found["before"]}
    if found["after"] is not None:
        columns["after"] = found["after"]
    show_metrics(shell, f"On the {model.fitted_on_} of the recalibration", columns, card.horizons, card.unit)
    if found["after"] is not None:
        shell.show(
            "After: each patient's curve was mapped by maps fitted to the other folds of these patients.", style="dim"
        )


def _patients(shell: Shell, data: Path, fitted: Any, *, event_value: list[str] | None, **options: Any) -> Cohort:
    """Read patients with outcomes for a model, and say what was not as expected."""
    cohort, odd = read_cohort_for(fitted, data, event_values=event_value or (), **options)
    for text in (*cohort.notes, *(one.describe() for one in odd)):
        note(text)
    if cohort.incomplete:
        note(f"{cohort.incomplete:,} rows without a time or an event are left out.")
    coding = cohort.outcome.coding.describe().say(option)
    shell.say(f"{cohort.name}: {plural(len(cohort), 'patient')}; event {cohort.outcome.event!r}: {coding}")
    return cohort


def _rows(text: str | None, cohort: Cohort) -> dict[str, int] | None:
    """Return patients, by what to call them, of a list of rows of the file that counts from 1."""
    from dcsurv.report.study import MOST_PATIENTS_DRAWN

    if text is None:
        return None
    try:
        asked = [int(part) for part in text.split(",")]
    except ValueError:
        raise CohortError(f"--patients is {text!r}, but row numbers such as 1,5,9 are expected.") from None
    if len(set(asked)) < len(asked) or len(asked) > MOST_PATIENTS_DRAWN:
        raise CohortError(f"--patients is {text!r}, but at most {MOST_PATIENTS_DRAWN} different rows are expected.")
    total = len(cohort) + cohort.incomplete
    rows = range(1, total + 1) if cohort.rows is None else cohort.rows.tolist()
    place = {row: position for position, row in enumerate(rows)}
    for row in asked:
        if not 1 <= row <= total:
            raise CohortError(f"--patients names row {row}, which is not there; there are 1 to {total}.")
        if row not in place:
            raise CohortError(f"--patients names row {row}, which has no time or no event. Choose another row.")
    return {f"patient in row {row}": place[row] for row in asked}


def _changed(fitted: Any) -> dict[str, Any]:
    """Return the parameters that differ from their defaults, the members' among them."""
    usual = type(fitted)().get_params(deep=False)
    out = {k: v for k, v in fitted.get_params(deep=False).items() if v != usual[k] and k not in ("n_jobs", "time_unit")}
    if out.get("estimator") is not None:
        member = out.pop("estimator")
        usual = type(member)().get_params(deep=False)
        hidden = ("preprocess", "random_state", "time_unit")
        out |= {k: v for k, v in member.get_params(deep=False).items() if v != usual[k] and k not in hidden}
    return out


def _show_columns(shell: Shell, fitted: Any, card: ModelCard) -> None:
    from dcsurv.cohort.card import levels_of

    levels = levels_of(fitted)
    used = [column for column in card.columns if column.kind != "left out"]
    table = plain_table("column", "taken as", "known levels")
    for column in used[:_SHOWN]:
        known = levels.get(column.name, [])
        add(
            table,
            column.name,
            column.kind,
            ", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else ""),
        )
    show_table(shell, f"Columns that it needs ({len(used)})", table)
    if len(used) > _SHOWN:
        shell.say(f"  and {len(used) - _SHOWN} more; --json lists all.")
