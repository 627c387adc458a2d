"""How many cores a computation takes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: several processes share the cores, and sums come out in the same order everywhere."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _libraries(len(sys.modules)).limit(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=1)
def _libraries(imported: int) -> Any:
    """Return the libraries that compute with threads; looked for again once more has been imported."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
