"""Cox's proportional hazards with effects that may bend, and penalties that the data choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from dcsurv.kinds import ModelKind, register
from dcsurv.models.base import Features
from dcsurv.models.baseline import proportional_survival, relative_risk, thinned
from dcsurv.models.bends import Bends, find_bends, from_arrays, place_knots, to_arrays
from dcsurv.models.cox_summary import model_columns
from dcsurv.models.estimator import SurvivalEstimator
from dcsurv.models.partial_likelihood import PartialLikelihood
from dcsurv.models.penalised import PenalisedFit, Penalties, fit_penalised
from dcsurv.models.ranges import NoneOr, Number, Range, WholeNumber
from dcsurv.nonparametric import breslow
from dcsurv.persistence import Arrays, Header
from dcsurv.search_space import Choice, Float
from dcsurv.target import FloatArray, IntArray, Outcome

# Three knots, one more for every so many events, and no more than six.
_EVENTS_PER_KNOT, _MOST_KNOTS = 50, 6
# With more columns than this, or than half the patients, effects are straight; there are so many bends in all.
_MOST_BENT, _MOST_BENDS = 150, 200
# Beyond the training patients' values an effect goes on for this share of their range, and is held then.
_MARGIN = 0.25
# Penalties from a prior standard deviation of 10 to coefficients of a hundredth (bends: a thousandth) of their size
# without a penalty, for which a penalty of one per event is a half.
_LEAST_PENALTY, _MOST_PENALTY = 0.01, (100.0, 1000.0)
# Few events cannot tell a bend from chance. With fewer than the first number, bends are penalised more than straight
# effects; how much at least where straight effects are penalised away fades around the second.
_EVENTS_TO_BEND, _EVENTS_TO_BEND_FREELY = 300.0, 150.0

_GROUPS = "straight", "bends"


@dataclass(kw_only=True, repr=False, eq=False)
class SplineCox(SurvivalEstimator):
    """Proportional hazards with smooth effects: S(t | x) = exp(-H0(t) exp(Σ β_j x_j + b_j(x_j))).

    Each column has a straight effect, and each with three or more values bends besides: a natural cubic spline, which
    is straight beyond the outer knots. Beyond the range of the training patients an effect goes on for a quarter of
    that range, and is then held. Straight effects and bends are drawn towards 0 by one penalty each, whose strength
    is the one with which the data are likeliest; no patients are held out for that. Efron's rule for ties, Breslow's
    H0.

    With few events this is a ridge regression; with many, and effects that are not straight, an additive model. Tables
    with more than 150 columns, or more columns than half of the patients, have straight effects only. The method
    ``partial_effects(X)`` returns the effect of each column, bend and all.

    Parameters
    ----------
    knots : int or None, default None
        Of each spline; fewer than 3 leave all effects straight. None takes 3 to 6, one for every 50 events.
    penalty : float or None, default None
        Of straight effects: half of it times the sum of the squared coefficients, of columns in standard deviations (of
        two values: in halves of their distance), is taken from the log likelihood. None lets the data choose.
    bend_penalty : float or None, default None
        The same for the bends, each of which has a standard deviation of at most 1. None lets the data choose.
    strength : float, default 1.0
        What penalties that the data choose are multiplied by.

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
        columns, time, event = X[rows].astype(np.float64), y["time"][rows], y["event"][rows]
        weight = np.ones(len(rows)) if weight is None else weight[rows] / weight[rows].mean()
        self._fit_scale(columns, weight)
        scaled = (columns - self.center_) / self.scale_
        varying = np.flatnonzero(self.upper_ > self.lower_)
        bends = self._find_bends(scaled, varying, weight, int(event.sum()))
        self.coef_, self.bends_ = np.zeros(X.shape[1]), []
        found = None
        if len(varying):
            terms = np.column_stack([scaled[:, varying], *(one(scaled[:, one.column]) for one in bends)])
            found = self._estimate(terms, len(varying), time, event, weight)
            self.coef_[varying] = found.coef[: len(varying)] / self.scale_[varying]
            ends = len(varying) + np.cumsum([one.mix.shape[1] for one in bends], dtype=np.int64)
            self.bends_ = [
                one.summed(found.coef[end - one.mix.shape[1] : end]) for one, end in zip(bends, ends, strict=True)
            ]
        times, hazard = breslow(time, event, relative_risk(self._log_risk(X[rows])), weight)
        kept = thinned(len(times))
        self.times_, self.cumulative_hazard_ = times[kept], hazard[kept]
        summary = _summary(found)
        self._set_summary(summary)
        return summary

    def _fit_scale(self, columns: FloatArray, weight: FloatArray) -> None:
        """Learn the centre, the unit and the range of each column."""
        share = weight / weight.sum()
        low, high = columns.min(axis=0), columns.max(axis=0)
        self.center_ = share @ columns
        spread = np.sqrt(share @ (columns - self.center_) ** 2)
        # The unit of two values does not depend on how rare one of them is: an effect of a rare one is no larger.
        two = ((columns == low) | (columns == high)).all(axis=0)
        self.scale_ = np.where(two, (high - low) / 2, spread)
        self.scale_[~(self.scale_ > 0)] = 1.0
        margin = _MARGIN * (high - low)
        self.lower_, self.upper_ = low - margin, high + margin

    def _find_bends(self, scaled: FloatArray, varying: IntArray, weight: FloatArray, events: int) -> list[Bends]:
        count = min(3 + events // _EVENTS_PER_KNOT, _MOST_KNOTS) if self.knots is None else int(self.knots)
        if scaled.shape[1] > min(_MOST_BENT, len(scaled) // 2) or count < 3:
            return []
        if self.knots is None:
            count = min(count, 2 + max(_MOST_BENDS // max(len(varying), 1), 1))
        found = []
        for k in varying:
            x = np.ascontiguousarray(scaled[:, k])
            one = find_bends(x, int(k), place_knots(np.sort(x), count), weight)
            if one is not None:
                found.append(one)
        return found

    def _estimate(
        self, terms: FloatArray, straight: int, time: FloatArray, event: Any, weight: FloatArray
    ) -> PenalisedFit:
        """Return the fit of straight terms, then bends."""
        n, p = terms.shape
        turned = None
        if p > n and straight == p:  # one penalty on all: any axes will do, of which there are no more than patients
            terms, turned = _turned(terms)
        group = (np.arange(terms.shape[1]) >= (straight if turned is None else p)).astype(np.int64)
        groups = int(group.max(initial=0)) + 1
        events = float(event.sum())
        per_event = events * max(1.0, p / max(terms.shape[1], 1))  # a penalty that halves coefficients, roughly
        given = [self.penalty, self.bend_penalty][:groups]
        penalties = Penalties(
            start=per_event * np.array([0.1, 1.0])[:groups],
            lower=np.array([_LEAST_PENALTY if one is None else float(one) for one in given]),
            upper=np.array(
                [
                    most * per_event if one is None else float(one)
                    for one, most in zip(given, _MOST_PENALTY, strict=False)
                ]
            ),
            ratio=_EVENTS_TO_BEND / events,
            most=events * (_EVENTS_TO_BEND_FREELY / events) ** 3,
            strength=float(self.strength),
        )
        found = fit_penalised(PartialLikelihood(terms, time, event, weight), group, penalties)
        if turned is None:
            return found
        return PenalisedFit(turned @ found.coef, found.penalty, found.freedom, found.log_likelihood)

    def partial_effects(self, X: Any) -> pd.DataFrame:
        """Return what each column adds to the log hazard of patients, against the average of the training patients.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, one row per patient; to see the shape of an effect, one patient with several values.

        Returns
        -------
        DataFrame
            One row per patient, one column per column after preprocessing. A row's sum is the log relative risk.
        """
        check_is_fitted(self)
        names = [one.name for one in self._names()]
        index = X.index if isinstance(X, pd.DataFrame) else None
        return pd.DataFrame(self._effects(self.prepare(X)), columns=names, index=index)

    def _names(self) -> Any:
        return model_columns(self.preprocessor_, getattr(self, "feature_names_in_", None), len(self.coef_))

    def _held(self, X: Features) -> FloatArray:
        """Return columns in their units, held where the training patients' values are far."""
        return np.clip(X.astype(np.float64), self.lower_, self.upper_) - self.center_

    def _effects(self, X: Features) -> FloatArray:
        held = self._held(X)
        out: FloatArray = held * self.coef_
        for one in self.bends_:
            out[:, one.column] += one(held[:, one.column] / self.scale_[one.column])[:, 0]
        return out

    def _log_risk(self, X: Features) -> FloatArray:
        return self._effects(X).sum(axis=1)

    @property
    def nodes(self) -> FloatArray:
        return self.times_

    def survival_at_nodes(self, X: Features) -> FloatArray:
        return proportional_survival(self.cumulative_hazard_, self._log_risk(X))

    # --- files --------------------------------------------------------------------------------------------

    def get_state(self) -> tuple[Header, Arrays]:
        names = ("coef_", "center_", "scale_", "lower_", "upper_", "times_", "cumulative_hazard_")
        return {}, {name: getattr(self, name) for name in names} | to_arrays(self.bends_)

    def set_state(self, header: Header, arrays: Arrays) -> None:
        p = len(arrays["coef_"])
        for name in ("coef_", "center_", "scale_", "lower_", "upper_"):
            if arrays[name].shape != (p,) or not np.isfinite(arrays[name]).all():
                raise ValueError(f"{name} has the shape {arrays[name].shape}; {p} finite numbers are expected")
            setattr(self, name, arrays[name])
        if (self.scale_ <= 0).any() or (self.lower_ > self.upper_).any():
            raise ValueError("its columns have units or ranges that cannot be")
        times, hazard = arrays["times_"], arrays["cumulative_hazard_"]
        if times.ndim != 1 or times.shape != hazard.shape or not len(times):
            raise ValueError("its baseline hazard is incomplete")
        if not (np.isfinite(times).all() and np.isfinite(hazard).all()):
            raise ValueError("its baseline hazard holds values that are not finite")
        if (np.diff(times) <= 0).any() or (np.diff(hazard, prepend=0.0) < 0).any():
            raise ValueError("its baseline hazard does not ascend")
        self.times_, self.cumulative_hazard_ = times, hazard
        self.bends_ = from_arrays(arrays, p)
        self._set_summary(header["training"])

    def _set_summary(self, summary: Header) -> None:
        self.penalties_ = {name: float(value) for name, value in summary["penalties"].items()}
        self.degrees_of_freedom_ = {name: float(value) for name, value in summary["degrees_of_freedom"].items()}
        log_likelihood = summary["log_likelihood"]
        self.log_likelihood_ = float("nan") if log_likelihood is None else float(log_likelihood)


def _turned(terms: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return terms along their principal axes, without those of no length, and the axes as columns."""
    squares, left = np.linalg.eigh(terms @ terms.T)
    kept = squares > 1e-10 * squares[-1]
    length = np.sqrt(squares[kept])
    return left[:, kept] * length, terms.T @ (left[:, kept] / length)


def _summary(found: PenalisedFit | None) -> Header:
    """Return the penalties and what they left as plain data."""
    if found is None:  # no column varies
        return {"penalties": {}, "degrees_of_freedom": {}, "log_likelihood": None}
    return {
        "penalties": dict(zip(_GROUPS, found.penalty.tolist(), strict=False)),
        "degrees_of_freedom": dict(zip(_GROUPS, found.freedom.tolist(), strict=False)),
        "log_likelihood": found.log_likelihood,
    }


register(
    ModelKind(
        name="spline-cox",
        model=SplineCox,
        meaning="Cox with effects that may bend, and penalties that the data choose",
        space={"knots": Choice((0, 3, 4, 5, 6, 8)), "strength": Float(0.1, 10.0, log=True)},
        is_member=True,
    )
)
