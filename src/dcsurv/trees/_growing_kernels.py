"""The compiled growth of trees with random thresholds, on patients whose rows are blocks of time."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dcsurv._compile import compiled
from dcsurv.target import FloatArray

_Int32: TypeAlias = npt.NDArray[np.int32]
_Float32: TypeAlias = npt.NDArray[np.float32]
_UInt64: TypeAlias = npt.NDArray[np.uint64]

# Sums may be taken in any order, which lets the processor take several numbers at once; no feature is NaN.
_SUMS = {"fastmath": {"reassoc", "nsz", "nnan"}}


@compiled()
def _uniform(state: _UInt64) -> float:
    """Return a number from 0 to below 1 and move the state on (xorshift64*, S. Vigna 2016)."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return float((x * np.uint64(2685821657736338717)) >> np.uint64(11)) * 2.0**-53


@compiled()
def draw(candidates: _Int32, share: float, state: _UInt64) -> _Int32:
    """Return about this share of the candidates, each drawn on its own."""
    out = np.empty_like(candidates)
    count = 0
    for i in candidates:
        out[count] = i
        count += _uniform(state) < share
    return out[:count]


@compiled()
def _wait(
    entry: npt.NDArray[np.int64], begin: int, end: int, block: int, last_block: int, depth: int, parent: int
) -> None:
    entry[0], entry[1], entry[2], entry[3], entry[4], entry[5] = begin, end, block, last_block, depth, parent


@compiled(**_SUMS)
def _add_up(
    first: _Int32,
    event: FloatArray,
    expected: FloatArray,
    block: int,
    last_block: int,
    who: _Int32,
    surplus: FloatArray,
    weight: FloatArray,
    of_block: FloatArray,
) -> int:
    """Add up the rows of some blocks, by patient and by block; those who have any come first, and are counted."""
    count = 0
    for b in range(block, last_block):
        of_block[b, 0] = of_block[b, 1] = 0.0
    for k in range(len(who)):
        i = who[k]
        start, stop = first[i] + block, min(first[i] + last_block, first[i + 1])
        if start >= stop:
            continue
        had = lived = 0.0
        for row in range(start, stop):
            had += event[row]
            lived += expected[row]
            of_block[row - first[i], 0] += event[row]
            of_block[row - first[i], 1] += expected[row]
        who[k] = who[count]
        who[count] = i
        surplus[count] = had - lived
        weight[count] = lived
        count += 1
    return count


@compiled()
def _between(of_block: FloatArray, block: int, last_block: int) -> tuple[float, float]:
    """Return the events observed and expected in some blocks."""
    had = lived = 0.0
    for b in range(block, last_block):
        had += of_block[b, 0]
        lived += of_block[b, 1]
    return had, lived


@compiled()
def _part(column: _Float32, threshold: np.float32, who: _Int32, other: _Int32) -> int:
    """Put the patients at or below a threshold first, all in their order, and return how many they are."""
    count = 0
    for k in range(len(who)):
        i = who[k]
        inside = column[i] <= threshold
        who[count] = i
        other[k - count] = i
        count += inside
    for k in range(len(who) - count):
        who[count + k] = other[k]
    return count


@compiled(**_SUMS)
def _gather(column: _Float32, who: _Int32, out: _Float32) -> tuple[np.float32, np.float32]:
    """Get a column of some patients, and return its smallest and largest value."""
    low = high = column[who[0]]
    for k in range(len(who)):
        x = column[who[k]]
        out[k] = x
        low = x if x < low else low
        high = x if x > high else high
    return low, high


@compiled(**_SUMS)
def _below(x: _Float32, threshold: np.float32, surplus: FloatArray, weight: FloatArray) -> tuple[float, float]:
    """Return the sums of two numbers over the patients at or below a threshold."""
    first = second = 0.0
    for k in range(len(x)):
        inside = x[k] <= threshold
        first += surplus[k] if inside else 0.0
        second += weight[k] if inside else 0.0
    return first, second


@compiled(**_SUMS)
def grow(
    columns: _Float32,
    first: _Int32,
    event: FloatArray,
    expected: FloatArray,
    n_blocks: int,
    who: _Int32,
    max_depth: int,
    min_leaf: float,
    n_tried: int,
    state: _UInt64,
    feature: _Int32,
    right: _Int32,
    value: _Float32,
    observed: FloatArray,
    mass: FloatArray,
) -> int:
    """Grow a tree that explains why some have more events than were expected, and return its number of nodes.

    A split is the one, among some features with one random threshold each, that leaves the least squared difference
    between observed and expected events, weighted. A patient is one item with the sum of the blocks that a node holds;
    a split on time leaves the same patients to both sides.

    Parameters
    ----------
    columns
        Features, (columns, n). The feature after them is time.
    first
        First row of each patient and, last, the number of rows, (n + 1,); row ``first[i] + b`` is of block b.
    event, expected
        Weighted events of the rows, observed and expected.
    n_blocks
        Blocks of time.
    who
        The patients that the tree grows on; their order changes.
    max_depth, min_leaf, n_tried
        Most splits between root and leaf; fewest events expected in a leaf; features that are tried at a split.
    state
        Of the random numbers.
    feature, right, value
        The nodes, to be filled as in :class:`dcsurv.trees.Trees`, counted from 0.
    observed, mass
        Events observed and expected in each node, to be filled.
    """
    n_columns = len(columns)
    order = np.arange(n_columns + 1)
    here, other = np.empty(len(who), dtype=np.float32), np.empty(len(who), dtype=np.int32)
    surplus, weight = np.empty(len(who)), np.empty(len(who))
    of_block = np.empty((n_blocks, 2))
    # Nodes that wait: first and last patient, first and last block, depth, and whose right child it is.
    waiting = np.empty((len(feature) + 1, 6), dtype=np.int64)
    _wait(waiting[0], 0, len(who), 0, n_blocks, 0, -1)
    n_waiting, n_nodes = 1, 0
    while n_waiting:
        n_waiting -= 1
        begin, end, block, last_block, depth, parent = waiting[n_waiting]
        if parent >= 0:
            right[parent] = n_nodes
        while True:  # from a node to its left child, which comes right after it
            node = n_nodes
            n_nodes += 1
            end = begin + _add_up(
                first, event, expected, block, last_block, who[begin:end], surplus[begin:], weight[begin:], of_block
            )
            observed[node], size = _between(of_block, block, last_block)
            mass[node] = size
            total = observed[node] - size
            feature[node], right[node], value[node] = -1, 0, 0.0
            if depth == max_depth or size < 2 * min_leaf:
                break
            best, best_cut = -1.0, last_block
            tried, varying = 0, 0
            while tried <= n_columns and (tried < n_tried or varying == 0):
                pick = tried + int(_uniform(state) * (n_columns + 1 - tried))
                column = order[pick]
                order[pick] = order[tried]
                order[tried] = column
                tried += 1
                if column == n_columns:
                    if last_block - block < 2:
                        continue
                    cut = block + 1 + int(_uniform(state) * (last_block - block - 1))
                    threshold = np.float32(cut - 1)
                    left, left_size = _between(of_block, block, cut)
                    left -= left_size
                else:
                    low, high = _gather(columns[column], who[begin:end], here)
                    if not low < high:
                        continue
                    cut = last_block
                    threshold = np.float32(low + _uniform(state) * (high - low))
                    if threshold >= high:  # by rounding
                        threshold = low
                    left, left_size = _below(here[: end - begin], threshold, surplus[begin:end], weight[begin:end])
                varying += 1
                if left_size < min_leaf or size - left_size < min_leaf:
                    continue
                explained = left**2 / left_size + (total - left) ** 2 / (size - left_size)
                if explained > best:
                    best, best_cut = explained, cut
                    feature[node], value[node] = column, threshold
            if feature[node] < 0:
                break
            depth += 1
            if feature[node] == n_columns:
                _wait(waiting[n_waiting], begin, end, best_cut, last_block, depth, node)
                last_block = best_cut
            else:
                middle = begin + _part(columns[feature[node]], value[node], who[begin:end], other)
                _wait(waiting[n_waiting], middle, end, block, last_block, depth, node)
                end = middle
            n_waiting += 1
    return n_nodes


@compiled()
def _reach(
    columns: _Float32, i: int, block: int, n_blocks: int, feature: _Int32, right: _Int32, value: _Float32
) -> tuple[int, int]:
    """Return the leaf that a patient reaches in a block, and the first block after it with a way of its own."""
    node = 0
    while feature[node] >= 0:
        other = right[node]  # loaded in any case, so that there is nothing to guess for the processor
        if feature[node] < len(columns):
            inside = columns[feature[node], i] <= value[node]
        else:
            inside = np.float32(block) <= value[node]
            if inside:
                n_blocks = min(n_blocks, int(value[node]) + 1)
        node = node + 1 if inside else other
    return node, n_blocks


@compiled()
def step(
    columns: _Float32,
    first: _Int32,
    feature: _Int32,
    right: _Int32,
    value: _Float32,
    steps: FloatArray,
    largest: float,
    event: FloatArray,
    exposure: FloatArray,
    f: FloatArray,
    expected: FloatArray,
    fold: _Int32,
    k: int,
    left_out: FloatArray,
) -> float:
    """Add to the logs of hazards the steps of the leaves that the rows reach, and return the loss of those left out.

    Parameters
    ----------
    columns, first, feature, right, value
        As in :func:`grow`.
    steps, largest
        The step of each node; the largest log of a hazard, either way.
    event, exposure
        Weighted events of the rows, and those expected with a log of 0.
    f, expected
        Logs of the rows' hazards, and the events expected with them; both change.
    fold, k
        Fold of each patient, and the one that is left out.
    left_out
        Gets the logs of those left out.
    """
    factor = np.exp(steps)
    loss = 0.0
    for i in range(len(first) - 1):
        row, end = first[i], first[i + 1]
        while row < end:
            leaf, until = _reach(columns, i, row - first[i], end - first[i], feature, right, value)
            add, times = steps[leaf], factor[leaf]
            for at in range(row, first[i] + until):
                f[at] += add
                expected[at] *= times
                if abs(f[at]) > largest:
                    f[at] = largest if add > 0 else -largest
                    expected[at] = exposure[at] * np.exp(f[at])
            row = first[i] + until
        if fold[i] == k:
            for at in range(first[i], end):
                left_out[at] = f[at]
                loss += expected[at] - event[at] * f[at]
    return loss


@compiled()
def add_unseen(
    columns: _Float32,
    first: _Int32,
    feature: _Int32,
    right: _Int32,
    value: _Float32,
    leaves: FloatArray,
    seen: npt.NDArray[np.bool_],
    total: FloatArray,
) -> None:
    """Add to the rows of patients that a tree has not seen the values of the leaves that they reach."""
    for i in range(len(first) - 1):
        row, end = first[i], first[i + 1]
        while row < end and not seen[i]:
            leaf, until = _reach(columns, i, row - first[i], end - first[i], feature, right, value)
            for at in range(row, first[i] + until):
                total[at] += leaves[leaf]
            row = first[i] + until
