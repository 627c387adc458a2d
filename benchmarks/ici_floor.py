"""What ICI a perfect model would score on the test parts of the three cohorts, which is not 0.

The curves of the calibrated ensemble are taken as if they were true: event times are drawn from them, censoring times
from the Kaplan-Meier curve of censoring of the test part (within the groups that the metric itself makes where the
features decide how long a patient could be followed), and ICI at the same three horizons is computed on what comes out.

    python benchmarks/ici_floor.py [--folder reproduction/repeated] [--draws 40] [--splits 5] [--dataset metabric ...]

Curves are taken from the folder of `dcsurv reproduce --protocol repeated` where they are there; else the model is
fitted. Writes `docs/results/calibrated/ici-floor.csv`: one row per cohort, split and horizon. Rows that are there
already are not computed again: delete those of a model that has changed.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from dcsurv import metrics
from dcsurv.curves import SurvivalCurves
from dcsurv.datasets import NAMES, load
from dcsurv.experiments.plan import CALIBRATED, Plan, Task
from dcsurv.experiments.store import ResultStore, compact
from dcsurv.metrics.censoring import resolve_follow_up
from dcsurv.metrics.distribution import drawn_censoring
from dcsurv.nonparametric import censoring_curve
from dcsurv.target import FloatArray, make_outcome, train_test_indices
from dcsurv.training import one_thread
from studies import RESULTS, Rows, run_missing

OUT = RESULTS / "calibrated" / "ici-floor.csv"
IDENTITY = ["dataset", "split", "draws"]
# As in the rows of the repeated protocol, whose curves are found by it.
_N_BOOTSTRAP = 50
_BISECTIONS = 50


def drawn_outcome(y: Any, curves: SurvivalCurves, groups: Any, rng: np.random.Generator) -> Any:
    """Return an outcome as these patients would have it if the curves were true, censored as they were."""
    censored_at = np.zeros(len(y))
    for group in np.unique(groups):
        own = groups == group
        end = float(y["time"][own].max())
        censored_at[own] = drawn_censoring(censoring_curve(y[own]), end, int(own.sum()), rng)
    level = rng.random(len(y))  # S(T|x) of an event time drawn from the curve is uniform
    event = level >= curves.at_own(censored_at)
    low, high = np.zeros(len(y)), censored_at.copy()
    for _ in range(_BISECTIONS):  # keeps S(high) <= level where there is an event
        middle = (low + high) / 2
        below = curves.at_own(middle) <= level
        low, high = np.where(below, low, middle), np.where(below, middle, high)
    return make_outcome(np.where(event, high, censored_at), event)


def ici(y: Any, curves: SurvivalCurves, y_train: Any, censoring: Any, horizons: FloatArray) -> FloatArray:
    """Return ICI at each horizon; NaN where it cannot be computed."""
    table = metrics.evaluate(y, curves, y_train, censoring=censoring, horizons=horizons, metrics=["ICI"])
    found = dict(zip(table["horizon"], table["value"], strict=True))
    return np.array([found.get(t, np.nan) for t in horizons])


def floor(
    y: Any, curves: SurvivalCurves, y_train: Any, X: Any, *, draws: int, random_state: int = 0
) -> list[dict[str, float]]:
    """Return for each horizon the ICI that was found, and mean and 95th percentile of what perfection would score."""
    follow_up = resolve_follow_up("auto", X, y)
    censoring: Any = "marginal" if follow_up is None else follow_up
    groups = np.zeros(len(y), dtype=int) if follow_up is None else follow_up.groups
    horizons = metrics.default_horizons(y)
    rng = np.random.default_rng(random_state)
    drawn = np.array(
        [ici(drawn_outcome(y, curves, groups, rng), curves, y_train, censoring, horizons) for _ in range(draws)]
    )
    found = ici(y, curves, y_train, censoring, horizons)
    return [
        {
            "quartile": k + 1,
            "horizon": float(horizons[k]),
            "found": float(found[k]),
            "floor": float(np.nanmean(drawn[:, k])),
            "p95": float(np.nanquantile(drawn[:, k], 0.95)),
        }
        for k in range(len(horizons))
    ]


def one(dataset: str, split: int, draws: int, folder: Path) -> list[dict[str, Any]]:
    """Return the rows of one split of one cohort."""
    task = Plan([dataset], [CALIBRATED], [split], n_bootstrap=_N_BOOTSTRAP).tasks()[0]
    X, y = load(dataset)
    train, test = train_test_indices(y, random_state=split)
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        curves = predicted(task, folder, X, y, train, test)
        rows = floor(y[test], curves, y[train], X.iloc[test], draws=draws, random_state=split)
    return [{"dataset": dataset, "split": split, "draws": draws, **row, "key": task.key} for row in rows]


def predicted(task: Task, folder: Path, X: Any, y: Any, train: Any, test: Any) -> SurvivalCurves:
    """Return the curves of the test part: those that are kept, else those of a model fitted now."""
    store = ResultStore(folder)
    try:
        return store.curves(task.key)
    except FileNotFoundError:
        model = task.estimator.fit(X.iloc[train], y[train])
        return compact(model.predict_survival_function(X.iloc[test]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("reproduction/repeated"))
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--dataset", action="append", choices=NAMES)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--output", type=Path, default=OUT)
    asked = parser.parse_args()
    rows = Rows(asked.output, IDENTITY)
    tasks = [(name, k, asked.draws, asked.folder) for name in asked.dataset or NAMES for k in range(asked.splits)]
    run_missing(rows, tasks, one, asked.workers)
    rows.sort()
    rows.write()


if __name__ == "__main__":
    main()
