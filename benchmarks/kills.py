"""A hundred kills: commands are struck at random moments, and what is left is looked at.

Every life is a command that is killed (kill -9), told to end or interrupted, at a moment between its start and its end,
or just as it writes its result. Afterwards the folder must hold what it held before or the whole result, and ten
seconds later none of its processes may live. A few lives are spent in each folder; then the same command must end there
as if nothing had happened. Commands are forks of a process that has imported everything, so that moments are not mostly
those of importing; one in ten is a process of its own, struck early.
``python benchmarks/kills.py`` writes docs/results/kills.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import csv
import hashlib
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "results" / "kills"
DCSURV = (sys.executable, "-c", "from dcsurv.cli import main; main()")
OUTCOME = ("--time", "days", "--event", "died", "--unit", "days")
PATIENTS = 200
# Seconds after which no process may live, and up to which a process of its own is struck.
TEN_SECONDS, EARLY = 10.0, 12.0
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
# How many processes a command may start; each costs seconds to start, so that three lives in ten have two.
JOBS = "{jobs}"
COMMANDS = {
    "fit": ("fit", "p.csv", *OUTCOME, "--model", "calibrated-coxph", "--set", "n_members=2", "--jobs", JOBS,
            "--bootstrap", "0", "--evaluate", "holdout", "-o", "m.safetensors"),
    "report": ("report", "ready.safetensors", "p.csv", "--bootstrap", "0", "-o", "r.html"),
    "tune": ("tune", "p.csv", *OUTCOME, "--model", "coxph", "--trials", "5", "--folds", "2", "--jobs", JOBS,
             "--storage", "study", "-o", "s.json"),
    "reproduce": ("reproduce", "--protocol", "repeated", "--dataset", "metabric", "--model", "CoxPH", "--splits", "3",
                  "--workers", JOBS, "-o", "made"),
    "validate": ("validate", "p.csv", *OUTCOME, "--model", "coxph", "--resamples", "3", "--repeats", "1", "--folds",
                 "3", "--jobs", JOBS, "-o", "v"),
}  # fmt: skip
# What a command that was struck may leave besides what was there: the store from which the next one goes on.
STORES = {"tune": r"study(-journal)?", "reproduce": r"made(/(rows|curves|failures|\.lock).*)?",
          "validate": r"v(/refits(/.*)?)?"}  # fmt: skip
SIGNALS = {"SIGKILL": 0.7, "SIGTERM": 0.15, "SIGINT": 0.15}


def words(command: str, jobs: int) -> list[str]:
    return [word.format(jobs=jobs) for word in COMMANDS[command]]


def contents(folder: Path) -> dict[str, str]:
    """Return a digest of every file below a folder, and "" for folders, without the hidden ones of a killed process."""
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*"))}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for name, path in found.items()
        if ".part" not in name
    }


def hidden(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob(".*.part"))


def without_clock(folder: Path, names: set[str]) -> dict[str, object]:
    """Return results without what differs from run to run: how long it took, and when it was."""
    out: dict[str, object] = {}
    for name in sorted(names):
        data = (folder / name).read_bytes() if (folder / name).is_file() else b""
        if name.endswith((".safetensors", ".html", ".json", ".csv", ".md", ".tex")):
            text = data.decode("latin-1")
            if name.endswith(".csv"):
                rows = list(csv.reader(text.splitlines()))
                kept = [number for number, column in enumerate(rows[0]) if "second" not in column]
                text = "\n".join(",".join(row[number] for number in kept) for row in rows)
            text = re.sub(r"\d{4}-\d\d-\d\d(T| |, )?(\d\d:\d\d(:\d\d)?)?( ?UTC)?", "", text)
            text = re.sub(r"\\?\"[a-z_]*seconds\\?\": ?[0-9.e-]+", "", text)
            text = re.sub(r"\\?\"sha256\\?\": ?\\?\"[0-9a-f]{64}\\?\"", "", text)
            out[name] = hashlib.sha256(text.encode()).hexdigest()
        else:
            out[name] = hashlib.sha256(data).hexdigest()
    return out


def is_result(command: str, name: str) -> bool:
    """Whether a file is a result, which must be the same after a kill, rather than the store of what was done."""
    return not re.fullmatch(STORES.get(command, "(?!)"), name)


def living(mark: str) -> list[int]:
    """Return the processes that were started by a command: all of them inherit its environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (path / "environ").read_bytes() and int(path.name) != os.getpid():
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    found.append(int(path.name))
    return found


class Nursery:
    """Starts commands as forks of a process that has imported everything, one at a time."""

    SCRIPT = """
import json, os, sys
import matplotlib.figure, optuna, sklearn.model_selection, torch
import dcsurv.cli, dcsurv.report, dcsurv.validation, dcsurv.experiments.reproduce, dcsurv.experiments.tuning
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(asked["folder"])
        os.environ["DCSURV_KILLS"] = asked["mark"]
        sys.argv = ["dcsurv", *asked["words"]]
        print(os.getpid(), flush=True)
        os.dup2(os.open("/dev/null", os.O_RDWR), 0)
        os.dup2(0, 1)
        os.dup2(os.open(asked["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        dcsurv.cli.main()
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

    def __init__(self) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        self._process = subprocess.Popen([sys.executable, "-c", self.SCRIPT], env=os.environ | THREADS, **pipes)
        self.code: int | None = None

    def start(self, asked_for: list[str], folder: Path, mark: str, errors: Path) -> None:
        asked = {"words": asked_for, "folder": str(folder), "mark": mark, "errors": str(errors)}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self.pid, self.code = int(self._process.stdout.readline()), None

    def poll(self, seconds: float = 0.002) -> int | None:
        if self.code is None and select.select([self._process.stdout], [], [], seconds)[0]:
            self.code = int(self._process.stdout.readline())
        return self.code

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


class Fresh:
    """Starts a command as a user does."""

    def start(self, asked_for: list[str], folder: Path, mark: str, errors: Path) -> None:
        environment = os.environ | THREADS | {"DCSURV_KILLS": mark}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": errors.open("wb")}
        self._process = subprocess.Popen(
            [*DCSURV, *asked_for], cwd=folder, env=environment, start_new_session=True, **quiet
        )
        self.pid, self.code = self._process.pid, None

    def poll(self, seconds: float = 0.002) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.code = self._process.wait(seconds)
        return self.code


def ended(process: Nursery | Fresh, guard: float) -> bool:
    """Wait for a command to end; return whether it did."""
    if process.poll(guard) is None:
        os.kill(process.pid, signal.SIGKILL)
        process.poll(guard)
        return False
    return True


def strike(process: Nursery | Fresh, folder: Path, when: float | None, which: str) -> bool:
    """Strike a command after some seconds, or (None) when it has begun to write its result; return whether it lived."""
    begin = time.monotonic()
    while process.poll() is None:
        if any(folder.glob(".*.part")) if when is None else time.monotonic() - begin > when:
            with contextlib.suppress(ProcessLookupError):
                if which == "SIGINT":
                    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
                else:
                    os.kill(process.pid, getattr(signal, which))  # the command alone: its processes must notice
            return True
    return False


def one_life(
    process: Nursery | Fresh, command: str, folder: Path, before: dict[str, str], whole: dict[str, object],
    when: float | None, which: str, jobs: int,
) -> dict[str, object]:  # fmt: skip
    """Strike a command once; return what was found."""
    mark, errors = f"kills-{os.getpid()}-{random.getrandbits(48):x}", folder.parent / "errors"
    process.start(words(command, jobs), folder, mark, errors)
    struck = strike(process, folder, when, which)
    hung = not ended(process, guard=60.0)
    at = time.monotonic()
    found: dict[str, object] = {
        "command": command,
        "signal": which,
        "processes": jobs,
        "fresh": isinstance(process, Fresh),
    }
    found |= {"at": "last write" if when is None else round(when, 2), "struck": struck, "hung": hung}
    found["traceback"] = "Traceback" in errors.read_text()
    found |= {"state": state(command, folder, before, whole), "left_hidden": bool(hidden(folder))}
    while (alive := living(mark)) and time.monotonic() - at < TEN_SECONDS:
        time.sleep(0.1)
    found["alive_after_ten_seconds"] = len(alive)
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def state(command: str, folder: Path, before: dict[str, str], whole: dict[str, object]) -> str:
    """Say what a folder holds."""
    now = contents(folder)
    new = {name for name in now if name not in before and is_result(command, name)}
    if any(now.get(name) != digest for name, digest in before.items()):
        return "damaged"
    if not new:
        return "as before"
    return "complete" if without_clock(folder, new) == whole else "between two moves"


def prepare(ready: Path) -> None:
    """Make a folder with patients and a model."""
    from dcsurv.datasets import load_metabric

    X, y = load_metabric()
    frame = X.assign(days=y["time"].round(2), died=y["event"].astype(int))[:PATIENTS]
    ready.mkdir()
    frame.to_csv(ready / "p.csv", index=False)
    fit = ["fit", "p.csv", *OUTCOME, "--model", "coxph", "--evaluate", "none", "-o", "ready.safetensors"]
    subprocess.run([*DCSURV, *fit], cwd=ready, check=True, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lives", type=int, default=110)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--in-each-folder", type=int, default=4)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    lives: list[dict[str, object]] = []
    ends: list[dict[str, object]] = []
    nursery = Nursery()
    with tempfile.TemporaryDirectory() as place:
        ready = Path(place) / "ready"
        prepare(ready)
        before = contents(ready)
        wholes: dict[str, dict[str, object]] = {}
        seconds: dict[str, float] = {}
        while sum(bool(life["struck"]) for life in lives) < asked.lives:
            command = list(COMMANDS)[len(ends) % len(COMMANDS)]
            folder = Path(place) / f"{command}{len(ends)}" / "work"
            shutil.copytree(ready, folder)
            if command in wholes:
                for _ in range(asked.in_each_folder):
                    which = rng.choices(list(SIGNALS), list(SIGNALS.values()))[0]
                    fresh = rng.random() < 0.1
                    jobs = 2 if rng.random() < 0.3 else 1
                    when = None if rng.random() < 0.3 else rng.uniform(0, seconds[command] * (1 + 2 * (jobs == 2)))
                    process, when = (Fresh(), rng.uniform(0, EARLY)) if fresh else (nursery, when)
                    lives.append(one_life(process, command, folder, before, wholes[command], when, which, jobs))
                    print(json.dumps(lives[-1]), flush=True)
                    if lives[-1]["state"] == "complete" or not lives[-1]["struck"]:
                        break
            begin = time.monotonic()
            nursery.start(words(command, 1), folder, "kills-to-the-end", folder.parent / "errors")
            in_time = ended(nursery, guard=600.0)
            new = {name for name in contents(folder) if name not in before and is_result(command, name)}
            result = without_clock(folder, new)
            if command not in wholes:
                assert nursery.code == 0, (folder.parent / "errors").read_text()
                wholes[command], seconds[command] = result, time.monotonic() - begin
            same = result == wholes[command]
            ends.append({"command": command, "ended": in_time, "code": nursery.code, "same": same,
                         "left_hidden": len(hidden(folder))})  # fmt: skip
            print(json.dumps(ends[-1]), flush=True)
            write(lives, ends)
    nursery.close()


def write(lives: list[dict[str, object]], ends: list[dict[str, object]]) -> None:
    """Write every life and every end, and a table of what was found by command."""
    OUT.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(one) for one in [*lives, *ends]]
    (OUT / "lives.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    page = ["# Kills", "", "Made by `python benchmarks/kills.py`.", "", *table(lives, ends)]
    (OUT / "README.md").write_text("\n".join(page) + "\n", encoding="utf-8")


def table(lives: list[dict[str, object]], ends: list[dict[str, object]]) -> list[str]:
    """Return the counts by command as a Markdown table."""
    header = ["command", "struck", "of these kill -9", "with two processes", "at the last write", "folder as before",
              "complete", "between two moves", "damaged", "alive after 10 s", "hung", "runs to the end after it", "of these failed",
              "another result", "something left"]  # fmt: skip
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    for command in [*COMMANDS, "all"]:
        own = [one for one in lives if one["struck"] and command in ("all", one["command"])]
        last = [one for one in ends if command in ("all", one["command"])]
        states = collections.Counter(one["state"] for one in own)
        counts = [
            len(own), sum(one["signal"] == "SIGKILL" for one in own),
            sum(one["processes"] == 2 for one in own), sum(one["at"] == "last write" for one in own),
            *(states[name] for name in ("as before", "complete", "between two moves", "damaged")),
            sum(bool(one["alive_after_ten_seconds"]) for one in own), sum(bool(one["hung"]) for one in own),
            len(last), sum(one["code"] != 0 for one in last), sum(not one["same"] for one in last),
            sum(bool(one["left_hidden"]) for one in last),
        ]  # fmt: skip
        lines.append(f"| {command} | " + " | ".join(map(str, counts)) + " |")
    return lines


if __name__ == "__main__":
    main()
