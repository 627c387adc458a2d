"""The likelihood of accelerated failure times, in the form in which it has one maximum.

With a = 1 / σ and g = β / σ, z = a log t - g0 - g x is linear in what is sought, and the logarithms of density and
survival of every distribution here are concave in z: Newton's steps, shortened where they must be, reach the maximum
from anywhere.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from dcsurv.arithmetic import Value
from dcsurv.arithmetic.functions import normal_tail
from dcsurv.models.tensors import torch
from dcsurv.target import BoolArray, FloatArray

# log f or log S of z, by event, and its first and second derivatives.
LogParts: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]

_HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)
# exp of more would overflow in sums and squares.
_LARGEST = 200.0
# Products are made for this many numbers at a time, which stay in the processor's cache.
_BLOCK_NUMBERS = 131_072
# What keeps 1 / σ finite where all events fall on one time: half of this times its square is taken away.
PULL = 1 / 2500


@dataclass(frozen=True)
class Distribution:
    """A distribution of z = (log T - location) / σ.

    Attributes
    ----------
    parts
        (z, event) -> log density where there was an event and log survival elsewhere, with two derivatives.
    survival
        z -> S.
    arithmetic
        The same as arithmetic.
    mean, deviation
        Of z.
    """

    parts: Callable[[FloatArray, BoolArray], LogParts]
    survival: Callable[[FloatArray], FloatArray]
    arithmetic: Callable[[Value], Value]
    mean: float
    deviation: float


def _weibull(z: FloatArray, event: BoolArray) -> LogParts:
    hazard = np.exp(np.minimum(z, _LARGEST))
    return np.where(event, z, 0.0) - hazard, event - hazard, -hazard


def _log_logistic(z: FloatArray, event: BoolArray) -> LogParts:
    from scipy.special import expit

    share, count = expit(z), 1.0 + event
    return np.where(event, z, 0.0) - count * np.logaddexp(0.0, z), event - count * share, -count * share * (1 - share)


def _log_normal(z: FloatArray, event: BoolArray) -> LogParts:
    from scipy.special import log_ndtr

    alive = log_ndtr(-z)
    hazard = np.exp(-0.5 * z * z - _HALF_LOG_2PI - alive)
    return (
        np.where(event, -0.5 * z * z - _HALF_LOG_2PI, alive),
        np.where(event, -z, -hazard),
        np.where(event, -1.0, -np.clip(hazard * (hazard - z), 0.0, 1.0)),
    )


# Survival is torch's: a process that predicts has torch, and would wait for SciPy.
DISTRIBUTIONS: Mapping[str, Distribution] = MappingProxyType(
    {
        "weibull": Distribution(
            _weibull,
            lambda z: np.exp(-np.exp(np.minimum(z, _LARGEST))),
            lambda z: (-z.at_most(_LARGEST).exp()).exp(),
            -np.euler_gamma,
            np.pi / np.sqrt(6),
        ),
        "log-logistic": Distribution(
            _log_logistic,
            lambda z: torch.sigmoid(torch.from_numpy(-z)).numpy(),
            lambda z: (-z).sigmoid(),
            0.0,
            np.pi / np.sqrt(3),
        ),
        "log-normal": Distribution(
            _log_normal, lambda z: torch.special.ndtr(torch.from_numpy(-z)).numpy(), normal_tail, 0.0, 1.0
        ),
    }
)


@dataclass(frozen=True)
class AFTPoint:
    """The likelihood at one place.

    Attributes
    ----------
    value
        Its logarithm.
    slope, bend
        Its first and second derivatives in the z of each patient, (n,).
    speed
        Of z in log time, at each event, (d,).
    steepness
        a.
    """

    value: float
    slope: FloatArray
    bend: FloatArray
    speed: FloatArray
    steepness: float


class AFTLikelihood:
    """The log likelihood of log times; its coefficients are g0, those of the terms, a, and those of bends of time.

    Parameters
    ----------
    terms : array of float
        One row per patient, (n, p).
    times : array of float
        Logarithms of observed times, and bends of them, (n, 1 + q).
    speeds : array of float
        Their derivatives in log time at the events: 1, and those of the bends, (d, 1 + q).
    event : array of bool
        Whether the event was observed.
    weight : array of float
        One positive weight per patient.
    distribution : Distribution
        Of the error.
    """

    def __init__(
        self,
        terms: FloatArray,
        times: FloatArray,
        speeds: FloatArray,
        event: BoolArray,
        weight: FloatArray,
        distribution: Distribution,
    ) -> None:
        self.terms = np.column_stack([np.full(len(terms), -1.0), -terms, times])
        self.speeds, self.event, self.weight, self.distribution = speeds, event, weight, distribution
        self.at_a = 1 + terms.shape[1]
        self.observed = weight[event]

    def of(self, distribution: Distribution) -> AFTLikelihood:
        """Return the likelihood of the same patients with another distribution."""
        out = copy.copy(self)
        out.distribution = distribution
        return out

    def without_features(self) -> AFTLikelihood:
        """Return the likelihood with g0 and a only."""
        none, times = np.zeros((len(self.terms), 0)), self.terms[:, [self.at_a]]
        return AFTLikelihood(none, times, self.speeds[:, :1], self.event, self.weight, self.distribution)

    def evaluate(self, coef: FloatArray, linear: FloatArray) -> AFTPoint:
        """Return the likelihood at some coefficients, whose products with the terms are z."""
        steepness, speed = float(coef[self.at_a]), self.speeds @ coef[self.at_a :]
        if not (speed > 0).all():
            return AFTPoint(-np.inf, linear, linear, speed, steepness)
        value, slope, bend = self.distribution.parts(linear, self.event)
        total = float(self.weight @ value) + float(self.observed @ np.log(speed)) - 0.5 * PULL * steepness**2
        return AFTPoint(total, self.weight * slope, self.weight * bend, speed, steepness)

    def slope(self, point: AFTPoint) -> FloatArray:
        """Return the derivative with respect to the coefficients."""
        out: FloatArray = point.slope @ self.terms
        out[self.at_a :] += (self.observed / point.speed) @ self.speeds
        out[self.at_a] -= PULL * point.steepness
        return out

    def information(self, point: AFTPoint) -> FloatArray:
        """Return minus the second derivative with respect to the coefficients."""
        n, p = self.terms.shape
        out = np.zeros((p, p))
        step = max(_BLOCK_NUMBERS // p, 64)
        for first in range(0, n, step):
            block = self.terms[first : first + step]
            out += (block * -point.bend[first : first + step, None]).T @ block
        of_time = slice(self.at_a, None)
        out[of_time, of_time] += (self.speeds * (self.observed / point.speed**2)[:, None]).T @ self.speeds
        out[self.at_a, self.at_a] += PULL
        return out
