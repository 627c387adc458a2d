"""The command line: parse, call, print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dcsurv import __version__

app = typer.Typer(
    name="dcsurv",
    help="Individual survival prediction: S(t|x) for every patient.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
# Results go to standard output, everything else to standard error.
_out, _err = Console(), Console(stderr=True)

# Exit codes: 0 done, 1 some tasks failed, 2 wrong use, 130 interrupted.
_FAILED, _WRONG_USE, _INTERRUPTED = 1, 2, 130


def _say(what: str, text: str) -> None:
    """Print an error as it is: brackets in it are no markup."""
    _err.print(f"{what}: {text}", style="red", markup=False, highlight=False)


def _version(asked: bool) -> None:
    if asked:
        _out.print(f"dcsurv {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the command."""


@app.command()
def reproduce(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for rows, tables and figures.")] = Path(
        "reproduction"
    ),
    protocol: Annotated[
        str, typer.Option(help="'paper': the published protocol; 'repeated': fair comparison over splits.")
    ] = "paper",
    splits: Annotated[int | None, typer.Option(help="Number of splits in the repeated protocol; default 20.")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Only this cohort; may be repeated.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="Only this model; may be repeated.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes on this machine; default: one per core.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Dask scheduler, such as tcp://host:8786.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A look in under three minutes; says what it leaves out.")
    ] = False,
) -> None:
    """Regenerate the paper's tables and figures, or compare models on repeated splits.

    A run that was stopped goes on where it was when it is started again with the same folder.
    """
    import os

    from dcsurv.experiments.plan import PlanError
    from dcsurv.experiments.reproduce import reproduce as make

    if workers is None:
        workers = (
            1 if cluster else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        )
    try:
        made = make(
            output,
            protocol=protocol,  # type: ignore[arg-type]
            datasets=dataset or None,
            models=model or None,
            splits=splits,
            workers=workers,
            cluster=cluster,
            quick=quick,
            progress=True,
        )
    except PlanError as error:
        _say("Nothing was run", str(error))
        raise typer.Exit(_WRONG_USE) from None
    except OSError as error:
        _say("Stopped", f"{error}. Finished tasks are kept; the same command goes on from there.")
        raise typer.Exit(_FAILED) from None
    except KeyboardInterrupt:
        _say("Stopped", f"Finished tasks are kept in {output}; the same command goes on from there.")
        raise typer.Exit(_INTERRUPTED) from None
    from rich.markdown import Markdown

    for table in made.tables.values():
        _out.print(Markdown(table.markdown()))
        _out.print()
    if made.left_out:
        _out.print(made.left_out, style="yellow", markup=False)
    _out.print(f"Written to {output}: README.md, tables/, figures/, rows/, curves/.", markup=False, highlight=False)
    if len(made.failures):
        for _, failure in made.failures.iterrows():
            where = f"{failure['model']} on {failure['dataset']}, split {failure['split']}"
            _say("Failed", f"{where}: {failure['cause']}")
        raise typer.Exit(_FAILED)


def main() -> None:
    """Entry point of the command `dcsurv`."""
    sys.exit(app())
