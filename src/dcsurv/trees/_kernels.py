"""The compiled way through trees."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dcsurv._compile import compiled
from dcsurv.target import FloatArray

# Up to so many nodes of a tree are asked for all patients, eight or sixteen at a time and without a branch; of a larger
# tree most nodes are no patient's, and each patient walks alone.
_MANY_NODES = 257


@compiled()
def add_leaves(
    columns: npt.NDArray[np.float32],
    start: npt.NDArray[np.int32],
    feature: npt.NDArray[np.int32],
    right: npt.NDArray[np.int32],
    value: npt.NDArray[np.float32],
    out: FloatArray,
) -> None:
    """Add to ``out`` the leaf of every tree that each patient reaches in each block of time.

    Splits on time, the feature after the last column, are decided first: for each run of blocks that none of them
    parts, there is a tree without them.

    Parameters
    ----------
    columns
        Prepared features, one row per feature, (columns, n).
    start
        First node of each tree and, last, the number of nodes, (trees + 1,).
    feature, right, value
        The nodes; see :class:`dcsurv.trees.Trees`.
    out
        Sums of leaves, (blocks, n).
    """
    time, n = columns.shape
    blocks = len(out)
    largest = 1
    for tree in range(len(start) - 1):
        largest = max(largest, start[tree + 1] - start[tree])
    # The tree of some blocks, and nodes whose right side waits to be taken over.
    own_feature = np.empty(largest, dtype=np.int32)
    own_right = np.empty(largest, dtype=np.int32)
    own_value = np.empty(largest, dtype=np.float32)
    waiting = np.empty(largest, dtype=np.int32)
    parent = np.empty(largest, dtype=np.int32)
    # Values of subtrees, for all patients; a leaf is one number.
    stack = np.empty((_MANY_NODES // 2 + 2, n), dtype=np.float32)
    leaf = np.empty(len(stack), dtype=np.float32)
    is_leaf = np.empty(len(stack), dtype=np.bool_)
    for tree in range(len(start) - 1):
        first = 0
        while first < blocks:
            end = blocks
            for node in range(start[tree], start[tree + 1]):
                # The first block after a threshold begins another run.
                if feature[node] == time and np.float32(first) <= value[node]:
                    cut = first + 1
                    while cut < end and np.float32(cut) <= value[node]:
                        cut += 1
                    end = cut
            size = 0
            count = 0
            node = start[tree]
            while True:
                while feature[node] == time:
                    node = node + 1 if np.float32(first) <= value[node] else right[node]
                own_feature[size] = feature[node]
                own_value[size] = value[node]
                size += 1
                if feature[node] >= 0:
                    waiting[count] = right[node]
                    parent[count] = size - 1
                    count += 1
                    node = node + 1
                elif count > 0:
                    count -= 1
                    node = waiting[count]
                    own_right[parent[count]] = size
                else:
                    break
            if size > _MANY_NODES:
                for i in range(n):
                    node = 0
                    while own_feature[node] >= 0:
                        node = node + 1 if columns[own_feature[node], i] <= own_value[node] else own_right[node]
                    for block in range(first, end):
                        out[block, i] += own_value[node]
            else:
                _select(columns, own_feature, own_value, size, stack, leaf, is_leaf)
                for block in range(first, end):
                    if is_leaf[0]:
                        for i in range(n):
                            out[block, i] += leaf[0]
                    else:
                        for i in range(n):
                            out[block, i] += stack[0, i]
            first = end


@compiled()
def _select(
    columns: npt.NDArray[np.float32],
    feature: npt.NDArray[np.int32],
    value: npt.NDArray[np.float32],
    size: int,
    stack: npt.NDArray[np.float32],
    leaf: npt.NDArray[np.float32],
    is_leaf: npt.NDArray[np.bool_],
) -> None:
    """Leave at the bottom of the stack what every patient finds in a tree, from the last node to the root."""
    n = columns.shape[1]
    top = -1
    for node in range(size - 1, -1, -1):
        if feature[node] < 0:
            top += 1
            leaf[top] = value[node]
            is_leaf[top] = True
            continue
        x = columns[feature[node]]
        threshold = value[node]
        # One name for what is read and written, so that the compiler knows that they are the same.
        below, target = stack[top], stack[top - 1]
        if is_leaf[top] and is_leaf[top - 1]:
            low, high = leaf[top], leaf[top - 1]
            for i in range(n):
                target[i] = low if x[i] <= threshold else high
        elif is_leaf[top]:
            low = leaf[top]
            for i in range(n):
                other = target[i]
                target[i] = low if x[i] <= threshold else other
        elif is_leaf[top - 1]:
            high = leaf[top - 1]
            for i in range(n):
                own = below[i]
                target[i] = own if x[i] <= threshold else high
        else:
            for i in range(n):
                own, other = below[i], target[i]
                target[i] = own if x[i] <= threshold else other
        top -= 1
        is_leaf[top] = False
