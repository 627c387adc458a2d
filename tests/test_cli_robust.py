"""Tables and machines as they come: every command ends in success, or in words that a researcher understands."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dcsurv
from test_cli import OUTCOME, patients, run

DCSURV = (sys.executable, "-c", "from dcsurv.cli import main; main()")
# Seconds after which a test that hangs is given up; nothing takes a tenth of it.
GUARD = 600
COX = ("--model", "coxph", "--bootstrap", "0")
# How a table is read does not depend on how the model is judged, which takes longest.
UNJUDGED = ("--evaluate", "none")


def fit(path: Path, *options: Any, code: int = 0, outcome: tuple[str, ...] = OUTCOME) -> Any:
    """Fit CoxPH to a table; a failure leaves the folder as it was."""
    before = sorted(path.parent.iterdir())
    output = path.parent / "model.safetensors"
    done = run("fit", path, *outcome, *COX, *options, "-o", output, code=code)
    assert sorted(path.parent.iterdir()) == (before if code else sorted({*before, output}))
    return done


def text(frame: pd.DataFrame, **options: Any) -> str:
    return frame.to_csv(index=False, **options)


def words(done: Any) -> str:
    return " ".join((done.stdout + done.stderr).split())


GOOD: dict[str, tuple[Callable[[pd.DataFrame], str | bytes], tuple[str, ...], str]] = {
    "BOM": (lambda f: "\ufeff" + text(f), (), "utf-8-sig"),
    "semicolons and decimal commas": (lambda f: text(f, sep=";", decimal=","), (), "decimal comma"),
    "tabs": (lambda f: text(f, sep="\t"), (), "CSV, tabs"),
    "semicolons, told": (lambda f: text(f, sep=";"), ("--delimiter", ";"), "semicolons"),
    "Windows letters": (lambda f: text(f.replace("III", "dritter größter")).encode("cp1252"), (), "cp1252"),
    "UTF-16": (lambda f: text(f).encode("utf-16"), (), "utf-16"),
    "yes and no": (lambda f: text(f.assign(died=np.where(f["died"], "Yes", "No"))), (), "Yes = event, No = censored"),
    "1 and 2": (lambda f: text(f.assign(died=f["died"] + 1)), (), "2 = event, 1 = censored (guessed"),
    "2 and 1": (lambda f: text(f.assign(died=2 - f["died"])), ("--event-value", "1"), "1 = event, 2 = censored (as"),
    "true and false": (lambda f: text(f.assign(died=f["died"] == 1)), (), "True = event"),
    "a column all missing": (lambda f: text(f.assign(ki67=np.nan)), (), "has no value"),
    "duplicate names": (lambda f: text(f.assign(x=f["age"] + 1).rename(columns={"x": "stage"})), (), "stage (2)"),
    "row numbers": (lambda f: f.to_csv(), (), "looks like a row number"),
    "Windows line ends": (lambda f: text(f, lineterminator="\r\n"), (), "240 patients"),
    "gaps in the outcome": (
        lambda f: text(f.assign(days=f["days"].where(f.index % 50 > 0))), (), "5 rows without a time or an event",
    ),
    "words among numbers": (
        lambda f: text(f.assign(age=f["age"].astype(object).where(f.index > 2, "old"))), (), "'old'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_odd_tables_are_read(name: str, tmp_path: Path) -> None:
    make, options, expected = GOOD[name]
    content = make(patients())
    path = tmp_path / "patients.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert expected in words(fit(path, *options, *UNJUDGED))
    model = dcsurv.load(tmp_path / "model.safetensors")
    assert list(model.feature_names_in_)[:3] == ["age", "stage", "smoker"]
    assert model.coef_[0] > 0  # older patients die earlier, however the table is written


BAD: dict[str, tuple[Callable[[pd.DataFrame], str | bytes], tuple[str, ...], str]] = {
    "wrong delimiter": (lambda f: text(f, sep=";"), ("--delimiter", ","), "It looks separated by semicolons"),
    "wrong decimal sign": (
        lambda f: text(f.assign(days=f["days"] + 0.5), sep=";", decimal=","), ("--decimal", "."), "decimal commas",
    ),
    "dates in the time column": (
        lambda f: text(f.assign(days=pd.date_range("2020-01-31", periods=len(f)).strftime("%Y-%m-%d"))), (), "--start",
    ),
    "an empty file": (lambda f: "", (), "is empty"),
    "only names": (lambda f: text(f[:0]), (), "no rows"),
    "one row": (lambda f: text(f[:1]), (), "there is 1 patient"),
    "all censored": (lambda f: text(f.assign(died=0)), (), "no patient has the event"),
    "negative times": (lambda f: text(f.assign(days=f["days"] - 100)), (), "negative"),
    "three kinds of event": (lambda f: text(f.assign(died=f.index % 3)), (), "competing risks"),
    "only the outcome": (lambda f: text(f[["days", "died"]]), (), "no column to predict from"),
    "only an identifier": (lambda f: text(f[["patient_id", "days", "died"]]), (), "All were left out: 'patient_id"),
    "the time column twice": (lambda f: text(f.assign(x=1).rename(columns={"x": "days"})), (), "more than one"),
    "few events": (lambda f: text(f[f["died"] == 0].assign(died=lambda g: (g.index < 9) * 1)), (), "--evaluate none"),
    "an unclosed quote": (lambda f: text(f).replace("1003,", '"1003,', 1), (), "never closed"),
    "a line too long": (lambda f: text(f).replace("1003,", "1,2,1003,", 1), (), "line 3 of patients.csv has 8 fields"),
    "a binary file": (lambda f: bytes(range(256)) * 4, (), "not a text file"),
    "all times 0": (lambda f: text(f.assign(days=0)), (), "time"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_hopeless_tables_are_refused_in_words(name: str, tmp_path: Path) -> None:
    make, options, expected = BAD[name]
    content = make(patients())
    path = tmp_path / "patients.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    done = fit(path, *options, code=2)
    assert expected in words(done)
    assert done.stderr.count("Error: ") == 1
    found = ("one row", "all censored", "negative times", "only the outcome", "only an identifier")
    run("check", path, *OUTCOME, *options, code=1 if name in found else _either)


class _Either:
    """An exit code of 0 or 2: a check may well pass where a fit must not."""

    def __eq__(self, other: object) -> bool:
        return other in (0, 2)


_either: Any = _Either()


def test_unicode_and_quotes_in_names(tmp_path: Path) -> None:
    path = tmp_path / "Patienten größer.csv"
    renames = {"age": "Größe, in cm", "stage": 'the "stage"', "smoker": "吸烟", "days": "Zeit (Tage)", "died": "†"}
    patients().rename(columns=renames).to_csv(path, index=False)
    done = fit(path, "--drop", 'the "stage"', *UNJUDGED, outcome=("--time", "Zeit (Tage)", "--event", "†"))
    assert "吸烟" in done.stdout
    model = tmp_path / "model.safetensors"
    run("predict", model, path, "--keep", "Größe, in cm", "-o", tmp_path / "p.csv")
    kept = pd.read_csv(tmp_path / "p.csv")["Größe, in cm"]
    np.testing.assert_array_equal(kept, patients()["age"])
    assert "Zeit (Tage)" in run("info", model).stdout


def test_markup_in_names_is_printed_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    patients().rename(columns={"age": "[red]age[/red]", "stage": "[/]"}).to_csv(path, index=False)
    shown = fit(path, *UNJUDGED).stdout
    assert "[red]age[/red]" in shown
    assert "[/]" in shown


def test_500_columns(tmp_path: Path) -> None:
    frame = patients(400)
    noise = np.random.default_rng(0).normal(size=(400, 500)).round(3)
    wide = pd.concat([frame, pd.DataFrame(noise, columns=[f"gene{i}" for i in range(500)])], axis=1)
    wide.to_csv(tmp_path / "wide.csv", index=False)
    done = fit(tmp_path / "wide.csv", "--model", "deepsurv", "--set", "max_epochs=1", *UNJUDGED)
    assert "504 columns in all" in done.stdout
    assert len(done.stdout.splitlines()) < 70
    assert "Riley's criteria ask for" in words(done)
    run("predict", tmp_path / "model.safetensors", tmp_path / "wide.csv", "-o", tmp_path / "p.csv")
    assert len(pd.read_csv(tmp_path / "p.csv")) == 400
    assert "and 491 more" in run("info", tmp_path / "model.safetensors").stdout


def test_output_is_json_and_nothing_else(tmp_path: Path) -> None:
    patients().to_csv(tmp_path / "p.csv", index=False)
    command = [*DCSURV, "fit", "p.csv", *OUTCOME, *COX, "-o", "m.safetensors", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["card"]["outcome"]["time"] == "days"
    assert "fitting to all 240 patients" in done.stderr
    assert str(tmp_path) not in (tmp_path / "m.safetensors").read_bytes().decode("latin-1")  # no path of this machine


# --- the machine --------------------------------------------------------------------------------------------


@pytest.fixture
def cox(tmp_path: Path) -> Path:
    """A CoxPH with few nodes."""
    frame = patients(300)
    frame["days"] = (frame["days"] / 100).round() * 100 + 50
    frame.to_csv(tmp_path / "p.csv", index=False)
    run("fit", tmp_path / "p.csv", *OUTCOME, *COX, "--evaluate", "none", "-o", tmp_path / "cox.safetensors")
    return tmp_path / "cox.safetensors"


def test_a_million_rows_in_little_memory(cox: Path, tmp_path: Path) -> None:
    part = text(patients(20_000)[["age", "stage", "smoker", "patient_id"]])
    header, body = part.split("\n", 1)
    with (tmp_path / "big.csv").open("w") as file:
        file.write(header + "\n")
        for _ in range(50):
            file.write(body)
    watch = (
        "import pathlib, re, pandas, pyarrow.parquet, torch; from dcsurv.cli import app\n"
        "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text())[1])\n"
        "before = peak(); app(standalone_mode=False); print(peak() - before)"
    )
    command = [sys.executable, "-c", watch, "predict", cox, tmp_path / "big.csv", "-o", tmp_path / "out.parquet"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1,000,000 patients" in done.stdout
    grown = int(done.stdout.split()[-1]) / 1024  # over what the libraries take, which builds of torch differ in
    assert grown < 512, f"{grown:.0f} MB"
    rows = pd.read_parquet(tmp_path / "out.parquet", columns=["row"])["row"]
    assert len(rows) == 1_000_000
    assert rows.iloc[-1] == 1_000_000


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True)
    if mount.returncode:
        pytest.skip("a disk can be mounted by root only; RLIMIT_FSIZE stands in for it in the test beside")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_full_disk_leaves_nothing_half_written(cox: Path, tiny_disk: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    many = patients(3000).assign(age=rng.normal(60, 10, 3000))
    many.to_csv(cox.parent / "many.csv", index=False)
    command = [*DCSURV, "predict", cox, cox.parent / "many.csv", "-o", tiny_disk / f"out{suffix}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "the disk is full" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tiny_disk.iterdir()) == []


@pytest.mark.parametrize("command", ["predict", "fit"])
def test_a_file_that_may_not_grow_leaves_nothing_half_written(cox: Path, command: str) -> None:
    folder = cox.parent
    rng = np.random.default_rng(0)
    patients(3000).assign(age=rng.normal(60, 10, 3000)).to_csv(folder / "many.csv", index=False)
    arguments = {
        "predict": ("predict", cox, folder / "many.csv", "-o", folder / "out.csv"),
        # A network with so many weights that its file is too large.
        "fit": ("fit", folder / "p.csv", *OUTCOME, "--model", "deepsurv", "--set", "layer_size=400", "--set",
                "layers=3", "--set", "max_epochs=1", "--evaluate", "none", "-o", folder / "out.safetensors"),
    }[command]  # fmt: skip
    before = sorted(folder.iterdir())
    done = subprocess.run([*DCSURV, *arguments], capture_output=True, text=True, preexec_fn=_limited)
    assert done.returncode == 1, done.stderr
    assert "larger than is allowed" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(folder.iterdir()) == before


def _worked(group: int) -> float:
    """Return the seconds that the processes of a group have computed, which do not run on while others are served."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_while_fitting(tmp_path: Path, jobs: int) -> None:
    patients(1500).to_csv(tmp_path / "p.csv", index=False)
    command = [*DCSURV, "fit", "p.csv", *OUTCOME, "--jobs", str(jobs), "--set", "max_epochs=5000", "--set",
               "patience=5000", "-o", "m.safetensors"]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    said = ""
    while "for the evaluation" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    begin = _worked(process.pid)
    while _worked(process.pid) < begin + 4:  # well into the training, or the start of its processes
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the command and to its processes
    try:
        _, rest = process.communicate(timeout=GUARD)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, rest
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv"]


def test_a_terminated_command_tidies_up(cox: Path) -> None:
    """It is held where all rows are written but the file has not got its name, and terminated there."""
    before = sorted(cox.parent.iterdir())
    held = "import os, time; os.fsync = lambda _: time.sleep(600); from dcsurv.cli import main; main()"
    command = [sys.executable, "-c", held, "predict", cox, cox.parent / "p.csv", "-o", cox.parent / "out.csv"]
    process = subprocess.Popen(command)
    while not [part for part in cox.parent.glob(".out.csv.*.part") if part.stat().st_size]:
        assert process.poll() is None
        time.sleep(0.02)
    process.terminate()
    assert process.wait(timeout=GUARD) == 143
    assert sorted(cox.parent.iterdir()) == before


def test_a_closed_pipe_is_no_error(cox: Path) -> None:
    quoted = " ".join(f"'{part}'" for part in (*DCSURV, "info", str(cox)))
    done = subprocess.run(["bash", "-c", f"{quoted} | head -n 1"], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert "CoxPH" in done.stdout
