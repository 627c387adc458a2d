"""Whether a table has the patients that a model of its columns needs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dcsurv.cohort.cohort import Cohort
from dcsurv.cohort.findings import Finding
from dcsurv.cohort.horizons import choose_horizons
from dcsurv.durations import Horizon, describe_time
from dcsurv.messages import Message, ModelChoice, plural
from dcsurv.nonparametric import last_usable_time
from dcsurv.planning import SampleSize, sample_size
from dcsurv.target import FloatArray, IntArray, Outcome

# With fewer events per parameter a Cox model explains chance, and the share that is usually assumed tells more.
_EVENTS_PER_PARAMETER = 2
# Patients that the Cox model looks at; what a patient adds to R² does not depend on how many there are.
_MOST_ROWS = 20_000
_RIDGE = 1e-6
# A likelihood ratio that chance exceeds more often says nothing about how much can be explained.
_CHANCE = 0.05
_MOST_EXPLAINED = 0.95


def enough_patients(cohort: Cohort, horizons: Sequence[Horizon] = ()) -> Iterator[Finding]:
    """Compare the patients of a cohort with those that Riley's criteria ask for."""
    if len(cohort) < 2 or not cohort.events or (cohort.time < 0).any():
        return
    last = last_usable_time(cohort.time, cohort.event)
    usable = [horizon for horizon in horizons if horizon.time <= last]  # of a later risk the rate tells nothing
    chosen = usable or choose_horizons(cohort.y, cohort.unit, last)
    found = size_for(cohort.features, cohort.y, [horizon.time for horizon in chosen])
    if found is not None:
        yield _finding(len(cohort), cohort.events, found, cohort.unit)


@dataclass(frozen=True)
class SizeForTable:
    """How many patients a model of a table needs, and whether what it explains was measured there or assumed."""

    needed: SampleSize
    measured: bool

    def describe(self, patients: int, events: int, unit: str | None) -> str:
        """Say whether there are enough, and what the criteria ask for."""
        needed = self.needed
        share = f"{needed.r2 / needed.r2_max:.0%} of what can be explained"
        return (
            f"{plural(patients, 'patient')} with {plural(events, 'event')} are "
            f"{'enough' if patients >= needed.patients else 'few'} for "
            f"{plural(needed.parameters, 'candidate parameter')} (the columns as a model takes them). Riley's criteria "
            f"ask for {plural(needed.patients, 'patient')} with {plural(needed.events, 'event')}: "
            f"{needed.for_shrinkage:,} patients to overestimate effects by at most a tenth, {needed.for_optimism:,} to "
            f"overstate R² by at most 0.05, {needed.for_risk:,} to know the overall risk at "
            f"{describe_time(needed.time, unit)} to 0.05, if the model explains {share}, "
            + (
                "as a Cox model of this table does once chance is taken off."
                if self.measured
                else "the usual assumption: this table does not show that it explains anything."
            )
        )


def size_for(features: pd.DataFrame, y: Outcome, times: Sequence[float]) -> SizeForTable | None:
    """Return what Riley's criteria ask for at the time that asks for most; None where nothing can be said."""
    times = [time for time in times if time > 0]
    if not times or features.shape[1] == 0 or not y["event"].any() or not (y["time"] > 0).any():
        return None
    rows = np.sort(np.random.default_rng(0).permutation(len(y))[:_MOST_ROWS])
    try:
        parameters, X = _encoded(features, rows)
    except ValueError:
        return None  # columns that a model refuses as well: fitting says which
    events = int(y["event"].sum())
    explained = _adjusted_r2(X, y[rows]) if events >= _EVENTS_PER_PARAMETER * parameters else None
    sizes = [_needed(parameters, y, time, explained) for time in times]
    return SizeForTable(max(sizes, key=lambda size: (size.patients, size.for_risk)), explained is not None)


def _encoded(features: pd.DataFrame, rows: IntArray) -> tuple[int, FloatArray]:
    """Return how many columns a model sees, and those of some patients."""
    from dcsurv.preprocessing import Preprocessor  # brings scikit-learn, which no help text needs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        preprocessor = Preprocessor(least_patients=1).fit(features)  # nothing of it is kept
        X = preprocessor.transform(features.iloc[rows]).astype(np.float64)
    return X.shape[1], X


def _needed(parameters: int, y: Outcome, time: float, r2: float | None) -> SampleSize:
    person_time, share = float(y["time"].sum()), float(y["event"].mean())
    if r2 is not None:  # a column that knows the outcome explains more than there is
        r2 = min(r2, _MOST_EXPLAINED * -float(np.expm1(2 * (share * np.log(share) - share))))
    mean = person_time / len(y)
    return sample_size(parameters, rate=share / mean, mean_follow_up=mean, time=time, r2=r2)


def _adjusted_r2(X: FloatArray, y: Outcome) -> float | None:
    """Return what a Cox model explains of some patients (Cox and Snell's adjusted R²); None if chance does as well."""
    from scipy.stats import chi2

    from dcsurv.models.partial_likelihood import PartialLikelihood
    from dcsurv.models.penalised import Penalties, fit_penalised

    n = len(y)
    varying = X[:, np.ptp(X, axis=0) > 0]
    p = varying.shape[1]
    if p == 0 or not y["event"].any():
        return None
    time = np.ascontiguousarray(y["time"])
    likelihood = PartialLikelihood(varying - varying.mean(axis=0), time, y["event"], np.ones(n))
    nothing = likelihood.evaluate(np.zeros(p), np.zeros(n)).value
    fixed = np.array([_RIDGE * n])
    fitted = fit_penalised(likelihood, np.zeros(p, dtype=np.int64), Penalties(fixed, fixed, fixed)).log_likelihood
    ratio = 2 * (fitted - nothing)
    # Van Houwelingen and le Cessie: of the likelihood ratio, p is what chance gives p parameters.
    return float((1 - p / ratio) * -np.expm1(-ratio / n)) if chi2.sf(ratio, p) < _CHANCE else None


def _finding(n: int, events: int, found: SizeForTable, unit: str | None) -> Finding:
    needed = found.needed
    message = found.describe(n, events, unit)
    shrinkage, most = needed.expected_shrinkage(n), needed.most_parameters(n)
    numbers = {
        "patients": n, "events": events, "patients_needed": needed.patients, "events_needed": needed.events,
        "for_shrinkage": needed.for_shrinkage, "for_optimism": needed.for_optimism, "for_risk": needed.for_risk,
        "parameters": needed.parameters, "most_parameters": most, "expected_shrinkage": shrinkage, "r2": needed.r2,
        "r2_max": needed.r2_max, "horizon": needed.time,
    }  # fmt: skip
    if n >= needed.patients:
        remedy: str = "That is the least for a regression model; networks and trees need more."
        return Finding("note", "sample-size", message, remedy, numbers=numbers)
    fewer = Message(
        "Keep at most {most} of them, chosen without looking at the outcome ({drop}), or use", most=f"{most:,}"
    )
    remedy = Message(
        "Effects of a model without a penalty come out {excess} too large. {fewer} a model that holds its effects back "
        "by itself, such as {model} or the default, and believe what was measured on patients that it has not seen.",
        excess=f"{1 / shrinkage - 1:.0%}",
        fewer=fewer if most else "Use",
        model=ModelChoice("SplineCox"),
    )
    return Finding("warning", "sample-size", message, remedy, "drop", numbers=numbers)
