"""``dcsurv info`` and ``models``: what a model file holds, and which models there are."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from dcsurv.cli import options as o
from dcsurv.cli.app import command
from dcsurv.cli.evaluating import show_recalibration
from dcsurv.cli.shell import Shell
from dcsurv.cli.tables import add, plain_table, show_evaluation, show_families, show_table
from dcsurv.cli.words import option
from dcsurv.cohort import ModelCard, describe_time
from dcsurv.cohort.privacy import Learnt, what_a_reader_learns
from dcsurv.messages import plural

_SHOWN_COLUMNS, _SHOWN_LEVELS = 12, 8
# Parameters that do not matter for what a model is, and those of a member that its ensemble sets.
_HIDDEN, _SET_BY_ENSEMBLE = ("n_jobs", "time_unit"), ("preprocess", "random_state", "time_unit")
# What `--json` shows of a file's header.
_KEPT = ("kind", "format", "parameters", "features", "training", "versions", "conventions", "time_unit", "follow_up",
         "card")  # fmt: skip


@command
def models(shell: Shell) -> None:
    """List the models that `fit` and `tune` know, those of installed extensions among them."""
    from dcsurv.kinds import kinds

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


@command
def info(
    model: o.ModelFile,
    shell: Shell,
    privacy: Annotated[
        bool, typer.Option("--privacy", help="List what a reader of the file could learn about its patients.")
    ] = False,
) -> None:
    """Say what a model file holds: model, training, columns, horizons, and how good it was when it was fitted."""
    from dcsurv.calibration import CalibratedEnsemble
    from dcsurv.cli.cox import hazard_ratios_as_data, show_hazard_ratios
    from dcsurv.models import CoxPH
    from dcsurv.persistence import load, read

    header, arrays = read(model)
    fitted = load(model)
    if privacy:
        _show_privacy(shell, model, what_a_reader_learns(header, arrays))
        return
    card = ModelCard.of(fitted)
    inside = _innermost(header)
    shell.say(f"{model}: {fitted.display_name}")
    for name, text in (*_training(fitted, card, inside), *_predicting(fitted, card), *_making(fitted, header, inside)):
        shell.say(f"  {name:<10} {text}")
    show_families(shell, fitted.innermost)
    _show_columns(shell, fitted, card)
    if isinstance(fitted.innermost, CoxPH):
        show_hazard_ratios(shell, fitted.innermost)
    for later in fitted.recalibrations:
        show_recalibration(shell, later, card)
    if card.evaluation is not None:
        show_evaluation(shell, card, fitted.innermost.display_name, later=bool(fitted.recalibrations))
    recalibrations = [
        {"fitted_on": asdict(one.fitted_on_), "maps": list(one.map_.names)} for one in fitted.recalibrations
    ]
    more = hazard_ratios_as_data(fitted.innermost) if isinstance(fitted.innermost, CoxPH) else {}
    more |= {"weights": fitted.innermost.weights_} if isinstance(fitted.innermost, CalibratedEnsemble) else {}
    own = {"kind": header["kind"], "format": header["format"], "recalibrations": recalibrations}
    shell.result({"model": str(model), **{name: inside.get(name) for name in _KEPT}, **own, **more})


def _show_privacy(shell: Shell, model: Path, found: list[Learnt]) -> None:
    """List what the file tells about patients, kind by kind."""
    shell.say(f"{model} holds no row of a patient. A reader could learn from it:")
    for what in dict.fromkeys(one.what for one in found):
        shell.say(f"  {what}")
        for one in found:
            if one.what == what:
                shell.say(f"    {one.about}: {one.text}")
    shell.result({"model": str(model), "privacy": [one._asdict() for one in found]})


def _training(fitted: Any, card: ModelCard, inside: dict[str, Any]) -> list[tuple[str, str]]:
    """Say what the model was fitted to, line by line with a name."""
    training = inside["training"]
    trained_on = card.trained_on or f"fitted to {plural(training['patients'], 'patient')}"
    lines = [("trained", f"{trained_on}, {plural(training['events'], 'event')}, {card.created}")]
    lines += [("then", f"recalibrated on {one.fitted_on_}, by {one.map_.describe()}") for one in fitted.recalibrations]
    if card.data:
        lines.append(("data", f"{card.data['file']}, SHA-256 {str(card.data['sha256'])[:16]}…"))
    if card.outcome is not None:
        coding = card.outcome.coding.describe().say(option)
        start = f" minus start {card.outcome.start!r}" if card.outcome.start else ""
        lines.append(("outcome", f"time {card.outcome.time!r}{start}, event {card.outcome.event!r}: {coding}"))
    return lines


def _predicting(fitted: Any, card: ModelCard) -> list[tuple[str, str]]:
    """Say what the model predicts, and how far."""
    last = describe_time(float(fitted.nodes[-1]), card.unit)
    lines = [("unit", f"{card.unit or 'not given'}; predicts up to {last}")]
    followed = fitted.follow_up_
    if followed is not None and followed.depends:
        low, high = (describe_time(float(t), card.unit) for t in np.quantile(followed.followed_until, [0, 1]))
        lines.append(("follow-up", followed.describe()))
        lines.append(
            ("", f"Training patients were followed until between {low} and {high}, depending on their features.")
        )
    return [*lines, ("horizons", ", ".join(horizon.label for horizon in card.horizons))]


def _making(fitted: Any, header: dict[str, Any], inside: dict[str, Any]) -> list[tuple[str, str]]:
    """Say with what the model was made."""
    versions = ", ".join(f"{name} {number}" for name, number in inside["versions"].items())
    changed = ", ".join(f"{name}={value!r}" for name, value in _changed(fitted.innermost).items())
    return [("versions", f"{versions}; file format {header['format']}"), ("settings", changed or "all defaults")]


def _innermost(header: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a file's header that tells of the model that was trained."""
    while "model" in header:
        header = header["model"]
    return header


def _changed(fitted: Any) -> dict[str, Any]:
    """Return the parameters that differ from their defaults, the members' among them."""
    usual = type(fitted)().get_params(deep=False)
    out = {k: v for k, v in fitted.get_params(deep=False).items() if v != usual[k] and k not in _HIDDEN}
    if out.get("estimator") is not None:
        member = out.pop("estimator")
        usual = type(member)().get_params(deep=False)
        out |= {k: v for k, v in member.get_params(deep=False).items() if v != usual[k] and k not in _SET_BY_ENSEMBLE}
    return out


def _show_columns(shell: Shell, fitted: Any, card: ModelCard) -> None:
    from dcsurv.cohort.card import levels_of

    levels = levels_of(fitted)
    used = [column for column in card.columns if column.kind != "left out"]
    table = plain_table("column", "taken as", "known levels")
    for column in used[:_SHOWN_COLUMNS]:
        known = levels.get(column.name, [])
        more = f" and {len(known) - _SHOWN_LEVELS} more" if len(known) > _SHOWN_LEVELS else ""
        add(table, column.name, column.kind, ", ".join(known[:_SHOWN_LEVELS]) + more)
    show_table(shell, f"Columns that it needs ({len(used)})", table)
    if len(used) > _SHOWN_COLUMNS:
        shell.say(f"  and {len(used) - _SHOWN_COLUMNS} more; --json lists all.")
