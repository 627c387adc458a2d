"""Cox's proportional hazards model, fitted by lifelines."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np
import pandas as pd

from dcsurv._learn import check_is_fitted
from dcsurv.arithmetic import Value
from dcsurv.kinds import ModelKind, register
from dcsurv.messages import InputError, Message, ModelChoice, listed, plural
from dcsurv.models.base import Features
from dcsurv.models.baseline import (
    proportional_arithmetic,
    proportional_survival,
    read_baseline,
    relative_risk,
    thinned,
)
from dcsurv.models.cox_summary import (
    CoxInference,
    ModelColumn,
    effect_table,
    infer,
    model_columns,
    proportionality_table,
    summary_table,
)
from dcsurv.models.estimator import SurvivalEstimator
from dcsurv.models.partial_likelihood import PartialLikelihood
from dcsurv.models.penalised import Penalties, fit_penalised
from dcsurv.models.ranges import Number, Range
from dcsurv.nonparametric import breslow
from dcsurv.persistence import Arrays, Header, read_array
from dcsurv.plain import Count, Finite, declared
from dcsurv.preprocessing import Preprocessor
from dcsurv.search_space import Float
from dcsurv.target import FloatArray, Outcome

# A step that changes no log risk by more is the last one, and what the log-likelihood might gain after it.
_SMALLEST_STEP, _SMALLEST_GAIN = 1e-8, 1e-6
# More columns than this take minutes, and where they are more than patients also say nothing.
_MOST_COLUMNS = 1000
# Standard error of an effect per standard deviation, or of a level, above which an interval goes from 1/360 to 360 and
# says nothing.
_UNTOLD = 3.0
_NOT_CONVERGED = "Newton-Raphson failed to converge"
_NOT_IN_THE_FILE = (
    "standard errors and the proportional-hazards test are not in this model's file, which dcsurv 0.1 wrote; its "
    "hazard ratios are. Fit the model again to have the rest."
)


class _Training(msgspec.Struct):
    log_likelihood: Finite | None
    filled: dict[str, Count] = {}


class _State(msgspec.Struct):
    """What the header of a file has to say of a CoxPH."""

    training: _Training


@dataclass(kw_only=True, repr=False, eq=False)
class CoxPH(SurvivalEstimator):
    """Proportional hazards: S(t | x) = exp(-H0(t) exp(β x)); Efron's rule for ties, Breslow's H0.

    Parameters
    ----------
    penalizer : float, default 0.0001
        Strength of the ridge penalty (lifelines' scale). A little keeps collinear columns from diverging.

    Attributes
    ----------
    coef_ : ndarray of shape (p,)
        β, one per column after preprocessing, in the units that the preprocessing makes.
    log_likelihood_ : float
        Of the fit, as lifelines reports it.
    summary_ : DataFrame
        A row per column after preprocessing: ``feature``, the ``level`` of a category and the ``reference`` level that
        it is compared with; ``coef``, ``se``, ``z``, ``p``; ``hazard_ratio`` with its 95 % interval, ``lower`` and
        ``upper``, all per unit of the feature as it was passed (a year of age, not a standard deviation); and ``step``,
        a change of the feature that is easier to picture, such as 10 years. With sample weights the errors are robust.
    proportional_hazards_ : DataFrame
        A row per feature and one for all ("GLOBAL"): ``chi2``, ``df`` and ``p`` of the score test of whether effects
        change with 1 - KM(t), as R's ``cox.zph`` makes since survival 3.0. NaN with sample weights.
    effects_over_time_ : DataFrame
        ``effect`` of each column at some ``time`` with a pointwise 95 % band, ``lower`` and ``upper``: the scaled
        Schoenfeld residuals, smoothed by a natural spline; ``coef`` is what the model takes it for. Empty with sample
        weights or few events. :func:`dcsurv.figures.effects_over_time` draws it.
    remarks_ : list of str
        What to know when reading these: a penalty, weights, units.

    Examples
    --------
    >>> from dcsurv import CoxPH
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric(labels="measured")
    >>> model = CoxPH().fit(X[["age", "chemotherapy"]], y)
    >>> print(model.summary_[["hazard_ratio", "lower", "upper"]].round(3).to_string(index_names=False))
                      hazard_ratio  lower  upper
    age                      1.047  1.041  1.053
    chemotherapy_yes         2.261  1.908  2.680
    >>> model.proportional_hazards_["df"].tolist()
    [1, 1, 2]

    References
    ----------
    D. R. Cox: Regression models and life-tables. Journal of the Royal Statistical Society B 34 (1972).

    P. M. Grambsch and T. M. Therneau: Proportional hazards tests and diagnostics based on weighted residuals.
    Biometrika 81 (1994).
    """

    penalizer: float = 1e-4

    ranges: ClassVar[dict[str, Range]] = {"penalizer": Number(least=0)}

    def fit_prepared(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        if has_too_many_columns(X):
            raise InputError(
                f"CoxPH has an effect for every column, and {X.shape[1]:,} are more than {plural(len(X), 'patient')} "
                "can tell apart.",
                remedy=Message(
                    "Use {ridge}, which draws effects to 0, or the default model, which also selects; or pass fewer "
                    "columns, chosen without looking at the outcome.",
                    ridge=ModelChoice("SplineCox"),
                ),
            )
        columns = X.astype(np.float64)
        # lifelines scales by the standard deviation; a constant column has none, and no effect either.
        varying = np.flatnonzero(np.ptp(columns if weight is None else columns[weight > 0], axis=0) > 0)
        self.coef_ = np.zeros(X.shape[1])
        self.log_likelihood_ = float("nan")
        variance = None
        if len(varying):
            self.coef_[varying], self.log_likelihood_, variance = self._estimate(columns[:, varying], y, weight)
        self.center_ = columns.mean(axis=0)
        times, hazard = breslow(np.ascontiguousarray(y["time"]), y["event"], relative_risk(self._log_risk(X)), weight)
        kept = thinned(len(times))
        self.times_, self.cumulative_hazard_ = times[kept], hazard[kept]
        self.inference_: CoxInference | None = infer(
            columns, y, self.coef_[varying], variance, weight, varying, self._columns()
        )
        return {
            "log_likelihood": None if np.isnan(self.log_likelihood_) else self.log_likelihood_,
            "filled": dict(self.preprocessor_.filled_) if isinstance(self.preprocessor_, Preprocessor) else {},
        }

    def _estimate(self, X: FloatArray, y: Outcome, weight: FloatArray | None) -> tuple[FloatArray, float, FloatArray]:
        """Return coefficients, log-likelihood and inverse of the information, by lifelines wherever it converges."""
        from lifelines import CoxPHFitter
        from lifelines.exceptions import ConvergenceError, ConvergenceWarning, StatisticalWarning
        from scipy.linalg import LinAlgWarning

        frame = pd.DataFrame(X).add_prefix("x").assign(time=y["time"], event=y["event"])
        if weight is not None:
            frame = frame.assign(weight=weight)[weight > 0]
        fitter = CoxPHFitter(penalizer=self.penalizer)
        with warnings.catch_warnings():
            # That weights are not whole numbers matters to standard errors, which are made robust here, and rare
            # categories or many columns are no reason to worry as long as the fit converges.
            warnings.simplefilter("ignore", StatisticalWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("error", _NOT_CONVERGED, ConvergenceWarning)
            warnings.simplefilter("error", LinAlgWarning)
            try:
                fitter.fit(frame, "time", "event", weights_col=None if weight is None else "weight")
            except (ConvergenceWarning, ConvergenceError, LinAlgWarning, np.linalg.LinAlgError):
                # Its steps become shorter and shorter where columns are nearly the same, or have extreme values.
                return self._estimate_by_halving(X, y, weight)
        return fitter.params_.to_numpy(), float(fitter.log_likelihood_), fitter.variance_matrix_.to_numpy()

    def _estimate_by_halving(
        self, X: FloatArray, y: Outcome, weight: FloatArray | None
    ) -> tuple[FloatArray, float, FloatArray]:
        """Return the same by steps that are halved until the likelihood, with lifelines' penalty, does not fall."""
        from scipy.linalg import LinAlgWarning, solve

        rows = np.ones(len(X), dtype=bool) if weight is None else weight > 0
        used = np.ones(len(X)) if weight is None else weight
        scale = X[rows].std(axis=0, ddof=1)
        likelihood = PartialLikelihood(
            (X[rows] - X[rows].mean(axis=0)) / scale, y["time"][rows], y["event"][rows], used[rows]
        )
        ridge = float(rows.sum() * self.penalizer)
        fixed = np.array([ridge])
        group = np.full(len(scale), 0 if ridge > 0 else -1)
        coef = fit_penalised(likelihood, group, Penalties(fixed, fixed, fixed), smallest_step=_SMALLEST_STEP).coef
        there = likelihood.evaluate(coef, likelihood.terms @ coef)
        information = likelihood.information(there) + ridge * np.eye(len(coef))
        slope = likelihood.slope(there) - ridge * coef
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", LinAlgWarning)
                inverse = solve(information, np.eye(len(coef)), assume_a="pos")
        except (LinAlgWarning, np.linalg.LinAlgError) as error:
            raise self._without_maximum() from error
        if not slope @ inverse @ slope < _SMALLEST_GAIN:
            raise self._without_maximum()
        return coef / scale, float(there.value - 0.5 * ridge * coef @ coef), inverse / np.outer(scale, scale)

    def _without_maximum(self) -> ValueError:
        return ValueError(
            "the Cox model did not converge. Columns that determine each other or the outcome are the usual cause: "
            f"drop them, or raise penalizer (it is {self.penalizer:g})."
        )

    @property
    def summary_(self) -> pd.DataFrame:
        """One row per column after preprocessing: hazard ratio per original unit, its error, interval and p."""
        check_is_fitted(self)
        if self.inference_ is None:
            warnings.warn(_NOT_IN_THE_FILE, UserWarning, stacklevel=2)
        return summary_table(self._columns(), self.coef_, self.inference_)

    @property
    def proportional_hazards_(self) -> pd.DataFrame:
        """The proportional-hazards test of each feature, and of all ("GLOBAL"): χ², degrees of freedom, p."""
        check_is_fitted(self)
        return proportionality_table(self._columns(), self.inference_)

    @property
    def effects_over_time_(self) -> pd.DataFrame:
        """Coefficients as smooth functions of time, with a pointwise 95 % band; empty if events are too few."""
        check_is_fitted(self)
        return effect_table(self._columns(), self.coef_, self.inference_)

    @property
    def remarks_(self) -> list[str]:
        """What to know when reading :attr:`summary_`: penalty, unknown values, weights, units."""
        check_is_fitted(self)
        out = []
        if self.penalizer > 0:
            out.append(
                f"The fit is penalised (penalizer {self.penalizer:g}): coefficients are drawn towards 0, and intervals "
                "and p do not account for that."
            )
        if filled := self.training_summary_.get("filled"):  # files before 0.2 have none
            out.append(
                "Unknown values, and levels that too few patients have, count as the median or the most frequent "
                f"level: of {self.training_summary_['patients']:,} patients, {_counts(filled)}. Hazard ratios of that "
                "level, and against it, include these patients, and intervals and p do not account for it."
            )
        errors = np.zeros(0) if self.inference_ is None else self.inference_.standard_error
        if untold := [one.name for one, error in zip(self._columns(), errors, strict=False) if error > _UNTOLD]:
            out.append(
                f"These patients do not tell the effect of {listed(untold)}: nearly all or none of those who differ in "
                "it had the event, or other columns say the same. Its hazard ratio and interval mean nothing."
            )
        if self.training_summary_["weighted"]:
            out.append(
                "Patients were weighted: standard errors are robust (sandwich), and proportional hazards, whose test "
                "does not hold with weights, were not tested."
            )
        if not isinstance(self.preprocessor_, Preprocessor | None):
            out.append(f"Hazard ratios are per unit after preprocessing with {type(self.preprocessor_).__name__}.")
        return out

    def _columns(self) -> list[ModelColumn]:
        return model_columns(self.preprocessor_, getattr(self, "feature_names_in_", None), len(self.coef_))

    def _log_risk(self, X: Features) -> FloatArray:
        out: FloatArray = (X.astype(np.float64) - self.center_) @ self.coef_
        return out

    @property
    def nodes(self) -> FloatArray:
        return self.times_

    def survival_at_nodes(self, X: Features) -> FloatArray:
        return proportional_survival(self.cumulative_hazard_, self._log_risk(X))

    def survival_arithmetic(self, prepared: Value) -> Value:
        return proportional_arithmetic(self.cumulative_hazard_, (prepared - self.center_) @ self.coef_[:, None])

    def get_state(self) -> tuple[Header, Arrays]:
        names = ("coef_", "center_", "times_", "cumulative_hazard_")
        more = {} if self.inference_ is None else self.inference_.to_arrays()
        return {}, {name: getattr(self, name) for name in names} | more

    def set_state(self, header: Header, arrays: Arrays) -> None:
        self.coef_ = read_array(arrays, "coef_", (None,))
        self.center_ = read_array(arrays, "center_", self.coef_.shape)
        self.times_, self.cumulative_hazard_ = read_baseline(arrays, "times_", "cumulative_hazard_")
        self.inference_ = CoxInference.from_arrays(arrays, len(self.coef_))
        log_likelihood = declared(header, _State).training.log_likelihood
        self.log_likelihood_ = float("nan") if log_likelihood is None else log_likelihood

    @property
    def n_columns(self) -> int:
        return len(self.coef_)


def has_too_many_columns(X: Any) -> bool:
    """Tell whether a table has more columns than CoxPH takes: many, and more than patients."""
    return bool(X.shape[1] > max(X.shape[0], _MOST_COLUMNS))


def _counts(of: dict[str, int]) -> str:
    """Return how many there are of each, most first."""
    ordered = sorted(of, key=of.__getitem__, reverse=True)
    more = f" and {len(of) - 6} more columns" if len(of) > 6 else ""
    return ", ".join(f"{of[name]:,} in {name!r}" for name in ordered[:6]) + more


register(
    ModelKind(
        name="coxph",
        model=CoxPH,
        meaning="Cox's proportional hazards",
        space={"penalizer": Float(1e-5, 10.0, log=True)},
        is_member=True,
    )
)
