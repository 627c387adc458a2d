"""How trees grow on rows of patients and blocks: by boosting, or each on its own draw of patients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dcsurv.target import FloatArray, IntArray
from dcsurv.trees.arrays import Nodes, Trees
from dcsurv.trees.blocks import BlockRows

# No tree moves the log of a hazard by more than this, before it is multiplied by the learning rate.
_LARGEST_STEP = 2.0
# And all of them together by no more than this: a patient's hazard is at most 400 times that of the average patient.
LARGEST_LOG = 6.0

# The powers of a forest's stages are within these bounds, and drawn towards 1 as if by this much information: few
# events know little of them, and a first stage that they make nothing of may still rank patients.
_FIRST_POWERS = (0.5, 3.0)
_LATER_POWERS = (0.0, 3.0)
_POWER_PRIOR = 10.0


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How a tree grows.

    Parameters
    ----------
    max_depth : int or None
        Most splits between root and leaf; None: no limit.
    min_leaf : float
        Fewest events to be expected in a leaf.
    max_features : float
        Share of the features that are tried at a split, each with one random threshold.
    subsample : float
        Share of the patients that a tree grows on, drawn anew for each.

    Examples
    --------
    >>> from dcsurv.trees import Growth
    >>> Growth(max_depth=3, min_leaf=5.0, max_features=1.0, subsample=0.8).max_depth
    3
    """

    max_depth: int | None
    min_leaf: float
    max_features: float
    subsample: float


class _Grower:
    """Grows trees with random thresholds on the patients of some rows, in compiled code.

    Random thresholds need no sorting, so that they are found in a fraction of the time, and keep trees different.
    """

    def __init__(self, X: npt.NDArray[np.float32], rows: BlockRows, growth: Growth, rng: np.random.RandomState) -> None:
        from dcsurv.trees import _growing_kernels

        self.kernels = _growing_kernels
        self.columns = np.ascontiguousarray(X.T, dtype=np.float32)
        self.first = np.searchsorted(rows.patient, np.arange(len(X) + 1)).astype(np.int32)
        self.patients = np.flatnonzero(np.diff(self.first)).astype(np.int32)  # who has any rows
        self.n_blocks = int(rows.block.max()) + 1
        self.state = rng.randint(1, 2**63, size=1, dtype=np.uint64)
        self.growth, self.groups = growth, rows.groups
        self.n_tried = max(1, int(growth.max_features * (X.shape[1] + 1)))
        # A tree has fewer leaves than rows, and than the smallest leaves that all expected events make.
        self.most_leaves = len(rows)
        if growth.max_depth is not None:
            self.most_leaves = min(self.most_leaves, 2 ** min(growth.max_depth, 30))

    def draw(self, candidates: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the patients that a tree grows on."""
        if self.growth.subsample >= 1:
            return candidates.copy()
        if self.groups is not None:
            own = self.groups[candidates]
            return candidates[np.isin(own, self.kernels.draw(np.unique(own), self.growth.subsample, self.state))]
        return self.kernels.draw(candidates, self.growth.subsample, self.state)

    def tree(
        self, event: FloatArray, expected: FloatArray, who: npt.NDArray[np.int32]
    ) -> tuple[Nodes, FloatArray, FloatArray]:
        """Return a tree, without values in its leaves, and the events observed and expected in each node."""
        leaves = min(self.most_leaves, int(expected.sum() / self.growth.min_leaf) + 1)
        size = 2 * leaves + 1
        feature, right = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32)
        value, observed, mass = np.empty(size, dtype=np.float32), np.empty(size), np.empty(size)
        depth = -1 if self.growth.max_depth is None else self.growth.max_depth
        n = self.kernels.grow(
            self.columns, self.first, event, expected, self.n_blocks, who, depth, self.growth.min_leaf, self.n_tried,
            self.state, feature, right, value, observed, mass,
        )  # fmt: skip
        return (feature[:n], right[:n], value[:n]), observed[:n], mass[:n]


def boosted(
    X: npt.NDArray[np.float32],
    rows: BlockRows,
    growth: Growth,
    rng: np.random.RandomState,
    *,
    learning_rate: float,
    min_rounds: int,
    max_rounds: int,
    patience: int,
    folds: int,
    ridge: float,
) -> tuple[Trees, FloatArray, dict[str, Any]]:
    """Maximise the likelihood, the sum of d f - E exp(f) over the rows, by Newton steps that are trees.

    As many sums of trees as there are folds grow side by side, each without one fold. They stop together, at the
    round in which the patients, each predicted without themselves, are likeliest; their mean is f.

    Parameters
    ----------
    X : array of float
        Prepared features of the patients.
    rows : BlockRows
        Their rows.
    growth : Growth
        How each tree grows.
    rng : RandomState
        What chance is drawn from.
    learning_rate : float
        Share of each step that is made.
    min_rounds : int
        Rounds that are made in any case.
    max_rounds : int
        Most rounds.
    patience : int
        Rounds without a better likelihood of the patients left out, after which boosting ends.
    folds : int
        Parts of the patients.
    ridge : float
        Expected events that pull the value of a leaf towards 0.

    Returns
    -------
    trees : Trees
        Their sum is f, the log of the relative hazard.
    left_out : array of float
        f of each row, by the trees that have not seen the patient.
    summary : dict
        Rounds, and the loss of the patients left out before the first and after the last.
    """
    grower = _Grower(X, rows, growth, rng)
    columns, first = grower.columns, grower.first
    fold = _folds(rows, len(X), folds, rng).astype(np.int32)
    candidates = [grower.patients[fold[grower.patients] != k] for k in range(folds)]
    event, exposure = rows.weight * rows.event, rows.weight * rows.exposure
    f, expected = np.zeros((folds, len(rows))), np.tile(exposure, (folds, 1))
    now, left_out = np.zeros(len(rows)), np.zeros(len(rows))
    start = best = float(exposure.sum() / rows.weight.sum())
    last = 0
    grown: list[list[Nodes]] = []
    for number in range(1, max_rounds + 1):
        grown.append([])
        loss = 0.0
        for k in range(folds):
            nodes, observed, mass = grower.tree(event, expected[k], grower.draw(candidates[k]))
            steps = learning_rate * np.clip((observed - mass) / (mass + ridge), -_LARGEST_STEP, _LARGEST_STEP)
            if observed[0] > 0:
                grown[-1].append(_with_leaves(nodes, steps / folds))
            else:
                steps[:] = 0.0  # nobody drawn had the event
            loss += grower.kernels.step(
                columns, first, *nodes, steps, LARGEST_LOG, event, exposure, f[k], expected[k], fold, k, now
            )
        loss /= rows.weight.sum()
        if loss < best or number <= min_rounds:
            best, last, left_out = loss, number, now.copy()
        elif number - last >= patience:
            break
    trees = Trees.joined([one for some in grown[:last] for one in some], X.shape[1])
    return trees, left_out, {"rounds": last, "loss": best, "loss_at_start": start}


def forested(
    X: npt.NDArray[np.float32],
    rows: BlockRows,
    growth: Growth,
    rng: np.random.RandomState,
    *,
    n_trees: int,
    stages: int,
    prior: float,
) -> tuple[Trees, FloatArray, dict[str, Any]]:
    """Grow each tree on its own draw of patients, in stages that correct each other.

    A leaf is observed by expected events, drawn towards 1. The relative hazard is their geometric mean over the trees,
    raised to the power that makes patients likeliest when each is predicted by trees that have not seen them. To the
    trees of the next stage, what is expected has that factor in it.

    Parameters
    ----------
    X : array of float
        Prepared features of the patients.
    rows : BlockRows
        Their rows.
    growth : Growth
        How each tree grows.
    rng : RandomState
        What chance is drawn from.
    n_trees : int
        Trees of each stage.
    stages : int
        How many stages.
    prior : float
        Events, as many observed as expected, that are added to each leaf.

    Returns
    -------
    trees : Trees
        Their sum is the log of the relative hazard.
    left_out : array of float
        The log of the relative hazard of each row, by the trees that have not seen the patient.
    summary : dict
        The powers, one per stage.
    """
    grower = _Grower(X, rows, growth, rng)
    event, exposure = rows.weight * rows.event, rows.weight * rows.exposure
    left_out = np.zeros(len(rows))
    grown: list[Nodes] = []
    powers: list[float] = []
    for _ in range(stages):
        expected = exposure * np.exp(np.clip(left_out, -LARGEST_LOG, LARGEST_LOG))
        total, unseen = np.zeros(len(rows)), np.zeros(len(X))
        stage: list[tuple[Nodes, FloatArray]] = []
        while len(stage) < n_trees:
            who = grower.draw(grower.patients)
            nodes, observed, mass = grower.tree(event, expected, who)
            if observed[0] == 0:  # there are so few events that none was drawn
                who = grower.patients.copy()
                nodes, observed, mass = grower.tree(event, expected, who)
            leaves = np.log((observed + prior) / (mass + prior))
            stage.append((nodes, leaves / n_trees))
            seen = np.zeros(len(X), dtype=bool)
            seen[who] = True
            grower.kernels.add_unseen(grower.columns, grower.first, *nodes, leaves, seen, total)
            unseen += ~seen
        factor = total / np.maximum(unseen, 1.0)[rows.patient]
        least, most = _FIRST_POWERS if not powers else _LATER_POWERS
        powers.append(min(max(_power(rows.block, event, expected, factor), least), most))
        left_out = left_out + powers[-1] * factor
        grown += [_with_leaves(nodes, powers[-1] * leaves) for nodes, leaves in stage]
    return Trees.joined(grown, X.shape[1]), left_out, {"powers": powers}


def _with_leaves(nodes: Nodes, leaves: FloatArray) -> Nodes:
    """Return the nodes of a tree with values in its leaves."""
    feature, right, value = nodes
    return feature, right, np.where(feature < 0, leaves, value).astype(np.float32)


def _power(block: IntArray, event: FloatArray, exposure: FloatArray, log_relative: FloatArray) -> float:
    """Return the power of relative hazards that makes the rows likeliest, with the level of each block free.

    Events and exposures are weighted.
    """
    power = 1.0
    events = np.bincount(block, event)
    for _ in range(30):
        expected = exposure * np.exp(np.clip(power * log_relative, -LARGEST_LOG, LARGEST_LOG))
        size = np.bincount(block, expected)
        mean = np.bincount(block, expected * log_relative) / size
        spread = np.bincount(block, expected * log_relative**2) / size - mean**2
        gradient = event @ log_relative - events @ mean - _POWER_PRIOR * (power - 1.0)
        step = float(gradient / (events @ spread + _POWER_PRIOR))
        power += min(max(step, -0.5), 0.5)
        if abs(step) < 1e-8:
            break
    return power


def _folds(rows: BlockRows, n_patients: int, n_folds: int, rng: np.random.RandomState) -> IntArray:
    """Return a fold for each patient, with about as many events in each, and those of a group in the same."""
    had = np.zeros(n_patients, dtype=bool)
    had[rows.patient[rows.event > 0]] = True
    place = None
    if rows.groups is not None:
        labels, place = np.unique(rows.groups, return_inverse=True)
        had = np.bincount(place, had, minlength=len(labels)) > 0
    fold = np.empty(len(had), dtype=np.int64)
    begin = 0
    for group in (np.flatnonzero(had), np.flatnonzero(~had)):
        fold[rng.permutation(group)] = (begin + np.arange(len(group))) % n_folds
        begin += len(group)
    return fold if place is None else fold[place]
