"""Tables with far more columns than patients: what the default model makes of them, beside a ridge regression.

    python benchmarks/wide.py [--seeds 2] [--columns 2000]

Columns come in blocks of 50 that go along with each other (correlation 0.5), or alone. A few of them have an effect
(``few``), or all of them a little (``all``). Models see 400 patients and are asked about 1,000 others. Writes
``docs/results/wide/README.md`` and ``rows.csv``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dcsurv
from dcsurv import CalibratedEnsemble, SplineCox
from dcsurv.metrics import concordance_index_harrell, integrated_brier_score

FOLDER = Path(__file__).parents[1] / "docs" / "results" / "wide"
_PATIENTS, _NEW, _BLOCK, _FEW, _SPREAD = 400, 1_000, 50, 5, 1.3


def cohort(n: int, p: int, effects: str, together: bool, seed: int) -> tuple[pd.DataFrame, Any, pd.DataFrame, Any]:
    """Return patients to fit to and new ones, with their outcomes."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n + _NEW, p), dtype=np.float32)
    if together:
        shared = rng.standard_normal((n + _NEW, p // _BLOCK), dtype=np.float32)
        X = np.sqrt(np.float32(0.5)) * (X + np.repeat(shared, _BLOCK, axis=1))
    slopes = rng.standard_normal(p) if effects == "all" else (np.arange(p) % (p // _FEW) == 0).astype(float)
    risk = X @ slopes
    risk *= _SPREAD / risk.std()
    event_time, lost = rng.exponential(np.exp(-risk)), rng.exponential(2.0, n + _NEW)
    y = dcsurv.make_outcome(np.minimum(event_time, lost) + 0.001, event_time <= lost)
    frame = pd.DataFrame(X).add_prefix("g")
    return frame[:n], y[:n], frame[n:], y[n:]


def measured(model: Any, data: tuple[pd.DataFrame, Any, pd.DataFrame, Any]) -> dict[str, Any]:
    """Return how good a model is on the new patients, and what it costs."""
    X, y, new, outcome = data
    begun = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - begun
    at = np.quantile(y["time"][y["event"]], [0.1, 0.25, 0.5, 0.75, 0.9])
    curves = model.predict_survival_function(new)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "model"))
        size = Path(folder, "model").stat().st_size
    return {
        "C": concordance_index_harrell(outcome, -curves.evaluate(at).mean(axis=1)),
        "IBS": integrated_brier_score(outcome, curves, times=at, censoring="marginal"),
        "CPU seconds": seconds,
        "file MB": size / 1e6,
    }


def write(rows: list[dict[str, Any]]) -> None:
    """Write what was measured, and the means."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame(rows)
    table.round(4).to_csv(FOLDER / "rows.csv", index=False)
    keys = ["columns", "effects", "in blocks", "model"]
    mean = table.groupby(keys, sort=False)[["C", "IBS", "CPU seconds", "file MB"]].mean().reset_index()
    lines = ["| " + " | ".join(mean.columns) + " |", "|" + "---|" * len(mean.columns)]
    for row in mean.itertuples(index=False):
        columns, effects, together, model, c, score, seconds, size = row
        blocks = "yes" if together else "no"
        lines.append(
            f"| {columns:,} | {effects} | {blocks} | {model} | {c:.3f} | {score:.3f} | {seconds:.0f} | {size:.1f} |"
        )
    seeds = table["seed"].nunique()
    text = f"""# Wide tables

`python benchmarks/wide.py --seeds {seeds}`: means over {seeds} simulated cohorts of {_PATIENTS} patients, measured on
{_NEW:,} new ones. C is Harrell's, IBS the integrated Brier score. Either {_FEW} columns have an effect or all of them,
and columns are alone or in blocks of {_BLOCK} that go along with each other. In the ridge regression (`SplineCox`)
every column has an effect; the default model weighs Cox models of 10, 50 and up to 5,000 columns.

"""
    (FOLDER / "README.md").write_text(text + "\n".join(lines) + "\n")


def main() -> None:
    """Fit and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--columns", type=int, nargs="+", default=[2_000])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for p in given.columns:
        for effects, together in (("few", False), ("few", True), ("all", True)):
            for seed in range(given.seeds):
                data = cohort(_PATIENTS, p, effects, together, seed)
                models = {"ridge Cox": SplineCox(), "default": CalibratedEnsemble(random_state=seed)}
                for name, model in models.items():
                    case = {"columns": p, "effects": effects, "in blocks": together, "model": name, "seed": seed}
                    rows.append({**case, **measured(model, data)})
                    print(rows[-1], flush=True)
    write(rows)


if __name__ == "__main__":
    main()
