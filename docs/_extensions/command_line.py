"""The command line's reference, from the program itself."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import typer


def command_reference() -> str:
    """Return the commands of `dcsurv` with their arguments and options as Markdown."""
    from dcsurv.cli import app

    root: Any = typer.main.get_command(app)
    with root.make_context("dcsurv", [], resilient_parsing=True) as context:
        lines = [root.help, "", *_parameters(root, context)]
        for name, command in root.commands.items():
            with type(context)(command, info_name=name, parent=context) as inner:
                usage = command.get_usage(inner).removeprefix("Usage: ")
                lines += [f"## `dcsurv {name}`", "", command.help, "", "```text", usage, "```", ""]
                lines += _parameters(command, inner)
    return "\n".join(lines)


def _parameters(command: Any, context: Any) -> list[str]:
    """Return a list for each panel of arguments and options."""
    shown = [one for one in command.get_params(context) if one.get_help_record(context) is not None]

    def panel(parameter: Any) -> str:
        usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
        return getattr(parameter, "rich_help_panel", None) or usual

    order = list(dict.fromkeys(panel(one) for one in shown))
    lines = []
    for name, some in groupby(sorted(shown, key=lambda one: order.index(panel(one))), key=panel):
        lines += [f"**{name}**", ""]
        for parameter in some:
            usage, meaning = parameter.get_help_record(context)
            lines.append(f"- `{usage}`: {meaning}")
        lines.append("")
    return lines
