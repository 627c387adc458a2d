"""The code blocks of README.md, CONTRIBUTING.md and docs/: find them, run them, compare what they print.

A page's blocks run in order, in one namespace and one folder:

- ``python``: executed;
- ``sh``: one command per line; `dcsurv ...` is executed by the program itself, `dcsurv serve` until the page ends;
- ``text title="output"``: what the block before it printed. `python scripts/doc_blocks.py [PAGE...]` writes it.

tests/test_docs.py runs them all and refuses any other kind of block.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
# The page whose first block writes the files that the other pages start from, and the page that fits their model.
TABLES_PAGE = ROOT / "docs" / "tasks" / "check.md"
MODEL_PAGE = ROOT / "docs" / "tasks" / "fit.md"
MODEL_FILE = "model.safetensors"
# Files to copy, which the page on deployment links to.
DEPLOY = ROOT / "docs" / "deploy"
# These show the commands of the task pages again, where they are run on the same files.
FRONT_PAGES = (ROOT / "README.md", ROOT / "docs" / "index.md")

# What blocks of the front pages are run with instead: nothing that they show depends on it.
QUICKER = {"n_bootstrap=200": "n_bootstrap=20"}

# Where pages find a service; what runs them asks one on another port.
SERVED_AT = "http://127.0.0.1:8765/"

# Commands that are not run as they stand: what is run instead, or None and who runs them.
TESTED_AS: dict[str, str | None] = {
    "make demo": None,  # .ci/run
    "make test": None,  # what runs this
    "make bench": None,  # hours of a quiet machine; its results are committed
    "make quality": None,  # the same
    "make calibrated": None,  # the same
    "make development": None,  # the same
    "make truth": None,  # tests/test_studies.py, small
    "make bands": None,  # the same
    "make small": None,  # the same
    "make tuning": None,  # the same
    "make neutral FOLDER=benchmark": None,  # the same; tests/test_neutral.py has a small folder
    "python benchmarks/neutral.py benchmark --model calibrated coxph --folds all --workers 2 -o my-results": None,
    # The model that the pages share, from fewer members and epochs.
    "dcsurv fit patients.csv --time days --event died --unit days --horizons 5y,10y -o model.safetensors": (
        "dcsurv fit patients.csv --time days --event died --unit days --horizons 5y,10y -o model.safetensors "
        "--set n_members=2 --set seeds_per_member=1 --set max_epochs=15 --bootstrap 20 --jobs 1"
    ),
    "dcsurv report model.safetensors test.csv --train patients.csv -o report.html": (
        "dcsurv report model.safetensors test.csv --train patients.csv -o report.html --bootstrap 10"
    ),
    "dcsurv tune patients.csv --time days --event died --unit days -o settings.json": (
        "dcsurv tune patients.csv --time days --event died --unit days -o settings.json "
        "--quick --trials 2 --folds 2 --jobs 1"
    ),
    "dcsurv fit patients.csv --time days --event died --unit days --settings settings.json -o tuned.safetensors": (
        "dcsurv fit patients.csv --time days --event died --unit days --settings settings.json -o tuned.safetensors "
        "--evaluate none --set max_epochs=2 --jobs 1"
    ),
    "dcsurv validate patients.csv --time days --event died --unit days -o validation": (
        "dcsurv validate patients.csv --time days --event died --unit days -o validation "
        "--model spline-cox --resamples 2 --repeats 1 --folds 2 --jobs 1"
    ),
    "dcsurv reproduce": None,  # with --quick in tests/test_reproduce.py
    "dcsurv reproduce --quick": None,  # tests/test_reproduce.py
    "dcsurv reproduce --protocol repeated": None,  # tests/test_reproduce.py, with fewer models and splits
    # docs/tasks/explain.md explains one of them, tests/test_all_commands.py all patients of a table.
    "dcsurv explain model.safetensors new_patients.csv -o explained.html": None,
}

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```[ ]*$", re.S | re.M)
_NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, whether it is output, its text, and where it stands."""

    page: Path
    line: int
    language: str
    is_output: bool
    text: str
    span: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Return every page that people read, without the generated results."""
    docs = [page for page in sorted((ROOT / "docs").rglob("*.md")) if RESULTS not in page.parents]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *docs]


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        words = match["info"].split()
        if words and words[0].startswith("{"):  # a directive of the site, such as a list of the reference
            continue
        found.append(
            Block(
                page,
                text.count("\n", 0, match.start()) + 1,
                words[0] if words else "",
                'title="output"' in match["info"],
                textwrap.dedent(match["body"]),
                match.span("body"),
            )
        )
    return found


def commands(block: Block) -> list[str]:
    """Return the commands of a shell block, continued lines joined and comments dropped."""
    joined = block.text.replace("\\\n", " ")
    lines = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in joined.splitlines())
    return [" ".join(line.split()) for line in lines if line]


def shell_commands(page: Path) -> list[str]:
    """Return all commands of a page."""
    return [one for block in blocks(page) if block.language == "sh" for one in commands(block)]


def run_page(page: Path, folder: Path, model: Path | None = None) -> Iterator[tuple[Block, str]]:
    """Run a page's blocks in a folder and yield each with what it printed.

    Not run again: the command that fits the shared model where that model is given, and on the front pages those of
    the task pages.
    """
    elsewhere = set() if model is None else {model_command()}
    if page in FRONT_PAGES:
        elsewhere |= {one for task in TABLES_PAGE.parent.glob("*.md") for one in shell_commands(task)}
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder), contextlib.ExitStack() as until_the_end:
        address = SERVED_AT
        for block in blocks(page):
            if block.is_output:
                continue
            if block.language == "python":
                yield block, run_python(block, namespace, address)
            elif block.language == "sh":
                own = [one for one in commands(block) if one not in elsewhere]
                for command in [one for one in own if one.startswith("dcsurv serve ")]:
                    address = until_the_end.enter_context(served(command))
                    own.remove(command)
                yield block, "".join(run_command(one) for one in own)
            else:
                raise ValueError(f"{block}: a {block.language or 'nameless'} block is neither run nor listed.")


@contextlib.contextmanager
def served(command: str) -> Iterator[str]:
    """Run `dcsurv serve` beside the blocks that follow, on a port that is free, and yield its address."""
    words = [sys.executable, "-c", "from dcsurv.cli import main; main()", *shlex.split(command)[1:]]
    with subprocess.Popen([*words, "--port", "0", "--json", "--no-access-log"], stdout=subprocess.PIPE) as service:
        try:
            assert service.stdout is not None
            said = b"".join(iter(service.stdout.readline, b"}\n"))  # one document, written when it answers
            yield json.loads(said + b"}")["address"]
        finally:
            service.terminate()


def run_python(block: Block, namespace: dict[str, Any], address: str = SERVED_AT) -> str:
    printed = io.StringIO()
    # Line numbers of a traceback are those of the page.
    text = block.text.replace(SERVED_AT, address)
    for usual, quicker in QUICKER.items() if block.page in FRONT_PAGES else ():
        text = text.replace(usual, quicker)
    code = compile("\n" * block.line + text, str(block.page), "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    return printed.getvalue()


def run_command(command: str) -> str:
    """Run one line of a shell block and return what it wrote to standard output."""
    command = TESTED_AS.get(command, command) or ""
    if not command:
        return ""
    words = shlex.split(command)
    if words[0] != "dcsurv":
        raise ValueError(f"{command!r} is neither a dcsurv command nor listed in TESTED_AS.")
    code, out, err = call(words[1:])
    if code != 0:
        raise RuntimeError(f"{command!r} ended with exit code {code}:\n{out}\n{err}")
    return out


def call(arguments: list[str]) -> tuple[int, str, str]:
    """Run the command line in this process; return exit code, standard output and standard error."""
    import typer.testing

    from dcsurv.cli import app

    # Warnings are for the user to read here, not errors as in the tests.
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = typer.testing.CliRunner().invoke(app, arguments, env={"COLUMNS": "100", "NO_COLOR": "1"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def prepare(page: Path, folder: Path, model: Path | None) -> None:
    """Put the files that a page starts from into its folder."""
    if page != TABLES_PAGE:
        with contextlib.chdir(folder):
            run_python(blocks(TABLES_PAGE)[0], {"__name__": "__main__"})
    if model is not None:
        (folder / MODEL_FILE).write_bytes(model.read_bytes())
    text = page.read_text(encoding="utf-8")
    for file in DEPLOY.glob("*.py"):  # what a page links to lies beside it
        if f"deploy/{file.name}" in text:
            (folder / file.name).write_bytes(file.read_bytes())


def model_command() -> str:
    """Return the command that fits the model that the pages share: the first of the page on fitting."""
    return shell_commands(MODEL_PAGE)[0]


def fit_model(folder: Path) -> Path:
    """Fit the model that the pages share."""
    prepare(MODEL_PAGE, folder, None)
    with contextlib.chdir(folder):
        run_command(model_command())
    return folder / MODEL_FILE


def needs_model(page: Path) -> bool:
    return MODEL_FILE in page.read_text(encoding="utf-8")


def outputs(page: Path) -> dict[int, Block]:
    """Return the shown outputs by the line of the block that prints them."""
    found, last = {}, None
    for block in blocks(page):
        if block.is_output:
            if last is None:
                raise ValueError(f"{block}: output without a block before it.")
            found[last.line] = block
        last = None if block.is_output else block
    return found


def same_output(shown: str, printed: str) -> bool:
    """Say whether two outputs agree: every word, and numbers to what another processor may change."""
    a, b = " ".join(shown.split()), " ".join(printed.split())
    if _NUMBER.sub("#", a) != _NUMBER.sub("#", b):
        return False
    return all(_close(x, y) for x, y in zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True))


def _close(x: str, y: str) -> bool:
    left, right = float(x.replace(",", "")), float(y.replace(",", ""))
    digits = len(x.partition(".")[2]) if "." in x else 0
    # Two units of the last digit shown, or two per cent.
    return abs(left - right) <= max(2 * 10.0**-digits if "." in x else 0.0, 0.02 * abs(left))


def write_outputs(page: Path) -> None:
    """Run a page and write what it printed where it shows output."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("model", "page"):
            (folder / part).mkdir()
        model = fit_model(folder / "model") if needs_model(page) else None
        prepare(page, folder / "page", model)
        printed = {block.line: out for block, out in run_page(page, folder / "page", model)}
    text = page.read_text(encoding="utf-8")
    for line, shown in sorted(outputs(page).items(), reverse=True):
        fence = text.rfind("\n", 0, shown.span[0] - 1) + 1
        indent = " " * (len(text[fence:]) - len(text[fence:].lstrip(" ")))
        lines = (f"{indent}{one.rstrip()}".rstrip() for one in printed[line].strip("\n").splitlines())
        text = text[: shown.span[0]] + "\n".join(lines) + "\n" + text[shown.span[1] :]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "agg")
    for page in [Path(argument).resolve() for argument in sys.argv[1:]] or pages():
        if outputs(page):
            write_outputs(page)
            print(f"{page.relative_to(ROOT)}: outputs written")
