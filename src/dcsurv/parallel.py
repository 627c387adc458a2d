"""Where independent tasks run: in this process, in several, or on a Dask cluster; and how long the rest will take."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final, TypeAlias

from dcsurv.messages import InputError, needs_extra

_ANSWER_WITHIN: Final = "10s"
# So often is work sent again whose data went down with the workers that held them.
_ATTEMPTS: Final = 4
# Bytes from which an array travels by itself, not inside a task.
_LARGE: Final = 1_000_000

# Seconds between two looks of a process after the one that started it.
_LOOK_EVERY: Final = 1.0

# A function, its arguments and its keyword arguments, as ``joblib.delayed`` makes it.
Call: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
# What takes about as long: the same function for the same kind of object.
_Kind: TypeAlias = tuple[str, str]
# watcher(done, total, seconds): called after every task, with about how long the rest will take, None if not known yet.
TaskWatcher: TypeAlias = Callable[[int, int, float | None], None]
# Number, seconds and result of each task as soon as it is done.
_Done: TypeAlias = Generator[tuple[int, float, Any], None, None]


class ClusterError(InputError):
    """A cluster does not answer, or gives up a task.

    Parameters
    ----------
    message : str
        What was wrong and what arrived.
    parameter : str or None, default None
        The parameter concerned, if it is one.
    remedy : str, default ""
        What to do.
    """


@dataclass(frozen=True)
class _Place:
    """Where tasks run, who is told, and how long each kind has taken here."""

    client: Any = None
    watcher: TaskWatcher | None = None
    seconds: dict[_Kind, float] | None = None


_HERE: Final = _Place()
_place: ContextVar[_Place] = ContextVar("dcsurv_place", default=_HERE)


@contextlib.contextmanager
def on_cluster(address: str) -> Iterator[None]:
    """Run what is fitted inside the block on a Dask cluster: members, folds and bootstrap refits of an ensemble.

    Results are the same bits as on one machine. A worker that dies costs time only: its tasks go to others. Data go to
    each worker once. ``n_jobs`` of the model does not count inside the block.

    Parameters
    ----------
    address : str
        Dask's scheduler, such as ``"tcp://host:8786"``. Its workers need the same version of dcsurv, and
        serve best with one thread each.

    Raises
    ------
    ClusterError
        If no scheduler answers, or it has no workers.

    See Also
    --------
    dcsurv.validate, dcsurv.tune : Take the address as ``cluster=``.

    Examples
    --------
    >>> import dcsurv
    >>> with dcsurv.on_cluster("tcp://host:8786"):  # doctest: +SKIP
    ...     model = dcsurv.CalibratedEnsemble(random_state=0).fit(X, y)
    """
    with connected(address, ClusterError) as client, _placed(client=client):
        yield


@contextlib.contextmanager
def watch_tasks(watcher: TaskWatcher) -> Iterator[None]:
    """Call ``watcher(done, total, seconds)`` after every task of the fits inside the block.

    Parameters
    ----------
    watcher : callable
        Is told how many tasks are done, out of how many, and about how many seconds the others will take: None until
        one task of each kind is done.
    """
    with _placed(watcher=watcher, seconds={}):
        yield


@contextlib.contextmanager
def _placed(**changed: Any) -> Iterator[None]:
    token = _place.set(replace(_place.get(), **changed))
    try:
        yield
    finally:
        _place.reset(token)


@contextlib.contextmanager
def connected(cluster: str, refusal: type[ValueError]) -> Iterator[Any]:
    """Yield a client of the scheduler at an address; raise ``refusal`` in words if there is none that can work."""
    with needs_extra("A Dask cluster", "cluster"):
        from distributed import Client
    try:
        client = Client(cluster, timeout=_ANSWER_WITHIN)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        why = str(error).rstrip(".")
        raise refusal(
            f"no Dask scheduler answers at {cluster}: {why}. Correct the address, or start one: dask scheduler"
        ) from error
    with client:
        if not client.scheduler_info()["workers"]:
            raise refusal(f"the Dask scheduler at {cluster} has no workers. Start some: dask worker {cluster}")
        yield client


def run_tasks(tasks: Sequence[Call], n_jobs: int | None) -> list[Any]:
    """Run independent tasks and return their results in the order of the tasks.

    Where they run changes nothing else: in this process with one job, otherwise in so many processes, and on the
    cluster of :func:`on_cluster` inside its block. One task of each kind runs first, so that the time of the others is
    known early. Tasks that start tasks of their own run those one after the other.
    """
    place = _place.get()
    kinds = [_kind(task) for task in tasks]
    order = _one_of_each_kind_first(kinds)
    waiting = Counter(kinds)
    results: list[Any] = [None] * len(tasks)
    taken = {} if place.seconds is None else place.seconds
    worked = 0.0
    begin = time.perf_counter()
    queue = [(number, tasks[number]) for number in order]
    run = _in_processes(queue, n_jobs) if place.client is None else _on_cluster(queue, place.client)
    with contextlib.closing(run):
        for done, (number, seconds, result) in enumerate(run, start=1):
            results[number] = result
            taken[kinds[number]] = seconds
            waiting[kinds[number]] -= 1
            worked += seconds
            if place.watcher is not None:
                left = time_left(waiting, taken, worked, time.perf_counter() - begin)
                place.watcher(done, len(tasks), left)
    return results


def results_of(tasks: Sequence[Call]) -> Iterator[Any]:
    """Run independent tasks and yield each result as soon as it is there, in any order.

    One after the other in this process, or on the cluster of :func:`on_cluster` inside its block.

    Parameters
    ----------
    tasks
        Functions with their arguments.
    """
    place, queue = _place.get(), list(enumerate(tasks))
    run = _in_processes(queue, 1) if place.client is None else _on_cluster(queue, place.client)
    with contextlib.closing(run):
        yield from (result for _, _, result in run)


def in_each_process() -> dict[str, Any]:
    """Return what joblib and loky are to do first in every process: see :func:`_begin`."""
    return {"initializer": _begin, "initargs": (os.getpid(),)}


def _begin(parent: int) -> None:
    """Let this process end, whatever it is doing, soon after the process that started it, and import torch.

    A process whose parent was killed would work on, and then wait for more work, for a quarter of an hour. And a
    process that has grown a lot since its first task, as by importing torch, is taken for one that leaks, and ended.
    """

    def look() -> None:
        # Not the signal that Linux offers for this: it also comes when just the thread ends that started a process.
        while os.getppid() == parent:
            time.sleep(_LOOK_EVERY)
        os._exit(1)

    threading.Thread(target=look, daemon=True, name="dcsurv-looks-after-parent").start()
    try:
        import_module("torch")
    except KeyboardInterrupt:  # the process that started it is interrupted, too, and says so
        os._exit(1)


def time_left(waiting: Counter[_Kind], seconds: dict[_Kind, float], worked: float, elapsed: float) -> float | None:
    """Return about how long the waiting tasks will take, if they go on side by side as those before did.

    Parameters
    ----------
    waiting
        How many tasks of each kind.
    seconds
        How long the last one of each kind took.
    worked
        Seconds of all tasks that are done, together.
    elapsed
        Seconds that they took here.
    """
    kinds = [kind for kind, number in waiting.items() if number]
    if any(kind not in seconds for kind in kinds):
        return None
    return sum(waiting[kind] * seconds[kind] for kind in kinds) * elapsed / max(worked, 1e-9)


def _kind(task: Call) -> _Kind:
    function, arguments, _ = task
    first = next(_leaves(arguments), None)
    return function.__qualname__, type(first).__name__


def _one_of_each_kind_first(kinds: Sequence[_Kind]) -> list[int]:
    seen: Counter[_Kind] = Counter()
    place = []
    for number, kind in enumerate(kinds):
        place.append((seen[kind] > 0, number))
        seen[kind] += 1
    return [number for _, number in sorted(place)]


def _timed(number: int, task: Call) -> tuple[int, float, Any]:
    """Run one task; what it starts itself stays in its process and is not reported."""
    function, arguments, keywords = task
    begin = time.perf_counter()
    with _placed(client=None, watcher=None, seconds=None):
        result = function(*arguments, **keywords)
    return number, time.perf_counter() - begin, result


def _in_processes(queue: Sequence[tuple[int, Call]], n_jobs: int | None) -> _Done:
    import joblib

    # Large arrays reach the processes as one file in memory that all of them share.
    pool = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered", **in_each_process())
    yield from pool(joblib.delayed(_timed)(number, task) for number, task in queue)


def _on_cluster(queue: Sequence[tuple[int, Call]], client: Any) -> _Done:
    """Run tasks on a Dask cluster.

    Not through joblib, whose Dask backend waits forever for a task that killed its worker.
    """
    from distributed import as_completed

    waiting = dict(queue)
    for _ in range(_ATTEMPTS):
        sent = _send_once(list(waiting.values()), client)
        futures = {
            client.submit(_called, number, task[0], task[2], *_with_sent(task[1], sent), pure=False): number
            for number, task in waiting.items()
        }
        try:
            for future in as_completed(futures):  # type: ignore[no-untyped-call]
                if future.status == "finished":
                    del waiting[futures[future]]
                    yield future.result()
                elif future.status == "error":
                    raise _said(future.exception())
        finally:  # also after Ctrl-C: what has not begun will not
            client.cancel(list(futures))
        if not waiting:
            return
    raise ClusterError(f"the Dask cluster lost its workers {_ATTEMPTS} times. Look at their logs, and start others.")


def _called(number: int, function: Callable[..., Any], keywords: dict[str, Any], *arguments: Any) -> Any:
    return _timed(number, (function, arguments, keywords))


def _said(error: BaseException) -> BaseException:
    """Return an error of a task; if it took its workers down, in words."""
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return ClusterError(f"a task took its workers down (out of memory?): {error} Give workers more memory.")
    return error


def _send_once(tasks: Sequence[Call], client: Any) -> dict[int, Any]:
    """Send what several tasks share, and what is large, to the workers; return what stands for each, by its id."""
    leaves = [one for _, arguments, _ in tasks for one in _leaves(arguments)]
    objects, uses = {id(one): one for one in leaves}, Counter(map(id, leaves))
    travels = [
        key
        for key, one in objects.items()
        if not isinstance(one, str | int | float | None) and (uses[key] > 1 or getattr(one, "nbytes", 0) > _LARGE)
    ]
    # By broadcast, so that the death of one worker does not take the only copy with it.
    sent = client.scatter([objects[key] for key in travels], broadcast=True, hash=False) if travels else []
    return dict(zip(travels, sent, strict=True))


def _leaves(value: Any) -> Iterator[Any]:
    """Yield what lists and tuples hold, however deep."""
    if type(value) in (list, tuple):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


def _with_sent(value: Any, sent: dict[int, Any]) -> Any:
    """Return an argument in which what was sent stands for what it is."""
    if type(value) in (list, tuple):
        return type(value)(_with_sent(one, sent) for one in value)
    return sent.get(id(value), value)
