"""How many cores a computation takes, also where torch is imported in the middle of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

# What the open blocks of one_thread have limited, and the threads that torch is to have after them if it was imported
# inside of one.
_open_blocks: list[Any] = []
_threads_of_torch: int | None = None


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: several processes share the cores, and sums come out in the same order everywhere."""
    before = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None
    if before is not None:
        sys.modules["torch"].set_num_threads(1)
    try:
        with _libraries(len(sys.modules)).limit(limits=1) as limited:
            _open_blocks.append(limited)
            try:
                yield
            finally:
                _open_blocks.remove(limited)
    finally:
        if before is None and not _open_blocks:
            before = _threads_of_torch
        if before is not None:
            sys.modules["torch"].set_num_threads(before)


def import_torch() -> None:
    """Import torch, which is to take one thread if that happens inside of a block."""
    global _threads_of_torch
    import torch

    if _open_blocks:
        # torch takes as many as OpenMP, which has been told to take one if it was there already.
        _threads_of_torch = _open_blocks[0].get_original_num_threads()["openmp"] or torch.get_num_threads()
        torch.set_num_threads(1)


@lru_cache(maxsize=1)
def _libraries(imported: int) -> Any:
    """Return the libraries that compute with threads; looked for again once more has been imported."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
