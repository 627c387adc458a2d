"""Cox's proportional hazards with effects that may bend, and penalties that the data choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dcsurv.arithmetic import Value
from dcsurv.kinds import ModelKind, register
from dcsurv.models.additive import AdditiveEstimator, counted, first_look
from dcsurv.models.base import Features
from dcsurv.models.baseline import (
    proportional_arithmetic,
    proportional_survival,
    read_baseline,
    relative_risk,
    thinned,
)
from dcsurv.models.partial_likelihood import PartialLikelihood
from dcsurv.models.penalised import fit_penalised
from dcsurv.nonparametric import StepFunction, breslow
from dcsurv.persistence import Arrays, Header
from dcsurv.search_space import Choice, Float
from dcsurv.target import FloatArray, Outcome


@dataclass(kw_only=True, repr=False, eq=False)
class SplineCox(AdditiveEstimator):
    """Proportional hazards with smooth effects: S(t | x) = exp(-H0(t) exp(Σ β_j x_j + b_j(x_j))).

    Each column has a straight effect, and each with three or more values bends besides: a natural cubic spline, which
    is straight beyond the outer knots. Beyond the range of the training patients an effect goes on for a quarter of
    that range, and is then held. Straight effects and bends are drawn towards 0 by one penalty each, whose strength
    is the one with which the data are likeliest; no patients are held out for that. Efron's rule for ties, Breslow's
    H0.

    With few events this is a ridge regression; with many, and effects that are not straight, an additive model. Tables
    with more than 150 columns, or more columns than half of the patients, have straight effects only, and with more
    than 1,000 columns and patients those along the 1,000 longest principal axes. Of more than 30,000 patients that many
    stand for all: half of them with an event or more, evenly chosen along their times, and weighted;
    ``training_summary_["fitted_to"]`` has the number. The method ``partial_effects(X)`` returns the effect of each
    column, bend and all.

    Attributes
    ----------
    coef_ : ndarray of shape (p,)
        β, one per column after preprocessing, in the units that the preprocessing makes. Bends are uncorrelated with
        their column, so that it is the trend.
    penalties_ : dict
        The penalties that were used, of the ``"straight"`` effects and of the ``"bends"``.
    degrees_of_freedom_ : dict
        How many parameters each of these amounts to after the penalty.
    log_likelihood_ : float
        The log partial likelihood, without the penalty.

    Examples
    --------
    >>> from dcsurv import SplineCox
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric(labels="measured")
    >>> model = SplineCox().fit(X[["age", "chemotherapy"]], y)
    >>> {name: round(value, 1) for name, value in model.degrees_of_freedom_.items()}
    {'straight': 2.0, 'bends': 2.7}
    >>> ages = X[["age", "chemotherapy"]].iloc[[0, 0, 0]].assign(age=[40, 60, 80])
    >>> model.partial_effects(ages)["age"].round(1).tolist()  # the log hazard, against the average
    [-0.6, -0.2, 1.0]

    References
    ----------
    D. R. Cox: Regression models and life-tables. Journal of the Royal Statistical Society B 34 (1972).

    S. N. Wood and M. Fasiolo: A generalized Fellner-Schall method for smoothing parameter optimization with application
    to Tweedie location, scale and shape models. Biometrics 73 (2017).
    """

    def fit_prepared(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        columns, time, event, weight = counted(X, y, weight)
        design, found = self.effect_terms(columns, time, event, weight), None
        penalties, start = design.penalties, None
        some = first_look(len(time))
        if design.terms.shape[1] and some.step > 1:
            rough = PartialLikelihood(design.terms[some], time[some], event[some], weight[some])
            found = fit_penalised(rough, design.group, penalties)
            penalties, start = penalties.from_here(found.penalty), found.coef
        if design.terms.shape[1]:
            likelihood = PartialLikelihood(design.terms, time, event, weight)
            found = fit_penalised(likelihood, design.group, penalties, start)
        self.keep_effects(design, np.zeros(0) if found is None else found.coef)
        summary = self.keep_summary(design.names, found, None if found is None else found.log_likelihood)
        times, hazard = breslow(time, event, relative_risk(self._log_risk(columns)), weight)
        kept = thinned(len(times))
        self.times_, self.cumulative_hazard_ = times[kept], hazard[kept]
        return {**summary, "fitted_to": len(time)}

    def _log_risk(self, X: Features | FloatArray) -> FloatArray:
        return self.sum_of_effects(X)

    @property
    def nodes(self) -> FloatArray:
        return self.times_

    def survival_at_nodes(self, X: Features) -> FloatArray:
        return proportional_survival(self.cumulative_hazard_, self._log_risk(X))

    def survival_at(self, X: Features, times: FloatArray) -> FloatArray:
        hazard = StepFunction(self.times_, self.cumulative_hazard_, initial=0.0)(times)
        return proportional_survival(hazard, self._log_risk(X))

    def survival_arithmetic(self, prepared: Value) -> Value:
        return proportional_arithmetic(self.cumulative_hazard_, self.effects_arithmetic(prepared))

    def survival_arithmetic_at(self, prepared: Value, times: FloatArray) -> Value:
        hazard = StepFunction(self.times_, self.cumulative_hazard_, initial=0.0)(times)
        return proportional_arithmetic(hazard, self.effects_arithmetic(prepared))

    def get_state(self) -> tuple[Header, Arrays]:
        return {}, self.effects_to_arrays() | {"times_": self.times_, "cumulative_hazard_": self.cumulative_hazard_}

    def set_state(self, header: Header, arrays: Arrays) -> None:
        self.effects_from_arrays(header, arrays)
        self.times_, self.cumulative_hazard_ = read_baseline(arrays, "times_", "cumulative_hazard_")


register(
    ModelKind(
        name="spline-cox",
        model=SplineCox,
        meaning="Cox with effects that may bend, and penalties that the data choose",
        space={"knots": Choice((0, 3, 4, 5, 6, 8)), "strength": Float(0.1, 10.0, log=True)},
        is_member=True,
    )
)
