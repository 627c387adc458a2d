"""Who is told after every epoch of a training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from dcsurv.training.history import History

# watcher(epoch, history): called after every epoch; what it raises ends the training.
Watcher: TypeAlias = Callable[[int, History], None]
_watcher: ContextVar[Watcher | None] = ContextVar("dcsurv_watcher", default=None)


@contextmanager
def watch(watcher: Watcher) -> Iterator[None]:
    """Call ``watcher(epoch, history)`` after every epoch of the trainings inside the block.

    It may look at the network, which the next epoch puts back into training mode, and it may end the training by
    raising. No estimator needs a parameter for it, and trainings in other threads and processes are not watched.

    Parameters
    ----------
    watcher : callable
        ``watcher(epoch, history)``.
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def current_watcher() -> Watcher | None:
    """Return who watches the trainings of this context, if anybody does."""
    return _watcher.get()
