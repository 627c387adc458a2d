"""How training and prediction scale: epoch time in n and L, memory of large predictions and of a million rows.

python benchmarks/bench_training.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dcsurv import make_outcome
from dcsurv.models import DCS, CoxTime
from timing import peak_memory_gb

TURNS = 3


def cohort(n: int, n_features: int = 20, seed: int = 0) -> tuple[Any, Any]:
    """Return features and an outcome that depends on some of them; 60 % events."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_features))
    time_to_event = rng.exponential(np.exp(X[:, 0] - 0.5 * X[:, 1]))
    censored_at = rng.exponential(1.5 * np.median(time_to_event), n) * 2
    return X, make_outcome(np.minimum(time_to_event, censored_at), time_to_event <= censored_at)


def epoch_seconds(n: int, n_nodes: int) -> float:
    """Return the time of the quickest epoch of DCS with its default network, batches of 50."""
    X, y = cohort(n)
    model = DCS(n_nodes=n_nodes, spacing="linear", batch_size=50, max_epochs=1, random_state=0)
    return min(model.fit(X, y).history_.seconds for _ in range(TURNS))


def growth(sizes: list[int], measure: Callable[[int], float]) -> dict[str, Any]:
    """Fit seconds = a * size**b, and how straight the line seconds = c + d * size is.

    An exponent below 1 is a cost per step that does not depend on the size; above 1 would be growth beyond linear.
    """
    seconds = [measure(size) for size in sizes]
    slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    line = np.polyval(np.polyfit(sizes, seconds, 1), sizes)
    straightness = 1 - float(np.sum((seconds - line) ** 2) / np.sum((seconds - np.mean(seconds)) ** 2))
    return {"exponent": slope, "r_squared_of_line": straightness, "sizes": sizes, "seconds": seconds}


def predict_many(n_patients: int = 100_000, n_nodes: int = 40) -> dict[str, float]:
    X, y = cohort(2_000)
    model = DCS(n_nodes=n_nodes, spacing="linear", max_epochs=1, random_state=0).fit(X, y)
    X, _ = cohort(n_patients)
    return measured(lambda: (model.predict(X), model.predict_survival_function(X)))


def predict_many_coxtime(n_patients: int = 100_000) -> dict[str, float]:
    X, y = cohort(2_000)
    model = CoxTime(max_epochs=1, random_state=0).fit(X, y)
    X, _ = cohort(n_patients)
    return measured(lambda: (model.predict_survival_function(X, np.quantile(y["time"], [0.1, 0.25, 0.5, 0.75, 0.9])),))


def million_rows(n: int = 1_000_000) -> dict[str, float]:
    X, y = cohort(n)
    return measured(lambda: DCS(max_epochs=1, random_state=0).fit(X, y))


def measured(work: Callable[[], object]) -> dict[str, float]:
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak_memory_gb": peak_memory_gb()}


CHILDREN = {"predict_many": predict_many, "predict_many_coxtime": predict_many_coxtime, "million_rows": million_rows}


def alone(name: str, **options: int) -> dict[str, float]:
    """Run one measurement in its own process: peak memory is a property of a process."""
    command = [sys.executable, __file__, name, json.dumps(options)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run() -> dict[str, Any]:
    epoch_seconds(500, 10)  # compile
    return {
        "epoch_time_in_n": growth([2_000, 4_000, 8_000, 16_000], lambda n: epoch_seconds(n, 40)),
        "epoch_time_in_L": growth([80, 160, 320, 640, 1280], lambda n_nodes: epoch_seconds(2_000, n_nodes)),
        "predict_100000_patients_40_nodes": alone("predict_many"),
        "predict_100000_patients_700_nodes": alone("predict_many", n_nodes=700),
        "predict_100000_patients_coxtime": alone("predict_many_coxtime"),
        "epoch_over_1000000_rows": alone("million_rows"),
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(CHILDREN[sys.argv[1]](**json.loads(sys.argv[2]))))
    else:
        print(json.dumps(run(), indent=2))
