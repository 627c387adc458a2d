"""The map that keeps every ranking: one for all times, from the probability integral transform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Self

import msgspec
import numpy as np
import numpy.typing as npt

from dcsurv._compile import pays
from dcsurv.arithmetic import ReadableCurves, Value
from dcsurv.arithmetic.functions import through_points
from dcsurv.calibration.map_base import RecalibrationMap, check_prior
from dcsurv.curves import SurvivalCurves, Transform, as_curves
from dcsurv.metrics.censoring import Censoring
from dcsurv.nonparametric import kaplan_meier
from dcsurv.plain import Positive, Share, declared
from dcsurv.target import BoolArray, FloatArray, check_sample_weight, make_outcome, unpack

# A map of a large cohort keeps this many of its points: more would only draw the noise.
_MAX_POINTS = 512
# Two points of the map are at least this far apart, so that no slope overflows.
_APART = 1e-9
# Up to so many values, plain NumPy is quicker than the wait for compiled code, and gives the same bits.
_FEW = 200_000
_STEPS = 8192
_BISECTIONS = 60


class _State(msgspec.Struct):
    """What a file has to say of the map."""

    prior: Positive
    survival: list[Share]
    mapped: list[Share]
    identity_share: Annotated[float, msgspec.Meta(gt=0, le=1)]


class RankPreservingMap(RecalibrationMap):
    r"""One increasing map of S for all times: Kaplan-Meier of the probability integral transform.

    If the curves were true, :math:`v_i = 1 - S(z_i | x_i)` would be a censored sample of the uniform distribution.
    Their Kaplan-Meier curve K shows what distribution it is instead, and

    .. math:: S'(t | x) = (1 - w)\, K(1 - S(t | x)) + w\, S(t | x), \qquad w = \frac{prior}{prior + events}

    makes it uniform. K runs linearly through (0, 1), the middles of the Kaplan-Meier drops and (1, 0); the middles
    keep it from reaching 0 before the last v. Being strictly increasing and the same at all times, the map changes
    no order of patients at any t, leaves S(0) = 1, and cannot make a curve rise. O(n log n).

    Parameters
    ----------
    prior : float, default 200.0
        How many patients with an event the identity counts for. It matters in small cohorts and gives the map a
        positive slope everywhere.

    Notes
    -----
    Assumes that censoring is independent of the event given x, and needs no weights: v is uniform whatever x is, so
    that it does not depend on a censoring that x decides. The points are kept in S, not 1 - S, so that
    small survival probabilities keep all their digits.

    Examples
    --------
    >>> from dcsurv import CoxPH, metrics
    >>> from dcsurv.calibration import RankPreservingMap
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 900)
    >>> model = CoxPH().fit(cohort.X[:300], cohort.y[:300])
    >>> X, y = cohort.X[300:], cohort.y[300:].copy()
    >>> y["time"] /= 2  # a hospital with worse outcomes
    >>> curves = model.predict_survival_function(X)
    >>> one = RankPreservingMap().fit(y[:300], curves[:300], X=X[:300])
    >>> metrics.ddc(y[300:], one.transform(curves[300:])) < metrics.ddc(y[300:], curves[300:]) / 2
    True
    """

    def __init__(self, *, prior: float = 200.0) -> None:
        self.prior = check_prior(prior)
        self._set([0.0, 1.0], [0.0, 1.0], 1.0)

    def fit(
        self,
        y: Any,
        curves: Any,
        sample_weight: npt.ArrayLike | None = None,
        *,
        X: Any | None = None,
        censoring: Censoring = "auto",
    ) -> Self:
        time, event = unpack(y, min_events=1)
        own = as_curves(curves, len(time)).at_own(time)
        weight = check_sample_weight(sample_weight, len(time))
        km = kaplan_meier(make_outcome(1.0 - own, event), sample_weight=weight)
        level = np.concatenate([[1.0], km.values])
        drops = np.diff(level) < 0
        # Ascending in S from here on.
        survival = 1.0 - km.times[drops][::-1]
        middle = ((level[1:] + level[:-1]) / 2)[drops][::-1]
        if len(survival) > _MAX_POINTS:
            kept = np.rint(np.linspace(0, len(survival) - 1, _MAX_POINTS)).astype(np.int64)
            survival, middle = survival[kept], middle[kept]
        inside = (survival > _APART) & (survival < 1 - _APART)
        survival, middle = survival[inside], middle[inside]
        # A map must take 1 to 1 and 0 to 0: mass on these very values (S(z) = 1) is spread to the next point.
        apart = np.diff(survival, prepend=0.0) > _APART
        points = [0.0, *survival[apart], 1.0], [0.0, *middle[apart], 1.0]
        self._set(*points, self.prior / (self.prior + _effective_events(event, weight)))
        return self

    def _set(self, survival: Sequence[float], mapped: Sequence[float], share: float) -> None:
        self.survival_ = np.asarray(survival, dtype=np.float64)
        self.mapped_ = np.asarray(mapped, dtype=np.float64)
        self.identity_share_ = float(share)
        self._slope = np.diff(self.mapped_) / np.diff(self.survival_)
        # The piece in which each of many equal steps of S begins: where a search begins.
        steps = np.arange(_STEPS + 1) / _STEPS
        self._first_of_steps = np.searchsorted(self.survival_, steps, side="right").astype(np.int32) - np.int32(1)

    def transform(self, curves: Any) -> SurvivalCurves:
        """Return the curves carrying this map, after the one that they carry already.

        Parameters
        ----------
        curves : SurvivalCurves, tuple or DataFrame
            Predicted curves, as for :meth:`fit`.

        Returns
        -------
        SurvivalCurves
            The same patients', mapped.
        """
        predicted = as_curves(curves)
        before = predicted.transform
        return predicted.with_transform(self if before is None else _Chain(before, self))

    def __call__(self, survival: FloatArray, times: FloatArray) -> FloatArray:
        s = np.asarray(survival, dtype=np.float64)
        if pays(s.size, _FEW):
            from dcsurv.calibration._kernels import piecewise_linear

            out = np.empty(s.shape)
            source = np.ascontiguousarray(s)
            points = self.survival_, self.mapped_, self._slope, self._first_of_steps
            piecewise_linear(source.ravel(), *points, out.ravel())
            mapped = out
        else:
            part = np.clip(np.searchsorted(self.survival_, s, side="right") - 1, 0, len(self._slope) - 1)
            mapped = self.mapped_[part] + (s - self.survival_[part]) * self._slope[part]
            # Rounding must not carry a value past the next point, where another piece begins.
            mapped = np.minimum(mapped, self.mapped_[part + 1])
        mapped *= 1.0 - self.identity_share_
        return mapped + self.identity_share_ * s

    def transform_arithmetic(self, curves: ReadableCurves) -> ReadableCurves:
        return curves.mapped(self)

    def arithmetic_at(self, survival: Value, times: FloatArray) -> Value:
        return self.arithmetic(survival)

    def arithmetic(self, survival: Value) -> Value:
        """Return the map of survival as arithmetic.

        Parameters
        ----------
        survival : Value
            S.

        Returns
        -------
        Value
            S after the map.
        """
        mapped = through_points(survival, self.survival_, self.mapped_)
        return mapped * (1.0 - self.identity_share_) + survival * self.identity_share_

    def source_of(self, level: float) -> float:
        """Return the largest S that is mapped to no more than a level.

        Parameters
        ----------
        level : float
            Between 0 and 1.

        Returns
        -------
        float
            S before the map.
        """
        low, high = 0.0, 1.0
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            if self(np.array([middle]), np.zeros(1))[0] <= level:
                low = middle
            else:
                high = middle
        return low

    def get_state(self) -> dict[str, Any]:
        return {
            "kind": "rank",
            "prior": self.prior,
            "survival": self.survival_.tolist(),
            "mapped": self.mapped_.tolist(),
            "identity_share": self.identity_share_,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        found = declared(state, _State)
        out = cls(prior=found.prior)
        survival, mapped = found.survival, found.mapped
        sound = 0 < len(survival) == len(mapped) and all(
            p[0] == 0 and p[-1] == 1 and (np.diff(p) > 0).all() for p in (survival, mapped)
        )
        if not sound:
            raise ValueError("the points of a rank-preserving map must ascend from (0, 0) to (1, 1).")
        out._set(survival, mapped, found.identity_share)
        return out


class _Chain:
    """Two transforms of curves in a row."""

    def __init__(self, first: Transform, second: Transform) -> None:
        self.first, self.second = first, second

    def __call__(self, survival: FloatArray, times: FloatArray) -> FloatArray:
        return self.second(self.first(survival, times), times)


def _effective_events(event: BoolArray, weight: FloatArray) -> float:
    """Return the number of events that weighted ones are worth; equal weights count one each, whatever their scale."""
    some = weight[event]
    return float(some.sum() ** 2 / np.maximum((some**2).sum(), 1e-300))
