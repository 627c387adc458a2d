"""AUC(t) and the Brier score over time with bootstrap intervals at every time."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.curves import as_curves
from dcsurv.metrics import auc as _auc
from dcsurv.metrics import brier as _brier
from dcsurv.metrics.censoring import Censoring, CensoringModel, keep_usable, resolve_follow_up
from dcsurv.metrics.inputs import SortedCohort, check_times
from dcsurv.metrics.resampling import check_confidence, check_n_bootstrap, resample_counts
from dcsurv.target import FloatArray

_NAMES = ("AUC", "Brier")


def evaluate_over_time(
    y: Any,
    curves: Any,
    y_train: Any | None = None,
    n_bootstrap: int = 0,
    *,
    X: Any | None = None,
    censoring: Censoring = "auto",
    times: npt.ArrayLike | None = None,
    metrics: Sequence[str] = _NAMES,
    confidence: float = 0.95,
    random_state: int = 0,
) -> pd.DataFrame:
    """Return AUC(t) and the Brier score at each time as one tidy table.

    The values are those of :func:`cumulative_dynamic_auc` and :func:`brier_score`, cases weighted by 1/G(z-).

    Parameters
    ----------
    y : outcome
        Outcome of n patients; see :func:`dcsurv.make_outcome`.
    curves : SurvivalCurves, tuple or DataFrame
        Their predicted curves: SurvivalCurves, ``(values, times)``, or a DataFrame with one row per patient.
    y_train : outcome or None, default None
        Outcome from which one censoring curve G for all is estimated; None: ``y`` itself.
    n_bootstrap : int, default 0
        Number of resamples of the patients behind ``lower`` and ``upper``, which hold for each time by itself, not for
        the whole curve at once; 0 leaves them out.
    X : DataFrame, array or None, default None
        Features of the patients; see :func:`brier_score`.
    censoring : {"auto", "marginal", "by-features", "by-risk"} or FollowUp, default "auto"
        How censoring weights depend on them; see :func:`brier_score`.
    times : array-like of float or None, default None
        Where to compute them; None: for each metric its own times, see there.
    metrics : sequence of str, default ("AUC", "Brier")
        Out of ``AUC`` and ``Brier``.
    confidence : float, default 0.95
        Share of the resamples inside the percentile interval.
    random_state : int, default 0
        Seed of the resamples.

    Returns
    -------
    DataFrame
        Columns ``metric, time, value, counted`` (the share of the patients who count) and with resampling
        ``lower, upper``. Times at which a metric is undefined are left out, with a warning.
    """
    if isinstance(metrics, str) or not metrics or not set(metrics) <= set(_NAMES):
        raise ValueError(f"metrics is {metrics!r}, but a list out of {list(_NAMES)} is expected.")
    n_bootstrap = check_n_bootstrap(n_bootstrap)
    check_confidence(confidence)
    cohort = SortedCohort(y)
    model = CensoringModel(cohort, y_train, "before", resolve_follow_up(censoring, X, y, [curves]))
    predicted = as_curves(curves, len(cohort))
    asked = None if times is None else check_times(times)
    parts: dict[str, _auc.CumulativeDynamicAuc | _brier.Brier] = {}
    if "AUC" in metrics:
        usable = keep_usable(_auc.default_times(cohort) if asked is None else asked, model, what="AUC")
        parts["AUC"] = _auc.CumulativeDynamicAuc(predicted, usable, model, tied_tol=_auc.DEFAULT_TOLERANCE)
    if "Brier" in metrics:
        usable = _brier.default_times(cohort) if asked is None else asked
        usable = keep_usable(usable, model, what="Brier score", needs_cases=False)
        parts["Brier"] = _brier.Brier(predicted, usable, model)
    tables = []
    for name, part in parts.items():
        value = part.over_time(cohort.weights(None))[0]
        counted = model.share_counted(part.times)
        table = pd.DataFrame({"metric": name, "time": part.times, "value": value, "counted": counted})
        if n_bootstrap:
            draws = [
                part.over_time(counts[:, cohort.order])
                for counts in resample_counts(len(cohort), n_bootstrap, random_state)
            ]
            table["lower"], table["upper"] = _interval(np.concatenate(draws), confidence)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _interval(draws: FloatArray, confidence: float) -> FloatArray:
    """Return the percentile interval at each time, (2, m); NaN where no resample defines the metric."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
        out: FloatArray = np.nanquantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return out
