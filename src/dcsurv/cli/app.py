"""The command `dcsurv`: its help, its version, its exit codes."""

from __future__ import annotations

import atexit
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Annotated, Final

import typer

from dcsurv import __version__
from dcsurv.cli.groups import expand
from dcsurv.cli.shell import INTERRUPTED, TERMINATED, in_words, out

_HELP = """Individual survival prediction: S(t|x) for every patient.

Start with `dcsurv demo`, or with a table of your own:
`dcsurv check patients.csv --time days --event died`, then `fit`, `predict`, `report`.
"""
_EPILOG = (
    "Exit codes: 0 done; 1 something failed on the way, or `check` found what must be repaired; 2 wrong use, or an "
    "input that cannot be used; 130 interrupted; 143 terminated. A command that fails leaves no half-written file. "
    "DCSURV_DEBUG=1 shows tracebacks."
)

# Seconds after Ctrl-C in which a command may tidy up; what it leaves, the next one removes.
_PATIENCE: Final = 30.0

app = typer.Typer(
    name="dcsurv",
    help=_HELP,
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function a command: its groups become options in panels, its errors end in words."""
    app.command(function.__name__)(in_words(expand(function)))
    return function


def in_order(*names: str) -> None:
    """Show the commands in the order in which they are used, whichever module was imported first."""
    place = {name: position for position, name in enumerate(names)}
    app.registered_commands.sort(key=lambda one: place[getattr(one.callback, "__name__", "")])


def _version(asked: bool) -> None:
    if asked:
        out.print(f"dcsurv {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the command."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Stop on Ctrl-C, and in the end also where a library takes it for its own or waits for what does not come."""
    last = threading.Timer(_PATIENCE, os._exit, (INTERRUPTED,))
    last.daemon = True
    last.start()
    signal.default_int_handler(number, frame)


def main() -> None:
    """Entry point of the command `dcsurv`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a job in the background ignores it
        signal.signal(signal.SIGINT, _interrupt)
    # A command that is terminated (by a scheduler, say) tidies up as it does after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    if sys.argv[1:2] == ["predict"]:
        # A few patients are to be predicted in hardly more time than torch takes: before any model is imported, so that
        # none waits for scikit-learn, and without the options of the other commands.
        importlib.import_module("dcsurv._lean")

        app.registered_commands = [one for one in app.registered_commands if one.name == "predict"]
    code: int | str | None = 0

    def leave() -> None:
        """End at once after Ctrl-C, called last, when all is tidied up: to take torch apart takes seconds."""
        if code == INTERRUPTED:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)

    atexit.register(leave)
    try:
        app()
    except SystemExit as end:
        code = end.code
        raise
