"""Accelerated failure times with effects that may bend; the data choose the distribution and the penalties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec
import numpy as np

from dcsurv.arithmetic import Value
from dcsurv.curves import Interpolation
from dcsurv.kinds import ModelKind, register
from dcsurv.models.additive import AdditiveEstimator, counted, first_look
from dcsurv.models.aft_likelihood import DISTRIBUTIONS, PULL, AFTLikelihood, Distribution
from dcsurv.models.base import Features
from dcsurv.models.baseline import read_times
from dcsurv.models.bends import Bends, find_bends, from_arrays, place_knots, to_arrays
from dcsurv.models.penalised import PenalisedFit, Penalties, fit_penalised
from dcsurv.models.ranges import Range, WholeNumber
from dcsurv.persistence import Arrays, Header
from dcsurv.plain import Finite, Positive, declared
from dcsurv.search_space import Choice, Float
from dcsurv.target import FloatArray, IntArray, Outcome

DistributionName: TypeAlias = Literal["weibull", "log-logistic", "log-normal"]

# Times below this share of the median count as this: log 0 is none, and the logarithms of a few seconds among years
# would outweigh everybody else's.
_SHORTEST = 1e-3
# The penalty of the clock's bends begins at one per event, and stays between these.
_LEAST_PENALTY, _MOST_PENALTY_PER_EVENT = 0.01, 1000.0
# A first look at a distribution ends with a step that changes no z by more.
_FIRST_LOOK = 0.02
_MAX_NODES = 256
# Patients, by quantiles of their locations, whose curves decide where nodes are, and the share of nodes that are spread
# evenly, wherever curves fall.
_NODES_FOR, _EVENLY = (0.0, 0.02, 0.1, 0.3, 0.6, 1.0), 0.1


class _Error(msgspec.Struct):
    distribution_: DistributionName
    sigma_: Positive
    intercept_: Finite
    unit_: Positive


class _State(msgspec.Struct):
    """What the header of a file has to say of a SplineAFT, besides its effects."""

    error: _Error


@dataclass(kw_only=True, repr=False, eq=False)
class SplineAFT(AdditiveEstimator):
    """Accelerated failure times with smooth effects: h(T) = b + Σ (β_j x_j + b_j(x_j)) + σ e, h(t) near log t.

    A feature stretches or shortens the time to the event. Effects are as in :class:`SplineCox`: straight, with bends
    that are penalised. The distribution of the error e and with it that of T given x is the one of three with which
    the data are likeliest once effects are integrated out. The clock h is the logarithm, from which it departs by
    a penalised spline as far as the data ask for; the penalties are those with which the data are likeliest.

    As long as the clock is straight, exp(β) is the factor by which a unit of the feature multiplies the time to the
    event. If it is bent the model is a linear transformation model: hazards are proportional with the Weibull
    distribution, odds with the log-logistic. Curves are smooth, unlike those of the Cox models.

    Times below a thousandth of the median time, 0 among them, count as a thousandth of it.

    Parameters
    ----------
    distribution : {"weibull", "log-logistic", "log-normal"} or None, default None
        Of T given x; None lets the data choose.
    time_knots : int, default 5
        Of the spline in log time; fewer than 3 leave the clock straight.

    Attributes
    ----------
    distribution_ : str
        The distribution that was used.
    coef_ : ndarray of shape (p,)
        β, one per column after preprocessing, in the units that the preprocessing makes: positive for longer times.
        Bends are uncorrelated with their column, so that it is the trend.
    intercept_ : float
        b, of the average patient, in the logarithm of the unit of the times.
    sigma_ : float
        σ. One over it is the shape of Weibull and log-logistic distributions.
    penalties_ : dict
        The penalties that were used, of ``"straight"`` effects and of ``"bends"``, both of coefficients divided by σ,
        and of the ``"clock"``.
    degrees_of_freedom_ : dict
        How many parameters each of these amounts to after the penalty.
    log_likelihood_ : float
        The log likelihood, without penalties.

    Examples
    --------
    >>> from dcsurv import SplineAFT
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric(labels="measured")
    >>> model = SplineAFT().fit(X[["age", "chemotherapy"]], y)
    >>> model.distribution_
    'weibull'
    >>> ages = X[["age", "chemotherapy"]].iloc[[0, 0, 0]].assign(age=[40, 60, 80])
    >>> model.partial_effects(ages)["age"].round(1).tolist()  # the log time, against the average
    [0.4, 0.1, -0.7]

    References
    ----------
    J. Burridge: A note on maximum likelihood estimation for regression models using grouped data. Journal of the Royal
    Statistical Society B 43 (1981).

    P. Royston and M. K. B. Parmar: Flexible parametric proportional-hazards and proportional-odds models for censored
    survival data. Statistics in Medicine 21 (2002).
    """

    distribution: DistributionName | None = None
    time_knots: int = 5

    interpolation: ClassVar[Interpolation] = "linear"
    ranges: ClassVar[dict[str, Range]] = {**AdditiveEstimator.ranges, "time_knots": WholeNumber(0)}

    def check_parameters(self) -> None:
        """Refuse parameters that cannot be, before anything is trained."""
        super().check_parameters()
        if self.distribution is not None and self.distribution not in DISTRIBUTIONS:
            known = ", ".join(repr(one) for one in DISTRIBUTIONS)
            raise ValueError(f"distribution is {self.distribution!r}, but None or one of {known} is expected.")

    def fit_prepared(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        columns, time, event, weight = counted(X, y, weight)
        events = int(event.sum())
        self.unit_ = float(np.median(time[time > 0])) if (time > 0).any() else 1.0
        log_time = np.log(np.maximum(time / self.unit_, _SHORTEST))
        design = self.effect_terms(columns, time, event, weight)
        clock = self._find_clock(log_time[event], weight[event])
        times = np.column_stack([log_time, *(one(log_time) for one in clock)])

        def likelihood(of: slice) -> AFTLikelihood:
            at = log_time[of][event[of]]
            speeds = np.column_stack([np.ones(len(at)), *(one.slope(at) for one in clock)])
            known = DISTRIBUTIONS[self.distribution or "weibull"]
            return AFTLikelihood(design.terms[of], times[of], speeds, event[of], weight[of], known)

        names, penalties = design.names, design.penalties
        group = np.r_[-1, design.group, -1, np.full(times.shape[1] - 1, len(names))]
        if clock:
            names = (*names, "clock")
            penalties = penalties.and_another(events, _LEAST_PENALTY, _MOST_PENALTY_PER_EVENT * events)
        some = first_look(len(time))
        looked_at = likelihood(some)
        candidates = list(DISTRIBUTIONS) if self.distribution is None else [self.distribution]
        self.distribution_, found = likeliest(looked_at, candidates, group, penalties)
        best = (looked_at if some.step == 1 else likelihood(slice(None))).of(DISTRIBUTIONS[self.distribution_])
        found = fit_penalised(best, group, penalties.from_here(found.penalty), found.coef)
        a = 1 + design.terms.shape[1]
        self.sigma_ = 1.0 / float(found.coef[a])
        self.intercept_ = float(found.coef[0]) * self.sigma_ + float(np.log(self.unit_))
        self.clock_ = [one.summed(found.coef[a + 1 :] * self.sigma_) for one in clock]
        self.keep_effects(design, found.coef[1:a] * self.sigma_)
        self.times_ = self._place_nodes(self._location(columns), float(time.max()) or 1.0)
        log_likelihood = found.log_likelihood + 0.5 * PULL / self.sigma_**2
        log_likelihood -= float(weight[event] @ (log_time[event] + np.log(self.unit_)))  # of T, not of log T
        return {**self.keep_summary(names, found, log_likelihood), "fitted_to": len(time)}

    def _find_clock(self, log_time: FloatArray, weight: FloatArray) -> list[Bends]:
        """Return the bends of log time, fitted to the times of the events; none or one entry."""
        if self.time_knots < 3:
            return []
        one = find_bends(log_time, 0, place_knots(np.sort(log_time), int(self.time_knots)), weight)
        return [] if one is None else [one]

    def _location(self, X: Features | FloatArray) -> FloatArray:
        return self.intercept_ + self.sum_of_effects(X)

    def _clock(self, times: FloatArray) -> FloatArray:
        """Return h at ascending times."""
        scaled = np.log(times / self.unit_)
        out = np.log(self.unit_) + scaled + sum(one(scaled)[:, 0] for one in self.clock_)
        return np.maximum.accumulate(out)  # it ascends at events, and hardly ever not between them

    def _survival(self, location: FloatArray, times: FloatArray) -> FloatArray:
        z = np.subtract.outer(self._clock(times), location)  # one row per time
        z /= self.sigma_
        return DISTRIBUTIONS[self.distribution_].survival(z).T

    def _place_nodes(self, location: FloatArray, last: float) -> FloatArray:
        """Return times up to the last one between which straight lines are near the curves of all patients."""
        fine = last * np.r_[np.geomspace(1e-6, 0.01, 400, endpoint=False), np.linspace(0.01, 1.0, 2000)]
        fallen = 1.0 - self._survival(np.quantile(location, _NODES_FOR), fine)
        total = fallen.mean(axis=0) + _EVENLY * fine / last
        # Denser at the beginning, where a power of t is nowhere near a straight line.
        falls = total[-1] * np.linspace(0.0, 1.0, _MAX_NODES + 1)[1:-1] ** 1.5
        places = np.interp(falls, np.r_[0.0, total], np.r_[0.0, fine])
        nodes: FloatArray = np.unique(np.r_[places[places < last], last])
        return nodes

    @property
    def nodes(self) -> FloatArray:
        return self.times_

    def survival_at_nodes(self, X: Features) -> FloatArray:
        return self._survival(self._location(X), self.times_)

    def survival_at(self, X: Features, times: FloatArray) -> FloatArray:
        return self._survival(self._location(X), np.minimum(times, self.times_[-1]))

    def survival_arithmetic(self, prepared: Value) -> Value:
        return self.survival_arithmetic_at(prepared, self.times_)

    def survival_arithmetic_at(self, prepared: Value, times: FloatArray) -> Value:
        location = self.effects_arithmetic(prepared) + self.intercept_
        z = (self._clock(np.minimum(times, self.times_[-1])) - location) / self.sigma_
        return DISTRIBUTIONS[self.distribution_].arithmetic(z)

    def get_state(self) -> tuple[Header, Arrays]:
        names = ("distribution_", "sigma_", "intercept_", "unit_")
        clock = {f"clock.{name}": array for name, array in to_arrays(self.clock_).items()}
        return {"error": {name: getattr(self, name) for name in names}}, self.effects_to_arrays() | clock | {
            "times_": self.times_
        }

    def set_state(self, header: Header, arrays: Arrays) -> None:
        self.effects_from_arrays(header, arrays)
        error = declared(header, _State).error
        self.distribution_, self.sigma_ = error.distribution_, error.sigma_
        self.intercept_, self.unit_ = error.intercept_, error.unit_
        self.clock_ = from_arrays({name.removeprefix("clock."): arrays[name] for name in arrays if "clock." in name}, 1)
        self.times_ = read_times(arrays, "times_")
        if self.times_[0] <= 0:
            raise ValueError("its nodes do not ascend from above 0")


def likeliest(
    likelihood: AFTLikelihood, names: Sequence[str], group: IntArray, penalties: Penalties
) -> tuple[str, PenalisedFit]:
    """Return the distribution under which the data are likeliest, and a rough fit of it.

    Each is fitted beginning where the one before ended.
    """
    a = likelihood.at_a
    first = likelihood.of(DISTRIBUTIONS[names[0]])
    # Without effects to begin with: two coefficients, of which the first guess leaves no z large.
    start = np.array([0.0, min(1.0, 4.0 / max(float(first.terms[:, a].max()), 1.0))])
    alone = fit_penalised(first.without_features(), group[[0, a]], penalties, start, _FIRST_LOOK)
    coef = np.zeros(len(group))
    coef[[0, a]] = alone.coef
    before = first.distribution
    looks = {}
    for name in names:
        likelihood = likelihood.of(DISTRIBUTIONS[name])
        coef = _carried(coef, a, before, likelihood.distribution)
        found = fit_penalised(likelihood, group, penalties, coef, _FIRST_LOOK)
        # The priors of b and of log σ are flat, and with them those of b / σ and 1 / σ are not.
        looks[name] = found.marginal - 2 * np.log(found.coef[a]), found
        coef, before = found.coef, likelihood.distribution
        penalties = penalties.from_here(found.penalty)
    best = max(looks, key=lambda name: float(looks[name][0]))
    return best, looks[best][1]


def _carried(coef: FloatArray, a: int, before: Distribution, after: Distribution) -> FloatArray:
    """Return the coefficients with which another distribution has the same means and deviations of log times."""
    ratio = after.deviation / before.deviation
    out = coef * ratio
    out[0] = (coef[0] + before.mean) * ratio - after.mean
    return out


register(
    ModelKind(
        name="spline-aft",
        model=SplineAFT,
        meaning="accelerated failure times with effects that may bend; the data choose distribution and penalties",
        space={"knots": Choice((0, 3, 4, 5, 6, 8)), "strength": Float(0.1, 10.0, log=True)},
        is_member=True,
    )
)
