"""Whether the default model is as good as in the version before: paired over splits; writes docs/results/speed.

python benchmarks/fit_quality.py [--splits 5] [--cohort NAME ...]

Each version fits and predicts in a process of its own; both are scored by the metrics of this one. What is there
already is not run again.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from before import NOW, ROOT, run_piece, source_before
from dcsurv import train_test_indices
from dcsurv.curves import SurvivalCurves
from dcsurv.datasets import load, simulate
from dcsurv.metrics import evaluate

FOLDER = ROOT / "docs" / "results" / "speed"
COHORTS = ("metabric", "support", "flchain", "simulated 20,000")
METRICS = ("C-td", "CDAUC", "IBS", "DDC")

_PIECE = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np, torch
torch.set_num_threads(1)
sys.path.insert(0, {here!r})
import dcsurv
from fit_quality import cohort_named
X, y = cohort_named(sys.argv[1])
train, test = dcsurv.train_test_indices(y, random_state=int(sys.argv[2]))
model = dcsurv.CalibratedEnsemble(random_state=int(sys.argv[2])).fit(X.iloc[train], y[train])
times = np.unique(np.quantile(y["time"][train][y["event"][train]], np.linspace(0.005, 1, 200)))
times = times[times > 0]
curves = model.predict_survival_function(X.iloc[test], times)
np.savez(sys.argv[3], times=times, values=curves.values)
"""


def cohort_named(name: str) -> tuple[Any, Any]:
    """Return features and outcomes."""
    if name in ("metabric", "support", "flchain"):
        return load(name)
    cohort = simulate("independent", int(name.split()[1].replace(",", "")), hazards="non-linear", random_state=7)
    return cohort.X, cohort.y


def rows_of(cohort: str, split: int) -> list[dict[str, Any]]:
    """Return the scores of both versions on the test part of a split."""
    X, y = cohort_named(cohort)
    _, test = train_test_indices(y, random_state=split)
    out = []
    for version, source in (("before", source_before()), ("now", NOW)):
        file = ROOT / "build" / "curves.npz"
        piece = _PIECE.format(here=str(Path(__file__).parent))
        run_piece(piece, source, cohort, str(split), str(file))
        with np.load(file) as saved:
            curves = SurvivalCurves(saved["times"], saved["values"], interpolation="linear")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = evaluate(y[test], curves, X=X.iloc[test], n_bootstrap=0, n_null=0)
        value = table[table["horizon"].isna()].set_index("metric")["value"]
        scores = {metric: float(value[metric]) for metric in METRICS}
        out.append({"cohort": cohort, "split": split, "version": version, **scores})
    return out


def page(rows: list[dict[str, Any]]) -> str:
    """Return the table of mean differences, now less before, with 95 % intervals over the splits."""
    lines = [
        "# The default model, before and after it was made faster",
        "",
        "Mean differences over splits, now less before, with 95 % intervals (Student's, paired). Higher is better for",
        "C-td and CDAUC, lower for IBS and DDC. Made by `python benchmarks/fit_quality.py`.",
        "",
        "| cohort | splits | " + " | ".join(METRICS) + " |",
        "|---" * (2 + len(METRICS)) + "|",
    ]
    for cohort in dict.fromkeys(row["cohort"] for row in rows):
        sides = [
            sorted((r for r in rows if r["cohort"] == cohort and r["version"] == version), key=lambda r: r["split"])
            for version in ("before", "now")
        ]
        cells = []
        for metric in METRICS:
            change = np.array([now[metric] - before[metric] for before, now in zip(*sides, strict=True)])
            half = student.ppf(0.975, len(change) - 1) * change.std(ddof=1) / np.sqrt(len(change))
            cells.append(f"{change.mean():+.4f} ({change.mean() - half:+.4f} to {change.mean() + half:+.4f})")
        lines.append(f"| {cohort} | {len(sides[0])} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Run what is missing and write rows and page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--cohort", action="append", choices=COHORTS)
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / "rows.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    for cohort in arguments.cohort or COHORTS:
        for split in range(arguments.splits):
            if not any(row["cohort"] == cohort and row["split"] == split for row in rows):
                rows += rows_of(cohort, split)
                file.write_text(json.dumps(rows, indent=1) + "\n")
    (FOLDER / "README.md").write_text(page(rows))
    print(page(rows))


if __name__ == "__main__":
    main()
