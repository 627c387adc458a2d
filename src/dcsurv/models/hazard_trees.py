"""What the models made of trees share: a relative hazard in blocks of time, above a fine baseline."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import msgspec
import numpy as np

from dcsurv.arithmetic import Value
from dcsurv.models.base import Features
from dcsurv.models.baseline import thinned
from dcsurv.models.drawn import representatives
from dcsurv.models.estimator import SurvivalEstimator
from dcsurv.models.network import as_random_state
from dcsurv.models.ranges import NoneOr, Number, Range, WholeNumber
from dcsurv.persistence import Arrays, Header
from dcsurv.plain import Count, declared
from dcsurv.target import FloatArray, Outcome
from dcsurv.trees import LARGEST_LOG, BlockHazard, BlockRows, Growth, TimeBlocks, Trees

# Trees, whose sum is the log of the relative hazard; this of each row, by trees that have not seen the patient; a
# summary of the training.
GrownTrees: TypeAlias = tuple[Trees, FloatArray, dict[str, Any]]

# Without a number of blocks there is one for so many events, up to a few.
_EVENTS_PER_BLOCK = 30
_MOST_BLOCKS = 5
# A tree that is one of hundreds gains nothing from more, and takes longer.
_ENOUGH_FEATURES = 10
_ENOUGH_PATIENTS = 2000
# All trees together learn hardly more from more patients, which would take time and memory for each of them.
_MOST_PATIENTS = 40_000

_SHARE = Number(above=0, most=1)


class _State(msgspec.Struct):
    """What the header of a file has to say of trees."""

    columns: Count


@dataclass(kw_only=True, repr=False, eq=False)
class HazardTreesEstimator(SurvivalEstimator):
    """Base of the models made of trees, h(t | x) = h0(t) r(x, b(t)) with the block b(t) that the time lies in.

    Parameters
    ----------
    n_blocks : int or None, default None
        Blocks of time, cut at quantiles of the event times, in which the relative hazard may differ; curves have a node
        at every event time nevertheless. None: one for every 30 events, up to 5. With 1, hazards are proportional.
    max_depth : int or None, default None
        Most splits between root and leaf of a tree; None: no limit.
    min_leaf : float, default 3.0
        Fewest events to be expected in a leaf.
    max_features : float or None, default None
        Share of the features that are tried at a split, each with one random threshold. None: about ten, or all.
    subsample : float or None, default None
        Share of the patients that each tree grows on. None: about 2,000 patients, or all.
    random_state : int, Generator, RandomState or None, default None
        Seed, generator or None. The same seed gives the same bits.
    """

    n_blocks: int | None = None
    max_depth: int | None = None
    min_leaf: float = 3.0
    max_features: float | None = None
    subsample: float | None = None
    random_state: Any = None

    # The share of patients that a tree grows on where there are few.
    largest_share: ClassVar[float] = 1.0
    ranges: ClassVar[dict[str, Range]] = {
        "n_blocks": NoneOr(WholeNumber(1)),
        "max_depth": NoneOr(WholeNumber(1)),
        "min_leaf": Number(above=0),
        "max_features": NoneOr(_SHARE),
        "subsample": NoneOr(_SHARE),
    }

    @abstractmethod
    def grow(self, X: Features, rows: BlockRows, growth: Growth, rng: np.random.RandomState) -> GrownTrees:
        """Grow the trees.

        Parameters
        ----------
        X : array of shape (n, columns)
            Prepared features.
        rows : BlockRows
            The patients' rows.
        growth : Growth
            How each tree grows.
        rng : RandomState
            What chance is drawn from.

        Returns
        -------
        trees : Trees
            Their sum is the log of the relative hazard.
        left_out : array of float
            The log of the relative hazard of each row, by trees that have not seen the patient.
        summary : dict
            What there is to say of the training.
        """

    def fit_prepared(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        seed = int(as_random_state(self.random_state).randint(2**31 - 1))
        groups = self.row_groups_
        rows, weight = representatives(y, weight, _MOST_PATIENTS)
        # Neighbours with as many blocks each: a processor that guesses how long a loop will be is right.
        order = np.argsort(y["time"][rows], kind="stable")
        X, y, weight = X[rows[order]], y[rows[order]], None if weight is None else weight[order]
        blocks = self._blocks(y, weight)
        block_rows = blocks.rows(y, weight)
        if groups is not None:
            block_rows = replace(block_rows, groups=groups[rows[order]].astype(np.int32))
        growth = Growth(
            max_depth=self.max_depth,
            min_leaf=self.min_leaf,
            max_features=self.max_features or min(1.0, _ENOUGH_FEATURES / (X.shape[1] + 1)),
            subsample=self.subsample or min(self.largest_share, _ENOUGH_PATIENTS / len(y)),
        )
        self.trees_, left_out, summary = self.grow(X, block_rows, growth, np.random.RandomState(seed))
        # Trees fit the patients that they have seen too well to be asked how many events were to be expected of them.
        self.baseline_ = BlockHazard.estimated(blocks, y, block_rows, _relative(left_out))
        return {"seed": seed, "fitted_to": len(y), "blocks": blocks.n_blocks, "trees": len(self.trees_), **summary}

    def _blocks(self, y: Outcome, weight: FloatArray | None) -> TimeBlocks:
        mass = np.where(y["event"], 1.0 if weight is None else weight, 0.0)
        seen = mass > 0
        times, at = np.unique(y["time"][seen], return_inverse=True)
        kept = thinned(len(times))
        events = np.diff(np.cumsum(np.bincount(at, mass[seen]))[kept], prepend=0.0)
        n_blocks = self.n_blocks or min(max(int(seen.sum()) // _EVENTS_PER_BLOCK, 1), _MOST_BLOCKS)
        return TimeBlocks.cut(times[kept], events, n_blocks)

    @property
    def nodes(self) -> FloatArray:
        return self.baseline_.blocks.times

    def relative_hazards(self, X: Features) -> FloatArray:
        """Return the relative hazard of each patient in each block of time.

        Parameters
        ----------
        X : array of shape (n, columns)
            Prepared features.

        Returns
        -------
        array of shape (n, blocks)
            What the baseline hazard is multiplied with.
        """
        return _relative(self.trees_.sums(X, self.baseline_.blocks.n_blocks))

    def survival_at_nodes(self, X: Features) -> FloatArray:
        return self.baseline_.survival(self.relative_hazards(X))

    def survival_at(self, X: Features, times: FloatArray) -> FloatArray:
        return self.baseline_.survival(self.relative_hazards(X), times)

    def survival_arithmetic(self, prepared: Value) -> Value:
        return self.baseline_.arithmetic(self._relative_arithmetic(prepared))

    def survival_arithmetic_at(self, prepared: Value, times: FloatArray) -> Value:
        return self.baseline_.arithmetic(self._relative_arithmetic(prepared), times)

    def _relative_arithmetic(self, prepared: Value) -> Value:
        sums = self.trees_.arithmetic(prepared, self.baseline_.blocks.n_blocks)
        return sums.at_least(-LARGEST_LOG).at_most(LARGEST_LOG).exp()

    def get_state(self) -> tuple[Header, Arrays]:
        baseline = {f"baseline.{name}": array for name, array in self.baseline_.to_arrays().items()}
        return {"columns": self.trees_.n_columns}, baseline | {
            f"trees.{name}": array for name, array in self.trees_.to_arrays().items()
        }

    @property
    def n_columns(self) -> int:
        return self.trees_.n_columns

    def set_state(self, header: Header, arrays: Arrays) -> None:
        self.baseline_ = BlockHazard.from_arrays(_part(arrays, "baseline."))
        self.trees_ = Trees.from_arrays(_part(arrays, "trees."), declared(header, _State).columns)


def _relative(log_relative: FloatArray) -> FloatArray:
    return np.exp(np.clip(log_relative, -LARGEST_LOG, LARGEST_LOG))


def _part(arrays: Arrays, prefix: str) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
