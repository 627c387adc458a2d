"""The Cox model of the neutral benchmark, made as its authors made theirs: it must score the same here."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from dcsurv.curves import SurvivalCurves
from dcsurv.experiments.neutral.folder import NeutralCohort
from dcsurv.models import CoxPH
from dcsurv.models.baseline import proportional_survival, relative_risk, thinned
from dcsurv.target import FloatArray, unpack

# Without a penalty, as theirs. R drops a column that others determine; a hair of a penalty does as well.
_PENALTIES: Final = 0.0, 1e-7, 1e-5, 1e-3
# Inferred from their scores: they kept the five most frequent levels, and others from this share of the patients on.
_LEVELS_KEPT: Final = 5
_SHARE_KEPT: Final = 0.05


class ReferenceCox(BaseEstimator):  # type: ignore[misc]
    """R's ``coxph`` and ``survfit`` on pooled levels: no penalty, Efron's rule for ties also in the baseline hazard."""

    def fit(self, X: pd.DataFrame, y: Any) -> ReferenceCox:
        self.pooled_ = {str(name): pooled_levels(X[name]) for name in X if not pd.api.types.is_numeric_dtype(X[name])}
        for last, penalizer in enumerate(_PENALTIES, 1):
            try:
                self.cox_ = CoxPH(penalizer=penalizer).fit(self._pool(X), y)
                break
            except ValueError:
                if last == len(_PENALTIES):
                    raise
        time, event = unpack(y)
        times, hazard = efron(time, event, relative_risk(self._log_risk(X)))
        kept = thinned(len(times))
        self.times_, self.cumulative_hazard_ = times[kept], hazard[kept]
        return self

    def predict_survival_function(self, X: pd.DataFrame) -> SurvivalCurves:
        values = proportional_survival(self.cumulative_hazard_, self._log_risk(X))
        return SurvivalCurves(self.times_, values, interpolation="step")

    def _pool(self, X: pd.DataFrame) -> pd.DataFrame:
        out = X.copy()
        for name, pooled in self.pooled_.items():
            out[name] = [pooled.get(level, level) for level in X[name]]
        return out

    def _log_risk(self, X: pd.DataFrame) -> FloatArray:
        columns = self.cox_.preprocessor_.transform(self._pool(X)).astype(np.float64)
        out: FloatArray = (columns - self.cox_.center_) @ self.cox_.coef_
        return out


def pooled_levels(column: pd.Series) -> dict[str, str]:
    """Return what rare levels of a category become: the rarest of those that are kept."""
    counts = _counted(column)
    frequent = counts >= _SHARE_KEPT * len(column)
    kept = [level for k, level in enumerate(counts.index) if k < _LEVELS_KEPT or frequent[level]]
    return dict.fromkeys(counts.index[len(kept) :], kept[-1])


def why_not_comparable(cohort: NeutralCohort, fold: int) -> str:
    """Say why the published Cox model cannot be met on a fold, or nothing if it can."""
    rows, test = cohort.split(fold)
    train = cohort.X.iloc[rows]
    if cohort.X.isna().to_numpy().any():
        return "missing values"
    for name in cohort.categories:
        if set(cohort.X[name].iloc[test]) - set(train[name]):
            return f"a level of {name} that training rows lack"
        if pooled_levels(train[name]) and not _sorted_levels(train[name])[1]:
            return f"rare levels of {name} are pooled, in an order that is not known"
    return ""


def _counted(column: pd.Series) -> pd.Series:
    """Return how often each level occurs, the most frequent first; ties in the order of the levels, as R has it."""
    return column.value_counts().reindex(_sorted_levels(column)[0]).sort_values(ascending=False, kind="stable")


def _sorted_levels(column: pd.Series) -> tuple[list[str], bool]:
    """Return the levels in the order of R's factors, and whether it is known: that of numbers is, text has locales."""
    levels = list(column.dropna().unique())
    try:
        return sorted(levels, key=float), True
    except ValueError:
        return sorted(levels), False


def efron(time: FloatArray, event: Any, risk: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the event times and Efron's cumulative baseline hazard at them.

    Of d events at one time, the l-th leaves a risk set from which the share l / d of their risk is gone.
    """
    order = np.argsort(time, kind="stable")
    time, event, risk = time[order], event[order], risk[order]
    distinct, start = np.unique(time, return_index=True)
    at_risk = np.cumsum(risk[::-1])[::-1][start]
    deaths = np.add.reduceat(event.astype(np.int64), start)
    dying = np.add.reduceat(risk * event, start)
    steps = [
        float(np.sum(1 / (all_risk - np.arange(d) / d * own)))
        for all_risk, d, own in zip(at_risk, deaths, dying, strict=True)
        if d
    ]
    return distinct[deaths > 0], np.cumsum(steps)
