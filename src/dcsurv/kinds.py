"""What kinds of models there are: one record per kind, declared beside its class.

Files, ensembles, the command line, tuning and the documentation read the records. A package of somebody else's
registers its own; see :mod:`dcsurv._extensions` for how it is found.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dcsurv._extensions import load_extensions
from dcsurv.search_space import Space

# A space, or the function that makes it from an estimator and the outcome that it is searched on.
SpaceOf: TypeAlias = Space | Callable[[Any, Any], Space]

# The rooms that register models. They are below this one and are therefore named, not imported.
_ROOMS = ("dcsurv.models", "dcsurv.calibration")

_NAME = re.compile("[a-z0-9]+([-_][a-z0-9]+)*")
# What everything that uses a model by its name asks of it.
_METHODS = ("fit", "predict_survival_function", "get_params", "to_saved", "from_saved")


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
        Another class has one of its names already, or the record cannot work.
    """
    _check(kind)
    own = {kind.name, *kind.variants}
    for known in list(_kinds.values()):
        if _path(known) == _path(kind):  # its module was imported anew: under the same name it keeps its place
            if known.name != kind.name:
                del _kinds[known.name]
            continue
        shared = sorted(own & {known.name, *known.variants})
        if known.wraps:
            shared += [name for name in own if name.startswith(f"{known.name}-")]  # an ensemble of such members
        if known.model.__name__ == kind.model.__name__:
            shared.append(kind.model.__name__)
        if shared:
            raise ValueError(
                f"the model {kind.name!r} ({_path(kind)}) cannot be registered: {known.name!r} ({_path(known)}) has "
                f"one of its names, {shared[0]}. Rename it."
            )
    _kinds[kind.name] = kind
    return kind


def _check(kind: ModelKind) -> None:
    """Refuse a record that cannot work."""
    problem = None
    for name in (kind.name, *kind.variants):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            problem = f"{name!r} is no name of small letters, digits and hyphens"
    if kind.name in kind.variants:
        problem = f"the variant {kind.name!r} has the name of the model"
    if not isinstance(kind.model, type) or (lacking := [name for name in _METHODS if not hasattr(kind.model, name)]):
        what = f"has no {lacking[0]}" if isinstance(kind.model, type) else "is no class"
        problem = f"its model {kind.model!r} {what}; derive from dcsurv.models.SurvivalEstimator"
    elif missing := missing_methods(kind.model):
        problem = f"its class {kind.model.__name__} lacks {' and '.join(missing)}"
    else:
        known = inspect.signature(kind.model).parameters
        for name, parameters in {"quick": kind.quick, **kind.variants}.items():
            if unknown := [one for one in parameters if one not in known]:
                problem = f"{name!r} sets {unknown[0]!r}, which is no parameter of {kind.model.__name__}"
    if problem is not None:
        raise ValueError(f"the model {kind.name!r} cannot be registered: {problem}.")


def _path(kind: ModelKind) -> str:
    return f"{kind.model.__module__}.{kind.model.__qualname__}"


def missing_methods(model: type[Any]) -> list[str]:
    """Return what a class has to add before it can be used, because its bases only declare it.

    Parameters
    ----------
    model : type
        The class of a model.

    Returns
    -------
    list of str
        The names of methods and properties.
    """
    return [name for name in dir(model) if getattr(inspect.getattr_static(model, name), "__isabstractmethod__", False)]


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
