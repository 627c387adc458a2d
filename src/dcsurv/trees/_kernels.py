"""The compiled walk through trees."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dcsurv._compile import compiled
from dcsurv.target import FloatArray


@compiled()
def add_leaves(
    X: npt.NDArray[np.float32],
    start: npt.NDArray[np.int32],
    feature: npt.NDArray[np.int32],
    right: npt.NDArray[np.int32],
    value: npt.NDArray[np.float32],
    out: FloatArray,
) -> None:
    """Add to ``out`` the leaf of every tree that each patient reaches in each block of time.

    A patient walks down a tree once. At a split on time, the feature after the last column of X, the blocks on the
    right wait until those on the left have reached a leaf; as blocks that wait are never the same, there are never more
    of them than blocks.

    Parameters
    ----------
    X
        Prepared features, (n, columns).
    start
        First node of each tree and, last, the number of nodes, (trees + 1,).
    feature, right, value
        The nodes; see :class:`dcsurv.trees.Trees`.
    out
        Sums of leaves, (n, blocks).
    """
    columns = X.shape[1]
    blocks = out.shape[1]
    node_of = np.empty(blocks, dtype=np.int32)
    end_of = np.empty(blocks, dtype=np.int32)
    for tree in range(len(start) - 1):
        root = start[tree]
        for i in range(len(X)):
            first = 0  # of the blocks that walk
            end = blocks  # after the last of them
            node = root
            waiting = 0
            while True:
                column = feature[node]
                if column < 0:
                    for block in range(first, end):
                        out[i, block] += value[node]
                    if waiting == 0:
                        break
                    waiting -= 1
                    first = end
                    end = end_of[waiting]
                    node = node_of[waiting]
                elif column < columns:
                    node = node + 1 if X[i, column] <= value[node] else right[node]
                else:
                    cut = first  # the first block after the threshold
                    while cut < end and np.float32(cut) <= value[node]:
                        cut += 1
                    if cut == first:
                        node = right[node]
                    else:
                        if cut < end:
                            node_of[waiting] = right[node]
                            end_of[waiting] = end
                            waiting += 1
                            end = cut
                        node = node + 1
