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
