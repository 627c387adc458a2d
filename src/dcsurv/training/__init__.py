"""Training: one loop for every network."""

from dcsurv.training.history import History
from dcsurv.training.loop import BatchLoss, evaluate, isolated_torch, train, validation_split
from dcsurv.training.threads import one_thread

__all__ = ["BatchLoss", "History", "evaluate", "isolated_torch", "one_thread", "train", "validation_split"]
