"""How long a patient could be followed: which features decide it, and G(t | x), the chance of not being censored by t.

In most clinical tables the possible follow-up depends on a feature: the year of enrolment, the centre, the study arm.
Whatever weighs patients by one censoring curve for all is wrong then.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import norm

from dcsurv._frames import as_pandas
from dcsurv.nonparametric import LOWEST_CENSORING, StepFunction, breslow, censoring_curve
from dcsurv.preprocessing import Preprocessor
from dcsurv.target import BoolArray, FloatArray, IntArray, check_outcome, check_sample_weight

# Features predict censoring if chance would hardly do so. How well does not matter: one small centre whose patients
# were not followed for long hardly shows in a concordance.
_P_VALUE = 0.001
# A feature is named if its concordance is above this; with fewer patients or censorings nothing can be said.
_NAMED_ABOVE, _LEAST_PATIENTS, _LEAST_CENSORED = 0.55, 60, 20
# Groups: how many at most, and how many patients and censorings each has at least.
_MOST_GROUPS, _GROUP_SHARE, _GROUP_PATIENTS, _GROUP_CENSORED = 64, 200, 25, 20
# A cut has to raise twice the log-likelihood by this; chance does, too, the best of many cuts, but rarely.
_GAIN = 2.0
_FOLDS = 5
# A penalty that counts as much as this many censorings keeps the slopes finite where a feature decides everything.
_RIDGE = 2.0
_NEWTON_STEPS = 50
# More rows than this do not make the groups better.
_MOST_ROWS = 10_000
# Of very many columns those that tell most are used.
_MOST_COLUMNS, _MOST_FEATURES = 30, 100
# A column with more values than this may bend: besides itself it enters beyond each of these quantiles.
_FEW_VALUES, _BENDS = 4, (1 / 3, 2 / 3)
_LEVELS = 64
_CHUNK = 1 << 16
_INFLUENCE_GROUPS = 12
_MOST_NAMED = 3


class Influence(NamedTuple):
    """How well a feature alone predicts who is censored first: 0.5 not at all, 1 perfectly."""

    feature: str
    concordance: float


@dataclass(frozen=True)
class _Score:
    """A sum of bent lines, one per column that is used: the logarithm of the relative rate of censoring."""

    columns: IntArray
    knots: FloatArray  # where each line may bend, (columns, bends)
    slopes: FloatArray  # (columns, 1 + bends)
    cuts: FloatArray  # between the groups, ascending

    def __call__(self, X: npt.NDArray[Any]) -> FloatArray:
        out = np.empty(len(X))
        for start in range(0, len(X), _CHUNK):  # the bends are several copies of the columns
            some = slice(start, start + _CHUNK)
            out[some] = _bent(X[some][:, self.columns], self.knots) @ self.slopes.ravel()
        return out


@dataclass(frozen=True)
class FollowUp:
    """Groups of patients who could be followed alike, and the censoring curve of each.

    Made by :func:`study_follow_up`. Where the features do not predict censoring there is one group.

    Attributes
    ----------
    depends
        Whether the features predict censoring, so that there are several groups.
    concordance, p_value
        Of a score of all features, cross-fitted, with the order in which patients were censored; NaN where there were
        too few to say.
    features
        The features that predict censoring best, each alone, best first.
    groups
        Group of each patient that it was made from, 0, 1, ...; empty if it comes from a file.
    followed_until
        Of each group, the last time by which at least 5 % would not have been censored.
    """

    depends: bool
    concordance: float
    p_value: float
    features: tuple[Influence, ...]
    groups: IntArray
    followed_until: FloatArray
    _score: _Score | None = field(default=None, repr=False)

    def assign(self, X: npt.NDArray[Any]) -> IntArray:
        """Return the group of other patients, given their columns as numbers."""
        if self._score is None:
            return np.zeros(len(X), dtype=np.int64)
        return np.searchsorted(self._score.cuts, self._score(X))

    def followed_to(self, X: npt.NDArray[Any]) -> FloatArray:
        """Return until when patients with such features were followed, (n,), given their columns as numbers.

        The last time by which at least 5 % of them would not have been censored. What a model says about later times
        it has learnt from other patients.
        """
        return self.followed_until[self.assign(X)]

    def take(self, rows: npt.NDArray[Any]) -> FollowUp:
        """Return the same for some of the patients that it was made from."""
        return replace(self, groups=self.groups[rows])

    def describe(self) -> str:
        """Say which features decide how long a patient could be followed, in one sentence; "" if none do."""
        if not self.depends:
            return ""
        named = [one for one in self.features if one.concordance >= _NAMED_ABOVE][:_MOST_NAMED]
        if not named:
            first = f" (most of all {self.features[0].feature})" if self.features else ""
            return f"all features together{first} predict censoring: concordance {self.concordance:.2f}."
        parts = [f"{one.feature} (concordance {one.concordance:.2f})" for one in named]
        listed = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
        return f"{listed} predict{'s' if len(parts) == 1 else ''} censoring."

    def get_state(self) -> dict[str, Any]:
        """Return what a model file keeps: plain numbers, no rows of patients."""
        return {
            "depends": self.depends,
            "concordance": None if np.isnan(self.concordance) else self.concordance,
            "p_value": None if np.isnan(self.p_value) else self.p_value,
            "features": [[one.feature, one.concordance] for one in self.features],
            "followed_until": self.followed_until.tolist(),
            "score": None if self._score is None else {k: part.tolist() for k, part in vars(self._score).items()},
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], n_columns: int) -> FollowUp:
        """Rebuild from a model file with so many columns."""
        until = np.asarray(state["followed_until"], dtype=np.float64)
        score = None
        if state["score"] is not None:
            saved = state["score"]
            parts = {name: np.asarray(saved[name], dtype=np.float64) for name in ("knots", "slopes", "cuts")}
            score = _Score(np.asarray(saved["columns"], dtype=np.int64), **parts)
            used = (len(score.columns),)
            sound = (
                score.columns.shape == used
                and ((score.columns >= 0) & (score.columns < n_columns)).all()
                and score.knots.shape == (*used, len(_BENDS))
                and score.slopes.shape == (*used, 1 + len(_BENDS))
                and all(np.isfinite(part).all() for part in parts.values())
                and (np.diff(score.cuts) > 0).all()
            )
            if not sound:
                raise ValueError("the score of follow-up does not fit the columns of the model.")
        if until.shape != (1 if score is None else len(score.cuts) + 1,) or not np.isfinite(until).all():
            raise ValueError("every group of follow-up needs a finite time until which it was followed.")
        known = {name: np.nan if state[name] is None else float(state[name]) for name in ("concordance", "p_value")}
        return cls(
            bool(state["depends"]),
            **known,
            features=tuple(Influence(str(name), float(value)) for name, value in state["features"]),
            groups=np.zeros(0, dtype=np.int64),
            followed_until=until,
            _score=score,
        )


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
    X
        Features: a DataFrame, or an array of numbers.
    y
        Outcomes of the same patients.
    names
        Which feature each column of an array stands for.
    sample_weight
        One non-negative weight per patient, for the curves.
    even_if
        Make groups even if the test does not find that the features predict censoring.

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
    score, held_out = _cross_fitted(part, time, lost, fold)
    found = replace(together, concordance=_concordance(time, lost, held_out), p_value=_chance(time, lost, held_out))
    depends = found.p_value < _P_VALUE
    if not depends and not even_if:
        return found
    score = replace(score, cuts=_cuts(held_out, time, lost))
    groups = np.searchsorted(score.cuts, score(columns))
    groups[chosen] = np.searchsorted(score.cuts, held_out)
    return replace(
        found,
        depends=bool(depends),
        features=_influences(part, owners, time, lost, fold),
        groups=groups,
        followed_until=_ends(outcome, weight, groups, len(score.cuts) + 1),
        _score=score,
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


def _exposure(time: FloatArray, lost: BoolArray) -> FloatArray:
    """Return how many censorings a patient would have had by the own time at the rate of the cohort, (n,)."""
    times, hazard = breslow(time, lost, np.ones(len(time)))
    return StepFunction(times, hazard, 0.0)(time)


def _bent(X: npt.NDArray[Any], knots: FloatArray) -> FloatArray:
    """Return each column and what of it lies beyond its knots, (n, columns x (1 + bends))."""
    values = np.asarray(X, dtype=np.float64)[:, :, None]
    return np.concatenate([values, np.maximum(values - knots, 0.0)], axis=2).reshape(len(values), -1)


def _cross_fitted(X: npt.NDArray[Any], time: FloatArray, lost: BoolArray, fold: IntArray) -> tuple[_Score, FloatArray]:
    """Return a score of the rate of censoring, the mean of those without one fold, and what each says of that fold."""
    residual = lost - _exposure(time, lost)
    size = np.maximum(X.std(axis=0), 1e-12)
    telling = np.abs(residual @ ((X - X.mean(axis=0)) / size))
    columns = np.sort(np.argsort(-telling, kind="stable")[:_MOST_COLUMNS])
    few = np.array([len(np.unique(X[:, k])) <= _FEW_VALUES for k in columns])
    knots = np.quantile(X[:, columns].astype(np.float64), _BENDS, axis=0).T
    knots[few] = X[:, columns[few]].max(axis=0)[:, None]  # nothing lies beyond: straight
    design = _bent(X[:, columns], knots)
    spread = np.maximum(design.std(axis=0), 1e-9)
    middle = design.mean(axis=0) / spread
    design = design / spread - middle
    held_out, slopes = np.zeros(len(X)), np.zeros(design.shape[1])
    for k in range(_FOLDS):
        slope = _cox_slopes(design[fold != k], time[fold != k], lost[fold != k])
        held_out[fold == k] = design[fold == k] @ slope
        slopes += slope / _FOLDS
    held_out += middle @ slopes  # as the mean score counts it
    return _Score(columns, knots, (slopes / spread).reshape(len(columns), -1), np.zeros(0)), held_out


def _cox_slopes(X: FloatArray, time: FloatArray, lost: BoolArray) -> FloatArray:
    """Return the slopes of Cox's model of censoring with a ridge penalty, Breslow's rule for ties, by Newton's method.

    Columns are standardised. Not lifelines: where a feature decides everything its steps do not end.
    """
    order = np.argsort(-time, kind="stable")  # the risk set of a row: all rows up to it, and those tied with it
    X, time, lost = X[order], time[order], lost[order]
    first = np.searchsorted(-time, -time, side="left")
    last = np.searchsorted(-time, -time, side="right") - 1
    gone = np.flatnonzero(lost)

    def objective(slopes: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        score = X @ slopes
        risk = np.exp(score - score.max())
        at_risk = np.cumsum(risk)[last]
        value = (score - score.max() - np.log(at_risk))[gone].sum() - _RIDGE / 2 * slopes @ slopes
        return float(value), risk, at_risk

    slopes = np.zeros(X.shape[1])
    value, risk, at_risk = objective(slopes)
    for _ in range(_NEWTON_STEPS):
        mean = (np.cumsum(risk[:, None] * X, axis=0)[last[gone]]) / at_risk[gone, None]
        gradient = (X[gone] - mean).sum(axis=0) - _RIDGE * slopes
        # Each patient's share of the expected censorings up to the own time.
        share = risk * np.cumsum((lost / at_risk)[::-1])[::-1][first]
        curvature = (X * share[:, None]).T @ X - mean.T @ mean + _RIDGE * np.eye(len(slopes))
        step = np.linalg.solve(curvature, gradient)
        for _ in range(30):
            better, *state = objective(slopes + step)
            if better >= value:
                break
            step = step / 2
        else:
            break
        gain, value = better - value, better
        slopes, (risk, at_risk) = slopes + step, state
        if gain < 1e-6 * len(gone):
            break
    return slopes


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


def _cuts(score: FloatArray, time: FloatArray, lost: BoolArray) -> FloatArray:
    """Return where to cut the score, so that groups differ in their rate of censoring."""
    exposure = _exposure(time, lost)
    rows = exposure > 0
    tree = _tree(lost[rows], exposure[rows], _MOST_GROUPS)
    tree.fit(score[rows, None], lost[rows] / exposure[rows], sample_weight=exposure[rows])
    return np.unique(tree.tree_.threshold[tree.tree_.children_left >= 0])


def _influences(
    X: npt.NDArray[Any], owners: list[str], time: FloatArray, lost: BoolArray, fold: IntArray
) -> tuple[Influence, ...]:
    """Return how well each feature alone predicts censoring in patients whom its tree has not seen, best first."""
    exposure = _exposure(time, lost)
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
        values, rate = X[:, columns[name]], np.zeros(len(X))
        for k in range(_FOLDS):
            rows = (fold != k) & (exposure > 0)
            tree = _tree(lost[rows], exposure[rows], _INFLUENCE_GROUPS)
            tree.fit(values[rows], lost[rows] / exposure[rows], sample_weight=exposure[rows])
            rate[fold == k] = tree.predict(values[fold == k])
        out.append(Influence(name, _concordance(time, lost, rate)))
    return tuple(sorted(out, key=lambda one: -one.concordance))


def _concordance(time: FloatArray, lost: BoolArray, score: FloatArray) -> float:
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


def _chance(time: FloatArray, lost: BoolArray, score: FloatArray) -> float:
    """Return the one-sided p-value of Cox's score test: chance would make the score predict censoring so well."""
    latest_first = np.argsort(-time, kind="stable")
    ordered, value = time[latest_first], score[latest_first] - score.mean()
    last_tied = np.searchsorted(-ordered, -ordered, side="right") - 1
    size = np.arange(1, len(time) + 1)[last_tied]
    mean = np.cumsum(value)[last_tied] / size
    variance = np.cumsum(value**2)[last_tied] / size - mean**2
    gone = lost[latest_first]
    total = float(variance[gone].sum())
    return float(norm.sf((value - mean)[gone].sum() / np.sqrt(total))) if total > 0 else 1.0
