"""Run a plan: every task once, each result kept as soon as it is there."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Sequence
from importlib.metadata import version
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd

from dcsurv.curves import SurvivalCurves
from dcsurv.datasets import load
from dcsurv.experiments.dispatch import TaskResult, attempt, check_options, run_all
from dcsurv.experiments.plan import Plan, Task
from dcsurv.experiments.store import ResultStore, Row, compact
from dcsurv.follow_up import study_follow_up
from dcsurv.metrics import evaluate, list_metrics
from dcsurv.models.curve_model import held_out_curves
from dcsurv.target import train_test_indices

_PAPER_BOOTSTRAPS = 10
_VERSIONS = ("dcsurv", "torch", "numpy", "scikit-learn", "lifelines")


class Results:
    """The rows of a plan, as :func:`run` returns them.

    Parameters
    ----------
    store : ResultStore
        The folder with the results.
    tasks : sequence of Task
        The tasks of the plan.
    need_curves : bool, default True
        Whether a row without the curves that it names is none.

    Attributes
    ----------
    rows : DataFrame
        One row per finished task: dataset, model, split, seed, and for every metric ``C-td``, ``C-td mean``,
        ``C-td sd``, ... in the default convention, ``marginal IBS``, ... with one censoring curve for all, and ``paper
        C-td``, ... in the paper's.
    failures : DataFrame
        One row per task that failed, with its cause.

    Examples
    --------
    >>> from dcsurv import CoxPH
    >>> from dcsurv.experiments import Plan, run
    >>> results = run(Plan(["metabric"], {"CoxPH": CoxPH()}, splits=[0], n_bootstrap=2), "results")
    >>> results.rows[["model", "split"]].to_dict("records"), len(results.failures)
    ([{'model': 'CoxPH', 'split': 0}], 0)
    >>> results.curves(results.rows["key"][0]).values.shape[0]  # one curve per test patient
    381
    """

    def __init__(self, store: ResultStore, tasks: Sequence[Task], *, need_curves: bool = True) -> None:
        self._store = store
        read = store.read if need_curves else store.read_row
        found = [(task, read(task.key)) for task in tasks]
        self.rows = pd.DataFrame([_flat(row) for _, row in found if row is not None])
        self.failures = pd.DataFrame(
            [
                {"dataset": task.dataset, "model": task.model, "split": task.split, "seed": task.seed, **record}
                for task, row in found
                if row is None and (record := store.failure(task.key)) is not None
            ]
        )

    def curves(self, key: str) -> SurvivalCurves:
        """Return the predicted curves behind a row.

        Parameters
        ----------
        key : str
            The row's entry in the column ``key``.

        Returns
        -------
        SurvivalCurves
            Those of the test patients, in the order of the split.
        """
        return self._store.curves(key)


def run(
    plan: Plan,
    folder: str | PathLike[str],
    *,
    workers: int = 1,
    cluster: str | None = None,
    progress: bool = False,
) -> Results:
    """Run the tasks of a plan that have no result yet, and return all its results.

    Parameters
    ----------
    plan : Plan
        What to run.
    folder : str or path-like
        Where results are kept. A run that was stopped, however abruptly, goes on there where it was.
    workers : int, default 1
        Processes on this machine, one thread each.
    cluster : str or None, default None
        Address of a Dask scheduler, such as ``tcp://host:8786``, whose workers have dcsurv installed.
    progress : bool, default False
        Show a progress bar with the time that is left.

    Returns
    -------
    Results
        The rows of all tasks of the plan, those of earlier runs included.

    Raises
    ------
    PlanError
        Before anything is trained, if the plan or the folder cannot be used.
    """
    check_options(workers, cluster)
    tasks = plan.tasks()
    store = ResultStore(folder)
    run_all(tasks, fit_and_score, store, workers=workers, cluster=cluster, progress=progress)
    return Results(store, tasks)


def stored(plan: Plan, folder: str | PathLike[str]) -> Results:
    """Return the rows of a plan that are in a folder, without their curves if need be; nothing is run or written."""
    return Results(ResultStore(folder), plan.tasks(), need_curves=False)


def execute(task: Task) -> TaskResult:
    """Fit, predict and evaluate one task on one thread; a failure is returned, not raised."""
    return attempt(fit_and_score, task)


def fit_and_score(task: Task) -> tuple[Row, SurvivalCurves]:
    """Return the row of a task and the curves behind it."""
    X, y = load(task.dataset)
    train, test = train_test_indices(y, random_state=task.split)
    begin = time.perf_counter()
    model = task.estimator.fit(X.iloc[train], y[train])
    if getattr(model, "training_summary_", {}).get("stopped_by") == "interrupt":
        raise KeyboardInterrupt  # a model cut short must not be kept as a result
    fitted = time.perf_counter()
    curves = held_out_curves(model, X.iloc[test])
    predicted = time.perf_counter()
    curves = compact(curves)
    row = {
        "dataset": task.dataset,
        "model": task.model,
        "split": task.split,
        "seed": task.seed,
        "metrics": scores(curves, X.iloc[test], y[test], y[train], task.n_bootstrap),
        "n_bootstrap": {"default": task.n_bootstrap, "paper": _PAPER_BOOTSTRAPS},
        "fit_seconds": fitted - begin,
        "predict_seconds": predicted - fitted,
        "training": getattr(model, "training_summary_", {}),
        "settings": task.settings,
        "split_sha256": _fingerprint(X, y, train, test),
        "n_train": len(train),
        "n_test": len(test),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _VERSIONS}},
    }
    return row, curves


def scores(curves: SurvivalCurves, X: pd.DataFrame, y: Any, y_train: Any, n_bootstrap: int) -> dict[str, list[Row]]:
    """Return the metrics of a row in three conventions.

    With censoring weights that follow the features where these predict censoring, with one censoring curve for all (no
    resampling), and in the paper's convention.
    """
    weighted = [metric.name for metric in list_metrics() if metric.weighted]
    tables = {
        "default": evaluate(y, curves, n_bootstrap=n_bootstrap, censoring=study_follow_up(X, y)),
        "marginal": evaluate(y, curves, censoring="marginal", metrics=weighted, n_null=0),
        "paper": evaluate(y, curves, y_train, _PAPER_BOOTSTRAPS, convention="paper"),
    }
    return {name: _records(table) for name, table in tables.items()}


def _fingerprint(X: pd.DataFrame, y: Any, train: Any, test: Any) -> str:
    """Return a digest of the data and of who is in which part: rows with the same one can be paired."""
    digest = hashlib.sha256()
    for part in (pd.util.hash_pandas_object(X).to_numpy(), y["time"], y["event"], train, test):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def _records(table: pd.DataFrame) -> list[Row]:
    """Return a table of metrics as plain records without gaps."""
    records = [{str(k): v for k, v in record.items()} for record in table.to_dict("records")]
    return [{k: v for k, v in record.items() if k == "value" or not pd.isna(v)} for record in records]


def _flat(row: Row) -> Row:
    """Spread a stored row over columns."""
    out: Row = {name: row[name] for name in ("dataset", "model", "split", "seed", "fit_seconds", "predict_seconds")}
    out["epochs"] = row["training"].get("epochs")
    for convention, prefix in (("default", ""), ("marginal", "marginal "), ("paper", "paper ")):
        number: dict[str, int] = {}
        for record in row["metrics"][convention]:
            name = prefix + record["metric"]
            if "horizon" in record:  # the quartiles of the event times, numbered
                number[name] = number.get(name, 0) + 1
                name = f"{name}@Q{number[name]}"
            out[name] = record["value"]
            for part in ("mean", "sd", "lower", "upper", "floor", "null_95", "p_value"):
                if part in record:
                    out[f"{name} {part}"] = record[part]
    return {**out, "key": row["key"], "split_sha256": row["split_sha256"]}
