"""How the compiled kernels are compiled, and when they pay: one rule for all of them.

Kernel modules are imported on first use, because decorating a function imports Numba.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[F], F]:
    """Compile a function with Numba and keep the machine code on disk where that is possible.

    Kernels run without the interpreter lock, and divide as NumPy does (no exception, no check per division).
    """
    import numba

    def decorate(function: F) -> F:
        settings = {"nogil": True, "error_model": "numpy", **options}
        try:
            kernel: F = numba.njit(cache=True, **settings)(function)
        except RuntimeError:
            # No folder that the user may write to: compile again in every process instead.
            kernel = numba.njit(**settings)(function)
        return kernel

    return decorate


def pays(work: int, limit: int) -> bool:
    """Tell whether a kernel is to be used where plain NumPy can do the same, to the same bits.

    Parameters
    ----------
    work
        How much there is to do.
    limit
        As much as NumPy does in the time that it takes to import Numba; if that is done already, kernels always pay.
    """
    return work > limit or "numba" in sys.modules


def expect_much() -> None:
    """Import Numba ahead of a large job that comes in small pieces."""
    import numba  # noqa: F401
