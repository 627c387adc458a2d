"""Recalibration maps: fitted on out-of-sample curves, they make predicted probabilities mean what they say.

A map takes S(t | x) to another probability, strictly increasing at each t, so that the order of the patients at t, and
with it C-td and AUC(t), stays. Maps work on the curves of any model, also as an array and its times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dcsurv.calibration.horizon_fit import fit_shift_and_tilt, known_weights, refined
from dcsurv.curves import SurvivalCurves, Transform, as_curves
from dcsurv.metrics.censoring import Censoring, resolve_follow_up
from dcsurv.nonparametric import kaplan_meier
from dcsurv.target import BoolArray, FloatArray, check_sample_weight, make_outcome, unpack

# A map of a large cohort keeps this many of its points: more would only draw the noise.
_MAX_POINTS = 512
# Two points of the rank-preserving map are at least this far apart, so that no slope overflows.
_APART = 1e-9
# In fitting, survival this close to 0 or 1 counts as this, so that the complementary log-log is finite.
_EDGE = 1e-9
_HORIZONS = 20
_SLOPES = (0.05, 20.0)


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
        censoring : {"auto", "marginal", "by-features"} or FollowUp, default "auto"
            Whether the censoring weights follow the features; see :func:`dcsurv.metrics.brier_score`.

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
        self.prior = _check_prior(prior)
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
        part = np.clip(np.searchsorted(self.survival_, s, side="right") - 1, 0, len(self._slope) - 1)
        mapped = self.mapped_[part] + (s - self.survival_[part]) * self._slope[part]
        # Rounding must not carry a value past the next point, where another piece begins.
        mapped = np.minimum(mapped, self.mapped_[part + 1])
        out: FloatArray = (1.0 - self.identity_share_) * mapped + self.identity_share_ * s
        return out

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
        out = cls(prior=state["prior"])
        survival, mapped = state["survival"], state["mapped"]
        sound = len(survival) == len(mapped) and all(
            p[0] == 0 and p[-1] == 1 and (np.diff(p) > 0).all() for p in (survival, mapped)
        )
        if not sound or not 0 < state["identity_share"] <= 1:
            raise ValueError("the points of a rank-preserving map must ascend from (0, 0) to (1, 1).")
        out._set(survival, mapped, state["identity_share"])
        return out


class HorizonMap(RecalibrationMap):
    r"""Shift and slope of the predicted risk at each time, on the complementary log-log scale.

    With :math:`H = -\log S`,

    .. math:: H'(t | x) = e^{a(t)} H(t | x)^{b(t)}, \qquad b(t) > 0,

    fitted at up to twenty quantiles of the event times to "event by t", the patients whose state at t is known
    weighted by the inverse probability of being known. With c(t) the mean of log H at t, the shift at the centre
    :math:`a(t) + (b(t) - 1) c(t)` and the slope b(t) are drawn to the identity (0 and 1), the more the smaller the
    cohort, and to their neighbours in time. Between the quantiles a and b run linearly, outside they are constant.

    Parameters
    ----------
    prior : float, default 50.0
        How many patients with an event the identity counts for.

    Notes
    -----
    *Monotone in time.* A map that looks at (S, t) only keeps every curve from rising just if it never rises in t at
    any fixed S, because a curve may be flat. That would forbid the correction needed most, of models that are right
    early and too pessimistic late; where it was tried, it cost much of the gain in Brier score. So a(t) and
    b(t) are free; called as a function, this is the map of (S, t), strictly increasing in S at each t, and
    :meth:`transform` holds a curve constant (its running minimum) where it would rise. For that the map is
    worked into the nodes: those of the curves, the map's own times, and times between, so dense that the linear runs
    between them are hardly distinguishable from the bent ones. So, unlike with the rank-preserving map, the order of
    two patients can change, where a curve is held and, by a hair, between nodes; at the nodes all others keep theirs.

    Assumes that censoring is independent of the event within the groups of alike follow-up, which are made from ``X``;
    without ``X``, among all. Patients are left out at times that less than 5 % of their group could reach.

    Examples
    --------
    >>> from dcsurv import CoxPH, metrics
    >>> from dcsurv.calibration import HorizonMap
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 900)
    >>> model = CoxPH().fit(cohort.X[:300], cohort.y[:300])
    >>> X, y = cohort.X[300:], cohort.y[300:].copy()
    >>> y["time"] /= 2  # a hospital with worse outcomes
    >>> curves = model.predict_survival_function(X)
    >>> one = HorizonMap().fit(y[:300], curves[:300], X=X[:300])
    >>> metrics.ddc(y[300:], one.transform(curves[300:])) < metrics.ddc(y[300:], curves[300:]) / 2
    True
    """

    def __init__(self, *, prior: float = 50.0) -> None:
        self.prior = _check_prior(prior)
        self._set([1.0], [0.0], [1.0])

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
        predicted = as_curves(curves, len(time))
        weight = check_sample_weight(sample_weight, len(time))
        inside = time[event & (weight > 0) & (time > 0) & (time <= predicted.times[-1])]
        if len(inside) == 0:  # no event where the curves say anything
            self._set([1.0], [0.0], [1.0])
            return self
        levels = (np.arange(_HORIZONS) + 0.5) / _HORIZONS
        horizons = np.unique(np.quantile(inside, levels))
        survival = np.clip(predicted.evaluate_rows(horizons), _EDGE, 1 - _EDGE)
        log_hazard = np.log(-np.log(survival))
        follow_up = resolve_follow_up(censoring, X, y)
        known = known_weights(time, event, horizons, weight, None if follow_up is None else follow_up.groups)
        happened = (time <= horizons[:, None]) & event
        center = np.average(log_hazard, axis=1, weights=weight)
        shift, tilt = fit_shift_and_tilt(log_hazard, center, happened, known / len(horizons), self.prior)
        slope = np.clip(1.0 + tilt, *_SLOPES)
        self._set(horizons, shift - (slope - 1.0) * center, slope)
        return self

    def _set(self, horizons: npt.ArrayLike, intercept: npt.ArrayLike, slope: npt.ArrayLike) -> None:
        self.horizons_ = np.asarray(horizons, dtype=np.float64)
        self.intercept_ = np.asarray(intercept, dtype=np.float64)
        self.slope_ = np.asarray(slope, dtype=np.float64)

    def transform(self, curves: Any) -> SurvivalCurves:
        """Return recalibrated curves, this map and the one that they carry already worked into their nodes.

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
        nodes = predicted.times
        if predicted.interpolation != "step":
            nodes = refined(nodes, self.horizons_)
        mapped = self(predicted.evaluate_rows(nodes), nodes[:, None])
        np.minimum.accumulate(mapped, axis=0, out=mapped)
        return SurvivalCurves(
            nodes,
            mapped.T,
            interpolation=predicted.interpolation,
            followed_to=predicted.followed_to,
            index=predicted.index,
        )

    def __call__(self, survival: FloatArray, times: FloatArray) -> FloatArray:
        a = np.interp(times, self.horizons_, self.intercept_)
        b = np.interp(times, self.horizons_, self.slope_)
        with np.errstate(divide="ignore", over="ignore"):  # S = 0 has an infinite hazard and stays 0
            out: FloatArray = np.exp(-np.exp(a) * (-np.log(np.asarray(survival, dtype=np.float64))) ** b)
        return out

    def get_state(self) -> dict[str, Any]:
        return {
            "kind": "horizon",
            "prior": self.prior,
            "horizons": self.horizons_.tolist(),
            "intercept": self.intercept_.tolist(),
            "slope": self.slope_.tolist(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        out = cls(prior=state["prior"])
        parts = [np.asarray(state[name], dtype=np.float64) for name in ("horizons", "intercept", "slope")]
        sizes = {part.shape for part in parts}
        if len(sizes) != 1 or parts[0].ndim != 1 or len(parts[0]) == 0 or not np.isfinite(parts).all():
            raise ValueError("a horizon map needs as many finite intercepts and slopes as horizons.")
        if (np.diff(parts[0]) <= 0).any() or (parts[2] <= 0).any():
            raise ValueError("the horizons of a horizon map must ascend and its slopes must be positive.")
        out._set(*parts)
        return out


class MapSequence(RecalibrationMap):
    """Maps applied one after the other, each fitted on what those before it give.

    Parameters
    ----------
    maps : sequence of RecalibrationMap
        The maps, in the order in which they are applied.

    Examples
    --------
    >>> from dcsurv import CoxPH, metrics
    >>> from dcsurv.calibration import HorizonMap, MapSequence, RankPreservingMap
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 900)
    >>> model = CoxPH().fit(cohort.X[:300], cohort.y[:300])
    >>> X, y = cohort.X[300:], cohort.y[300:].copy()
    >>> y["time"] /= 2  # a hospital with worse outcomes
    >>> curves = model.predict_survival_function(X)
    >>> one = MapSequence([HorizonMap(), RankPreservingMap()]).fit(y[:300], curves[:300], X=X[:300])
    >>> metrics.ddc(y[300:], one.transform(curves[300:])) < metrics.ddc(y[300:], curves[300:]) / 2
    True
    """

    def __init__(self, maps: Sequence[RecalibrationMap]) -> None:
        self.maps = tuple(maps)

    def fit(
        self,
        y: Any,
        curves: Any,
        sample_weight: npt.ArrayLike | None = None,
        *,
        X: Any | None = None,
        censoring: Censoring = "auto",
    ) -> Self:
        predicted = as_curves(curves)
        found: Censoring = resolve_follow_up(censoring, X, y) or "marginal"
        for one in self.maps:
            predicted = one.fit(y, predicted, sample_weight, censoring=found).transform(predicted)
        return self

    def transform(self, curves: Any) -> SurvivalCurves:
        out = as_curves(curves)
        for one in self.maps:
            out = one.transform(out)
        return out

    def __call__(self, survival: FloatArray, times: FloatArray) -> FloatArray:
        for one in self.maps:
            survival = one(survival, times)
        return survival

    def get_state(self) -> dict[str, Any]:
        return {"kind": "sequence", "maps": [one.get_state() for one in self.maps]}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        return cls([map_from_state(one) for one in state["maps"]])


_KINDS: dict[str, type[RecalibrationMap]] = {
    "rank": RankPreservingMap,
    "horizon": HorizonMap,
    "sequence": MapSequence,
}


_BY_NAME: dict[str, type[RankPreservingMap] | type[HorizonMap]] = {"rank": RankPreservingMap, "horizon": HorizonMap}


def make_maps(names: Sequence[str]) -> MapSequence:
    """Return the maps of these names, unfitted, as one.

    Parameters
    ----------
    names : sequence of str
        ``"horizon"`` and ``"rank"``, in the order in which they are applied.

    Returns
    -------
    MapSequence
        The maps.
    """
    if isinstance(names, str) or any(name not in _BY_NAME for name in names):
        raise ValueError(f"maps is {names!r}, but a sequence of names out of {sorted(_BY_NAME)} is expected.")
    return MapSequence([_BY_NAME[name]() for name in names])


def map_from_state(state: dict[str, Any]) -> RecalibrationMap:
    """Rebuild a fitted map of any kind from its state.

    Parameters
    ----------
    state : dict
        What ``get_state`` returned.

    Returns
    -------
    RecalibrationMap
        The map.
    """
    kind = state["kind"]
    if kind not in _KINDS:
        raise ValueError(f"the state is of a map of the unknown kind {kind!r}; known are {sorted(_KINDS)}.")
    return _KINDS[kind].from_state(state)


class _Chain:
    """Two transforms of curves in a row."""

    def __init__(self, first: Transform, second: Transform) -> None:
        self.first, self.second = first, second

    def __call__(self, survival: FloatArray, times: FloatArray) -> FloatArray:
        return self.second(self.first(survival, times), times)


def _check_prior(prior: float) -> float:
    if not 0 < prior < np.inf:
        raise ValueError(f"prior is {prior!r}, but a number of patients above 0 is expected, such as 50.")
    return float(prior)


def _effective_events(event: BoolArray, weight: FloatArray) -> float:
    """Return the number of events that weighted ones are worth; equal weights count one each, whatever their scale."""
    some = weight[event]
    return float(some.sum() ** 2 / np.maximum((some**2).sum(), 1e-300))
