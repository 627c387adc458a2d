"""Survival curves in a graph: values at knots, how to read between them, and maps after reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from dcsurv.arithmetic.graph import Doubles, Value

# -log S is infinite where S = 0; survival below this counts as this, as in `curves.interpolated`.
_SMALLEST_SURVIVAL = 1e-12


class LevelMap(Protocol):
    """An increasing map of survival that is the same at all times."""

    def arithmetic(self, survival: Value) -> Value:
        """Return what survival is mapped to."""

    def source_of(self, level: float) -> float:
        """Return the largest S that is mapped to no more than a level."""


@dataclass(frozen=True)
class ReadableCurves:
    """Curves of n patients that are known at common nodes and can be read at any times.

    Parameters
    ----------
    times : array of float
        The nodes, ascending, (T,).
    survival : Value
        S at the nodes, (n, T).
    interpolation : {"linear", "constant_hazard", "step"}
        How curves run between the nodes.
    maps : tuple of LevelMap, default ()
        What is applied after reading, in this order.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.arithmetic import Graph, ReadableCurves
    >>> graph = Graph()
    >>> curves = ReadableCurves(np.array([1.0, 2.0]), graph.value("survival"), "linear")
    >>> curves.knots
    array([0., 1., 2.])
    >>> curves.read(graph.value("times")).graph.nodes[-1].operation
    'Add'
    """

    times: Doubles
    survival: Value
    interpolation: Literal["linear", "constant_hazard", "step"]
    maps: tuple[LevelMap, ...] = ()

    @property
    def knots(self) -> Doubles:
        """Time 0 and the nodes."""
        return self.times if self.times[0] <= 0 else np.append(0.0, self.times)

    @property
    def table(self) -> Value:
        """S at the knots before any map: 1 at time 0."""
        return self.survival if self.times[0] <= 0 else self.survival.lead(1.0)

    def mapped(self, one: LevelMap) -> ReadableCurves:
        """Return the same curves with one more map after reading.

        Parameters
        ----------
        one : LevelMap
            The map.
        """
        return replace(self, maps=(*self.maps, one))

    def source_of(self, level: float) -> float:
        """Return the S before all maps that becomes a level.

        Parameters
        ----------
        level : float
            Between 0 and 1.
        """
        for one in reversed(self.maps):
            level = one.source_of(level)
        return level

    def read(self, times: Value | Doubles) -> Value:
        """Return S at times, (n, m); beyond the last node curves are held.

        Parameters
        ----------
        times : Value or array of float
            Times that are not negative, (m,); known now, or when the graph is computed.
        """
        table = self.table
        if self.interpolation == "constant_hazard":
            table = table.at_least(_SMALLEST_SURVIVAL).log()
        out = self._between_unknown(table, times) if isinstance(times, Value) else self._between(table, times)
        if self.interpolation == "constant_hazard":
            out = out.exp()
        for one in self.maps:
            out = one.arithmetic(out)
        return out

    def _between(self, table: Value, times: Doubles) -> Value:
        knots = self.knots
        last = len(knots) - 1
        left = np.searchsorted(knots, times, side="right") - 1
        after = np.minimum(left + 1, last)
        width = knots[after] - knots[left]
        share = np.divide(times - knots[left], width, out=np.zeros(len(times)), where=width > 0)
        below = table.take(left)
        if self.interpolation == "step" or not share.any():
            return below
        return (table.take(after) - below) * share + below

    def _between_unknown(self, table: Value, times: Value) -> Value:
        knots, graph = self.knots, table.graph
        left = times.count(knots[1:])
        below = table.take(left)
        if self.interpolation == "step" or len(knots) == 1:
            return below
        width = np.append(np.diff(knots), 1.0)  # after the last knot nothing is added, however wide it is
        share = (times - graph.constant(knots).take(left)) / graph.constant(width).take(left)
        after = graph.constant(np.minimum(np.arange(len(knots)) + 1, len(knots) - 1)).take(left)
        return (table.take(after) - below) * share + below


def average(values: Sequence[Value]) -> Value:
    """Return the mean of values.

    Parameters
    ----------
    values : sequence of Value
        One or more.
    """
    total = values[0]
    for one in values[1:]:
        total = total + one
    return total if len(values) == 1 else total / float(len(values))
