"""The one training loop: Adam on mini-batches, early stopping, best weights restored."""

from __future__ import annotations

import math
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from dcsurv.target import IntArray, train_test_indices
from dcsurv.training.history import History
from dcsurv.training.watching import current_watcher

# loss(network, rows): the loss of the network on some rows of the data that the function holds.
BatchLoss: TypeAlias = Callable[[nn.Module, Tensor], Tensor]

# Validation batches may be larger than those of training: more pairs and larger risk sets, hence less noise.
VALIDATION_BATCH = 1024


def train(
    network: nn.Module,
    loss: BatchLoss,
    train_rows: Tensor,
    validation_rows: Tensor,
    *,
    batch_size: int = 64,
    max_epochs: int = 100,
    patience: int = 10,
    learning_rate: float = 1e-3,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
    validation_batch: int = VALIDATION_BATCH,
    verbose: bool = False,
) -> History:
    """Train a network in place and leave it with the weights of its best epoch.

    The best epoch is the one with the lowest validation loss (training loss where ``validation_rows`` is empty).
    Ctrl-C ends training cleanly: the best weights so far are kept and a warning says so.

    Parameters
    ----------
    network : Module
        Left in evaluation mode.
    loss : callable
        ``loss(network, rows)``, the loss of a batch of row numbers.
    train_rows : Tensor
        Row numbers to train on, int64, on the device of the data.
    validation_rows : Tensor
        Row numbers set aside for early stopping; may be empty.
    batch_size : int, default 64
        Rows per step. The rows of an epoch are dealt into batches of nearly equal size, none smaller than two
        where there are two rows: batch normalisation and pair losses are undefined on one.
    max_epochs : int, default 100
        Largest number of epochs.
    patience : int, default 10
        Training ends after this many epochs without a better one.
    learning_rate : float, default 0.001
        Step size of Adam.
    weight_decay : float, default 0.0
        Decoupled from the gradient (AdamW); 0 is plain Adam.
    clip_norm : float or None, default None
        Longest gradient, over all parameters together; longer ones are scaled down. None: no limit.
    validation_batch : int, default 1024
        Rows per batch of validation. A loss whose parts grow differently with the batch (plain sums over patients and
        over pairs) is the trained objective only in batches of the trained size.
    verbose : bool, default False
        Show a progress bar.

    Returns
    -------
    History
        Losses per epoch, and how training ended.

    Raises
    ------
    FloatingPointError
        If the loss is no longer a finite number.
    """
    parameters = list(network.parameters())
    fused = all(p.device.type in ("cpu", "cuda") for p in parameters)
    optimizer = torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=weight_decay, fused=fused)
    history = History()
    best_loss = math.inf
    best_weights: dict[str, Tensor] | None = None
    watcher = current_watcher()
    started = time.perf_counter()
    try:
        with _progress(verbose, max_epochs) as report:
            for epoch in range(1, max_epochs + 1):
                network.train()
                total = torch.zeros((), device=train_rows.device)
                order = train_rows[torch.randperm(len(train_rows), device="cpu").to(train_rows.device)]
                for rows in _deal(order, batch_size):
                    optimizer.zero_grad(set_to_none=True)
                    value = loss(network, rows)
                    value.backward()  # type: ignore[no-untyped-call]
                    if clip_norm is not None:
                        nn.utils.clip_grad_norm_(parameters, clip_norm)
                    optimizer.step()
                    total += value.detach() * len(rows)
                current = finite(total.item() / len(train_rows), "training", epoch, learning_rate)
                history.training_loss.append(current)

                if len(validation_rows):
                    current = evaluate(network, loss, validation_rows, validation_batch)
                    history.validation_loss.append(finite(current, "validation", epoch, learning_rate))

                if current < best_loss:
                    best_loss, history.best_epoch = current, epoch
                    best_weights = {name: value.clone() for name, value in network.state_dict().items()}
                report(epoch, history)
                if watcher is not None:
                    watcher(epoch, history)
                if epoch - history.best_epoch >= patience:
                    history.stopped_by = "patience"
                    break
    except KeyboardInterrupt:
        history.stopped_by = "interrupt"
        if len(validation_rows):  # an epoch cut short must not leave two lists of different lengths
            del history.training_loss[len(history.validation_loss) :]
        warnings.warn(
            f"training was interrupted in epoch {len(history.training_loss) + 1}; the weights of the best epoch so "
            f"far ({history.best_epoch or 'none ended yet, so the current ones'}) are kept.",
            UserWarning,
            stacklevel=2,
        )
    if best_weights is not None:
        network.load_state_dict(best_weights)
    network.eval()
    history.seconds = time.perf_counter() - started
    return history


@torch.no_grad()
def evaluate(network: nn.Module, loss: BatchLoss, rows: Tensor, batch_size: int = VALIDATION_BATCH) -> float:
    """Return the mean batch loss of a network in evaluation mode.

    Parameters
    ----------
    network : Module
        Put into evaluation mode.
    loss : callable
        ``loss(network, rows)``, the loss of a batch of row numbers.
    rows : Tensor
        Row numbers.
    batch_size : int, default 1024
        Rows per batch.

    Returns
    -------
    float
        The mean, each batch weighted by its rows.
    """
    network.eval()
    losses = [loss(network, batch) * len(batch) for batch in _deal(rows, batch_size)]
    return float(torch.stack(losses).sum()) / len(rows)


def validation_split(
    y: npt.NDArray[np.void], fraction: float, seed: int, groups: IntArray | None = None
) -> tuple[IntArray, IntArray]:
    """Set a share of the rows aside for early stopping, stratified by event: (training rows, validation rows).

    Nothing is set aside where a part would be left without an event, since its loss would say nothing.

    Parameters
    ----------
    y : structured array
        Outcomes.
    fraction : float
        Share to set aside.
    seed : int
        Which rows.
    groups : array of int or None, default None
        Rows that belong together, and stay so.

    Returns
    -------
    train_rows : array of int
        Rows to train on.
    validation_rows : array of int
        Rows set aside; may be empty.
    """
    n = len(y)
    if math.ceil(n * fraction) >= 2 and (groups is None or len(np.unique(groups)) > 1):  # one row of either kind
        training, validation = train_test_indices(y, test_size=fraction, random_state=seed, groups=groups)
        if y["event"][training].any() and y["event"][validation].any():
            return training, validation
    return np.arange(n), np.arange(0)


@contextmanager
def isolated_torch(seed: int, device: str | torch.device = "cpu") -> Iterator[None]:
    """Seed torch inside the block, with gradients and float32, and leave the user's settings outside as they were.

    Random state and default type belong to the whole process, so threads take turns.

    Parameters
    ----------
    seed : int
        Seed of the block.
    device : str or device, default "cpu"
        Whose random state is kept besides that of the CPU.
    """
    chosen = torch.device(device)
    with _torch_lock, torch.random.fork_rng(devices=[chosen] if chosen.type == "cuda" else []):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        torch.manual_seed(seed)
        try:
            with torch.inference_mode(False), torch.enable_grad():
                yield
        finally:
            torch.set_default_dtype(before)


_torch_lock = threading.RLock()


def _new_lock() -> None:
    """Give a forked process a lock of its own: the thread that held it was not forked along."""
    global _torch_lock
    _torch_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


def _deal(rows: Tensor, batch_size: int) -> tuple[Tensor, ...]:
    """Cut rows into batches of nearly equal size, none of a single row if it can be."""
    n = len(rows)
    n_batches = min(math.ceil(n / batch_size), max(1, n // 2))
    return rows.tensor_split(n_batches)


def finite(value: float, which: str, epoch: int, learning_rate: float) -> float:
    """Return a loss, or raise FloatingPointError if it is no longer a finite number."""
    if not math.isfinite(value):
        raise FloatingPointError(
            f"the {which} loss became {value} in epoch {epoch}. Lower learning_rate (it is {learning_rate:g}), set "
            "clip_norm=1, and look for extreme values among the features."
        )
    return value


@contextmanager
def _progress(show: bool, max_epochs: int) -> Iterator[Callable[[int, History], None]]:
    if not show:
        yield lambda epoch, history: None
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("epoch {task.completed:g}/{task.total:g}"), BarColumn(), TextColumn("{task.description}")
    with Bar(*columns, TimeElapsedColumn()) as bar:
        task = bar.add_task("", total=max_epochs)

        def report(epoch: int, history: History) -> None:
            text = f"training {history.training_loss[-1]:.4g}"
            if history.validation_loss:
                text += f", validation {history.validation_loss[-1]:.4g}"
            bar.update(task, completed=epoch, description=f"{text}, best epoch {history.best_epoch}")

        yield report
