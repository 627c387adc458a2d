"""Blocks of time: a baseline hazard times a relative hazard that is constant within each of a few blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dcsurv.arithmetic import Value
from dcsurv.nonparametric import StepFunction, breslow
from dcsurv.target import FloatArray, IntArray, Outcome


@dataclass(frozen=True)
class BlockRows:
    """A row per patient and block of time that the patient entered and in which somebody could have an event.

    The rows of a patient follow each other, from block 0 on.

    Parameters
    ----------
    patient : array of int
        Whose row it is.
    block : array of int
        Which block.
    exposure : array of float
        The baseline cumulative hazard that the patient lived through in this block: the events to be expected.
    event : array of float
        1 if the patient had the event in this block, 0 otherwise.
    weight : array of float
        Of the patient.
    groups : array of int or None, default None
        One number per patient, which those share who are drawn and left out together.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv import make_outcome
    >>> from dcsurv.trees import TimeBlocks
    >>> y = make_outcome(time=[1, 2, 3, 4], event=[1, 1, 0, 1])
    >>> rows = TimeBlocks.cut(np.array([1.0, 2.0, 4.0]), np.ones(3), n_blocks=2).rows(y, None)
    >>> rows.patient.tolist(), rows.block.tolist()
    ([0, 1, 1, 2, 2, 3, 3], [0, 0, 1, 0, 1, 0, 1])
    """

    patient: IntArray
    block: IntArray
    exposure: FloatArray
    event: FloatArray
    weight: FloatArray
    groups: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.patient)


@dataclass(frozen=True)
class TimeBlocks:
    """Times of events, cut into blocks.

    Parameters
    ----------
    times : array of float
        The times at which curves have a node, ascending.
    block : array of int
        The block of each of them, ascending from 0.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.trees import TimeBlocks
    >>> blocks = TimeBlocks.cut(np.array([1.0, 2.0, 4.0, 9.0]), np.ones(4), n_blocks=2)
    >>> blocks.ends
    array([2., 9.])
    """

    times: FloatArray
    block: IntArray

    @classmethod
    def cut(cls, times: FloatArray, events: FloatArray, n_blocks: int) -> Self:
        """Cut times so that every block has about the same number of events.

        Parameters
        ----------
        times : array of float
            The times at which curves have a node.
        events : array of float
            The events, or their weight, at each of them and since the one before.
        n_blocks : int
            How many blocks there should be; ties may leave fewer.

        Returns
        -------
        TimeBlocks
            The blocks.
        """
        middle = (np.cumsum(events) - 0.5 * events) / events.sum()
        asked = np.minimum((n_blocks * middle).astype(np.int64), n_blocks - 1)
        return cls(times, np.unique(asked, return_inverse=True)[1].astype(np.int64))

    @property
    def n_blocks(self) -> int:
        """How many blocks there are."""
        return int(self.block[-1]) + 1

    @property
    def ends(self) -> FloatArray:
        """The last time of each block."""
        return self.times[self._last]

    @property
    def _last(self) -> IntArray:
        """The last node of each block."""
        return np.append(np.flatnonzero(np.diff(self.block)), len(self.block) - 1)

    def rows(self, y: Outcome, weight: FloatArray | None) -> BlockRows:
        """Split patients into rows, with the exposure to the hazard of the whole cohort.

        Parameters
        ----------
        y : structured array
            Outcomes.
        weight : array or None
            One weight per patient.

        Returns
        -------
        BlockRows
            The rows, of patients whose weight is not 0.
        """
        mass = np.ones(len(y)) if weight is None else weight
        time = np.ascontiguousarray(y["time"])
        hazard = StepFunction(*breslow(time, y["event"], np.ones(len(y)), mass), initial=0.0)
        ends = self.ends
        lived = hazard(np.minimum(time[:, None], ends))
        exposure = np.diff(lived, axis=1, prepend=0.0)
        own = np.minimum(np.searchsorted(ends, time), len(ends) - 1)
        last = len(ends) - np.argmax(exposure[:, ::-1] > 0, axis=1)  # blocks up to the last one with any exposure
        entered = (exposure.max(axis=1) > 0) & (mass > 0)
        patient, block = np.nonzero((np.arange(len(ends)) < last[:, None]) & entered[:, None])
        event = (y["event"][patient] & (own[patient] == block)).astype(np.float64)
        return BlockRows(patient, block, exposure[patient, block], event, mass[patient])


@dataclass(frozen=True)
class BlockHazard:
    """The baseline: its cumulative hazard within each block, at the nodes.

    Parameters
    ----------
    blocks : TimeBlocks
        Nodes and blocks.
    within : array of float
        The baseline cumulative hazard at each node since the beginning of its block.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.trees import BlockHazard, TimeBlocks
    >>> blocks = TimeBlocks.cut(np.array([1.0, 2.0, 4.0, 9.0]), np.ones(4), n_blocks=2)
    >>> baseline = BlockHazard(blocks, np.array([0.1, 0.2, 0.1, 0.3]))
    >>> -np.log(baseline.survival(np.array([[1.0, 2.0]]))).round(3)  # twice the hazard in the second block
    array([[0.1, 0.2, 0.4, 0.8]])
    """

    blocks: TimeBlocks
    within: FloatArray

    @classmethod
    def estimated(cls, blocks: TimeBlocks, y: Outcome, rows: BlockRows, relative: FloatArray) -> Self:
        """Estimate it as Breslow does: events at a time by the relative hazards of those at risk then.

        Parameters
        ----------
        blocks : TimeBlocks
            Nodes and blocks.
        y : structured array
            Outcomes.
        rows : BlockRows
            The patients' rows.
        relative : array of float
            The relative hazard of each row.

        Returns
        -------
        BlockHazard
            The baseline.
        """
        within = np.empty(len(blocks.times))
        for block in range(blocks.n_blocks):
            here = rows.block == block
            time = np.ascontiguousarray(y["time"][rows.patient[here]])
            times, hazard = breslow(time, rows.event[here] > 0, relative[here], rows.weight[here])
            nodes = blocks.block == block
            within[nodes] = StepFunction(times, hazard, initial=0.0)(blocks.times[nodes])
        return cls(blocks, within)

    def survival(self, relative: FloatArray, times: FloatArray | None = None) -> FloatArray:
        """Return survival curves.

        Parameters
        ----------
        relative : array of float
            Relative hazards of patients in each block, (n, blocks).
        times : array of float or None, default None
            Ascending times; None: the nodes.

        Returns
        -------
        array of float
            S at these times, (n, times).
        """
        block, within = self.blocks.block, self.within
        if times is not None:
            node = np.searchsorted(self.blocks.times, times, side="right") - 1
            block, within = block[np.maximum(node, 0)], np.where(node < 0, 0.0, within[np.maximum(node, 0)])
        # One row per block and then per time: all patients at a time lie side by side.
        factor = np.ascontiguousarray(relative.T)
        before = np.zeros_like(factor)
        np.cumsum(factor[:-1] * self.within[self.blocks._last[:-1], None], axis=0, out=before[1:])
        hazard = factor[block]
        hazard *= within[:, None]
        hazard += before[block]
        np.negative(hazard, out=hazard)
        return np.exp(hazard, out=hazard).T

    def arithmetic(self, relative: Value, times: FloatArray | None = None) -> Value:
        """Return what :meth:`survival` computes as arithmetic.

        Parameters
        ----------
        relative : Value
            Relative hazards of patients in each block, (n, blocks).
        times : array of float or None, default None
            Ascending times; None: the nodes.

        Returns
        -------
        Value
            S at these times, (n, times).
        """
        block, within = self.blocks.block, self.within
        if times is not None:
            node = np.searchsorted(self.blocks.times, times, side="right") - 1
            block, within = block[np.maximum(node, 0)], np.where(node < 0, 0.0, within[np.maximum(node, 0)])
        # What each block adds to all later ones.
        whole = (np.arange(self.blocks.n_blocks)[:, None] < block) * self.within[self.blocks._last, None]
        return (-(relative.take(block) * within + relative @ whole)).exp()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Take a baseline from a file.

        Parameters
        ----------
        arrays : mapping
            What :meth:`to_arrays` returned.

        Returns
        -------
        BlockHazard
            The baseline.

        Raises
        ------
        ValueError
            The arrays are not those of a baseline.
        """
        times, within = (np.asarray(arrays[name], dtype=np.float64) for name in ("times", "within"))
        block = arrays["block"].astype(np.int64)
        if not times.ndim == within.ndim == block.ndim == 1 or not 0 < len(times) == len(within) == len(block):
            raise ValueError("the baseline's times, blocks and hazards are not lists of the same length.")
        if not (np.isfinite(times).all() and (np.diff(times) > 0).all()):
            raise ValueError("the baseline's times are not ascending.")
        steps = np.diff(block)
        if block[0] != 0 or not np.isin(steps, (0, 1)).all():
            raise ValueError("the baseline's blocks do not follow each other.")
        rises = np.where(np.append(1, steps) == 0, np.diff(within, prepend=0.0), within)
        if not (np.isfinite(within).all() and (rises >= 0).all()):
            raise ValueError("the baseline's cumulative hazard does not rise from 0 within its blocks.")
        return cls(TimeBlocks(times, block), within)

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the baseline for a file.

        Returns
        -------
        dict
            Arrays by name.
        """
        return {"times": self.blocks.times, "block": self.blocks.block.astype(np.int32), "within": self.within}
