"""Run the benchmarks, print them and write benchmarks/results.json; `make bench` sets one thread."""

from __future__ import annotations

import importlib
import json
import platform
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"
PACKAGES = ("dcsurv", "torch", "numpy", "numba", "pycox", "scikit-survival", "shap")


def main() -> None:
    names = sys.argv[1:] or sorted(file.stem for file in FOLDER.glob("bench_*.py"))
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names:
        print(f"--- {name}", flush=True)
        part = importlib.import_module(name).run()
        print(json.dumps(part, indent=2), flush=True)
        results.update(part)
    results["environment"] = {
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "processor": platform.machine(),
        "threads": 1,
        **{package: version(package) for package in PACKAGES},
    }
    RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
