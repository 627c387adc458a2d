"""torch and the rooms that compute with it, for the models: imported when one of their names is first used.

So a process that fits or explains a Cox model, or measures curves, does not wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from dcsurv import losses, networks, training
else:
    import sys
    from importlib import import_module

    from dcsurv.training.threads import import_torch

    class _Later:
        """A module that is imported when it is asked for something."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str):
            if "torch" not in sys.modules:
                import_torch()
            return getattr(import_module(self._name), name)

    torch = _Later("torch")
    losses, networks, training = (_Later(f"dcsurv.{room}") for room in ("losses", "networks", "training"))

__all__ = ["losses", "networks", "torch", "training"]
