"""All metrics of a model in one table, with bootstrap intervals, and paired comparisons of several models.

Resampling never repeats the sorting and pairing of patients: orders and pair indicators are prepared once, and a
resample is a vector of how often each patient was drawn.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.curves import as_curves
from dcsurv.follow_up import FollowUp
from dcsurv.grid import Convention
from dcsurv.metrics import auc as _auc
from dcsurv.metrics import brier as _brier
from dcsurv.metrics._cohort import Cohort, check_times, counted, paper_nodes
from dcsurv.metrics.calibration import (
    IntegratedCalibration,
    bin_contributions,
    d_calibration,
    ddc_floor,
    divergence,
    survival_at_own_time,
)
from dcsurv.metrics.censoring import Censoring, CensoringEstimate, CensoringModel, keep_usable, resolve_follow_up
from dcsurv.metrics.concordance import ConcordanceTd
from dcsurv.target import FloatArray

# Metrics that share one preparation; those with a horizon get one row per horizon.
OVERALL = ("C-td", "CDAUC", "IBS", "DDC")
AT_HORIZON = ("ICI", "O/E")
PAPER = ("C-td", "CDAUC", "DDC")
# Those that weigh patients by the inverse probability of being uncensored.
WEIGHTED = ("CDAUC", "IBS", "ICI", "O/E")
# Resamples are handled in chunks of about this many patient counts, so that memory stays small.
_CHUNK = 2_000_000

_CONVENTIONS = {
    "C-td": "Antolini; ties adjusted (pycox adj_antolini); S(z)",
    "CDAUC": "tie tolerance 1e-8; cases weighted by 1/G(z-); averaged over the Kaplan-Meier drop; S(t)",
    "IBS": "trapezoid from the 5th to the 95th percentile of test times; G(z-) and G(t)",
    "DDC": "ten bins [k/10, (k+1)/10); censored patients spread; natural logarithm; S(z)",
    "DDC floor": "mean DDC of 200 cohorts simulated from the curves",
    "D-calibration p": "Haider's chi-square, 9 degrees of freedom",
    "ICI": "IPCW logistic natural cubic spline of cloglog risk, four knots",
    "O/E": "Kaplan-Meier risk / mean predicted risk",
}
_PAPER_CONVENTIONS = {
    "C-td": "Antolini; ties adjusted (pycox adj_antolini); projected on training times, last node at or before z",
    "CDAUC": "tie tolerance 1e-3; cases weighted by 1/G(z), G from the test set; first node after t",
    "DDC": "ten bins [k/10, (k+1)/10); censored patients spread; natural logarithm; first node after z",
}

Values = dict[tuple[str, float], FloatArray]


def evaluate(
    y: Any,
    curves: Any,
    y_train: Any | None = None,
    n_bootstrap: int = 0,
    *,
    X: Any | None = None,
    censoring: Censoring = "auto",
    horizons: npt.ArrayLike | None = None,
    metrics: Sequence[str] | None = None,
    convention: Convention = "default",
    confidence: float = 0.95,
    sample_weight: npt.ArrayLike | None = None,
    random_state: int = 0,
) -> pd.DataFrame:
    """Return one tidy table of a model's metrics on a test cohort.

    Parameters
    ----------
    y, curves
        Outcome and predicted curves of the same patients.
    y_train
        Outcome of the training part: gives the censoring weights (default: ``y`` does) where these are the same for
        all, and in the ``paper`` convention the times that curves are projected on.
    X
        Features of the patients. Pass them: if they predict censoring, as a year of enrolment does, weights that are
        the same for all reward models that predict death where nobody can be followed.
    censoring
        ``"marginal"``: one censoring curve G for all. ``"by-features"``: G(t | x), estimated on these patients in
        groups of alike follow-up (:func:`dcsurv.study_follow_up`, whose result may be passed instead); patients count
        at times that at least 5 % of their group could reach. ``"auto"``: by features if ``X`` is there and predicts
        censoring; the column ``convention`` says so. The paper's convention always has one curve.
    n_bootstrap
        Number of resamples of the test patients behind ``mean``, ``sd``, ``lower`` and ``upper``; 0 leaves them out.
        Evaluation times stay those of the whole cohort; censoring weights are estimated anew in each resample.
    horizons
        Where to report ICI and observed / expected; default: the quartiles of the event times.
    metrics
        Which to compute; default: all of ``C-td, CDAUC, IBS, DDC, ICI, O/E``; in the paper convention
        ``C-td, CDAUC, DDC``. DDC brings its floor and the D-calibration test along.
    confidence
        Share of the resamples inside the percentile interval.

    Returns
    -------
    Columns ``metric, horizon, value``, with resampling ``mean, sd, lower, upper``, then ``counted``, the share of the
    patients who count (a mean over the times of CDAUC and IBS), and ``convention``.
    """
    if n_bootstrap != 0 and (not isinstance(n_bootstrap, numbers.Integral) or n_bootstrap < 2):
        raise ValueError(
            f"n_bootstrap is {n_bootstrap!r}, but 0 or a whole number of at least 2 resamples is expected."
        )
    follow_up = resolve_follow_up(censoring if convention == "default" else "marginal", X, y, sample_weight)
    y, curves, counts = counted(y, curves, sample_weight)
    prepared = _Evaluation(y, curves, y_train, horizons, metrics, convention, follow_up)
    point = prepared.once(counts)
    table = pd.DataFrame(
        [{"metric": metric, "horizon": horizon, "value": float(value[0])} for (metric, horizon), value in point.items()]
    )
    if n_bootstrap:
        if sample_weight is not None:
            raise ValueError(
                "sample_weight and n_bootstrap cannot be combined: resampling draws patients with equal probability. "
                "Leave one of them out."
            )
        draws = _resampled(prepared, n_bootstrap, random_state)
        table = table.join(_summaries(table, draws, confidence))
    if "DDC" in prepared.names:
        table = _with_ddc_company(table, y, curves, counts, convention, y_train)
    texts = _CONVENTIONS if convention == "default" else _PAPER_CONVENTIONS
    by = "" if follow_up is None else f"; G given the features ({_deciding(follow_up)})"
    table["counted"] = [prepared.share_counted(*row) for row in zip(table["metric"], table["horizon"], strict=True)]
    table["convention"] = [
        texts.get(metric, _CONVENTIONS[metric]) + (by if metric in WEIGHTED else "") for metric in table["metric"]
    ]
    return table


def _deciding(follow_up: FollowUp) -> str:
    names = [one.feature for one in follow_up.features[:1]]
    return f"{', '.join(names)} and others; " * bool(names) + f"concordance with censoring {follow_up.concordance:.2f}"


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
    metrics: Sequence[str] | None = None,
    convention: Convention = "default",
    confidence: float = 0.95,
    random_state: int = 0,
) -> pd.DataFrame:
    """Return paired differences between models on the same resamples of the same patients.

    Parameters
    ----------
    curves
        Predicted curves by model name.
    X, censoring
        See :func:`evaluate`.
    reference
        The model that the others are compared with; default: the first.

    Returns
    -------
    Columns ``metric, horizon, model, reference, value, reference_value, difference, lower, upper``. An interval
    that excludes 0 tells the two models apart on this cohort.
    """
    if len(curves) < 2:
        raise ValueError(f"compare needs the curves of at least two models by name; got {list(curves)}.")
    if n_bootstrap < 2:
        raise ValueError(f"n_bootstrap is {n_bootstrap}, but an interval needs at least 2 resamples.")
    base = next(iter(curves)) if reference is None else reference
    if base not in curves:
        raise ValueError(f"reference is {base!r}, which is none of {list(curves)}.")
    point: dict[str, Values] = {}
    draws: dict[str, Values] = {}
    follow_up = resolve_follow_up(censoring if convention == "default" else "marginal", X, y)
    for name, predicted in curves.items():
        prepared = _Evaluation(y, predicted, y_train, horizons, metrics, convention, follow_up)
        point[name] = prepared.once(None)
        draws[name] = _resampled(prepared, n_bootstrap, random_state)  # the same seed: the same patients
    rows = []
    for key, own_reference in point[base].items():
        for name in curves:
            if name == base:
                continue
            gap = draws[name][key] - draws[base][key]
            lower, upper = _interval(gap, confidence, key[0])
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


def default_horizons(y: Any) -> FloatArray:
    """Return the quartiles of the event times after 0."""
    cohort = Cohort(y)
    events = cohort.time[cohort.event & (cohort.time > 0)]
    if len(events) == 0:
        raise ValueError("every event is at time 0, so there is no horizon to look at. Check the time column.")
    return np.unique(np.quantile(events, [0.25, 0.5, 0.75]))


class _Evaluation:
    """The chosen metrics of one model, prepared for any number of weightings of the test patients."""

    def __init__(
        self,
        y: Any,
        curves: Any,
        y_train: Any | None,
        horizons: npt.ArrayLike | None,
        metrics: Sequence[str] | None,
        convention: Convention,
        follow_up: FollowUp | None = None,
    ) -> None:
        nodes = paper_nodes(convention, y_train)
        paper = nodes is not None
        possible = PAPER if paper else OVERALL + AT_HORIZON
        if isinstance(metrics, str):
            raise ValueError(f"metrics is the text {metrics!r}; pass a list, such as [{metrics!r}].")
        self.names = tuple(possible if metrics is None else metrics)
        if not self.names:
            raise ValueError(f"metrics is empty; choose from {list(possible)}.")
        unknown = [name for name in self.names if name not in possible]
        if unknown:
            raise ValueError(f"metrics holds {unknown}, but in the {convention} convention there are {list(possible)}.")
        cohort = self.cohort = Cohort(y)
        model = CensoringModel(cohort, None if paper else y_train, "at" if paper else "before", follow_up)
        self.censoring = model
        predicted = as_curves(curves, len(cohort))
        self.parts: list[Callable[[FloatArray, CensoringEstimate, bool], Values]] = []
        if "C-td" in self.names:
            self.concordance = ConcordanceTd(cohort, predicted, nodes=nodes)
            self.parts.append(self._concordance)
        if "CDAUC" in self.names:
            times = keep_usable(_auc.default_times(cohort), model, what="AUC")
            tolerance = _auc.PAPER_TOLERANCE if paper else _auc.DEFAULT_TOLERANCE
            self.auc = _auc.CumulativeDynamicAuc(predicted, times, model, tied_tol=tolerance, nodes=nodes)
            self.parts.append(self._cdauc)
        if "IBS" in self.names:
            times = keep_usable(_brier.default_times(cohort), model, what="Brier score", needs_cases=False)
            self.brier = _brier.Brier(predicted, times, model)
            self.parts.append(self._brier_score)
        if "DDC" in self.names:
            own, event = survival_at_own_time(y, curves, convention, y_train)
            self.bins = bin_contributions(own, event)[cohort.order]
            self.parts.append(self._ddc)
        if set(AT_HORIZON) & set(self.names):
            asked = default_horizons(y) if horizons is None else check_times(horizons, "horizons")
            asked = keep_usable(asked, model, what="calibration at a horizon")
            self.horizons = [IntegratedCalibration(predicted, float(t), model) for t in asked]
            for part in self.horizons:
                if "O/E" in self.names and not part.risk.any():
                    warnings.warn(
                        f"O/E at {part.horizon:g} is left out: every predicted risk there is 0.",
                        UserWarning,
                        stacklevel=4,
                    )
            self.parts.append(self._at_horizons)

    def once(self, sample_weight: npt.ArrayLike | None) -> Values:
        return self._values(self.cohort.weights(sample_weight), resampled=False)

    def resampled(self, counts: FloatArray) -> Values:
        """Return every metric for each resample, given counts in the order of ``y``, (B, n)."""
        return self._values(counts[:, self.cohort.order], resampled=True)

    def _values(self, weight: FloatArray, *, resampled: bool) -> Values:
        estimate = self.censoring.estimate(weight)
        out: Values = {}
        for part in self.parts:
            out.update(part(weight, estimate, resampled))
        return out

    def share_counted(self, metric: str, horizon: float) -> float:
        """Return the share of the patients who count for a metric; over several times, the mean."""
        if metric == "CDAUC":
            return float(self.censoring.share_counted(self.auc.times).mean())
        if metric == "IBS":
            return float(self.censoring.share_counted(self.brier.times).mean())
        return float(self.censoring.share_counted(np.array([horizon]))[0]) if metric in AT_HORIZON else 1.0

    def _concordance(self, weight: FloatArray, estimate: CensoringEstimate, resampled: bool) -> Values:
        value = self.concordance.resampled(weight) if resampled else np.array([self.concordance.once(weight[0])])
        return {("C-td", np.nan): value}

    def _cdauc(self, weight: FloatArray, estimate: CensoringEstimate, resampled: bool) -> Values:
        return {("CDAUC", np.nan): self.auc.mean(weight, self.auc.over_time(weight, estimate))}

    def _brier_score(self, weight: FloatArray, estimate: CensoringEstimate, resampled: bool) -> Values:
        return {("IBS", np.nan): self.brier.integrated(self.brier.over_time(weight, estimate))}

    def _ddc(self, weight: FloatArray, estimate: CensoringEstimate, resampled: bool) -> Values:
        return {("DDC", np.nan): divergence(weight @ self.bins / weight.sum(axis=1, keepdims=True))}

    def _at_horizons(self, weight: FloatArray, estimate: CensoringEstimate, resampled: bool) -> Values:
        out: Values = {}
        if "ICI" in self.names:
            out |= {("ICI", part.horizon): part.ici(weight, estimate) for part in self.horizons}
        if "O/E" in self.names:
            for part in self.horizons:
                if not part.risk.any():
                    continue
                observed, expected = part.shares(weight, estimate)
                ratio = np.divide(observed, expected, out=np.full(len(weight), np.nan), where=expected > 0)
                out[("O/E", part.horizon)] = ratio
        return out


def resample_counts(n: int, n_bootstrap: int, random_state: int) -> Iterator[FloatArray]:
    """Yield chunks of resamples as counts of how often each of n patients was drawn, (B, n)."""
    rng = np.random.default_rng(random_state)
    chunk = max(1, _CHUNK // n)
    for start in range(0, n_bootstrap, chunk):
        size = min(chunk, n_bootstrap - start)
        drawn = rng.integers(0, n, (size, n)) + np.arange(size)[:, None] * n
        yield np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


def _resampled(prepared: _Evaluation, n_bootstrap: int, random_state: int) -> Values:
    chunks = [prepared.resampled(c) for c in resample_counts(len(prepared.cohort), n_bootstrap, random_state)]
    return {key: np.concatenate([chunk[key] for chunk in chunks]) for key in chunks[0]}


def _summaries(table: pd.DataFrame, draws: Values, confidence: float) -> pd.DataFrame:
    rows = []
    for key in draws:
        value = draws[key][~np.isnan(draws[key])]
        lower, upper = _interval(draws[key], confidence, key[0])
        mean, sd = (value.mean(), value.std()) if len(value) else (np.nan, np.nan)
        rows.append({"mean": mean, "sd": sd, "lower": lower, "upper": upper})
    return pd.DataFrame(rows, index=table.index)


def _interval(value: FloatArray, confidence: float, metric: str) -> tuple[float, float]:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}, but a share between 0 and 1 is expected, such as 0.95.")
    known = value[~np.isnan(value)]
    if len(known) < len(value):
        warnings.warn(
            f"{metric} was undefined in {len(value) - len(known)} of {len(value)} resamples (too few events drawn); "
            f"its interval {'rests on the others' if len(known) else 'is left out'}.",
            UserWarning,
            stacklevel=4,
        )
    if len(known) == 0:
        return np.nan, np.nan
    lower, upper = np.quantile(known, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(lower), float(upper)


def _with_ddc_company(
    table: pd.DataFrame, y: Any, curves: Any, sample_weight: Any, convention: Convention, y_train: Any | None
) -> pd.DataFrame:
    """Put the floor of a perfect model and the D-calibration test right below DDC."""
    test = d_calibration(y, curves, sample_weight=sample_weight, convention=convention, y_train=y_train)
    company = pd.DataFrame(
        [
            {"metric": "DDC floor", "horizon": np.nan, "value": ddc_floor(y, curves)},
            {"metric": "D-calibration p", "horizon": np.nan, "value": test.p_value},
        ]
    ).reindex(columns=table.columns)
    company = company.astype(table.dtypes)
    at = int(np.flatnonzero(table["metric"] == "DDC")[0]) + 1
    return pd.concat([table.iloc[:at], company, table.iloc[at:]], ignore_index=True)
