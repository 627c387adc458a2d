"""Our scores among the published ones: ranks, differences, and which learners cannot be told apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from scipy.stats import friedmanchisquare, studentized_range
from scipy.stats import t as student

from dcsurv.experiments.neutral.folder import Score
from dcsurv.target import FloatArray

# As many decimals as published scores have: ties with them are ties.
_DECIMALS: Final = 6
HIGHER_IS_BETTER: Final[dict[Score, bool]] = {"harrell_c": True, "isbs": False}


@dataclass(frozen=True)
class Field:
    """One model of ours among the published learners, in one score.

    Attributes
    ----------
    model : str
        Our model.
    score : {"harrell_c", "isbs"}
        The score.
    ranks : DataFrame
        Rank of every learner (columns), ours among them, in each cohort (rows); NaN where a learner has no score.
    means : DataFrame
        Mean scores over the folds, in the same shape.
    ours : DataFrame
        Our mean over the folds that a learner has, too: what its mean can be compared with.
    """

    model: str
    score: Score
    ranks: pd.DataFrame
    means: pd.DataFrame
    ours: pd.DataFrame

    @property
    def mean_ranks(self) -> pd.Series:
        """Mean rank of every learner over the cohorts, the best first."""
        return self.ranks.mean().sort_values(kind="stable")

    @property
    def place(self) -> float:
        """Place of our mean rank among those of all learners; learners that are level share theirs."""
        return float(self.ranks.mean().rank()[self.model])


def field_of(rows: pd.DataFrame, published: pd.DataFrame, model: str, score: Score) -> Field:
    """Put one model of ours among the published learners.

    For each cohort the mean over folds, and only over folds that two learners both have when these are compared: a
    learner's rank is one more than the number of learners that beat it, ties counting one half. Where everybody has all
    folds these are the usual ranks of the means.

    Parameters
    ----------
    rows : DataFrame
        Ours: ``cohort, fold, model`` and the score.
    published : DataFrame
        Theirs, tuned for the score: ``cohort, learner, fold, value``.
    model : str
        Which model of ours; others are left out, because each would shift the ranks.
    score : {"harrell_c", "isbs"}
        Which score.

    Returns
    -------
    Field
        Of the cohorts that both have.
    """
    if model in set(published["learner"]):
        raise ValueError(f"a published learner is called {model!r}, too. Rename one of them.")
    own = rows.loc[rows["model"] == model, ["cohort", "fold", score]].rename(columns={score: "value"}).dropna()
    ranks, means, ours = {}, {}, {}
    for cohort in dict.fromkeys(own["cohort"]):
        mine = own[own["cohort"] == cohort].set_index("fold")["value"]
        theirs = published[(published["cohort"] == cohort) & published["fold"].isin(mine.index)]
        if theirs.empty:
            continue
        wide = theirs.pivot(index="fold", columns="learner", values="value").reindex(mine.index)
        wide[model] = mine
        wide = wide.round(_DECIMALS)
        ranks[cohort] = pd.Series(_ranks(wide.to_numpy(), HIGHER_IS_BETTER[score]), wide.columns)
        means[cohort] = wide.mean()
        ours[cohort] = wide.notna().mul(wide[model], axis=0).where(wide.notna()).mean()
    tables = [pd.DataFrame(one).T for one in (ranks, means, ours)]
    return Field(model, score, *(table.rename_axis(index="cohort", columns="learner") for table in tables))


def _ranks(values: FloatArray, higher_is_better: bool) -> FloatArray:
    """Return the ranks of learners, (folds, learners) -> (learners,); pairs compare on the folds that both have."""
    sign = -1.0 if higher_is_better else 1.0
    there = np.isfinite(values)
    filled = np.where(there, values, 0.0)
    # Sums over the folds that j and k share: of j's scores, and of k's.
    of_first = filled.T @ there
    gap = sign * np.round(of_first - of_first.T, _DECIMALS)
    beaten = (gap > 0) + 0.5 * (gap == 0)
    np.fill_diagonal(beaten, 0.0)
    return 1.0 + beaten.sum(axis=1)


def differences_to(field: Field, learners: list[str], confidence: float = 0.95) -> pd.DataFrame:
    """Return our score minus that of others: mean over cohorts with Student's interval.

    Parameters
    ----------
    field : Field
        Ours and theirs.
    learners : list of str
        Whom to compare with.
    confidence : float, default 0.95
        Level of the intervals, which take cohorts for a sample of cohorts.

    Returns
    -------
    DataFrame
        ``learner, cohorts, difference, lower, upper, better``: in how many cohorts ours is better.
    """
    sign = 1 if HIGHER_IS_BETTER[field.score] else -1
    out = []
    for learner in learners:
        gap = (field.ours[learner] - field.means[learner]).dropna().to_numpy()
        n = len(gap)
        half = student.ppf((1 + confidence) / 2, n - 1) * gap.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
        out.append(
            {
                "learner": learner,
                "cohorts": n,
                "difference": float(gap.mean()),
                "lower": float(gap.mean() - half),
                "upper": float(gap.mean() + half),
                "better": int((sign * gap > 0).sum()),
            }
        )
    return pd.DataFrame(out)


@dataclass(frozen=True)
class CriticalDifference:
    """Demsar's comparison: Friedman's test, and how far mean ranks must lie apart by Nemenyi's.

    Attributes
    ----------
    mean_ranks : Series
        By learner, the best first; of those that have every cohort.
    difference : float
        The critical difference of mean ranks.
    p_value : float
        Friedman's: whether any learners differ.
    cohorts : int
        How many cohorts the ranks are over.
    left_out : list of str
        Learners without a score in some cohort.
    """

    mean_ranks: pd.Series
    difference: float
    p_value: float
    cohorts: int
    left_out: list[str]

    def groups(self) -> list[tuple[int, int]]:
        """Return the largest runs of learners whose mean ranks lie within the critical difference.

        Returns
        -------
        list of tuple
            Positions of the first and the last learner of each.
        """
        return runs_within(self.mean_ranks.to_numpy(), self.difference)


def runs_within(ranks: FloatArray, difference: float) -> list[tuple[int, int]]:
    """Return first and last of the largest runs of ascending ranks that lie no further apart; no run of one."""
    out: list[tuple[int, int]] = []
    for first in range(len(ranks)):
        last = int(np.searchsorted(ranks, ranks[first] + difference, side="right")) - 1
        if last > first and (not out or last > out[-1][1]):
            out.append((first, last))
    return out


def critical_difference(field: Field, alpha: float = 0.05) -> CriticalDifference | None:
    """Compare all learners at once (Demsar, 2006); None with fewer than two cohorts or three learners.

    Parameters
    ----------
    field : Field
        Ours and theirs.
    alpha : float, default 0.05
        Level of the tests.

    Returns
    -------
    CriticalDifference or None
        Of the learners that have a score in every cohort, ranked anew if some have not.
    """
    means = field.means.dropna(axis="columns")
    n, k = means.shape
    if n < 2 or k < 3:
        return None
    if k == field.means.shape[1]:
        ranks = field.ranks
    else:
        ranks = means.rank(axis="columns", ascending=not HIGHER_IS_BETTER[field.score])
    distance = studentized_range.ppf(1 - alpha, k, np.inf) / np.sqrt(2) * np.sqrt(k * (k + 1) / (6 * n))
    p_value = friedmanchisquare(*(ranks[learner] for learner in ranks)).pvalue
    mean_ranks = ranks.mean().sort_values(kind="stable")
    left_out = [str(name) for name in field.means if name not in means]
    return CriticalDifference(mean_ranks, float(distance), float(p_value), n, left_out)
