"""The map that makes risks right time by time: a shift and a slope at each horizon."""

from __future__ import annotations

from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt

from dcsurv._compile import pays
from dcsurv.arithmetic import ReadableCurves, Value
from dcsurv.calibration.horizon_fit import fit_shift_and_tilt, known_weights, refined
from dcsurv.calibration.map_base import RecalibrationMap, check_prior
from dcsurv.curves import SurvivalCurves, as_curves
from dcsurv.curves.interpolated import Interpolated
from dcsurv.metrics.censoring import Censoring, resolve_follow_up
from dcsurv.plain import Finite, NotNegative, Positive, declared
from dcsurv.target import FloatArray, check_sample_weight, unpack

# In fitting, survival this close to 0 or 1 counts as this, so that the complementary log-log is finite.
_EDGE = 1e-9
_HORIZONS = 20
_SLOPES = (0.05, 20.0)
# Up to so many values, plain NumPy is quicker than the wait for compiled code, and gives the same bits.
_FEW = 10_000_000


class _State(msgspec.Struct):
    """What a file has to say of the map."""

    prior: Positive
    horizons: list[NotNegative]
    intercept: list[Finite]
    slope: list[Positive]


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

    Assumes that censoring is independent of the event within the groups of alike follow-up, which are made from ``X``,
    or are tenths of the predicted risk; if neither predicts censoring, among all. Patients are left out at times that
    less than 5 % of their group could reach.

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
        self.prior = check_prior(prior)
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
        follow_up = resolve_follow_up(censoring, X, y, [predicted])
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
        self._refined: tuple[FloatArray, FloatArray] = np.zeros(0), np.zeros(0)

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
        nodes = self.nodes_of(predicted)
        return SurvivalCurves.from_rows(
            nodes,
            self.held(predicted.evaluate_rows(nodes), nodes),
            interpolation=predicted.interpolation,
            followed_to=predicted.followed_to,
            index=predicted.index,
        )

    def nodes_of(self, curves: Interpolated) -> FloatArray:
        if curves.interpolation == "step":
            return curves.times
        before, after = self._refined
        if before is not curves.times:  # those of an ensemble's curves are the same ones for every chunk
            before, after = self._refined = curves.times, refined(curves.times, self.horizons_)
        return after

    def held(self, rows: FloatArray, times: FloatArray) -> FloatArray:
        return _survival(self._log_hazard(rows, times))

    def read(self, curves: Interpolated, times: FloatArray) -> FloatArray:
        # A curve is held where it would rise, so that all nodes before matter; those after the last time do not.
        nodes = self.nodes_of(curves)
        nodes = nodes[: np.searchsorted(nodes, times.max(), side="right") + 1]
        mapped = self._log_hazard(curves.evaluate_rows(nodes), nodes)
        after = np.searchsorted(nodes, times, side="right")
        beside = np.unique(np.clip([after - 1, after], 0, len(nodes) - 1))
        near = SurvivalCurves.from_rows(nodes[beside], _survival(mapped[beside]), interpolation=curves.interpolation)
        return near.evaluate_rows(times)

    def _log_hazard(self, rows: FloatArray, times: FloatArray) -> FloatArray:
        """Return log H after the map at ascending times, one row each; where it would fall it is held."""
        a = np.interp(times, self.horizons_, self.intercept_)
        b = np.interp(times, self.horizons_, self.slope_)
        with np.errstate(divide="ignore"):  # of S = 1 and S = 0 it is infinite, and they stay what they are
            out = np.log(rows)
            np.negative(out, out=out)
            np.log(out, out=out)
        if pays(out.size, _FEW):
            from dcsurv.calibration._kernels import shift_and_hold

            shift_and_hold(out, a, b)
            return out
        out *= b[:, None]
        out += a[:, None]
        return np.maximum.accumulate(out, axis=0, out=out)

    def __call__(self, survival: FloatArray, times: FloatArray) -> FloatArray:
        a = np.interp(times, self.horizons_, self.intercept_)
        b = np.interp(times, self.horizons_, self.slope_)
        with np.errstate(divide="ignore", over="ignore"):  # S = 0 has an infinite hazard and stays 0
            out: FloatArray = np.exp(-np.exp(a) * (-np.log(np.asarray(survival, dtype=np.float64))) ** b)
        return out

    def transform_arithmetic(self, curves: ReadableCurves) -> ReadableCurves:
        nodes = curves.times if curves.interpolation == "step" else refined(curves.times, self.horizons_)
        return ReadableCurves(nodes, self.held_arithmetic(curves.read(nodes), nodes), curves.interpolation)

    def arithmetic_at(self, survival: Value, times: FloatArray) -> Value:
        log_hazard = (-survival.log()).log()
        slope, intercept = (np.interp(times, self.horizons_, one) for one in (self.slope_, self.intercept_))
        return (-(log_hazard * slope + intercept).exp()).exp()

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
        found = declared(state, _State)
        out = cls(prior=found.prior)
        if not 0 < len(found.horizons) == len(found.intercept) == len(found.slope):
            raise ValueError("a horizon map needs as many intercepts and slopes as horizons.")
        if (np.diff(found.horizons) <= 0).any():
            raise ValueError("the horizons of a horizon map must ascend.")
        out._set(found.horizons, found.intercept, found.slope)
        return out


def _survival(log_hazard: FloatArray) -> FloatArray:
    """Return S = exp(-H) of log H."""
    with np.errstate(over="ignore"):
        out = np.exp(log_hazard)
    np.negative(out, out=out)
    return np.exp(out, out=out)
