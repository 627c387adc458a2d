"""A hundred kills: commands are struck at random moments, and what is left is looked at.

Every life is a command that is killed (kill -9), terminated or interrupted, at a moment between its start and its end,
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
import itertools
import json
import os
import queue
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "results" / "kills"
DCSURV = (sys.executable, "-c", "from dcsurv.cli import main; main()")
OUTCOME = ("--time", "days", "--event", "died", "--unit", "days")
PATIENTS = 200
# Seconds after which no process may live, and up to which a process of its own is struck.
TEN_SECONDS, EARLY = 10.0, 12.0
IN_EACH_FOLDER = 4
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
# How many processes a command may start; each costs seconds to start, so that three lives in ten have two.
JOBS = "{jobs}"
COMMANDS = {
    "fit": ("fit", "p.csv", *OUTCOME, "--model", "calibrated-coxph", "--set", "n_members=2", "--jobs", JOBS,
            "--bootstrap", "0", "--evaluate", "holdout", "-o", "m.safetensors"),
    "report": ("report", "ready.safetensors", "p.csv", "--bootstrap", "0", "-o", "r.html"),
    "tune": ("tune", "p.csv", *OUTCOME, "--model", "coxph", "--trials", "5", "--folds", "2", "--jobs", JOBS,
             "--storage", "study", "-o", "s.json"),
    "reproduce": ("reproduce", "--protocol", "repeated", "--dataset", "metabric", "--model", "CoxPH", "--splits", "2",
                  "--workers", JOBS, "-o", "made"),
    "validate": ("validate", "p.csv", *OUTCOME, "--model", "coxph", "--resamples", "2", "--repeats", "1", "--folds",
                 "2", "--jobs", JOBS, "-o", "v"),
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
            text = re.sub(r"\\*\"n_jobs\\*\": ?\d+", "", text)
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


def being_moved(folder: Path) -> set[Path]:
    """Return the hidden folders of results that are about to be moved; some of them may vanish meanwhile."""
    found = (Path(place) / name for place, folders, files in os.walk(folder) for name in (*folders, *files))
    return {path for path in found if path.name.startswith(".dcsurv-") and path.suffix == ".part"}


def strike(process: Nursery | Fresh, folder: Path, old: set[Path], when: float | None, which: str) -> bool:
    """Strike a command after some seconds, or (None) when it has begun to write its result; return whether it lived."""
    begin = time.monotonic()
    while process.poll() is None:
        if being_moved(folder) - old if when is None else time.monotonic() - begin > when:
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
    old = set(hidden(folder))
    process.start(words(command, jobs), folder, mark, errors)
    struck = strike(process, folder, old, when, which)
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


class Campaign:
    """Folders in which commands are struck a few times and then run to their end."""

    def __init__(self, place: Path, seed: int) -> None:
        self.place, self.seed, self.ready = place, seed, place / "ready"
        prepare(self.ready)
        self.before = contents(self.ready)
        self.lives: list[dict[str, object]] = []
        self.ends: list[dict[str, object]] = []
        self._whole: dict[str, dict[str, object]] = {}
        self._seconds: dict[str, float] = {}
        self._nurseries: queue.SimpleQueue[Nursery] = queue.SimpleQueue()

    def open_nursery(self) -> None:
        self._nurseries.put(Nursery())

    def undisturbed(self, command: str) -> None:
        """Find out what a command makes, and how long it takes."""
        nursery, folder, begin = self._nurseries.get(), self._folder(command), time.monotonic()
        result = self._to_the_end(nursery, command, folder)
        assert nursery.code == 0, (folder.parent / "errors").read_text()
        # The first run of all has compiled and warmed up as well: those that follow take about half as long.
        self._whole[command], self._seconds[command] = result, (time.monotonic() - begin) / 2
        self._nurseries.put(nursery)

    def folder(self, number: int) -> None:
        """Strike a command in a folder a few times, and let it end."""
        nursery, rng = self._nurseries.get(), random.Random(f"{self.seed} {number}")
        command = list(COMMANDS)[number % len(COMMANDS)]
        folder = self._folder(f"{command}{number}")
        for _ in range(IN_EACH_FOLDER):
            which = rng.choices(list(SIGNALS), list(SIGNALS.values()))[0]
            jobs = 2 if rng.random() < 0.3 else 1
            process: Nursery | Fresh = Fresh() if rng.random() < 0.1 else nursery
            when = None if rng.random() < 0.3 else rng.uniform(0, self._seconds[command] * (3 if jobs == 2 else 1))
            when = rng.uniform(0, EARLY) if isinstance(process, Fresh) else when
            found = one_life(process, command, folder, self.before, self._whole[command], when, which, jobs)
            self.lives.append(found)
            print(json.dumps(found), flush=True)
            if found["state"] == "complete" or not found["struck"]:
                break
        same = self._to_the_end(nursery, command, folder) == self._whole[command]
        self.ends.append({"command": command, "code": nursery.code, "same": same, "left_hidden": len(hidden(folder))})
        print(json.dumps(self.ends[-1]), flush=True)
        self._nurseries.put(nursery)

    def close(self) -> None:
        while not self._nurseries.empty():
            self._nurseries.get().close()

    def _folder(self, name: str) -> Path:
        folder = self.place / name / "work"
        shutil.copytree(self.ready, folder)
        return folder

    def _to_the_end(self, nursery: Nursery, command: str, folder: Path) -> dict[str, object]:
        nursery.start(words(command, 1), folder, "kills-to-the-end", folder.parent / "errors")
        ended(nursery, guard=600.0)
        new = {name for name in contents(folder) if name not in self.before and is_result(command, name)}
        return without_clock(folder, new)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lives", type=int, default=110)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--side-by-side", type=int, default=2)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(asked.side_by_side) as pool:
        campaign = Campaign(Path(place), asked.seed)
        for _ in range(asked.side_by_side):
            campaign.open_nursery()
        list(pool.map(campaign.undisturbed, COMMANDS))
        numbers = iter(range(10**6))
        while sum(bool(life["struck"]) for life in campaign.lives) < asked.lives:
            list(pool.map(campaign.folder, itertools.islice(numbers, len(COMMANDS))))
            write(campaign.lives, campaign.ends)
        campaign.close()


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
              "complete", "between two moves", "damaged", "alive after 10 s", "hung", "runs to the end after it",
              "of these failed", "another result", "something left"]  # fmt: skip
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
