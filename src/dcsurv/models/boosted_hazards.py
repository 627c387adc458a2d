"""Boosted trees of a relative hazard that may change over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dcsurv.kinds import ModelKind, register
from dcsurv.models.base import Features
from dcsurv.models.hazard_trees import GrownTrees, HazardTreesEstimator
from dcsurv.models.ranges import Number, Range, WholeNumber
from dcsurv.search_space import Float, Int
from dcsurv.trees import BlockRows, Growth, boosted


@dataclass(kw_only=True, repr=False, eq=False)
class BoostedHazards(HazardTreesEstimator):
    """Boosted trees: h(t | x) = h0(t) exp(f(x, b(t))), f a sum of many small trees, b(t) the block of time.

    Each tree is a Newton step on the censored likelihood. As many sums of trees as there are folds grow side by side,
    each without one fold of the patients; they stop together, when those left out stop gaining, and their mean is f.
    The baseline h0 is Breslow's, with every patient's hazard predicted by the trees that have not seen them.

    Of more than 40,000 patients that many stand for all: half of them with an event or more, evenly chosen along their
    times, and weighted; ``training_summary_["fitted_to"]`` has the number.

    Parameters
    ----------
    learning_rate
        Share of each step that is made.
    min_rounds
        Rounds of boosting that are made in any case: with few events, those left out cannot tell whether one helps.
    max_rounds
        Most rounds of boosting.
    patience
        Boosting ends after this many rounds without a better likelihood of the patients left out.
    folds
        Parts of the patients, and sums of trees.
    ridge
        Expected events that pull the value of a leaf towards no effect.

    Attributes
    ----------
    trees_ : Trees
        The trees as arrays; their sum is f.
    baseline_ : BlockHazard
        The baseline, at every event time.

    References
    ----------
    J. H. Friedman: Greedy function approximation: a gradient boosting machine. Annals of Statistics 29 (2001).

    P. Geurts, D. Ernst and L. Wehenkel: Extremely randomized trees. Machine Learning 63 (2006).

    Examples
    --------
    >>> from dcsurv import BoostedHazards
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 300)
    >>> model = BoostedHazards(max_rounds=20, random_state=0).fit(cohort.X[:200], cohort.y[:200])
    >>> model.predict_survival_function(cohort.X[200:])(5.0).shape  # five-year survival of everybody
    (100,)
    """

    max_depth: int | None = 3
    learning_rate: float = 0.1
    min_rounds: int = 15
    max_rounds: int = 150
    patience: int = 15
    folds: int = 5
    ridge: float = 2.0

    ranges: ClassVar[dict[str, Range]] = {
        **HazardTreesEstimator.ranges,
        "learning_rate": Number(above=0),
        "min_rounds": WholeNumber(0),
        "max_rounds": WholeNumber(1),
        "patience": WholeNumber(1),
        "folds": WholeNumber(2),
        "ridge": Number(least=0),
    }

    def grow(self, X: Features, rows: BlockRows, growth: Growth, rng: np.random.RandomState) -> GrownTrees:
        return boosted(
            X,
            rows,
            growth,
            rng,
            learning_rate=self.learning_rate,
            min_rounds=self.min_rounds,
            max_rounds=self.max_rounds,
            patience=self.patience,
            folds=self.folds,
            ridge=self.ridge,
        )


register(
    ModelKind(
        name="boosted",
        model=BoostedHazards,
        meaning="boosted trees, hazards may change over time",
        space={
            "learning_rate": Float(0.02, 0.2, log=True),
            "max_depth": Int(1, 6),
            "min_leaf": Float(1.0, 30.0, log=True),
            "max_features": Float(0.3, 1.0),
            "subsample": Float(0.5, 1.0),
            "ridge": Float(0.1, 30.0, log=True),
        },
        quick={"max_rounds": 20},
        is_member=True,
    )
)
