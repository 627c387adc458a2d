"""The operations in the words of ONNX: most are operators there, the others are made of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dcsurv.arithmetic.graph import Doubles, Graph, Node
from dcsurv.messages import needs_extra

with needs_extra("An ONNX file", "onnx"):
    from onnx import NodeProto, TensorProto, helper, numpy_helper

OPSET, TREE_OPSET = 20, 5
TREE_DOMAIN = "ai.onnx.ml"
# How a node of a tree compares, and how leaves are put together.
_AT_MOST, _BELOW, _SUM = 0, 1, 1
# Shorter arrays are doubles in any case.
_SMALL = 64


class Lowering:
    """Nodes and constants of an ONNX graph, while they are written.

    Parameters
    ----------
    graph : Graph
        What is written.
    inputs : mapping of str to str
        Names of values in the ONNX graph that hold the inputs.
    """

    def __init__(self, graph: Graph, inputs: Mapping[str, str]) -> None:
        self.graph, self.inputs = graph, inputs
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self._names: dict[int, str] = {}
        self._constants: set[str] = set()

    # --- writing ------------------------------------------------------------------------------------------

    def write(self, numbers: Sequence[int]) -> None:
        """Write operations in their order.

        Parameters
        ----------
        numbers : sequence of int
            Which of the graph.
        """
        for number in numbers:
            node = self.graph.nodes[number]
            if node.operation == "Constant":
                continue  # written as it is needed: as doubles, as whole numbers, or within a node
            self._names[number] = self._written(node)

    def name_of(self, number: int) -> str:
        """Return the name of a value.

        Parameters
        ----------
        number : int
            Of its operation.
        """
        if number in self.graph.arrays:
            return self._doubles(number)
        return self._names[number]

    def _doubles(self, number: int) -> str:
        """Write a constant: in single precision, and made double where it is used, if that loses nothing."""
        if number not in self._names:
            array = self.graph.arrays[number].astype(np.float64)
            with np.errstate(over="ignore"):
                short = array.astype(np.float32)
            if array.size > _SMALL and np.array_equal(short, array, equal_nan=True):
                self._names[number] = self.operator("Cast", [self.constant(short)], to=TensorProto.DOUBLE)
            else:
                self._names[number] = self.constant(array)
        return self._names[number]

    def operator(self, name: str, operands: Sequence[str], *, domain: str = "", **attributes: Any) -> str:
        """Write an operator and return the name of its output.

        Parameters
        ----------
        name : str
            Of the operator.
        operands : sequence of str
            Names of values.
        domain : str, default ""
            Of the operator.
        **attributes : object
            Of the operator.
        """
        out = f"/value {len(self.nodes)}"
        self.nodes.append(helper.make_node(name, operands, [out], domain=domain, **attributes))
        return out

    def constant(self, array: npt.NDArray[Any], name: str | None = None) -> str:
        """Write an array, unless one of its name is there, and return its name.

        Parameters
        ----------
        array : array
            Numbers.
        name : str or None, default None
            Its name; None makes one.
        """
        known = name or f"/constant {len(self._constants)}"
        if known not in self._constants:
            self._constants.add(known)
            self.initializers.append(numpy_helper.from_array(np.asarray(array), known))
        return known

    def _written(self, node: Node) -> str:
        special = getattr(self, f"_{node.operation.lower()}", None)
        if special is not None:
            out: str = special(node, **dict(node.attributes))
            return out
        return self.operator(node.operation, [self.name_of(one) for one in node.operands])

    # --- operations that are not operators ----------------------------------------------------------------

    def _input(self, node: Node, name: str) -> str:
        return self.inputs[name]

    def _single(self, node: Node) -> str:
        short = self.operator("Cast", [self.name_of(node.operands[0])], to=TensorProto.FLOAT)
        return self.operator("Cast", [short], to=TensorProto.DOUBLE)

    def _gather(self, node: Node) -> str:
        data, places = node.operands
        if places in self.graph.arrays:
            at = self.constant(self.graph.arrays[places].astype(np.int64), f"/{places} whole")
        else:
            at = self.operator("Cast", [self.name_of(places)], to=TensorProto.INT64)
        return self.operator("Gather", [self.name_of(data), at], axis=-1)

    def _concat(self, node: Node) -> str:
        return self.operator("Concat", [self.name_of(one) for one in node.operands], axis=-1)

    def _reshape(self, node: Node, shape: tuple[int, ...]) -> str:
        asked = self.constant(np.array([0, *shape], dtype=np.int64))  # 0: as many patients as there are
        return self.operator("Reshape", [self.name_of(node.operands[0]), asked])

    def _lead(self, node: Node, value: float) -> str:
        before, held = self.constant(np.array([0, 1, 0, 0], dtype=np.int64)), self.constant(np.array(value))
        return self.operator("Pad", [self.name_of(node.operands[0]), before, held])

    def _cumsum(self, node: Node) -> str:
        return self.operator("CumSum", [self.name_of(node.operands[0]), self.constant(np.array(-1, dtype=np.int64))])

    def _runningmin(self, node: Node) -> str:
        data = self.name_of(node.operands[0])
        largest = self.operator("ReduceMax", [data, self.constant(np.array([1], dtype=np.int64))], keepdims=0)
        body = helper.make_graph(
            [helper.make_node("Min", ["before", "own"], ["after"]), helper.make_node("Identity", ["after"], ["kept"])],
            "smallest so far",
            [_unknown("before", 1), _unknown("own", 1)],
            [_unknown("after", 1), _unknown("kept", 1)],
        )
        return self._scanned([largest], data, body, backwards=False)

    def _scanned(self, states: Sequence[str], data: str, body: Any, *, backwards: bool) -> str:
        """Write a loop over the second axis, and return what it collects there."""
        outputs = [f"/value {len(self.nodes)} {k}" for k in range(len(states) + 1)]
        self.nodes.append(
            helper.make_node(
                "Scan", [*states, data], outputs, body=body, num_scan_inputs=1, scan_input_axes=[1],
                scan_output_axes=[1], scan_input_directions=[int(backwards)], scan_output_directions=[int(backwards)],
            )
        )  # fmt: skip
        return outputs[-1]

    def _chebyshev(self, node: Node) -> str:
        x, coefficients = self.name_of(node.operands[0]), self.graph.arrays[node.operands[1]]
        double = self.operator("Mul", [x, self.constant(np.array(2.0))])
        one = two = self.constant(np.array(0.0))
        for factor in coefficients[:0:-1]:
            rest = self.operator("Sub", [self.constant(np.array(factor)), two])
            one, two = self.operator("Add", [self.operator("Mul", [double, one]), rest]), one
        rest = self.operator("Sub", [self.constant(np.array(coefficients[0])), two])
        return self.operator("Add", [self.operator("Mul", [x, one]), rest])

    def _count(self, node: Node, below: bool) -> str:
        x, ascending = self.name_of(node.operands[0]), self.graph.arrays[node.operands[1]].astype(np.float64)
        if not len(ascending):
            return self.operator("Mul", [x, self.constant(np.array(0.0))])
        # A balanced tree finds the place in as many steps as a search would take.
        shape = self.operator("Shape", [x])
        flat = self.operator("Reshape", [x, self.constant(np.array([-1, 1], dtype=np.int64))])
        found = self._tree_ensemble(flat, _search_tree(ascending), _AT_MOST if below else _BELOW)
        return self.operator("Reshape", [found, shape])

    def _trees(self, node: Node, blocks: int, columns: int) -> str:
        x = self.name_of(node.operands[0])
        arrays = [self.graph.arrays[one] for one in node.operands[1:]]
        column = self.operator("Gather", [x, self.constant(np.array([0], dtype=np.int64))], axis=-1)
        nothing = self.operator("Mul", [column, self.constant(np.array(0.0))])
        parts = []
        for block in range(blocks):
            number = self.operator("Add", [nothing, self.constant(np.array(float(block)))])
            parts.append(self.operator("Concat", [x, number], axis=-1))
        every = self.operator("Concat", parts, axis=0)
        sums = self._tree_ensemble(every, _TreeNodes.of(*arrays), _AT_MOST)
        by_block = self.operator("Reshape", [sums, self.constant(np.array([blocks, -1], dtype=np.int64))])
        return self.operator("Transpose", [by_block], perm=[1, 0])

    def _tree_ensemble(self, x: str, trees: _TreeNodes, mode: int) -> str:
        inner = len(trees.feature)
        return self.operator(
            "TreeEnsemble",
            [x],
            domain=TREE_DOMAIN,
            n_targets=1,
            aggregate_function=_SUM,
            post_transform=0,
            tree_roots=trees.roots,
            nodes_modes=numpy_helper.from_array(np.full(inner, mode, dtype=np.uint8), "modes"),
            nodes_featureids=trees.feature,
            nodes_splits=numpy_helper.from_array(np.array(trees.split), "splits"),
            nodes_truenodeids=[one for one, _ in trees.true],
            nodes_trueleafs=[int(is_leaf) for _, is_leaf in trees.true],
            nodes_falsenodeids=[one for one, _ in trees.false],
            nodes_falseleafs=[int(is_leaf) for _, is_leaf in trees.false],
            leaf_targetids=[0] * len(trees.leaf),
            leaf_weights=numpy_helper.from_array(np.array(trees.leaf), "weights"),
        )

    def _lstm(self, node: Node, backwards: bool) -> str:
        gates, kernel = (self.name_of(one) for one in node.operands)
        units = len(self.graph.arrays[node.operands[1]])
        first = self.operator("Gather", [gates, self.constant(np.array(0, dtype=np.int64))], axis=1)
        some = self.constant(np.arange(units, dtype=np.int64))
        begin = self.operator("Gather", [first, some], axis=-1)
        state = self.operator("Mul", [begin, self.constant(np.array(0.0))])
        steps = [
            ("MatMul", ["hidden", kernel], ["recurrent"]),
            ("Add", ["own", "recurrent"], ["gates"]),
            ("Split", ["gates"], ["i", "f", "g", "o"]),
            *(("Sigmoid", [one], [f"{one} open"]) for one in "ifo"),
            ("Tanh", ["g"], ["new"]),
            ("Mul", ["f open", "cell"], ["old part"]),
            ("Mul", ["i open", "new"], ["new part"]),
            ("Add", ["old part", "new part"], ["cell after"]),
            ("Tanh", ["cell after"], ["bounded"]),
            ("Mul", ["o open", "bounded"], ["hidden after"]),
            ("Identity", ["hidden after"], ["kept"]),
        ]
        more: dict[str, dict[str, Any]] = {"Split": {"axis": 1, "num_outputs": 4}}
        body = helper.make_graph(
            [helper.make_node(name, taken, made, **more.get(name, {})) for name, taken, made in steps],
            "one step of an LSTM",
            [_unknown(name, 2) for name in ("hidden", "cell", "own")],
            [_unknown(name, 2) for name in ("hidden after", "cell after", "kept")],
        )
        return self._scanned([state, state], gates, body, backwards=backwards)


class _TreeNodes:
    """Trees as ONNX has them: inner nodes and leaves apart; a child is its number, and whether it is a leaf."""

    def __init__(self) -> None:
        self.roots: list[int] = []
        self.feature: list[int] = []
        self.split: list[float] = []
        self.true: list[tuple[int, bool]] = []
        self.false: list[tuple[int, bool]] = []
        self.leaf: list[float] = []

    @classmethod
    def of(
        cls,
        start: npt.NDArray[Any],
        feature: npt.NDArray[Any],
        behind: npt.NDArray[Any],
        value: npt.NDArray[Any],
    ) -> _TreeNodes:
        """Take trees as the operation ``Trees`` has them."""
        out = cls()
        is_leaf = feature < 0
        place = np.where(is_leaf, np.cumsum(is_leaf), np.cumsum(~is_leaf)) - 1
        out.leaf = value[is_leaf].astype(np.float64).tolist()
        inner = np.flatnonzero(~is_leaf)
        out.feature, out.split = feature[inner].tolist(), value[inner].astype(np.float64).tolist()
        for side, child in ((out.true, inner + 1), (out.false, inner + behind[inner])):
            side += list(zip(place[child].tolist(), is_leaf[child].tolist(), strict=True))
        for root in start[:-1]:
            if is_leaf[root]:  # a tree of one leaf is a question with the same answer on both sides
                out.roots.append(len(out.feature))
                out.feature.append(0)
                out.split.append(0.0)
                out.true.append((int(place[root]), True))
                out.false.append((int(place[root]), True))
            else:
                out.roots.append(int(place[root]))
        return out


def _search_tree(ascending: Doubles) -> _TreeNodes:
    """Return a balanced tree whose leaves are the places of a number among ascending ones."""
    out = _TreeNodes()
    out.roots = [0]
    out.leaf = [float(place) for place in range(len(ascending) + 1)]

    def grow(low: int, high: int) -> tuple[int, bool]:
        if low == high:
            return low, True
        middle, own = (low + high) // 2, len(out.feature)
        out.feature.append(0)
        out.split.append(float(ascending[middle]))
        out.true.append((0, False))
        out.false.append((0, False))
        out.true[own] = grow(low, middle)
        out.false[own] = grow(middle + 1, high)
        return own, False

    grow(0, len(ascending))
    return out


def _unknown(name: str, rank: int) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.DOUBLE, [None] * rank)
