"""What a cohort, findings and metrics look like on a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table as Grid
from rich.text import Text

from dcsurv.cli.shell import Shell, note
from dcsurv.cli.words import option
from dcsurv.cohort import Cohort, Finding, Horizon, ModelCard, describe_time
from dcsurv.messages import fixed, plural, printable, say

_SHOWN_COLUMNS = 30
_PERFECT = (
    "In square brackets: what a perfect model would score on so few patients, on average and at most (in 95 of 100 "
    "cohorts), and p, the chance that it would score no better than this model. Below 0.05 the model is not calibrated."
)
_SPREAD = "After ±: the standard deviation over the folds, which is how much the value differs from one to another."
_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


def plain_table(*header: str, right: Sequence[int] = ()) -> Grid:
    """Return an empty table; cells are printed as they are."""
    table = Grid(box=SIMPLE_HEAD, show_edge=False)
    for k, name in enumerate(header):
        table.add_column(Text(printable(name)), justify="right" if k in right else "left", overflow="fold")
    return table


def show_table(shell: Shell, title: str, table: Grid) -> None:
    """Show a table under its title."""
    shell.show()
    shell.show(title, style="bold")
    shell.show(table)


def add(table: Grid, *cells: str) -> None:
    """Add a row; brackets in a cell are no markup, and control characters are shown as escapes."""
    table.add_row(*(Text(printable(cell)) for cell in cells))


def show_cohort(shell: Shell, cohort: Cohort) -> None:
    """Show what was read and what it was taken for."""
    unit = f" in {cohort.unit}" if cohort.unit else " (unit not given; say it with --unit)"
    shell.say(f"{cohort.name}: {plural(len(cohort), 'patient')}, {cohort.events:,} with the event ({cohort.format})")
    start = f" minus {cohort.outcome.start!r}" if cohort.outcome.start else ""
    shell.say(
        f"  time   {cohort.outcome.time!r}{start}{unit}, up to {describe_time(float(cohort.time.max()), cohort.unit)}"
    )
    shell.say(f"  event  {cohort.outcome.event!r}: {cohort.outcome.coding.describe().say(option)}")
    if cohort.incomplete:
        left_out = plural(cohort.incomplete, "row")
        shell.say(f"  {left_out} without a time or an event {'is' if cohort.incomplete == 1 else 'are'} left out")
    for text in cohort.notes:
        shell.say(f"  {say(text, option)}")
    table = plain_table("column", "taken as", "missing", "note", right=(2,))
    ordered = sorted(cohort.columns, key=lambda column: column.kind == "left out")
    many = len(ordered) > _SHOWN_COLUMNS
    # Of very many columns, those that need a look come first.
    shown = sorted(ordered, key=lambda c: not (c.note or c.chosen))[:_SHOWN_COLUMNS] if many else ordered
    for column in shown:
        missing = f"{column.missing:.0%}" if column.missing >= 0.005 else "<1%" if column.missing else ""
        add(table, column.name, column.kind + (" (as asked)" if column.chosen else ""), missing, column.text)
    if ordered:
        show_table(shell, "Columns", table)
    if many:
        kinds = pd.Series([column.kind for column in ordered]).value_counts()
        rest = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        shell.say(f"  {len(ordered)} columns in all: {rest}. {len(shown)} are shown; --json lists all.")
    if not all(column.chosen for column in ordered):
        shell.say("  Wrong? Say so with --categorical, --numeric or --drop.")


def show_findings(shell: Shell, findings: Sequence[Finding]) -> None:
    """Show what a check found, worst first."""
    grid = Grid.grid(padding=(0, 2))
    for finding in findings:
        said = say(finding.message, option)
        text = Text(printable(said[:1].upper() + said[1:]))
        if finding.remedy:
            text.append(printable(f" {say(finding.remedy, option)}"), style="dim")
        grid.add_row(Text(finding.severity, style=_COLOURS[finding.severity]), text)
    shell.show(grid)


def show_metrics(
    shell: Shell, title: str, columns: dict[str, list[dict[str, Any]]], horizons: Sequence[Horizon], unit: str | None
) -> None:
    """Show metrics, one column per model, with intervals or the spread over folds where there are any."""
    table = plain_table("metric", *columns, right=range(1, len(columns) + 1))
    labels = {horizon.time: horizon.label for horizon in horizons}
    first = next(iter(columns.values()))
    for row in first:
        at = row["horizon"]
        where = "" if at is None else f" at {labels.get(at, describe_time(at, unit))}"
        cells = []
        for rows in columns.values():
            same = next((r for r in rows if r["metric"] == row["metric"] and r["horizon"] == at), None)
            cells.append("" if same is None else _cell(same))
        add(table, f"{row['metric']}{where}", *cells)
    show_table(shell, title, table)
    shell.show()
    shell.show(_meanings({row["metric"] for row in first}))
    if any(row.get("p_value") is not None for rows in columns.values() for row in rows):
        shell.show(_PERFECT, style="dim", markup=False)
    if any("±" in _cell(row) for rows in columns.values() for row in rows):
        shell.show(_SPREAD, style="dim", markup=False)


def _meanings(names: set[str]) -> Grid:
    """Say what the metrics of a table mean."""
    from dcsurv.metrics import list_metrics

    grid = Grid.grid(padding=(0, 2))
    for metric in list_metrics():
        if metric.name in names:
            told = f"{metric.meaning} {metric.direction.capitalize()}."
            grid.add_row(Text(metric.name, style="dim"), Text(told, style="dim"))
    return grid


def _cell(row: dict[str, Any]) -> str:
    from dcsurv.metrics.null import p_text

    if row["value"] is None:
        return "undefined"
    text = fixed(row["value"])
    if row.get("p_value") is not None:
        text += f" [{fixed(row['floor'])}, {fixed(row['null_95'])}; p {p_text(row['p_value'])}]"
    elif row.get("lower") is not None:
        text += f" ({fixed(row['lower'])} to {fixed(row['upper'])})"
    elif row.get("sd") is not None:
        text += f" ± {fixed(row['sd'])}"
    return text


def show_evaluation(shell: Shell, card: ModelCard, name: str, *, later: bool = False) -> None:
    """Show what was measured when a model was fitted; ``later``: it has been recalibrated since."""
    found = card.evaluation
    if found is None:
        shell.say("Not evaluated.")
        return
    columns = {name: found["metrics"]}
    if found["reference"]:
        columns[found["reference"]["model"]] = found["reference"]["metrics"]
    whom = f"{plural(found['patients'], 'patient')} ({plural(found['events'], 'event')})"
    when = "Before any recalibration, on" if later else "On"
    show_metrics(shell, f"{when} {whom} not used for training", columns, card.horizons, card.unit)
    intervals = any(row.get("lower") is not None for row in found["metrics"])
    how = found["how"][:1].upper() + found["how"][1:]
    shell.show(f"{how}. {'In brackets: 95 % bootstrap intervals.' if intervals else ''}", style="dim", markup=False)
    for text in found["notes"]:
        note(text)


def show_families(shell: Shell, model: Any) -> None:
    """Show the families of an ensemble with their weights, and what the size of the cohort has decided."""
    from dcsurv.calibration import CalibratedEnsemble

    if not isinstance(model, CalibratedEnsemble):
        return
    if len(model.families_) > 1:
        table = plain_table("family", "weight", "members", "what it is")
        for family in model.families_:
            add(table, family.name, f"{100 * family.weight:.0f} %", str(len(family.members)), family.meaning)
        show_table(shell, "What the model is made of", table)
    for remark in model.remarks_:
        shell.say(f"  {remark}")
