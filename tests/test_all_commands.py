"""Every command, stopped at the steps of its writes: its folder holds what it held before, or the complete result.

The named exception are the stores from which ``tune``, ``validate`` and ``reproduce`` go on: they hold whole rows.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

import dcsurv.report.explained
import dcsurv.report.write
from dcsurv.cli import app
from dcsurv.report.blocks import Picture, Pictures, Section
from test_cli import OUTCOME, patients, run
from test_writing import FAILURES, Faults, contents

COX = ("--model", "coxph", "--bootstrap", "0")
# The command, and what it may leave when it is stopped.
COMMANDS: dict[str, tuple[tuple[str, ...], str]] = {
    "fit": (("fit", "p.csv", *OUTCOME, *COX, "--evaluate", "none", "-o", "out.safetensors"), ""),
    "fit --report": (("fit", "p.csv", *OUTCOME, *COX, "-o", "out.safetensors", "--report", "r.html"), ""),
    "predict": (("predict", "cox.safetensors", "p.csv", "-o", "out.csv"), ""),
    "predict to Parquet": (("predict", "cox.safetensors", "p.csv", "-o", "out.parquet"), ""),
    "explain": (("explain", "cox.safetensors", "p.csv", "--row", "1", "-o", "e.html"), ""),
    "calculator": (("calculator", "cox.safetensors", "-o", "r.html"), ""),
    "recalibrate": (("recalibrate", "cox.safetensors", "p.csv", "-o", "out.safetensors"), ""),
    "export": (("export", "cox.safetensors", "-o", "out.onnx"), ""),
    "report": (("report", "cox.safetensors", "p.csv", "--bootstrap", "0", "-o", "r.html"), ""),
    "tune": (("tune", "p.csv", *OUTCOME, "--model", "coxph", "--quick", "--trials", "2", "--jobs", "1",
              "--storage", "study", "--figures", "f", "-o", "s.json"), r"study(-journal)?"),
    "validate": (("validate", "p.csv", *OUTCOME, "--model", "coxph", "--quick", "--resamples", "0", "--folds", "2",
                  "--jobs", "1", "-o", "v"), r"v(/refits(/.*)?)?"),
    "reproduce": (("reproduce", "--protocol", "repeated", "--dataset", "metabric", "--model", "CoxPH", "--splits", "1",
                   "--workers", "1", "-o", "made"), r"made(/(rows|curves|failures|\.lock).*)?"),
    "demo": (("demo", "--quick", "--jobs", "1", "-o", "d"), ""),
}  # fmt: skip
READ_ONLY = {
    "check": ("check", "p.csv", *OUTCOME),
    "evaluate": ("evaluate", "cox.safetensors", "p.csv", "--bootstrap", "0"),
    "info": ("info", "cox.safetensors"),
    "models": ("models",),
}


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with patients, a model, and a page of before."""
    folder = tmp_path_factory.mktemp("ready")
    patients(80).to_csv(folder / "p.csv", index=False)
    run("fit", folder / "p.csv", *OUTCOME, *COX, "--evaluate", "none", "-o", folder / "cox.safetensors")
    for name in ("r.html", "out.csv"):
        (folder / name).write_text("of before")
    (folder / "r_figures").mkdir()
    (folder / "r_figures" / "auc.svg").write_text("of before")
    (folder / "r_figures" / "mine.svg").write_text("stays")
    return folder


@pytest.fixture
def work(ready: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to work in, with pages that have one section and one figure: how they are written is the same."""

    def section(*_: Any) -> list[Section]:
        return [Section("one", "One", [Pictures([Picture("brier", Figure(), "nothing", "nothing")])])]

    monkeypatch.setattr(sys.modules["dcsurv.cli.demo"], "_metabric", lambda: patients(120).drop(columns="patient_id"))
    monkeypatch.setattr(dcsurv.report.write, "_sections", section)
    monkeypatch.setattr(dcsurv.report.explained, "_sections", section)
    shutil.copytree(ready, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def changes(before: dict[str, Any], now: dict[str, Any], allowed: str) -> dict[str, str]:
    """Return which files are new, gone or other ones, besides those that a stopped command may leave."""
    names = [name for name in {**before, **now} if not (allowed and re.fullmatch(allowed, name))]
    kinds = {name: "new" if name not in before else "gone" if name not in now else "other" for name in names}
    return {name: kind for name, kind in kinds.items() if kind != "other" or before[name] != now[name]}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_stopped_leaves_what_was_there_or_the_whole(
    name: str, ready: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, allowed = COMMANDS[name]
    before = contents(work)
    faults = Faults(monkeypatch)
    run(*words)
    whole = changes(before, contents(work), allowed)
    assert whole
    assert not [one for one in contents(work) if ".part" in one]
    assert contents(work)["r_figures/mine.svg"] == b"stays"
    steps = faults.count
    for at, error in zip((steps // 3, 2 * steps // 3, steps - 1), FAILURES, strict=True):
        shutil.rmtree(work)
        shutil.copytree(ready, work)
        os.chdir(work)
        faults.next(max(1, at), error)
        done = CliRunner().invoke(app, list(words))
        assert "Traceback" not in done.output
        assert changes(before, contents(work), allowed) in ({}, whole), (at, error, done.output)


def test_commands_that_only_read_write_nothing(work: Path) -> None:
    before = contents(work)
    for words in READ_ONLY.values():
        run(*words)
    assert contents(work) == before


def test_no_command_is_left_out() -> None:
    tested = {words[0] for words, _ in COMMANDS.values()} | {words[0] for words in READ_ONLY.values()}
    tested.add("serve")  # which ends when it is told to, and writes nothing: tests/test_service_process.py
    assert tested == {str(one.name) for one in app.registered_commands}


STUBBORN = """
import time
import sys
import dcsurv.cli
a = sys.modules["dcsurv.cli.app"]
def deaf():
    said = False
    while True:
        try:
            if not said:
                said = True
                print("ready", flush=True)
            time.sleep(600)
        except KeyboardInterrupt:
            pass
a._PATIENCE, a.app = 0.1, deaf
dcsurv.cli.main()
"""


def test_ctrl_c_ends_a_command_in_which_a_library_swallows_it() -> None:
    process = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=600) == 130
    process.stdout.close()


OUTPUTS = {
    "fit": ("fit", "p.csv", *OUTCOME, *COX, "-o"),
    "fit --report": ("fit", "p.csv", *OUTCOME, *COX, "-o", "out.safetensors", "--report"),
    "predict": ("predict", "cox.safetensors", "p.csv", "-o"),
    "explain": ("explain", "cox.safetensors", "p.csv", "-o"),
    "recalibrate": ("recalibrate", "cox.safetensors", "p.csv", "-o"),
    "export": ("export", "cox.safetensors", "-o"),
    "report": ("report", "cox.safetensors", "p.csv", "-o"),
    "tune": ("tune", "p.csv", *OUTCOME, "-o"),
    "tune --figures": ("tune", "p.csv", *OUTCOME, "-o", "s.json", "--figures"),
    "validate": ("validate", "p.csv", *OUTCOME, "-o"),
    "reproduce": ("reproduce", "--quick", "-o"),
    "demo": ("demo", "-o"),
}
SUFFIX = {"fit --report": ".html", "predict": ".csv", "explain": ".html", "report": ".html", "export": ".onnx",
          "tune": ".json"}  # fmt: skip


@pytest.fixture
def nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(*_: Any, **__: Any) -> None:
        raise AssertionError("the work has begun")

    for place in ("dcsurv.models.CoxPH.fit", "dcsurv.persistence.load", "dcsurv.cohort.reading.read_table"):
        monkeypatch.setattr(place, begun)


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_that_cannot_be_written_is_found_before_the_work(
    name: str, work: Path, monkeypatch: pytest.MonkeyPatch, nothing_is_trained: None
) -> None:
    before = contents(work)
    suffix = SUFFIX.get(name, "")
    (work / f"link{suffix}").symlink_to(f"link{suffix}")
    too_long = "m" * 260 + suffix
    bad_ones = [f"link{suffix}", f"link{suffix}/out{suffix}", too_long, "p.csv/out"]
    if name not in ("reproduce", "demo"):  # which make the folders that are not there
        bad_ones.append(f"nowhere/below/out{suffix}")
    for bad in bad_ones:
        done = CliRunner().invoke(app, [*OUTPUTS[name], bad])
        assert done.exit_code in (1, 2), (bad, done.output)
        assert "the work has begun" not in done.output, bad
        assert "unexpected" not in done.output, (bad, done.output)
    (work / f"link{suffix}").unlink()
    assert contents(work) == before


@pytest.mark.parametrize("name", ["fit", "predict", "recalibrate"])
def test_an_output_that_is_an_input_is_refused(name: str, work: Path, nothing_is_trained: None) -> None:
    before = contents(work)
    (work / "link.csv").symlink_to("p.csv")
    os.link(work / "p.csv", work / "hard.csv")
    for same in ("p.csv", "./p.csv", "link.csv", "hard.csv"):
        done = CliRunner().invoke(app, [*OUTPUTS[name], same])
        assert (done.exit_code, "which is read here" in done.output) == (2, True), done.output
    for path in ("link.csv", "hard.csv"):
        (work / path).unlink()
    assert contents(work) == before
