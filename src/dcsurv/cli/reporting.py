"""``dcsurv report``: an HTML page about a model, and the one that comes with a fit."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

from dcsurv.cli import options as o
from dcsurv.cli.app import command
from dcsurv.cli.data import horizons_for
from dcsurv.cli.groups import described
from dcsurv.cli.patients import read_patients
from dcsurv.cli.shell import Shell, note
from dcsurv.cohort import Cohort, CohortError, Horizon, ModelCard, describe_time
from dcsurv.messages import did_you_mean, listed, plural


@command
def report(
    model: o.ModelFile,
    data: o.DataFile,
    *,
    outcome: o.OtherOutcomeOptions,
    measuring: o.MeasuringOptions,
    train: Annotated[
        Path | None,
        described(
            metavar="FILE",
            help="The table that the model was fitted to: adds what needs it, and CoxPH for comparison.",
            panel=o.EVALUATION,
        ),
    ] = None,
    local: Annotated[
        list[Path] | None,
        described(
            metavar="FILE",
            help="The table that the model was recalibrated with: CoxPH is then recalibrated with it too. May be "
            "repeated, oldest first.",
            panel=o.EVALUATION,
        ),
    ] = None,
    validation: Annotated[
        Path | None,
        described(
            metavar="FILE",
            help="The validation.json of `dcsurv validate`, whose verdict the report then gives.",
            panel=o.EVALUATION,
        ),
    ] = None,
    reading: o.ReadingOptions,
    output: Annotated[Path, o.written_to("Report to write, .html.")],
    subgroups: Annotated[
        list[str] | None,
        described(metavar="COLUMNS", help="Columns whose groups are reported on their own.", panel=o.OUTPUT),
    ] = None,
    patients: Annotated[
        str | None,
        described(
            metavar="ROWS",
            help="Draw the curves of these real patients, such as 1,5,9: rows of the file, from 1, as `predict` "
            "counts them.",
            panel=o.OUTPUT,
        ),
    ] = None,
    title: Annotated[str | None, described(help="Title of the report.", panel=o.OUTPUT)] = None,
    shell: Shell,
) -> None:
    """Write an HTML report about a model on patients that it was not fitted to, with figures as SVG and PNG."""
    from dcsurv.models import CoxPH
    from dcsurv.persistence import load
    from dcsurv.report import write_report

    given = [one for one in (data, model, train, *(local or ()), validation) if one is not None]
    o.check_page(output, *given)
    validated = _read_validation(validation)
    fitted = load(model)
    card = ModelCard.of(fitted)
    cohort = read_patients(shell, data, fitted, outcome, reading)
    chosen, groups = _rows(patients, cohort), _subgroups(subgroups, cohort)
    if used := card.seen(cohort.digest):
        note(f"This is the very file that the model was {used}: the report flatters it, and says so.")
    before = None if train is None else read_patients(shell, train, fitted, outcome, reading)
    locals_ = [read_patients(shell, path, fitted, outcome, reading) for path in local or []]
    if before is not None:
        _check_train(fitted, card, before, [cohort, *locals_])
    _check_local(fitted, locals_, before, cohort)
    with shell.steps() as step:
        reference = None
        if before is not None:
            step("fitting CoxPH for comparison")
            reference = _treated_alike(CoxPH(time_unit=card.unit).fit(before.features, before.y), fitted, locals_)
        step(f"writing {output}")
        made = write_report(
            output, fitted, cohort.features, cohort.y,
            X_train=None if before is None else before.features, y_train=None if before is None else before.y,
            reference=reference, horizons=_times(horizons_for(card, measuring.horizons)), unit=card.unit,
            subgroups=groups or None, patients=chosen, title=title,
            data_name=data.name, outcome=cohort.outcome, file_holds=holds_this(model, card), validation=validated,
            n_bootstrap=measuring.bootstrap, random_state=measuring.seed, seen=used is not None,
        )  # fmt: skip
    for late, reason in made.left_out:
        note(f"Nothing is reported at {describe_time(late, card.unit)}: {reason}.")
    shell.say(f"{made.path}: the report, with {plural(len(made.figures), 'figure')} beside it.")
    shell.result({"report": str(made.path), "figures": [str(path) for path in made.figures], "numbers": made.numbers})


def _read_validation(path: Path | None) -> dict[str, Any] | None:
    """Read what a validation has found."""
    if path is None:
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CohortError(f"--validation names {path}, which cannot be read ({error}).") from None
    if not isinstance(found, dict) or "verdict" not in found:
        raise CohortError(f"--validation names {path}, but the validation.json of `dcsurv validate` is expected.")
    return found


def holds_this(path: Path, card: ModelCard) -> str:
    """Say that a file holds the model of the page, and whom it was fitted to."""
    return f"{path.name} holds this very model{f', {card.trained_on}' if card.trained_on else ''}."


def _check_train(fitted: Any, card: ModelCard, given: Cohort, others: list[Cohort]) -> None:
    """Refuse a table other than the one that a model was fitted to."""
    remedy = "Name the table that the model was fitted to, or leave --train out."
    if any(one.digest == given.digest for one in others):
        raise CohortError(f"--train names {given.name}, which is also evaluated or named by --local.", remedy=remedy)
    known = card.data or getattr(fitted.innermost, "training_summary_", {})  # no card: fitted in Python
    if known.get("sha256") == given.digest:
        return
    found = given.to_dict()
    differ = [
        name for name in ("patients", "events", "last_time")
        if name in known and not math.isclose(known[name], found[name], rel_tol=1e-9)
    ]  # fmt: skip
    if differ:
        raise CohortError(
            f"--train names {given.name} ({_size(found, card)}), but the model was fitted to a table of "
            f"{_size(known, card)}.",
            remedy=remedy,
        )
    if known.get("sha256") is not None:
        note(
            f"{given.name} is not the very file that the model was fitted to, {known['file']}, but has as many "
            "patients and events and the same last time, and is taken for it."
        )


def _size(table: dict[str, Any], card: ModelCard) -> str:
    """Say how many patients a table has and how long they were followed."""
    last = f", last time {describe_time(table['last_time'], card.unit)}" if "last_time" in table else ""
    return f"{plural(table['patients'], 'patient')}, {plural(table['events'], 'event')}{last}"


def _check_local(fitted: Any, locals_: list[Cohort], before: Cohort | None, cohort: Cohort) -> None:
    """Refuse tables other than those that a model was recalibrated with."""
    if not locals_:
        return
    if before is None:
        raise CohortError("--local recalibrates CoxPH as the model was, and CoxPH needs --train.")
    on = [one.fitted_on_ for one in fitted.recalibrations]
    if len(on) != len(locals_):
        raise CohortError(
            f"--local was given {plural(len(locals_), 'time')}, but the model was recalibrated "
            f"{plural(len(on), 'time')}."
        )
    for known, given in zip(on, locals_, strict=True):
        if given.digest == cohort.digest:
            raise CohortError(f"--local names {given.name}, which is also evaluated. Evaluate on other patients.")
        if known.digest is None:  # recalibrated in Python
            same = (known.patients, known.events) == (len(given), given.events)
        else:
            same = known.digest == given.digest
        if not same:
            raise CohortError(
                f"--local names {given.name} ({plural(len(given), 'patient')}, {plural(given.events, 'event')}), but "
                f"the model was recalibrated with {known}."
            )


def _treated_alike(reference: Any, fitted: Any, locals_: list[Cohort]) -> Any:
    """Return the reference, recalibrated with the tables that the model was recalibrated with."""
    from dcsurv.calibration import Recalibrated

    for one, given in zip(fitted.recalibrations, locals_, strict=False):
        reference = Recalibrated(reference, one.map_.names, given.name).fit(given.features, given.y)
    return reference


def report_held_out(
    path: Path, held: Any, cohort: Cohort, horizons: list[Horizon], bootstrap: int, seed: int, file_holds: str
) -> Any:
    """Write the report of a model on the patients that were held out from it; the file may hold another one."""
    from dcsurv.report import write_report

    return write_report(
        path, held.model, cohort.features.iloc[held.test], cohort.y[held.test],
        X_train=cohort.features.iloc[held.train], y_train=cohort.y[held.train], reference=held.reference,
        horizons=_times(horizons), unit=cohort.unit, data_name=cohort.name, outcome=cohort.outcome,
        file_holds=file_holds, n_bootstrap=bootstrap, random_state=seed,
    )  # fmt: skip


def _subgroups(given: list[str] | None, cohort: Cohort) -> list[str]:
    """Return the features whose groups are reported."""
    features = [str(name) for name in cohort.features.columns]
    names = o.column_names(given, features)
    for name in names:
        if name not in features:
            raise CohortError(
                f"--subgroups names {name!r}, which is no feature of the model.",
                remedy=f"{did_you_mean(name, features)}The features are {listed(features, 12)}.",
            )
    return names


def _times(horizons: list[Horizon]) -> list[float]:
    return [horizon.time for horizon in horizons]


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
