"""Whether features predict censoring: concordance, a test, trees of features alone, and where a score is to be cut."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dcsurv.follow_up.score import RIDGE, exposure_of
from dcsurv.target import BoolArray, FloatArray, IntArray

# Groups: how many at most, and how many patients and censorings each has at least.
_MOST_GROUPS, _GROUP_SHARE, _GROUP_PATIENTS, _GROUP_CENSORED = 64, 200, 25, 20
# A cut has to raise twice the log-likelihood by this; chance does, too, the best of many cuts, but rarely.
_GAIN = 2.0
# Of very many features those that tell most are looked at.
_MOST_FEATURES = 100
_INFLUENCE_GROUPS = 12
_LEVELS = 64
# Draws behind the test of a cross-fitted score, and below which share of the largest a direction counts as none.
_DRAWS, _RANK = 4999, 1e-9


class Influence(NamedTuple):
    """How well a feature alone predicts who is censored first.

    Attributes
    ----------
    feature : str
        Its name.
    concordance : float
        Share of pairs of patients that it puts in the right order: 0.5 not at all, 1 perfectly.

    Examples
    --------
    >>> from dcsurv.follow_up import Influence
    >>> Influence("year of enrolment", 0.93).feature
    'year of enrolment'
    """

    feature: str
    concordance: float


def _tree(lost: BoolArray, exposure: FloatArray, most: int) -> Any:
    """Return a tree, unfitted, whose leaves are to differ in their rate of censoring."""
    from sklearn.tree import DecisionTreeRegressor

    return DecisionTreeRegressor(
        criterion="poisson",
        max_leaf_nodes=int(np.clip(lost.sum() // _GROUP_CENSORED, 2, most)),
        min_samples_leaf=max(_GROUP_PATIENTS, len(lost) // _GROUP_SHARE),
        min_impurity_decrease=_GAIN / (2 * float(exposure.sum())),
        random_state=0,
    )


def cuts_of(score: FloatArray, time: FloatArray, lost: BoolArray) -> FloatArray:
    """Return where to cut the score, so that groups differ in their rate of censoring."""
    exposure = exposure_of(time, lost)
    rows = exposure > 0
    tree = _tree(lost[rows], exposure[rows], _MOST_GROUPS)
    tree.fit(score[rows, None], lost[rows] / exposure[rows], sample_weight=exposure[rows])
    return np.unique(tree.tree_.threshold[tree.tree_.children_left >= 0])


def influences(
    X: npt.NDArray[Any], owners: list[str], time: FloatArray, lost: BoolArray, fold: IntArray
) -> tuple[Influence, ...]:
    """Return how well each feature alone predicts censoring in patients whom its tree has not seen, best first."""
    exposure = exposure_of(time, lost)
    residual = lost - exposure
    columns: dict[str, list[int]] = {}
    for k, name in enumerate(owners):
        columns.setdefault(name, []).append(k)
    strength = {
        name: max(abs(float(residual @ X[:, k])) / max(float(X[:, k].std()), 1e-12) for k in own)
        for name, own in columns.items()
    }
    out = []
    for name in sorted(columns, key=lambda name: -strength[name])[:_MOST_FEATURES]:
        # Trees take single precision, and checking what they are given takes longer than growing them.
        values, rate = np.ascontiguousarray(X[:, columns[name]], dtype=np.float32), np.zeros(len(X))
        for k in range(int(fold.max()) + 1):
            rows = (fold != k) & (exposure > 0)
            tree = _tree(lost[rows], exposure[rows], _INFLUENCE_GROUPS)
            tree.fit(values[rows], lost[rows] / exposure[rows], sample_weight=exposure[rows], check_input=False)
            rate[fold == k] = tree.predict(values[fold == k], check_input=False)
        out.append(Influence(name, censoring_concordance(time, lost, rate)))
    return tuple(sorted(out, key=lambda one: -one.concordance))


def censoring_concordance(time: FloatArray, lost: BoolArray, score: FloatArray) -> float:
    """Return the share of pairs in which the one censored first has the higher score; scores in 64 levels."""
    edges = np.unique(np.quantile(score, np.arange(1, _LEVELS) / _LEVELS))
    level = np.searchsorted(edges, score, side="right")
    latest_first = np.argsort(-time, kind="stable")
    time, lost, level = time[latest_first], lost[latest_first], level[latest_first]
    seen = np.zeros((len(time) + 1, len(edges) + 1))
    np.cumsum(level[:, None] == np.arange(len(edges) + 1), axis=0, out=seen[1:])
    later = seen[np.searchsorted(-time, -time, side="left")[lost]]  # strictly longer under observation
    below = np.concatenate([np.zeros((len(later), 1)), np.cumsum(later, axis=1)], axis=1)
    at = np.arange(len(later)), level[lost]
    pairs = float(later.sum())
    return float((below[at] + later[at] / 2).sum() / pairs) if pairs else 0.5


def score_test(time: FloatArray, lost: BoolArray, score: FloatArray, information: FloatArray, n_folds: int) -> float:
    """Return the p-value of a cross-fitted score: chance would make it predict censoring so well.

    The statistic is Cox's score test of the score, one-sided. Slopes fitted without a fold share patients with those of
    the other folds, so that it is not normal: a product of sums, it is large too often. So it is compared with draws of
    what the folds would tell if nothing predicted censoring.
    """
    latest_first = np.argsort(-time, kind="stable")
    ordered, value = time[latest_first], score[latest_first] - score.mean()
    last_tied = np.searchsorted(-ordered, -ordered, side="right") - 1
    size = np.arange(1, len(time) + 1)[last_tied]
    mean = np.cumsum(value)[last_tied] / size
    variance = np.cumsum(value**2)[last_tied] / size - mean**2
    gone = lost[latest_first]
    total = float(variance[gone].sum())
    if total <= 0:
        return 1.0
    found = (value - mean)[gone].sum() / np.sqrt(total)
    told = information[information > _RANK * information[-1]] / n_folds  # by one fold, in each direction
    drawn = np.random.default_rng(0).normal(size=(_DRAWS, n_folds, len(told)))
    # What a fold is told times the slopes of the others, summed over the folds, needs two sums over them only.
    squared = drawn.sum(axis=1) ** 2
    squares = np.einsum("dfk,dfk->dk", drawn, drawn)
    share = told / (told * (n_folds - 1) + RIDGE)
    by_chance = (squared - squares) @ share / np.sqrt(((n_folds - 2) * squared + squares) @ share**2)
    return float((1 + (by_chance >= found).sum()) / (1 + _DRAWS))


def dependence_test(columns: FloatArray, time: FloatArray, lost: BoolArray) -> float:
    """Return the p-value of Cox's score test of columns that have not seen the censorings; NaN if nothing varies.

    Chi-square with as many degrees of freedom as the columns span. The variance is that of draws without replacement:
    where all who are left are censored at once, as by the end of a study, there is nothing to test.
    """
    X = (columns - columns.mean(axis=0)) / np.maximum(columns.std(axis=0), 1e-12)
    latest_first = np.lexsort((~lost, -time))  # whoever has the event at a tied time is not at risk of censoring
    X, time, lost = X[latest_first], time[latest_first], lost[latest_first]
    gone = np.flatnonzero(lost)
    if len(gone) == 0:
        return np.nan
    first = np.flatnonzero(np.diff(time[gone], prepend=np.inf))
    drawn = np.diff(np.append(first, len(gone)))
    last = gone[first + drawn - 1]
    size = last + 1.0
    mean = np.cumsum(X, axis=0)[last] / size[:, None]
    excess = (np.add.reduceat(X[gone], first, axis=0) - drawn[:, None] * mean).sum(axis=0)
    share = drawn * (size - drawn) / np.maximum(size - 1, 1)
    # Sum over the times of share x (mean of X X' - mean mean'), the first as a sum over patients.
    reached = np.zeros(len(X))
    reached[last] = share / size
    at = np.cumsum(reached[::-1])[::-1]
    covariance = (X * at[:, None]).T @ X - (mean * share[:, None]).T @ mean
    values, vectors = np.linalg.eigh(covariance)
    spans = values > 1e-6 * max(float(share.sum()), 1e-300)
    if not spans.any() or share.sum() <= 0:
        return np.nan
    statistic = float(((vectors[:, spans].T @ excess) ** 2 / values[spans]).sum())
    from scipy.special import chdtrc

    return float(chdtrc(int(spans.sum()), statistic))
