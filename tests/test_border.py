"""What comes from a table or a file name and reaches a terminal, a figure, a page or a spreadsheet."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dcsurv
from dcsurv import figures
from dcsurv.messages import listed, printable
from dcsurv.plain import csv_bytes, safe_cell
from dcsurv.report.svg import inline_svg
from dcsurv.report.write import render_page
from test_cli import OUTCOME, patients, run

NASTY = "\x1b[31m\x9b2J\x00\x07\u202eage[red]$x_$<b>\udcff"


def test_nothing_that_a_terminal_acts_on_is_printed() -> None:
    assert printable(NASTY) == r"\x1b[31m\x9b2J\x00\x07\u202eage[red]$x_$<b>\udcff"
    assert printable("größe in\nµmol/l\xa0日本") == "größe in\nµmol/l\xa0日本"
    assert len(printable("x" * 1_000_000)) < 300
    assert len(printable("some words " * 1_000_000)) < 30_000
    assert len(listed(["x y" * 100_000, "b"])) < 200


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: Any) -> tuple[Path, Path]:
    """A table whose names, levels and identifiers do harm where they are not escaped, and a model of it."""
    folder = tmp_path_factory.mktemp("hostile")
    frame = patients().rename(columns={"age": "\x1b]0;title\x07age [red]x[/red] [link=http://a]y[/link] $\\frac$"})
    frame["stage"] = frame["stage"].map(lambda level: f"\x1b[2J{level}\u202e[bold]")
    frame["id"] = [f"=HYPERLINK({k})" for k in range(len(frame))]
    frame["id number"] = [f"-{k}" for k in range(len(frame))]
    frame["=note"] = "+" + "x" * 100_000
    frame.to_csv(table := folder / "p.csv", index=False)
    model = folder / "m.safetensors"
    run("fit", table, *OUTCOME, "--model", "coxph", "--evaluate", "none", "-o", model)
    return table, model


@pytest.mark.parametrize("command", ["check", "info", "json"])
def test_names_and_levels_are_shown_as_they_are(hostile: tuple[Path, Path], command: str) -> None:
    table, model = hostile
    done = run("info", model) if command == "info" else run("check", table, *OUTCOME, *["--json"] * (command == "json"))
    shown = done.stdout + done.stderr
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown)
    if command != "json":
        assert "[red]" in shown  # which is no colour
        assert len(shown) < 20_000


def test_a_spreadsheet_runs_nothing(hostile: tuple[Path, Path], tmp_path: Path) -> None:
    table, model = hostile
    keep = ("--keep", "id", "--keep", "id number", "--keep", "=note")
    done = run("predict", model, table, *keep, "-o", out := tmp_path / "out.csv")
    assert "480 copied cells would be run as a formula" in " ".join(done.stderr.split())
    found = pd.read_csv(out, dtype=str)
    assert found["id"].iloc[1] == "'=HYPERLINK(1)"
    assert found["id number"].iloc[5] == "-5"  # a number
    assert "'=note" in found.columns
    run("predict", model, table, *keep, "--formulas", "-o", out)
    assert pd.read_csv(out, dtype=str)["id"].iloc[1] == "=HYPERLINK(1)"
    assert [safe_cell(text) for text in ("@x", "\tx", "\rx", "+1e3", "a=b")] == ["'@x", "'\tx", "'\rx", "+1e3", "a=b"]
    assert csv_bytes(pd.DataFrame({"=a": ["=b", None], "c": [-1, 2]})) == b"'=a,c\n'=b,-1\n,2\n"


def test_figures_are_valid_whatever_the_names(tmp_path: Path, hostile: tuple[Path, Path]) -> None:
    model = dcsurv.load(hostile[1])
    drawn = figures.hazard_ratios(model.summary_)
    for path in figures.save(drawn, tmp_path / "ratios"):
        if path.suffix == ".svg":
            ElementTree.fromstring(path.read_bytes())
    ElementTree.fromstring(f'<x xmlns:xlink="x">{inline_svg(drawn, "r", NASTY)}</x>'.encode("utf-8", "ignore"))
    assert figures.style.plain(NASTY, 90) == r"\x1b[31m\x9b2J\x00\x07\u202eage[red]\$x_\$<b>\udcff"


def test_pages_hold_no_markup_of_the_data() -> None:
    page = render_page(
        title=NASTY + '"><script>alert(1)</script>', under="u", sections=[], drawn={}, folder="f", holds="This page"
    )
    assert "<script>alert" not in page
    page.encode()
    assert not {"\x1b", "\x00", "\u202e"} & set(page)
