"""A graph packed for a browser: a description in JSON and one block of bytes.

The description holds

- ``format``: 1; ``kind``: the class of the model; ``about``: what else the model tells,
- ``features``: ``{"name", "value", "levels"}`` each, as in :class:`FeatureInput`,
- ``operations``: the names that nodes refer to by their place,
- ``nodes``: ``[operation, operand, operand, ..., {attributes}]`` in the order in which they can be done; an operand is
  the place of another node, the attributes are left out where there are none, and a Constant's one operand is the place
  of its array,
- ``arrays``: ``[type, shape, offset]`` in the block of bytes, little-endian, each beginning at a multiple of eight,
- ``outputs``: places of nodes by name; see :class:`Arithmetic` for what they are,
- ``knots``, the array of the times of the output ``curve``, ``interpolation`` between them, ``maps``, whether others
  follow, and ``median_level``, the S of ``curve`` at the median,
- ``bounds``: ``null``, or the arrays ``early`` and ``until``,
- ``rows``: how many patients are to be computed at a time, so that memory stays small.

``page/arithmetic.js`` of the service computes with it; that file says what may be asked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dcsurv.arithmetic.graph import Graph
from dcsurv.arithmetic.whole import Arithmetic, Computable

_FORMAT = 1
# Types that browsers know, the shortest first.
_WHOLE = ("int8", "uint8", "int16", "uint16", "int32")
_ALIGNMENT = 8
# Numbers that are held for a piece of the patients, and the most patients in one.
_NUMBERS, _ROWS = 4_000_000, 512


def packed(model: Computable | Arithmetic) -> tuple[dict[str, Any], bytes]:
    """Return a fitted model for ``page/arithmetic.js``, to compute in a browser what the model predicts.

    Parameters
    ----------
    model : Computable or Arithmetic
        A fitted model, or its arithmetic.

    Returns
    -------
    description : dict
        Plain data for JSON.
    block : bytes
        The arrays. No number loses a digit, and each type is the shortest that keeps all.

    Examples
    --------
    >>> from dcsurv import CoxPH
    >>> from dcsurv.arithmetic import packed
    >>> from dcsurv.datasets import load_metabric
    >>> description, block = packed(CoxPH().fit(*load_metabric()))
    >>> description["kind"], description["features"][0]["name"], description["interpolation"]
    ('CoxPH', 'MKI67', 'step')
    """
    whole = model if isinstance(model, Arithmetic) else model.arithmetic()
    graph = whole.graph
    block = _Block()
    kept = graph.needed_for(list(graph.outputs))
    place = {number: at for at, number in enumerate(kept)}
    operations = sorted({graph.nodes[number].operation for number in kept})
    nodes = [_node(graph, number, place, operations, block) for number in kept]
    bounds = None
    if whole.early is not None and whole.until is not None:
        bounds = {"early": block.add(whole.early), "until": block.add(whole.until)}
    description = {
        "format": _FORMAT,
        "kind": whole.kind,
        "about": dict(whole.about),
        "features": [
            {**one._asdict(), "levels": None if one.levels is None else list(one.levels)} for one in whole.features
        ],
        "operations": operations,
        "nodes": nodes,
        "outputs": {name: place[number] for name, number in graph.outputs.items()},
        "knots": block.add(whole.curves.knots),
        "interpolation": whole.curves.interpolation,
        "maps": bool(whole.curves.maps),
        "median_level": whole.curves.source_of(0.5),
        "bounds": bounds,
        "rows": max(1, min(_ROWS, _NUMBERS // whole.numbers_per_row)),
        "arrays": block.arrays,
    }
    return description, bytes(block.bytes)


def _node(graph: Graph, number: int, place: dict[int, int], operations: list[str], block: _Block) -> list[Any]:
    node = graph.nodes[number]
    operation = operations.index(node.operation)
    if node.operation == "Constant":
        return [operation, block.add(graph.arrays[number])]
    out: list[Any] = [operation, *(place[one] for one in node.operands)]
    return [*out, dict(node.attributes)] if node.attributes else out


class _Block:
    """Arrays one after the other."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.arrays: list[list[Any]] = []

    def add(self, array: npt.NDArray[Any]) -> int:
        """Append an array and return its place among all."""
        short = _shortest(array)
        self.bytes += b"\0" * (-len(self.bytes) % _ALIGNMENT)
        self.arrays.append([short.dtype.name, list(short.shape), len(self.bytes)])
        self.bytes += short.astype(short.dtype.newbyteorder("<")).tobytes()
        return len(self.arrays) - 1


def _shortest(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of the shortest type that keeps every number."""
    wide = np.asarray(array, dtype=np.float64)
    if (
        array.size
        and np.isfinite(wide).all()
        and (wide == np.rint(wide)).all()
        and not np.signbit(wide[wide == 0]).any()
    ):
        low, high = wide.min(), wide.max()
        for name in _WHOLE:
            if np.iinfo(name).min <= low and high <= np.iinfo(name).max:
                return wide.astype(name)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    return narrow if np.array_equal(narrow.astype(np.float64), wide, equal_nan=True) else wide
