"""Cox's proportional hazards model, fitted by lifelines."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dcsurv.models.base import Features, Outcome, SurvivalEstimator
from dcsurv.models.baseline import proportional_survival, relative_risk, thinned
from dcsurv.nonparametric import breslow
from dcsurv.persistence import Arrays, Header, saveable
from dcsurv.target import FloatArray

# Newton's steps as shares of the full one; the first is lifelines' own.
_STEPS = 0.95, 0.5, 0.1
_NOT_CONVERGED = "Newton-Raphson failed to converge"


@saveable
@dataclass(kw_only=True, repr=False, eq=False)
class CoxPH(SurvivalEstimator):
    """Proportional hazards: S(t | x) = exp(-H0(t) exp(β x)); Efron's rule for ties, Breslow's H0.

    Parameters
    ----------
    penalizer
        Strength of the ridge penalty (lifelines' scale). A little keeps collinear columns from diverging.
    preprocess, time_unit
        See :class:`SurvivalEstimator`.

    Attributes
    ----------
    coef_
        β, one per column after preprocessing.
    log_likelihood_
        Of the fit, as lifelines reports it.

    References
    ----------
    D. R. Cox: Regression models and life-tables. Journal of the Royal Statistical Society B 34 (1972).
    """

    penalizer: float = 1e-4

    def _fit(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        columns = X.astype(np.float64)
        # lifelines scales by the standard deviation; a constant column has none, and no effect either.
        varying = np.ptp(columns if weight is None else columns[weight > 0], axis=0) > 0
        self.coef_ = np.zeros(X.shape[1])
        self.log_likelihood_ = float("nan")
        if varying.any():
            self.coef_[varying], self.log_likelihood_ = self._estimate(columns[:, varying], y, weight)
        self.center_ = columns.mean(axis=0)
        times, hazard = breslow(np.ascontiguousarray(y["time"]), y["event"], relative_risk(self._log_risk(X)), weight)
        kept = thinned(len(times))
        self.times_, self.cumulative_hazard_ = times[kept], hazard[kept]
        return {"log_likelihood": None if np.isnan(self.log_likelihood_) else self.log_likelihood_}

    def _estimate(self, X: FloatArray, y: Outcome, weight: FloatArray | None) -> tuple[FloatArray, float]:
        """Return lifelines' coefficients and log-likelihood."""
        from lifelines import CoxPHFitter
        from lifelines.exceptions import ConvergenceError, ConvergenceWarning, StatisticalWarning
        from scipy.linalg import LinAlgWarning

        frame = pd.DataFrame(X).add_prefix("x").assign(time=y["time"], event=y["event"])
        if weight is not None:
            frame = frame.assign(weight=weight)[weight > 0]
        options: dict[str, Any] = {"weights_col": None if weight is None else "weight"}
        with warnings.catch_warnings():
            # That weights are not whole numbers matters to standard errors, which are not used here, and rare
            # categories or many columns are no reason to worry as long as the fit converges.
            warnings.simplefilter("ignore", StatisticalWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("error", LinAlgWarning)
            for step in _STEPS:
                fitter = CoxPHFitter(penalizer=self.penalizer)
                last = step == _STEPS[-1]
                # Long steps overshoot where a column has extreme values: shorter ones are tried before giving up.
                warnings.filterwarnings("default" if last else "error", _NOT_CONVERGED, ConvergenceWarning)
                try:
                    fitter.fit(frame, "time", "event", fit_options={"step_size": step, "max_steps": 500}, **options)
                    break
                except ConvergenceWarning:
                    continue
                except (ConvergenceError, LinAlgWarning, np.linalg.LinAlgError) as error:
                    if last:
                        raise ValueError(
                            f"the Cox model did not converge ({str(error).splitlines()[0]}). Columns that determine "
                            f"each other or the outcome are the usual cause: drop them, or raise penalizer (it is "
                            f"{self.penalizer:g})."
                        ) from error
        return fitter.params_.to_numpy(), float(fitter.log_likelihood_)

    def _log_risk(self, X: Features) -> FloatArray:
        out: FloatArray = (X.astype(np.float64) - self.center_) @ self.coef_
        return out

    def _nodes(self) -> FloatArray:
        return self.times_

    def _survival(self, X: Features) -> FloatArray:
        return proportional_survival(self.cumulative_hazard_, self._log_risk(X))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not self.penalizer >= 0:
            raise ValueError(f"penalizer is {self.penalizer!r}, but a number of at least 0 is expected.")

    def _to_saved(self) -> tuple[Header, Arrays]:
        names = ("coef_", "center_", "times_", "cumulative_hazard_")
        return {}, {name: getattr(self, name) for name in names}

    def _restore(self, header: Header, arrays: Arrays) -> None:
        self.coef_, self.center_ = arrays["coef_"], arrays["center_"]
        self.times_, self.cumulative_hazard_ = arrays["times_"], arrays["cumulative_hazard_"]
        log_likelihood = header["training"]["log_likelihood"]
        self.log_likelihood_ = float("nan") if log_likelihood is None else float(log_likelihood)
