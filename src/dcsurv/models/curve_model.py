"""What predicts survival curves from features, patient by patient, in chunks that keep memory small."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv._learn import BaseEstimator, check_is_fitted
from dcsurv.arithmetic import ReadableCurves, Value
from dcsurv.curves import BeyondLastNodeWarning, SurvivalCurves
from dcsurv.curves.checks import check_times
from dcsurv.follow_up import FollowUp
from dcsurv.models.curve_parts import CurveParts
from dcsurv.persistence import ModelFileError
from dcsurv.preprocessing import Outside, OutsideTrainingWarning, Ranges
from dcsurv.target import FloatArray, IntArray

Features: TypeAlias = npt.NDArray[np.float32]

# Chunks of prediction are cut so that a chunk's intermediate results hold about this many numbers (64 MB).
_CHUNK_NUMBERS = 16_000_000


class CurveModel(BaseEstimator):  # type: ignore[misc]
    """A scikit-learn estimator whose predictions are survival curves."""

    follow_up_: FollowUp | None
    preprocessor_: Any
    n_features_in_: int

    # --- what a model adds --------------------------------------------------------------------------------

    @property
    @abstractmethod
    def nodes(self) -> FloatArray:
        """The times at which the model itself predicts, strictly ascending."""

    @abstractmethod
    def check_features(self, X: Any) -> Any:
        """Return the features of a fitted model, found by name in a DataFrame, checked and not yet encoded.

        Parameters
        ----------
        X : DataFrame or array-like
            Features.

        Returns
        -------
        DataFrame or array
            The columns that the model was fitted with.
        """

    @abstractmethod
    def encode(self, features: Any) -> Features:
        """Return checked features as the numbers that the model computes with.

        Parameters
        ----------
        features : DataFrame or array
            What :meth:`check_features` returned, or some rows of it.

        Returns
        -------
        array of shape (n, columns)
            Of single precision.
        """

    @abstractmethod
    def curve_parts(self, prepared: Features) -> CurveParts:
        """Return what the curves of a chunk of patients are made of.

        Parameters
        ----------
        prepared : array of shape (n, columns)
            Prepared features.

        Returns
        -------
        CurveParts
            Nodes, survival and how to read it.
        """

    def curve_arithmetic(self, prepared: Value) -> ReadableCurves:
        """Return the curves of patients as arithmetic: what :meth:`curve_parts` computes, written down.

        Parameters
        ----------
        prepared : Value
            Prepared features, (n, columns).

        Returns
        -------
        ReadableCurves
            The curves.
        """
        raise ValueError(
            f"{type(self).__name__} does not say its arithmetic, so that nothing but this library can compute it. Its "
            "class has to add survival_arithmetic(prepared): the operations of survival_at_nodes on values of a graph."
        )

    @property
    def training_ranges(self) -> Ranges | None:
        """Between which values the features of the training patients lay; None if that is not known."""
        return None

    def numbers_per_row(self) -> int:
        """Return how many numbers a prediction holds in memory for each patient."""
        return 4 * len(self.nodes)

    # --- predicting ---------------------------------------------------------------------------------------

    def prepare(self, X: Any) -> Features:
        """Return the features as the numbers that the model computes with, (n, columns after preprocessing).

        Parameters
        ----------
        X : DataFrame or array-like
            Features; in a DataFrame columns are found by name, in any order.

        Returns
        -------
        array of shape (n, columns)
            Of single precision.
        """
        check_is_fitted(self)
        return self.encode(self.check_features(X))

    def curves_of(self, prepared: Features) -> SurvivalCurves:
        """Return the curves of patients whose features are prepared; see :meth:`prepare`.

        Parameters
        ----------
        prepared : array of shape (n, columns)
            Prepared features.

        Returns
        -------
        SurvivalCurves
            One curve per patient.
        """
        with self.blaming_its_file():
            return self.curve_parts(prepared).curves()

    @contextmanager
    def blaming_its_file(self) -> Iterator[None]:
        """Say, where curves leave [0, 1] or rise, that the file is to blame that the model came from, if it did."""
        try:
            yield
        except ModelFileError:
            raise
        except ValueError as error:
            source = getattr(self, "loaded_from_", None)
            if source is None:
                raise
            raise ModelFileError(
                f"the model in {source} predicts what cannot be: {str(error).rstrip('.')}. Copy the file again, or fit "
                "the model again."
            ) from error

    def predict_survival_function(self, X: Any, times: npt.ArrayLike | None = None) -> SurvivalCurves:
        """Predict survival curves.

        Parameters
        ----------
        X : DataFrame or array-like
            Features. In a DataFrame columns are found by name, in any order; others are not used, with a warning.
        times : array-like or None, default None
            Strictly ascending times to predict for; None: the model's own nodes. Beyond the last node curves are held
            constant, with a warning.

        Returns
        -------
        SurvivalCurves
            One curve per patient, with the index of ``X`` if that is a DataFrame. ``curves.values`` or
            ``np.asarray(curves)`` is the plain array that scikit-survival returns with ``return_array=True``;
            ``curves[i]`` is one patient's function.
        """
        return self._curves(X, times, look=4)

    def curves_for(self, X: Any, times: npt.ArrayLike | None = None) -> SurvivalCurves:
        """Predict survival curves without a word about patients unlike those of training, as validation does.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, as in :meth:`predict_survival_function`.
        times : array-like or None, default None
            Strictly ascending times to predict for; None: the model's own nodes.

        Returns
        -------
        SurvivalCurves
            Those of :meth:`predict_survival_function`.
        """
        return self._curves(X, times, look=0)

    def _curves(self, X: Any, times: npt.ArrayLike | None, *, look: int) -> SurvivalCurves:
        check_is_fitted(self)
        asked = None if times is None else check_times(times)
        followed: list[FloatArray] = []
        first: list[CurveParts] = []

        def survival(chunk: Features) -> npt.NDArray[Any]:
            followed.append(self.followed_to_of(chunk))
            with self.blaming_its_file():
                parts = self.curve_parts(chunk)
                if asked is not None:
                    curves = parts.curves().project(asked)
                    parts = CurveParts(curves.times, curves.values, parts.interpolation)
            first[:] = first or [parts._replace(survival=parts.survival[:0])]
            return parts.survival

        values = self._in_chunks(X, survival, look=look)
        with self.blaming_its_file():
            curves = first[0]._replace(survival=values).curves()
        curves.followed_to = np.concatenate(followed)
        curves.index = X.index if isinstance(X, pd.DataFrame) else None
        if times is not None and curves.times[-1] > self.nodes[-1]:
            warn_of_late(curves.times[-1], self.nodes[-1])
        return curves

    def predict_cumulative_hazard_function(self, X: Any, times: npt.ArrayLike | None = None) -> FloatArray:
        """Predict the cumulative hazard, -log S.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, as in :meth:`predict_survival_function`.
        times : array-like or None, default None
            Strictly ascending times to predict for; None: the model's own nodes.

        Returns
        -------
        array of shape (n, T)
            One row per patient.
        """
        curves = self.predict_survival_function(X, times)
        return curves.cumulative_hazard(curves.times)

    def predict(self, X: Any) -> FloatArray:
        """Predict a risk score: minus the mean survival time up to the last node.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, as in :meth:`predict_survival_function`.

        Returns
        -------
        array of shape (n,)
            Higher is worse.
        """
        return self._in_chunks(X, lambda chunk: -self.curves_of(chunk).rmst(), look=3)

    def predict_followed_to(self, X: Any) -> FloatArray:
        """Return until when training patients with such features were followed; see :class:`FollowUp`.

        What a curve says about later times was learnt from patients with other features. NaN for a model from a file of
        version 0.1, which does not know.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, as in :meth:`predict_survival_function`.

        Returns
        -------
        array of shape (n,)
            Times.
        """
        return self._in_chunks(X, self.followed_to_of)

    def look_outside(self, X: Any) -> Outside | None:
        """Compare patients with those that the model was trained on.

        Parameters
        ----------
        X : DataFrame or array-like
            Features, as in :meth:`predict_survival_function`.

        Returns
        -------
        Outside or None
            Which values lie outside the range of training; None if the model, from an older file, does not know it.
        """
        check_is_fitted(self)
        ranges = self.training_ranges
        if ranges is None:
            return None
        return ranges.look(self.check_features(X))

    def groups_of(self, prepared: Features) -> IntArray:
        """Return in which group of alike follow-up each patient is.

        Parameters
        ----------
        prepared : array of shape (n, columns)
            Prepared features.

        Returns
        -------
        array of int
            One group per patient; 0 for all where the features do not predict censoring.
        """
        if self.follow_up_ is None:
            return np.zeros(len(prepared), dtype=np.int64)
        return self.follow_up_.assign(prepared)

    def followed_to_of(self, prepared: Features) -> FloatArray:
        """Return until when training patients with such features were followed.

        Parameters
        ----------
        prepared : array of shape (n, columns)
            Prepared features.

        Returns
        -------
        array of shape (n,)
            Times; NaN where that is not known.
        """
        return np.full(len(prepared), np.nan) if self.follow_up_ is None else self.follow_up_.followed_to(prepared)

    def _in_chunks(self, X: Any, predict: Callable[[Features], npt.NDArray[Any]], *, look: int = 0) -> npt.NDArray[Any]:
        """Check features and predict from them, preprocessed, in chunks that keep memory small.

        With ``look``, how many calls up the line is to be blamed, warn of patients whose predictions are not to be
        used, and of columns with many values outside the range of training.
        """
        check_is_fitted(self)
        features = self.check_features(X)
        if look and (ranges := self.training_ranges) is not None:
            counts = ranges.look(features).counts
            if counts.deserves_warning:
                warnings.warn(" ".join(counts.describe()), OutsideTrainingWarning, stacklevel=look)
        by_row = features.iloc if isinstance(features, pd.DataFrame) else features
        size = max(1, _CHUNK_NUMBERS // self.numbers_per_row())
        out = None
        for start in range(0, len(features), size):
            part = predict(self.encode(by_row[start : start + size]))
            if out is None:
                out = np.empty((len(features), *part.shape[1:]), dtype=part.dtype)
            out[start : start + size] = part
        assert out is not None  # check_features refuses an empty X
        return out


def held_out_curves(model: Any, X: Any) -> SurvivalCurves:
    """Return the curves of held-out patients by a model of any make, without a word on those unlike training.

    They are part of what is measured.

    Parameters
    ----------
    model : estimator
        A fitted model, or a pipeline that ends with one.
    X : DataFrame or array-like
        Features.
    """
    if isinstance(model, CurveModel):
        return model.curves_for(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutsideTrainingWarning)
        curves: SurvivalCurves = model.predict_survival_function(X)
    return curves


def warn_of_late(asked: float, last: float) -> None:
    """Say that curves were asked for later than they know."""
    warnings.warn(
        f"survival was asked for at {asked:g}, beyond the last node {last:g} of the model; the curves are held "
        "constant there.",
        BeyondLastNodeWarning,
        stacklevel=3,
    )
