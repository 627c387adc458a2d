"""What recalibration maps have in common.

A map takes S(t | x) to another probability, strictly increasing at each t, so that the order of the patients at t, and
with it C-td and AUC(t), stays. Maps work on the curves of any model, also as an array and its times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dcsurv.arithmetic import ReadableCurves, Value
from dcsurv.curves import SurvivalCurves
from dcsurv.curves.interpolated import Interpolated
from dcsurv.metrics.censoring import Censoring
from dcsurv.target import FloatArray


class RecalibrationMap(ABC):
    """What maps have in common: fit, transform, a state of plain numbers, and the call ``(survival, times)``.

    Examples
    --------
    >>> from dcsurv.calibration import HorizonMap, RecalibrationMap
    >>> issubclass(HorizonMap, RecalibrationMap)
    True
    """

    @abstractmethod
    def fit(
        self,
        y: Any,
        curves: Any,
        sample_weight: npt.ArrayLike | None = None,
        *,
        X: Any | None = None,
        censoring: Censoring = "auto",
    ) -> Self:
        """Fit to curves predicted for patients that the model was not trained on.

        Parameters
        ----------
        y : outcome
            Outcomes of the patients; see :func:`dcsurv.make_outcome`.
        curves : SurvivalCurves, tuple or DataFrame
            Their curves: also as ``(values, times)``, or as a DataFrame with one row per patient.
        sample_weight : array-like or None, default None
            One non-negative weight per patient.
        X : DataFrame, array-like or None, default None
            Features of the patients.
        censoring : {"auto", "marginal", "by-features", "by-risk"} or FollowUp, default "auto"
            Whether the censoring weights follow the features, or the predicted risk; see
            :func:`dcsurv.metrics.brier_score`.

        Returns
        -------
        self
            The fitted map.
        """

    @abstractmethod
    def transform(self, curves: Any) -> SurvivalCurves:
        """Return recalibrated curves.

        Parameters
        ----------
        curves : SurvivalCurves, tuple or DataFrame
            Predicted curves, as for :meth:`fit`.

        Returns
        -------
        SurvivalCurves
            The same patients', mapped.
        """

    @abstractmethod
    def __call__(self, survival: FloatArray, times: FloatArray) -> FloatArray:
        """Map S at ``times``; the two broadcast against each other."""

    def nodes_of(self, curves: Interpolated) -> FloatArray:
        """Return the nodes that curves have after the map.

        Parameters
        ----------
        curves : Interpolated
            Predicted curves.

        Returns
        -------
        array of float
            Their times.
        """
        return curves.times

    def read(self, curves: Interpolated, times: FloatArray) -> FloatArray:
        """Return mapped curves at some times only, as :meth:`transform` would make them.

        Parameters
        ----------
        curves : Interpolated
            Predicted curves.
        times : array of float
            When, in any order, (m,).

        Returns
        -------
        array of float
            One row per time, (m, n).
        """
        return self(curves.evaluate_rows(times), times[:, None])

    def held(self, rows: FloatArray, times: FloatArray) -> FloatArray:
        """Map S at ascending times; what would rise is held.

        Parameters
        ----------
        rows : array of float
            S, one row per time, (T, n).
        times : array of float
            The times, (T,).

        Returns
        -------
        array of float
            S after the map, (T, n).
        """
        return np.minimum.accumulate(self(rows, times[:, None]), axis=0)

    @abstractmethod
    def transform_arithmetic(self, curves: ReadableCurves) -> ReadableCurves:
        """Return what :meth:`transform` makes of curves as arithmetic.

        Parameters
        ----------
        curves : ReadableCurves
            Predicted curves.

        Returns
        -------
        ReadableCurves
            The same patients', mapped.
        """

    @abstractmethod
    def arithmetic_at(self, survival: Value, times: FloatArray) -> Value:
        """Map S at known times, as arithmetic.

        Parameters
        ----------
        survival : Value
            S at the times, (n, T).
        times : array of float
            The times, (T,).

        Returns
        -------
        Value
            S after the map, (n, T).
        """

    def held_arithmetic(self, survival: Value, times: FloatArray) -> Value:
        """Return what :meth:`held` computes as arithmetic; patients come first here.

        Parameters
        ----------
        survival : Value
            S at the times, (n, T).
        times : array of float
            Ascending times, (T,).

        Returns
        -------
        Value
            S after the map, (n, T).
        """
        return self.arithmetic_at(survival, times).running_min()

    @abstractmethod
    def get_state(self) -> dict[str, Any]:
        """Return the fitted map as plain numbers for a file.

        Returns
        -------
        dict
            What JSON can hold.
        """

    @classmethod
    @abstractmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Rebuild a fitted map.

        Parameters
        ----------
        state : dict
            What :meth:`get_state` returned.

        Returns
        -------
        RecalibrationMap
            The map.
        """


class MappedCurves(Interpolated):
    """Curves behind a map, which is worked out for those times only that they are read at."""

    def __init__(self, curves: Interpolated, one: RecalibrationMap) -> None:
        self._curves, self._map = curves, one
        self.times, self.interpolation, self.transform = one.nodes_of(curves), curves.interpolation, None

    def __len__(self) -> int:
        return len(self._curves)

    def evaluate_rows(self, t: FloatArray, first: int = 0) -> FloatArray:
        """Return S(t) with one row per time, without the patients before the first."""
        return self._map.read(self._curves, t)[:, first:]


def check_prior(prior: float) -> float:
    """Return how many patients with an event the identity counts for; refuse what is no such number."""
    if not 0 < prior < np.inf:
        raise ValueError(f"prior is {prior!r}, but a number of patients above 0 is expected, such as 50.")
    return float(prior)
