"""Maps by name, one after the other, and out of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import msgspec
import numpy.typing as npt

from dcsurv.arithmetic import ReadableCurves, Value
from dcsurv.calibration.horizon_map import HorizonMap
from dcsurv.calibration.map_base import MappedCurves, RecalibrationMap
from dcsurv.calibration.rank_map import RankPreservingMap
from dcsurv.curves import SurvivalCurves, as_curves
from dcsurv.curves.interpolated import Interpolated
from dcsurv.metrics.censoring import Censoring, resolve_follow_up
from dcsurv.plain import declared
from dcsurv.target import FloatArray


class _State(msgspec.Struct):
    """What a file has to say of any map; each kind declares the rest."""

    kind: str
    maps: list[dict[str, Any]] = []


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

    @property
    def names(self) -> tuple[str, ...]:
        """What :func:`make_maps` calls them, in their order."""
        return tuple(name for one in self.maps for name, kind in _BY_NAME.items() if isinstance(one, kind))

    def describe(self) -> str:
        """Return the maps in words, such as "the horizon and rank maps"."""
        return f"the {' and '.join(self.names)} map{'' if len(self.names) == 1 else 's'}"

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
        found: Censoring = resolve_follow_up(censoring, X, y, [predicted]) or "marginal"
        for k, one in enumerate(self.maps):
            if k:
                predicted = self.maps[k - 1].transform(predicted)
            one.fit(y, predicted, sample_weight, censoring=found)
        return self

    def transform(self, curves: Any) -> SurvivalCurves:
        out = as_curves(curves)
        for one in self.maps:
            out = one.transform(out)
        return out

    def nodes_of(self, curves: Interpolated) -> FloatArray:
        return self._behind(curves).times

    def read(self, curves: Interpolated, times: FloatArray) -> FloatArray:
        return self._behind(curves).evaluate_rows(times)

    def held(self, rows: FloatArray, times: FloatArray) -> FloatArray:
        if not self.maps:
            return rows
        return self.maps[0].held(rows, times) if len(self.maps) == 1 else super().held(rows, times)

    def transform_arithmetic(self, curves: ReadableCurves) -> ReadableCurves:
        for one in self.maps:
            curves = one.transform_arithmetic(curves)
        return curves

    def arithmetic_at(self, survival: Value, times: FloatArray) -> Value:
        for one in self.maps:
            survival = one.arithmetic_at(survival, times)
        return survival

    def held_arithmetic(self, survival: Value, times: FloatArray) -> Value:
        return super().held_arithmetic(survival, times) if self.maps else survival

    def _behind(self, curves: Interpolated) -> Interpolated:
        for one in self.maps:
            curves = MappedCurves(curves, one)
        return curves

    def __call__(self, survival: FloatArray, times: FloatArray) -> FloatArray:
        for one in self.maps:
            survival = one(survival, times)
        return survival

    def get_state(self) -> dict[str, Any]:
        return {"kind": "sequence", "maps": [one.get_state() for one in self.maps]}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        maps = [map_from_state(one) for one in state["maps"]]
        if any(isinstance(one, MapSequence) for one in maps):
            raise ValueError("a sequence of maps holds no other sequence.")
        return cls(maps)


_KINDS: dict[str, type[RecalibrationMap]] = {
    "rank": RankPreservingMap,
    "horizon": HorizonMap,
    "sequence": MapSequence,
}


_BY_NAME: dict[str, type[RankPreservingMap] | type[HorizonMap]] = {"rank": RankPreservingMap, "horizon": HorizonMap}


def make_maps(names: Sequence[str], *, caution: float = 1.0) -> MapSequence:
    """Return the maps of these names, unfitted, as one.

    Parameters
    ----------
    names : sequence of str
        ``"horizon"`` and ``"rank"``, in the order in which they are applied.
    caution : float, default 1.0
        What the prior of each map is multiplied by: how much more the identity counts than usual.

    Returns
    -------
    MapSequence
        The maps.
    """
    if isinstance(names, str) or any(name not in _BY_NAME for name in names):
        raise ValueError(f"maps is {names!r}, but a sequence of names out of {sorted(_BY_NAME)} is expected.")
    usual = (_BY_NAME[name]() for name in names)
    return MapSequence([type(one)(prior=caution * one.prior) for one in usual])


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
    kind = declared(state, _State).kind
    if kind not in _KINDS:
        raise ValueError(f"the state is of a map of the unknown kind {kind!r}; known are {sorted(_KINDS)}.")
    return _KINDS[kind].from_state(state)
