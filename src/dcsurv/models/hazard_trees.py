"""What the models made of trees share: a relative hazard in blocks of time, above a fine baseline."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dcsurv.models.base import Features
from dcsurv.models.baseline import thinned
from dcsurv.models.estimator import SurvivalEstimator
from dcsurv.models.network import as_random_state
from dcsurv.models.ranges import NoneOr, Number, Range, WholeNumber
from dcsurv.persistence import Arrays, Header
from dcsurv.target import FloatArray, Outcome
from dcsurv.trees import BlockHazard, BlockRows, TimeBlocks, Trees

# Without a number of blocks: one for so many events, up to a few.
_EVENTS_PER_BLOCK = 30
_MOST_BLOCKS = 8


@dataclass(kw_only=True, repr=False, eq=False)
class HazardTreesEstimator(SurvivalEstimator):
    """Base of the models made of trees: h(t | x) = h0(t) r(x, block of t).

    Parameters
    ----------
    n_blocks : int or None, default None
        Blocks of time, cut at quantiles of the event times, in which the relative hazard may differ. None: one for
        every 30 events, up to 8. With 1 hazards are proportional.
    random_state : int, Generator, RandomState or None, default None
        Seed, generator or None. The same seed gives the same bits.
    """

    n_blocks: int | None = None
    random_state: Any = None

    ranges: ClassVar[dict[str, Range]] = {"n_blocks": NoneOr(WholeNumber(1))}

    @abstractmethod
    def grow(
        self, X: Features, rows: BlockRows, n_patients: int, rng: np.random.RandomState
    ) -> tuple[Trees, FloatArray, dict[str, Any]]:
        """Return the trees, relative hazards of the rows for the baseline, and a summary."""

    @abstractmethod
    def relative_hazards(self, X: Features) -> FloatArray:
        """Return the relative hazard of each patient in each block."""

    def fit_prepared(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        seed = int(as_random_state(self.random_state).randint(2**31 - 1))
        mass = np.where(y["event"], 1.0 if weight is None else weight, 0.0)
        seen = mass > 0
        times, where = np.unique(y["time"][seen], return_inverse=True)
        kept = thinned(len(times))
        events = np.diff(np.cumsum(np.bincount(where, mass[seen]))[kept], prepend=0.0)
        asked = self.n_blocks or min(max(int(seen.sum()) // _EVENTS_PER_BLOCK, 1), _MOST_BLOCKS)
        blocks = TimeBlocks.cut(times[kept], events, asked)
        rows = blocks.rows(y, weight)
        self.trees_, relative, summary = self.grow(X, rows, len(y), np.random.RandomState(seed))
        self.baseline_ = BlockHazard.estimated(blocks, y, weight, rows, relative)
        return {"seed": seed, "blocks": blocks.n_blocks, "trees": len(self.trees_), **summary}

    @property
    def nodes(self) -> FloatArray:
        return self.baseline_.blocks.times

    def survival_at_nodes(self, X: Features) -> FloatArray:
        return self.baseline_.survival(self.relative_hazards(X))

    def get_state(self) -> tuple[Header, Arrays]:
        blocks = self.baseline_.blocks
        baseline: Arrays = {
            "times": blocks.times,
            "block": blocks.block.astype(np.int32),
            "within": self.baseline_.within,
        }
        trees: Arrays = {name: getattr(self.trees_, name) for name in ("start", "feature", "right", "value")}
        arrays = {f"baseline.{name}": array for name, array in baseline.items()}
        return {"columns": self.trees_.n_columns}, arrays | {f"trees.{name}": array for name, array in trees.items()}

    def set_state(self, header: Header, arrays: Arrays) -> None:
        block = arrays["baseline.block"].astype(np.int64)
        self.baseline_ = BlockHazard(TimeBlocks(arrays["baseline.times"], block), arrays["baseline.within"])
        names = ("start", "feature", "right", "value")
        self.trees_ = Trees(int(header["columns"]), *(arrays[f"trees.{name}"] for name in names))


FRACTION = Number(above=0, below=1 + 1e-9)
