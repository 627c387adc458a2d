"""The training loop of many networks at once: each with its own rows, early stopping and best weights."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from dcsurv.losses import StackedOutcomes
from dcsurv.networks import EncoderDecoder, NetworksInTraining
from dcsurv.target import IntArray
from dcsurv.training.history import History
from dcsurv.training.loop import VALIDATION_BATCH, finite
from dcsurv.training.watching import current_watcher

# loss(outputs, patients, with_gradient): of M networks, (M,), and the gradient with respect to the outputs.
StackedLoss: TypeAlias = Callable[[Tensor, StackedOutcomes, bool], tuple[Tensor, Tensor | None]]


@dataclass(frozen=True)
class Trainee:
    """One of the networks that are trained together.

    Parameters
    ----------
    network : EncoderDecoder
        Trained in place.
    rows : array of int
        Its rows of the features.
    patients : StackedOutcomes
        Outcomes and weights of these rows, (rows,) each.
    training : array of int
        Which of them to train on.
    validation : array of int
        Which of them are set aside for early stopping; may be none.
    seed : int
        Of the order of the rows and of dropout.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from dcsurv.losses import StackedOutcomes
    >>> from dcsurv.networks import EncoderDecoder
    >>> from dcsurv.training import Trainee
    >>> outcomes = torch.zeros(4, dtype=torch.long), torch.ones(4, dtype=torch.bool), torch.ones(4), torch.ones(4)
    >>> one = EncoderDecoder(2, 3, decoder_layers=0)
    >>> Trainee(one, np.arange(4), StackedOutcomes.of(*outcomes), np.arange(3), np.arange(3, 4), seed=0).training
    array([0, 1, 2])
    """

    network: EncoderDecoder
    rows: IntArray
    patients: StackedOutcomes
    training: IntArray
    validation: IntArray
    seed: int


def train_together(
    trainees: Sequence[Trainee],
    X: Tensor,
    loss: StackedLoss,
    *,
    epoch_rows: int,
    batch_size: int = 64,
    max_epochs: int = 100,
    patience: int = 10,
    learning_rate: float = 1e-3,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
) -> list[History]:
    """Train networks of one kind in place, all in one pass, and leave each with the weights of its best epoch.

    What becomes of a network does not depend on its companions, except for how sums are rounded: it has its own
    rows, order, dropout, early stopping and best weights. A network that has ended leaves the stack.

    Parameters
    ----------
    trainees : sequence of Trainee
        The networks and their rows.
    X : Tensor
        Features of all rows, (n, F), single precision.
    loss : callable
        ``loss(outputs, patients, with_gradient)``, of all networks and its gradient.
    epoch_rows : int
        Most rows of an epoch. Where there are more to train on, an epoch goes on where the one before it ended, so
        that what a plateau costs does not grow with the rows.
    batch_size : int, default 64
        Rows per step of each network.
    max_epochs : int, default 100
        Largest number of epochs.
    patience : int, default 10
        A network's training ends after this many epochs without a better one.
    learning_rate : float, default 0.001
        Step size of Adam.
    weight_decay : float, default 0.0
        Decoupled from the gradient (AdamW).
    clip_norm : float or None, default None
        Longest gradient of a network; longer ones are scaled down. None: no limit.

    Returns
    -------
    list of History
        One per network. The seconds are those of all networks of its stack.

    Raises
    ------
    FloatingPointError
        If a loss is no longer a finite number.
    """
    # Only networks with batches of the same shape make a stack, so that nobody's dropout depends on companions.
    groups: dict[tuple[_Batches, _Batches, Any], list[int]] = {}
    for k, one in enumerate(trainees):
        shapes = tuple(value.shape for value in one.network.state_dict().values())
        training = _Batches.of(min(len(one.training), epoch_rows), batch_size)
        validation = _Batches.of(len(one.validation), VALIDATION_BATCH)
        groups.setdefault((training, validation, shapes), []).append(k)
    out: dict[int, History] = {}
    for (training, validation, _), group in groups.items():
        run = _Run([trainees[k] for k in group], X, loss, training, validation, epoch_rows)
        out |= dict(zip(group, run.train(max_epochs, patience, learning_rate, weight_decay, clip_norm), strict=True))
    return [out[k] for k in range(len(trainees))]


class _Batches(NamedTuple):
    """Into how many batches rows are dealt, and the rows of the largest."""

    number: int
    size: int

    @classmethod
    def of(cls, n: int, batch_size: int) -> _Batches:
        """Deal n rows, so that no batch has a single row if it can be."""
        if n == 0:
            return cls(0, 0)
        number = min(math.ceil(n / batch_size), max(1, n // 2))
        return cls(number, math.ceil(n / number))


class _Run:
    """A stack in training. Networks that have ended are in ``trainees``, but no longer in the stack."""

    def __init__(
        self,
        trainees: Sequence[Trainee],
        X: Tensor,
        loss: StackedLoss,
        training: _Batches,
        validation: _Batches,
        epoch_rows: int,
    ) -> None:
        self.trainees, self.X, self.loss = trainees, X, loss
        self.stack = NetworksInTraining([one.network for one in trainees])
        self.active = list(range(len(trainees)))
        self.rngs = [np.random.Generator(np.random.SFC64(one.seed)) for one in trainees]
        self.batches = training
        self.epoch_rows = [min(len(one.training), epoch_rows) for one in trainees]
        self.waiting: list[IntArray] = [np.arange(0) for _ in trainees]
        self.held_out = None
        if validation.number:
            self.held_out = self._deal([one.validation for one in trainees], validation)
        self.histories = [History() for _ in trainees]
        self.best = self.stack.weights.detach().clone()

    def train(
        self, max_epochs: int, patience: int, learning_rate: float, weight_decay: float, clip_norm: float | None
    ) -> list[History]:
        started, watcher = time.perf_counter(), current_watcher()
        optimizer = torch.optim.AdamW([self.stack.weights], lr=learning_rate, weight_decay=weight_decay, fused=True)
        lowest = [math.inf] * len(self.trainees)
        with torch.no_grad():
            for epoch in range(1, max_epochs + 1):
                losses = self._epoch(optimizer, clip_norm)
                monitored = losses if self.held_out is None else self._validation()
                ended = []
                for place, k in enumerate(self.active):
                    history = self.histories[k]
                    history.training_loss.append(finite(losses[place], "training", epoch, learning_rate))
                    if self.held_out is not None:
                        history.validation_loss.append(finite(monitored[place], "validation", epoch, learning_rate))
                    if monitored[place] < lowest[k]:
                        lowest[k], history.best_epoch = monitored[place], epoch
                        self.best[k] = self.stack.weights[place]
                    if epoch - history.best_epoch >= patience:
                        history.stopped_by = "patience"
                        ended.append(place)
                if watcher is not None:
                    watcher(epoch, self.histories[self.active[0]])
                if len(ended) == len(self.active):
                    break
                if ended:
                    optimizer = self._without(ended, optimizer)
            for one, weights in zip(self.trainees, self.best, strict=True):
                self.stack.write(weights, one.network)
                one.network.eval()
        for history in self.histories:
            history.seconds = time.perf_counter() - started
        return self.histories

    def _epoch(self, optimizer: torch.optim.Optimizer, clip_norm: float | None) -> list[float]:
        """Make one pass over the rows; return the mean loss of each network."""
        rows, patients = self._deal([self._next_rows(k) for k in self.active], self.batches)
        total = torch.zeros(len(self.active))
        for batch in range(self.batches.number):
            keep = self.stack.draw([self.rngs[k] for k in self.active], self.batches.size)
            some = StackedOutcomes(*(part[batch] for part in patients))
            outputs, hidden = self.stack.step(self._features(rows[batch]), keep)
            value, gradient = self.loss(outputs, some, True)
            assert gradient is not None
            self.stack.backward(gradient, hidden)
            if clip_norm is not None:
                slopes = self.stack.weights.grad
                assert slopes is not None
                slopes.mul_((clip_norm / (slopes.norm(dim=1, keepdim=True) + 1e-6)).clamp_max(1.0))
            optimizer.step()
            total += value
        return (total / self.batches.number).tolist()

    def _next_rows(self, k: int) -> IntArray:
        """Return the rows of a network's next epoch: those that come next in an order in which each comes once."""
        rows = self.waiting[k]
        if len(rows) < self.epoch_rows[k]:
            rows = np.concatenate([rows, self.rngs[k].permutation(self.trainees[k].training)])
        self.waiting[k] = rows[self.epoch_rows[k] :]
        return rows[: self.epoch_rows[k]]

    def _validation(self) -> list[float]:
        """Return the loss of each network on the rows set aside for it."""
        assert self.held_out is not None
        rows, patients = self.held_out
        total = torch.zeros(len(self.active))
        for batch in range(len(rows)):
            outputs = self.stack.outputs(self._features(rows[batch]))
            total += self.loss(outputs, StackedOutcomes(*(part[batch] for part in patients)), False)[0]
        return (total / len(rows)).tolist()

    def _features(self, rows: Tensor) -> Tensor:
        return self.X.index_select(0, rows.flatten()).view(*rows.shape, -1)

    def _deal(self, orders: Sequence[IntArray], batches: _Batches) -> tuple[Tensor, StackedOutcomes]:
        """Deal rows of each network into batches of nearly equal size, filled up with rows of weight 0.

        Returns the rows of the features and the outcomes, (batches, networks, size) each.
        """
        local = np.zeros((len(orders), batches.size * batches.number), dtype=np.int64)
        filled = np.zeros(local.shape, dtype=np.float32)
        for place, order in enumerate(orders):
            local[place, : len(order)] = order
            filled[place, : len(order)] = 1.0
        shape = len(orders), batches.size, batches.number
        at, real = (torch.from_numpy(table.reshape(shape).transpose(2, 0, 1).copy()) for table in (local, filled))
        owners = [self.trainees[k] for k in self.active]
        rows = torch.stack([torch.from_numpy(one.rows)[at[:, place]] for place, one in enumerate(owners)], dim=1)
        parts = [
            torch.stack([one.patients[field][at[:, place]] for place, one in enumerate(owners)], dim=1)
            for field in range(len(StackedOutcomes._fields))
        ]
        patients = StackedOutcomes(*parts)
        return rows, patients._replace(weight=patients.weight * real)

    def _without(self, ended: Sequence[int], optimizer: torch.optim.AdamW) -> torch.optim.AdamW:
        """Take networks that have ended out of the stack; return the optimiser of the others, as it was."""
        kept = torch.tensor([place for place in range(len(self.active)) if place not in ended])
        self.active = [self.active[place] for place in kept.tolist()]
        state = optimizer.state[self.stack.weights]
        self.stack.only(kept)
        if self.held_out is not None:
            rows, patients = self.held_out
            self.held_out = rows[:, kept], StackedOutcomes(*(part[:, kept] for part in patients))
        group = optimizer.param_groups[0]
        out = torch.optim.AdamW(
            [self.stack.weights], lr=group["lr"], weight_decay=group["weight_decay"], fused=group["fused"]
        )
        out.state[self.stack.weights] = {name: value[kept] if value.dim() else value for name, value in state.items()}
        return out
