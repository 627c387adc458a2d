"""Results on disk: one row per task, written whole or not at all, and checked whenever it is read.

::

    folder/rows/KEY.json       the row, with a digest over its contents
    folder/curves/KEY.npz      the predicted curves of the test patients, float32, where they are kept
    folder/failures/KEY.json   why a task failed, until it succeeds
    folder/damaged/            files that were found changed or cut short
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dcsurv.curves import SurvivalCurves
from dcsurv.experiments.plan import FORMAT, PlanError
from dcsurv.plain import plain
from dcsurv.writing import check_folder_writable, remove_leftovers, write_atomically

Row = dict[str, Any]

# Nodes of a curve that carries a map, once the map is worked in.
_DENSE_NODES = 1024
# Below this a run could die in the middle of writing.
_SPACE_NEEDED = 200 * 1024**2


class ResultStore:
    """The folder of an experiment; ``keeps_curves`` says whether it has curves besides rows."""

    def __init__(self, folder: str | os.PathLike[str], *, keeps_curves: bool = True) -> None:
        self.folder = Path(folder)
        self._folders = ("rows", "curves", "failures") if keeps_curves else ("rows", "failures")

    def prepare(self) -> None:
        """Make the folders and find out whether results can be written; raise PlanError if not."""
        try:
            check_folder_writable(self.folder)
            for name in self._folders:
                (self.folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PlanError(f"results cannot be written to {self.folder}: {error.strerror or error}.") from error
        free = shutil.disk_usage(self.folder).free
        if free < _SPACE_NEEDED:
            raise PlanError(
                f"only {free / 1024**2:.0f} MB are free where {self.folder} lies, but {_SPACE_NEEDED / 1024**2:.0f} MB "
                "are needed. Make room or choose another folder."
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second run out of the folder; the lock ends with the process, however that ends."""
        import fcntl

        with (self.folder / ".lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise PlanError(
                    f"another run is writing to {self.folder}. Wait for it, or choose another folder."
                ) from None
            yield

    def write(self, key: str, row: Row, curves: SurvivalCurves | None) -> None:
        """Store a finished task. The row comes last: a task without one has not happened."""
        row = {**row, "key": key, "format": FORMAT}
        if curves is not None:
            data = _pack(curves)
            write_atomically(self._curves(key), data)
            row["curves_sha256"] = hashlib.sha256(data).hexdigest()
        write_atomically(self._row(key), _sealed(row))
        self._failure(key).unlink(missing_ok=True)

    def write_failure(self, key: str, record: Row) -> None:
        write_atomically(self._failure(key), json.dumps(record, indent=1).encode())

    def failure(self, key: str) -> Row | None:
        """Return why a task failed last time, if it did."""
        try:
            record: Row = json.loads(self._failure(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return record

    def read(self, key: str) -> Row | None:
        """Return a row that is whole, with the curves that it names; set damaged files aside and return None if not."""
        path = self._row(key)
        if not path.exists():
            return None
        row = _opened(path.read_bytes())
        if row is None or row.get("key") != key or row.get("format") != FORMAT:
            self._set_aside(path)
            return None
        if "curves_sha256" not in row:
            return row
        curves = self._curves(key)
        if not curves.exists() or hashlib.sha256(curves.read_bytes()).hexdigest() != row["curves_sha256"]:
            self._set_aside(path)
            if curves.exists():
                self._set_aside(curves)
            return None
        return row

    def read_row(self, key: str) -> Row | None:
        """Return a row that is whole, whether or not its curves are kept here; nothing is set aside."""
        path = self._row(key)
        row = _opened(path.read_bytes()) if path.exists() else None
        return row if row is not None and row.get("key") == key and row.get("format") == FORMAT else None

    def curves(self, key: str) -> SurvivalCurves:
        """Return the predicted curves of a task's test patients, in the order of the split."""
        with np.load(io.BytesIO(self._curves(key).read_bytes()), allow_pickle=False) as data:
            return SurvivalCurves(data["times"], data["values"], interpolation=str(data["interpolation"]))  # type: ignore[arg-type]

    def remove_leftovers(self) -> None:
        """Delete temporary files of a run that was killed while writing."""
        for folder in (self.folder, *(self.folder / name for name in self._folders)):
            remove_leftovers(folder)

    def _set_aside(self, path: Path) -> None:
        place = self.folder / "damaged"
        place.mkdir(exist_ok=True)
        number = len(list(place.iterdir()))
        path.replace(place / f"{number}_{path.name}")

    def _row(self, key: str) -> Path:
        return self.folder / "rows" / f"{key}.json"

    def _curves(self, key: str) -> Path:
        return self.folder / "curves" / f"{key}.npz"

    def _failure(self, key: str) -> Path:
        return self.folder / "failures" / f"{key}.json"


def compact(curves: SurvivalCurves) -> SurvivalCurves:
    """Return curves in the form in which they are stored, so that metrics can be recomputed to the bit.

    A recalibration map bends a curve between its nodes, so it is worked into a dense set of them.
    """
    nodes = curves.times
    if curves.transform is not None and curves.interpolation != "step":
        knots = np.union1d([0.0], nodes)
        share = np.arange(max(1, _DENSE_NODES // len(knots))) / max(1, _DENSE_NODES // len(knots))
        nodes = np.append((knots[:-1, None] + np.diff(knots)[:, None] * share).ravel(), knots[-1])
    values = curves.evaluate(nodes).astype(np.float32)
    return SurvivalCurves(nodes, values, interpolation=curves.interpolation)


def _pack(curves: SurvivalCurves) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer, times=curves.times, values=curves.values.astype(np.float32), interpolation=curves.interpolation
    )
    return buffer.getvalue()


def _sealed(row: Row) -> bytes:
    # What no JSON can hold is kept as text, rather than losing the result.
    body = json.dumps(plain(row, unknown=repr), sort_keys=True)
    digest = hashlib.sha256(body.encode()).hexdigest()
    return json.dumps({"sha256": digest, "row": json.loads(body)}, sort_keys=True).encode()


def _opened(data: bytes) -> Row | None:
    try:
        document = json.loads(data)
        body = json.dumps(document["row"], sort_keys=True)
    except (ValueError, KeyError, TypeError):
        return None
    whole = hashlib.sha256(body.encode()).hexdigest() == document.get("sha256")
    row: Row = document["row"]
    return row if whole else None
