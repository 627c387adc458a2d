"""The command `dcsurv reproduce` as a user meets it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from test_cli import run


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The installed program, as its users start it."""
    folder = tmp_path_factory.mktemp("quick")
    command = [Path(sys.executable).with_name("dcsurv"), "reproduce", "--quick", "-o", folder]
    return folder, subprocess.run(command, capture_output=True, text=True)


def test_quick_makes_tables_and_figures_and_says_what_it_left_out(quick):
    folder, done = quick
    assert done.returncode == 0, done.stderr
    assert "Quick look: METABRIC only" in " ".join(done.stdout.split())
    for name in ("table-I", "table-II", "table-III", "table-IV", "table-V", "point-values", "table-S-1"):
        for suffix in ("csv", "md", "tex"):
            assert (folder / "tables" / f"{name}.{suffix}").stat().st_size > 100
    for name in ("figure-3", "figure-S-1", "figure-S-2", "curves-metabric", "table-III"):
        assert (folder / "figures" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        assert "<svg" in (folder / "figures" / f"{name}.svg").read_text()
    latex = (folder / "tables" / "table-III.tex").read_text()
    assert r"\toprule" in latex
    assert "±" not in latex
    readme = (folder / "README.md").read_text()
    assert "Quick look" in readme
    assert "dcsurv reproduce --protocol paper --quick" in readme


def test_every_number_leads_back_to_a_row(quick):
    folder, _ = quick
    keys = {key for path in (folder / "tables").glob("*[Vse].csv") for key in pd.read_csv(path).get("key", [])}
    assert len(keys) == 4
    for key in keys:
        assert (folder / "rows" / f"{key}.json").exists()
        assert (folder / "curves" / f"{key}.npz").exists()


def test_running_it_again_trains_nothing_and_prints_the_same(quick):
    folder, done = quick
    rows = {path: path.stat().st_mtime_ns for path in (folder / "rows").iterdir()}
    readme = (folder / "README.md").read_bytes()
    pictures = {path: path.read_bytes() for path in (folder / "figures").iterdir()}
    again = run("reproduce", "--quick", "-o", folder)
    assert again.stdout == done.stdout
    assert {path: path.stat().st_mtime_ns for path in (folder / "rows").iterdir()} == rows
    assert (folder / "README.md").read_bytes() == readme
    assert {path: path.read_bytes() for path in (folder / "figures").iterdir()} == pictures


def test_the_repeated_protocol_gives_paired_differences(tmp_path):
    folder = tmp_path
    run("reproduce", "--protocol", "repeated", "--splits", 2, "--dataset", "metabric",
        "--model", "CoxPH", "--model", "gradient boosting", "--workers", 1, "-o", folder)  # fmt: skip
    table = pd.read_csv(folder / "tables" / "difference-C-td.csv")
    assert table["model"].tolist() == ["gradient boosting"]
    assert table["splits"].tolist() == [2]
    assert (table["lower"] < table["difference"]).all()
    for key in table["keys"].iloc[0].split(";"):
        assert (folder / "rows" / f"{key}.json").exists()
    command = (
        "dcsurv reproduce --protocol repeated --dataset metabric --model CoxPH --model 'gradient boosting' --splits 2"
    )
    assert command in (folder / "README.md").read_text()
    run("reproduce", "--protocol", "repeated", "--splits", 1, "--dataset", "metabric",
        "--model", "CoxPH", "--workers", 1, "-o", folder)  # fmt: skip
    assert not (folder / "tables" / "difference-C-td.csv").exists(), "tables are those of the last call"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "Cox"], "unknown model 'Cox'"),
        (["--dataset", "whas"], "unknown datasets"),
        (["--protocol", "best"], "protocol is 'best'"),
        (["--quick", "--model", "CoxPH"], "leave out either"),
        (["--quick", "--dataset", "support"], "leave out either"),
        (["--splits", "3"], "the paper's protocol has one split"),
        (["--model", "[/x]"], "unknown model '[/x]'"),
        (["--splits", "0", "--protocol", "repeated"], "splits is 0"),
        (["--workers", "2", "--cluster", "tcp://localhost:1"], "exclude each other"),
        (["-o", "/proc/nowhere"], "cannot be written"),
    ],
)
def test_wrong_use_ends_with_a_sentence_and_code_2(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("reproduce", *arguments, code=2)
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*/rows/*.json"))
