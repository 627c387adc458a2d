"""scikit-learn's own estimator checks, through an adapter that turns their y into an outcome."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.estimator_checks import parametrize_with_checks

from dcsurv import make_outcome
from dcsurv.models import (
    DCS,
    DRSA,
    BoostedHazards,
    CoxPH,
    CoxTime,
    DeepSurv,
    HazardForest,
    Kamran,
    SplineAFT,
    SplineCox,
)
from dcsurv.models.hazard_trees import HazardTreesEstimator

TINY = {"max_epochs": 3, "random_state": 0, "batch_size": 16}
SMALL_GRID = {**TINY, "n_nodes": 5, "encoder_size": 4, "decoder_size": 4}


def outcome(y: Any) -> Any:
    """Read a patient from every number that scikit-learn sends as a target, whatever the other rows are."""
    target = np.asarray(y)
    if target.dtype == object and all(isinstance(value, float | int | np.number) for value in target.flat):
        target = target.astype(np.float64)
    if target.ndim == 2 and target.shape[1] == 1:
        target = target[:, 0]
    if y is None or target.dtype.kind not in "iuf" or target.ndim != 1 or not np.isfinite(target).all():
        return y  # to be refused by the estimator itself
    time = np.logaddexp(0, target.astype(np.float64))  # ascending and positive
    return make_outcome(time, np.rint(10 * target) % 3 != 2)


class Adapter:
    """Mixed in before an estimator; nothing but the conversion of y."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        return super().fit(X, outcome(y), sample_weight)  # type: ignore[misc]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        return super().score(X, outcome(y), sample_weight)  # type: ignore[misc]


class CheckedCoxPH(Adapter, CoxPH):
    pass


class CheckedSplineCox(Adapter, SplineCox):
    pass


class CheckedSplineAFT(Adapter, SplineAFT):
    pass


class CheckedDeepSurv(Adapter, DeepSurv):
    pass


class CheckedCoxTime(Adapter, CoxTime):
    pass


class CheckedDRSA(Adapter, DRSA):
    pass


class CheckedKamran(Adapter, Kamran):
    pass


class CheckedDCS(Adapter, DCS):
    pass


class CheckedBoostedHazards(Adapter, BoostedHazards):
    pass


class CheckedHazardForest(Adapter, HazardForest):
    pass


ESTIMATORS = [
    CheckedCoxPH(),
    CheckedSplineCox(),
    CheckedSplineAFT(),
    CheckedDeepSurv(**TINY, layer_size=4),
    CheckedCoxTime(**TINY, layer_size=4),
    CheckedDRSA(**SMALL_GRID),
    CheckedKamran(**SMALL_GRID),
    CheckedDCS(**SMALL_GRID),
    CheckedBoostedHazards(max_rounds=5, random_state=0),
    CheckedHazardForest(n_trees=5, random_state=0),
]


def inapplicable(estimator: Any) -> dict[str, str]:
    if isinstance(estimator, CoxPH | SplineCox | SplineAFT):
        reason = (
            "scaling and the ridge penalty depend on the number of rows; test_models.py compares zero weights with "
            "removed rows without either"
        )
    elif isinstance(estimator, HazardTreesEstimator):
        reason = (
            "folds and draws of patients are drawn row by row, so that repeated rows are other draws; test_trees.py "
            "compares weights with repeated rows where nothing is drawn"
        )
    else:
        reason = (
            "validation rows, batches and dropout are drawn row by row, so that repeated rows are other draws; "
            "test_losses.py compares weights with repeated rows for every loss"
        )
    return {"check_sample_weight_equivalence_on_dense_data": reason}


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=inapplicable)
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    check(estimator)
