"""Cox's proportional hazards with bent effects, and penalties that the data choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dcsurv.kinds import ModelKind, register
from dcsurv.models.base import Features
from dcsurv.models.baseline import proportional_survival, relative_risk, thinned
from dcsurv.models.bends import Bends, bends_of, is_number, knots_of
from dcsurv.models.estimator import SurvivalEstimator
from dcsurv.models.partial_likelihood import PartialLikelihood
from dcsurv.models.penalised import fit_penalised
from dcsurv.models.ranges import NoneOr, Number, Range, WholeNumber
from dcsurv.nonparametric import breslow
from dcsurv.persistence import Arrays, Header
from dcsurv.search_space import Float, Int
from dcsurv.target import FloatArray, Outcome

# Columns with at least so many distinct values are numbers, whose effect may bend.
_LEAST_DISTINCT = 10
# Tables with more columns have straight effects only.
_MOST_BENT = 150
_PENALTIES = 0.01, 1e5
_MARGIN = 0.25


@dataclass(kw_only=True, repr=False, eq=False)
class SplineCox(SurvivalEstimator):
    """Proportional hazards with smooth, penalised effects: S(t | x) = exp(-H0(t) exp(Σ f_j(x_j))).

    Parameters
    ----------
    knots : int or None, default None
        Of the spline of each number; 0 leaves all effects straight, None follows the number of events.
    penalty : float or None, default None
        Strength of the ridge penalty on straight effects; None lets the data choose.
    bend_penalty : float or None, default None
        Strength of the penalty on bends; None lets the data choose.
    strength : float, default 1.0
        What penalties that the data choose are multiplied by.
    """

    knots: int | None = None
    penalty: float | None = None
    bend_penalty: float | None = None
    strength: float = 1.0

    ranges: ClassVar[dict[str, Range]] = {
        "knots": NoneOr(WholeNumber(0)),
        "penalty": NoneOr(Number(above=0)),
        "bend_penalty": NoneOr(Number(above=0)),
        "strength": Number(above=0),
    }

    def fit_prepared(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        rows = np.arange(len(y)) if weight is None else np.flatnonzero(weight > 0)
        columns, counted = X[rows].astype(np.float64), np.ones(len(rows)) if weight is None else weight[rows]
        time, event = np.ascontiguousarray(y["time"])[rows], np.ascontiguousarray(y["event"])[rows]
        share = counted / counted.sum()
        p = columns.shape[1]
        self.center_ = share @ columns
        spread = np.sqrt(share @ (columns - self.center_) ** 2)
        varying = np.flatnonzero(np.ptp(columns, axis=0) > 0)
        spread[np.setdiff1d(np.arange(p), varying)] = 1.0
        self.lower_, self.upper_ = np.full(p, -np.inf), np.full(p, np.inf)
        bends = self._fit_bends(columns, spread, counted, int(event.sum())) if p <= _MOST_BENT else []
        self.scale_ = spread
        self.bends_ = bends
        self.coef_ = np.zeros(p)
        self.bend_coef_ = np.zeros(sum(one.mix.shape[1] for one in bends))
        straight = (columns[:, varying] - self.center_[varying]) / spread[varying]
        bent = self._bent(columns)
        group = np.r_[np.zeros(len(varying), dtype=np.int64), np.ones(bent.shape[1], dtype=np.int64)]
        terms = np.column_stack([straight, bent])
        fixed = [self.penalty, self.bend_penalty]
        lower = np.array([_PENALTIES[0] if one is None else one for one in fixed])
        upper = np.array([_PENALTIES[1] if one is None else one for one in fixed])
        d = float(event.sum())
        start = np.array([0.1 * d, d])
        if terms.shape[1]:
            found = fit_penalised(
                PartialLikelihood(terms, time, event, counted), group, start, lower, upper, self.strength
            )
            self.coef_[varying] = found.coef[: len(varying)] / spread[varying]
            self.bend_coef_ = found.coef[len(varying) :]
            self.penalties_ = found.penalty
            self.freedom_ = found.freedom
            self.found_ = found
        times, hazard = breslow(time, event, relative_risk(self._log_risk(X[rows])), counted)
        kept = thinned(len(times))
        self.times_, self.cumulative_hazard_ = times[kept], hazard[kept]
        return {}

    def _fit_bends(self, columns: FloatArray, spread: FloatArray, weight: FloatArray, events: int) -> list[Bends]:
        knots = self.knots
        if knots is None:
            knots = int(np.clip(3 + events // 50, 3, 6))
        found = []
        ordered = np.sort((columns - self.center_) / spread, axis=0)
        for k in range(columns.shape[1]):
            x = np.ascontiguousarray(ordered[:, k])
            if knots < 3 or not is_number(x, _LEAST_DISTINCT):
                continue
            margin = _MARGIN * (x[-1] - x[0])
            self.lower_[k], self.upper_[k] = x[0] - margin, x[-1] + margin
            places = knots_of(x, knots)
            if len(places) < 3:
                continue
            one = bends_of((columns[:, k] - self.center_[k]) / spread[k], k, places, weight)
            if one is not None:
                found.append(one)
        return found

    def _bent(self, columns: FloatArray) -> FloatArray:
        parts = [
            one((columns[:, one.column] - self.center_[one.column]) / self.scale_[one.column]) for one in self.bends_
        ]
        return np.column_stack(parts) if parts else np.zeros((len(columns), 0))

    def _log_risk(self, X: Features) -> FloatArray:
        held = (X.astype(np.float64) - self.center_) / self.scale_
        held = np.clip(held, self.lower_, self.upper_)
        out: FloatArray = held @ (self.coef_ * self.scale_)
        at = 0
        for one in self.bends_:
            n = one.mix.shape[1]
            out += one(held[:, one.column]) @ self.bend_coef_[at : at + n]
            at += n
        return out

    @property
    def nodes(self) -> FloatArray:
        return self.times_

    def survival_at_nodes(self, X: Features) -> FloatArray:
        return proportional_survival(self.cumulative_hazard_, self._log_risk(X))

    def get_state(self) -> tuple[Header, Arrays]:
        names = ("coef_", "center_", "scale_", "lower_", "upper_", "bend_coef_", "times_", "cumulative_hazard_")
        arrays = {name: getattr(self, name) for name in names}
        for one in self.bends_:
            for part in ("knots", "line", "mix"):
                arrays[f"bend.{one.column}.{part}"] = getattr(one, part)
        return {"bent": [one.column for one in self.bends_]}, arrays

    def set_state(self, header: Header, arrays: Arrays) -> None:
        names = ("coef_", "center_", "scale_", "lower_", "upper_", "bend_coef_", "times_", "cumulative_hazard_")
        for name in names:
            setattr(self, name, arrays[name])
        self.bends_ = [
            Bends(k, *(arrays[f"bend.{k}.{part}"] for part in ("knots", "line", "mix"))) for k in header["bent"]
        ]


register(
    ModelKind(
        name="spline-cox",
        model=SplineCox,
        meaning="Cox with bent effects and penalties that the data choose",
        space={"knots": Int(0, 7), "strength": Float(0.1, 10.0, log=True)},
        is_member=True,
    )
)
