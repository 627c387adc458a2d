"""What is searched: named parameters and their ranges, shipped for every model and open to change."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from sklearn.base import clone

from dcsurv.calibration import CalibratedEnsemble, default_member
from dcsurv.durations import Unit, find_unit
from dcsurv.models import DCS, DRSA, CoxPH, CoxTime, DeepSurv, Kamran
from dcsurv.target import unpack

# A parameter is searched only while others have one of these values.
When: TypeAlias = Mapping[str, Sequence[Any]]


class TuningError(ValueError):
    """A search that cannot be run, found out before anything is trained."""


@dataclass(frozen=True)
class Float:
    """A number between ``low`` and ``high``, drawn on a log scale if ``log``."""

    low: float
    high: float
    log: bool = False
    when: When = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_range(self)

    def suggest(self, trial: Any, name: str) -> float:
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    def holds(self, value: Any) -> bool:
        return _is_number(value) and self.low <= value <= self.high


@dataclass(frozen=True)
class Int:
    """A whole number from ``low`` to ``high``, both included, drawn on a log scale if ``log``."""

    low: int
    high: int
    log: bool = False
    when: When = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_range(self)

    def suggest(self, trial: Any, name: str) -> int:
        return trial.suggest_int(name, self.low, self.high, log=self.log)

    def holds(self, value: Any) -> bool:
        return _is_number(value) and value == int(value) and self.low <= value <= self.high


@dataclass(frozen=True)
class Choice:
    """One of some plain values.

    Where ``when`` does not hold, the parameter is set to ``otherwise``; None leaves it as the estimator has it.
    """

    options: tuple[Any, ...]
    when: When = field(default_factory=dict)
    otherwise: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", tuple(self.options))
        plain = all(option is None or isinstance(option, bool | int | float | str) for option in self.options)
        if not self.options or not plain:
            raise TuningError(
                f"options is {self.options!r}, but one or more numbers, texts, True, False or None are expected."
            )

    def suggest(self, trial: Any, name: str) -> Any:
        return trial.suggest_categorical(name, self.options)

    def holds(self, value: Any) -> bool:
        return any(value == option and isinstance(value, bool) == isinstance(option, bool) for option in self.options)


Dimension: TypeAlias = Float | Int | Choice
Space: TypeAlias = dict[str, Dimension]

_SIZES = (16, 32, 64, 128)
_ENCODER = {"encoder_layers": (1, 2)}
_DECODER = {"decoder_layers": (1, 2)}
# Multiples of the last time in months.
_PAPER_NODES = (0.25, 0.5, 1, 2)
# The paper's months are those of a year of 365 days, so that its search space keeps its numbers of nodes.
_PER_PAPER_MONTH: dict[Unit, float] = {"days": 365 / 12, "weeks": 365 / 84, "months": 1.0, "years": 1 / 12}

_NAMES: dict[str, Any] = {
    "coxph": CoxPH(),
    "deepsurv": DeepSurv(),
    "coxtime": CoxTime(),
    "drsa": DRSA(),
    "kamran": Kamran(),
    "dcs": DCS(),
    "dcs-quant": DCS(spacing="quantile"),
    "dcs-log": DCS(spacing="log"),
    "dcs-linear": DCS(spacing="linear"),
    "ensemble": CalibratedEnsemble(estimator=default_member()),
}


def named_estimator(name: str) -> Any:
    """Return an unfitted model by its name, in capitals or not: coxph, deepsurv, ..., dcs, dcs-log, ensemble."""
    if name.lower() not in _NAMES:
        raise TuningError(f"there is no model {name!r}; there are {', '.join(_NAMES)}.")
    return clone(_NAMES[name.lower()])


def paper_space(estimator: Any, y: Any) -> Space:
    """Return the space of the paper's search for one of the six models.

    The paper states it in part; the rest is inferred from its table of best settings. The number of nodes is a
    quarter, half, once or twice the last time in months, for which the model's ``time_unit`` must be known. A few
    numbers of nodes in the table follow no rule; add them with ``space | {"n_nodes": Choice((60, 88, 175))}``.
    """
    if isinstance(estimator, CoxPH):
        raise TuningError("the paper does not tune CoxPH. Use space='default', which searches its penalizer.")
    if isinstance(estimator, DeepSurv | CoxTime):
        return {"layers": Int(1, 5), "layer_size": Choice((8, *_SIZES))}
    space: Space = {
        "encoder_layers": Int(0, 2),
        "encoder_size": Choice(_SIZES, when=_ENCODER),
        "decoder_layers": Int(1, 2) if isinstance(estimator, DRSA) else Int(0, 2),
        "decoder_size": Choice(_SIZES, when=_DECODER),
    }
    if isinstance(estimator, DCS):
        space["bidirectional"] = Choice((False, True), when=_DECODER, otherwise=False)
        space["skip"] = Choice((False, True), when=_DECODER, otherwise=False)
    if isinstance(estimator, DCS | Kamran):
        space |= {"aggregation_layers": Int(1, 2), "lam": Float(0.25, 2.0), "sigma": Float(0.25, 2.0)}
    else:
        space["alpha"] = Float(0.01, 0.99)
    months = _months(estimator, y)
    space["n_nodes"] = Choice(tuple(sorted({max(1, round(share * months)) for share in _PAPER_NODES})))
    return space


def default_space(estimator: Any, y: Any = None) -> Space:
    """Return the space that this library searches for one of the six models.

    Unlike the paper's it reaches what matters most to a network, its training (step size, batch, dropout, weight
    decay), on log scales where factors count, and it stays with networks that are quick to train.
    """
    if isinstance(estimator, CoxPH):
        return {"penalizer": Float(1e-5, 10.0, log=True)}
    space: Space = {
        "learning_rate": Float(3e-4, 3e-2, log=True),
        "batch_size": Choice((32, 64, 128, 256)),
        "dropout": Float(0.0, 0.5),
        "weight_decay": Float(1e-6, 1e-1, log=True),
    }
    if isinstance(estimator, DeepSurv | CoxTime):
        return {**space, "layers": Int(1, 4), "layer_size": Int(8, 128, log=True)}
    recurrent = {"decoder_layers": (1,)}
    space |= {
        "n_nodes": Int(10, 120, log=True),
        "encoder_layers": Int(0, 2),
        "encoder_size": Int(16, 128, log=True, when=_ENCODER),
        "decoder_layers": Choice((1,)) if isinstance(estimator, DRSA) else Int(0, 1),
        "decoder_size": Choice((16, 32, 64), when=recurrent),
        "recurrent_dropout": Float(0.0, 0.5, when=recurrent),
    }
    if isinstance(estimator, DCS):
        space["bidirectional"] = Choice((False, True), when=recurrent, otherwise=False)
        space["skip"] = Choice((False, True), when=recurrent, otherwise=False)
    if isinstance(estimator, DCS | Kamran):
        space |= {"lam": Float(0.05, 5.0, log=True), "sigma": Float(0.1, 2.0, log=True)}
    else:
        space["alpha"] = Float(0.01, 0.99)
    if isinstance(estimator, DCS):
        space["feature_bins"] = Choice((0, 8, 16))
    return space


def make_space(which: Literal["default", "paper"] | Mapping[str, Dimension], estimator: Any, y: Any) -> Space:
    """Return a checked space for an estimator: a shipped one by its name, or the user's own."""
    parameters = estimator.get_params()
    if isinstance(which, str):
        if which not in ("default", "paper"):
            raise TuningError(
                f"space is {which!r}, but 'default', 'paper' or a mapping from parameters to ranges is expected."
            )
        shipped = paper_space if which == "paper" else default_space
        if isinstance(estimator, CalibratedEnsemble):
            space = _prefixed("estimator__", shipped(estimator.estimator, y))
        elif isinstance(estimator, CoxPH | DeepSurv | CoxTime | DRSA | Kamran | DCS):
            space = shipped(estimator, y)
        else:
            raise TuningError(
                f"there is no shipped space for a {type(estimator).__name__}. Pass one, such as "
                "space={'strength': Float(0.1, 5, log=True)}."
            )
    else:
        space = dict(which)
    if not space:
        raise TuningError("the space is empty, so there is nothing to search.")
    for name, dimension in space.items():
        if name not in parameters:
            known = ", ".join(sorted(parameters))
            raise TuningError(
                f"the space names {name!r}, which {type(estimator).__name__} does not have; it has {known}."
            )
        if not isinstance(dimension, Float | Int | Choice):
            raise TuningError(
                f"the space gives {dimension!r} for {name!r}, but a Float, an Int or a Choice is expected."
            )
        earlier = list(space)[: list(space).index(name)]
        late = [other for other in dimension.when if other not in earlier]
        if late:
            raise TuningError(f"{name!r} depends on {late}, which must come before it in the space.")
    return space


def suggest(space: Space, trial: Any) -> dict[str, Any]:
    """Let Optuna choose a value for every parameter that counts, in the order of the space."""
    chosen: dict[str, Any] = {}
    for name, dimension in space.items():
        if active(dimension, chosen):
            chosen[name] = dimension.suggest(trial, name)
    return chosen


def settled(space: Space, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return what to set on the estimator: the chosen values, and the off-values of what does not count."""
    out = {}
    for name, dimension in space.items():
        if name in chosen:
            out[name] = chosen[name]
        elif isinstance(dimension, Choice) and dimension.otherwise is not None:
            out[name] = dimension.otherwise
    return out


def nearest(space: Space, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the space nearest to some others; what is no number is kept if the space has it."""
    out: dict[str, Any] = {}
    for name, dimension in space.items():
        value: Any = settings.get(name)
        if dimension.holds(value):
            out[name] = value
        elif _is_number(value):
            options = dimension.options if isinstance(dimension, Choice) else (dimension.low, dimension.high)
            distances = {option: abs(float(option) - float(value)) for option in options if _is_number(option)}
            if distances:
                out[name] = min(distances, key=lambda option: distances[option])
    return out


def described(space: Space) -> list[Any]:
    """Return a space as plain data: the same if and only if the space is."""
    out: list[Any] = []
    for name, dimension in space.items():
        parts = {key: value for key, value in vars(dimension).items() if key != "when"}
        when = {other: list(values) for other, values in dimension.when.items()}
        out.append([name, type(dimension).__name__, {**parts, "when": when}])
    return out


def active(dimension: Dimension, chosen: Mapping[str, Any]) -> bool:
    """Whether a parameter counts, given the values of those before it."""
    return all(name in chosen and chosen[name] in values for name, values in dimension.when.items())


def _prefixed(prefix: str, space: Space) -> Space:
    out: Space = {}
    for name, dimension in space.items():
        parts = vars(dimension) | {"when": {prefix + other: values for other, values in dimension.when.items()}}
        out[prefix + name] = type(dimension)(**parts)
    return out


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _months(estimator: Any, y: Any) -> float:
    unit = find_unit(estimator.time_unit)
    if unit is None:
        raise TuningError(
            f"the paper counts nodes in months, but time_unit is {estimator.time_unit!r}. Set it on the model: "
            "time_unit='days', 'weeks', 'months' or 'years'."
        )
    return float(unpack(y)[0].max()) / _PER_PAPER_MONTH[unit]


def _check_range(dimension: Float | Int) -> None:
    low, high = dimension.low, dimension.high
    kind, what = (numbers.Integral, "whole numbers") if isinstance(dimension, Int) else (numbers.Real, "numbers")
    if not (isinstance(low, kind) and isinstance(high, kind) and math.isfinite(low) and math.isfinite(high)):
        raise TuningError(f"a range from {low!r} to {high!r} was given, but two finite {what} are expected.")
    if low > high or (dimension.log and low <= 0):
        raise TuningError(
            f"a range from {low!r} to {high!r} was given{' on a log scale' if dimension.log else ''}; low must not be "
            "above high, and on a log scale it must be above 0."
        )
