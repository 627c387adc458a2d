"""A fit with bootstrap refits on a Dask cluster of one and of two workers, and what that says of 64."""

from __future__ import annotations

import contextlib
import heapq
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dcsurv import CalibratedEnsemble, on_cluster
from dcsurv.datasets import load

WORKERS = (1, 2)
PREDICTED = (2, 8, 64)
REFITS = 20


def run() -> dict[str, object]:
    X, y = load("metabric")
    seconds, lengths = {}, []
    for workers in WORKERS:
        with _cluster(workers) as address, on_cluster(address):
            from distributed import default_client, get_task_stream

            _model(n_refits=2).set_params(estimator__max_epochs=1).fit(X, y)  # imports and compiles on every worker
            with get_task_stream(default_client()) as stream:
                begin = time.perf_counter()
                _model(n_refits=REFITS).fit(X, y)
                seconds[workers] = time.perf_counter() - begin
        if workers == 1:
            lengths = [_length(record) for record in stream.data]
    members, refits = lengths[:-REFITS], lengths[-REFITS:]  # all members are done before a refit begins
    rest = seconds[1] - sum(lengths)
    foreseen = {workers: rest + makespan(members, workers) + makespan(refits, workers) for workers in PREDICTED}
    return {
        "cluster_fit": {
            "refits": REFITS,
            "tasks": len(lengths),
            "longest_task": max(lengths),
            "outside_tasks": rest,
            "seconds": seconds,
            "speedup": {workers: seconds[1] / own for workers, own in seconds.items()},
            "predicted_speedup": {workers: seconds[1] / own for workers, own in foreseen.items()},
        }
    }


def makespan(lengths: Sequence[float], workers: int) -> float:
    """Return how long tasks take if each, in turn, goes to the worker that is free first."""
    free = [0.0] * workers
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def _model(n_refits: int) -> CalibratedEnsemble:
    return CalibratedEnsemble(bands="bootstrap", n_refits=n_refits, random_state=0)


def _length(record: dict[str, Any]) -> float:
    return sum(part["stop"] - part["start"] for part in record["startstops"] if part["action"] == "compute")


@contextlib.contextmanager
def _cluster(workers: int) -> Iterator[str]:
    """Yield the address of a scheduler with so many workers, each a process of its own with one thread."""
    from distributed import Client

    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder) / "scheduler.json"
        common = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(at)]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", *common]
        processes = [subprocess.Popen(command, **quiet)]
        try:
            while not (at.exists() and at.read_text().strip().endswith("}")):
                time.sleep(0.05)
            command = [sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny",
                       "--local-directory", folder, *common]  # fmt: skip
            processes += [subprocess.Popen(command, **quiet) for _ in range(workers)]
            address = json.loads(at.read_text())["address"]
            with Client(address, timeout=300) as client:
                client.wait_for_workers(workers, timeout=300)
            yield address
        finally:
            for process in processes:
                process.kill()
                process.wait()
