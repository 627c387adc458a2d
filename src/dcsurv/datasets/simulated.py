"""Simulated cohorts whose true survival curves are known, with follow-up that depends on the features or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.curves import SurvivalCurves
from dcsurv.target import FloatArray, make_outcome

Design: TypeAlias = Literal["independent", "exponential", "administrative", "staggered", "drift", "centre", "risk"]
Hazards: TypeAlias = Literal["proportional", "log-normal", "non-linear", "non-proportional"]

# Years over which patients are enrolled, and the year in which every study closes.
_ENROLMENT, _CLOSED = 10.0, 11.0
# Weibull times: mean S at 2, 4, 6, 8, 10 years about .87 .74 .63 .53 .44.
_SHAPE, _SCALE = 1.2, 10.3
_EFFECTS = {"age": 0.5, "marker": 0.4, "grade": 0.3, "treated": -0.4, "bmi": 0.0}
# Log-normal times: median at a log-risk of 0, standard deviation of the logarithm, its change per log-risk.
_MEDIAN, _SPREAD, _ACCELERATION = 7.5, 0.9, -0.9
# Non-proportional hazards: the year in which effects on the shape of the hazard change sides.
_CROSSING = 4.0
_CENTRES = {"Aachen": 3.0, "Bremen": 5.0, "Cologne": 7.0, "Dresden": 9.0, "Erfurt": 11.0}
_NODES = 200
# Patients of the cohort, always the same one, on which the length of follow-up for a share of censored is found.
_REFERENCE_PATIENTS, _REFERENCE_SEED = 20_000, 20_260_000


@dataclass(frozen=True)
class SimulatedCohort:
    """Patients with the truth about them.

    Attributes
    ----------
    X : DataFrame
        Features, one row per patient.
    y : structured array
        The outcome with the fields ``event`` and ``time``, the time in years.
    truth : SurvivalCurves
        The true S(t | x) of every patient.
    could_follow : array
        The time at which each patient was, or would have been, censored.

    Examples
    --------
    >>> from dcsurv import metrics
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 1000)
    >>> metrics.ddc(cohort.y, cohort.truth) < 0.01  # the truth is calibrated
    True
    """

    X: pd.DataFrame
    y: npt.NDArray[np.void]
    truth: SurvivalCurves
    could_follow: FloatArray


def simulate(
    design: Design,
    n_patients: int,
    *,
    hazards: Hazards = "proportional",
    censored: float | None = None,
    strength: float = 1.0,
    random_state: int = 0,
) -> SimulatedCohort:
    """Draw a cohort with chosen hazards and a chosen kind of censoring.

    Six features (age, marker, bmi, grade, treated, centre) and the date of enrolment; four of them decide the hazard,
    neither bmi, nor enrolment, nor centre has an effect of its own on survival. With the same seed, features and
    follow-up are the same whatever the hazards.

    Parameters
    ----------
    design : {"independent", "exponential", "administrative", "staggered", "drift", "centre", "risk"}
        How long a patient could be followed:

        - ``"independent"``: 1 to 11 years, whoever it is;
        - ``"exponential"``: lost at a constant rate, and the study ends after 11 years;
        - ``"administrative"``: 11 years, every one of them;
        - ``"staggered"``: enrolled over ten years into a study that is closed in year 11, so that the year of
          enrolment decides how long;
        - ``"drift"``: the same, and later patients are older and sicker;
        - ``"centre"``: some centres follow for 3 years, others for up to 11;
        - ``"risk"``: the sicker, the sooner lost, see ``strength``.
    n_patients : int
        How many patients to draw.
    hazards : {"proportional", "log-normal", "non-linear", "non-proportional"}, default "proportional"
        What the features do to the event times:

        - ``"proportional"``: Weibull times, each feature multiplies the hazard;
        - ``"log-normal"``: each feature multiplies the time, and hazards rise and fall;
        - ``"non-linear"``: Weibull times, hazards proportional but not linear in the features: lowest in the middle
          of age, a threshold of the marker, and a treatment that helps above the threshold and harms below;
        - ``"non-proportional"``: treatment and marker change the shape of the Weibull hazard, so that their effects
          change sides: treatment helps early and harms late.
    censored : float or None, default None
        Share of the patients to be censored, between 0 and 1, which is met up to chance: the follow-up of all,
        and the years over which they are enrolled, are stretched by the same factor. None: the years above.
    strength : float, default 1.0
        In the design ``"risk"`` the rate at which patients are lost is proportional to the exponential of this many
        times their log-risk; below 0 the healthier are lost sooner. No other design uses it.
    random_state : int, default 0
        Seed.

    Returns
    -------
    SimulatedCohort
        Features, outcome and truth.

    Examples
    --------
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("staggered", 1000)
    >>> round(float(cohort.truth(5.0).mean()), 1)
    0.7
    >>> cohort = simulate("exponential", 1000, hazards="non-proportional", censored=0.85)
    >>> bool(abs(cohort.y["event"].mean() - 0.15) < 0.03)
    True
    """
    if design not in get_args(Design):
        raise ValueError(f"design is {design!r}, but one of {', '.join(get_args(Design))} is expected.")
    if hazards not in get_args(Hazards):
        raise ValueError(f"hazards is {hazards!r}, but one of {', '.join(get_args(Hazards))} is expected.")
    if censored is not None and not 0 < censored < 1:
        raise ValueError(f"censored is {censored!r}, but a share between 0 and 1 is expected, or None.")
    if not np.isfinite(strength):
        raise ValueError(f"strength is {strength!r}, but a finite number is expected.")
    stretch = 1.0 if censored is None else _stretch(design, hazards, float(censored), float(strength))
    drawn = _draw(design, hazards, int(n_patients), random_state, float(strength))
    longest = stretch * drawn.longest
    nodes = np.linspace(0, stretch * _CLOSED, _NODES + 1)[1:]
    if hazards != "proportional" or censored is not None:
        nodes = nodes**2 / nodes[-1]  # denser where some curves fall steeply: S between nodes is right to .002
    X = pd.DataFrame({**drawn.features, "centre": drawn.centre, "enrolled": 2000 + stretch * drawn.year})
    return SimulatedCohort(
        X,
        make_outcome(np.minimum(drawn.time, longest), drawn.time <= longest),
        SurvivalCurves(nodes, drawn.survival(nodes[None, :])),
        longest,
    )


@dataclass(frozen=True)
class _Drawn:
    """Features, event times and follow-up before it is stretched; S at a row of times, or at a time per patient."""

    features: dict[str, FloatArray]
    centre: npt.NDArray[Any]
    year: FloatArray
    time: FloatArray
    longest: FloatArray
    survival: Callable[[FloatArray], FloatArray]


def _draw(design: Design, hazards: Hazards, n: int, random_state: int, strength: float) -> _Drawn:
    rng = np.random.default_rng(random_state)
    year = rng.uniform(0, _ENROLMENT, n)
    drift = 0.25 * (year - _ENROLMENT / 2) if design == "drift" else np.zeros(n)
    features = {
        "age": rng.normal(size=n) + drift,
        "marker": rng.normal(size=n) + drift / 2,
        "bmi": rng.normal(size=n),
        "grade": rng.integers(-1, 2, n).astype(np.float64),
        "treated": rng.integers(0, 2, n).astype(np.float64),
    }
    log_risk = _log_risk(hazards, features)
    centre = rng.choice(list(_CENTRES), n)
    time, survival = _event_times(hazards, features, log_risk, rng.exponential(size=n))
    longest = np.full(n, _CLOSED)
    if design == "independent":
        longest = rng.uniform(_CLOSED - _ENROLMENT, _CLOSED, n)
    elif design == "exponential":
        longest = np.minimum(rng.exponential(10.0, n), _CLOSED)
    elif design in ("staggered", "drift"):
        longest = _CLOSED - year
    elif design == "centre":
        longest = np.array([_CENTRES[name] for name in centre]) * rng.uniform(0.8, 1.0, n)
    elif design == "risk":
        longest = np.minimum(rng.exponential(10.0, n) * np.exp(-strength * log_risk), _CLOSED)
    return _Drawn(features, centre, year, time, longest, survival)


def _log_risk(hazards: Hazards, features: dict[str, FloatArray]) -> FloatArray:
    log_risk: FloatArray = np.zeros(len(features["age"]))
    if hazards == "non-linear":
        high = features["marker"] > 0
        log_risk += 0.7 * np.abs(features["age"]) + 0.3 * features["age"] + 0.3 * features["grade"] + 0.8 * high
        log_risk += np.where(high, -0.9, 0.3) * features["treated"] - 0.9
        return log_risk
    for name, effect in _EFFECTS.items():
        log_risk += effect * features[name]
    return log_risk


def _event_times(
    hazards: Hazards, features: dict[str, FloatArray], log_risk: FloatArray, exponential: FloatArray
) -> tuple[FloatArray, Callable[[FloatArray], FloatArray]]:
    """Return the times at which the cumulative hazards reach draws from the exponential distribution, and S."""
    if hazards == "log-normal":
        centre = np.log(_MEDIAN) + _ACCELERATION * log_risk
        from scipy.special import log_ndtr, ndtri_exp

        time = np.exp(centre - _SPREAD * ndtri_exp(-exponential))  # S(time | x) is exp(-exponential)
        return time, lambda t: np.exp(log_ndtr((centre[:, None] - np.log(t)) / _SPREAD))
    if hazards == "non-proportional":
        shape = _SHAPE * np.exp(0.9 * (features["treated"] - 0.5) - 0.3 * features["marker"])
        at_crossing = (_CROSSING / _SCALE) ** _SHAPE * np.exp(log_risk)
        time = _CROSSING * (exponential / at_crossing) ** (1 / shape)
        return time, lambda t: np.exp(-at_crossing[:, None] * (t / _CROSSING) ** shape[:, None])
    time = _SCALE * (exponential * np.exp(-log_risk)) ** (1 / _SHAPE)
    return time, lambda t: np.exp(-np.exp(log_risk)[:, None] * (t / _SCALE) ** _SHAPE)


@lru_cache(maxsize=64)
def _stretch(design: Design, hazards: Hazards, censored: float, strength: float) -> float:
    """Return by how much follow-up is stretched for a share of the patients, on average, to be censored."""
    drawn = _draw(design, hazards, _REFERENCE_PATIENTS, _REFERENCE_SEED, strength)

    def too_many(log_stretch: float) -> float:
        return float(drawn.survival(np.exp(log_stretch) * drawn.longest[:, None]).mean()) - censored

    from scipy.optimize import brentq

    return float(np.exp(brentq(too_many, -20, 20, xtol=1e-6)))
