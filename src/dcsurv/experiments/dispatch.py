"""Where tasks run: in this process, in several, or on a cluster; each result is kept as soon as it is there."""

from __future__ import annotations

import contextlib
import time
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from dcsurv.curves import SurvivalCurves
from dcsurv.experiments.plan import PlanError
from dcsurv.experiments.store import ResultStore, Row
from dcsurv.messages import about_left, cause_of
from dcsurv.parallel import connected, in_each_process
from dcsurv.training import one_thread

# Seconds between two lines of progress where there is no terminal.
_LINE_EVERY = 20.0


class Job(Protocol):
    """What can be run: one independent task that knows its name on disk and for people, and about what it costs."""

    @property
    def key(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def cost(self) -> float: ...


# Makes the row of a task, and its curves where they are to be kept. It goes to other processes by its name.
Work: TypeAlias = Callable[[Any], tuple[Row, SurvivalCurves | None]]


@dataclass(frozen=True)
class TaskResult:
    """What became of a task: its row and curves, or why there are none."""

    key: str
    row: Row | None = None
    curves: SurvivalCurves | None = None
    failure: Row | None = None


def check_options(workers: int, cluster: str | None) -> None:
    """Raise PlanError if this is no place to run tasks."""
    if workers < 1:
        raise PlanError(f"workers is {workers}, but at least 1 is needed.")
    if cluster is not None and workers != 1:
        raise PlanError("workers and cluster exclude each other: a cluster has its own workers.")


def run_all(
    tasks: Sequence[Job],
    work: Work,
    store: ResultStore,
    *,
    workers: int = 1,
    cluster: str | None = None,
    progress: bool = False,
) -> None:
    """Run the tasks that have no result in the store yet, long ones first; failures are stored, too."""
    store.prepare()
    with store.locked(), _executor(workers, cluster, work) as execute_all:
        store.remove_leftovers()
        pending = [task for task in tasks if store.read(task.key) is None]
        pending.sort(key=lambda task: -task.cost)
        with _TaskBar(tasks, pending, shown=progress) as bar:
            for outcome in execute_all(pending):
                if outcome.failure is not None:
                    store.write_failure(outcome.key, outcome.failure)
                else:
                    assert outcome.row is not None
                    store.write(outcome.key, outcome.row, outcome.curves)
                bar.advance(outcome)


def attempt(work: Work, task: Job) -> TaskResult:
    """Do the work of one task on one thread; a failure is returned, not raised."""
    try:
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            row, curves = work(task)
    except Exception as error:
        return TaskResult(task.key, failure={"cause": cause_of(error), "traceback": traceback.format_exc()})
    return TaskResult(task.key, row, curves)


@contextlib.contextmanager
def _executor(workers: int, cluster: str | None, work: Work) -> Iterator[Any]:
    """Yield a function that runs tasks and yields their outcomes as they come."""
    if cluster is None:
        yield lambda tasks: _on_this_machine(tasks, workers, work)
        return
    with connected(cluster, PlanError) as client:
        yield lambda tasks: _on_cluster(tasks, client, work)


def _on_cluster(tasks: Sequence[Job], client: Any, work: Work) -> Iterator[TaskResult]:
    """Run tasks on a Dask cluster; one that takes its workers down with it becomes a failure.

    A result that goes down with its worker, before it was fetched, is waited for: the cluster computes it again.

    Not through joblib, whose Dask backend waits forever for a task that killed its worker.
    """
    from distributed import as_completed

    futures = {client.submit(attempt, work, task, key=f"{task.key}-{uuid.uuid4().hex}"): task for task in tasks}
    for future in as_completed(futures):  # type: ignore[no-untyped-call]
        try:
            outcome = future.result()
        except Exception as error:
            cause = f"its worker died: {error}"
            outcome = TaskResult(futures[future].key, failure={"cause": cause, "traceback": ""})
        yield outcome
        future.release()


def _on_this_machine(tasks: Sequence[Job], workers: int, work: Work) -> Iterator[TaskResult]:
    from dcsurv.experiments.processes import TerminatedWorkerError, dumps

    if workers == 1:
        yield from (attempt(work, task) for task in tasks)
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
            for outcome in _with_joblib(list(waiting.values()), work, n_jobs=workers):
                del waiting[outcome.key]
                yield outcome
        except TerminatedWorkerError as error:
            # A process died (out of memory, killed), and with it the pool. The task that did it is one of the
            # first that are still waiting: give each of those a process of its own to find out which.
            for task in list(waiting.values())[: 2 * workers]:
                try:
                    outcome = next(_with_joblib([task], work, n_jobs=2))
                except TerminatedWorkerError:
                    cause = f"its process died (out of memory, or killed): {str(error).splitlines()[0]}"
                    outcome = TaskResult(task.key, failure={"cause": cause, "traceback": ""})
                del waiting[task.key]
                yield outcome


def _with_joblib(tasks: Sequence[Job], work: Work, *, n_jobs: int) -> Iterator[TaskResult]:
    import joblib

    with joblib.parallel_config(backend="loky", n_jobs=n_jobs, inner_max_num_threads=1):
        how = in_each_process()
        pool = joblib.Parallel(return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1, **how)
        yield from pool(joblib.delayed(attempt)(work, task) for task in tasks)


class _TaskBar:
    """A bar over the estimated work, with the time that is left; where there is no terminal, a line now and then."""

    def __init__(self, tasks: Sequence[Job], pending: Sequence[Job], *, shown: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._said = self._begin = time.monotonic()
        self._costs = {task.key: task for task in pending}
        self._total = sum(task.cost for task in pending)
        self._done = 0.0
        self._count, self._all = len(tasks) - len(pending), len(tasks)
        console = Console(stderr=True)
        self._lines = shown and not console.is_terminal
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=not shown or self._lines,
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
        self._count += 1
        now = time.monotonic()
        left = (now - self._begin) * (self._total - self._done) / self._done
        if outcome.failure is not None and (self._lines or not self._bar.disable):
            text = f"failed: {task.label}: {outcome.failure['cause']}"
            self._bar.console.print(text, style="red", markup=False, highlight=False)
        about = about_left(left)
        self._bar.update(self._task, advance=1, left=about)
        if self._lines and (now - self._said > _LINE_EVERY or self._count == self._all):
            self._said = now
            text = f"{self._count} of {self._all} tasks" + ("" if self._count == self._all else f", {about}")
            self._bar.console.print(text, markup=False, highlight=False)
