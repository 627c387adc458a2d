"""The search as a scikit-learn estimator: fit tunes, then fits the best settings to everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from dcsurv.curves import SurvivalCurves
from dcsurv.experiments.tuning.search import tune
from dcsurv.models.documentation import document_parameters
from dcsurv.target import FloatArray


@dataclass(kw_only=True, repr=False, eq=False)
class Tuned(BaseEstimator):  # type: ignore[misc]
    """A model that searches its settings by cross-validation when it is fitted, and is then fitted to all rows.

    In ``cross_val_score`` the search sees the training rows of the outer fold only: nested cross-validation.

    Parameters
    ----------
    estimator : estimator or str
        An unfitted estimator or the name of a model.

    Attributes
    ----------
    result_ : TuningResult
        The search.
    estimator_ : estimator
        The model with the best settings, fitted to all rows.
    best_params_ : dict
        Its settings.

    Notes
    -----
    A study in a file belongs to one set of training rows: leave ``storage`` None where the estimator is fitted to
    several.

    Examples
    --------
    >>> from dcsurv import CoxPH, Tuned
    >>> from dcsurv.datasets import simulate
    >>> from dcsurv.experiments.tuning import Float
    >>> cohort = simulate("independent", 200)
    >>> space = {"penalizer": Float(1e-3, 1.0, log=True)}
    >>> model = Tuned(estimator=CoxPH(), n_trials=2, space=space, folds=2).fit(cohort.X, cohort.y)
    >>> list(model.best_params_)
    ['penalizer']
    """

    estimator: Any = "dcs"
    n_trials: int = 50
    space: Any = "default"
    criterion: Any = "CDAUC"
    folds: Any = 5
    start: Sequence[Any] = ()
    keep: float = 0.3
    trial_timeout: float | None = None
    storage: Any = None
    study_name: str | None = None
    workers: int = 1
    cluster: str | None = None
    timeout: float | None = None
    random_state: int = 0
    progress: bool = False

    def fit(self, X: Any, y: Any, groups: npt.ArrayLike | None = None) -> Self:
        """Search on these rows, then fit the best settings to all of them.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, one row per patient.
        y : outcome
            Outcomes of the same patients; see :func:`dcsurv.make_outcome`.
        groups : array-like or None, default None
            A label per row that rows of one patient share: they stay in one fold, and together where the model divides
            the rows.

        Returns
        -------
        Tuned
            The fitted estimator.
        """
        options = {name: value for name, value in self.get_params(deep=False).items() if name != "estimator"}
        self.result_ = tune(self.estimator, X, y, groups=groups, **options)
        self.best_params_ = self.result_.best_params
        best = self.result_.best_estimator()
        if best.get_params().get("random_state", 0) is None:
            best.set_params(random_state=self.random_state)
        asked = groups is not None and has_fit_parameter(best, "groups")
        self.estimator_ = best.fit(X, y, groups=groups) if asked else best.fit(X, y)
        return self

    @property
    def n_features_in_(self) -> int:
        """Number of columns of X in fit."""
        return int(self._fitted().n_features_in_)

    def predict_survival_function(self, X: Any, times: npt.ArrayLike | None = None) -> SurvivalCurves:
        """Predict survival curves with the best settings.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, one row per patient.
        times : array-like or None, default None
            Times at which the curves are kept; None: the model's own nodes.

        Returns
        -------
        SurvivalCurves
            One curve per patient.
        """
        return self._fitted().predict_survival_function(X, times)

    def predict_cumulative_hazard_function(self, X: Any, times: npt.ArrayLike | None = None) -> FloatArray:
        """Predict the cumulative hazard, -log S, with the best settings.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, one row per patient.
        times : array-like or None, default None
            Times to predict at; None: the model's own nodes.

        Returns
        -------
        array of shape (n, T)
            One row per patient.
        """
        return self._fitted().predict_cumulative_hazard_function(X, times)

    def predict(self, X: Any) -> FloatArray:
        """Predict a risk score with the best settings.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, one row per patient.

        Returns
        -------
        array of shape (n,)
            Higher is worse.
        """
        return self._fitted().predict(X)

    def score(self, X: Any, y: Any) -> float:
        """Return C-td of the curves predicted for X.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, one row per patient.
        y : outcome
            Outcomes of the same patients.

        Returns
        -------
        float
            Higher is better.
        """
        return self._fitted().score(X, y)

    def save(self, path: Any) -> None:
        """Write the fitted model, without the search, to one file; see :func:`dcsurv.load`.

        Parameters
        ----------
        path : str or path-like
            The file, by habit with the ending ``.safetensors``.
        """
        self._fitted().save(path)

    def _fitted(self) -> Any:
        check_is_fitted(self, "estimator_")
        return self.estimator_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags


document_parameters(Tuned, tune)
