"""The compiled heart of the one interpolation between the nodes of survival curves."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dcsurv._compile import compiled
from dcsurv.target import FloatArray, IntArray


@compiled()
def blend_rows(nodes: npt.NDArray[Any], left: IntArray, share: FloatArray, first: int, out: FloatArray) -> None:
    """Write (1 - share) * nodes[left] + share * nodes[left + 1] for patients ``first`` and after.

    Parameters
    ----------
    nodes
        Values at the nodes, one row per node, one column per patient, (T, n).
    left, share
        Row to the left of each time and how far the time lies towards the next row, both (m,).
    out
        Receives the values, (m, n - first).
    """
    count = out.shape[1]
    for row in range(len(left)):
        weight = share[row]
        below = nodes[left[row], first : first + count]
        target = out[row]
        if weight == 0.0:
            for i in range(count):
                target[i] = below[i]
        else:
            above = nodes[left[row] + 1, first : first + count]
            for i in range(count):
                target[i] = below[i] + weight * (np.float64(above[i]) - np.float64(below[i]))


@compiled()
def blend_own(nodes: npt.NDArray[Any], left: IntArray, share: FloatArray, out: FloatArray) -> None:
    """Write for each patient the value at that patient's own time; ``nodes`` is (T, n), the rest (n,)."""
    for i in range(len(left)):
        below = np.float64(nodes[left[i], i])
        weight = share[i]
        if weight == 0.0:
            out[i] = below
        else:
            out[i] = below + weight * (np.float64(nodes[left[i] + 1, i]) - below)
