"""What is searched for a model: the space of its record, or the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dcsurv.kinds import kind_of, make_model
from dcsurv.search_space import Choice, Dimension, Float, Int, Space, TuningError, is_number


def named_estimator(name: str) -> Any:
    """Return an unfitted model by its name, in capitals or not: coxph, dcs, dcs-log, calibrated, calibrated-coxph.

    Parameters
    ----------
    name : str
        Name of a model; see :func:`dcsurv.kinds.make_model`.
    """
    try:
        return make_model(name)
    except ValueError as error:
        raise TuningError.of(error) from None


def default_space(estimator: Any, y: Any = None) -> Space:
    """Return the space that this library searches for a model, the one of its record.

    Unlike the paper's it reaches what matters most to a network, its training (step size, batch, dropout, weight
    decay), on log scales where factors count, and it stays with networks that are quick to train.

    Parameters
    ----------
    estimator : estimator
        The model.
    y : outcome or None, default None
        Outcomes that it is tuned on.
    """
    return _shipped("default", estimator, y)


def paper_space(estimator: Any, y: Any) -> Space:
    """Return the space of the paper's search for a model, the one of its record.

    The paper states it in part; the rest is inferred from its table of best settings. The number of nodes is a
    quarter, half, once or twice the last time in months, for which the model's ``time_unit`` must be known. A few
    numbers of nodes in the table follow no rule; add them with ``space | {"n_nodes": Choice((60, 88, 175))}``.

    Parameters
    ----------
    estimator : estimator
        The model.
    y : outcome
        Outcomes that it is tuned on.
    """
    return _shipped("paper", estimator, y)


def _shipped(which: Literal["default", "paper"], estimator: Any, y: Any) -> Space:
    kind = kind_of(estimator)
    name = type(estimator).__name__
    if kind is None or (kind.space is None and kind.paper_space is None):
        raise TuningError(
            f"there is no shipped space for a {name}. Pass one, such as space={{'strength': Float(0.1, 5, log=True)}}."
        )
    found = kind.space if which == "default" else kind.paper_space
    if found is None:
        raise TuningError(f"the paper does not tune {name}. Use space='default', or pass one.")
    return dict(found(estimator, y) if callable(found) else found)


def make_space(which: Literal["default", "paper"] | Mapping[str, Dimension], estimator: Any, y: Any) -> Space:
    """Return a checked space for an estimator: a shipped one by its name, or the user's own."""
    parameters = estimator.get_params()
    if isinstance(which, str):
        if which not in ("default", "paper"):
            raise TuningError(
                f"space is {which!r}, but 'default', 'paper' or a mapping from parameters to ranges is expected."
            )
        space = _shipped(which, estimator, y)
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
        elif is_number(value):
            options = dimension.options if isinstance(dimension, Choice) else (dimension.low, dimension.high)
            distances = {option: abs(float(option) - float(value)) for option in options if is_number(option)}
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
