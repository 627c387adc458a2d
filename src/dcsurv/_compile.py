"""How the compiled kernels are compiled: one decorator for all of them.

Importing this module imports Numba, so only kernel modules do, and those are imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[F], F]:
    """Compile a function with Numba and keep the machine code on disk where that is possible.

    Kernels run without the interpreter lock, and divide as NumPy does (no exception, no check per division).
    """

    def decorate(function: F) -> F:
        settings = {"nogil": True, "error_model": "numpy", **options}
        try:
            kernel: F = numba.njit(cache=True, **settings)(function)
        except RuntimeError:
            # No folder that the user may write to: compile again in every process instead.
            kernel = numba.njit(**settings)(function)
        return kernel

    return decorate
