"""The parameters in a model's docstring: those of its bases and its own, with the types and defaults of that class.

A class describes only the parameters that it adds. What ``help(DCS)`` and the reference show is put together here when
the class is made, so that no description is written twice and no default can be wrong.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Callable
from typing import Any, Literal, Union, get_args, get_origin

# From the heading to the next one: numpydoc's sections stand at the left margin.
_HEADING = r"^[^\n]+\n-{3,}$"
_SECTION = re.compile(rf"^Parameters\n-{{10}}\n(?P<body>.*?)(?={_HEADING}|\Z)", re.S | re.M)
_ENTRY = re.compile(
    r"^(?P<name>\w+)(?: *: *(?P<type>[^\n]*?)(?:, default [^\n]*)?)?\n(?P<meaning>(?: +[^\n]*\n|\n)*)", re.M
)


def document_parameters(cls: type, *others: Callable[..., Any]) -> None:
    """Write all parameters into the docstring of a class that is a dataclass or about to become one.

    Parameters
    ----------
    cls : type
        A class whose annotated attributes are its parameters. Its docstring describes those that it adds, or describes
        otherwise than its bases. The type may be left to the annotation; the default is always that of the class.
    *others : callable
        Functions whose docstrings describe parameters of the same names.
    """
    own = cls.__dict__.get("__doc__")
    if own is None:  # python -OO drops docstrings
        return
    text = inspect.cleandoc(own) + "\n"
    entries = _entries(text)
    for described in (*(one.__doc__ for one in others), *(base.__dict__.get("__doc__") for base in cls.__mro__[1:])):
        entries = _entries(inspect.cleandoc(described or "") + "\n") | entries
    section = "Parameters\n----------\n"
    for name, hint in _parameters(cls).items():
        words, meaning = entries.get(name, ("", ""))
        default = f", default {in_code(getattr(cls, name))}" if hasattr(cls, name) else ""
        section += f"{name} : {words or type_words(hint)}{default}\n{meaning.rstrip()}\n"
    place = _SECTION.search(text) or re.search(rf"(?={_HEADING})|\Z", text, re.M)
    assert place is not None
    cls.__doc__ = f"{text[: place.start()].rstrip()}\n\n{section}\n{text[place.end() :]}".rstrip() + "\n"


def _parameters(cls: type) -> dict[str, Any]:
    """Return the types of the parameters in the order of the signature."""
    found: dict[str, Any] = {}
    for one in reversed(cls.__mro__):
        if one is cls or dataclasses.is_dataclass(one):
            try:
                hints = inspect.get_annotations(one, eval_str=True)
            except NameError:  # a name that is imported for type checkers only
                hints = inspect.get_annotations(one)
            found |= {name: hint for name, hint in hints.items() if "ClassVar" not in str(hint)}
    return found


def _entries(text: str) -> dict[str, tuple[str, str]]:
    """Return what a docstring says about each parameter: words for the type, if it has any, and the description."""
    section = _SECTION.search(text)
    found = _ENTRY.finditer(section["body"]) if section is not None else ()
    return {one["name"]: (one["type"] or "", one["meaning"]) for one in found}


def type_words(hint: Any) -> str:
    """Return a type in the words of numpydoc, such as ``float or None`` or ``{"quantile", "log"}``."""
    if hint is None or hint is type(None):
        return "None"
    if get_origin(hint) is Literal:
        return "{" + ", ".join(in_code(value) for value in get_args(hint)) + "}"
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(type_words(part) for part in get_args(hint))
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")


def in_code(value: Any) -> str:
    """Return a default as this project writes it: like ``repr``, with strings in double quotes."""
    if isinstance(value, str):
        return '"' + repr(f"'{value}")[2:-1] + '"' if '"' not in value else repr(value)
    if isinstance(value, tuple):
        return "(" + ", ".join(map(in_code, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)
