"""Training: one loop for every network."""

from dcsurv.training.history import History
from dcsurv.training.loop import (
    VALIDATION_BATCH,
    BatchLoss,
    Watcher,
    evaluate,
    isolated_torch,
    train,
    validation_split,
    watch,
)
from dcsurv.training.stacked import StackedLoss, Trainee, train_together
from dcsurv.training.threads import one_thread

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
