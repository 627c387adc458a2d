"""Trees as plain arrays, which files can hold and one walk can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from dcsurv._compile import pays
from dcsurv.arithmetic import Value
from dcsurv.messages import plural
from dcsurv.target import FloatArray, IntArray

_Int32: TypeAlias = npt.NDArray[np.int32]
_Float32: TypeAlias = npt.NDArray[np.float32]
# Feature, right child, and threshold or value of the nodes of one tree.
Nodes: TypeAlias = tuple[_Int32, _Int32, _Float32]

# Up to so many patients times trees, plain NumPy is quicker than the wait for compiled code.
_FEW = 50_000
# Patients of a piece, and trees that a few patients walk through at once.
_ROWS, _TREES = 512, 512


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

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.trees import Trees
    >>> nodes = {"start": [0, 3], "feature": [0, -1, -1], "right": [2, 0, 0]}
    >>> arrays = {name: np.array(one, dtype=np.int32) for name, one in nodes.items()}
    >>> stump = Trees.from_arrays(arrays | {"value": np.array([50, 0.1, 0.3], dtype=np.float32)}, n_columns=1)
    >>> stump.sums(np.array([[40], [60]], dtype=np.float32), n_blocks=1).round(3).tolist()
    [[0.1], [0.3]]
    """

    n_columns: int
    start: _Int32
    feature: _Int32
    right: _Int32
    value: _Float32

    @classmethod
    def joined(cls, trees: Sequence[Nodes], n_columns: int) -> Self:
        """Put single trees one after the other.

        Parameters
        ----------
        trees : sequence of tuple
            Features, right children and values of the nodes of each tree, children counted from its own root.
        n_columns : int
            How many columns the features have, without the block of time.

        Returns
        -------
        Trees
            The same trees.
        """
        start = np.cumsum([0, *(len(feature) for feature, _, _ in trees)]).astype(np.int32)
        none = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32)
        feature, right, value = (np.concatenate(parts) for parts in zip(none, *trees, strict=True))
        right = np.where(feature >= 0, right + np.repeat(start[:-1], np.diff(start)), 0)
        return cls(n_columns, start, feature, right.astype(np.int32), value)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], n_columns: int) -> Self:
        """Take trees from a file.

        Parameters
        ----------
        arrays : mapping
            What :meth:`to_arrays` returned.
        n_columns : int
            How many columns the features have, without the block of time.

        Returns
        -------
        Trees
            The trees. Every way through them stays in its tree and ends.

        Raises
        ------
        ValueError
            The arrays are not those of trees.
        """
        expected = dict.fromkeys(("start", "feature", "right"), np.int32) | {"value": np.float32}
        for name, kind in expected.items():
            if arrays[name].dtype != kind or arrays[name].ndim != 1:
                raise ValueError(f"the trees' {name} is not a list of numbers of the type {np.dtype(kind)}.")
        trees = cls(n_columns, **{name: arrays[name] for name in expected})
        start, feature, n_nodes = trees.start, trees.feature, len(trees.feature)
        sizes: IntArray = np.diff(start.astype(np.int64)).astype(np.int64)
        if len(trees.right) != n_nodes or len(trees.value) != n_nodes:
            raise ValueError("the trees' lists of features, children and values are not of the same length.")
        if len(start) == 0 or start[0] != 0 or start[-1] != n_nodes or (sizes < 1).any():
            raise ValueError("the trees' first nodes do not divide their nodes into trees.")
        if not ((feature >= -1) & (feature <= n_columns)).all():
            raise ValueError(f"the trees ask for a feature that is not among the {n_columns} that there are, or time.")
        if not np.isfinite(trees.value).all():
            raise ValueError("the trees' thresholds and values are not all finite.")
        inner = np.flatnonzero(feature >= 0)
        right, end = trees.right[inner], np.repeat(start[1:], sizes)[inner]
        if not ((right > inner + 1) & (right < end)).all():
            raise ValueError("the children of a node do not come after it in the same tree.")
        return trees

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the trees for a file.

        Returns
        -------
        dict
            Arrays by name.
        """
        return {"start": self.start, "feature": self.feature, "right": self.right, "value": self.value}

    def __len__(self) -> int:
        """Return the number of trees."""
        return len(self.start) - 1

    def sums(self, X: _Float32, n_blocks: int) -> FloatArray:
        """Add up leaves.

        Parameters
        ----------
        X : array of float
            Prepared features, (n, columns).
        n_blocks : int
            How many blocks of time there are.

        Returns
        -------
        array of float
            For every patient and block of time the sum of the leaves that they reach, (n, blocks).
        """
        if X.shape[1] != self.n_columns:
            raise ValueError(f"X has {plural(X.shape[1], 'column')}, but the trees were grown on {self.n_columns}.")
        if not pays(len(X) * len(self), _FEW):
            return self._plain_sums(X, n_blocks)
        from dcsurv.trees._kernels import add_leaves

        out = np.empty((n_blocks, len(X)))
        # In pieces that stay in the cache; all values of a column, and all sums of a block, lie side by side.
        for first in range(0, len(X), _ROWS):
            columns = np.ascontiguousarray(X[first : first + _ROWS].T, dtype=np.float32)
            sums = np.zeros((n_blocks, columns.shape[1]))
            add_leaves(columns, self.start, self.feature, self.right, self.value, sums)
            out[:, first : first + _ROWS] = sums
        return out.T

    def arithmetic(self, X: Value, n_blocks: int) -> Value:
        """Return what :meth:`sums` adds up as arithmetic.

        Parameters
        ----------
        X : Value
            Prepared features, (n, columns).
        n_blocks : int
            How many blocks of time there are.

        Returns
        -------
        Value
            Sums of leaves, (n, blocks).
        """
        behind = np.where(self.feature >= 0, self.right - np.arange(len(self.right)), 0)
        arrays = (X.graph.constant(one) for one in (self.start, self.feature, behind.astype(np.int32), self.value))
        return X.graph.apply("Trees", X, *arrays, blocks=n_blocks, columns=self.n_columns)

    def _plain_sums(self, X: _Float32, n_blocks: int) -> FloatArray:
        """Add up leaves of a few patients, to the same bits, without waiting for the compiled code."""
        out = np.zeros((len(X), n_blocks))
        features = np.asarray(X, dtype=np.float32)
        block = np.arange(n_blocks, dtype=np.float32)
        for some in range(0, len(self), _TREES):
            # All patients, blocks and trees take a step at a time, (n, blocks, trees).
            node = np.empty((len(X), n_blocks, len(self.start[some : some + _TREES + 1]) - 1), dtype=np.int64)
            node[:] = self.start[some : some + node.shape[2]]
            walking = np.nonzero(self.feature[node] >= 0)
            while len(walking[0]):
                at = node[walking]
                asked = self.feature[at]
                found = np.where(
                    asked < self.n_columns,
                    features[walking[0], np.minimum(asked, self.n_columns - 1)] if self.n_columns else 0.0,
                    block[walking[1]],
                )
                at = np.where(found <= self.value[at], at + 1, self.right[at])
                node[walking] = at
                still = self.feature[at] >= 0
                walking = tuple(one[still] for one in walking)
            for tree in range(node.shape[2]):
                out += self.value[node[:, :, tree]]
        return out
