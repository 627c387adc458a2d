"""Models of other packages as rows of an experiment, when the user has them installed.

Nothing here imports them: they are found by name at run time, and dcsurv neither needs nor ships them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any, Final, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from dcsurv.curves import SurvivalCurves
from dcsurv.preprocessing import Preprocessor


class Peer(BaseEstimator):  # type: ignore[misc]
    """An estimator with ``fit(X, y)`` and ``predict_survival_function(X)``, known by where it can be imported.

    Parameters
    ----------
    package, name, distribution
        Module and class to import, and the distribution that brings them.
    parameters
        Passed to the class.
    random_state
        Passed too.
    """

    def __init__(
        self,
        package: str = "",
        name: str = "",
        distribution: str = "",
        parameters: Mapping[str, Any] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.package = package
        self.name = name
        self.distribution = distribution
        self.parameters = parameters
        self.random_state = random_state

    def installed(self) -> bool:
        """Tell whether the package can be imported."""
        return importlib.util.find_spec(self.package.split(".")[0]) is not None

    def fit(self, X: pd.DataFrame, y: Any) -> Self:
        kind = getattr(importlib.import_module(self.package), self.name)
        self.preprocessor_ = Preprocessor().fit(X)
        self.model_ = kind(**(self.parameters or {}), random_state=self.random_state)
        self.model_.fit(self.preprocessor_.transform(X), y)
        return self

    def predict_survival_function(self, X: pd.DataFrame) -> SurvivalCurves:
        steps = self.model_.predict_survival_function(self.preprocessor_.transform(X))
        values = np.array([step.y for step in steps])
        return SurvivalCurves(steps[0].x, values, interpolation="step")


PEERS: Final = {
    "random survival forest": Peer(
        "sksurv.ensemble",
        "RandomSurvivalForest",
        "scikit-survival",
        {"n_estimators": 200, "min_samples_leaf": 15, "max_features": "sqrt", "n_jobs": 1},
    ),
    "gradient boosting": Peer(
        "sksurv.ensemble",
        "GradientBoostingSurvivalAnalysis",
        "scikit-survival",
        {"n_estimators": 200, "learning_rate": 0.1, "max_depth": 3, "subsample": 0.5},
    ),
}
