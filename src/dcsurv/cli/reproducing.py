"""``dcsurv reproduce``: the paper's tables and figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dcsurv.cli import options as o
from dcsurv.cli.app import command
from dcsurv.cli.groups import described
from dcsurv.cli.shell import FAILED, INTERRUPTED, WRONG_USE, Shell, fail, problem
from dcsurv.writing import check_folder_writable

_WHAT = "What is run"


@command
def reproduce(
    *,
    protocol: Annotated[
        str,
        described(
            help="'paper': the published protocol; 'repeated': fair comparison over splits.",
            show_default=True,
            panel=_WHAT,
        ),
    ] = "paper",
    splits: Annotated[
        int | None,
        described(
            metavar="N",
            help="Splits of the repeated protocol; the paper's networks run on 5 at most. Default: 20.",
            panel=_WHAT,
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None, described(metavar="NAME", help="Only this cohort. May be repeated.", panel=_WHAT)
    ] = None,
    model: Annotated[
        list[str] | None, described(metavar="NAME", help="Only this model. May be repeated.", panel=_WHAT)
    ] = None,
    quick: Annotated[
        bool, described("--quick", help="A look in under three minutes; says what it leaves out.", panel=_WHAT)
    ] = False,
    tables_only: Annotated[
        bool,
        described(
            "--tables-only",
            help="Run nothing: tables of the repeated protocol from the rows in the folder.",
            panel=_WHAT,
        ),
    ] = False,
    workers: Annotated[
        int | None,
        described(metavar="N", help="Processes on this machine. Default: one per core.", panel=o.TRAINING),
    ] = None,
    cluster: o.Cluster = None,
    output: Annotated[Path, o.written_to("Folder for rows, tables and figures.", "FOLDER", show_default=True)] = Path(
        "reproduction"
    ),
    shell: Shell,
) -> None:
    """Regenerate the paper's tables and figures, or compare models on repeated splits.

    A run that was stopped goes on where it was when it is started again with the same folder.
    """
    from dcsurv.experiments.plan import PlanError
    from dcsurv.experiments.reproduce import reproduce as make

    if output.exists() and not output.is_dir():
        fail("Nothing was run", f"-o names the file {output}. Name a folder.", WRONG_USE)
    check_folder_writable(output)
    if workers is None:
        workers = 1 if cluster else o.cores()
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
            compute=not tables_only,
            progress=True,
        )
    except PlanError as error:
        fail("Nothing was run", str(error), WRONG_USE)
    except OSError as error:
        fail("Stopped", f"{error}. Finished tasks are kept; the same command goes on from there.", FAILED)
    except KeyboardInterrupt:
        fail("Stopped", f"Finished tasks are kept in {output}; the same command goes on from there.", INTERRUPTED)
    from rich.markdown import Markdown

    for table in made.tables.values():
        shell.show(Markdown(table.markdown()))
        shell.show()
    if made.left_out:
        shell.show(made.left_out, style="yellow", markup=False)
    shell.say(f"Written to {output}: README.md, tables/, figures/, rows/, curves/.")
    failures = [
        {"task": f"{failure['model']} on {failure['dataset']}, split {failure['split']}", "cause": failure["cause"]}
        for _, failure in made.failures.iterrows()
    ]
    for failure in failures:
        problem("Failed", f"{failure['task']}: {failure['cause']}")
    shell.result(
        {
            "output": str(output),
            "tables": {
                name: json.loads(table.numbers.to_json(orient="records")) for name, table in made.tables.items()
            },
            "left_out": made.left_out,
            "failures": failures,
        }
    )
    if failures:
        raise typer.Exit(FAILED)
