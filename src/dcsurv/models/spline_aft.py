"""Accelerated failure times with bent effects; the data choose the distribution and the penalties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from dcsurv.curves import Interpolation
from dcsurv.kinds import ModelKind, register
from dcsurv.models.aft_likelihood import DISTRIBUTIONS, AFTLikelihood, Distribution
from dcsurv.models.base import Features
from dcsurv.models.bends import Bends
from dcsurv.models.estimator import SurvivalEstimator
from dcsurv.models.penalised import PenalisedFit, fit_penalised
from dcsurv.models.ranges import NoneOr, Number, Range, WholeNumber
from dcsurv.models.terms import Terms
from dcsurv.persistence import Arrays, Header
from dcsurv.search_space import Float, Int
from dcsurv.target import BoolArray, FloatArray, IntArray, Outcome

DistributionName: TypeAlias = Literal["weibull", "log-logistic", "log-normal"]

_PENALTIES = 0.01, 1e5
# Times below this share of the median count as this: log 0 is none, and the logarithms of a few seconds among years
# would outweigh everybody else's.
_SHORTEST = 1e-3
# A first look at each distribution ends when a step changes no z by more.
_FIRST_LOOK = 0.02
_MAX_NODES = 256


@dataclass(kw_only=True, repr=False, eq=False)
class SplineAFT(SurvivalEstimator):
    """Accelerated failure times with smooth, penalised effects: log T = b + Σ f_j(x_j) + σ e.

    Parameters
    ----------
    distribution : {"weibull", "log-logistic", "log-normal"} or None, default None
        Of T given x; None takes the one under which the data are likeliest.
    knots : int or None, default None
        Of the spline of each number; 0 leaves all effects straight, None follows the number of events.
    penalty : float or None, default None
        Strength of the ridge penalty on straight effects; None lets the data choose.
    bend_penalty : float or None, default None
        Strength of the penalty on bends; None lets the data choose.
    strength : float, default 1.0
        What penalties that the data choose are multiplied by.
    """

    distribution: DistributionName | None = None
    knots: int | None = None
    penalty: float | None = None
    bend_penalty: float | None = None
    strength: float = 1.0

    interpolation: ClassVar[Interpolation] = "linear"
    ranges: ClassVar[dict[str, Range]] = {
        "knots": NoneOr(WholeNumber(0)),
        "penalty": NoneOr(Number(above=0)),
        "bend_penalty": NoneOr(Number(above=0)),
        "strength": Number(above=0),
    }

    def check_parameters(self) -> None:
        """Refuse parameters that cannot be, before anything is trained."""
        super().check_parameters()
        if self.distribution is not None and self.distribution not in DISTRIBUTIONS:
            raise ValueError(
                f"distribution is {self.distribution!r}, but None or one of {', '.join(DISTRIBUTIONS)} is expected."
            )

    def fit_prepared(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        rows = np.arange(len(y)) if weight is None else np.flatnonzero(weight > 0)
        columns, counted = X[rows].astype(np.float64), np.ones(len(rows)) if weight is None else weight[rows]
        time, event = np.ascontiguousarray(y["time"])[rows], np.ascontiguousarray(y["event"])[rows]
        middle = float(np.median(time[time > 0])) if (time > 0).any() else 1.0
        log_time = np.log(np.maximum(time / middle, _SHORTEST))
        terms = Terms.of(columns, counted, int(event.sum()), self.knots)
        self.terms_ = terms
        name, found = self._fit_best(terms(columns), log_time, event, counted, terms.group)
        steepness = float(found.coef[-1])
        effects = found.coef[1:-1] / steepness
        straight = len(terms.varying)
        self.distribution_ = name
        self.sigma_ = 1.0 / steepness
        self.intercept_ = float(found.coef[0] / steepness + np.log(middle))
        self.coef_ = np.zeros(X.shape[1])
        self.coef_[terms.varying] = effects[:straight] / terms.scale[terms.varying]
        self.bend_coef_ = effects[straight:]
        self.penalties_, self.freedom_ = found.penalty, found.freedom
        self.log_likelihood_ = found.value - float(counted[event] @ (log_time[event] + np.log(middle)))
        self.found_ = found
        self.times_ = self._place_nodes(self._location(X[rows]), float(y["time"].max()) or 1.0)
        return {"distribution": name, "log_likelihood": self.log_likelihood_}

    def _fit_best(
        self, terms: FloatArray, log_time: FloatArray, event: BoolArray, weight: FloatArray, of_terms: IntArray
    ) -> tuple[str, PenalisedFit]:
        """Return the likeliest distribution and its fit."""
        group = np.r_[-1, of_terms, -1]
        fixed = [self.penalty, self.bend_penalty]
        lower = np.array([_PENALTIES[0] if one is None else one for one in fixed])
        upper = np.array([_PENALTIES[1] if one is None else one for one in fixed])
        events = float(weight @ event)
        penalty = np.array([0.1 * events, events])
        names = [self.distribution] if self.distribution is not None else list(DISTRIBUTIONS)
        # Without features first: two coefficients, from which all are not far.
        before = DISTRIBUTIONS[names[0]]
        alone = AFTLikelihood(terms[:, :0], log_time, event, weight, before)
        begin = np.array([0.0, 1.0])
        null = fit_penalised(alone, group[[0, -1]], penalty, lower, upper, start=begin)
        coef = np.r_[null.coef[0], np.zeros(terms.shape[1]), null.coef[-1]]
        looks = {}
        for name in names:
            distribution = DISTRIBUTIONS[name]
            likelihood = AFTLikelihood(terms, log_time, event, weight, distribution)
            coef = _carried(coef, before, distribution)
            exact = _FIRST_LOOK if len(names) > 1 else 2e-4
            found = fit_penalised(likelihood, group, penalty, lower, upper, self.strength, coef, exact)
            # The marginal likelihood has flat priors on b and log σ, whichever the distribution.
            looks[name] = found.marginal - 2 * np.log(found.coef[-1]), likelihood, found
            coef, penalty, before = found.coef, found.penalty / self.strength, distribution
        best = max(looks, key=lambda one: looks[one][0])
        self.looks_ = {name: float(look[0]) for name, look in looks.items()}
        _, likelihood, found = looks[best]
        if len(names) > 1:
            penalty = found.penalty / self.strength
            found = fit_penalised(likelihood, group, penalty, lower, upper, self.strength, found.coef)
        return best, found

    def _location(self, X: Features) -> FloatArray:
        straight = (self.coef_ * self.terms_.scale)[self.terms_.varying]
        out: FloatArray = self.intercept_ + self.terms_(X) @ np.r_[straight, self.bend_coef_]
        return out

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
        arrays = {name: getattr(self, name) for name in ("coef_", "bend_coef_", "penalties_", "freedom_", "times_")}
        for name in ("center", "scale", "lower", "upper", "varying"):
            arrays[f"terms.{name}"] = getattr(self.terms_, name)
        for one in self.terms_.bends:
            for part in ("knots", "line", "mix"):
                arrays[f"bend.{one.column}.{part}"] = getattr(one, part)
        header = {
            "distribution": self.distribution_,
            "sigma": self.sigma_,
            "intercept": self.intercept_,
            "bent": [one.column for one in self.terms_.bends],
        }
        return header, arrays

    def set_state(self, header: Header, arrays: Arrays) -> None:
        for name in ("coef_", "bend_coef_", "penalties_", "freedom_", "times_"):
            setattr(self, name, arrays[name])
        bends = [Bends(k, *(arrays[f"bend.{k}.{part}"] for part in ("knots", "line", "mix"))) for k in header["bent"]]
        parts = {name: arrays[f"terms.{name}"] for name in ("center", "scale", "lower", "upper", "varying")}
        self.terms_ = Terms(**parts, bends=tuple(bends))
        self.distribution_, self.sigma_ = header["distribution"], float(header["sigma"])
        self.intercept_ = float(header["intercept"])
        self.log_likelihood_ = float(header["training"]["log_likelihood"])


def _carried(coef: FloatArray, before: Distribution, after: Distribution) -> FloatArray:
    """Return the coefficients under which another distribution has the same means and deviations of log times."""
    sigma = before.deviation / after.deviation / coef[-1]
    location = coef[0] / coef[-1] + before.mean / coef[-1] - after.mean * sigma
    return np.r_[location, coef[1:-1] / coef[-1], 1.0] / sigma


register(
    ModelKind(
        name="spline-aft",
        model=SplineAFT,
        meaning="accelerated failure times with bent effects; the data choose distribution and penalties",
        space={"knots": Int(0, 7), "strength": Float(0.1, 10.0, log=True)},
        is_member=True,
    )
)
