"""Boosted trees of a relative hazard that may change over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dcsurv.kinds import ModelKind, register
from dcsurv.models.base import Features
from dcsurv.models.hazard_trees import FRACTION, HazardTreesEstimator
from dcsurv.models.ranges import Number, Range, WholeNumber
from dcsurv.search_space import Float, Int
from dcsurv.target import FloatArray
from dcsurv.trees import BlockRows, Boosting, Growth, Trees, boosted
from dcsurv.trees.growing import LARGEST_LOG


@dataclass(kw_only=True, repr=False, eq=False)
class BoostedHazards(HazardTreesEstimator):
    """Boosted trees: h(t | x) = h0(t) exp(f(x, block of t)), f a sum of small trees.

    Parameters
    ----------
    learning_rate
        Share of each step that is made.
    max_rounds
        Most rounds of boosting.
    patience
        Boosting ends after this many rounds without a better likelihood of the patients left out.
    folds
        Parts of the patients; each is left out by one of as many sums of trees, whose mean is the model.
    max_depth
        Most splits between root and leaf of a tree.
    min_leaf
        Fewest events to be expected in a leaf.
    max_features
        Share of the features that are tried at a split.
    subsample
        Share of the patients that each tree is grown on.
    ridge
        Events that pull the value of a leaf towards no effect.
    """

    learning_rate: float = 0.1
    max_rounds: int = 150
    patience: int = 15
    folds: int = 4
    max_depth: int = 3
    min_leaf: float = 5.0
    max_features: float = 0.5
    subsample: float = 0.7
    ridge: float = 5.0

    ranges: ClassVar[dict[str, Range]] = {
        **HazardTreesEstimator.ranges,
        "learning_rate": Number(above=0),
        "max_rounds": WholeNumber(1),
        "patience": WholeNumber(1),
        "folds": WholeNumber(2),
        "max_depth": WholeNumber(1),
        "min_leaf": Number(least=0),
        "max_features": FRACTION,
        "subsample": FRACTION,
        "ridge": Number(least=0),
    }

    def grow(
        self, X: Features, rows: BlockRows, n_patients: int, rng: np.random.RandomState
    ) -> tuple[Trees, FloatArray, dict[str, Any]]:
        growth = Growth(max_depth=self.max_depth, min_leaf=self.min_leaf, max_features=self.max_features)
        how = Boosting(
            growth=growth,
            learning_rate=self.learning_rate,
            max_rounds=self.max_rounds,
            patience=self.patience,
            subsample=self.subsample,
            ridge=self.ridge,
            folds=self.folds,
        )
        trees, log_relative, summary = boosted(X, rows, n_patients, how, rng)
        return trees, np.exp(log_relative), summary

    def relative_hazards(self, X: Features) -> FloatArray:
        return np.exp(np.clip(self.trees_.sums(X, self.baseline_.blocks.n_blocks), -LARGEST_LOG, LARGEST_LOG))


register(
    ModelKind(
        name="boosted",
        model=BoostedHazards,
        meaning="boosted trees of a hazard that may change over time",
        space={"learning_rate": Float(0.02, 0.3, log=True), "max_depth": Int(1, 6)},
        quick={"max_rounds": 20},
        is_member=True,
    )
)
