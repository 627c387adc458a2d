"""What the models predict and how that scores on the three cohorts, as digests of every bit and as numbers.

``python tests/unchanged.py`` writes ``fixtures/unchanged/expected.json`` anew, ``--check`` compares with it. The file
was written before models and metrics were taken apart into records: it shows that only the house has changed, not what
it computes. Digests and values of the metrics were taken anew when calibration was first read against a perfect model,
the censoring curve came from the patients evaluated, CDAUC got a fixed range, O/E strata of risk and C-td lost pairs of
copies, when the patients became fewer, and when bins got coarse edges (which moved the ensemble's survival by less than
1e-8) and rare levels were pooled. Bits depend on the machine's vector instructions, so the digests count where
processor and versions are those of the file, and the numbers everywhere.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import dcsurv
from dcsurv.datasets import load
from dcsurv.training import one_thread

FILE = Path(__file__).parent / "fixtures" / "unchanged" / "expected.json"
COHORTS = ("support", "metabric", "flchain")
_SHORT: dict[str, Any] = {"max_epochs": 2, "random_state": 0, "time_unit": "days"}
_GRID: dict[str, Any] = {**_SHORT, "n_nodes": 8, "encoder_size": 8, "decoder_size": 8}


def models() -> dict[str, Any]:
    """Return the models, unfitted: one of every kind, and the default one with fewer epochs and seeds."""
    return {
        "CoxPH": dcsurv.CoxPH(time_unit="days"),
        "DeepSurv": dcsurv.DeepSurv(**_SHORT),
        "CoxTime": dcsurv.CoxTime(**_SHORT),
        "DRSA": dcsurv.DRSA(**_GRID),
        "Kamran": dcsurv.Kamran(**_GRID),
        "DCS": dcsurv.DCS(**_GRID),
        "DCS, paper": dcsurv.DCS(**_GRID, convention="paper"),
        "CalibratedEnsemble": dcsurv.CalibratedEnsemble(
            estimator=dcsurv.calibration.default_member(n_nodes=30, max_epochs=3),
            n_members=5,
            seeds_per_member=1,
            random_state=0,
            time_unit="days",
        ),
    }


def measure(cohort: str) -> dict[str, Any]:
    """Fit, predict and score every model on a part of a cohort."""
    X, y = load(cohort)
    train, test = dcsurv.train_test_indices(y, random_state=0)
    train, test = train[::6], test[1::6]
    out: dict[str, Any] = {}
    with one_thread():
        for name, model in models().items():
            curves = model.fit(X.iloc[train], y[train]).predict_survival_function(X.iloc[test])
            with warnings.catch_warnings():  # of models that were hardly trained, some resamples have no slope
                warnings.filterwarnings("ignore", "Calibration slope was undefined", UserWarning)
                table = dcsurv.metrics.evaluate(y[test], curves, X=X.iloc[test], n_bootstrap=20, n_null=20)
            recalibrated = dcsurv.recalibrate(model, X.iloc[test], y[test]).model
            after = recalibrated.predict_survival_function(X.iloc[test])
            at = np.quantile(y["time"][test], [0.2, 0.5, 0.8])
            out[name] = {
                "curves": _digest(curves.times, curves.values),
                "recalibrated": _digest(after.times, after.values),
                "metrics": _digest(
                    table[["value", "mean", "sd", "lower", "upper", "floor", "p_value"]].to_numpy(dtype=np.float64)
                ),
                "survival": curves.evaluate(at).mean(axis=0).tolist(),
                "values": table["value"].tolist(),
            }
    return out


def machine() -> dict[str, str]:
    """Return what bits depend on."""
    model = [line.split(":")[1].strip() for line in _cpu_lines() if line.startswith("model name")]
    return {
        "processor": model[0] if model else platform.machine(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy", "scipy", "numba", "lifelines")},
    }


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def _digest(*arrays: Any) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def main() -> None:
    found = {"machine": machine(), "cohorts": {cohort: measure(cohort) for cohort in COHORTS}}
    if "--check" in sys.argv:
        expected = json.loads(FILE.read_text())
        for cohort, models_ in found["cohorts"].items():
            for name, one in models_.items():
                changed = [part for part, value in one.items() if value != expected["cohorts"][cohort][name][part]]
                print(f"{cohort} {name}: {'changed: ' + ', '.join(changed) if changed else 'equal to the last bit'}")
        print("the same machine" if found["machine"] == expected["machine"] else "another machine")
        return
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
