"""Which features the predictions rest on: how much scores suffer when a feature is shuffled, by time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.curves import BeyondLastNodeWarning
from dcsurv.explanation.mixing import feature_names, grouped, said_time
from dcsurv.follow_up import FollowUp
from dcsurv.metrics import (
    brier_score,
    calibration_at_horizon,
    concordance_index_td,
    cumulative_dynamic_auc,
    default_horizons,
)
from dcsurv.metrics.censoring import study_censoring
from dcsurv.models import SurvivalModel
from dcsurv.target import FloatArray, IntArray, Outcome, check_outcome, make_outcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ShuffledMetric: TypeAlias = Literal["C-td", "AUC", "Brier", "ICI"]
# Whether a score falls when predictions get worse.
_FALLS = {"C-td": True, "AUC": True, "Brier": False, "ICI": False}
# Rows that may be predicted in all; more features get fewer repeats, then fewer patients.
_BUDGET, _LEAST_PATIENTS, _MOST_PATIENTS, _ROWS_PER_CALL = 40_000, 100, 1000, 20_000
# Rank correlation from which on features are shuffled together.
_TOGETHER = 0.7


@dataclass(frozen=True)
class Importance:
    """How much worse scores get when a feature is shuffled among the patients; from :func:`permutation_importance`.

    Attributes
    ----------
    table : DataFrame
        Columns ``feature, metric, horizon, value, lower, upper``: by how much the score gets worse (C-td and AUC fall,
        Brier and ICI rise), with an interval over resampled patients and orders.
    scores : DataFrame
        Columns ``metric, horizon, value``: the scores with nothing shuffled.
    groups : dict of str to list of str
        The features that were shuffled together, by name.
    patients : int
        How many patients were used.
    repeats : int
        Random orders of each feature.
    unit : str or None
        What times are measured in.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.datasets import simulate
    >>> from dcsurv.explanation import permutation_importance
    >>> cohort = simulate("independent", 300)
    >>> X = cohort.X[["age", "bmi"]]
    >>> model = dcsurv.CoxPH().fit(X[:200], cohort.y[:200])
    >>> found = permutation_importance(model, X[200:], cohort.y[200:], metrics=["C-td"], n_bootstrap=0)
    >>> found.scores["metric"].unique().tolist()
    ['C-td']
    """

    table: pd.DataFrame
    scores: pd.DataFrame
    groups: dict[str, list[str]]
    patients: int
    repeats: int
    unit: str | None

    def order(self, metric: ShuffledMetric | None = None) -> list[str]:
        """Return the features, the most important first: by the largest value over the horizons.

        Parameters
        ----------
        metric : {"C-td", "AUC", "Brier", "ICI"} or None, default None
            By which score; None: the first one.
        """
        name = metric or self.table["metric"].iloc[0]
        best = self.table[self.table["metric"] == name].groupby("feature", sort=False)["value"].max()
        return [str(one) for one in best.sort_values(ascending=False, kind="stable").index]

    def plot(self, metric: ShuffledMetric | None = None) -> Figure:
        """Draw how much each feature matters at each horizon.

        Parameters
        ----------
        metric : {"C-td", "AUC", "Brier", "ICI"} or None, default None
            By which score; None: the first one.

        Returns
        -------
        matplotlib.figure.Figure
            A row per feature, a mark per horizon.
        """
        from dcsurv.figures.evaluation import importance_at_horizons

        name = metric or self.table["metric"].iloc[0]
        drawn = self.table[self.table["metric"] == name].copy()
        drawn["place"] = drawn["feature"].map(self.order(metric).index)
        drawn = drawn.sort_values(["place", "horizon"], kind="stable")
        drawn["horizon"] = [f"by {said_time(t, self.unit, brief=True)}" for t in drawn["horizon"]]
        return importance_at_horizons(drawn, xlabel=worse(name))


def worse(metric: str) -> str:
    """Say what the values of a metric are."""
    names = {"C-td": "drop of C-td", "AUC": "drop of AUC", "Brier": "rise of the Brier score", "ICI": "rise of the ICI"}
    return f"{names[metric]} when shuffled"


def permutation_importance(
    model: SurvivalModel,
    X: Any,
    y: Any,
    *,
    horizons: npt.ArrayLike | None = None,
    metrics: Sequence[ShuffledMetric] = ("C-td", "Brier", "ICI"),
    groups: Literal["auto"] | Mapping[str, Sequence[str]] | None = "auto",
    n_repeats: int = 5,
    n_bootstrap: int = 20,
    confidence: float = 0.95,
    censoring: FollowUp | None = None,
    random_state: int = 0,
) -> Importance:
    """Shuffle each feature among held-out patients and see how much worse the scores get, by horizon.

    Parameters
    ----------
    model : SurvivalModel
        A fitted model.
    X : DataFrame or array-like
        Features of patients that it was not trained on; at most 1,000 of them are used, fewer with many features.
    y : outcome
        Of the same patients; see :func:`dcsurv.make_outcome`.
    horizons : array-like or None, default None
        Times; None: the quartiles of the event times.
    metrics : sequence of {"C-td", "AUC", "Brier", "ICI"}, default ("C-td", "Brier", "ICI")
        Which scores. C-td is that of what happens up to the horizon; AUC, Brier score and ICI are those at the horizon.
    groups : "auto", mapping of str to sequence of str, or None, default "auto"
        Features that are shuffled together, by the name of their group. ``"auto"``: those with a rank correlation of
        0.7 or more, because each of them alone seems useless while the others stand in for it. None: each by itself.
    n_repeats : int, default 5
        Random orders of each feature, fewer if there are many features.
    n_bootstrap : int, default 20
        Resamples of the patients behind the intervals, each with one of the orders; 0: the range over the orders.
    confidence : float, default 0.95
        Level of the intervals.
    censoring : FollowUp or None, default None
        What predicts censoring among the patients, if it is known already; None: it is looked at here.
    random_state : int, default 0
        Seed.

    Returns
    -------
    Importance
        How much worse scores get, with intervals.

    Notes
    -----
    This says what the model uses, not what would change the outcome.

    Examples
    --------
    >>> import dcsurv
    >>> from dcsurv.datasets import simulate
    >>> from dcsurv.explanation import permutation_importance
    >>> cohort = simulate("independent", 400)
    >>> X = cohort.X[["age", "marker", "bmi"]]
    >>> model = dcsurv.CoxPH().fit(X[:200], cohort.y[:200])
    >>> found = permutation_importance(model, X[200:], cohort.y[200:], horizons=[5], n_bootstrap=5)
    >>> found.order()[-1]  # it has no effect
    'bmi'
    """
    unknown = [name for name in metrics if name not in _FALLS]
    if unknown or not metrics:
        raise ValueError(f"metrics is {list(metrics)!r}, but some of {', '.join(_FALLS)} are expected.")
    names = feature_names(model)
    features = model.check_features(X)
    as_array = not isinstance(features, pd.DataFrame)
    frame = pd.DataFrame(features, columns=names) if as_array else features.reset_index(drop=True)
    outcome = check_outcome(y, n_rows=len(frame), min_events=1)
    times = default_horizons(outcome) if horizons is None else np.unique(np.atleast_1d(np.asarray(horizons, float)))
    players = grouped(names, _correlated(frame) if isinstance(groups, str) else groups)
    rng = np.random.default_rng(random_state)
    size = min(len(frame), _MOST_PATIENTS, max(_LEAST_PATIENTS, _BUDGET // len(players)))
    repeats = int(np.clip(_BUDGET // (len(players) * size), 1, n_repeats))
    rows = np.arange(len(frame)) if size == len(frame) else np.sort(rng.choice(len(frame), size, replace=False))
    frame, outcome = frame.iloc[rows].reset_index(drop=True), outcome[rows]
    orders = [rng.permutation(size) for _ in range(repeats)]
    counts = [rng.multinomial(size, np.full(size, 1 / size)).astype(np.float64) for _ in range(n_bootstrap)]
    # C-td reads survival at the patients' own times, so that it needs curves, not only the horizons.
    grid = np.unique(np.concatenate([times, np.linspace(times[0] / 20, times[-1], 60)])) if "C-td" in metrics else times

    def predict(table: pd.DataFrame) -> FloatArray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BeyondLastNodeWarning)
            return model.curves_for(table.to_numpy() if as_array else table, grid).values

    own_curves = predict(frame)
    followed = censoring.take(rows) if isinstance(censoring, FollowUp) else None
    if followed is None:  # looked at once, not for every shuffled table
        followed = study_censoring(outcome, [(own_curves, grid)], frame)
    weighting: Any = followed if followed.depends else "marginal"

    def scored(survival: FloatArray, count: FloatArray | None = None) -> dict[str, FloatArray]:
        return _scores(outcome, survival, grid, times, metrics, weighting, count)

    own = scored(own_curves)
    own_resampled = _resampled(scored, [own_curves], counts)
    table: list[dict[str, Any]] = []
    for player, versions in _shuffled(frame, players, orders, predict):
        changes = {name: np.array([scored(one)[name] for one in versions]) - own[name] for name in metrics}
        again = _resampled(scored, versions, counts)
        for name in metrics:
            sign = -1.0 if _FALLS[name] else 1.0
            spread = (
                changes[name]
                if not counts
                else np.array([b[name] - a[name] for a, b in zip(own_resampled, again, strict=True)])
            )
            table += _rows(player, name, times, sign * changes[name], sign * spread, confidence if counts else 1.0)
    scores = [
        {"metric": name, "horizon": float(t), "value": float(own[name][k])}
        for name in metrics
        for k, t in enumerate(times)
    ]
    return Importance(
        pd.DataFrame(table), pd.DataFrame(scores), players, size, repeats, getattr(model, "time_unit", None)
    )


def _rows(
    player: str, metric: str, times: FloatArray, changes: FloatArray, spread: FloatArray, level: float
) -> list[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a score that is undefined in every resample
        low, high = np.nanquantile(spread, [(1 - level) / 2, (1 + level) / 2], axis=0)
        value = np.nanmean(changes, axis=0)
    return [
        {"feature": player, "metric": metric, "horizon": float(t), "value": float(value[k]), "lower": float(low[k]),
         "upper": float(high[k])}
        for k, t in enumerate(times)
    ]  # fmt: skip


def _resampled(
    scored: Callable[..., dict[str, FloatArray]], versions: Sequence[FloatArray], counts: Sequence[FloatArray]
) -> list[dict[str, FloatArray]]:
    return [scored(versions[k % len(versions)], count) for k, count in enumerate(counts)]


def _shuffled(
    frame: pd.DataFrame,
    players: Mapping[str, Sequence[str]],
    orders: Sequence[IntArray],
    predict: Callable[[pd.DataFrame], FloatArray],
) -> Any:
    """Yield each player with the predictions of its shuffled tables; several tables are predicted in one call."""
    names = list(players)
    per_call = max(1, _ROWS_PER_CALL // (len(frame) * len(orders)))
    for start in range(0, len(names), per_call):
        some = names[start : start + per_call]
        tables = [_with_shuffled(frame, players[name], order) for name in some for order in orders]
        predicted = predict(pd.concat(tables, ignore_index=True))
        yield from zip(some, predicted.reshape(len(some), len(orders), len(frame), -1), strict=True)


def _with_shuffled(frame: pd.DataFrame, names: Sequence[str], order: IntArray) -> pd.DataFrame:
    out = frame.copy()
    for name in names:
        out[name] = frame[name].array[order]
    return out


def _scores(
    y: Outcome,
    survival: FloatArray,
    grid: FloatArray,
    times: FloatArray,
    metrics: Sequence[str],
    censoring: Any,
    count: FloatArray | None,
) -> dict[str, FloatArray]:
    """Return the scores at every horizon; NaN where one is undefined for these patients."""
    at = survival[:, np.searchsorted(grid, times)]
    curves = (at, times)
    out: dict[str, FloatArray] = {}
    shared: dict[str, Any] = {"censoring": censoring, "sample_weight": count}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if "AUC" in metrics:
            auc = cumulative_dynamic_auc(y, curves, times=times, **shared)
            out["AUC"] = _placed(times, auc.times, auc.auc)
        if "Brier" in metrics:
            out["Brier"] = _placed(times, *brier_score(y, curves, times, **shared))
        if "C-td" in metrics:
            out["C-td"] = np.array([_up_to(y, survival, grid, t, count) for t in times])
        if "ICI" in metrics:
            out["ICI"] = np.array([_ici(y, curves, t, shared) for t in times])
    return out


def _placed(times: FloatArray, found: FloatArray, values: FloatArray) -> FloatArray:
    known = dict(zip(found, values, strict=True))
    return np.array([known.get(t, np.nan) for t in times])


def _up_to(y: Outcome, survival: FloatArray, grid: FloatArray, t: float, count: FloatArray | None) -> float:
    """Return C-td of what happens up to a time."""
    early = make_outcome(np.minimum(y["time"], t), y["event"] & (y["time"] <= t))
    inside = grid <= t
    try:
        return concordance_index_td(early, (survival[:, inside], grid[inside]), sample_weight=count)
    except ValueError:
        return np.nan


def _ici(y: Outcome, curves: Any, t: float, shared: dict[str, Any]) -> float:
    try:
        return float(calibration_at_horizon(y, curves, float(t), **shared).ici)
    except ValueError:
        return np.nan


def _correlated(frame: pd.DataFrame) -> dict[str, list[str]]:
    """Return groups of features with a high rank correlation, each named by its features."""
    codes = frame.apply(
        lambda column: (
            column
            if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype)
            else pd.Series(pd.factorize(column, sort=True)[0], index=column.index).where(column.notna())
        )
    )
    near = np.abs(codes.astype(np.float64).rank().corr().fillna(0).to_numpy()) >= _TOGETHER
    names, seen, out = [str(name) for name in frame.columns], set(), {}
    for k in range(len(names)):
        if k in seen:
            continue
        members, front = {k}, [k]
        while front:
            for j in np.flatnonzero(near[front.pop()]):
                if int(j) not in members:
                    members.add(int(j))
                    front.append(int(j))
        seen |= members
        if len(members) > 1:
            own = [names[j] for j in sorted(members)]
            out[" + ".join(own)] = own
    return out
