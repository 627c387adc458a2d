"""Training: one loop for every network."""

from dcsurv.training.history import History
from dcsurv.training.loop import BatchLoss, evaluate, isolated_rng, train, validation_split

__all__ = ["BatchLoss", "History", "evaluate", "isolated_rng", "train", "validation_split"]
