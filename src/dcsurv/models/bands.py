"""Bands around survival curves: how far the truth may lie from what was predicted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from dcsurv.arithmetic import ReadableCurves, Value
from dcsurv.arithmetic.functions import quantile_of_level, through_points
from dcsurv.arithmetic.readable import average
from dcsurv.curves import SurvivalCurves
from dcsurv.curves.checks import ROUNDING
from dcsurv.curves.interpolated import Interpolated
from dcsurv.nonparametric import kaplan_meier
from dcsurv.plain import NotNegative, Positive, declared
from dcsurv.target import FloatArray, Outcome

# Survival this close to 0 or 1 counts as this on the complementary log-log scale.
_EDGE = 1e-12
_QUANTILES = 40
# A reach beyond this on the log scale is all the same: survival from 0 to 1.
_MOST = 50.0


class _State(msgspec.Struct):
    """What a file has to say of the patients behind a band."""

    times: list[NotNegative]
    patients: list[Positive]


class Band(NamedTuple):
    """Survival of each patient with a band around it.

    Attributes
    ----------
    times : array of shape (T,)
        The times.
    lower : array of shape (n, T)
        Lower end of the band.
    survival : array of shape (n, T)
        Survival.
    upper : array of shape (n, T)
        Upper end of the band.

    Examples
    --------
    >>> from dcsurv import CalibratedEnsemble, CoxPH
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 200)
    >>> model = CalibratedEnsemble(estimator=CoxPH(), n_members=2).fit(cohort.X, cohort.y)
    >>> band = model.predict_band(cohort.X[:5], [1.0, 5.0])
    >>> band.survival.shape, bool((band.lower <= band.upper).all())
    ((5, 2), True)
    """

    times: FloatArray
    lower: FloatArray
    survival: FloatArray
    upper: FloatArray


def sound_band(band: Band) -> Band:
    """Return a band; refuse one that is not of probabilities which never rise."""
    within = all(((part >= 0) & (part <= 1)).all() for part in (band.lower, band.survival, band.upper))
    if not within or (np.diff(band.survival, axis=1) > ROUNDING).any():
        raise ValueError("survival, or its band, leaves [0, 1] or rises")
    return band


@dataclass(frozen=True)
class Backing:
    """How many patients stand behind the risk by each time: events so far, divided by the share who had one.

    Without censoring all patients; with it, as many as would have told as much had nobody been censored.

    Parameters
    ----------
    times : array of shape (m,)
        The first event time and ascending quantiles of all.
    patients : array of shape (m,)
        How many at each of them; between them the number runs linearly, outside it is held.
    """

    times: FloatArray
    patients: FloatArray

    @classmethod
    def of(cls, y: Outcome, weight: FloatArray | None = None) -> Backing:
        """Count in a cohort with at least one event that counts."""
        counted = np.ones(len(y), dtype=bool) if weight is None else weight > 0
        events = np.sort(y["time"][y["event"] & counted])
        times = np.unique(np.quantile(events, np.arange(_QUANTILES + 1) / _QUANTILES, method="higher"))
        risk = 1.0 - kaplan_meier(y, sample_weight=weight)(times)
        patients = np.searchsorted(events, times, side="right") / np.maximum(risk, 1.0 / len(y))
        return cls(times, np.minimum(patients, float(len(y))))

    @classmethod
    def unknown(cls, patients: int) -> Backing:
        """Return what can be said of a file without these numbers: all patients, at all times."""
        return cls(np.zeros(1), np.full(1, float(max(patients, 1))))

    def __call__(self, times: FloatArray) -> FloatArray:
        """Return how many stand behind each time."""
        return np.interp(times, self.times, self.patients)

    def arithmetic(self, times: Value) -> Value:
        """Return how many stand behind each time, as arithmetic."""
        return through_points(times, self.times, self.patients)

    def get_state(self) -> dict[str, Any]:
        """Return plain numbers for a file."""
        return {"times": self.times.tolist(), "patients": self.patients.tolist()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Backing:
        """Rebuild from a file."""
        found = declared(state, _State)
        times, patients = np.array(found.times), np.array(found.patients)
        if not len(times) or times.shape != patients.shape or (np.diff(times) <= 0).any():
            raise ValueError("the patients behind a band need ascending times and positive numbers.")
        return cls(times, patients)


class BandSources(NamedTuple):
    """What bands are made from.

    Attributes
    ----------
    replicates : list of Interpolated
        The same patients' curves by models that were fitted to other patients of the same kind.
    factor : float
        What their variance is multiplied by: (K - 1)² / K for K models that each left out a fold, 1 for resamples.
    families : list of tuple of (float, Interpolated)
        Shares and curves of the kinds of models that were averaged.
    fitted_on : list of tuple of (float, Backing)
        How many numbers were learnt for each time, and from how many patients.
    center : SurvivalCurves
        The curves that the bands lie around.
    """

    replicates: Sequence[Interpolated]
    factor: float
    families: Sequence[tuple[float, Interpolated]]
    fitted_on: Sequence[tuple[float, Backing]]
    center: SurvivalCurves

    def relative_reach(self, times: FloatArray, level: float) -> FloatArray:
        """Return how far a band of a level reaches on the scale log(-log S) for what varies by patient, (n, T)."""
        each = np.stack([log_hazard(curves.evaluate_rows(times)) for curves in self.replicates])
        variance = student_reach(level, len(each) - 1) ** 2 * self.factor * each.var(axis=0, ddof=1)
        if len(self.families) > 1:
            shares = np.array([share for share, _ in self.families])
            kinds = np.stack([log_hazard(curves.evaluate_rows(times)) for _, curves in self.families])
            between = np.average((kinds - np.average(kinds, axis=0, weights=shares)) ** 2, axis=0, weights=shares)
            variance += NormalDist().inv_cdf((1 + level) / 2) ** 2 * between
        out: FloatArray = np.sqrt(variance).T
        return out

    def absolute_reach(self, times: FloatArray, level: float) -> FloatArray:
        """Return how far it reaches on the scale sqrt(-log S) for the number of patients at all, (T,)."""
        variance = np.add.reduce([numbers / (4 * backing(times)) for numbers, backing in self.fitted_on])
        # Before the first event is seen, hazards are taken to be what they are there, so that S(0) is certain.
        first = min(float(backing.times[0]) for _, backing in self.fitted_on)
        begun = np.sqrt(np.clip(times / first, 0.0, 1.0)) if first > 0 else 1.0 * (times > 0)
        out: FloatArray = NormalDist().inv_cdf((1 + level) / 2) * begun * np.sqrt(variance)
        return out


class BandArithmetic(NamedTuple):
    """What bands are made from as arithmetic; see :class:`BandSources`.

    Attributes
    ----------
    replicates : list of ReadableCurves
        The same patients' curves by models that were fitted to other patients of the same kind.
    factor : float
        What their variance is multiplied by.
    families : list of tuple of (float, ReadableCurves)
        Shares and curves of the kinds of models that were averaged.
    fitted_on : list of tuple of (float, Backing)
        How many numbers were learnt for each time, and from how many patients.
    """

    replicates: Sequence[ReadableCurves]
    factor: float
    families: Sequence[tuple[float, ReadableCurves]]
    fitted_on: Sequence[tuple[float, Backing]]

    def ends(self, times: Value, survival: Value, level: Value) -> tuple[Value, Value]:
        """Return the lower and the upper end of the band of a level around survival, (n, m).

        Parameters
        ----------
        times : Value
            Ascending times, (m,).
        survival : Value
            S at these times.
        level : Value
            Of the band.
        """
        root = (-survival.at_least(_EDGE).at_most(1.0).log()).sqrt()
        relative, absolute = self._relative_reach(times, level), self._absolute_reach(times, level)
        down = root * (1.0 - (relative * -0.5).exp())
        up = root * ((relative.at_most(_MOST) * 0.5).exp() - 1.0)
        squared = absolute * absolute
        further = root + (up * up + squared).sqrt()
        nearer = (root - (down * down + squared).sqrt()).relu()
        lower, upper = (-(further * further)).exp(), (-(nearer * nearer)).exp()
        return lower.running_min().at_most(survival), upper.running_min().at_least(survival)

    def _relative_reach(self, times: Value, level: Value) -> Value:
        each = [_log_hazard(curves.read(times)) for curves in self.replicates]
        reach = quantile_of_level(level, lambda share: student_reach(share, len(each) - 1))
        middle = average(each)
        spread = average([(one - middle) * (one - middle) for one in each]) * (len(each) / (len(each) - 1))
        variance = spread * (reach * reach * self.factor)
        if len(self.families) > 1:
            total = sum(share for share, _ in self.families)
            kinds = [(share / total, _log_hazard(curves.read(times))) for share, curves in self.families]
            middle = average([one * share for share, one in kinds]) * float(len(kinds))
            between = average([(one - middle) * (one - middle) * share for share, one in kinds]) * float(len(kinds))
            normal = _normal_reach(level)
            variance = variance + between * (normal * normal)
        return variance.sqrt()

    def _absolute_reach(self, times: Value, level: Value) -> Value:
        each = [numbers / (4.0 * backing.arithmetic(times)) for numbers, backing in self.fitted_on]
        variance = average(each) * float(len(each))
        first = min(float(backing.times[0]) for _, backing in self.fitted_on)
        begun = (times / first).at_least(0.0).at_most(1.0).sqrt() if first > 0 else (-times).below(0.0, 1.0, 0.0)
        return _normal_reach(level) * begun * variance.sqrt()


def _log_hazard(survival: Value) -> Value:
    return (-survival.at_least(_EDGE).at_most(1 - _EDGE).log()).log()


def _normal_reach(level: Value) -> Value:
    return quantile_of_level(level, lambda share: NormalDist().inv_cdf((1 + share) / 2))


def band_around(
    times: FloatArray, survival: FloatArray, relative: FloatArray, absolute: npt.NDArray[np.floating]
) -> Band:
    """Return the band around survival, (n, T).

    On the scale sqrt(-log S) each end is as far away as the root of the summed squares of what both reaches make
    alone: a count of events has about the same standard deviation there, however few are expected.

    Parameters
    ----------
    relative
        Reach on the scale log(-log S), (n, T).
    absolute
        Reach on the scale sqrt(-log S), (T,).
    """
    root = np.sqrt(-np.log(np.clip(survival, _EDGE, 1.0)))
    down = np.hypot(-root * np.expm1(-relative / 2), absolute)
    up = np.hypot(root * np.expm1(np.minimum(relative, _MOST) / 2), absolute)
    ends = np.exp(-((root + up) ** 2)), np.exp(-(np.maximum(root - down, 0.0) ** 2))
    lower, upper = (np.minimum.accumulate(end, axis=1) for end in ends)
    return Band(times, np.minimum(lower, survival), survival, np.maximum(upper, survival))


def log_hazard(survival: FloatArray) -> FloatArray:
    """Return log(-log S)."""
    return np.log(-np.log(np.clip(survival, _EDGE, 1 - _EDGE)))


def student_reach(level: float, freedom: int) -> float:
    """Return how far from 0 Student's distribution has to reach on both sides to hold a share.

    In closed form up to a bisection, because SciPy takes longer to import than a few patients to predict.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_share(middle, freedom) < level else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _student_share(angle: float, freedom: int) -> float:
    """Return the share of Student's distribution within sqrt(freedom) * tan(angle) of 0."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    total, term = 0.0, sine * cosine if odd else sine
    for k in range(odd + 1, freedom, 2):
        total += term
        term *= cosine**2 * k / (k + 1)
    return 2 / math.pi * (angle + total) if odd else total
