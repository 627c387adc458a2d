"""Training: one loop for every network.

Names are imported when they are first used: who only counts threads need not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dcsurv.training.history import History
    from dcsurv.training.loop import (
        VALIDATION_BATCH,
        BatchLoss,
        evaluate,
        isolated_torch,
        train,
        validation_split,
    )
    from dcsurv.training.stacked import StackedLoss, Trainee, train_together
    from dcsurv.training.threads import one_thread
    from dcsurv.training.watching import Watcher, watch

__all__ = [
    "VALIDATION_BATCH",
    "BatchLoss",
    "History",
    "StackedLoss",
    "Trainee",
    "Watcher",
    "evaluate",
    "isolated_torch",
    "one_thread",
    "train",
    "train_together",
    "validation_split",
    "watch",
]

_ROOM_OF = {
    "History": "history",
    "StackedLoss": "stacked",
    "Trainee": "stacked",
    "Watcher": "watching",
    "one_thread": "threads",
    "train_together": "stacked",
    "watch": "watching",
}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"dcsurv.training.{_ROOM_OF.get(name, 'loop')}"), name)
    raise AttributeError(f"module 'dcsurv.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
