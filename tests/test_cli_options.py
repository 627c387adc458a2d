"""Options of the command line: described once, handed over in groups, shown in panels, kept in the next command."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from dcsurv.cli import options as o
from dcsurv.cli.data import fit_command, horizons_for
from dcsurv.cli.groups import OptionGroup, described, expand
from dcsurv.cohort import CohortError, Horizon, ModelCard
from test_cli import OUTCOME, patients, run

COMMANDS = (
    "demo", "check", "models", "tune", "validate", "fit", "predict", "explain", "evaluate", "recalibrate", "report",
    "serve", "calculator", "export", "info", "reproduce",
)  # fmt: skip


def panels(text: str) -> list[str]:
    return re.findall(r"╭─ ([\w ]+?) ─", text)


def options_of(name: str) -> set[str]:
    return set(re.findall(r"^│ \*? *(--[a-z-]+)", run(name, "--help").stdout, flags=re.M))


def test_help_shows_commands_in_the_order_of_their_use_and_options_in_panels() -> None:
    text = run("--help").stdout
    assert tuple(re.findall(r"^│ ([a-z]+) ", text, flags=re.M))[-len(COMMANDS) :] == COMMANDS
    for name in COMMANDS:
        assert panels(run(name, "--help").stdout)[-1] == "Output", name
    fit = run("fit", "--help").stdout
    assert panels(fit) == [
        "Arguments", "Options", "Outcome columns", "Features", "Training", "Evaluation", "Reading the file", "Output",
    ]  # fmt: skip
    alone = fit[fit.index("╭─ Options") : fit.index("╭─ Outcome columns")]
    assert re.findall(r"(--[a-z-]+)", alone) == ["--help"]


def test_the_next_command_keeps_every_option(tmp_path: Path) -> None:
    groups = (
        o.OutcomeOptions(time="t", event="e", event_value=["a b", "2"], start="first", date_format="%d", unit="days"),
        o.FeatureOptions(categorical=["x,y", "z"], drop=["it's"]),
        o.ReadingOptions(encoding="cp1252"),
        o.ComputingOptions(seed=3, quick=True),
    )
    words = shlex.split(fit_command(Path("a table.csv"), *groups, model="coxph", horizons=None))
    assert words == [
        "dcsurv", "fit", "a table.csv", "--time", "t", "--event", "e", "--event-value", "a b", "--event-value", "2",
        "--start", "first", "--date-format", "%d", "--unit", "days", "--categorical", "x,y", "--categorical", "z",
        "--drop", "it's", "--encoding", "cp1252", "--quick", "--seed", "3", "--model", "coxph",
        "-o", "model.safetensors",
    ]  # fmt: skip
    # What `check` and `tune` hand on, `fit` understands.
    assert options_of("check") | {word for word in words if word.startswith("--")} <= options_of("fit")
    patients(60).to_csv(tmp_path / "p.csv", index=False, sep=";")
    more = ("--unit", "days", "--horizons", "1y", "--drop", "stage", "--delimiter", ";")
    shown = " ".join(run("check", tmp_path / "p.csv", *OUTCOME, *more).stdout.split())
    assert "--unit days --drop stage --delimiter ';' --horizons 1y -o model.safetensors" in shown


@dataclass(frozen=True)
class Sweets(OptionGroup, panel="Sweets"):
    """A group of three options."""

    kind: Annotated[str, described("--kind", "-k", help="Which.")]
    pieces: Annotated[int, described(min=1, show_default=True)] = 3
    wrapped: Annotated[bool, described("--wrapped")] = False


def test_groups_of_options_are_handed_to_commands_whole() -> None:
    got: list[Any] = []

    def buy(
        shop: Annotated[str, typer.Argument()],
        *,
        sweets: Sweets,
        bag: Annotated[str, described(panel="Bag")] = "",
    ) -> None:
        """Buy."""
        got.append((shop, sweets, bag))

    app = typer.Typer()
    app.command()(expand(buy))
    done = CliRunner().invoke(app, ["corner", "-k", "sour", "--wrapped", "--bag", "paper"])
    assert done.exit_code == 0, done.output
    assert got == [("corner", Sweets(kind="sour", pieces=3, wrapped=True), "paper")]
    assert got[0][1].given() == ["--kind", "sour", "--wrapped"]
    assert CliRunner().invoke(app, ["corner", "-k", "sour", "--pieces", "0"]).exit_code == 2
    text = CliRunner().invoke(app, ["--help"]).stdout
    places = [text.index(word) for word in ("Sweets", "--kind", "--pieces", "Bag", "--bag")]
    assert places == sorted(places)


def test_a_model_without_a_unit_is_not_given_an_option_that_its_command_lacks() -> None:
    card = ModelCard([], [Horizon("365", 365.0)])
    assert horizons_for(card, "30,7") == [Horizon("7", 7.0), Horizon("30", 30.0)]
    with pytest.raises(CohortError, match=r"'5y' names a unit, but .* fitted without --unit") as caught:
        horizons_for(card, "5y")
    assert "plain numbers" in caught.value.remedy
    assert "with --unit days" not in str(caught.value)
