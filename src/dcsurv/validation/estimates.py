"""How good a model is on new patients: out-of-fold predictions, and the apparent numbers without their optimism."""

from __future__ import annotations

import warnings
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pandas as pd

from dcsurv.curves import SurvivalCurves
from dcsurv.experiments.store import Row
from dcsurv.metrics import Metric, evaluate
from dcsurv.metrics.evaluation import PreparedMetrics, Values
from dcsurv.metrics.null import N_NULL
from dcsurv.metrics.resampling import resample_counts
from dcsurv.target import FloatArray, IntArray
from dcsurv.validation.refits import MetricKey, Patients, from_records, metric_key

# Share of the patients that a bootstrap sample holds, 1 - 1/e.
_HELD: Final = 0.632
# Of a metric's distance to what guessing gives, what is no more than noise.
_NOISE: Final = 1e-9


@dataclass(frozen=True)
class Pooled:
    """Out-of-fold curves of all patients, once for each repeat of the cross-validation.

    Errors and calibration are those of the curves of all patients together: a mean over folds would keep the upward
    bias that ICI and DDC have in small groups. Discrimination is a mean over the folds, of pairs of patients who were
    predicted by the same model: a fold with many early events leaves few of them to the model that predicts it, so that
    between folds the order is wrong more often than between new patients.

    Attributes
    ----------
    curves
        Those of each repeat, in the order of the patients.
    folds
        The rows of each fold of each repeat.
    """

    patients: Patients
    curves: Sequence[SurvivalCurves]
    folds: Sequence[Sequence[IntArray]]

    @cached_property
    def tables(self) -> list[pd.DataFrame]:
        """The metrics of each repeat, with what a perfect model would score."""
        return self._measured(N_NULL)

    def _measured(self, n_null: int) -> list[pd.DataFrame]:
        patients = self.patients
        names = [metric.name for metric in patients.metrics]
        out = []
        for curves, parts in zip(self.curves, self._parts, strict=True):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # said once, when the horizons are chosen
                table = evaluate(
                    patients.y,
                    curves,
                    censoring="marginal" if patients.follow_up is None else patients.follow_up,
                    horizons=patients.horizons,
                    metrics=patients.metrics,
                    n_null=n_null,
                )
            table = table[table["metric"].isin(names)].reset_index(drop=True)
            within = _over([part.once(None) for _, part in parts], self._within)
            keys = [metric_key(*key) for key in zip(table["metric"], table["horizon"], strict=True)]
            table["value"] = [
                float(within[key][0]) if key in within else value
                for key, value in zip(keys, table["value"], strict=True)
            ]
            out.append(table)
        return out

    @cached_property
    def values(self) -> dict[MetricKey, FloatArray]:
        """Each metric of each repeat, (R,)."""
        found: dict[MetricKey, list[float]] = {}
        tables = self._measured(0)
        for table in tables:
            for name, t, value in zip(table["metric"], table["horizon"], table["value"], strict=True):
                found.setdefault(metric_key(name, t), []).append(value)
        return {key: np.array(values) for key, values in found.items() if len(values) == len(tables)}

    def drawn(self, n_bootstrap: int, random_state: int) -> dict[MetricKey, FloatArray]:
        """Return each metric, averaged over the repeats, in bootstrap samples of the patients, (B,)."""
        draws = []
        # What has a null has no interval, and takes longest.
        names = [one.name for one in self.patients.metrics if not one.null and one.name not in self._within]
        for curves, parts in zip(self.curves, self._parts, strict=True):
            together = self.patients.measured(curves)
            chunks = []
            for counts in resample_counts(len(self.patients.y), n_bootstrap, random_state):
                within = _over([part.resampled(counts[:, rows]) for rows, part in parts], self._within)
                pooled = {metric_key(*key): values for key, values in together.resampled(counts, names).items()}
                chunks.append({**pooled, **within})
            draws.append({key: np.concatenate([chunk[key] for chunk in chunks]) for key in chunks[0]})
        common = [key for key in draws[0] if all(key in one for one in draws)]
        return {key: np.mean([one[key] for one in draws], axis=0) for key in common}

    def by_fold(self) -> dict[MetricKey, FloatArray]:
        """Return discrimination and error in every fold of every repeat, (R K,)."""
        every = [part.once(None) for parts in self._parts for _, part in parts]
        keys = [key for key in every[0] if all(key in one for one in every)]
        return {metric_key(*key): np.array([one[key][0] for one in every]) for key in keys}

    @cached_property
    def _within(self) -> set[str]:
        """The metrics that compare patients with each other."""
        return {metric.name for metric in self.patients.metrics if metric.aspect == "discrimination"}

    @cached_property
    def _parts(self) -> list[list[tuple[IntArray, PreparedMetrics]]]:
        """The metrics of discrimination and error, prepared in every fold, by repeat."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a horizon that a fold does not reach
            return [
                [(rows, self.patients.part(rows).measured(curves[rows])) for rows in folds]
                for curves, folds in zip(self.curves, self.folds, strict=True)
            ]


def _over(parts: Sequence[Values], names: Container[str]) -> dict[MetricKey, FloatArray]:
    """Return the mean of some metrics over the folds in which they are defined, if they are prepared in every fold."""
    keys = [key for key in parts[0] if key[0] in names and all(key in one for one in parts)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a mean of nothing is NaN
        return {metric_key(*key): np.nanmean([one[key] for one in parts], axis=0) for key in keys}


def optimism(whole: Row, resamples: Sequence[Row], metrics: Sequence[Metric]) -> pd.DataFrame:
    """Return what the bootstrap says about the optimism of each metric.

    Parameters
    ----------
    whole
        The row of the fit to all patients.
    resamples
        The rows of the fits to bootstrap samples.
    metrics
        The records of the metrics.

    Returns
    -------
    DataFrame
        ``metric, horizon, apparent``; means over the resamples of the metric on the patients of the resample
        (``training``), on all patients (``original``) and on those who were not drawn (``out_of_bag``); Harrell's
        ``optimism`` and the value without it, ``harrell``; ``no_information``, the metric if predictions belong to
        other patients; ``corrected``, the .632+ estimate of discrimination and error, Harrell's of calibration; and
        ``monte_carlo``, the standard error of ``corrected`` from the number of resamples.

    Notes
    -----
    Trees and ensembles nearly know the patients that they were fitted to. Harrell's optimism compares a resample with
    all patients, of whom two thirds are in it, and so sees too little of that; .632+ looks at those who were not drawn.
    These are a third of the cohort, where distances such as ICI are larger by chance alone: hence Harrell's there.
    """
    aspects = {metric.name: metric.aspect for metric in metrics}
    apparent, nothing = from_records(whole["apparent"]), from_records(whole["no_information"])
    drawn = {name: [from_records(row[name]) for row in resamples] for name in ("training", "original", "out_of_bag")}
    rows = []
    for key, own in apparent.items():
        found = {name: np.array([one.get(key, np.nan) for one in values]) for name, values in drawn.items()}
        means = {name: _mean(values) for name, values in found.items()}
        gaps = found["training"] - found["original"]
        guess = nothing.get(key, np.nan)
        if aspects[key[0]] == "calibration":
            corrected, error = own - _mean(gaps), _standard_error(gaps)
        else:
            corrected, weight = _plus(own, means["out_of_bag"], guess)
            error = weight * _standard_error(found["out_of_bag"])
        rows.append(
            {"metric": key[0], "horizon": np.nan if key[1] is None else key[1], "apparent": own, **means,
             "optimism": _mean(gaps), "harrell": own - _mean(gaps), "no_information": guess, "corrected": corrected,
             "monte_carlo": error}
        )  # fmt: skip
    return pd.DataFrame(rows)


def _plus(apparent: float, out_of_bag: float, no_information: float) -> tuple[float, float]:
    """Return the .632+ estimate of Efron and Tibshirani, and the weight of the patients who were not drawn.

    The weight grows from .632 to 1 with the relative overfitting: where the value of patients who were not drawn lies
    between the apparent one, 0, and that of guessing, 1.
    """
    way, gone = no_information - apparent, out_of_bag - apparent
    overfitting = np.clip(gone / way, 0.0, 1.0) if abs(way) > _NOISE else 0.0
    weight = float(_HELD / (1 - (1 - _HELD) * overfitting))
    return (1 - weight) * apparent + weight * out_of_bag, weight


def _mean(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else np.nan


def _standard_error(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else np.nan


def by_key(table: pd.DataFrame, column: str) -> Mapping[MetricKey, float]:
    """Return a column of a table of metrics by metric and horizon."""
    keys = (metric_key(name, t) for name, t in zip(table["metric"], table["horizon"], strict=True))
    return dict(zip(keys, table[column], strict=True))
