"""A forest of randomised trees of a relative hazard that may change over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dcsurv.kinds import ModelKind, register
from dcsurv.models.base import Features
from dcsurv.models.hazard_trees import FRACTION, HazardTreesEstimator
from dcsurv.models.ranges import Number, Range, WholeNumber
from dcsurv.search_space import Float
from dcsurv.target import FloatArray
from dcsurv.trees import BlockRows, Growth, Trees, bagged


@dataclass(kw_only=True, repr=False, eq=False)
class HazardForest(HazardTreesEstimator):
    """A forest: h(t | x) = h0(t) r(x, block of t), r the mean over many trees of observed by expected events.

    Parameters
    ----------
    n_trees
        How many trees.
    min_leaf
        Fewest events to be expected in a leaf.
    max_features
        Share of the features that are tried at a split.
    subsample
        Share of the patients that each tree is grown on.
    prior
        Events, observed as expected, that are added to each leaf and pull it towards a relative hazard of 1.
    """

    n_trees: int = 150
    min_leaf: float = 5.0
    max_features: float = 0.5
    subsample: float = 0.632
    prior: float = 1.0

    ranges: ClassVar[dict[str, Range]] = {
        **HazardTreesEstimator.ranges,
        "n_trees": WholeNumber(1),
        "min_leaf": Number(above=0),
        "max_features": FRACTION,
        "subsample": FRACTION,
        "prior": Number(above=0),
    }

    def grow(
        self, X: Features, rows: BlockRows, n_patients: int, rng: np.random.RandomState
    ) -> tuple[Trees, FloatArray, dict[str, Any]]:
        growth = Growth(max_depth=None, min_leaf=self.min_leaf, max_features=self.max_features)
        trees, relative = bagged(
            X,
            rows,
            n_patients,
            growth,
            n_trees=self.n_trees,
            subsample=self.subsample,
            prior=self.prior,
            rng=rng,
        )
        return trees, np.where(np.isfinite(relative), relative, 1.0), {}

    def relative_hazards(self, X: Features) -> FloatArray:
        return self.trees_.sums(X, self.baseline_.blocks.n_blocks)


register(
    ModelKind(
        name="forest",
        model=HazardForest,
        meaning="a forest of randomised trees of a hazard that may change over time",
        space={"min_leaf": Float(2.0, 50.0, log=True), "max_features": Float(0.2, 1.0)},
        quick={"n_trees": 20},
        is_member=True,
    )
)
