"""Simulated cohorts whose true survival curves are known, with follow-up that depends on the features or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.curves import SurvivalCurves
from dcsurv.target import FloatArray, make_outcome

Design: TypeAlias = Literal["independent", "exponential", "staggered", "drift", "centre", "risk"]

# Years over which patients are enrolled, and the year in which every study closes.
_ENROLMENT, _CLOSED = 10.0, 11.0
# Weibull times: mean S at 2, 4, 6, 8, 10 years about .87 .74 .63 .53 .44.
_SHAPE, _SCALE = 1.2, 10.3
_EFFECTS = {"age": 0.5, "marker": 0.4, "grade": 0.3, "treated": -0.4, "bmi": 0.0}
_CENTRES = {"Aachen": 3.0, "Bremen": 5.0, "Cologne": 7.0, "Dresden": 9.0, "Erfurt": 11.0}
_NODES = 200


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


def simulate(design: Design, n_patients: int, *, random_state: int = 0) -> SimulatedCohort:
    """Draw a cohort with proportional Weibull hazards and a chosen kind of censoring.

    Six features (age, marker, bmi, grade, treated, centre) and the date of enrolment; four of them decide the hazard,
    neither enrolment nor centre has an effect of its own on survival.

    Parameters
    ----------
    design : {"independent", "exponential", "staggered", "drift", "centre", "risk"}
        How long a patient could be followed:

        - ``"independent"``: 1 to 11 years, whoever it is;
        - ``"exponential"``: lost at a constant rate, and the study ends after 11 years;
        - ``"staggered"``: enrolled over ten years into a study that is closed in year 11, so that the year of
          enrolment decides how long;
        - ``"drift"``: the same, and later patients are older and sicker;
        - ``"centre"``: some centres follow for 3 years, others for up to 11;
        - ``"risk"``: the sicker, the sooner lost.
    n_patients : int
        How many patients to draw.
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
    """
    if design not in get_args(Design):
        raise ValueError(f"design is {design!r}, but one of {', '.join(get_args(Design))} is expected.")
    rng = np.random.default_rng(random_state)
    n = int(n_patients)
    year = rng.uniform(0, _ENROLMENT, n)
    drift = 0.25 * (year - _ENROLMENT / 2) if design == "drift" else np.zeros(n)
    features = {
        "age": rng.normal(size=n) + drift,
        "marker": rng.normal(size=n) + drift / 2,
        "bmi": rng.normal(size=n),
        "grade": rng.integers(-1, 2, n).astype(np.float64),
        "treated": rng.integers(0, 2, n).astype(np.float64),
    }
    log_risk = np.zeros(n)
    for name, effect in _EFFECTS.items():
        log_risk += effect * features[name]
    centre = rng.choice(list(_CENTRES), n)
    time = _SCALE * (rng.exponential(size=n) * np.exp(-log_risk)) ** (1 / _SHAPE)
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
        longest = np.minimum(rng.exponential(10.0, n) * np.exp(-log_risk), _CLOSED)
    nodes = np.linspace(0, _CLOSED, _NODES + 1)[1:]
    survival = np.exp(-np.outer(np.exp(log_risk), (nodes / _SCALE) ** _SHAPE))
    X = pd.DataFrame({**features, "centre": centre, "enrolled": 2000 + year})
    return SimulatedCohort(
        X, make_outcome(np.minimum(time, longest), time <= longest), SurvivalCurves(nodes, survival), longest
    )
