"""Dense layers as arithmetic."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from dcsurv.arithmetic import Value


def as_doubles(tensor: Tensor) -> npt.NDArray[np.float64]:
    """Return the numbers of a tensor in double precision."""
    return tensor.detach().cpu().numpy().astype(np.float64)


def dense(layer: nn.Module, x: Value) -> Value:
    """Return what a dense layer makes of values."""
    assert isinstance(layer, nn.Linear)
    out = x @ as_doubles(layer.weight).T
    return out if layer.bias is None else out + as_doubles(layer.bias)


def joined_dense(
    x: Value, weight: npt.NDArray[np.float64], bias: npt.NDArray[np.float64], steps: npt.NDArray[np.float64] | None
) -> Value:
    """Return x times a matrix plus a bias; with the position of every step as one more input, (n, steps, outputs).

    Parameters
    ----------
    x
        (n, inputs).
    weight
        (inputs, outputs), the last row that of the position, if there is one.
    steps
        The positions, or None.
    """
    if steps is None:
        return x @ weight + bias
    at_steps = x.graph.constant(steps[:, None]) @ weight[-1:]
    return (x @ weight[:-1]).reshape(1, weight.shape[1]) + at_steps + bias
