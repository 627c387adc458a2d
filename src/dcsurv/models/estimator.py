"""Models that are fitted to a table of patients: checking, preprocessing, files."""

from __future__ import annotations

import numbers
import platform
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar, Self, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv._frames import as_pandas
from dcsurv._learn import clone, validate_data
from dcsurv.arithmetic import ReadableCurves, Value
from dcsurv.curves import Interpolation
from dcsurv.follow_up import FollowUp, study_follow_up
from dcsurv.messages import plural
from dcsurv.models.base import Features, SurvivalModel
from dcsurv.models.columns import with_columns
from dcsurv.models.curve_parts import CurveParts
from dcsurv.models.ranges import Range
from dcsurv.models.time_bounds import TimeBounds
from dcsurv.persistence import Arrays, Header, ModelFileError
from dcsurv.plain import Count, Finite, declared
from dcsurv.preprocessing import Population, Preprocessor
from dcsurv.target import FloatArray, IntArray, Outcome, check_groups, check_outcome, check_sample_weight


class Training(msgspec.Struct):
    """What a header has to say of a training; models add to it."""

    patients: Count
    events: Count
    last_time: Finite
    weighted: bool


class _Preprocess(msgspec.Struct):
    ordinal: list[str]
    least_patients: Count = 1  # files before it kept all


class _Features(msgspec.Struct):
    count: Count
    names: list[str] | None

    def __post_init__(self) -> None:
        if self.names is not None and (len(self.names) != self.count or len(set(self.names)) < self.count):
            raise ValueError("there is one name for each feature")


class _Document(msgspec.Struct):
    """What the header of every estimator holds; the parts declare themselves where they are read."""

    parameters: dict[str, Any]
    features: _Features
    preprocessing: dict[str, Any] | None
    training: Training
    versions: dict[str, str]
    time_unit: str | None
    card: dict[str, Any] | None = None
    follow_up: dict[str, Any] | None = None
    time_bounds: dict[str, Any] | None = None
    population: dict[str, Any] | None = None


@dataclass(kw_only=True, repr=False, eq=False)
class SurvivalEstimator(SurvivalModel):
    """Base of the models that are fitted to features and outcomes.

    A model of one's own is a dataclass that derives from this class and adds :meth:`fit_prepared`, :attr:`nodes`,
    :meth:`survival_at_nodes`, :meth:`get_state` and :meth:`set_state`.

    Parameters
    ----------
    preprocess : "auto", None or transformer, default "auto"
        ``"auto"`` imputes, scales and encodes inside the estimator, so that a DataFrame with missing values and
        categories can be passed as it is; None takes numbers as they are; a scikit-learn transformer is cloned
        and fitted.
    time_unit : str or None, default None
        What the times are measured in, such as "days". Only kept, in the model and its file.

    Examples
    --------
    >>> from dcsurv import DCS
    >>> from dcsurv.models import SurvivalEstimator
    >>> issubclass(DCS, SurvivalEstimator)
    True
    """

    preprocess: Any = "auto"
    time_unit: str | None = None

    # How curves run between their nodes.
    interpolation: ClassVar[Interpolation] = "step"
    # Which values each numeric parameter may have.
    ranges: ClassVar[dict[str, Range]] = {}

    # --- what a model adds --------------------------------------------------------------------------------

    @abstractmethod
    def fit_prepared(self, X: Features, y: Outcome, weight: FloatArray | None) -> dict[str, Any]:
        """Fit to checked and preprocessed data.

        Parameters
        ----------
        X : array of shape (n, columns)
            Prepared features.
        y : structured array
            Checked outcomes.
        weight : array or None
            One weight per patient, of mean 1; None is 1 for everybody.

        Returns
        -------
        dict
            A summary of training in plain data; ``training_summary_`` keeps it.
        """

    @abstractmethod
    def survival_at_nodes(self, X: Features) -> npt.NDArray[Any]:
        """Return S at the nodes for a chunk of patients.

        Parameters
        ----------
        X : array of shape (n, columns)
            Prepared features.

        Returns
        -------
        array of shape (n, T)
            S at :attr:`nodes`.
        """

    @abstractmethod
    def get_state(self) -> tuple[Header, Arrays]:
        """Return what :meth:`fit_prepared` has found.

        Returns
        -------
        header : dict
            Plain data for JSON.
        arrays : dict
            Arrays by name.
        """

    @abstractmethod
    def set_state(self, header: Header, arrays: Arrays) -> None:
        """Set the fitted attributes from what :meth:`get_state` returned.

        Parameters
        ----------
        header : dict
            Plain data, among others.
        arrays : dict
            Arrays by name.
        """

    @property
    def n_columns(self) -> int | None:
        """How many prepared columns the fitted model computes with; None if it does not say."""
        return None

    def check_parameters(self) -> None:
        """Refuse parameters that cannot be, before anything is trained."""
        if isinstance(self.preprocess, str) and self.preprocess != "auto":
            raise ValueError(f"preprocess is {self.preprocess!r}, but 'auto', None or a transformer is expected.")
        for name, allowed in self.ranges.items():
            allowed.check(name, getattr(self, name))

    @classmethod
    def known_parameters(cls, saved: Header) -> Header:
        """Return the parameters of a file by the names that they have now.

        Parameters
        ----------
        saved : dict
            The parameters as the file has them.
        """
        return dict(saved)

    # --- fitting ------------------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None, groups: npt.ArrayLike | None = None
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, one row per patient.
        y : outcome
            Outcomes of the same patients; see :func:`dcsurv.make_outcome`.
        sample_weight : array-like or None, default None
            One non-negative weight per patient.
        groups : array-like or None, default None
            A label per row that rows of one patient, or family, share: they stay together where a model divides the
            rows, into folds or for early stopping. Without labels, every row is a patient of its own.

        Returns
        -------
        SurvivalEstimator
            The model itself.
        """
        self._begin()
        features = self._check_new_features(X)
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
        together = check_groups(groups, len(features))
        prepared = self._fit_preprocessing(features, outcome)
        names = self._feature_of_each_column(prepared.shape[1])
        follow_up = study_follow_up(prepared, outcome, names=names, sample_weight=weight)
        self.follow_up_: FollowUp | None = follow_up
        self._train(prepared, outcome, weight, together)
        # Which patients were followed alike is of no use any more, and would be a number for every one of them.
        self.follow_up_ = follow_up.take(np.zeros(0, dtype=np.int64))
        self.population_ = Population.of(features)
        return self

    def fit_member(
        self,
        X: Features,
        y: Outcome,
        weight: FloatArray | None = None,
        follow_up: FollowUp | None = None,
        groups: IntArray | None = None,
    ) -> Self:
        """Fit to checked and prepared data as a part of another model, which knows preprocessing and follow-up.

        Parameters
        ----------
        X : array of shape (n, columns)
            Prepared features.
        y : structured array
            Checked outcomes.
        weight : array or None, default None
            One weight per patient.
        follow_up : FollowUp or None, default None
            How long these patients could be followed, if it is to matter.
        groups : array of int or None, default None
            Rows that belong together.
        """
        self.begin_member(X.shape[1])
        self.follow_up_ = follow_up
        self._train(X, y, weight, groups)
        self.follow_up_ = None
        return self

    def begin_member(self, n_columns: int) -> None:
        """Forget an earlier fit, before a fit as a part of another model.

        Parameters
        ----------
        n_columns : int
            Of the prepared features.
        """
        self._begin()
        self.n_features_in_ = n_columns
        self.preprocessor_: Any = None
        self.follow_up_ = None

    def end_training(self, y: Outcome, summary: dict[str, Any], *, weighted: bool) -> None:
        """Keep what there is to say of a training that has ended.

        Parameters
        ----------
        y : structured array
            Outcomes that the model was trained on.
        summary : dict
            What :meth:`fit_prepared` returns.
        weighted : bool
            Whether the patients had weights.
        """
        self.training_summary_ = {
            "patients": len(y),
            "events": int(y["event"].sum()),
            "last_time": float(y["time"].max()),
            "median_time": float(np.median(y["time"])),
            "weighted": weighted,
            **summary,
        }
        self.fitted_parameters_ = self._parameter_texts()

    def fit_encoding(self, X: Any, y: Outcome) -> Features:
        """Fit the preprocessing alone, for searches that share it.

        Parameters
        ----------
        X : DataFrame or array-like
            Features.
        y : structured array
            Checked outcomes.

        Returns
        -------
        array of shape (n, columns)
            The prepared features.
        """
        return self._fit_preprocessing(self._check_new_features(X), y)

    def _begin(self) -> None:
        self.check_parameters()
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # a fit that fails must not leave a mixture of two models

    def _train(self, X: Features, y: Outcome, weight: FloatArray | None, groups: IntArray | None) -> None:
        if weight is not None:
            weight = weight / weight.mean()  # only ratios matter, also to penalties and to sums over pairs
        # Rows of one patient, for models that divide the rows; of no use afterwards, like the patients' follow-up.
        self.row_groups_: IntArray | None = groups
        self.end_training(y, self.fit_prepared(X, y, weight), weighted=weight is not None)
        self.row_groups_ = None

    def survival_at(self, X: Features, times: FloatArray) -> FloatArray:
        """Return S at any times for a chunk of patients, as an ensemble asks for it.

        A model that can do so without the curves at all of its nodes overrides this.

        Parameters
        ----------
        X : array of shape (n, columns)
            Prepared features.
        times : array of shape (T,)
            Ascending times.

        Returns
        -------
        array of shape (n, T)
            Survival.
        """
        return self.curves_of(X).evaluate(times)

    @classmethod
    def survival_of(cls, members: Sequence[Any], X: Features, times: FloatArray) -> Iterator[FloatArray]:
        """Yield S of each of some fitted models of this class, as an ensemble asks for it.

        A class whose models can share some of the work overrides this.

        Parameters
        ----------
        members : sequence of SurvivalEstimator
            The models.
        X : array of shape (n, columns)
            Prepared features.
        times : array of shape (T,)
            Ascending times.

        Yields
        ------
        array of shape (T, n)
            Survival by one model, one row per time.
        """
        for member in members:
            yield np.ascontiguousarray(member.survival_at(X, times).T)

    def curve_parts(self, prepared: Features) -> CurveParts:
        """Return what the curves of a chunk of patients are made of."""
        return CurveParts(self.nodes, self.survival_at_nodes(prepared), self.interpolation)

    # --- the same as arithmetic ---------------------------------------------------------------------------

    def survival_arithmetic(self, prepared: Value) -> Value:
        """Return S at the nodes as arithmetic: the operations of :meth:`survival_at_nodes` on values of a graph.

        A model that has it can be computed by other programs; see :meth:`arithmetic`.

        Parameters
        ----------
        prepared : Value
            Prepared features, (n, columns).

        Returns
        -------
        Value
            S at :attr:`nodes`, (n, T).
        """
        return super().curve_arithmetic(prepared).survival  # refuses, in words

    def survival_arithmetic_at(self, prepared: Value, times: FloatArray) -> Value:
        """Return S at known times as arithmetic: the operations of :meth:`survival_at`.

        Parameters
        ----------
        prepared : Value
            Prepared features, (n, columns).
        times : array of shape (T,)
            Ascending times.

        Returns
        -------
        Value
            Survival, (n, T).
        """
        return self.curve_arithmetic(prepared).read(times)

    def curve_arithmetic(self, prepared: Value) -> ReadableCurves:
        """Return the curves of patients as arithmetic."""
        return ReadableCurves(self.nodes, self.survival_arithmetic(prepared), self.interpolation)

    # --- features -----------------------------------------------------------------------------------------

    def check_features(self, X: Any) -> Any:
        """Return the features of a fitted model, found by name in a DataFrame, checked and not yet encoded."""
        own = with_columns(as_pandas(X), getattr(self, "feature_names_in_", None))
        # A fitted model goes by what it was fitted with, whatever its parameters say since.
        return self._checked(own, reset=False, as_they_are=self.preprocessor_ is None)

    def _check_new_features(self, X: Any) -> Any:
        return self._checked(X, reset=True, as_they_are=self.preprocess is None)

    def _checked(self, X: Any, *, reset: bool, as_they_are: bool) -> Any:
        """Check shape, column names and numbers; a DataFrame stays one where columns may be of any type."""
        X = as_pandas(X)
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
        return self.encode(X)

    def encode(self, features: Any) -> Features:
        """Return checked features as the numbers that the model computes with.

        Values far outside the range of training are taken for its edge: no model has learnt anything there, and some
        would answer with certain death or none.
        """
        ranges = self.training_ranges
        if ranges is not None:
            features = ranges.clamped(features)
        if self.preprocessor_ is None:
            return np.require(features, dtype=np.float32, requirements="W")
        out = np.asarray(self.preprocessor_.transform(features), dtype=np.float32)
        if not np.isfinite(out).all():
            bad = int((~np.isfinite(out)).any(axis=1).sum())
            raise ValueError(
                f"{plural(bad, 'row of X holds', 'rows of X hold')} NaN or infinity after preprocessing "
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        accepts_tables = self.preprocess is not None
        tags.input_tags.allow_nan = accepts_tables
        tags.input_tags.string = accepts_tables
        tags.input_tags.categorical = accepts_tables
        return tags

    # --- files --------------------------------------------------------------------------------------------

    def to_saved(self) -> tuple[Header, Arrays]:
        """Return the whole fitted model for its file: plain data, and arrays."""
        if not isinstance(self.preprocess, str | Preprocessor | None):
            raise ModelFileError(
                f"a model with the preprocessing {type(self.preprocess).__name__} cannot be saved without pickle. "
                "Use preprocess='auto', or transform X first and use preprocess=None."
            )
        changed = [k for k, v in self._parameter_texts().items() if self.fitted_parameters_[k] != v]
        if changed:
            raise ModelFileError(f"{', '.join(changed)} changed since the model was fitted. Fit it again, or set back.")
        names = getattr(self, "feature_names_in_", None)
        state = None if self.preprocessor_ is None else self.preprocessor_.get_state()
        header, arrays = self.get_state()
        document = {
            "parameters": self.plain_parameters(),
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
            "versions": versions(),
            "time_bounds": None if self.time_bounds_ is None else self.time_bounds_.get_state(),
            "population": None if self.population_ is None else self.population_.get_state(),
            **header,
        }
        return document, arrays

    def plain_parameters(self) -> Header:
        """Return the parameters as plain data for a file."""
        parameters: Header = self.get_params(deep=False)
        if isinstance(self.preprocess, Preprocessor):
            parameters["preprocess"] = self.preprocess.get_params()
        parameters |= plain_random_state(parameters)
        if "device" in parameters:
            parameters["device"] = "cpu"  # where the file is read there may be no other
        return parameters

    @classmethod
    def from_saved(cls, header: Header, arrays: Arrays) -> Self:
        """Rebuild a fitted model from the contents of its file.

        Parameters
        ----------
        header : dict
            Plain data.
        arrays : dict
            Arrays by name.
        """
        document = declared(header, _Document)
        model = cls.from_parameters(header["parameters"])
        model.n_features_in_ = document.features.count
        if document.features.names is not None:
            model.feature_names_in_ = np.asarray(document.features.names, dtype=object)
        state = header["preprocessing"]
        model.preprocessor_ = None if state is None else Preprocessor.from_state(state)
        model.training_summary_ = header["training"]
        if document.card is not None:
            model.card_ = header["card"]
        model.set_state(header, arrays)
        columns = model.n_features_in_
        if model.preprocessor_ is not None:
            named = getattr(model, "feature_names_in_", None)
            if columns != len(state["columns"]) or (named is not None and state["named"] is False):
                raise ValueError("its preprocessing is that of other features")
            if named is not None and [column["name"] for column in state["columns"]] != named.tolist():
                raise ValueError("its preprocessing is that of other features")
            columns = len(model.preprocessor_.feature_of_each_column())
        if model.n_columns not in (None, columns):
            raise ValueError(f"it computes with {model.n_columns} columns, but its features have {columns}")
        followed = header.get("follow_up")  # files of version 0.1 have none
        model.follow_up_ = None if followed is None else FollowUp.from_state(followed, columns)
        bounds = header.get("time_bounds")  # files before 0.2 have none
        model.time_bounds_ = None if bounds is None else TimeBounds.from_state(bounds, model.n_groups)
        population = header.get("population")  # files before 0.2 have none
        model.population_ = None if population is None else Population.from_state(population)
        model.fitted_parameters_ = model._parameter_texts()
        return model

    @classmethod
    def from_parameters(cls, saved: Header) -> Self:
        """Return an unfitted model with the parameters of a file, each of the type that it is annotated with.

        Parameters
        ----------
        saved : dict
            The parameters as the file has them.
        """
        parameters = cls.known_parameters(saved)
        if isinstance(parameters["preprocess"], dict):
            asked = declared(parameters["preprocess"], _Preprocess)
            parameters["preprocess"] = Preprocessor(ordinal=tuple(asked.ordinal), least_patients=asked.least_patients)
        types = _annotations(cls)
        for name, value in parameters.items():
            try:
                declared(value, types.get(name, Any))
            except ValueError as error:
                raise ValueError(f"its parameter {name}: {error}") from None
            except TypeError:
                continue  # an annotation of an extension's that no plain data can be compared with
        model = cls(**parameters)
        model.check_parameters()
        return model

    def _parameter_texts(self) -> dict[str, str]:
        """Return the parameters that decide what was fitted, as text."""
        free = ("device", "verbose", "n_jobs", "random_state")
        return {name: repr(value) for name, value in self.get_params(deep=False).items() if name not in free}


def _annotations(model: type[Any]) -> dict[str, Any]:
    try:
        return get_type_hints(model)
    except NameError:
        return {}  # an extension's that names what only type checkers import


def versions() -> dict[str, str]:
    """Return the versions of what a model was fitted with."""
    packages = ("dcsurv", "torch", "numpy", "scikit-learn")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def plain_random_state(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the entry ``random_state`` as a number or None: a fitted model no longer needs a generator."""
    if "random_state" not in parameters:
        return {}
    seed = parameters["random_state"]
    return {"random_state": int(seed) if isinstance(seed, numbers.Integral) else None}
