"""Where trials run: in this process, in others on this machine, or on a Dask cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, wait
from typing import Any, TypeAlias

from dcsurv.experiments.tuning.trials import Steps, TrialResult, TrialRunner
from dcsurv.parallel import connected, in_each_process
from dcsurv.search_space import TuningError

# submit(settings, bars) -> the future outcome.
Submit: TypeAlias = Callable[[Mapping[str, Any], Steps], "Future[TrialResult]"]


class Workers:
    """Some places for trials, each of which runs one at a time.

    Attributes
    ----------
    places
        By number, how to run a trial there.
    """

    def __init__(
        self, places: list[Submit], repair: Callable[[int], None] | None = None, apart: Submit | None = None
    ) -> None:
        self.places = places
        self._repair, self._apart = repair, apart

    def submit(self, place: int, settings: Mapping[str, Any], bars: Steps, losses: int) -> Future[TrialResult]:
        """Run a trial; one that was lost with its process gets one of its own, should it have been the cause."""
        run = self.places[place] if self._apart is None or losses == 0 else self._apart
        return run(settings, bars)

    def outcome(self, place: int, future: Future[TrialResult]) -> TrialResult:
        """Return what a trial became; one that took its process down is a failure, and its place is made anew."""
        error = future.exception()
        if error is None:
            return future.result()
        if self._repair is not None:
            self._repair(place)
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return TrialResult("failed", float("nan"), cause=f"its process died (out of memory, or killed): {reason}")


@contextlib.contextmanager
def make_workers(evaluation: TrialRunner, workers: int, cluster: str | None) -> Iterator[Workers]:
    """Yield the places for trials and close them in the end, also when it comes early."""
    if cluster is not None:
        with connected(cluster, TuningError) as client:
            # Sent once, not with every trial.
            shared = client.scatter(evaluation, broadcast=True)
            executor = client.get_executor(pure=False, retries=0)

            def on_cluster(settings: Mapping[str, Any], bars: Steps) -> Future[TrialResult]:
                return executor.submit(_run, shared, settings, bars)

            yield Workers([on_cluster] * len(client.scheduler_info()["workers"]))
    elif workers == 1:

        def apart(settings: Mapping[str, Any], bars: Steps) -> Future[TrialResult]:
            with contextlib.contextmanager(_processes)(evaluation, 1) as one:
                future = one.places[0](settings, bars)
                wait([future])
            return future

        yield Workers([lambda settings, bars: _finished(evaluation.run(settings, bars))], apart=apart)
    else:
        yield from _processes(evaluation, workers)


def _processes(evaluation: TrialRunner, workers: int) -> Iterator[Workers]:
    """Yield one executor per process, so that a process that dies takes nothing but its own trial along."""
    from dcsurv.experiments.processes import ProcessPoolExecutor

    def start() -> Executor:
        threads = dict.fromkeys(
            ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
        )
        first = in_each_process()
        options = {"initializer": _adopt, "initargs": (evaluation, first), "env": threads}
        return ProcessPoolExecutor(max_workers=1, **options)

    def place(number: int) -> Submit:
        return lambda settings, bars: executors[number].submit(_run_adopted, settings, bars)

    def repair(number: int) -> None:
        executors[number].shutdown(wait=False)
        executors[number] = start()

    executors = [start() for _ in range(workers)]
    try:
        yield Workers([place(number) for number in range(workers)], repair)
    finally:
        for executor in executors:
            executor.shutdown(wait=True, kill_workers=True)  # type: ignore[call-arg]


def _finished(outcome: TrialResult) -> Future[TrialResult]:
    future: Future[TrialResult] = Future()
    future.set_result(outcome)
    return future


def _run(evaluation: TrialRunner, settings: Mapping[str, Any], bars: Steps) -> TrialResult:
    return evaluation.run(settings, bars)


# What a process of this machine was started for.
_adopted: TrialRunner | None = None


def _adopt(evaluation: TrialRunner, first: Mapping[str, Any]) -> None:
    global _adopted
    first["initializer"](*first["initargs"])
    _adopted = evaluation


def _run_adopted(settings: Mapping[str, Any], bars: Steps) -> TrialResult:
    assert _adopted is not None
    return _adopted.run(settings, bars)
