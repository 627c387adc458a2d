"""Blocks of time: a baseline hazard times a relative hazard that is constant within each of a few blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from dcsurv.nonparametric import StepFunction, breslow
from dcsurv.target import FloatArray, IntArray, Outcome


@dataclass(frozen=True)
class BlockRows:
    """A row per patient and block of time that the patient entered and in which somebody could have an event.

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
    """

    patient: IntArray
    block: IntArray
    exposure: FloatArray
    event: FloatArray
    weight: FloatArray

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.patient)

    def features(self, X: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the features of the rows, with the block as the last column."""
        out = np.empty((len(self), X.shape[1] + 1), dtype=np.float32)
        out[:, :-1] = X[self.patient]
        out[:, -1] = self.block
        return out


@dataclass(frozen=True)
class TimeBlocks:
    """Times of events, cut into blocks.

    Parameters
    ----------
    times : array of float
        The times at which curves have a node, ascending.
    block : array of int
        The block of each of them, ascending from 0.
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
        return self.times[np.append(np.flatnonzero(np.diff(self.block)), len(self.block) - 1)]

    def rows(self, y: Outcome, weight: FloatArray | None) -> BlockRows:
        """Split patients into rows, with the exposure to the hazard of the whole cohort.

        Parameters
        ----------
        y : structured array
            Outcomes.
        weight : array or None
            One weight per patient.
        """
        mass = np.ones(len(y)) if weight is None else weight
        time = np.ascontiguousarray(y["time"])
        hazard = StepFunction(*breslow(time, y["event"], np.ones(len(y)), mass), initial=0.0)
        ends = self.ends
        lived = hazard(np.minimum(time[:, None], ends))
        exposure = np.diff(lived, axis=1, prepend=0.0)
        own = np.minimum(np.searchsorted(ends, time), len(ends) - 1)
        patient, block = np.nonzero((exposure > 0) & (mass > 0)[:, None])
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
    """

    blocks: TimeBlocks
    within: FloatArray

    @classmethod
    def estimated(
        cls, blocks: TimeBlocks, y: Outcome, weight: FloatArray | None, rows: BlockRows, relative: FloatArray
    ) -> Self:
        """Estimate it as Breslow does: events at a time by the relative hazards of those at risk then.

        Parameters
        ----------
        blocks : TimeBlocks
            Nodes and blocks.
        y : structured array
            Outcomes.
        weight : array or None
            One weight per patient.
        rows : BlockRows
            The patients' rows.
        relative : array of float
            The relative hazard of each row.
        """
        mass = np.ones(len(y)) if weight is None else weight
        time = np.ascontiguousarray(y["time"])
        within = np.empty(len(blocks.times))
        begin = -np.inf
        for block, end in enumerate(blocks.ends):
            here = rows.block == block
            who = rows.patient[here]
            event = y["event"][who] & (time[who] > begin) & (time[who] <= end)
            hazard = StepFunction(*breslow(time[who], event, relative[here], mass[who]), initial=0.0)
            nodes = blocks.block == block
            within[nodes] = hazard(blocks.times[nodes])
            begin = end
        return cls(blocks, within)

    def survival(self, relative: FloatArray) -> FloatArray:
        """Return S at the nodes.

        Parameters
        ----------
        relative : array of float
            Relative hazards of patients in each block, (n, blocks).
        """
        block = self.blocks.block
        last = np.append(np.flatnonzero(np.diff(block)), len(block) - 1)
        before = np.cumsum(relative * self.within[last], axis=1)
        before = np.concatenate([np.zeros((len(relative), 1)), before[:, :-1]], axis=1)
        out: FloatArray = np.exp(-(before[:, block] + relative[:, block] * self.within))
        return out
