"""The command `dcsurv reproduce` as a user meets it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from dcsurv.experiments import reproduce as reproducing
from dcsurv.experiments.peers import PEERS
from dcsurv.experiments.plan import CALIBRATED, PAPER_NETWORKS
from test_cli import run


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The installed program, as its users start it."""
    folder = tmp_path_factory.mktemp("quick")
    command = [Path(sys.executable).with_name("dcsurv"), "reproduce", "--quick", "--workers", "1", "-o", folder]
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
    again = run("reproduce", "--quick", "--workers", 1, "-o", folder)
    assert again.stdout == done.stdout
    assert {path: path.stat().st_mtime_ns for path in (folder / "rows").iterdir()} == rows
    assert (folder / "README.md").read_bytes() == readme
    assert {path: path.read_bytes() for path in (folder / "figures").iterdir()} == pictures


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """CoxPH and a peer on two splits, for tests to take a copy of."""
    folder = tmp_path_factory.mktemp("compared")
    run("reproduce", "--protocol", "repeated", "--splits", 2, "--dataset", "metabric",
        "--model", "CoxPH", "--model", "gradient boosting", "--workers", 1, "-o", folder)  # fmt: skip
    return folder


def test_the_repeated_protocol_gives_paired_differences(compared, tmp_path):
    folder = shutil.copytree(compared, tmp_path / "copy")
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


def test_tables_are_made_of_the_rows_that_are_there(compared, tmp_path):
    """Rows with fewer splits than others, and without their curves, as they are committed."""
    shutil.copytree(compared, tmp_path, dirs_exist_ok=True)
    words = ["reproduce", "--protocol", "repeated", "--dataset", "metabric", "--workers", 1, "-o", tmp_path]
    run(*words, "--model", "CoxPH", "--splits", 3)
    for path in (tmp_path / "curves").iterdir():
        path.unlink()
    rows = sorted((tmp_path / "rows").iterdir())
    rows[-1].write_bytes(b"cut short")
    models = ["--model", "CoxPH", "--model", "gradient boosting"]
    done = run(*words, *models, "--splits", 4, "--tables-only")
    assert "gradient boosting on METABRIC (1 of 4)" in " ".join(done.stdout.split())
    assert sorted((tmp_path / "rows").iterdir()) == rows, "nothing is run or set aside"
    table = pd.read_csv(tmp_path / "tables" / "repeated.csv").set_index("model")
    assert table["runs"].to_dict() == {"CoxPH": 3, "gradient boosting": 1}
    gap = pd.read_csv(tmp_path / "tables" / "difference-C-td.csv").iloc[0]
    assert (gap["splits"], gap["keys"].count("_s0_"), gap["keys"].count("_s1_")) == (1, 2, 0)
    readme = (tmp_path / "README.md").read_text()
    assert "Means over 3 stratified 80/20 splits (gradient boosting over 1):" in readme
    assert "| CoxPH | 3 | 0." in readme
    assert "**Made of the splits that were there; not all are of: CoxPH on METABRIC (3 of 4)" in readme
    nothing = run(*words[:-1], tmp_path / "empty", "--tables-only", code=2)
    assert "has no row of this comparison" in " ".join(nothing.stderr.split())
    assert not (tmp_path / "empty").exists()


def test_the_networks_of_the_paper_run_on_few_splits(tmp_path, monkeypatch):
    plans = []

    def keep(plan, folder, **options):
        plans.append(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr(reproducing, "run", keep)
    for splits in (20, 3):
        with pytest.raises(KeyboardInterrupt):
            reproducing.reproduce(tmp_path, protocol="repeated", datasets=["metabric"], splits=splits)
    many, few = (Counter(task.model for task in plan.tasks()) for plan in plans)
    assert {many[model] for model in PAPER_NETWORKS} == {5}
    assert {many[model] for model in ("CoxPH", CALIBRATED, *PEERS)} == {20}
    assert set(few.values()) == {3}
    assert max(task.split for task in plans[0].tasks() if task.model == "DRSA") == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "Cox"], "unknown model 'Cox'"),
        (["--dataset", "whas"], "unknown datasets"),
        (["--protocol", "best"], "protocol is 'best'"),
        (["--quick", "--model", "CoxPH"], "leave out either"),
        (["--quick", "--dataset", "support"], "leave out either"),
        (["--splits", "3"], "the paper's protocol has one split"),
        (["--tables-only"], "only the tables of the repeated protocol"),
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
