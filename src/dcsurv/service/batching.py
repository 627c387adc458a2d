"""Requests that wait are predicted together: a hundred patients take hardly longer than one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np

from dcsurv.service.asking import Asked, How
from dcsurv.service.served import PIECE, Columns, Predicted, ServedModel

# From so many patients on, a second thread is worth its share of the interpreter.
_LARGE: Final = 256


@dataclass(eq=False)
class _Waiting:
    """Patients of one request, or a part of them, and who waits for them."""

    values: Columns
    patients: int
    done: asyncio.Future[Predicted]


class Batcher:
    """Predicts the patients of all requests that wait for the same model and question in one go.

    Requests are taken in the order in which the first of their kind came. Small groups run one at a time, so that
    what comes meanwhile gathers for the next; large ones use a second thread.

    Parameters
    ----------
    threads : int
        How many groups are predicted at the same time.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="dcsurv-predict")
        self._waiting: dict[tuple[ServedModel, How], list[_Waiting]] = {}
        self._running, self._small = 0, 0

    async def predict(self, served: ServedModel, asked: Asked) -> Predicted:
        """Return the predictions for a request, once its turn has come."""
        loop = asyncio.get_running_loop()
        group = self._waiting.setdefault((served, asked.how), [])
        items = []
        for start in range(0, len(asked), PIECE):
            stop = min(start + PIECE, len(asked))
            whole = stop - start == len(asked)
            values = asked.values if whole else {name: one[start:stop] for name, one in asked.values.items()}
            items.append(_Waiting(values, stop - start, loop.create_future()))
        group += items
        self._begin()
        try:
            return Predicted.joined([await item.done for item in items])
        finally:
            for item in items:
                if not item.done.cancel() and not item.done.cancelled():
                    item.done.exception()  # looked at: otherwise asyncio logs its text, which may hold a value

    def close(self) -> None:
        """End the threads, after what they are at."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        """Start groups while there are threads for them."""
        for key in list(self._waiting):
            while self._running < self._threads and key in self._waiting and (group := self._next(key)):
                self._start(key, group)

    def _next(self, key: tuple[ServedModel, How]) -> list[_Waiting]:
        """Take the next group of a kind, if it may run now."""
        waiting = self._waiting[key]
        chosen: list[_Waiting] = []
        rows = taken = 0
        for item in waiting:
            if rows and rows + item.patients > PIECE:
                break
            taken += 1
            if not item.done.done():  # nobody waits for it any more
                chosen.append(item)
                rows += item.patients
        if chosen and rows < _LARGE and self._small:
            return []
        del waiting[:taken]
        if not waiting:
            del self._waiting[key]
        return chosen

    def _start(self, key: tuple[ServedModel, How], group: list[_Waiting]) -> None:
        small = sum(item.patients for item in group) < _LARGE
        self._running += 1
        self._small += small
        served, how = key
        running = asyncio.get_running_loop().run_in_executor(self._pool, _predicted, served, how, group)

        def ended(found: asyncio.Future[list[Predicted | Exception]]) -> None:
            self._running -= 1
            self._small -= small
            self._begin()
            results = [None] * len(group) if found.cancelled() else found.result()
            for item, one in zip(group, results, strict=True):
                if item.done.done():
                    continue
                if one is None:
                    item.done.cancel()
                elif isinstance(one, Exception):
                    item.done.set_exception(one)
                else:
                    item.done.set_result(one)

        running.add_done_callback(ended)


def _predicted(served: ServedModel, how: How, group: Sequence[_Waiting]) -> list[Predicted | Exception]:
    """Predict a group; if that fails, its halves, so that nobody fails because of what somebody else has sent."""
    values = group[0].values
    try:
        if len(group) > 1:
            values = {name: np.concatenate([item.values[name] for item in group]) for name in values}
        found = served.predict(values, how)
    except Exception as error:
        if len(group) == 1:
            return [error]
        middle = len(group) // 2
        return [*_predicted(served, how, group[:middle]), *_predicted(served, how, group[middle:])]
    stops = np.cumsum([item.patients for item in group]).tolist()
    return [found.part(stop - item.patients, stop) for item, stop in zip(group, stops, strict=True)]
