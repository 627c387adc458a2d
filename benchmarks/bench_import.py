"""How long `import dcsurv` takes against `import torch`, each in a fresh interpreter.

python benchmarks/bench_import.py
"""

from __future__ import annotations

import json
import subprocess
import sys

from timing import best_seconds

# Used by some of the library, and imported only then.
ON_DEMAND = ("lifelines", "matplotlib", "numba", "optuna", "rich", "safetensors")


def fresh(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def run() -> dict[str, object]:
    torch, ours = best_seconds(lambda: fresh("import torch"), lambda: fresh("import dcsurv"), turns=7)
    loaded = json.loads(fresh("import dcsurv, json, sys; print(json.dumps(sorted(sys.modules)))"))
    return {
        "import_vs_torch": ours / torch,
        "import_vs_torch_seconds": {"dcsurv": ours, "torch": torch},
        "imported_too_early": [name for name in ON_DEMAND if name in loaded],
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
