"""A forest of randomised trees of a relative hazard that may change over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dcsurv.kinds import ModelKind, register
from dcsurv.models.base import Features
from dcsurv.models.hazard_trees import GrownTrees, HazardTreesEstimator
from dcsurv.models.ranges import Number, Range, WholeNumber
from dcsurv.search_space import Float, Int
from dcsurv.trees import BlockRows, Growth, forested


@dataclass(kw_only=True, repr=False, eq=False)
class HazardForest(HazardTreesEstimator):
    """A forest: h(t | x) = h0(t) r(x, b(t)), r the mean of many trees, b(t) the block of time.

    The leaf of a tree is the number of events observed by that expected without features, drawn towards 1; r is their
    geometric mean, raised to a power that makes up for what averaging blurs. A second forest does the same with what
    the first has left unexplained. The power and the baseline h0 are found with every patient's hazard predicted by
    the trees that have not seen them.

    Of more than 40,000 patients that many stand for all: half of them with an event or more, evenly chosen along their
    times, and weighted; ``training_summary_["fitted_to"]`` has the number.

    Parameters
    ----------
    subsample
        Share of the patients that each tree grows on. None: 0.632 of them, or about 2,000.
    n_trees
        Trees of each stage.
    stages
        Forests that correct each other; 1 is the usual forest.
    prior
        Events, as many observed as expected, that are added to each leaf.

    Attributes
    ----------
    trees_ : Trees
        The trees as arrays; their sum is the log of r.
    baseline_ : BlockHazard
        The baseline, at every event time.

    References
    ----------
    P. Geurts, D. Ernst and L. Wehenkel: Extremely randomized trees. Machine Learning 63 (2006).

    I. Ghosal and G. Hooker: Boosting random forests to reduce bias; one-step boosted forest and its variance estimate.
    Journal of Computational and Graphical Statistics 30 (2021).

    Examples
    --------
    >>> from dcsurv import HazardForest
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 300)
    >>> model = HazardForest(n_trees=20, random_state=0).fit(cohort.X[:200], cohort.y[:200])
    >>> model.predict_survival_function(cohort.X[200:])(5.0).shape  # five-year survival of everybody
    (100,)
    """

    max_depth: int | None = 6
    min_leaf: float = 4.0
    n_trees: int = 100
    stages: int = 2
    prior: float = 1.0

    largest_share: ClassVar[float] = 0.632
    ranges: ClassVar[dict[str, Range]] = {
        **HazardTreesEstimator.ranges,
        "n_trees": WholeNumber(1),
        "stages": WholeNumber(1),
        "prior": Number(above=0),
    }

    def grow(self, X: Features, rows: BlockRows, growth: Growth, rng: np.random.RandomState) -> GrownTrees:
        return forested(X, rows, growth, rng, n_trees=self.n_trees, stages=self.stages, prior=self.prior)


register(
    ModelKind(
        name="forest",
        model=HazardForest,
        meaning="a forest of random trees, hazards may change over time",
        space={
            "max_depth": Int(3, 12),
            "min_leaf": Float(1.0, 30.0, log=True),
            "max_features": Float(0.2, 1.0),
            "subsample": Float(0.4, 0.9),
            "prior": Float(0.1, 30.0, log=True),
        },
        quick={"n_trees": 20},
        is_member=True,
    )
)
