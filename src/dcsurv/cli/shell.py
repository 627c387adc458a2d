"""What the commands share: where results and notes go, what an error looks like, exit codes."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from dcsurv._extensions import ExtensionError
from dcsurv.cli.groups import OptionGroup, described
from dcsurv.cli.words import option
from dcsurv.messages import InputError, about_left, printable, say
from dcsurv.plain import plain

# Results go to standard output, everything else to standard error.
out, err = Console(), Console(stderr=True)

# Exit codes, as `dcsurv --help` tells them.
FAILED, WRONG_USE, INTERRUPTED, TERMINATED = 1, 2, 130, 143

DEBUG = "DCSURV_DEBUG"
# What JSON lets pass and a terminal acts on, or cannot write: control characters, turned directions, half characters.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff]")
# Seconds between two lines on how far a step is, where there is no terminal.
_LINE_EVERY = 20.0


def in_words(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose errors end in words instead of a traceback, and whose warnings are notes."""

    @wraps(function)
    def run(**given: Any) -> None:
        with _notes_from_warnings():
            try:
                function(**given)
            except (typer.Exit, typer.Abort, BrokenPipeError):
                raise
            except KeyboardInterrupt:
                fail("Stopped", "interrupted by Ctrl-C; nothing was left half-written.", INTERRUPTED)
            except Exception as error:
                if os.environ.get(DEBUG):
                    traceback.print_exc()
                fail("Error", *explain(error))

    return run


def explain(error: Exception) -> tuple[str, int]:
    """Return an error in words, and its exit code."""
    text = str(error).strip()
    if isinstance(error, OSError):
        where = f" {error.filename}" if error.filename else ""
        reason = {
            errno.ENOSPC: "the disk is full. Make room, or write to another one with -o.",
            errno.EFBIG: "the file became larger than is allowed here. Write to another place with -o.",
            errno.EDQUOT: "your disk quota is used up. Make room, or write to another place with -o.",
            errno.EACCES: f"there is no permission for{where}. Choose another place.",
            errno.EROFS: f"{where.strip() or 'the disk'} cannot be written to. Choose another place with -o.",
            errno.EISDIR: f"{where.strip() or 'the output'} is a folder. Name a file.",
        }.get(error.errno or 0)
        if reason:
            return reason, FAILED
        # A file of the user's that is not there is wrong use; anything else failed on the way.
        return text, WRONG_USE if isinstance(error, FileNotFoundError) else FAILED
    if isinstance(error, MemoryError):
        return "there is not enough memory. Close other programs, or use fewer rows or columns.", FAILED
    if isinstance(error, InputError):
        return error.say(option), WRONG_USE
    if isinstance(error, ValueError):
        return text, WRONG_USE
    if isinstance(error, FloatingPointError | ExtensionError):
        return text, FAILED
    where = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"something unexpected happened ({where}). Please report it; {DEBUG}=1 shows where.", FAILED


def fail(what: str, text: str, code: int) -> NoReturn:
    """Print an error and end with an exit code."""
    problem(what, text)
    raise typer.Exit(code) from None


def problem(what: str, text: str) -> None:
    """Print an error as it is, without reading markup in it."""
    err.print(printable(f"{what}: {text}"), style="red", markup=False, highlight=False, soft_wrap=not err.is_terminal)


def note(text: str) -> None:
    """Print something good to know."""
    said = printable(f"Note: {say(text, option)}")
    err.print(said, style="yellow", markup=False, highlight=False, soft_wrap=not err.is_terminal)


@contextmanager
def _notes_from_warnings() -> Iterator[None]:
    """Print the library's warnings as notes, each once, and keep those of other packages to themselves."""
    said: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, UserWarning) and str(message) not in said:
            said.add(str(message))
            note(str(message))

    with warnings.catch_warnings():
        if not os.environ.get(DEBUG):
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", category=UserWarning, module=r"dcsurv")
            warnings.showwarning = show
        yield


class StepLine:
    """The steps of a command, one after the other: tasks done and epochs, and about how long the rest will take.

    Without a terminal, a line per step, and one now and then on how far it is.
    """

    def __init__(self, bar: Bar | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._bar, self._clock = bar, clock
        self._task: Any = None
        self._text = self._tasks = ""
        self._said = clock()

    def __call__(self, text: str) -> None:
        """Begin a step."""
        self.end()
        self._text, self._tasks, self._said = printable(text), "", self._clock()
        if self._bar is None:
            err.print(printable(f"{text} ..."), markup=False, highlight=False, soft_wrap=True)
        else:
            self._task = self._bar.add_task(self._text, total=None)

    def tasks(self, done: int, total: int, left: float | None) -> None:
        """Show how many tasks of a step are done, and about how long the others will take."""
        about = "" if left is None or done == total else f", {about_left(left)}"
        self._tasks = f"{done} of {total} tasks{about}"
        self._show(self._tasks)

    def epoch(self, epoch: int, history: Any) -> None:
        """Show how far a training in this process is."""
        self._show(f"{self._tasks}; epoch {epoch}" if self._tasks else f"epoch {epoch}")

    def _show(self, how_far: str) -> None:
        if self._bar is not None:
            if self._task is not None:
                self._bar.update(self._task, description=f"{self._text} ({how_far})")
        elif self._clock() - self._said >= _LINE_EVERY:
            self._said = self._clock()
            err.print(f"{self._text}: {how_far}", markup=False, highlight=False, soft_wrap=True)

    def end(self) -> None:
        """End the step that is under way."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=self._text, total=1, completed=1)


@dataclass(frozen=True)
class Shell(OptionGroup, panel="Output"):
    """Prints a command's results, for people or for machines."""

    as_json: Annotated[bool, described("--json", help="Print the result as JSON, for machines.")] = False

    def show(self, what: RenderableType = "", **options: Any) -> None:
        """Print something for people; a text as it is, without reading markup in it."""
        if not self.as_json:
            shown = printable(what) if isinstance(what, str) else what
            out.print(shown, **{"highlight": False, "markup": False, **options})

    def say(self, text: str) -> None:
        """Print a sentence for people."""
        self.show(text, soft_wrap=not out.is_terminal)

    def result(self, document: dict[str, Any]) -> None:
        """Print a result for machines."""
        if self.as_json:
            text = json.dumps(plain(document, finite=True), ensure_ascii=False, indent=2)
            sys.stdout.write(_UNPRINTABLE.sub(lambda one: json.dumps(one[0])[1:-1], text) + "\n")
            sys.stdout.flush()

    @contextmanager
    def steps(self) -> Iterator[StepLine]:
        """Show which step a command is at, and for how long; one line per step where there is no terminal."""
        if not err.is_terminal:
            yield StepLine(None)
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        with Bar(*columns, console=err) as bar:
            steps = StepLine(bar)
            yield steps
            steps.end()

    @contextmanager
    def counting(self, text: str) -> Iterator[Callable[[int], None]]:
        """Show how many rows are done."""
        if not err.is_terminal:
            yield lambda rows: None
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} rows"),
            TimeElapsedColumn(),
        )
        with Bar(*columns, console=err, transient=True) as bar:
            task = bar.add_task(text, total=None)
            yield lambda rows: bar.update(task, completed=rows)
