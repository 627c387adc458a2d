"""From a cohort to its groups of follow-up."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv._frames import as_pandas
from dcsurv.follow_up.association import censoring_concordance, cuts_of, influences, score_test
from dcsurv.follow_up.groups import FollowUp
from dcsurv.follow_up.score import cross_fitted
from dcsurv.nonparametric import LOWEST_CENSORING, censoring_curve
from dcsurv.preprocessing import Preprocessor
from dcsurv.target import FloatArray, IntArray, check_outcome, check_sample_weight

# Features predict censoring if chance would hardly do so. How well does not matter: one small centre whose patients
# were not followed for long hardly shows in a concordance.
_P_VALUE = 0.001
# With fewer patients or censorings nothing can be said.
_LEAST_PATIENTS, _LEAST_CENSORED = 60, 20
_FOLDS = 5
# More rows than this do not make the groups better.
_MOST_ROWS = 10_000


def study_follow_up(
    X: Any,
    y: Any,
    *,
    names: Sequence[str] | None = None,
    sample_weight: npt.ArrayLike | None = None,
    even_if: bool = False,
) -> FollowUp:
    """Find out whether the features predict censoring, and group the patients by how long they could be followed.

    A Cox model of censoring, with lines that may bend, is fitted on four fifths of the patients and read on the others,
    in turn; the concordance of this score with the order of the censorings is tested. If the score predicts censoring,
    it is cut where the rate of censoring changes (a tree of LeBlanc and Crowley's kind), and each group has its own
    Kaplan-Meier curve of censoring. So neither the proportional hazards nor the size of the score matter, only that
    patients with alike scores were followed alike.

    Parameters
    ----------
    X : DataFrame or array
        Features of n patients; an array holds numbers.
    y : outcome
        Outcomes of the same patients.
    names : sequence of str or None, default None
        Which feature each column of an array stands for; None: each for itself.
    sample_weight : array-like of float or None, default None
        One non-negative weight per patient, for the curves; None: all count the same.
    even_if : bool, default False
        Make groups even if the test does not find that the features predict censoring.

    Returns
    -------
    FollowUp
        The groups, and which features decide them.

    References
    ----------
    M. LeBlanc, J. Crowley: Relative risk trees for censored survival data. Biometrics 48 (1992).
    """
    outcome = check_outcome(y)
    columns, owners = _as_columns(X, names)
    if len(columns) != len(outcome):
        raise ValueError(f"X has {len(columns)} rows and y {len(outcome)}: they must be the same patients.")
    weight = check_sample_weight(sample_weight, len(outcome))
    whole = np.zeros(len(outcome), dtype=np.int64)
    together = FollowUp(False, np.nan, np.nan, (), whole, _ends(outcome, weight, whole, 1))
    chosen = _some_rows(weight)
    part, time, lost = columns[chosen], np.ascontiguousarray(outcome["time"][chosen]), ~outcome["event"][chosen]
    if len(chosen) < _LEAST_PATIENTS or lost.sum() < _LEAST_CENSORED or columns.shape[1] == 0:
        return together
    fold = np.random.default_rng(0).permutation(len(chosen)) % _FOLDS
    score, held_out = cross_fitted(part, time, lost, fold)
    found = replace(
        together, concordance=censoring_concordance(time, lost, held_out), p_value=score_test(time, lost, held_out)
    )
    depends = found.p_value < _P_VALUE
    if not depends and not even_if:
        return found
    score = replace(score, cuts=cuts_of(held_out, time, lost))
    groups = np.searchsorted(score.cuts, score(columns))
    groups[chosen] = np.searchsorted(score.cuts, held_out)
    return replace(
        found,
        depends=bool(depends),
        features=influences(part, owners, time, lost, fold),
        groups=groups,
        followed_until=_ends(outcome, weight, groups, len(score.cuts) + 1),
        score=score,
    )


def _as_columns(X: Any, names: Sequence[str] | None) -> tuple[npt.NDArray[Any], list[str]]:
    """Return features as numbers, and of which feature each column is.

    A feature that cannot be turned into numbers (without a single value here, or free text) tells nothing and is left
    out: an evaluation must not fail because of it.
    """
    if names is not None:
        return np.asarray(X), list(names)
    X = as_pandas(X)
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X)).add_prefix("column ")
    try:
        return _numbers(frame)
    except ValueError:
        columns, owners = [np.zeros((len(frame), 0), dtype=np.float32)], []
        for k in range(frame.shape[1]):
            try:
                part, own = _numbers(frame.iloc[:, [k]])
            except ValueError:
                continue
            columns.append(part)
            owners += own
        return np.concatenate(columns, axis=1), owners


def _numbers(frame: pd.DataFrame) -> tuple[npt.NDArray[Any], list[str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        preprocessor = Preprocessor().fit(frame)
        return preprocessor.transform(frame), preprocessor.feature_of_each_column()


def _some_rows(weight: FloatArray) -> IntArray:
    rows = np.flatnonzero(weight > 0)
    if len(rows) <= _MOST_ROWS:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, _MOST_ROWS, replace=False))


def _ends(outcome: npt.NDArray[np.void], weight: FloatArray, groups: IntArray, n_groups: int) -> FloatArray:
    """Return the last time of each group by which at least 5 % would not have been censored."""
    out = []
    for group in range(n_groups):
        inside = (groups == group) & (weight > 0)
        g = censoring_curve(outcome[inside], sample_weight=weight[inside])
        thin = g.times[g.values < LOWEST_CENSORING]
        out.append(float(thin[0]) if len(thin) else float(g.times[-1]))
    return np.array(out)
