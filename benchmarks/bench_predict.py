"""Predicting with the default model against the version before: a long table, and a first few rows.

python benchmarks/bench_predict.py [ROWS]

Each version fits the default ensemble to the same simulated cohort once and predicts, in a process of its own, a CSV
file with bands by the command line's own function. The start is `dcsurv predict` of ten rows against
`python -c "import torch, pandas"`. CPU seconds are of all threads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from before import NOW, run_before, run_piece

ROWS = int(os.environ.get("DCSURV_BENCH_ROWS", "1000000"))
PATIENTS, COLUMNS, BINARY, TURNS = 1500, 20, 5, 5

FIT = """
import sys
import pandas as pd
import dcsurv
frame = pd.read_csv(sys.argv[1])
y = dcsurv.make_outcome(frame.pop("time"), frame.pop("event") == 1)
model = dcsurv.CalibratedEnsemble(random_state=0, time_unit="years").fit(frame, y)
model.save(sys.argv[2])
result = model.weights_
"""
PREDICT = """
import sys
from pathlib import Path
from dcsurv.cohort import ModelCard, Predictor, inspect_table, write_predictions
from dcsurv.persistence import load
model = load(sys.argv[1])
card = ModelCard.of(model)
predictor = Predictor(model, card, card.horizons, bands=0.9)
for _ in write_predictions(predictor, inspect_table(sys.argv[2]), Path(sys.argv[3])):
    pass
result = predictor.rows
"""


def table(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return features of which some bend, some meet and many do nothing, with times and events."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, COLUMNS))
    X[:, -BINARY:] = X[:, -BINARY:] > 0.5
    risk = 0.5 * X[:, 0] + 0.5 * np.sin(2 * X[:, 1]) + 0.4 * X[:, 2] * X[:, 3] + 0.5 * X[:, -1] - 0.3 * X[:, -2]
    time_ = 5 * (rng.exponential(size=n) * np.exp(-risk)) ** 0.7
    end = rng.uniform(0, 20, size=n)
    frame = pd.DataFrame(X.round(4), columns=[f"x{k}" for k in range(COLUMNS)])
    return frame, np.minimum(time_, end), time_ <= end


def long_table(folder: Path, rows: int) -> dict[str, Any]:
    frame, time_, event = table(PATIENTS, 0)
    frame.assign(time=time_, event=event.astype(int)).to_csv(folder / "cohort.csv", index=False)
    table(rows, 1)[0].to_csv(folder / "long.csv", index=False)
    found: dict[str, Any] = {}
    for name, run_one in (("now", run_piece_now), ("before", run_before)):
        model = str(folder / f"{name}.safetensors")
        weights = run_one(FIT, str(folder / "cohort.csv"), model)["result"]
        cost = run_one(PREDICT, model, str(folder / "long.csv"), str(folder / f"{name}.csv"))
        found[name] = {**{key: cost[key] for key in ("cpu", "wall", "memory_gb")}, "weights": weights}
    return {
        "predict_rows": rows,
        "predict_vs_before": found["before"]["cpu"] / found["now"]["cpu"],
        "predict_vs_before_wall": found["before"]["wall"] / found["now"]["wall"],
        "predict_memory_gb": found["now"]["memory_gb"],
        "predict_seconds": found,
    }


def run_piece_now(piece: str, *arguments: str) -> dict[str, Any]:
    return run_piece(piece, NOW, *arguments)


def start(folder: Path) -> dict[str, Any]:
    table(10, 2)[0].to_csv(folder / "ten.csv", index=False)
    peer = [sys.executable, "-c", "import torch, pandas"]
    command = "import sys; from dcsurv.cli import main; sys.argv[0] = 'dcsurv'; main()"
    ours = [sys.executable, "-c", command, "predict", folder / "now.safetensors", folder / "ten.csv", "-o"]
    once = [_cost([*ours, folder / "ten-out.csv"]), _cost(peer)]  # warms up, and writes the compiled modules
    turns = [once, *([_cost([*ours, folder / "ten-out.csv"]), _cost(peer)] for _ in range(TURNS))][1:]
    best = [{key: min(turn[side][key] for turn in turns) for key in ("cpu", "wall")} for side in (0, 1)]
    return {
        "predict_ten_vs_torch_and_pandas": best[0]["cpu"] / best[1]["cpu"],
        "predict_ten_vs_torch_and_pandas_wall": best[0]["wall"] / best[1]["wall"],
        "predict_ten_seconds": {"ours": best[0], "peer": best[1]},
    }


def _cost(command: list[Any]) -> dict[str, float]:
    """Return the CPU and wall seconds of a command; modules are kept compiled, as those of an installed package are."""
    environment = {**os.environ, "PYTHONPATH": str(NOW)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, begun = os.times(), time.perf_counter()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"cpu": cpu, "wall": time.perf_counter() - begun}


def run(rows: int = ROWS) -> dict[str, object]:
    parts: list[Callable[[Path], dict[str, Any]]] = [lambda folder: long_table(folder, rows), start]
    with TemporaryDirectory() as name:
        return {key: value for part in parts for key, value in part(Path(name)).items()}


if __name__ == "__main__":
    print(json.dumps(run(*map(int, sys.argv[1:])), indent=2))
