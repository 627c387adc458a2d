"""The times at which a discrete model predicts: linear, logarithmic or quantile spacing."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from dcsurv.messages import InputError, Message, ModelParameter
from dcsurv.target import FloatArray, IntArray, unpack

Spacing: TypeAlias = Literal["linear", "log", "quantile"]
Convention: TypeAlias = Literal["default", "paper"]

# Where the default log grid starts: a low quantile of the event times, so that the unit does not matter.
_LOG_START_QUANTILE = 0.01
# Where the authors' log grid starts.
_PAPER_LOG_START_DAYS = 10.0


def check_convention(convention: str) -> None:
    """Refuse anything but the two named conventions."""
    if convention not in get_args(Convention):
        raise ValueError(f"convention is {convention!r}, but 'default' or 'paper' is expected.")


@dataclass(frozen=True)
class TimeGrid:
    """The nodes 0 < g_1 <= ... <= g_L of a discrete model; time 0, where S = 1, is implied.

    Attributes
    ----------
    nodes : array of float
        The L node times. Bucket l is (g_{l-1}, g_l].
    spacing : {"linear", "log", "quantile"}
        How they were placed.

    Examples
    --------
    >>> from dcsurv import TimeGrid, make_outcome
    >>> y = make_outcome(time=[1, 2, 3, 4, 5, 6, 7, 8], event=[1, 0, 1, 0, 1, 0, 1, 0])
    >>> grid = TimeGrid.make(y, "linear", n_nodes=4)
    >>> grid.nodes
    array([2., 4., 6., 8.])
    >>> grid.bucket([1, 2, 5, 9])
    array([0, 0, 2, 4])
    >>> TimeGrid.make(y, "quantile", n_nodes=2).nodes
    array([4.5, 8. ])
    """

    nodes: FloatArray
    spacing: Spacing

    def __post_init__(self) -> None:
        nodes = np.ascontiguousarray(self.nodes, dtype=np.float64)
        if nodes.ndim != 1 or len(nodes) == 0:
            raise ValueError(f"nodes has shape {nodes.shape}, but a one-dimensional array of times is expected.")
        if not np.isfinite(nodes).all() or nodes[0] < 0 or (np.diff(nodes) < 0).any():
            raise ValueError(f"nodes must be finite, not negative and in ascending order; got {nodes[:5]}...")
        object.__setattr__(self, "nodes", nodes)

    @classmethod
    def make(
        cls,
        y: Any,
        spacing: Spacing = "quantile",
        n_nodes: int = 40,
        convention: Convention = "default",
    ) -> TimeGrid:
        """Place nodes over the times of the training outcome.

        ======== =============================================== ==============================================
        spacing  default                                         paper (times in days)
        ======== =============================================== ==============================================
        linear   equal steps from 0 to the last time             equal steps from 0 to the last time + 1
        log      equal ratios from the 1 % quantile of the       equal ratios from 10 days to the last time + 1,
                 event times to the last time                    the first point left out
        quantile quantiles k/L of all times, events and          the same
                 censored
        ======== =============================================== ==============================================

        The paper's grids are rounded to whole days, which makes duplicate nodes; they are kept, since the
        network has an output for each. The default does not round and removes duplicates, so that
        ``grid.size`` may be smaller than ``n_nodes``.

        Parameters
        ----------
        y : outcome
            Outcome of the training patients.
        spacing : {"linear", "log", "quantile"}, default "quantile"
            How to place the nodes, see the table.
        n_nodes : int, default 40
            How many of them, L.
        convention : {"default", "paper"}, default "default"
            Which column of the table.

        Returns
        -------
        TimeGrid
            The grid.
        """
        time, event = unpack(y)
        check_convention(convention)
        if spacing not in get_args(Spacing):
            raise ValueError(f"spacing is {spacing!r}, but 'linear', 'log' or 'quantile' is expected.")
        if not isinstance(n_nodes, numbers.Integral) or n_nodes < 1:
            raise ValueError(f"n_nodes is {n_nodes!r}, but a whole number of at least 1 output node is needed.")
        last = float(time.max())
        if last <= 0:
            raise ValueError("every time is 0, so no grid can be laid over them. Check the time column.")
        if convention == "paper" and last < 2 * _PAPER_LOG_START_DAYS:
            raise InputError(
                f"the paper's grids are in whole days, but the last time is {last:g}.",
                parameter="convention",
                remedy=Message(
                    "Pass times in days, or use {convention}.", convention=ModelParameter("convention", "default")
                ),
            )
        if convention == "paper":
            return cls(np.rint(_paper_nodes(time, spacing, n_nodes)), spacing)
        if spacing == "linear":
            nodes = np.linspace(0, last, n_nodes + 1)[1:]
        elif spacing == "quantile":
            nodes = np.quantile(time, np.linspace(0, 1, n_nodes + 1)[1:])
        else:
            positive = time[event & (time > 0)]
            if len(positive) == 0:
                raise InputError(
                    "log spacing starts at the early event times, but there is no event after time 0.",
                    parameter="spacing",
                    remedy=Message(
                        "Use {linear} or {quantile}.",
                        linear=ModelParameter("spacing", "linear"),
                        quantile=ModelParameter("spacing", "quantile"),
                    ),
                )
            first = float(np.quantile(positive, _LOG_START_QUANTILE))
            nodes = np.geomspace(first, last, n_nodes) if first < last else np.array([last])
            nodes[-1] = last
        return cls(np.unique(nodes[nodes > 0]), spacing)

    @property
    def size(self) -> int:
        """The number of nodes, L."""
        return len(self.nodes)

    def bucket(self, time: npt.ArrayLike) -> IntArray:
        """Return in which bucket each time lies.

        Parameters
        ----------
        time : array-like of float
            Times of patients.

        Returns
        -------
        array of int
            The 0-based index of the first node at or after each time; L for times beyond the grid.
        """
        return np.searchsorted(self.nodes, np.asarray(time, dtype=np.float64), side="left")

    def passed(self, time: npt.ArrayLike) -> FloatArray:
        """Return which share of its bucket lies before each time.

        Parameters
        ----------
        time : array-like of float
            Times of patients.

        Returns
        -------
        array of float
            Between 0 and 1; 1 at a node, and beyond the grid.
        """
        z = np.asarray(time, dtype=np.float64)
        knots = np.concatenate([[0.0], self.nodes])
        end = np.minimum(self.bucket(z), self.size - 1) + 1
        width = knots[end] - knots[end - 1]
        share = np.divide(z - knots[end - 1], width, out=np.ones_like(z), where=width > 0)
        return np.clip(share, 0.0, 1.0)


def _paper_nodes(time: FloatArray, spacing: Spacing, n_nodes: int) -> FloatArray:
    end = float(time.max()) + 1
    if spacing == "linear":
        return np.linspace(0, end, n_nodes + 1)[1:]
    if spacing == "log":
        return np.logspace(np.log10(_PAPER_LOG_START_DAYS), np.log10(end), n_nodes + 1)[1:]
    # Percentiles of 100 k / L, as pandas takes quantiles: the last bit decides how half a day is rounded.
    return np.percentile(time, np.linspace(0, 1, n_nodes + 1)[1:] * 100)
