"""How a network's outputs at the nodes of a time grid become survival."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dcsurv.arithmetic import Value
from dcsurv.arithmetic.functions import softplus
from dcsurv.models.tensors import losses, torch
from dcsurv.target import FloatArray

if TYPE_CHECKING:
    from torch import Tensor


class Head(Protocol):
    """What the outputs of a network mean.

    Attributes
    ----------
    width : int
        Outputs that a node has. With 1, outputs are (n, L), otherwise (n, L, width).
    """

    width: int

    def survival(self, outputs: Tensor) -> Tensor:
        """Return S at the nodes.

        Parameters
        ----------
        outputs : Tensor
            Outputs of a network, (n, L) or (n, L, width).

        Returns
        -------
        Tensor
            Shape (n, L).
        """

    def outputs_for(self, hazard: FloatArray) -> Tensor:
        """Return outputs that give these hazards to everybody: where training starts.

        Parameters
        ----------
        hazard : array of shape (L,)
            The hazards.

        Returns
        -------
        Tensor
            Shape (L,) or (L, width).
        """


class HazardHead:
    """One output per node: the logit of the hazard, the chance of an event in the interval if there was none before.

    Examples
    --------
    >>> import torch
    >>> from dcsurv.models.heads import HazardHead
    >>> HazardHead().survival(torch.zeros(1, 3))  # three hazards of one half
    tensor([[0.5000, 0.2500, 0.1250]])
    """

    width = 1

    def survival(self, outputs: Tensor) -> Tensor:
        """Return the product of 1 - h up to each node.

        Parameters
        ----------
        outputs : Tensor
            Logits of the hazards, (n, L).

        Returns
        -------
        Tensor
            Shape (n, L).
        """
        return losses.survival_from_logits(outputs)

    def arithmetic(self, outputs: Value) -> Value:
        """Return what :meth:`survival` computes as arithmetic.

        Parameters
        ----------
        outputs : Value
            Logits of the hazards, (n, L).

        Returns
        -------
        Value
            Shape (n, L).
        """
        return (-softplus(outputs).running_sum()).exp()

    def outputs_for(self, hazard: FloatArray) -> Tensor:
        """Return the logits of the hazards.

        Parameters
        ----------
        hazard : array of shape (L,)
            The hazards.

        Returns
        -------
        Tensor
            Shape (L,).
        """
        return torch.logit(torch.as_tensor(hazard, dtype=torch.float32))
