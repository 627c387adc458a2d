"""Arithmetic as a graph: values, and the few operations that make new ones of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Doubles: TypeAlias = npt.NDArray[np.float64]

# All that a graph may do. Numbers are doubles, "the last axis" is that of columns or times, and shapes are broadcast as
# in NumPy. An index, or the answer to a question, is a double as well: 0, 1, 2, ... Operations with the name of an ONNX
# operator do what that does; the others say what they are written as there in `lowering.py`.
OPERATIONS: Mapping[str, str] = MappingProxyType(
    {
        "Input": "a value from outside, by its name",
        "Constant": "an array that the graph holds",
        "Add": "a + b",
        "Sub": "a - b",
        "Mul": "a * b",
        "Div": "a / b",
        "Min": "the smaller of a and b",
        "Max": "the larger of a and b",
        "Neg": "-a",
        "Exp": "e to the power of a",
        "Log": "the natural logarithm of a; of 0 it is minus infinity",
        "Sqrt": "the root of a",
        "Abs": "a without its sign",
        "Relu": "a, or 0 where it is negative",
        "Sigmoid": "1 / (1 + exp(-a))",
        "Tanh": "the hyperbolic tangent of a",
        "Single": "a rounded to single precision, and a double again",
        "Less": "1 where a < b, else 0; only for Where",
        "Equal": "1 where a = b, else 0; only for Where",
        "IsNaN": "1 where a is missing, else 0; only for Where",
        "Where": "b where a is 1, else c",
        "MatMul": "the last axis of a times the matrix b",
        "Gather": "of the last axis of a, the places b",
        "Concat": "all operands side by side on the last axis; the first decides the others",
        "Reshape": "the numbers of each patient in another shape; the attribute has it without the patients",
        "Lead": "a with a column before it that holds the attribute `value`",
        "CumSum": "running sums along the last axis",
        "RunningMin": "the smallest so far along the last axis",
        "Count": "how many of the ascending numbers b are at most a; with the attribute `below`, are below a",
        "Chebyshev": "the sum of Chebyshev polynomials of a, within [-1, 1], with the coefficients b",
        "Trees": "sums of leaves, (n, blocks), of the columns a by trees: first nodes b, features c, how far behind a "
        "node its right child is d, thresholds or values e; the left child is the next node. The attributes are "
        "`blocks`, and `columns`, their number, which as a feature stands for the block",
        "Lstm": "hidden states, (n, steps, units), of gates a = (n, steps, [i f g o] x units) without their recurrent "
        "part, whose kernel is b; the attribute `backwards` says in which direction",
    }
)


class Node(NamedTuple):
    """One operation: its name, the numbers of its operands, and its attributes."""

    operation: str
    operands: tuple[int, ...]
    attributes: tuple[tuple[str, Any], ...] = ()


class Graph:
    """Operations in the order in which they can be done, arrays, and names of results.

    The same operation on the same values is done once: asked for again, it is the value that is there.

    Attributes
    ----------
    nodes : list of Node
        The operations; the place of each is its number.
    arrays : dict of int to array
        What the constants hold, by their number.
    outputs : dict of str to int
        Names of results.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.arithmetic import Graph
    >>> graph = Graph()
    >>> age = graph.value("age")
    >>> graph.outputs["risk"] = ((age - 50.0) * 0.04).exp().number
    >>> [node.operation for node in graph.nodes]
    ['Input', 'Constant', 'Sub', 'Constant', 'Mul', 'Exp']
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.arrays: dict[int, npt.NDArray[Any]] = {}
        self.outputs: dict[str, int] = {}
        self._known: dict[Any, int] = {}

    def value(self, name: str) -> Value:
        """Return the value from outside that has this name.

        Parameters
        ----------
        name : str
            Its name.
        """
        return self._new(Node("Input", (), (("name", name),)))

    def constant(self, array: npt.ArrayLike) -> Value:
        """Return an array as a value.

        Parameters
        ----------
        array : array-like
            Numbers; whole ones stay so in a file, and are doubles where something is computed.
        """
        held = np.ascontiguousarray(array)
        if held.ndim != np.ndim(array):  # NumPy makes a list of a single number
            held = held.reshape(np.shape(array))
        key = held.dtype.str, held.shape, hashlib.sha256(held.tobytes()).digest()
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.arrays[len(self.nodes)] = held
            self.nodes.append(Node("Constant", ()))
        return Value(self, self._known[key])

    def apply(self, operation: str, *operands: Value | npt.ArrayLike, **attributes: Any) -> Value:
        """Return the value of an operation.

        Parameters
        ----------
        operation : str
            One of ``OPERATIONS``.
        *operands : Value or array-like
            What it is done to.
        **attributes : object
            Plain data that it depends on.
        """
        if operation not in OPERATIONS:
            raise ValueError(f"there is no operation {operation!r}; there are {', '.join(OPERATIONS)}.")
        numbers = tuple(self.as_value(one).number for one in operands)
        return self._new(Node(operation, numbers, tuple(sorted(attributes.items()))))

    def as_value(self, one: Value | npt.ArrayLike) -> Value:
        """Return a value as it is, and numbers as a constant.

        Parameters
        ----------
        one : Value or array-like
            Either.
        """
        if not isinstance(one, Value):
            return self.constant(np.asarray(one, dtype=np.float64))
        if one.graph is not self:
            raise ValueError("a value of another graph cannot be used in this one.")
        return one

    def concat(self, parts: Sequence[Value]) -> Value:
        """Return values side by side on the last axis.

        Parameters
        ----------
        parts : sequence of Value
            One or more.
        """
        return parts[0] if len(parts) == 1 else self.apply("Concat", *parts)

    def needed_for(self, names: Sequence[str]) -> list[int]:
        """Return the numbers of the operations that some outputs are made of, in their order.

        Parameters
        ----------
        names : sequence of str
            Names of outputs.
        """
        wanted = {self.outputs[name] for name in names}
        for number in range(len(self.nodes) - 1, -1, -1):
            if number in wanted:
                wanted.update(self.nodes[number].operands)
        return sorted(wanted)

    def _new(self, node: Node) -> Value:
        if node not in self._known:
            self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return Value(self, self._known[node])


class Value:
    """A number in a graph that is known when the graph is computed, or an array of them; it calculates like one.

    Parameters
    ----------
    graph : Graph
        Where it is made.
    number : int
        Of the operation that makes it.

    Examples
    --------
    >>> from dcsurv.arithmetic import Graph
    >>> x = Graph().value("x")
    >>> (2 * x).relu().graph.nodes[-1].operation
    'Relu'
    """

    # So that an array to the left of an operator leaves it to this class.
    __array_ufunc__ = None

    def __init__(self, graph: Graph, number: int) -> None:
        self.graph, self.number = graph, number

    def __add__(self, other: Value | npt.ArrayLike) -> Value:
        return self.graph.apply("Add", self, other)

    def __radd__(self, other: npt.ArrayLike) -> Value:
        return self.graph.apply("Add", other, self)

    def __sub__(self, other: Value | npt.ArrayLike) -> Value:
        return self.graph.apply("Sub", self, other)

    def __rsub__(self, other: npt.ArrayLike) -> Value:
        return self.graph.apply("Sub", other, self)

    def __mul__(self, other: Value | npt.ArrayLike) -> Value:
        return self.graph.apply("Mul", self, other)

    def __rmul__(self, other: npt.ArrayLike) -> Value:
        return self.graph.apply("Mul", other, self)

    def __truediv__(self, other: Value | npt.ArrayLike) -> Value:
        return self.graph.apply("Div", self, other)

    def __rtruediv__(self, other: npt.ArrayLike) -> Value:
        return self.graph.apply("Div", other, self)

    def __matmul__(self, other: npt.ArrayLike) -> Value:
        return self.graph.apply("MatMul", self, other)

    def __neg__(self) -> Value:
        return self.graph.apply("Neg", self)

    def __abs__(self) -> Value:
        return self.graph.apply("Abs", self)

    def exp(self) -> Value:
        """Return e to the power of it."""
        return self.graph.apply("Exp", self)

    def log(self) -> Value:
        """Return its natural logarithm."""
        return self.graph.apply("Log", self)

    def sqrt(self) -> Value:
        """Return its root."""
        return self.graph.apply("Sqrt", self)

    def relu(self) -> Value:
        """Return it, or 0 where it is negative."""
        return self.graph.apply("Relu", self)

    def sigmoid(self) -> Value:
        """Return 1 / (1 + exp(-x))."""
        return self.graph.apply("Sigmoid", self)

    def tanh(self) -> Value:
        """Return its hyperbolic tangent."""
        return self.graph.apply("Tanh", self)

    def single(self) -> Value:
        """Return it rounded to single precision."""
        return self.graph.apply("Single", self)

    def at_least(self, other: Value | npt.ArrayLike) -> Value:
        """Return it, or what it must not lie below.

        Parameters
        ----------
        other : Value or array-like
            The bound.
        """
        return self.graph.apply("Max", self, other)

    def at_most(self, other: Value | npt.ArrayLike) -> Value:
        """Return it, or what it must not lie above.

        Parameters
        ----------
        other : Value or array-like
            The bound.
        """
        return self.graph.apply("Min", self, other)

    def where_missing(self, other: Value | npt.ArrayLike) -> Value:
        """Return it, and something else where it is NaN.

        Parameters
        ----------
        other : Value or array-like
            What else.
        """
        return self.graph.apply("Where", self.graph.apply("IsNaN", self), other, self)

    def below(self, bound: npt.ArrayLike, then: Value | npt.ArrayLike, otherwise: Value | npt.ArrayLike) -> Value:
        """Return one of two values by whether it lies below a bound.

        Parameters
        ----------
        bound : array-like
            The bound.
        then, otherwise : Value or array-like
            The values.
        """
        return self.graph.apply("Where", self.graph.apply("Less", self, bound), then, otherwise)

    def equals(self, other: npt.ArrayLike) -> Value:
        """Return 1 where it is a number, else 0.

        Parameters
        ----------
        other : array-like
            The number.
        """
        return self.graph.apply("Where", self.graph.apply("Equal", self, other), 1.0, 0.0)

    def take(self, places: Value | Sequence[int] | npt.NDArray[np.int64]) -> Value:
        """Return some places of its last axis.

        Parameters
        ----------
        places : Value or sequence of int
            Which.
        """
        at = places if isinstance(places, Value) else self.graph.constant(np.asarray(places, dtype=np.int32))
        return self.graph.apply("Gather", self, at)

    def count(self, ascending: npt.ArrayLike, *, below: bool = False) -> Value:
        """Return how many of ascending numbers are at most it.

        Parameters
        ----------
        ascending : array-like
            The numbers.
        below : bool, default False
            Those only that are below it.
        """
        return self.graph.apply("Count", self, ascending, below=below)

    def reshape(self, *shape: int) -> Value:
        """Return the numbers of each patient in another shape.

        Parameters
        ----------
        *shape : int
            Without the patients.
        """
        return self.graph.apply("Reshape", self, shape=shape)

    def lead(self, value: float) -> Value:
        """Return it with a column before it.

        Parameters
        ----------
        value : float
            What the column holds.
        """
        return self.graph.apply("Lead", self, value=value)

    def running_sum(self) -> Value:
        """Return running sums along the last axis."""
        return self.graph.apply("CumSum", self)

    def running_min(self) -> Value:
        """Return the smallest so far along the last axis."""
        return self.graph.apply("RunningMin", self)
