"""Models that are written to a file and read again: what a header has to say, and whether it is true."""

from __future__ import annotations

import numbers
import platform
from abc import abstractmethod
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar, Self, get_type_hints

import msgspec
import numpy as np

from dcsurv.curves import Interpolation
from dcsurv.follow_up import FollowUp
from dcsurv.models.documentation import type_words
from dcsurv.models.table_model import TableModel
from dcsurv.models.time_bounds import TimeBounds
from dcsurv.persistence import Arrays, Header, ModelFileError
from dcsurv.plain import Count, Finite, declared, plain
from dcsurv.preprocessing import Population, Preprocessor


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


# What a header holds of every model, alone or as a member of an ensemble, and is read again.
_RESERVED = {
    *("format", "kind", "card", "parameters", "features", "preprocessing", "follow_up", "time_unit", "training"),
    *("versions", "time_bounds", "population"),
}


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
class SavedModel(TableModel):
    """Base of the models that have a file of their own.

    Parameters
    ----------
    time_unit : str or None, default None
        What the times are measured in, such as "days". Only kept, in the model and its file.
    """

    time_unit: str | None = None

    # How curves run between their nodes.
    interpolation: ClassVar[Interpolation] = "step"

    def check_parameters(self) -> None:
        """Refuse values of parameters that there cannot be."""
        super().check_parameters()
        if not isinstance(self.time_unit, str | None):
            raise ValueError(f"time_unit is {self.time_unit!r}, but a text such as 'days' is expected, or None.")

    def check_types(self) -> None:
        """Refuse values that a file would hold and that could not be read again as what they are annotated with."""
        types = _annotations(type(self))
        for name, value in self.plain_parameters().items():
            try:
                declared(plain(value), types.get(name, Any))
            except ValueError:
                raise ValueError(f"{name} is {value!r}, but {type_words(types[name])} is expected.") from None
            except TypeError:
                continue  # no plain data, or an annotation that none can be compared with

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

    @classmethod
    def known_parameters(cls, saved: Header) -> Header:
        """Return the parameters of a file by the names that they have now.

        Parameters
        ----------
        saved : dict
            The parameters as the file has them.
        """
        return dict(saved)

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
        header, arrays = self.checked_state()
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

    def checked_state(self) -> tuple[Header, Arrays]:
        """Return :meth:`get_state`, if none of its names has a meaning of its own in a file."""
        header, arrays = self.get_state()
        if taken := sorted(_RESERVED & header.keys()):
            raise ModelFileError(
                f"get_state of {type(self).__name__} returns {', '.join(map(repr, taken))}, which a model file uses "
                "itself. Choose other names."
            )
        return header, arrays

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
