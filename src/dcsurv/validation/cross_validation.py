"""Cross-validation of a cohort as the evaluation that travels with a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd

from dcsurv.cohort import Cohort, Horizon, usable_horizons
from dcsurv.cohort.evaluation import TEST_SHARE, Evaluation, TooFewEvents
from dcsurv.experiments.plan import expected_cost
from dcsurv.metrics import list_metrics
from dcsurv.validation.refits import ValidationError
from dcsurv.validation.running import validate

# With fewer events among the held-out patients, one split says little: the interval of C-td is wider than what models
# differ by.
ENOUGH_TEST_EVENTS: Final = 50
# A model of less expected cost is fitted before another process has started.
_SOON_DONE: Final = 1e7
# Up to so many patients a second round of folds takes little time.
_FEW_PATIENTS: Final = 2000


def one_split_is_enough(cohort: Cohort) -> bool:
    """Whether the patients of one held-out part have enough events to judge a model by."""
    return TEST_SHARE * cohort.events >= ENOUGH_TEST_EVENTS


def cross_validated(
    estimator: Any,
    cohort: Cohort,
    horizons: Sequence[Horizon],
    *,
    folds: int,
    seed: int,
    workers: int,
    cluster: str | None = None,
    once: bool = False,
) -> Evaluation:
    """Let every patient be predicted by models that have not seen them, beside CoxPH; metrics of all together."""
    labels = {horizon.time: horizon.label for horizon in horizons}
    usable, unusable = usable_horizons(labels, cohort.y)
    unmeasured = [f"Nothing is measured at {labels[one.time]}: {one.describe(cohort.unit)}." for one in unusable]
    if expected_cost(estimator, len(cohort)) < _SOON_DONE:
        workers = 1
    try:
        found = validate(
            estimator, cohort.features, cohort.y, groups=cohort.groups, horizons=usable or None, resamples=0,
            folds=folds,
            repeats=2 if len(cohort) <= _FEW_PATIENTS and not once else 1, random_state=seed,
            workers=1 if cluster else workers, cluster=cluster,
            metrics=None if usable else [metric.name for metric in list_metrics() if not metric.per_horizon],
            progress=True,
        )  # fmt: skip
    except ValidationError as error:
        if error.parameter != "folds":
            raise
        raise TooFewEvents(error.message, remedy=error.remedy) from None
    reference = found.reference_performance
    return Evaluation(
        found.design,
        len(cohort),
        cohort.events,
        _table(found.performance),
        None if reference is None else _table(reference),
        (*unmeasured, *found.notes),
    )


def _table(performance: pd.DataFrame) -> pd.DataFrame:
    return performance.rename(columns={"cross_validated": "value"})
