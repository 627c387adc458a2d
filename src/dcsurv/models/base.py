"""What all six models share: checking, preprocessing, curves, scores, files."""

from __future__ import annotations

import numbers
import platform
import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from os import PathLike
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from dcsurv._frames import as_pandas
from dcsurv.curves import Interpolation, SurvivalCurves
from dcsurv.follow_up import FollowUp, study_follow_up
from dcsurv.persistence import Arrays, Header, ModelFileError, save
from dcsurv.preprocessing import Preprocessor
from dcsurv.target import FloatArray, check_outcome, check_sample_weight
from dcsurv.target import Outcome as Outcome

Features: TypeAlias = npt.NDArray[np.float32]

# Chunks of prediction are cut so that a chunk's intermediate results hold about this many numbers (64 MB).
_CHUNK_NUMBERS = 16_000_000


@dataclass(kw_only=True, repr=False, eq=False)
class SurvivalEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of the models: a scikit-learn estimator whose predictions are survival curves.

    Parameters
    ----------
    preprocess
        ``"auto"`` imputes, scales and encodes inside the estimator, so that a DataFrame with missing values and
        categories can be passed as it is; None takes numbers as they are; a scikit-learn transformer is cloned
        and fitted.
    time_unit
        What the times are measured in, such as "days". Only kept, in the model and its file.

    Attributes
    ----------
    card_
        What else should travel with a fitted model and its file, if anybody has set it: plain data for JSON, such as
        the names of the outcome's columns. Never rows of patients.
    follow_up_
        How long the training patients could be followed and which features decide it, a :class:`FollowUp`; None for a
        model from a file of version 0.1.
    """

    preprocess: Any = "auto"
    time_unit: str | None = None

    # How curves run between their nodes.
    interpolation: ClassVar[Interpolation] = "step"

    # --- what a model adds --------------------------------------------------------------------------------

    @abstractmethod
    def _fit(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        """Fit to checked and preprocessed data; return a summary of training in plain numbers."""

    @abstractmethod
    def _nodes(self) -> FloatArray:
        """Return the times at which :meth:`_survival` predicts, strictly ascending."""

    @abstractmethod
    def _survival(self, X: Features) -> npt.NDArray[Any]:
        """Return S at the nodes for a chunk of patients, (n, T)."""

    def _numbers_per_row(self) -> int:
        """Return how many numbers :meth:`_survival` holds in memory for each patient."""
        return 4 * len(self._nodes())

    @abstractmethod
    def _to_saved(self) -> tuple[Header, Arrays]:
        """Return what the fitted model consists of: plain data, and arrays."""

    @abstractmethod
    def _restore(self, header: Header, arrays: Arrays) -> None:
        """Set the fitted attributes from what :meth:`_to_saved` returned."""

    # --- fitting and predicting ---------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X
            Features, one row per patient: a DataFrame or an array.
        y
            Outcomes of the same patients; see :func:`dcsurv.make_outcome`.
        sample_weight
            One non-negative weight per patient.
        """
        self._begin()
        features = self._check_features(X, reset=True)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None. Build it with "
                "dcsurv.make_outcome(time, event)."
            )
        if len(features) < 2:
            raise ValueError("X has 1 sample (n_samples=1), but a model needs at least two patients.")
        outcome = check_outcome(y, n_rows=len(features), min_events=1)
        weight = None if sample_weight is None else check_sample_weight(sample_weight, len(features))
        if weight is not None and not weight[outcome["event"]].any():
            raise ValueError("sample_weight is zero for every patient with an event; at least one must count.")
        prepared = self._fit_preprocessing(features, outcome)
        names = self._feature_of_each_column(prepared.shape[1])
        follow_up = study_follow_up(prepared, outcome, names=names, sample_weight=weight)
        self.follow_up_: FollowUp | None = follow_up
        self._train(prepared, outcome, weight)
        # Which patients were followed alike is of no use any more, and would be a number for every one of them.
        self.follow_up_ = follow_up.take(np.zeros(0, dtype=np.int64))
        return self

    def fit_member(self, X: Features, y: Outcome, weight: FloatArray | None = None) -> Self:
        """Fit to checked and prepared data as a part of another model, which knows preprocessing and follow-up."""
        self._begin()
        self.n_features_in_ = X.shape[1]
        self.preprocessor_: Any = None
        self.follow_up_ = None
        self._train(X, y, weight)
        return self

    def _begin(self) -> None:
        self._check_parameters()
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # a fit that fails must not leave a mixture of two models

    def _train(self, X: Features, y: Outcome, weight: FloatArray | None) -> None:
        if weight is not None:
            weight = weight / weight.mean()  # only ratios matter, also to penalties and to sums over pairs
        self.training_summary_ = {
            "patients": len(y),
            "events": int(y["event"].sum()),
            "last_time": float(y["time"].max()),
            "weighted": weight is not None,
            **self._fit(X, y, weight),
        }
        self.fitted_parameters_ = self._parameter_texts()

    def predict_survival_function(self, X: Any, times: npt.ArrayLike | None = None) -> SurvivalCurves:
        """Predict survival curves.

        Parameters
        ----------
        X
            Features, in the columns that the model was fitted with.
        times
            Strictly ascending times to predict for; default: the model's own nodes. Beyond the last node curves
            are held constant, with a warning.

        Returns
        -------
        SurvivalCurves
            One curve per patient, with the index of ``X`` if that is a DataFrame. ``curves.values`` or
            ``np.asarray(curves)`` is the plain array that scikit-survival returns with ``return_array=True``;
            ``curves[i]`` is one patient's function.
        """
        check_is_fitted(self)
        followed: list[FloatArray] = []

        def survival(chunk: Features) -> npt.NDArray[Any]:
            followed.append(self._followed_to(chunk))
            return self._survival(chunk) if times is None else self._curves(chunk).project(times).values

        values = self._in_chunks(X, survival)
        nodes = self._nodes() if times is None else times
        curves = SurvivalCurves(
            nodes,
            values,
            interpolation=self.interpolation,
            followed_to=np.concatenate(followed),
            index=X.index if isinstance(X, pd.DataFrame) else None,
        )
        if times is None:
            return curves
        asked, last = curves.times[-1], self._nodes()[-1]
        if asked > last:
            warnings.warn(
                f"survival was asked for at {asked:g}, beyond the last node {last:g} of the model; the curves are "
                "held constant there.",
                UserWarning,
                stacklevel=2,
            )
        return curves

    def predict_cumulative_hazard_function(self, X: Any, times: npt.ArrayLike | None = None) -> FloatArray:
        """Predict -log S, (n, T), at ``times`` (default: the model's nodes); see predict_survival_function."""
        curves = self.predict_survival_function(X, times)
        return curves.cumulative_hazard(curves.times)

    def predict(self, X: Any) -> FloatArray:
        """Predict a risk score, (n,), higher for worse: minus the mean survival time up to the last node."""
        return self._in_chunks(X, lambda chunk: -self._curves(chunk).rmst())

    def predict_followed_to(self, X: Any) -> FloatArray:
        """Return until when training patients with such features were followed, (n,); see :class:`FollowUp`.

        What a curve says about later times was learnt from patients with other features. NaN for a model from a file of
        version 0.1, which does not know.
        """
        return self._in_chunks(X, self._followed_to)

    def _followed_to(self, X: Features) -> FloatArray:
        return np.full(len(X), np.nan) if self.follow_up_ is None else self.follow_up_.followed_to(X)

    def score(self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None) -> float:
        """Return the time-dependent concordance index C-td of the curves predicted for X."""
        from dcsurv.metrics import concordance_index_td

        return concordance_index_td(y, self.predict_survival_function(X), sample_weight=sample_weight)

    def _curves(self, X: Features) -> SurvivalCurves:
        return SurvivalCurves(self._nodes(), self._survival(X), interpolation=self.interpolation)

    def _in_chunks(self, X: Any, predict: Callable[[Features], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Check features and predict from them, preprocessed, in chunks that keep memory small."""
        check_is_fitted(self)
        features = self._check_features(X, reset=False)
        by_row = features.iloc if isinstance(features, pd.DataFrame) else features
        size = max(1, _CHUNK_NUMBERS // self._numbers_per_row())
        out = None
        for start in range(0, len(features), size):
            part = predict(self._transform(by_row[start : start + size]))
            if out is None:
                out = np.empty((len(features), *part.shape[1:]), dtype=part.dtype)
            out[start : start + size] = part
        assert out is not None  # _check_features refuses an empty X
        return out

    # --- features -----------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        if isinstance(self.preprocess, str) and self.preprocess != "auto":
            raise ValueError(f"preprocess is {self.preprocess!r}, but 'auto', None or a transformer is expected.")

    def _check_features(self, X: Any, *, reset: bool) -> Any:
        """Check shape, column names and numbers; a DataFrame stays one where columns may be of any type."""
        X = as_pandas(X)
        # A fitted model goes by what it was fitted with, whatever its parameters say since.
        as_they_are = self.preprocess is None if reset else self.preprocessor_ is None
        if as_they_are:
            return validate_data(self, X, reset=reset, dtype=np.float32)
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if len(X) == 0 or X.shape[1] == 0:
                raise ValueError(f"X has shape {X.shape}: found 0 rows or columns, but at least 1 is needed.")
            return X
        return validate_data(self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")

    def _fit_preprocessing(self, X: Any, y: Outcome) -> Features:
        if self.preprocess is None:
            self.preprocessor_ = None
        elif isinstance(self.preprocess, str):
            self.preprocessor_ = Preprocessor().fit(X)
        else:
            self.preprocessor_ = clone(self.preprocess).fit(X, y)
        return self._transform(X)

    def _transform(self, X: Any) -> Features:
        if self.preprocessor_ is None:
            return np.require(X, dtype=np.float32, requirements="W")
        out = np.asarray(self.preprocessor_.transform(X), dtype=np.float32)
        if not np.isfinite(out).all():
            raise ValueError(
                f"{int((~np.isfinite(out)).any(axis=1).sum())} rows of X hold NaN or infinity after preprocessing "
                f"with {type(self.preprocessor_).__name__}. Impute or drop them first."
            )
        return out

    def _feature_of_each_column(self, n_columns: int) -> list[str]:
        """Return the feature behind every column after preprocessing; numbers where that is not known."""
        if isinstance(self.preprocessor_, Preprocessor):
            return self.preprocessor_.feature_of_each_column()
        names = getattr(self, "feature_names_in_", None)
        if self.preprocessor_ is None and names is not None:
            return [str(name) for name in names]
        return [f"column {k}" for k in range(n_columns)]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "training_summary_")  # set when a fit has ended well

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        accepts_tables = self.preprocess is not None
        tags.input_tags.allow_nan = accepts_tables
        tags.input_tags.string = accepts_tables
        tags.input_tags.categorical = accepts_tables
        return tags

    # --- files --------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to one file without pickle and without rows of patients; see dcsurv.load."""
        check_is_fitted(self)
        if not isinstance(self.preprocess, str | Preprocessor | None):
            raise ModelFileError(
                f"a model with the preprocessing {type(self.preprocess).__name__} cannot be saved without pickle. "
                "Use preprocess='auto', or transform X first and use preprocess=None."
            )
        changed = [k for k, v in self._parameter_texts().items() if self.fitted_parameters_[k] != v]
        if changed:
            raise ModelFileError(f"{', '.join(changed)} changed since the model was fitted. Fit it again, or set back.")
        parameters = self.get_params(deep=False)
        if isinstance(self.preprocess, Preprocessor):
            parameters["preprocess"] = self.preprocess.get_params()
        parameters |= plain_random_state(parameters)
        if "device" in parameters:
            parameters["device"] = "cpu"  # where the file is read there may be no other
        names = getattr(self, "feature_names_in_", None)
        state = None if self.preprocessor_ is None else self.preprocessor_.get_state()
        header, arrays = self._to_saved()
        document = {
            "parameters": parameters,
            "features": {
                "count": self.n_features_in_,
                "names": None if names is None else names.tolist(),
                "types": ["number"] * self.n_features_in_ if state is None else [c["kind"] for c in state["columns"]],
            },
            "preprocessing": state,
            "follow_up": None if self.follow_up_ is None else self.follow_up_.get_state(),
            "time_unit": self.time_unit,
            "training": self.training_summary_,
            "conventions": {
                "risk": "minus the mean survival time restricted to the last node",
                "score": "C-td, ties adjusted, S(z) read between nodes",
                "interpolation": self.interpolation,
            },
            "versions": {
                "python": platform.python_version(),
                **{name: version(name) for name in ("dcsurv", "torch", "numpy", "scikit-learn")},
            },
            **header,
        }
        card = getattr(self, "card_", None)
        if card is not None:
            document["card"] = card
        save(path, type(self).__name__, document, arrays)

    @classmethod
    def from_saved(cls, header: Header, arrays: Arrays) -> Self:
        """Rebuild a fitted model from the contents of its file."""
        parameters = cls._known_parameters(header["parameters"])
        if isinstance(parameters["preprocess"], dict):
            parameters["preprocess"] = Preprocessor(**parameters["preprocess"])
        model = cls(**parameters)
        model._check_parameters()
        model.n_features_in_ = int(header["features"]["count"])
        if header["features"]["names"] is not None:
            model.feature_names_in_ = np.asarray(header["features"]["names"], dtype=object)
        state = header["preprocessing"]
        model.preprocessor_ = None if state is None else Preprocessor.from_state(state)
        model.training_summary_ = header["training"]
        if "card" in header:
            model.card_ = header["card"]
        model._restore(header, arrays)
        followed = header.get("follow_up")  # files of version 0.1 have none
        columns = model.n_features_in_ if state is None else len(model.preprocessor_.feature_of_each_column())
        model.follow_up_ = None if followed is None else FollowUp.from_state(followed, columns)
        model.fitted_parameters_ = model._parameter_texts()
        return model

    @classmethod
    def _known_parameters(cls, saved: Header) -> Header:
        """Return the parameters of a file by the names that they have now."""
        return dict(saved)

    def _parameter_texts(self) -> dict[str, str]:
        """Return the parameters that decide what was fitted, as text."""
        free = ("device", "verbose", "n_jobs", "random_state")
        return {name: repr(value) for name, value in self.get_params(deep=False).items() if name not in free}


def plain_random_state(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the entry ``random_state`` as a number or None: a fitted model no longer needs a generator."""
    if "random_state" not in parameters:
        return {}
    seed = parameters["random_state"]
    return {"random_state": int(seed) if isinstance(seed, numbers.Integral) else None}
