"""The reference is true: each public name is in it, and each parameter has an entry with the type and default it has.

A docstring writes ``name : type, default value`` for every parameter, in the order of the signature; fields of a result
may stand under Attributes instead. Types are words: an annotation ``float | None`` is ``float or None``.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import dataclasses
import doctest
import importlib
import inspect
import os
import pkgutil
import re
import types
import typing
from pathlib import Path

import numpy as np
import pytest
from numpydoc.docscrape import NumpyDocString

import dcsurv
from dcsurv.models.documentation import document_parameters

API = Path(__file__).parents[1] / "docs" / "api"
# Every room; the command line has a reference of its own.
ROOMS = [
    "dcsurv",
    *(
        module.name
        for module in pkgutil.walk_packages(dcsurv.__path__, "dcsurv.")
        if module.ispkg and not re.search(r"\._|\.cli\b", module.name)
    ),
]


def listed() -> dict[str, str]:
    """What the pages of the reference list: full name -> the template of its page."""
    found = {}
    for page in sorted(API.glob("*.md")):
        for block in re.findall(r"```\{eval-rst\}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S):
            template = re.search(r":template: (\S+)", block)
            for name in re.findall(r"(?m)^   (dcsurv\.[\w.]+)$", block):
                found[name] = "autosummary/class.rst" if template is None else template[1]
    return found


def named(name: str) -> object:
    module, _, last = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), last, None)
    except ModuleNotFoundError:
        return None


TEMPLATES = listed()
LISTED = {name: named(name) for name in TEMPLATES}
PUBLIC = {name: thing for name, thing in LISTED.items() if thing is not None}
# Exceptions and protocols are met, not made.
CLASSES = {
    name: thing
    for name, thing in PUBLIC.items()
    if inspect.isclass(thing) and not issubclass(thing, Exception) and not getattr(thing, "_is_protocol", False)
}


def documented() -> dict[str, object]:
    """Everything with parameters: public functions and classes, and the methods that their pages show."""
    found, seen = {}, set()
    for name, thing in PUBLIC.items():
        found[name] = thing
        for method in shown(thing, TEMPLATES[name]) if inspect.isclass(thing) else ():
            function = getattr(thing, method)
            if getattr(function, "__func__", function) not in seen:  # a subclass has it, too
                found[f"{name}.{method}"] = function
                seen.add(getattr(function, "__func__", function))
    return found


def shown(thing: type, template: str) -> list[str]:
    """The methods of ours that a class has on its page."""
    text = (API.parent / "_templates" / template).read_text(encoding="utf-8")
    chosen = re.search(r":members: (\S.*)", text)
    if chosen is not None:
        names = set(chosen[1].split(", "))
    else:
        names = set(dir(thing) if ":inherited-members:" in text else vars(thing))
    methods = inspect.getmembers(thing, lambda one: inspect.isfunction(one) or inspect.ismethod(one))
    return [n for n, one in methods if n in names and not n.startswith("_") and one.__module__.startswith("dcsurv")]


DOCUMENTED = documented()


def test_the_reference_lists_names_that_exist():
    gone = [name for name, thing in LISTED.items() if thing is None]
    assert not gone, f"docs/api lists {', '.join(gone)}, which does not exist."


@pytest.mark.parametrize("room", ROOMS)
def test_public_names_are_in_the_reference(room):
    pages = {id(thing) for thing in LISTED.values()}
    module = importlib.import_module(room)
    missing = [
        name
        for name in module.__all__
        if (inspect.isclass(thing := getattr(module, name)) or inspect.isfunction(thing)) and id(thing) not in pages
    ]
    assert not missing, f"{room} exports {', '.join(missing)}, which no page of docs/api lists."


@pytest.mark.parametrize("name", DOCUMENTED)
def test_parameters_are_documented_as_they_are(name):
    assert not (found := problems(DOCUMENTED[name], docstring(name))), f"{name}: " + "; ".join(found)


def docstring(name: str) -> str:
    """The docstring, or of a method that overrides another without words on its parameters, that of the other."""
    own = inspect.getdoc(DOCUMENTED[name]) or ""
    owner, _, method = name.rpartition(".")
    if "Parameters\n---" in own or not inspect.isclass(PUBLIC.get(owner)):
        return own
    others = (inspect.cleandoc(getattr(vars(one).get(method), "__doc__", None) or "") for one in PUBLIC[owner].__mro__)
    return next((text for text in others if "Parameters\n---" in text), own)


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_an_example(name):
    thing = CLASSES[name]
    assert ">>> " in (thing.__dict__["__doc__"] or ""), f"{name} has no example."


def examples() -> dict[str, doctest.DocTest]:
    finder = doctest.DocTestFinder(recurse=False)
    tests = (
        (name, test)
        for name, thing in DOCUMENTED.items()
        for test in finder.find(thing, name, globs={}, module=False)
        if test.examples
    )
    return dict(tests)


EXAMPLES = examples()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_do_what_they_show(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    assert not runner.run(EXAMPLES[name], out=report.append).failed, "".join(report)


# --- what a docstring says against what Python says ----------------------------------------------------------


def problems(thing: object, text: str | None = None) -> list[str]:
    """Everything in which the docstring of a function or class differs from its signature."""
    parameters = [one for one in signature(thing).parameters.values() if one.name not in ("self", "cls")]
    parsed = NumpyDocString(inspect.getdoc(thing) or "" if text is None else text)
    entries = list(parsed["Parameters"])
    if inspect.isclass(thing):
        known = {entry.name for entry in entries}
        entries += [one for one in parsed["Attributes"] if one.name in {p.name for p in parameters} - known]
    found = [
        f"the section {section} has {entry.name or entry.type!r} without a description"
        for section in ("Parameters", "Attributes", "Returns", "Yields", "Raises")
        for entry in parsed[section]
        if not "".join(entry.desc).strip()
    ]
    names = [entry.name for entry in entries]
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    wanted = [stars.get(one.kind, "") + one.name for one in parameters]
    if names != wanted:
        missing, extra = [n for n in wanted if n not in names], [n for n in names if n not in wanted]
        return [*found, f"missing {missing}, not there {extra}" if missing or extra else f"order {names}, not {wanted}"]
    for entry, parameter in zip(entries, parameters, strict=True):
        words, _, default = entry.type.partition(", default ")
        if not words:
            found.append(f"{parameter.name} has no type")
        found += wrong_type(parameter.name, words, evaluated(thing, parameter))
        found += wrong_default(thing, parameter, default)
    return found


def signature(thing: object) -> inspect.Signature:
    """The signature. A protocol, which nobody makes, and an exception with a message only have no parameters."""
    if not inspect.isclass(thing) or not (issubclass(thing, Exception) or getattr(thing, "_is_protocol", False)):
        return inspect.signature(thing)
    ours = inspect.isfunction(thing.__init__) and issubclass(thing, Exception)
    return inspect.signature(thing.__init__) if ours else inspect.Signature()


def evaluated(thing: object, parameter: inspect.Parameter) -> object:
    """The type that an annotation means; a name that is imported for type checkers only stands for itself."""
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return typing.Any
    if isinstance(annotation, typing.ForwardRef):  # of a NamedTuple
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        return annotation
    # A dataclass has fields from its bases, whose modules know what their annotations mean.
    bases = thing.__mro__ if inspect.isclass(thing) else (thing,)
    owner = next((one for one in bases if parameter.name in inspect.get_annotations(one)), thing)
    names = vars(builtins) | vars(importlib.import_module(owner.__module__))
    missing = type("Missing", (dict,), {"__missing__": lambda self, name: type(name, (), {})})
    # A union of ArrayLike, itself a union of many, would not show that it was one.
    return eval(annotation.replace("npt.ArrayLike", "ArrayLike"), {}, missing(names | {"ArrayLike": ArrayLike}))


class ArrayLike:
    """Stands for NumPy's."""


def wrong_default(thing: object, parameter: inspect.Parameter, text: str) -> list[str]:
    value = parameter.default
    if dataclasses.is_dataclass(thing):
        field = next((one for one in dataclasses.fields(thing) if one.name == parameter.name), None)
        if field is not None and field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
    if value is inspect.Parameter.empty:
        return [f"{parameter.name} has no default, not {text}"] if text else []
    if not text:
        return [f"{parameter.name} says nothing of its default {value!r}"]
    try:
        same = ast.literal_eval(text) == value and type(ast.literal_eval(text)) is type(value)
    except (ValueError, SyntaxError):  # a name: of a constant, or of the value itself
        named = getattr(importlib.import_module(thing.__module__), text, None)
        same = named is value or text in (repr(value), getattr(value, "__name__", None))
    return [] if same else [f"{parameter.name} has the default {value!r}, not {text}"]


# What an annotation is called in words; a class by its own name.
WORDS = {
    type(None): "None",
    ArrayLike: "array-like",
    np.ndarray: "array",
    os.PathLike: "path-like",
    collections.abc.Callable: "callable",
    collections.abc.Iterable: "iterable",
    collections.abc.Iterator: "iterator",
    collections.abc.Mapping: "mapping",
    collections.abc.Sequence: "sequence",
}
PLAIN = {"int", "float", "bool", "str", "bytes", "dict", "list", "tuple", "DataFrame", "Series", *WORDS.values()}


def wrong_type(name: str, words: str, hint: object) -> list[str]:
    """Whether the words for a type name everything that the annotation allows, and nothing else that is plain."""
    needed, allowed = tokens(hint)
    written = set(re.findall(r'"[^"]*"|[\w-]+', words))
    found = [f"{name} may be {one}, but its type is {words!r}" for one in sorted(needed - written)]
    if "Any" not in allowed:
        found += [f"{name} cannot be {one}, but its type is {words!r}" for one in sorted(written & PLAIN - allowed)]
    return found


def tokens(hint: object) -> tuple[set[str], set[str]]:
    """Words that a documented type must have, and those that it may have."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is typing.Any or isinstance(hint, typing.TypeVar):
        return set(), {"Any"}
    if origin is typing.Annotated:
        return tokens(arguments[0])
    if origin is typing.Literal:
        values = {f'"{one}"' if isinstance(one, str) else repr(one) for one in arguments}
        return values, values
    if origin in (typing.Union, types.UnionType):
        parts = [tokens(one) for one in arguments]
        return set().union(*(one for one, _ in parts)), set().union(*(one for _, one in parts))
    word = WORDS.get(origin or hint, getattr(origin or hint, "__name__", str(hint)))
    inner = [tokens(one) for one in arguments if one is not Ellipsis and not isinstance(one, list)]
    allowed = {word}.union(*(one for _, one in inner))
    if word in ("array", "array-like"):
        allowed |= {"float", "int", "bool", "str"}
    return {word}, allowed


def test_wrong_docstrings_are_noticed():
    def good(a: int, b: float | None = 0.5, *, c: typing.Literal["x", "y"] = "x") -> None:
        """Do.

        Parameters
        ----------
        a : int
            A number.
        b : float or None, default 0.5
            Another.
        c : {"x", "y"}, default "x"
            A choice.
        """

    text = inspect.cleandoc(good.__doc__ or "")  # as Python 3.13 keeps it
    assert problems(good) == []
    changes = [
        ("a : int", "a : float"),
        ("a : int", "a"),
        ("b : float or None", "b : float"),
        ("default 0.5", "default 1.0"),
        (', default "x"', ""),
        ('"y"}', '"z"}'),
        ("\nc : ", "\nd : "),
        ("A choice.", ""),
        ("a : int\n    A number.\nb", "b"),
    ]
    for old, new in changes:
        changed = types.FunctionType(good.__code__, good.__globals__, "changed", good.__defaults__)
        changed.__kwdefaults__, changed.__annotations__ = good.__kwdefaults__, good.__annotations__
        assert old in text
        changed.__doc__ = text.replace(old, new)
        assert problems(changed), f"{old!r} -> {new!r} is not noticed"


def test_models_document_the_parameters_of_their_bases():
    @dataclasses.dataclass(kw_only=True)
    class Base:
        """A base.

        Parameters
        ----------
        size : int, default 3
            How large.

            Very large is slow.
        """

        size: int = 3

        def __init_subclass__(cls) -> None:
            document_parameters(cls)

    @dataclasses.dataclass(kw_only=True)
    class Model(Base):
        """A model.

        Parameters
        ----------
        way : words of its own
            How.
        limit
            How far.

        Notes
        -----
        None.
        """

        size: int = 5
        way: typing.Any = "auto"
        limit: float | None = None
        shared: typing.ClassVar[int] = 1

    @dataclasses.dataclass(kw_only=True)
    class Child(Model):
        """A child."""

        way: typing.Any = ("a", "b")

    assert problems(Model) == problems(Child) == []
    described = {one.name: one for one in NumpyDocString(Child.__doc__)["Parameters"]}
    assert described["size"].type == "int, default 5"
    assert described["size"].desc == ["How large.", "", "Very large is slow."]
    assert described["way"].type == 'words of its own, default ("a", "b")'
    assert described["limit"].type == "float or None, default None"
    assert "Notes" in Model.__doc__
    assert NumpyDocString(Model.__doc__)["Notes"] == ["None."]
