"""What the models predict and how that scores on the three cohorts, as digests of every bit and as numbers.

``fixtures/unchanged/expected.json`` was written before models and metrics were taken apart into records: it shows that
only the house has changed, not what it computes. Digests and values of the metrics were taken anew when calibration was
first read against a perfect model, the censoring curve came from the patients evaluated, CDAUC got a fixed range, O/E
strata of risk and C-td lost pairs of copies, when the patients became fewer, and when bins got coarse edges (which
moved the ensemble's survival by less than 1e-8) and rare levels were pooled.

Bits depend on the processor, whose name does not say which it is ("AMD EPYC" are several generations). So the file
holds numbers, which count everywhere, and digests for each kind of machine that they were taken on, which count there:

    python tests/unchanged.py           # write the file anew: something is meant to be computed otherwise
    python tests/unchanged.py --add     # add the digests of this machine, on a commit that is known to be right
    python tests/unchanged.py --check   # compare
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import warnings
from collections.abc import Sequence
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
                "digests": {
                    "curves": _digest(curves.times, curves.values),
                    "recalibrated": _digest(after.times, after.values),
                    "metrics": _digest(
                        table[["value", "mean", "sd", "lower", "upper", "floor", "p_value"]].to_numpy(dtype=np.float64)
                    ),
                },
                "numbers": {"survival": curves.evaluate(at).mean(axis=0).tolist(), "values": table["value"].tolist()},
            }
    return out


def machine() -> dict[str, str]:
    """Return what bits depend on: the processor with its instructions, and versions."""
    path = Path("/proc/cpuinfo")
    first = path.read_text().split("\n\n")[0] if path.exists() else ""
    facts = dict(tuple(map(str.strip, line.split(":", 1))) for line in first.splitlines() if ":" in line)
    parts = [facts.get(name, "") for name in ("vendor_id", "cpu family", "model", "stepping")]
    instructions = " ".join(sorted(facts.get("flags", "").split()))
    return {
        "processor": " ".join(parts) if first else platform.processor(),
        "instructions": hashlib.sha256(instructions.encode()).hexdigest()[:16],
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numpy", "scipy", "numba", "lifelines")},
    }


def expected_digests(expected: dict[str, Any]) -> dict[str, Any] | None:
    """Return the digests by cohort and model that were taken on a machine like this; None if there was none."""
    return next((one["cohorts"] for one in expected["digests"] if one["machine"] == machine()), None)


def _digest(*arrays: Any) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _only(found: dict[str, Any], part: str) -> dict[str, Any]:
    return {cohort: {name: one[part] for name, one in models_.items()} for cohort, models_ in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Write anew what the models predict and how that scores, in fixtures/unchanged/expected.json.",
        allow_abbrev=False,
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--add", action="store_true", help="add the digests of this machine, and keep all others")
    instead.add_argument("--check", action="store_true", help="compare, and write nothing")
    asked = parser.parse_args(arguments)
    found = {cohort: measure(cohort) for cohort in COHORTS}
    own = {"machine": machine(), "cohorts": _only(found, "digests")}
    expected: dict[str, Any] = {"numbers": _only(found, "numbers"), "digests": []}
    if asked.add or asked.check:
        expected = json.loads(FILE.read_text())
    if asked.check:
        digests = expected_digests(expected)
        print("digests of a machine like this" if digests else "no machine like this: compared with another one")
        for cohort, models_ in (digests or expected["digests"][0]["cohorts"]).items():
            for name, one in models_.items():
                changed = [part for part, digest in one.items() if digest != own["cohorts"][cohort][name][part]]
                print(f"{cohort} {name}: {'changed: ' + ', '.join(changed) if changed else 'equal to the last bit'}")
        return
    expected["digests"] = [*(one for one in expected["digests"] if one["machine"] != own["machine"]), own]
    FILE.write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
