"""How trees grow on rows of patients and blocks: by boosting, or each on its own draw of patients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dcsurv.target import FloatArray, IntArray
from dcsurv.trees.arrays import Trees
from dcsurv.trees.blocks import BlockRows

# A tree of scikit-learn, and a value for each of its nodes.
Grown: TypeAlias = tuple[Any, FloatArray]

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

    def _tree(
        self, X: npt.NDArray[np.float32], target: FloatArray, weight: FloatArray, rng: np.random.RandomState
    ) -> Any:
        """Return a tree of scikit-learn for the weighted mean of a target; rows of weight 0 do not count.

        Random thresholds need no sorting, so that they are found in a fraction of the time, and keep trees different.
        """
        from sklearn import config_context
        from sklearn.tree import DecisionTreeRegressor

        grower = DecisionTreeRegressor(
            splitter="random",
            max_depth=self.max_depth,
            min_weight_fraction_leaf=min(0.5, self.min_leaf / weight.sum()),
            max_features=self.max_features,
            random_state=rng,
        )
        # What is passed was made here; to check it anew for every tree takes as long as to grow a small one.
        with config_context(skip_parameter_validation=True, assume_finite=True):
            return grower.fit(X, target, sample_weight=weight, check_input=False).tree_

    def _drawn(self, rows: BlockRows, n_patients: int, rng: np.random.RandomState) -> npt.NDArray[np.bool_]:
        """Return which rows a tree grows on: all of a patient, or none."""
        if self.subsample >= 1:
            return np.ones(len(rows), dtype=bool)
        return (rng.random_sample(n_patients) < self.subsample)[rows.patient]


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
    features, n = rows.features(X), len(X)
    fold = _folds(rows, n, folds, rng)[rows.patient]
    own = (fold, np.arange(len(rows)))
    f = np.zeros((folds, len(rows)))
    left_out = f[own]
    start = best = _loss(rows, left_out)
    last = 0
    grown: list[list[Grown]] = []
    for number in range(1, max_rounds + 1):
        grown.append([])
        for k in range(folds):
            expected = rows.exposure * np.exp(f[k])
            weight = rows.weight * expected * ((fold != k) & growth._drawn(rows, n, rng))
            if not (weight * rows.event).any():
                continue
            tree = growth._tree(features, rows.event / expected - 1.0, weight, rng)
            mass = tree.weighted_n_node_samples
            newton = tree.value[:, 0, 0] * mass / (mass + ridge)
            step = learning_rate * np.clip(newton, -_LARGEST_STEP, _LARGEST_STEP)
            f[k] = np.clip(f[k] + step[tree.apply(features)], -LARGEST_LOG, LARGEST_LOG)
            grown[-1].append((tree, step / folds))
        loss = _loss(rows, f[own])
        if loss < best or number <= min_rounds:
            best, last, left_out = loss, number, f[own]
        elif number - last >= patience:
            break
    trees = Trees.grown([one for some in grown[:last] for one in some], X.shape[1])
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
    features, n = rows.features(X), len(X)
    left_out = np.zeros(len(rows))
    grown: list[Grown] = []
    powers: list[float] = []
    for _ in range(stages):
        now = replace(rows, exposure=rows.exposure * np.exp(np.clip(left_out, -LARGEST_LOG, LARGEST_LOG)))
        total, count = np.zeros(len(rows)), np.zeros(len(rows))
        stage: list[Grown] = []
        while len(stage) < n_trees:
            drawn = growth._drawn(rows, n, rng)
            if not (drawn & (rows.event > 0)).any():
                drawn = np.ones(len(rows), dtype=bool)  # there are so few events that none was drawn
            tree = growth._tree(features, now.event / now.exposure, now.weight * now.exposure * drawn, rng)
            mass = tree.weighted_n_node_samples
            leaf = np.log((tree.value[:, 0, 0] * mass + prior) / (mass + prior))
            stage.append((tree, leaf / n_trees))
            total += np.where(drawn, 0.0, leaf[tree.apply(features)])
            count += ~drawn
        factor = total / np.maximum(count, 1.0)
        least, most = _FIRST_POWERS if not powers else _LATER_POWERS
        powers.append(min(max(_power(now, factor), least), most))
        left_out = left_out + powers[-1] * factor
        grown += [(tree, powers[-1] * value) for tree, value in stage]
    return Trees.grown(grown, X.shape[1]), left_out, {"powers": powers}


def _power(rows: BlockRows, log_relative: FloatArray) -> float:
    """Return the power of relative hazards that makes the rows likeliest, with the level of each block free."""
    power = 1.0
    mass = rows.weight * rows.event
    events = np.bincount(rows.block, mass)
    for _ in range(30):
        expected = rows.weight * rows.exposure * np.exp(np.clip(power * log_relative, -LARGEST_LOG, LARGEST_LOG))
        size, first, second = (np.bincount(rows.block, expected * log_relative**k) for k in range(3))
        mean = first / size
        gradient = mass @ log_relative - events @ mean - _POWER_PRIOR * (power - 1.0)
        step = float(gradient / (events @ (second / size - mean**2) + _POWER_PRIOR))
        power += min(max(step, -0.5), 0.5)
        if abs(step) < 1e-8:
            break
    return power


def _loss(rows: BlockRows, log_relative: FloatArray) -> float:
    """Return minus the log-likelihood per unit of weight, up to a constant."""
    each = rows.exposure * np.exp(log_relative) - rows.event * log_relative
    return float(rows.weight @ each / rows.weight.sum())


def _folds(rows: BlockRows, n_patients: int, n_folds: int, rng: np.random.RandomState) -> IntArray:
    """Return a fold for each patient, with about as many events in each."""
    had = np.zeros(n_patients, dtype=bool)
    had[rows.patient[rows.event > 0]] = True
    fold = np.empty(n_patients, dtype=np.int64)
    begin = 0
    for group in (np.flatnonzero(had), np.flatnonzero(~had)):
        fold[rng.permutation(group)] = (begin + np.arange(len(group))) % n_folds
        begin += len(group)
    return fold
