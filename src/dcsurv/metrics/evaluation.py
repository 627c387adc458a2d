"""All metrics of a model in one table, with bootstrap intervals, and paired comparisons of several models.

Resampling never repeats the sorting and pairing of patients: orders and pair indicators are prepared once, and a
resample is a vector of how often each patient was drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.grid import Convention
from dcsurv.metrics.catalogue import Better, Metric, choose_metrics
from dcsurv.metrics.censoring import Censoring, WeightsFrom, resolve_follow_up
from dcsurv.metrics.inputs import counted, warn
from dcsurv.metrics.null import N_NULL, check_n_null, drawn_outcomes, number_of_draws
from dcsurv.metrics.resampling import check_confidence, check_n_bootstrap, percentile_interval, resample_counts
from dcsurv.metrics.setting import Prepared, Setting, Weighting
from dcsurv.target import FloatArray

# Metric and horizon, which is the one object np.nan where there is none; the value under each weighting.
Key: TypeAlias = tuple[str, float]
Values: TypeAlias = dict[Key, FloatArray]


def evaluate(
    y: Any,
    curves: Any,
    y_train: Any | None = None,
    n_bootstrap: int = 0,
    *,
    X: Any | None = None,
    censoring: Censoring = "auto",
    horizons: npt.ArrayLike | None = None,
    metrics: Sequence[str | Metric] | None = None,
    convention: Convention = "default",
    weights_from: WeightsFrom = "test",
    confidence: float = 0.95,
    n_null: int = N_NULL,
    sample_weight: npt.ArrayLike | None = None,
    random_state: int = 0,
) -> pd.DataFrame:
    """Return one tidy table of a model's metrics on a test cohort.

    Parameters
    ----------
    y : outcome
        Outcome of n patients; see :func:`dcsurv.make_outcome`.
    curves : SurvivalCurves, tuple or DataFrame
        Their predicted curves: SurvivalCurves, ``(values, times)``, or a DataFrame with one row per patient.
    y_train : outcome or None, default None
        Outcome of the training part, which the ``paper`` convention projects curves on and ``weights_from="train"``
        takes the censoring curve of; else it is not used.
    n_bootstrap : int, default 0
        Number of resamples of the test patients behind ``mean``, ``sd``, ``lower`` and ``upper``; 0 leaves them out.
        Evaluation times stay those of the whole cohort; censoring weights are estimated anew in each resample. A
        patient who was drawn twice makes no pair with its copy.
    X : DataFrame, array or None, default None
        Features of the patients. Pass them: if they predict censoring, as a year of enrolment does, weights that are
        the same for all reward models that predict death where nobody can be followed.
    censoring : {"auto", "marginal", "by-features", "by-risk"} or FollowUp, default "auto"
        ``"marginal"``: one censoring curve G for all. ``"by-features"``: G(t | x), estimated on these patients in
        groups of alike follow-up (:func:`dcsurv.study_follow_up`, whose result may be passed instead). ``"by-risk"``:
        in tenths of the predicted risk. ``"auto"``: by features if ``X`` is there and predicts censoring, else by risk
        if that predicts censoring, else marginal; the column ``convention`` says so. Who counts: see
        :func:`brier_score`. The paper's convention always has one curve.
    horizons : array-like of float or None, default None
        Where to report ICI and observed / expected; None: the quartiles of the event times. Those after the last
        usable time (:func:`dcsurv.cohort.last_usable_time`) rest on a few patients, and a warning says so.
    metrics : sequence of str or Metric, or None, default None
        Which to compute, by name or record; None: all of :func:`list_metrics`, which are ``C-td, CDAUC, IBS, DDC,
        E50, E90, ICI, O/E`` and what was registered; in the paper convention ``C-td, CDAUC, DDC``.
    convention : {"default", "paper"}, default "default"
        How to compute them; numbers of one convention must not be compared with those of the other.
    weights_from : {"test", "train"}, default "test"
        Whose censoring curve weights the patients where there is one for all: their own, estimated anew in each
        resample, or that of ``y_train``, which stays the same. Training patients may have been followed for longer or
        shorter, and then their curve gives wrong numbers; even where they were not, it adds noise.
    confidence : float, default 0.95
        Share of the resamples inside the percentile interval.
    n_null : int, default 400
        How many outcomes to draw from the curves for the metrics of which a perfect model does not score 0 on a finite
        cohort (ICI, E50, E90, DDC); 0: none. Above 50,000 patients fewer are drawn, 200 for 100,000, so that it
        does not take minutes.
    sample_weight : array-like of float or None, default None
        One non-negative weight per patient; None: all count the same.
    random_state : int, default 0
        Seed of the resamples and of the outcomes drawn from the curves.

    Returns
    -------
    DataFrame
        Columns ``metric, horizon, value``, with resampling ``mean, sd, lower, upper``, then ``floor``, ``null_95`` and
        ``p_value``: mean and 95th percentile of what a perfect model would score, and the chance that it would score
        no better than this one, ``(1 + #{draws >= value}) / (draws + 1)`` where lower is better. Metrics that have
        these have no interval: resampling adds to a distance, so that percentile intervals miss the truth. Then
        ``counted``, the share of the patients who count (a mean over the times of CDAUC and IBS), and ``convention``.

    Examples
    --------
    >>> from dcsurv.datasets import simulate
    >>> from dcsurv.metrics import evaluate
    >>> cohort = simulate("independent", 300)
    >>> table = evaluate(cohort.y, cohort.truth, n_bootstrap=20, horizons=[5], metrics=["C-td", "IBS", "ICI"])
    >>> table["metric"].tolist()
    ['C-td', 'IBS', 'ICI']
    >>> bool((table["lower"] < table["upper"])[:2].all())
    True
    >>> bool(table["p_value"][2] > 0.05)  # the truth is calibrated
    True
    """
    n_bootstrap = check_n_bootstrap(n_bootstrap)
    if n_bootstrap and sample_weight is not None:
        raise ValueError(
            "sample_weight and n_bootstrap cannot be combined: resampling draws patients with equal probability. "
            "Leave one of them out."
        )
    check_confidence(confidence)
    n_null = check_n_null(n_null)
    chosen = choose_metrics(metrics, convention)
    follow_up = resolve_follow_up(censoring if convention == "default" else "marginal", X, y, [curves], sample_weight)
    y, curves, counts = counted(y, curves, sample_weight)
    setting = Setting(y, curves, y_train, convention, follow_up, horizons, _check_source(weights_from, y_train))
    prepared = PreparedMetrics(chosen, setting)
    value = {key: float(found[0]) for key, found in prepared.once(counts).items()}
    table = pd.DataFrame(
        [{"metric": metric, "horizon": horizon, "value": found} for (metric, horizon), found in value.items()],
        columns=["metric", "horizon", "value"],
    )
    if n_bootstrap:
        table = table.join(_summaries(list(value), prepared, n_bootstrap, confidence, random_state))
    table = table.join(_against_null(value, prepared.null(counts, n_null, random_state), prepared.metrics))
    table["counted"] = [prepared.share_counted(*row) for row in zip(table["metric"], table["horizon"], strict=True)]
    table["convention"] = table["metric"].map({metric.name: _told(metric, setting) for metric in chosen})
    return table


def _check_source(weights_from: WeightsFrom, y_train: Any | None) -> WeightsFrom:
    if weights_from not in get_args(WeightsFrom):
        raise ValueError(f"weights_from is {weights_from!r}, but 'test' or 'train' is expected.")
    if weights_from == "train" and y_train is None:
        raise ValueError("weights_from='train' takes the censoring curve of the training patients: pass y_train.")
    return weights_from


def _told(metric: Metric, setting: Setting) -> str:
    """Say how a metric was computed."""
    follow_up = setting.follow_up
    if setting.paper:
        return metric.paper or ""
    if follow_up is None or not metric.weighted:
        trained = metric.weighted and setting.weights_from == "train"
        return f"{metric.convention}; G of the training part" if trained else metric.convention
    given = "predicted risk ("
    if follow_up.by == "features":
        given = "features (" + "".join(f"{one.feature} and others; " for one in follow_up.features[:1])
    return f"{metric.convention}; G given the {given}concordance with censoring {follow_up.concordance:.2f})"


def compare(
    y: Any,
    curves: Mapping[str, Any],
    y_train: Any | None = None,
    n_bootstrap: int = 1000,
    *,
    X: Any | None = None,
    censoring: Censoring = "auto",
    reference: str | None = None,
    horizons: npt.ArrayLike | None = None,
    metrics: Sequence[str | Metric] | None = None,
    convention: Convention = "default",
    weights_from: WeightsFrom = "test",
    confidence: float = 0.95,
    random_state: int = 0,
) -> pd.DataFrame:
    """Return paired differences between models on the same resamples of the same patients.

    Parameters
    ----------
    y : outcome
        Outcome of n patients; see :func:`dcsurv.make_outcome`.
    curves : mapping
        Predicted curves by model name.
    y_train : outcome or None, default None
        Outcome of the training part; see :func:`evaluate`.
    n_bootstrap : int, default 1000
        Number of resamples of the test patients behind ``lower`` and ``upper``.
    X : DataFrame, array or None, default None
        Features of the patients; see :func:`evaluate`.
    censoring : {"auto", "marginal", "by-features", "by-risk"} or FollowUp, default "auto"
        How censoring weights depend on them; see :func:`evaluate`. By risk, all models have the same weights, which
        follow the risks of all.
    reference : str or None, default None
        The model that the others are compared with; None: the first.
    horizons : array-like of float or None, default None
        Where to report ICI and observed / expected; None: the quartiles of the event times. Those after the last
        usable time (:func:`dcsurv.cohort.last_usable_time`) rest on a few patients, and a warning says so.
    metrics : sequence of str or Metric, or None, default None
        Which to compute; see :func:`evaluate`.
    convention : {"default", "paper"}, default "default"
        How to compute them.
    weights_from : {"test", "train"}, default "test"
        Whose censoring curve weights the patients; see :func:`evaluate`.
    confidence : float, default 0.95
        Share of the resamples inside the percentile interval.
    random_state : int, default 0
        Seed of the resamples.

    Returns
    -------
    DataFrame
        Columns ``metric, horizon, model, reference, value, reference_value, difference, lower, upper``. An interval
        that excludes 0 tells the two models apart on this cohort. Metrics with a null (ICI, E50, E90, DDC) have none: a
        small cohort adds more to a small distance than to a large one, so that intervals of their differences miss the
        truth far too often. Compare the models' p-values, intercepts and slopes instead.
    """
    if len(curves) < 2:
        raise ValueError(f"compare needs the curves of at least two models by name; got {list(curves)}.")
    n_bootstrap = check_n_bootstrap(n_bootstrap, may_be_zero=False)
    check_confidence(confidence)
    base = next(iter(curves)) if reference is None else reference
    if base not in curves:
        raise ValueError(f"reference is {base!r}, which is none of {list(curves)}.")
    chosen = choose_metrics(metrics, convention)
    _check_source(weights_from, y_train)
    follow_up = resolve_follow_up(censoring if convention == "default" else "marginal", X, y, list(curves.values()))
    point: dict[str, Values] = {}
    draws: dict[str, Values] = {}
    for name, predicted in curves.items():
        outcome, own, _ = counted(y, predicted, None)
        setting = Setting(outcome, own, y_train, convention, follow_up, horizons, weights_from)
        prepared = PreparedMetrics(chosen, setting)
        point[name] = prepared.once(None)
        names = [metric.name for metric in chosen if not metric.null]
        draws[name] = prepared.drawn(n_bootstrap, random_state, names) if names else {}  # the same seed: same patients
    rows = []
    for key, own_reference in point[base].items():
        for name in curves:
            if name == base or key not in point[name]:  # left out with a warning where it is undefined
                continue
            lower, upper = np.nan, np.nan
            if key in draws[name]:
                lower, upper = _interval(draws[name][key] - draws[base][key], confidence, key[0])
            rows.append(
                {
                    "metric": key[0],
                    "horizon": key[1],
                    "model": name,
                    "reference": base,
                    "value": float(point[name][key][0]),
                    "reference_value": float(own_reference[0]),
                    "difference": float(point[name][key][0] - own_reference[0]),
                    "lower": lower,
                    "upper": upper,
                }
            )
    return pd.DataFrame(rows)


def measure(y: Any, curves: Any, metrics: Iterable[Metric], censoring: Censoring = "marginal") -> dict[str, float]:
    """Return metrics without horizons, in the default convention, and nothing beside them.

    Parameters
    ----------
    y : outcome
        Outcome of n patients.
    curves : SurvivalCurves
        Their predicted curves.
    metrics : iterable of Metric
        The records of the metrics.
    censoring : {"marginal"} or FollowUp, default "marginal"
        See :func:`evaluate`.

    Returns
    -------
    dict of str to float
        The value of each metric by its name.
    """
    outcome, predicted, _ = counted(y, curves, None)
    setting = Setting(outcome, predicted, follow_up=resolve_follow_up(censoring, None, outcome, [predicted]))
    return {name: float(value[0]) for (name, _), value in PreparedMetrics(metrics, setting).once(None).items()}


class PreparedMetrics:
    """Some metrics of one model, prepared for any number of weightings of the test patients.

    Attributes
    ----------
    parts : dict of str to Prepared
        What was prepared, by the name of the metric.
    """

    def __init__(self, metrics: Iterable[Metric], setting: Setting) -> None:
        self.setting = setting
        self.metrics = {metric.name: metric for metric in metrics}
        self.parts: dict[str, Prepared] = {}
        for name, metric in self.metrics.items():
            with metric.blamed():
                self.parts[name] = metric.prepare(setting)
            if not isinstance(self.parts[name], Prepared):
                raise metric.failed(f"returned {type(self.parts[name]).__name__} where a Prepared is expected")

    def once(self, sample_weight: npt.ArrayLike | None) -> Values:
        """Return every metric under one weighting, given in the order of ``y``."""
        return self._values(Weighting(self.setting, self.setting.cohort.weights(sample_weight), resampled=False))

    def resampled(self, counts: FloatArray, names: Iterable[str] | None = None) -> Values:
        """Return metrics, all or some, for each resample, given counts in the order of ``y``, (B, n)."""
        return self._values(Weighting(self.setting, counts[:, self.setting.cohort.order], resampled=True), names)

    def drawn(self, n_bootstrap: int, random_state: int, names: Iterable[str] | None = None) -> Values:
        """Return metrics, all or some, for each of some bootstrap samples of the patients."""
        resamples = resample_counts(len(self.setting.y), n_bootstrap, random_state)
        return _joined([self.resampled(counts, names) for counts in resamples])

    def null(self, sample_weight: FloatArray | None, n_null: int, random_state: int) -> Values:
        """Return the metrics that have a null for each of some outcomes drawn from the curves."""
        metrics = [metric for metric in self.metrics.values() if metric.null]
        if not metrics or not n_null:
            return {}
        n_draws = number_of_draws(n_null, len(self.setting.y))
        outcomes = drawn_outcomes(self.setting, sample_weight, n_draws, random_state)
        return _joined(
            [PreparedMetrics(metrics, self.setting.redrawn(outcome)).once(sample_weight) for outcome in outcomes]
        )

    def _values(self, weighting: Weighting, names: Iterable[str] | None = None) -> Values:
        out: Values = {}
        for name in self.metrics if names is None else names:
            metric = self.metrics[name]
            with metric.blamed():
                values = self.parts[name].values(weighting)
            horizons = self.parts[name].horizons
            expected = (*((len(horizons),) if metric.per_horizon else ()), len(weighting.weight))
            if np.shape(values) != expected and (np.size(values) or np.size(horizons) or not metric.per_horizon):
                raise metric.failed(f"returned values of the shape {np.shape(values)} where {expected} is expected")
            if metric.per_horizon:
                out |= {(name, t): value for t, value in zip(horizons, values, strict=True)}
            else:
                out[name, np.nan] = values
        return out

    def share_counted(self, name: str, horizon: float) -> float:
        """Return the share of the patients who count for a metric; over several times, the mean."""
        metric = self.metrics[name]
        times = np.array([horizon]) if metric.per_horizon else self.parts[name].times
        if not metric.weighted or times is None:
            return 1.0
        return float(self.setting.censoring.share_counted(times).mean())


def _joined(chunks: list[Values]) -> Values:
    return {key: np.concatenate([chunk[key] for chunk in chunks]) for key in chunks[0]}


def _summaries(
    keys: list[Key], prepared: PreparedMetrics, n_bootstrap: int, confidence: float, random_state: int
) -> pd.DataFrame:
    # The paper prints mean and standard deviation of its DDC over resamples.
    paper = prepared.setting.paper
    names = [name for name, metric in prepared.metrics.items() if paper or not metric.null]
    draws = prepared.drawn(n_bootstrap, random_state, names)
    rows = []
    for key in keys:
        row = dict.fromkeys(("mean", "sd", "lower", "upper"), np.nan)
        if key in draws:
            value = draws[key][~np.isnan(draws[key])]
            if len(value):
                row |= {"mean": value.mean(), "sd": value.std()}
            if not prepared.metrics[key[0]].null:
                row["lower"], row["upper"] = _interval(draws[key], confidence, key[0])
        rows.append(row)
    return pd.DataFrame(rows)


def _interval(draws: FloatArray, confidence: float, metric: str) -> tuple[float, float]:
    """Return a percentile interval; no few events explain what is undefined in every resample."""
    if np.isnan(draws).all():
        warn(f"{metric} was undefined in all {len(draws)} resamples; its interval is left out.")
        return np.nan, np.nan
    return percentile_interval(draws, confidence, metric)


def _badness(values: Any, better: Better) -> Any:
    """Return values turned so that higher is worse."""
    if better in ("higher", "lower"):
        return -values if better == "higher" else values
    return np.abs(values - (better == "one"))


def _against_null(values: dict[Key, float], null: Values, metrics: Mapping[str, Metric]) -> pd.DataFrame:
    """Say for each value what a perfect model would score, and how often it would score no better than this one."""
    rows = []
    for key, value in values.items():
        row = dict.fromkeys(("floor", "null_95", "p_value"), np.nan)
        draws = null.get(key, np.empty(0))
        draws = draws[~np.isnan(draws)]
        if len(draws) and not np.isnan(value):
            better = metrics[key[0]].better
            worse = int((_badness(draws, better) >= _badness(value, better)).sum())
            row |= {
                "floor": draws.mean(),
                "null_95": np.quantile(draws, 0.95),
                "p_value": (1 + worse) / (len(draws) + 1),
            }
        rows.append(row)
    return pd.DataFrame(rows)
