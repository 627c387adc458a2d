"""How many patients a model needs: Riley's criteria for outcomes with a time."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, dataclass
from typing import Any

from dcsurv.messages import InputError

_Z = 1.959963984540054  # of a 95 % interval


@dataclass(frozen=True)
class SampleSize:
    """How many patients a model with so many parameters needs, and why.

    Parameters
    ----------
    parameters : int
        Candidate parameters: the columns after encoding, all that were looked at and not only those that were kept.
    rate : float
        Events per patient and unit of time.
    mean_follow_up : float
        Mean time under observation.
    time : float
        The time at which the overall risk is to be known.
    r2 : float
        What the model is expected to explain on new patients: Cox and Snell's R², adjusted.
    r2_max : float
        The most that Cox and Snell's R² can be with so many events.
    shrinkage : float
        The least expected shrinkage.
    optimism : float
        The largest difference between the apparent and the adjusted R² of Nagelkerke.
    margin : float
        How far the ends of the 95 % interval of the overall risk may lie from it.
    for_shrinkage : int
        Patients that the first limit asks for.
    for_optimism : int
        Patients that the second asks for.
    for_risk : int
        Patients that the third asks for.

    Examples
    --------
    >>> import dcsurv
    >>> needed = dcsurv.sample_size(12, rate=0.1, mean_follow_up=4, time=5)
    >>> needed.patients, needed.events
    (857, 343)
    >>> round(needed.expected_shrinkage(400), 2), needed.most_parameters(400)
    (0.81, 5)
    """

    parameters: int
    rate: float
    mean_follow_up: float
    time: float
    r2: float
    r2_max: float
    shrinkage: float
    optimism: float
    margin: float
    for_shrinkage: int
    for_optimism: int
    for_risk: int

    @property
    def patients(self) -> int:
        """Patients that all three limits ask for."""
        return max(self.for_shrinkage, self.for_optimism, self.for_risk)

    @property
    def events(self) -> int:
        """Events among so many patients."""
        share = self.rate * self.mean_follow_up  # 1 without censoring, but for the last bit
        return min(self.patients, math.ceil(round(self.patients * share, 6)))

    @property
    def risk(self) -> float:
        """The overall risk at the time, if the rate of events never changes."""
        return 1 - math.exp(-self.rate * self.time)

    def risk_interval(self, patients: int) -> tuple[float, float]:
        """Return the 95 % interval that so many patients give the overall risk.

        Parameters
        ----------
        patients : int
            How many there are.

        Returns
        -------
        tuple of float
            Its ends.
        """
        error = _Z * math.sqrt(self.rate / (patients * self.mean_follow_up))
        low, high = (1 - math.exp(-(self.rate + sign * error) * self.time) for sign in (-1, 1))
        return max(low, 0.0), high

    def expected_shrinkage(self, patients: int) -> float:
        """Return the factor by which effects fitted to so many patients should be multiplied.

        Parameters
        ----------
        patients : int
            How many there are.

        Returns
        -------
        float
            Between 0 and 1; 0.9 says that effects come out a tenth too large.
        """
        low, high = self.r2, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            enough = _patients_for(self.parameters, self.r2, middle) <= patients if middle > self.r2 else True
            low, high = (middle, high) if enough else (low, middle)
        return low

    def most_parameters(self, patients: int) -> int:
        """Return how many candidate parameters so many patients allow.

        Parameters
        ----------
        patients : int
            How many there are.

        Returns
        -------
        int
            By the first two criteria; the third does not depend on the parameters.
        """
        limits = self.shrinkage, _shrinkage_of(self.r2, self.r2_max, self.optimism)
        return math.floor(min(patients / _patients_for(1, self.r2, limit) for limit in limits))

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data.

        Returns
        -------
        dict
            Numbers by name.
        """
        return {**asdict(self), "patients": self.patients, "events": self.events, "risk": self.risk}


def sample_size(
    parameters: int,
    *,
    rate: float,
    mean_follow_up: float,
    time: float,
    r2: float | None = None,
    r2_nagelkerke: float = 0.15,
    shrinkage: float = 0.9,
    optimism: float = 0.05,
    margin: float = 0.05,
) -> SampleSize:
    r"""Return how many patients a prediction model of a time to an event needs at least, by Riley's three criteria.

    1. Effects are to be overestimated by little: the expected shrinkage S is at least ``shrinkage``. With p parameters
       and a model that explains R² (Cox and Snell's, adjusted), n = p / ((S - 1) ln(1 - R²/S)).
    2. What the model seems to explain (Nagelkerke's R²) is to exceed what it explains by at most ``optimism``: the same
       formula with S = R² / (R² + ``optimism`` R²max).
    3. The overall risk at a time is to be known to ``margin``, both ways, from an exponential model.

    R²max = 1 - exp(2 (e ln e - e)) with e events per patient. These are minima for regression models without a penalty;
    networks and trees need more.

    Parameters
    ----------
    parameters : int
        Candidate parameters: the columns after encoding, all that were looked at and not only those that were kept.
    rate : float
        Events per patient and unit of time.
    mean_follow_up : float
        Mean time under observation, in the same unit.
    time : float
        The time at which the overall risk is to be known, in the same unit.
    r2 : float or None, default None
        What the model is expected to explain on new patients: Cox and Snell's R², adjusted; None: ``r2_nagelkerke``
        of the most that it can be.
    r2_nagelkerke : float, default 0.15
        The share of R²max that is explained, where ``r2`` is not given. 0.15 is the advice for when nothing is known.
    shrinkage : float, default 0.9
        The least expected shrinkage.
    optimism : float, default 0.05
        The largest difference between the apparent and the adjusted R² of Nagelkerke.
    margin : float, default 0.05
        How far the ends of the 95 % interval of the overall risk may lie from it.

    Returns
    -------
    SampleSize
        The numbers, with those behind them.

    Examples
    --------
    The example of the paper, recurrence within two years after a venous thromboembolism:

    >>> import dcsurv
    >>> needed = dcsurv.sample_size(30, rate=0.065, mean_follow_up=2.07, time=2, r2=0.051)
    >>> needed.patients, needed.events
    (5143, 692)
    >>> needed.for_shrinkage, needed.for_optimism, needed.for_risk
    (5143, 1039, 158)

    References
    ----------
    R. D. Riley, K. I. E. Snell, J. Ensor et al.: Minimum sample size for developing a multivariable prediction model:
    part II, binary and time-to-event outcomes. Statistics in Medicine 38 (2019).

    R. D. Riley, J. Ensor, K. I. E. Snell et al.: Calculating the sample size required for developing a clinical
    prediction model. BMJ 368 (2020).
    """
    for name, value in {"rate": rate, "mean_follow_up": mean_follow_up, "time": time, "parameters": parameters}.items():
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name} is {value!r}, but it must be above 0.", parameter=name)
    for name, value in {"shrinkage": shrinkage, "optimism": optimism, "margin": margin}.items():
        if not 0 < value < 1:
            raise InputError(f"{name} is {value!r}, but it must lie between 0 and 1.", parameter=name)
    events = rate * mean_follow_up
    if events > 1 + 1e-9:
        raise InputError(
            f"rate times mean_follow_up is {events:.3g} events per patient, but nobody has more than one.",
            parameter="rate",
            remedy="Give both in the same unit of time.",
        )
    r2_max = 1 - math.exp(2 * (events * math.log(events) - events))
    explained = r2_nagelkerke * r2_max if r2 is None else r2
    if not 0 < explained < min(r2_max, shrinkage):
        raise InputError(
            f"an R² of {explained:.3g} is expected, but it must lie above 0 and below {min(r2_max, shrinkage):.3g}.",
            parameter="r2_nagelkerke" if r2 is None else "r2",
        )
    # So late that nobody is left, the risk is known to be 1; the smallest number that is not 0 stands for nobody.
    survival = max(math.exp(-rate * time), sys.float_info.min)
    person_time = rate * (_Z * time / math.log1p(margin / survival)) ** 2
    of_optimism = _shrinkage_of(explained, r2_max, optimism)
    return SampleSize(
        parameters, rate, mean_follow_up, time, explained, r2_max, shrinkage, optimism, margin,
        for_shrinkage=math.ceil(_patients_for(parameters, explained, shrinkage)),
        for_optimism=math.ceil(_patients_for(parameters, explained, of_optimism)),
        for_risk=math.ceil(person_time / mean_follow_up),
    )  # fmt: skip


def _shrinkage_of(r2: float, r2_max: float, optimism: float) -> float:
    return r2 / (r2 + optimism * r2_max)


def _patients_for(parameters: int, r2: float, shrinkage: float) -> float:
    return parameters / ((shrinkage - 1) * math.log1p(-r2 / shrinkage))
