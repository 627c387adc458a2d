"""What kinds of models there are: one record per kind, declared beside its class.

Files, ensembles, the command line, tuning and the documentation read the records. A package of somebody else's
registers its own; see :mod:`dcsurv._extensions` for how it is found.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dcsurv._extensions import load_extensions
from dcsurv.search_space import Space

# A space, or the function that makes it from an estimator and the outcome that it is searched on.
SpaceOf: TypeAlias = Space | Callable[[Any, Any], Space]

# The rooms that register models. They are below this one and are therefore named, not imported.
_ROOMS = ("dcsurv.models", "dcsurv.calibration")


@dataclass(frozen=True, kw_only=True)
class ModelKind:
    """A kind of model.

    Parameters
    ----------
    name : str
        What it is called on the command line and in tuning, in small letters.
    model : type
        Its class; the name of the class is the kind in model files.
    meaning : str
        One line for people who choose.
    space : dict, callable or None, default None
        What a search tries by default: a space, or a function of (estimator, y) that returns one.
    paper_space : dict, callable or None, default None
        What the paper searched.
    quick : mapping, default {}
        Parameters that make it small and quick, for a look at the output.
    is_member : bool, default False
        Whether an ensemble can be made of it.
    has_grid : bool, default False
        Whether it has one output per interval of a time grid, so that every interval needs events.
    variants : mapping, default {}
        Other names for it with parameters set, such as ``{"dcs-log": {"spacing": "log"}}``.
    wraps : bool, default False
        Whether it is made of members: ``NAME-MEMBER`` then makes one of them.
    by_name : bool, default True
        Whether it can be made by its name; False for what only wraps a fitted model.

    Examples
    --------
    >>> from dcsurv.kinds import kind_named
    >>> kind_named("coxph").model.__name__
    'CoxPH'
    """

    name: str
    model: type[Any]
    meaning: str
    space: SpaceOf | None = None
    paper_space: SpaceOf | None = None
    quick: Mapping[str, Any] = field(default_factory=dict)
    is_member: bool = False
    has_grid: bool = False
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    wraps: bool = False
    by_name: bool = True


_kinds: dict[str, ModelKind] = {}


def register(kind: ModelKind) -> ModelKind:
    """Make a kind of model known to files, ensembles, tuning and the command line.

    Parameters
    ----------
    kind : ModelKind
        Its record.

    Returns
    -------
    ModelKind
        The record.

    Raises
    ------
    ValueError
        Another class has that name already.
    """
    for known in list(_kinds.values()):
        same_class = (known.model.__module__, known.model.__qualname__) == (
            kind.model.__module__,
            kind.model.__qualname__,
        )
        if same_class:  # its module was imported anew: under the same name it keeps its place
            if known.name != kind.name:
                del _kinds[known.name]
        elif known.name == kind.name or known.model.__name__ == kind.model.__name__:
            raise ValueError(
                f"the model {kind.name!r} ({kind.model.__module__}.{kind.model.__qualname__}) cannot be registered: "
                f"{known.name!r} ({known.model.__module__}.{known.model.__qualname__}) has one of its names. Rename it."
            )
    _kinds[kind.name] = kind
    return kind


def kinds() -> list[ModelKind]:
    """Return all kinds of models, those of installed extensions among them.

    Returns
    -------
    list of ModelKind
        In the order in which they were registered.
    """
    _import_all()
    return list(_kinds.values())


def kind_named(name: str) -> ModelKind:
    """Return the kind of a name or of one of its variants, in capitals or not.

    Parameters
    ----------
    name : str
        Such as ``coxph`` or ``dcs-log``.

    Returns
    -------
    ModelKind
        Its record.

    Raises
    ------
    ValueError
        There is none; the message lists those that there are.
    """
    return _found(name)[0]


def make_model(name: str) -> Any:
    """Return an unfitted model by its name, such as ``coxph``, ``dcs-log`` or ``calibrated-coxph``.

    Parameters
    ----------
    name : str
        Name of a kind or of one of its variants, in capitals or not; with ``calibrated-`` before it, a calibrated
        ensemble of such members.

    Returns
    -------
    SurvivalEstimator
        The model.

    Examples
    --------
    >>> from dcsurv.kinds import make_model
    >>> make_model("dcs-log").spacing
    'log'
    """
    kind, parameters = _found(name)
    return kind.model(**parameters)


def kind_of(model: Any) -> ModelKind | None:
    """Return the kind of an estimator or a class.

    Parameters
    ----------
    model : estimator or type
        A model or its class.

    Returns
    -------
    ModelKind or None
        Its record; None if it is not registered.
    """
    asked = model if isinstance(model, type) else type(model)
    _import_all()
    return next((kind for kind in _kinds.values() if kind.model is asked), None)


def kind_in_file(class_name: str) -> ModelKind | None:
    """Return the kind whose class has this name, as model files hold it; None if there is none."""
    _import_all()
    return next((kind for kind in _kinds.values() if kind.model.__name__ == class_name), None)


def names() -> list[str]:
    """Return the names by which a model can be made, variants among them."""
    return [name for kind in kinds() if kind.by_name for name in (kind.name, *kind.variants)]


def _found(name: str) -> tuple[ModelKind, Mapping[str, Any]]:
    asked = name.lower()
    for kind in kinds():
        if not kind.by_name:
            continue
        if asked == kind.name:
            return kind, {}
        if asked in kind.variants:
            return kind, kind.variants[asked]
        if kind.wraps and asked.startswith(f"{kind.name}-"):
            member, parameters = _found(asked.removeprefix(f"{kind.name}-"))
            if member.is_member:
                return kind, {"estimator": member.model(**parameters)}
    raise ValueError(f"there is no model {name!r}; there are {', '.join(names())}.")


def _import_all() -> None:
    for room in _ROOMS:
        importlib.import_module(room)
    load_extensions()
