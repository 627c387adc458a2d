"""Trees as plain arrays, which files can hold and one walk can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dcsurv.target import FloatArray

Int32Array = npt.NDArray[np.int32]
Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Trees:
    """Some trees, one after the other, each with a node before its children and the left child right after it.

    Parameters
    ----------
    n_columns : int
        How many columns the features have. The feature after them is the block of time, 0, 1, ...
    start : array of int
        The first node of each tree and, last, the number of nodes, (trees + 1,).
    feature : array of int
        What each node asks for; -1 in a leaf.
    right : array of int
        Where a node sends features above its threshold, counted over all trees; those at or below go to the next node.
    value : array of float
        The threshold of a node, or the value of a leaf.
    """

    n_columns: int
    start: Int32Array
    feature: Int32Array
    right: Int32Array
    value: Float32Array

    @classmethod
    def grown(cls, grown: Sequence[tuple[Any, FloatArray]], n_columns: int) -> Self:
        """Take the trees of scikit-learn.

        Parameters
        ----------
        grown : sequence of tuple
            For each tree its ``tree_`` and a value for every node, of which those of the leaves count.
        n_columns : int
            How many columns the features have, without the block of time.

        Returns
        -------
        Trees
            The same trees. A feature of single precision takes the same way through them.
        """
        start = np.cumsum([0, *(tree.node_count for tree, _ in grown)]).astype(np.int32)
        parts = [_nodes(tree, np.asarray(value, dtype=np.float64)) for tree, value in grown]
        feature, right, value = (
            np.concatenate([part[k] for part in parts]) if parts else np.zeros(0) for k in range(3)
        )
        right = np.where(feature >= 0, right + np.repeat(start[:-1], np.diff(start)), 0)
        return cls(n_columns, start, feature.astype(np.int32), right.astype(np.int32), value.astype(np.float32))

    def __len__(self) -> int:
        """Return the number of trees."""
        return len(self.start) - 1

    def sums(self, X: Float32Array, n_blocks: int) -> FloatArray:
        """Return, for every patient and block of time, the sum of the leaves that they reach, (n, blocks).

        Parameters
        ----------
        X : array of float
            Prepared features, (n, columns).
        n_blocks : int
            How many blocks of time there are.
        """
        from dcsurv.trees._kernels import add_leaves

        if X.shape[1] != self.n_columns:
            raise ValueError(f"X has {X.shape[1]} columns, but the trees were grown on {self.n_columns}.")
        out = np.zeros((len(X), n_blocks))
        features = np.ascontiguousarray(X, dtype=np.float32)
        add_leaves(features, self.start, self.feature, self.right, self.value, out)
        return out


def _nodes(tree: Any, leaf_value: FloatArray) -> tuple[Any, Any, FloatArray]:
    """Return feature, right child and threshold or value of a tree's nodes, a left child right after its parent."""
    left, right = tree.children_left, tree.children_right
    inner = left >= 0
    if not (left[inner] == np.flatnonzero(inner) + 1).all():
        raise ValueError("the nodes of a tree are not in the order in which it was grown depth first.")
    threshold = np.where(inner, tree.threshold, 0.0)
    # A number of single precision is at most a threshold if and only if it is at most the next such number below.
    rounded = threshold.astype(np.float32)
    down = np.where(rounded > threshold, np.nextafter(rounded, np.float32(-np.inf)), rounded)
    return np.where(inner, tree.feature, -1), right, np.where(inner, down, leaf_value)
