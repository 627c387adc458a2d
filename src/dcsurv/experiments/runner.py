"""Run a plan: every task once, each result kept as soon as it is there, on one machine or on a cluster."""

from __future__ import annotations

import contextlib
import hashlib
import platform
import time
import traceback
import uuid
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd

from dcsurv.curves import SurvivalCurves
from dcsurv.datasets import load
from dcsurv.experiments.cluster import connected
from dcsurv.experiments.plan import Plan, PlanError, Task
from dcsurv.experiments.store import ResultStore, Row, compact
from dcsurv.metrics import evaluate, list_metrics
from dcsurv.target import train_test_indices
from dcsurv.training import one_thread

_PAPER_BOOTSTRAPS = 10
_VERSIONS = ("dcsurv", "torch", "numpy", "scikit-learn", "lifelines")


@dataclass(frozen=True)
class TaskResult:
    """What became of a task: its row and curves, or why there are none."""

    key: str
    row: Row | None = None
    curves: SurvivalCurves | None = None
    failure: Row | None = None


class Results:
    """The rows of a plan, as :func:`run` returns them.

    Parameters
    ----------
    store : ResultStore
        The folder with the results.
    tasks : sequence of Task
        The tasks of the plan.

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

    def __init__(self, store: ResultStore, tasks: Sequence[Task]) -> None:
        self._store = store
        found = [(task, store.read(task.key)) for task in tasks]
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
    if workers < 1:
        raise PlanError(f"workers is {workers}, but at least 1 is needed.")
    if cluster is not None and workers != 1:
        raise PlanError("workers and cluster exclude each other: a cluster has its own workers.")
    tasks = plan.tasks()
    store = ResultStore(folder)
    store.prepare()
    with store.locked(), _executor(workers, cluster) as execute_all:
        store.remove_leftovers()
        pending = [task for task in tasks if store.read(task.key) is None]
        pending.sort(key=lambda task: -task.cost)
        with _TaskBar(tasks, pending, shown=progress) as bar:
            for outcome in execute_all(pending):
                if outcome.failure is not None:
                    store.write_failure(outcome.key, outcome.failure)
                else:
                    assert outcome.row is not None
                    assert outcome.curves is not None
                    store.write(outcome.key, outcome.row, outcome.curves)
                bar.advance(outcome)
    return Results(store, tasks)


def execute(task: Task) -> TaskResult:
    """Fit, predict and evaluate one task on one thread; a failure is returned, not raised."""
    try:
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            row, curves = _execute(task)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        return TaskResult(task.key, failure={"cause": cause, "traceback": traceback.format_exc()})
    return TaskResult(task.key, row, curves)


def _execute(task: Task) -> tuple[Row, SurvivalCurves]:
    X, y = load(task.dataset)
    train, test = train_test_indices(y, random_state=task.split)
    begin = time.perf_counter()
    model = task.estimator.fit(X.iloc[train], y[train])
    if getattr(model, "training_summary_", {}).get("stopped_by") == "interrupt":
        raise KeyboardInterrupt  # a model cut short must not be kept as a result
    fitted = time.perf_counter()
    curves = model.predict_survival_function(X.iloc[test])
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
        "default": evaluate(y, curves, y_train, n_bootstrap, X=X),
        "marginal": evaluate(y, curves, y_train, censoring="marginal", metrics=weighted),
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
            for part in ("mean", "sd", "lower", "upper"):
                if part in record:
                    out[f"{name} {part}"] = record[part]
    return {**out, "key": row["key"], "split_sha256": row["split_sha256"]}


@contextlib.contextmanager
def _executor(workers: int, cluster: str | None) -> Iterator[Any]:
    """Yield a function that runs tasks and yields their outcomes as they come."""
    if cluster is None:
        yield lambda tasks: _on_this_machine(tasks, workers)
        return
    with connected(cluster, PlanError) as client:
        yield lambda tasks: _on_cluster(tasks, client)


def _on_cluster(tasks: Sequence[Task], client: Any) -> Iterator[TaskResult]:
    """Run tasks on a Dask cluster; one that takes its workers down with it becomes a failure.

    Not through joblib, whose Dask backend waits forever for a task that killed its worker.
    """
    from distributed import as_completed

    futures = {client.submit(execute, task, key=f"{task.key}-{uuid.uuid4().hex}"): task for task in tasks}
    for future in as_completed(futures):  # type: ignore[no-untyped-call]
        if future.status == "finished":
            yield future.result()
        else:
            error = future.exception()
            yield TaskResult(futures[future].key, failure={"cause": f"its worker died: {error}", "traceback": ""})
        future.release()


def _on_this_machine(tasks: Sequence[Task], workers: int) -> Iterator[TaskResult]:
    from dcsurv.experiments.processes import TerminatedWorkerError, dumps

    if workers == 1:
        yield from map(execute, tasks)
        return
    waiting = {}
    for task in tasks:
        try:
            dumps(task)
            waiting[task.key] = task
        except Exception as error:  # pickling runs code of any kind of object
            cause = f"it cannot be sent to another process ({error}); run it with workers=1"
            yield TaskResult(task.key, failure={"cause": cause, "traceback": ""})
    while waiting:
        try:
            for outcome in _with_joblib(list(waiting.values()), n_jobs=workers):
                del waiting[outcome.key]
                yield outcome
        except TerminatedWorkerError as error:
            # A process died (out of memory, killed), and with it the pool. The task that did it is one of the
            # first that are still waiting: give each of those a process of its own to find out which.
            for task in list(waiting.values())[: 2 * workers]:
                try:
                    outcome = next(_with_joblib([task], n_jobs=2))
                except TerminatedWorkerError:
                    cause = f"its process died (out of memory, or killed): {str(error).splitlines()[0]}"
                    outcome = TaskResult(task.key, failure={"cause": cause, "traceback": ""})
                del waiting[task.key]
                yield outcome


def _with_joblib(tasks: Sequence[Task], *, n_jobs: int) -> Iterator[TaskResult]:
    import joblib

    with joblib.parallel_config(backend="loky", n_jobs=n_jobs, inner_max_num_threads=1):
        pool = joblib.Parallel(return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1)
        yield from pool(joblib.delayed(execute)(task) for task in tasks)


class _TaskBar:
    """A bar over the estimated work, with the time that is left."""

    def __init__(self, tasks: Sequence[Task], pending: Sequence[Task], *, shown: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._costs = {task.key: task for task in pending}
        self._total = sum(task.cost for task in pending)
        self._done = 0.0
        self._count = len(tasks) - len(pending)
        self._begin = time.monotonic()
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
            disable=not shown,
        )
        kept = f", {self._count} kept from before" if self._count else ""
        self._task = self._bar.add_task(f"tasks{kept}", total=len(tasks), completed=self._count, left="")

    def __enter__(self) -> _TaskBar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, outcome: TaskResult) -> None:
        task = self._costs[outcome.key]
        self._done += task.cost
        spent = time.monotonic() - self._begin
        left = spent * (self._total - self._done) / self._done
        if outcome.failure is not None and not self._bar.disable:
            name = f"{task.model} on {task.dataset}, split {task.split}"
            text = f"failed: {name}: {outcome.failure['cause']}"
            self._bar.console.print(text, style="red", markup=False, highlight=False)
        self._bar.update(self._task, advance=1, left=f"about {left / 60:.0f} min left" if left > 90 else "")
