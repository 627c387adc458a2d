"""A fitted model from features to curves as arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dcsurv.arithmetic import Arithmetic, FeatureInput, Graph, Value
from dcsurv.arithmetic.whole import LEVEL, TIMES
from dcsurv.follow_up import FollowUp
from dcsurv.models.time_bounds import TimeBounds
from dcsurv.preprocessing import Preprocessor, Ranges
from dcsurv.target import FloatArray

if TYPE_CHECKING:
    from dcsurv.arithmetic import ReadableCurves
    from dcsurv.models.base import SurvivalModel


def arithmetic_of(model: SurvivalModel) -> Arithmetic:
    """Return a fitted model as a graph with all of its outputs; see :class:`dcsurv.arithmetic.Arithmetic`."""
    graph = Graph()
    features = _features(model)
    prepared = _prepared(model, [graph.value(one.value).reshape(1) for one in features], graph)
    curves = model.curve_arithmetic(prepared)
    times = graph.value(TIMES)
    found = {"curve": curves.table, "survival": curves.read(times)}
    if model.has_band:
        lower, upper = model.band_arithmetic(prepared).ends(times, found["survival"], graph.value(LEVEL))
        found |= {"lower": lower, "upper": upper}
    found["group"], found["followed_to"] = _followed(model.follow_up_, prepared)
    graph.outputs |= {name: value.number for name, value in found.items()}
    bounds = model.time_bounds_
    return Arithmetic(
        kind=type(model).__name__,
        graph=graph,
        features=features,
        curves=curves,
        numbers_per_row=model.numbers_per_row(),
        early=None if bounds is None else _sources(bounds, curves),
        until=None if bounds is None else bounds.until,
        about=_about(model),
    )


def _features(model: SurvivalModel) -> list[FeatureInput]:
    """Return what the model takes, by name where it knows names."""
    encoder = model.preprocessor_
    names = getattr(model, "feature_names_in_", None)
    if isinstance(encoder, Preprocessor):
        known = [(one["name"], one["levels"]) for one in encoder.get_state()["columns"]]
    elif encoder is None:
        own = [f"x{k}" for k in range(model.n_features_in_)] if names is None else [str(name) for name in names]
        known = [(name, None) for name in own]
    else:
        raise ValueError(
            f"the preprocessing {type(encoder).__name__} has no arithmetic that is known here. Use preprocess='auto', "
            "or transform X first and use preprocess=None."
        )
    return [
        FeatureInput(name, f"feature {k}", None if levels is None else tuple(levels))
        for k, (name, levels) in enumerate(known)
    ]


def _prepared(model: SurvivalModel, columns: list[Value], graph: Graph) -> Value:
    """Return the columns that the model computes with: what ``encode`` makes of features, each (n, 1)."""
    encoder, ranges = model.preprocessor_, model.training_ranges
    if encoder is None:
        columns = [one.single() for one in columns]
    if ranges is not None:
        columns = _clamped(columns, ranges)
    if encoder is None:
        return graph.concat(columns).single()
    assert isinstance(encoder, Preprocessor)
    return encoder.arithmetic(columns)


def _clamped(columns: list[Value], ranges: Ranges) -> list[Value]:
    """Return columns in which values far outside the range of training are at its edge."""
    lowest, highest = ranges.limits
    out = list(columns)
    for place, low, high, least, most in zip(ranges.places, ranges.low, ranges.high, lowest, highest, strict=True):
        if np.isfinite(least) and np.isfinite(most):
            value = out[place]
            out[place] = value.below(least, low, (-value).below(-most, high, value))
    return out


def _followed(follow_up: FollowUp | None, prepared: Value) -> tuple[Value, Value]:
    """Return the group of alike follow-up and until when it was followed, (n, 1) each; NaN where that is not known."""
    nobody = prepared.take([0]) * 0.0
    if follow_up is None:
        return nobody, nobody + np.nan
    group = follow_up.arithmetic(prepared)
    return group, prepared.graph.constant(follow_up.followed_until).take(group)


def _sources(bounds: TimeBounds, curves: ReadableCurves) -> FloatArray:
    """Return the levels of early bounds before the maps; those that are never reached, or at once, lie outside."""
    inside = (bounds.early > 0) & (bounds.early < 1)
    out = np.where(bounds.early >= 1, 2.0, -1.0)
    out[inside] = [curves.source_of(level) for level in bounds.early[inside]]
    return out


def _about(model: SurvivalModel) -> dict[str, Any]:
    return {
        "model": model.display_name,
        "time_unit": model.time_unit,
        "last_time": float(model.nodes[-1]),
        "has_band": model.has_band,
    }
