"""Options described once, alone or in groups that a command takes as one argument and shows together in its help.

A command asks for a group by the type of a parameter::

    @command
    def check(data: DataFile, reading: ReadingOptions) -> None: ...

Typer sees one option per field of the group, in the group's panel; the command gets the group.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

import typer


@dataclass(frozen=True)
class DescribedOption:
    """What an option is called and what is said about it, as :func:`typer.Option` takes it."""

    names: tuple[str, ...]
    said: dict[str, Any]

    def called(self, parameter: str) -> str:
        """Return what users call the option of a parameter."""
        own = f"--{parameter.replace('_', '-')}"
        return next((name for name in self.names if name.startswith("--")), own)


def described(*names: str, **said: Any) -> DescribedOption:
    """Describe an option. Its default is not shown unless asked for: the help says what happens then.

    Parameters
    ----------
    *names
        What it is called; by default like its parameter.
    **said
        As :func:`typer.Option` takes it, and ``panel``, where it stands in the help if not with a group.
    """
    return DescribedOption(names, {"show_default": False, "rich_help_panel": said.pop("panel", None), **said})


@dataclass(frozen=True)
class OptionGroup:
    """Options that belong together: a dataclass with one field per option, annotated with its description."""

    panel: ClassVar[str]

    def __init_subclass__(cls, panel: str) -> None:
        cls.panel = panel

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Return the options as parameters of a command."""
        hints = get_type_hints(cls, include_extras=True)
        return [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=hints[field.name],
            )
            for field in fields(cls)
        ]

    def given(self) -> list[str]:
        """Return the options that are not as by default, as words of a command line."""
        words: list[str] = []
        for parameter in self.parameters():
            value = getattr(self, parameter.name)
            if value != parameter.default:
                words += option_words(get_args(parameter.annotation)[1].called(parameter.name), value)
        return words


def option_words(name: str, value: Any) -> list[str]:
    """Return an option and its value as words of a command line; a list is an option that is repeated."""
    if value is None or value is False:
        return []
    if value is True:
        return [name]
    return [word for one in (value if isinstance(value, list) else [value]) for word in (name, str(one))]


def expand(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose groups are replaced by their options, for Typer to look at and to call."""
    hints = get_type_hints(function, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, OptionGroup)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in groups:
            group = groups[parameter.name]
            parameters += [_for_typer(one, group.panel) for one in group.parameters()]
        else:
            parameters.append(_for_typer(parameter.replace(annotation=hints[parameter.name]), None))

    @wraps(function)
    def run(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        function(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _for_typer(parameter: inspect.Parameter, panel: str | None) -> inspect.Parameter:
    """Return a parameter with Typer's own option in the place of ours."""
    kind, *about = get_args(parameter.annotation)
    if about and isinstance(about[0], DescribedOption):
        said = about[0].said if panel is None else {**about[0].said, "rich_help_panel": panel}
        parameter = parameter.replace(annotation=Annotated[kind, typer.Option(*about[0].names, **said)])
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
