"""Explaining 1,000 patients of METABRIC: CPU, memory, growth, and shap's permutation explainer at equal error.

The default model, 9 features, 40 times, 100 made-up patients as background. Both sides explain the same patients
against the same background; their errors are those against enumeration of all coalitions. CPU times, so that other
work on the machine hardly matters; each job of ours runs in a process of its own, whose peak memory is read.

    python benchmarks/bench_explain.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import dcsurv
from dcsurv.datasets import load_metabric
from timing import peak_memory_gb

PATIENTS, PAIRS = 1000, 24
GROWTH = (250, 500, 1000, 1900)
COMPARED = 16
BACKGROUND = 100
# Pairs of permutations that shap is given, until its error is no larger than ours.
SHAP_PAIRS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def explained(model: Any, X: Any, **options: Any) -> Any:
    return dcsurv.explain(model, X, n_background=BACKGROUND, **options)


def job(model_file: str, n_patients: int, out: str) -> dict[str, float]:
    """Explain patients in this process."""
    model = dcsurv.load(model_file)
    X, _ = load_metabric(labels="measured")
    explained(model, X.head(2), method="sampled", n_pairs=2)  # compile, allocate
    start, wall = time.process_time(), time.perf_counter()
    found = explained(model, X.head(n_patients), method="sampled", n_pairs=PAIRS)
    spent = {"cpu_seconds": time.process_time() - start, "seconds": time.perf_counter() - wall}
    np.savez(out, values=found.values[:COMPARED], error=found.error[:COMPARED])
    return {**spent, "peak_memory_gb": peak_memory_gb()}


def in_own_process(model_file: Path, n_patients: int, out: Path) -> dict[str, float]:
    command = [sys.executable, __file__, str(model_file), str(n_patients), str(out)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def rms(values: Any) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def shap_at_error(model: Any, X: Any, truth: Any, error: float) -> dict[str, float]:
    """Return the CPU seconds for one patient that shap needs for an error, and what was measured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import shap

    # The same made-up patients that ours compares with.
    background = model.prepare(model.population_.draw(BACKGROUND, 0))
    masker = shap.maskers.Independent(background, max_samples=BACKGROUND)
    explainer = shap.explainers.PermutationExplainer(
        lambda rows: model.curves_of(rows.astype(np.float32)).evaluate(truth.times), masker, seed=0
    )
    prepared = model.prepare(X)
    for pairs in SHAP_PAIRS:
        evaluations = pairs * (2 * prepared.shape[1] + 1)
        start = time.process_time()
        values = explainer(prepared, max_evals=evaluations, batch_size=50, silent=True).values
        spent = (time.process_time() - start) / len(prepared)
        reached = rms(values - truth.values)
        if reached <= error:
            break
    # Its variance falls with the number of pairs: what exactly this error would have taken.
    return {"pairs": pairs, "error": reached, "cpu_seconds_per_patient": spent * min(1.0, (reached / error) ** 2)}


def run() -> dict[str, Any]:
    """Measure.

    Returns
    -------
    ``explain``: CPU seconds, seconds and peak memory for 1,000 patients, CPU seconds by number of patients, the errors
    of both sides, and ``vs_shap``, how many times more CPU shap needs for a patient at our error.
    """
    X, y = load_metabric(labels="measured")
    train, _ = dcsurv.train_test_indices(y, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "model.safetensors", Path(folder) / "values.npz"
        dcsurv.CalibratedEnsemble(random_state=0, time_unit="days").fit(X.iloc[train], y[train]).save(file)
        growth: dict[str, float] = {}
        for n in GROWTH:
            measured = in_own_process(file, n, out)
            growth[str(n)] = measured["cpu_seconds"]
            if n == PATIENTS:
                whole = measured
                ours = np.load(out)
                values, stated = ours["values"], ours["error"]
        model = dcsurv.load(file)
        truth = explained(model, X.head(COMPARED), method="exact")
        error = rms(values - truth.values)
        peer = shap_at_error(model, X.head(COMPARED), truth, error)
    per_patient = whole["cpu_seconds"] / PATIENTS
    return {
        "explain": {
            "patients": PATIENTS,
            "features": len(truth.features),
            "times": len(truth.times),
            **whole,
            "cpu_seconds_by_patients": growth,
            "error": error,
            "stated_error": rms(stated),
            "mean_size": rms(truth.values),
            "shap": peer,
            "vs_shap": peer["cpu_seconds_per_patient"] / per_patient,
        }
    }


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(json.dumps(job(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
    else:
        print(json.dumps(run(), indent=2))
