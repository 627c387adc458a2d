"""Quality of DCS-quant with the paper's settings: one network per split, five splits of three cohorts.

Stratified 80/20 splits with the seeds 0 to 4, which also seed the network; C-td and CDAUC in the paper's convention.
Writes quality.json and quality.md beside this file.

    python benchmarks/quality.py [model ...]
"""

from __future__ import annotations

import json
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dcsurv import train_test_indices
from dcsurv.datasets import load
from dcsurv.metrics import concordance_index_td, cumulative_dynamic_auc, ddc
from dcsurv.models import CoxPH, paper_settings

FOLDER = Path(__file__).parent
DATASETS = ("support", "metabric", "flchain")
SEEDS = range(5)
# What DCS-quant must reach: C-td, CDAUC.
TARGETS = {"support": (0.630, 0.645), "metabric": (0.668, 0.705), "flchain": (0.792, 0.812)}


def one_split(model: str, dataset: str, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    X, y = load(dataset)
    train, test = train_test_indices(y, random_state=seed)
    estimator = paper_settings(model, dataset)
    if not isinstance(estimator, CoxPH):
        estimator.set_params(random_state=seed)
    estimator.fit(X.iloc[train], y[train])
    curves = estimator.predict_survival_function(X.iloc[test])
    paper: Any = {"convention": "paper", "y_train": y[train]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the last times have no censoring weight left
        return {
            "seed": seed,
            "c_td": concordance_index_td(y[test], curves, **paper),
            "cdauc": cumulative_dynamic_auc(y[test], curves, **paper).mean,
            "ddc": ddc(y[test], curves, **paper),
            "best_epoch": estimator.training_summary_.get("best_epoch"),
        }


def run(models: tuple[str, ...] = ("DCS-quant",), workers: int = 2) -> dict[str, Any]:
    jobs = [(model, dataset, seed) for model in models for dataset in DATASETS for seed in SEEDS]
    with ProcessPoolExecutor(workers) as pool:
        rows = list(pool.map(one_split, *zip(*jobs, strict=True)))
    table: dict[str, Any] = {}
    for (model, dataset, _), row in zip(jobs, rows, strict=True):
        table.setdefault(model, {}).setdefault(dataset, {"splits": []})["splits"].append(row)
    for model, cells in table.items():
        for dataset, cell in cells.items():
            for metric in ("c_td", "cdauc", "ddc"):
                values = [row[metric] for row in cell["splits"]]
                cell[metric] = float(np.mean(values))
                cell[f"{metric}_sd"] = float(np.std(values, ddof=1))
            if model == "DCS-quant":
                goal = TARGETS[dataset]
                cell["target"] = {"c_td": goal[0], "cdauc": goal[1]}
                cell["reached"] = bool(cell["c_td"] >= goal[0] and cell["cdauc"] >= goal[1])
    return table


def markdown(table: dict[str, Any]) -> str:
    lines = [
        "# Quality with the paper's settings",
        "",
        "Mean ± sd over five stratified 80/20 splits (seeds 0 to 4), one network per split, `paper` convention.",
        f"Made by `make quality` with dcsurv {version('dcsurv')} and torch {version('torch')}.",
        "",
        "| model | cohort | C-td | CDAUC | DDC | target C-td / CDAUC | reached |",
        "|---|---|---|---|---|---|---|",
    ]
    for model, cells in table.items():
        for dataset, cell in cells.items():
            figures = [f"{cell[m]:.4f} ± {cell[m + '_sd']:.4f}" for m in ("c_td", "cdauc", "ddc")]
            goal = cell.get("target")
            ending = (
                [f"{goal['c_td']:.3f} / {goal['cdauc']:.3f}", "yes" if cell["reached"] else "no"] if goal else ["", ""]
            )
            lines.append("| " + " | ".join([model, dataset.upper(), *figures, *ending]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    table = run(tuple(sys.argv[1:]) or ("DCS-quant",))
    (FOLDER / "quality.json").write_text(json.dumps(table, indent=1) + "\n")
    (FOLDER / "quality.md").write_text(markdown(table))
    print(markdown(table))


if __name__ == "__main__":
    main()
