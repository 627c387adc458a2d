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
from dcsurv.follow_up.association import (
    Influence,
    censoring_concordance,
    cuts_of,
    dependence_test,
    influences,
    score_test,
)
from dcsurv.follow_up.groups import FollowUp, RiskTest
from dcsurv.follow_up.score import BENDS, CensoringScore, bent, cross_fitted
from dcsurv.nonparametric import LOWEST_CENSORING, censoring_curve
from dcsurv.preprocessing import Preprocessor
from dcsurv.target import FloatArray, IntArray, check_outcome, check_sample_weight

# To miss features that decide follow-up does more harm than to weight by some that do not.
_FEATURES_P_VALUE = 0.005
# With fewer patients or censorings nothing can be said.
_LEAST_PATIENTS, _LEAST_CENSORED = 60, 20
_FOLDS = 5
# By risk: tenths, as long as a group has so many patients and censorings.
_TENTHS, _GROUP_PATIENTS, _GROUP_CENSORED = 10, 25, 20
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
    score, held_out, information = cross_fitted(part, time, lost, fold)
    found = replace(
        together,
        concordance=censoring_concordance(time, lost, held_out),
        p_value=score_test(time, lost, held_out, information, _FOLDS),
    )
    depends = found.p_value < _FEATURES_P_VALUE
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


def study_risk(
    risk: npt.ArrayLike,
    y: Any,
    *,
    sample_weight: npt.ArrayLike | None = None,
    even_if: bool = False,
) -> FollowUp:
    """Find out whether predicted risk predicts censoring, and group the patients by it.

    Patients who are worse off may leave a study sooner, or be watched for longer. If the risk predicts censoring, its
    tenths (fewer with few patients) have their own Kaplan-Meier curve of censoring each; whether the rate of censoring
    rises or falls with the risk, and how, does not matter.

    Parameters
    ----------
    risk : array-like of float
        Predicted risk of n patients on any scale, (n,); of several models, (n, models), which then share the groups:
        tenths of a cross-fitted score of the rate of censoring, given all risks.
    y : outcome
        Outcomes of the same patients.
    sample_weight : array-like of float or None, default None
        One non-negative weight per patient, for the curves; None: all count the same.
    even_if : bool, default False
        Make groups even if the test does not find that the risk predicts censoring.

    Returns
    -------
    FollowUp
        The groups, and the test.

    Examples
    --------
    >>> import numpy as np
    >>> from dcsurv.datasets import simulate
    >>> from dcsurv.follow_up import study_risk
    >>> cohort = simulate("risk", 1000)  # the sicker, the sooner lost
    >>> found = study_risk(1 - cohort.truth(5.0), cohort.y)
    >>> found.describe()
    'Predicted risk predicts censoring (concordance 0.6..., p < 0.001).'
    >>> len(found.followed_until)
    10
    """
    outcome = check_outcome(y)
    columns = np.asarray(risk, dtype=np.float64).reshape(len(outcome), -1)
    weight = check_sample_weight(sample_weight, len(outcome))
    whole = np.zeros(len(outcome), dtype=np.int64)
    together = FollowUp(False, np.nan, np.nan, (), whole, _ends(outcome, weight, whole, 1), by="risk")
    chosen = _some_rows(weight)
    part, time, lost = columns[chosen], np.ascontiguousarray(outcome["time"][chosen]), ~outcome["event"][chosen]
    if len(chosen) < _LEAST_PATIENTS or lost.sum() < _LEAST_CENSORED:
        return replace(together, risk=RiskTest(np.nan, np.nan))
    p_value = dependence_test(bent(part, np.quantile(part, BENDS, axis=0).T), time, lost)
    if columns.shape[1] == 1:
        straight = np.eye(1, 1 + len(BENDS))
        score, held_out = CensoringScore(np.array([0]), np.zeros((1, len(BENDS))), straight, np.zeros(0)), part[:, 0]
    else:
        score, held_out, _ = cross_fitted(part, time, lost, np.random.default_rng(0).permutation(len(chosen)) % _FOLDS)
    concordance = censoring_concordance(time, lost, held_out)
    test = RiskTest(max(concordance, 1 - concordance), p_value)
    found = replace(together, concordance=test.concordance, p_value=p_value, risk=test)
    if not test.depends and not even_if:
        return found
    n_groups = int(min(_TENTHS, len(chosen) // _GROUP_PATIENTS, lost.sum() // _GROUP_CENSORED))
    cuts = np.unique(np.quantile(held_out, np.arange(1, n_groups) / n_groups))
    cuts = cuts[cuts < held_out.max()]  # with many alike, nobody may lie above the last
    score = replace(score, cuts=cuts)
    groups = np.searchsorted(cuts, score(columns))
    groups[chosen] = np.searchsorted(cuts, held_out)
    return replace(
        found,
        depends=test.depends,
        features=(Influence("predicted risk", test.concordance),),
        groups=groups,
        followed_until=_ends(outcome, weight, groups, len(cuts) + 1),
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
        preprocessor = Preprocessor(least_patients=1).fit(frame)  # nothing of it is kept
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
