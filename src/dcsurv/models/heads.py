"""How a network's outputs at the nodes of a time grid become survival."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from dcsurv.losses import survival_from_logits
from dcsurv.target import FloatArray


class Head(Protocol):
    """What the outputs of a network mean.

    Attributes
    ----------
    width : int
        Outputs that a node has. With 1, outputs are (n, L), otherwise (n, L, width).
    """

    width: int

    def survival(self, outputs: Tensor) -> Tensor:
        """Return S at the nodes, (n, L)."""

    def outputs_for(self, hazard: FloatArray) -> Tensor:
        """Return outputs that give these hazards, (L,), to everybody: where training starts; (L,) or (L, width)."""


class HazardHead:
    """One output per node: the logit of the hazard, the chance of an event in the interval if there was none before."""

    width = 1

    def survival(self, outputs: Tensor) -> Tensor:
        """Return the product of 1 - h up to each node."""
        return survival_from_logits(outputs)

    def outputs_for(self, hazard: FloatArray) -> Tensor:
        """Return the logits of the hazards."""
        return torch.logit(torch.as_tensor(hazard, dtype=torch.float32))
