"""Accelerated failure times with effects that may bend; the data choose the distribution and the penalties."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from dcsurv.curves import Interpolation
from dcsurv.kinds import ModelKind, register
from dcsurv.models.additive import AdditiveEstimator, counted
from dcsurv.models.aft_likelihood import DISTRIBUTIONS, PULL, AFTLikelihood, Distribution
from dcsurv.models.base import Features
from dcsurv.models.penalised import SMALLEST_STEP, PenalisedFit, Penalties, fit_penalised
from dcsurv.persistence import Arrays, Header
from dcsurv.search_space import Choice, Float
from dcsurv.target import FloatArray, IntArray, Outcome

DistributionName: TypeAlias = Literal["weibull", "log-logistic", "log-normal"]

# Times below this share of the median count as this: log 0 is none, and the logarithms of a few seconds among years
# would outweigh everybody else's.
_SHORTEST = 1e-3
# A first look at each distribution ends when a step changes no z by more.
_FIRST_LOOK = 0.02
_MAX_NODES = 256


@dataclass(kw_only=True, repr=False, eq=False)
class SplineAFT(AdditiveEstimator):
    """Accelerated failure times with smooth effects: log T = b + Σ β_j x_j + b_j(x_j) + σ e.

    Parameters
    ----------
    distribution : {"weibull", "log-logistic", "log-normal"} or None, default None
        Of T given x; None takes the one under which the data are likeliest.
    """

    distribution: DistributionName | None = None

    interpolation: ClassVar[Interpolation] = "linear"

    def check_parameters(self) -> None:
        """Refuse parameters that cannot be, before anything is trained."""
        super().check_parameters()
        if self.distribution is not None and self.distribution not in DISTRIBUTIONS:
            known = ", ".join(repr(one) for one in DISTRIBUTIONS)
            raise ValueError(f"distribution is {self.distribution!r}, but None or one of {known} is expected.")

    def fit_prepared(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        columns, time, event, weight = counted(X, y, weight)
        unit = float(np.median(time[time > 0])) if (time > 0).any() else 1.0
        log_time = np.log(np.maximum(time / unit, _SHORTEST))

        def estimate(terms: FloatArray, group: IntArray, penalties: Penalties) -> PenalisedFit:
            likelihoods = {
                name: AFTLikelihood(terms, log_time, event, weight, DISTRIBUTIONS[name])
                for name in ([self.distribution] if self.distribution is not None else DISTRIBUTIONS)
            }
            self.distribution_, found = likeliest(likelihoods, np.r_[-1, group, -1], penalties)
            self.sigma_ = 1.0 / float(found.coef[-1])
            self.intercept_ = float(found.coef[0]) * self.sigma_ + float(np.log(unit))
            log_likelihood = found.log_likelihood + 0.5 * PULL / self.sigma_**2
            log_likelihood -= float(weight[event] @ (log_time[event] + np.log(unit)))  # of T, not of log T
            return replace(found, coef=found.coef[1:-1] * self.sigma_, log_likelihood=log_likelihood)

        summary = self.fit_effects(columns, int(event.sum()), weight, estimate)
        self.times_ = self._place_nodes(self._location(columns), float(time.max()) or 1.0)
        return summary

    def _location(self, X: Features | FloatArray) -> FloatArray:
        return self.intercept_ + self.effects(X).sum(axis=1)

    def _place_nodes(self, location: FloatArray, last: float) -> FloatArray:
        """Return times between which a straight line is near the curves of patients of high, middle and low risk."""
        some = np.quantile(location, [0.0, 0.05, 0.25, 0.5, 0.75, 1.0])
        fine = last * np.r_[np.geomspace(1e-6, 0.01, 400, endpoint=False), np.linspace(0.01, 1.0, 2000)]
        fallen = (1.0 - self._survival(some, fine)).mean(axis=0) + 0.1 * fine / last
        at = np.linspace(0.0, fallen[-1], _MAX_NODES + 1)[1:]
        out: FloatArray = np.unique(np.interp(at, np.r_[0.0, fallen], np.r_[0.0, fine]))
        return np.r_[out[out < last * (1 - 1e-9)], last]

    def _survival(self, location: FloatArray, times: FloatArray) -> FloatArray:
        z = (np.log(times) - location[:, None]) / self.sigma_
        return DISTRIBUTIONS[self.distribution_].survival(z)

    @property
    def nodes(self) -> FloatArray:
        return self.times_

    def survival_at_nodes(self, X: Features) -> FloatArray:
        return self._survival(self._location(X), self.times_)

    def get_state(self) -> tuple[Header, Arrays]:
        error = {"distribution": self.distribution_, "sigma": self.sigma_, "intercept": self.intercept_}
        return {"error": error}, self.effects_to_arrays() | {"times_": self.times_}

    def set_state(self, header: Header, arrays: Arrays) -> None:
        self.effects_from_arrays(header, arrays)
        error, times = header["error"], arrays["times_"]
        self.distribution_ = error["distribution"]
        if self.distribution_ not in DISTRIBUTIONS:
            raise ValueError(f"its distribution {self.distribution_!r} is not known")
        self.sigma_, self.intercept_ = float(error["sigma"]), float(error["intercept"])
        if not (0 < self.sigma_ < np.inf and np.isfinite(self.intercept_)):
            raise ValueError("its distribution has parameters that cannot be")
        if times.ndim != 1 or not len(times) or not np.isfinite(times).all():
            raise ValueError("its nodes are not finite times")
        if times[0] <= 0 or (np.diff(times) <= 0).any():
            raise ValueError("its nodes do not ascend from above 0")
        self.times_ = times


def likeliest(likelihoods: dict[str, AFTLikelihood], group: IntArray, penalties: Penalties) -> tuple[str, PenalisedFit]:
    """Return the distribution under which the data are likeliest, and its fit.

    Each is fitted roughly, beginning where the one before ended; only the best is fitted to the end.
    """
    first = next(iter(likelihoods.values()))
    alone = fit_penalised(first.without_features(), group[[0, -1]], penalties, np.array([0.0, 1.0]), _FIRST_LOOK)
    before, coef = first.distribution, np.r_[alone.coef[0], np.zeros(len(group) - 2), alone.coef[-1]]
    looks = {}
    for name, likelihood in likelihoods.items():
        coef = _carried(coef, before, likelihood.distribution)
        found = fit_penalised(likelihood, group, penalties, coef, _FIRST_LOOK)
        # The priors of b and of log σ are flat, and with them those of b / σ and 1 / σ are not.
        looks[name] = found.marginal - 2 * np.log(found.coef[-1]), found
        coef, before = found.coef, likelihood.distribution
        penalties = penalties.from_here(found.penalty)
    best = max(looks, key=lambda name: float(looks[name][0]))
    found = looks[best][1]
    return best, fit_penalised(likelihoods[best], group, penalties.from_here(found.penalty), found.coef, SMALLEST_STEP)


def _carried(coef: FloatArray, before: Distribution, after: Distribution) -> FloatArray:
    """Return the coefficients with which another distribution has the same means and deviations of log times."""
    sigma = before.deviation / after.deviation / coef[-1]
    location = (coef[0] + before.mean) / coef[-1] - after.mean * sigma
    return np.r_[location, coef[1:-1] / coef[-1], 1.0] / sigma


register(
    ModelKind(
        name="spline-aft",
        model=SplineAFT,
        meaning="accelerated failure times with effects that may bend; the data choose distribution and penalties",
        space={"knots": Choice((0, 3, 4, 5, 6, 8)), "strength": Float(0.1, 10.0, log=True)},
        is_member=True,
    )
)
