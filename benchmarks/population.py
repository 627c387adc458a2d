"""What is known about simulated cohorts: designs, models made from the truth, and every metric in an endless cohort.

Metrics of an endless cohort are computed from true and predicted survival, without drawing a single outcome: a patient
counts with probability 1 - S as one who has had the event by a time, and with probability S as one who has not.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import root

from dcsurv import SurvivalCurves, make_outcome
from dcsurv.datasets import simulate
from dcsurv.metrics import auc as auc_room
from dcsurv.metrics import brier as brier_room
from dcsurv.metrics import concordance_index_harrell, concordance_index_td, ddc
from dcsurv.metrics.inputs import SortedCohort

FloatArray = npt.NDArray[np.float64]
HORIZONS = {"early": 0.25, "median": 0.5, "late": 0.75}
REFERENCE_PATIENTS = 10_000
# Cohorts of that size over which metrics that need outcomes are averaged.
_COHORTS = 10
# The truth, and what is done to it: hazards of all too high; differences between patients too small; a feature without
# an effect believed to have one; curves of other patients.
TRUTH, HIGH, NARROW, MISLED, NOISE = "truth", "hazards x 1.35", "too narrow", "misled", "noise"
TOO_HIGH, NARROWED, BELIEVED = 1.35, 0.6, 0.5
# Share of the patients, neighbours in predicted risk, over whom the truth is averaged where predictions do not keep its
# order.
_NEIGHBOURS = 0.05


class Cell(NamedTuple):
    """A design: kind of hazards, patients, kind of censoring, its dependence on the risk, share of the censored."""

    hazards: str
    n: int
    design: str
    strength: float
    censored: float

    def __str__(self) -> str:
        follows = f" x {self.strength:g}" if self.design == "risk" else ""
        return f"{self.hazards} | {self.n:,} | {self.design}{follows} | {self.censored:.0%}"


class Population:
    """An endless cohort of a design: horizons, what the models are, and what each metric is."""

    def __init__(self, hazards: str, design: str, strength: float, censored: float) -> None:
        self.cell = Cell(hazards, REFERENCE_PATIENTS, design, strength, censored)
        self.cohort = draw(self.cell, "population")
        self._survival: dict[tuple[str, float], FloatArray] = {}
        self._targets: dict[tuple[str, str, str], float] = {}
        y = self.cohort.y
        times = np.quantile(y["time"][y["event"]], list(HORIZONS.values()))
        self.horizons = dict(zip(HORIZONS, (float(f"{t:.3g}") for t in times), strict=True))
        self.middle = log_hazard(self.cohort.truth.values).mean(axis=0)

    def thresholds(self, when: str) -> list[float]:
        """Return a low, a middle and a high threshold for decisions at a horizon, in whole percents."""
        risk = 1 - self.survival(TRUTH, self.horizons[when])
        return np.unique(np.round(np.quantile(risk, [0.25, 0.5, 0.75]), 2)).tolist()

    def curves(self, model: str, cohort: Any, seed: int = 0) -> SurvivalCurves:
        """Return what a model says about patients whose truth is known."""
        times, values = cohort.truth.times, cohort.truth.values
        if model == HIGH:
            values = values**TOO_HIGH
        elif model == NARROW:
            narrowed = self.middle + NARROWED * (log_hazard(values) - self.middle)
            values = np.minimum.accumulate(np.exp(-np.exp(narrowed)), axis=1)
        elif model == MISLED:
            values = values ** np.exp(BELIEVED * cohort.X["bmi"].to_numpy() - BELIEVED**2 / 2)[:, None]
        elif model == NOISE:
            values = values[np.random.default_rng([seed, 1]).permutation(len(values))]
        return SurvivalCurves(times, values)

    def target(self, model: str, what: str, at: str = "") -> float:
        """Return a metric of a model in the endless cohort; ``at``: which horizon, and after a comma which threshold.

        C-td, DDC and Harrell's C are by definition those of patients who are censored as in this design.
        """
        if (model, what, at) not in self._targets:
            self._targets[model, what, at] = self._at(model, what, at) if at else self._overall(model, what)
        return self._targets[model, what, at]

    def _overall(self, model: str, what: str) -> float:
        y, curves = self.cohort.y, self.curves(model, self.cohort)
        if what in ("CDAUC", "IBS"):
            times = (auc_room if what == "CDAUC" else brier_room).default_times(SortedCohort(y))
            average = mean_auc if what == "CDAUC" else integrated_brier
            return average(times, self.cohort.truth.evaluate(times), curves.evaluate(times))
        if what == "Uno’s C":
            return concordance_index_harrell(self._followed_to(self.horizons["late"]), -curves.rmst())
        if model in (HIGH, NARROW) and what != "DDC":
            return self.target(TRUTH, what)  # patients are in the same order at every time
        found = [self._with_outcomes(model, k) for k in range(_COHORTS)]
        for name in found[0]:
            mean = float(np.mean([one[name] for one in found]))
            self._targets[model, name, ""] = 0.0 if (model, name) == (TRUTH, "DDC") else mean
        return self._targets[model, what, ""]

    def _with_outcomes(self, model: str, k: int) -> dict[str, float]:
        """Return what needs outcomes, on one of some large cohorts."""
        cohort = draw(self.cell, f"population {k}")
        curves = self.curves(model, cohort)
        return {
            "C-td": concordance_index_td(cohort.y, curves),
            "Harrell’s C": concordance_index_harrell(cohort.y, -curves.rmst()),
            "DDC": ddc(cohort.y, curves),
        }

    def _at(self, model: str, what: str, at: str) -> float:
        when, _, threshold = at.partition(", ")
        true, predicted = (self.survival(name, self.horizons[when]) for name in (TRUTH, model))
        if model == NOISE:
            predicted, true = true, np.full(len(true), true.mean())  # whatever is predicted, the risk is that of all
        if what in ("ICI", "E50", "E90"):
            return gaps(true, predicted, ordered=model != MISLED)[what]
        if what in ("Calibration intercept", "Calibration slope"):
            return recalibration(true, predicted)[what == "Calibration slope"]
        if what.startswith("net benefit"):
            benefit = net_benefit(true, predicted, float(threshold))
            everybody = net_benefit(true, np.zeros_like(true), float(threshold))
            return {"net benefit": benefit, "net benefit - treat all": benefit - everybody}[what]
        simple: dict[str, Callable[..., float]] = {"Brier": brier, "AUC": auc, "O/E": ratio}
        return simple[what](true, predicted)

    def _followed_to(self, last: float) -> Any:
        """Return the outcome of the same patients if all had been followed to a time."""
        seed, hazards = seed_of(self.cell, "population"), self.cell.hazards
        whole = simulate("administrative", self.cell.n, hazards=hazards, censored=0.01, random_state=seed)  # type: ignore[arg-type]
        return make_outcome(np.minimum(whole.y["time"], last), whole.y["event"] & (whole.y["time"] <= last))

    def survival(self, model: str, t: float) -> FloatArray:
        """Return S at one time as a model says it."""
        if (model, t) not in self._survival:
            self._survival[model, t] = self.curves(model, self.cohort).evaluate(np.array([t]))[:, 0]
        return self._survival[model, t]


@lru_cache(maxsize=12)
def endless(hazards: str, design: str, strength: float, censored: float) -> Population:
    """Return the population of a design; the last ones are kept."""
    return Population(hazards, design, strength, censored)


def population_of(cell: Cell) -> Population:
    """Return the population that a cell draws from."""
    return endless(cell.hazards, cell.design, cell.strength, cell.censored)


def log_hazard(survival: Any) -> Any:
    """Return the logarithm of the cumulative hazard, kept finite."""
    return np.log(-np.log(np.clip(survival, 1e-12, 1 - 1e-9)))


def draw(cell: Cell, what: Any) -> Any:
    """Draw a cohort of a design; what it is for decides the seed, the same for all models and parts."""
    seed = seed_of(cell, what)
    more = {"hazards": cell.hazards, "censored": cell.censored, "strength": cell.strength}
    return simulate(cell.design, cell.n, **more, random_state=seed)  # type: ignore[arg-type]


def seed_of(cell: Cell, what: Any) -> int:
    return zlib.crc32(f"{cell} {what}".encode())


def brier(true: FloatArray, predicted: FloatArray) -> float:
    """Return the expected squared error."""
    return float(np.mean(true * (1 - predicted) ** 2 + (1 - true) * predicted**2))


def auc(true: FloatArray, predicted: FloatArray) -> float:
    """Return the probability that one with the event has the lower prediction than one without; ties count half."""
    values, place = np.unique(predicted, return_inverse=True)
    case, control = (np.bincount(place, part, len(values)) for part in (1 - true, true))
    above = control.sum() - np.cumsum(control)
    pairs = case.sum() * control.sum()
    return float((case * (above + control / 2)).sum() / pairs)


def ratio(true: FloatArray, predicted: FloatArray) -> float:
    """Return observed / expected events."""
    return float((1 - true).mean() / (1 - predicted).mean())


def observed(true: FloatArray, predicted: FloatArray, *, ordered: bool) -> FloatArray:
    """Return the risk of patients with such a prediction: their own where predictions keep the true order."""
    if ordered:
        return 1 - true
    order, width = np.argsort(predicted), int(_NEIGHBOURS * len(true))
    sums = np.concatenate([[0.0], np.cumsum((1 - true)[order])])
    first = np.clip(np.arange(len(true)) - width // 2, 0, len(true) - width)
    out = np.empty(len(true))
    out[order] = (sums[first + width] - sums[first]) / width
    return out


def gaps(true: FloatArray, predicted: FloatArray, *, ordered: bool) -> dict[str, float]:
    """Return ICI, E50 and E90: mean, median and 90th percentile of the distance between risk and prediction."""
    gap = np.abs(observed(true, predicted, ordered=ordered) - (1 - predicted))
    return {"ICI": float(gap.mean()), "E50": float(np.median(gap)), "E90": float(np.quantile(gap, 0.9))}


def net_benefit(true: FloatArray, predicted: FloatArray, threshold: float) -> float:
    """Return the net benefit of treating those whose predicted risk reaches the threshold."""
    treated = 1 - predicted >= threshold
    return float(np.mean(treated * ((1 - true) - true * threshold / (1 - threshold))))


def cloglog(risk: FloatArray) -> FloatArray:
    """Return the complementary log-log of a risk."""
    return np.log(-np.log1p(-np.clip(risk, 1e-6, 1 - 1e-6)))


def recalibration(true: FloatArray, predicted: FloatArray) -> tuple[float, float]:
    """Return intercept (slope 1) and slope of the risk on the prediction, both on the complementary log-log scale.

    They solve the score equations of a binomial regression with that link, the outcome replaced by its expectation.
    """
    x, risk = cloglog(1 - predicted), 1 - true

    def score(linear: FloatArray, columns: list[FloatArray]) -> list[float]:
        hazard = np.exp(linear)
        fitted = -np.expm1(-hazard)
        weight = (risk - fitted) * hazard / np.maximum(fitted, 1e-12)
        return [float((weight * column).mean()) for column in columns]

    ones = np.ones_like(x)
    intercept = root(lambda a: score(a[0] + x, [ones]), [0.0]).x[0]
    slope = root(lambda ab: score(ab[0] + ab[1] * x, [ones, x]), [0.0, 1.0]).x[1]
    return float(intercept), float(slope)


def mean_auc(times: FloatArray, true: FloatArray, predicted: FloatArray) -> float:
    """Return AUC(t) averaged over times with the drop of the mean survival up to each; S is (patients, times)."""
    drop = -np.diff(np.concatenate([[1.0], true.mean(axis=0)]))
    found = [auc(true[:, k], predicted[:, k]) for k in range(len(times))]
    return float(np.average(found, weights=drop))


def integrated_brier(times: FloatArray, true: FloatArray, predicted: FloatArray) -> float:
    """Return the Brier score averaged over the time between the first and the last; S is (patients, times)."""
    found = [brier(true[:, k], predicted[:, k]) for k in range(len(times))]
    return float(np.trapezoid(found, times) / (times[-1] - times[0]))
