"""``dcsurv reproduce``: the paper's tables and figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dcsurv.cli import options as o
from dcsurv.cli.app import app
from dcsurv.cli.shell import FAILED, INTERRUPTED, WRONG_USE, Shell, fail, problem


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
    as_json: o.AsJson = False,
) -> None:
    """Regenerate the paper's tables and figures, or compare models on repeated splits.

    A run that was stopped goes on where it was when it is started again with the same folder.
    """
    from dcsurv.experiments.plan import PlanError
    from dcsurv.experiments.reproduce import reproduce as make

    shell = Shell(as_json)
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
