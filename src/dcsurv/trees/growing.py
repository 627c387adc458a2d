"""How trees grow on rows of patients and blocks: by boosting, or each on its own draw of patients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.tree import DecisionTreeRegressor

from dcsurv.target import FloatArray, IntArray
from dcsurv.trees.arrays import Trees
from dcsurv.trees.blocks import BlockRows

# No tree may change the log of a hazard by more than this at once, nor all of them together by more than that.
LARGEST_STEP = 2.0
LARGEST_LOG = 6.0


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How a tree grows.

    Parameters
    ----------
    max_depth : int or None
        Most splits between root and leaf.
    min_leaf : float
        Fewest events to be expected in a leaf.
    max_features : float
        Share of the features that are tried at a split.
    criterion : str
        Scikit-learn's.
    """

    max_depth: int | None
    min_leaf: float
    max_features: float
    criterion: str = "squared_error"

    def tree(
        self, X: npt.NDArray[np.float32], target: FloatArray, weight: FloatArray, rng: np.random.RandomState
    ) -> Any:
        """Return scikit-learn's tree, with random thresholds."""
        share = min(0.5, self.min_leaf / weight.sum())
        grower = DecisionTreeRegressor(
            splitter="random",
            criterion=self.criterion,
            max_depth=self.max_depth,
            min_weight_fraction_leaf=share,
            max_features=self.max_features,
            random_state=rng.randint(2**31 - 1),
        )
        return grower.fit(X, target, sample_weight=weight, check_input=False).tree_


@dataclass(frozen=True, kw_only=True)
class Boosting:
    """How rounds of boosting follow each other."""

    growth: Growth
    learning_rate: float
    max_rounds: int
    patience: int
    subsample: float
    ridge: float
    folds: int


def boosted(
    X: npt.NDArray[np.float32], rows: BlockRows, n_patients: int, how: Boosting, rng: np.random.RandomState
) -> tuple[Trees, FloatArray, dict[str, Any]]:
    """Boost the likelihood of the rows, in folds that stop together.

    Returns
    -------
    trees : Trees
        Their sum is the log of the relative hazard.
    log_relative : array of float
        Of each row, by the trees that have not seen the patient.
    summary : dict
        Rounds and losses.
    """
    features = rows.features(X)
    fold_of = _folds(rows, n_patients, how.folds, rng)[rows.patient]
    log_relative = np.zeros((how.folds, len(rows)))
    grown: list[list[tuple[Any, FloatArray]]] = []
    trees: list[list[tuple[Any, FloatArray]]] = [[] for _ in range(how.folds)]
    best, best_round, kept = _loss(rows, np.zeros(len(rows))), 0, np.zeros(len(rows))
    start = best
    own = (fold_of, np.arange(len(rows)))
    for number in range(1, how.max_rounds + 1):
        for k in range(how.folds):
            drawn = (rng.random_sample(n_patients) < how.subsample)[rows.patient] & (fold_of != k)
            expected = rows.exposure * np.exp(log_relative[k])
            weight = rows.weight * expected * drawn
            if not (weight * rows.event).any():
                continue
            tree = how.growth.tree(features, rows.event / expected - 1.0, weight, rng)
            mass = tree.weighted_n_node_samples
            step = np.clip(tree.value[:, 0, 0] * mass / (mass + how.ridge), -LARGEST_STEP, LARGEST_STEP)
            step *= how.learning_rate
            log_relative[k] += step[tree.apply(features)]
            np.clip(log_relative[k], -LARGEST_LOG, LARGEST_LOG, out=log_relative[k])
            trees[k].append((tree, step / how.folds))
        loss = _loss(rows, log_relative[own])
        if loss < best:
            best, best_round, kept = loss, number, log_relative[own]
        elif number - best_round >= how.patience:
            break
    for k in range(how.folds):
        grown.append(trees[k][:best_round])
    summary = {"rounds": best_round, "loss": best, "loss_at_start": start}
    return Trees.grown([one for part in grown for one in part], X.shape[1]), kept, summary


def bagged(
    X: npt.NDArray[np.float32],
    rows: BlockRows,
    n_patients: int,
    growth: Growth,
    *,
    n_trees: int,
    subsample: float,
    prior: float,
    rng: np.random.RandomState,
) -> tuple[Trees, FloatArray]:
    """Grow trees on draws of patients; a leaf is observed by expected events, drawn towards 1.

    Returns
    -------
    trees : Trees
        Their sum is the relative hazard.
    relative : array of float
        Of each row, by the trees that have not seen the patient; NaN where all have.
    """
    features = rows.features(X)
    grown = []
    total, count = np.zeros(len(rows)), np.zeros(len(rows))
    ratio = rows.event / rows.exposure
    for _ in range(n_trees):
        drawn = (rng.random_sample(n_patients) < subsample)[rows.patient]
        weight = rows.weight * rows.exposure * drawn
        if not (weight * rows.event).any():
            continue
        tree = growth.tree(features, ratio, weight, rng)
        mass = tree.weighted_n_node_samples
        leaf = (tree.value[:, 0, 0] * mass + prior) / (mass + prior)
        grown.append((tree, leaf / n_trees))
        total += np.where(drawn, 0.0, leaf[tree.apply(features)])
        count += ~drawn
    with np.errstate(invalid="ignore"):
        return Trees.grown(grown, X.shape[1]), total / count


def _loss(rows: BlockRows, log_relative: FloatArray) -> float:
    """Return minus the log-likelihood per unit of weight, up to a constant."""
    each = rows.exposure * np.exp(log_relative) - rows.event * log_relative
    return float(rows.weight @ each / rows.weight.sum())


def _folds(rows: BlockRows, n_patients: int, n_folds: int, rng: np.random.RandomState) -> IntArray:
    """Return a fold for each patient, with about as many events in each."""
    had = np.zeros(n_patients, dtype=bool)
    had[rows.patient[rows.event > 0]] = True
    fold = np.empty(n_patients, dtype=np.int64)
    for group in (np.flatnonzero(had), np.flatnonzero(~had)):
        fold[rng.permutation(group)] = np.arange(len(group)) % n_folds
    return fold
