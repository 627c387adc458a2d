"""`dcsurv reproduce`: the paper's tables and figures beside the printed ones, or the fair repeated comparison."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from dcsurv import figures
from dcsurv.datasets import NAMES, load
from dcsurv.experiments import paper_data
from dcsurv.experiments.peers import PEERS
from dcsurv.experiments.plan import ABLATIONS, CALIBRATED, PAPER_MODELS, PAPER_NETWORKS, Plan, PlanError
from dcsurv.experiments.reproduced_tables import paper_tables, repeated_tables
from dcsurv.experiments.runner import Results, run, stored
from dcsurv.experiments.tables import PRINTED, PublishedTable
from dcsurv.target import train_test_indices
from dcsurv.writing import make_folder, remove_file, together, write_atomically

Protocol: TypeAlias = Literal["paper", "repeated"]

PAPER_SPLIT = 40
# The most splits of the repeated protocol on which the paper's networks run: some of them take hours.
SPLITS_OF_NETWORKS = 5
# What --quick keeps: the cheap rows of the smallest cohort, a few epochs.
_QUICK_MODELS = ("CoxPH", "DeepSurv", "CoxTime", "DCS-quant")
_QUICK_EPOCHS = 10
_QUICK_SPLITS = 2
# Test patients whose curves are drawn: at these quantiles of the first model's risk.
_CURVE_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass
class Reproduction:
    """What was made: tables and figures by name, the rows behind them, and what was left out.

    Attributes
    ----------
    folder : Path
        Where it was written.
    command : str
        The command that makes it again.
    tables : dict of str to PublishedTable, default {}
        The tables by name.
    results : dict of str to Results, default {}
        The rows by protocol.
    figure_files : list of Path, default []
        The figures.
    left_out : str, default ""
        What was not done; empty if everything was.
    """

    folder: Path
    command: str
    tables: dict[str, PublishedTable] = field(default_factory=dict)
    results: dict[str, Results] = field(default_factory=dict)
    figure_files: list[Path] = field(default_factory=list)
    left_out: str = ""

    @property
    def failures(self) -> pd.DataFrame:
        return pd.concat([part.failures for part in self.results.values()], ignore_index=True)

    def add(self, table: PublishedTable) -> None:
        table.write(self.folder / "tables")
        self.tables[table.name] = table


def reproduce(
    folder: str | PathLike[str] = "reproduction",
    *,
    protocol: Protocol = "paper",
    datasets: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    splits: int | None = None,
    workers: int = 1,
    cluster: str | None = None,
    quick: bool = False,
    compute: bool = True,
    progress: bool = False,
) -> Reproduction:
    """Regenerate the paper's tables and figures, or run the fair comparison over repeated splits.

    Parameters
    ----------
    folder : str or path-like, default "reproduction"
        Gets ``rows/`` (one file per fit), ``tables/`` (CSV, Markdown, LaTeX), ``figures/`` (SVG, PNG) and
        ``README.md`` with all of it. Rows that are there already are not computed again; tables and figures are always
        those of the last call.
    protocol : {"paper", "repeated"}, default "paper"
        ``"paper"``: split seed 40, Table S-1's settings, ten resamples of the test set, the paper's conventions, the
        printed figures beside ours, and the two ablations. ``"repeated"``: split seeds 0, 1, ..., default
        conventions, paired differences with intervals, the calibrated ensemble, and models of other packages where they
        are installed. The paper's networks, some of which take hours, run on the first 5 splits at most; what is
        compared with them is compared on these.
    datasets : sequence of str or None, default None
        Cohorts to compute; None: all three.
    models : sequence of str or None, default None
        Rows to compute; None: all of the protocol.
    splits : int or None, default None
        How many splits the repeated protocol takes; None: 20.
    workers : int, default 1
        Processes on this machine, one thread each.
    cluster : str or None, default None
        Address of a Dask scheduler, such as ``tcp://host:8786``, whose workers have dcsurv installed.
    quick : bool, default False
        A look in a few minutes: one cohort, four models, ten epochs; ``left_out`` says so.
    compute : bool, default True
        False makes the tables of the repeated protocol from the rows that are in the folder, with or without their
        curves, and runs nothing; ``left_out`` says which rows are not there.
    progress : bool, default False
        Show a progress bar with the time that is left.

    Returns
    -------
    Reproduction
        Tables, figures and the rows behind them.
    """
    if protocol not in get_args(Protocol):
        raise PlanError(f"protocol is {protocol!r}, but 'paper' or 'repeated' is expected.")
    if splits is not None and splits < 1:
        raise PlanError(f"splits is {splits}, but at least 1 is needed.")
    if splits is not None and protocol == "paper":
        raise PlanError("the paper's protocol has one split: leave out splits, or use the repeated protocol.")
    if quick and (models is not None or datasets is not None):
        raise PlanError("quick chooses cohort and models itself: leave out either quick, or datasets and models.")
    if not compute and protocol == "paper":
        raise PlanError("only the tables of the repeated protocol can be made without computing: use that protocol.")
    out = Reproduction(Path(folder), _command(protocol, datasets, models, splits, quick))
    changes: dict[str, Any] = {}
    if quick:
        splits = min(splits or _QUICK_SPLITS, _QUICK_SPLITS)
        out.left_out = (
            f"Quick look: METABRIC only, {', '.join(_QUICK_MODELS)} only, at most {_QUICK_EPOCHS} epochs, no ablations"
            f"{'' if protocol == 'paper' else f', {splits} of 20 splits'}. None of these figures stands for the whole."
        )
        datasets, models, changes = ["metabric"], _QUICK_MODELS, {"max_epochs": _QUICK_EPOCHS}
    datasets = NAMES if datasets is None else datasets
    common = {"workers": workers, "cluster": cluster, "progress": progress}
    if protocol == "paper":
        chosen = list(models or (*PAPER_MODELS, *ABLATIONS))
        plan = Plan(datasets, chosen, (PAPER_SPLIT,), n_bootstrap=200, changes=changes)
        out.results["paper"] = run(plan, out.folder, **common)  # type: ignore[arg-type]
    else:
        here = [name for name, peer in PEERS.items() if peer.installed()]
        chosen = list(models or (*PAPER_MODELS, CALIBRATED, *here))
        few = {model: SPLITS_OF_NETWORKS for model in chosen if model in PAPER_NETWORKS}
        plan = Plan(datasets, chosen, range(splits or 20), n_bootstrap=50, changes=changes, fewer_splits=few)
        if compute:
            results = run(plan, out.folder, **common)  # type: ignore[arg-type]
        else:
            results = stored(plan, out.folder)
            if len(results.rows) == 0:
                raise PlanError(f"{out.folder / 'rows'} has no row of this comparison: nothing to make tables of.")
            out.left_out += _not_there(plan, results.rows)
        out.results["repeated"] = results
    with together(out.folder):
        if protocol == "paper":
            for table in paper_tables(out.results["paper"].rows, datasets):
                out.add(table)
            _paper_figures(out, out.results["paper"], datasets)
        else:
            for table in repeated_tables(results.rows):
                out.add(table)
        _write_readme(out, protocol)
        _remove_stale(out)
    return out


def _not_there(plan: Plan, rows: pd.DataFrame) -> str:
    """Say which tasks of a plan have no row."""
    there = set(rows["key"])
    found: dict[tuple[str, str], list[bool]] = {}
    for task in plan.tasks():
        found.setdefault((task.model, task.dataset.upper()), []).append(task.key in there)
    missing = [f"{model} on {name} ({sum(f)} of {len(f)})" for (model, name), f in found.items() if not all(f)]
    return f"Made of the splits that were there; not all are of: {', '.join(missing)}." if missing else ""


def _command(
    protocol: Protocol, datasets: Sequence[str] | None, models: Sequence[str] | None, splits: int | None, quick: bool
) -> str:
    """Return the command line that makes the same."""
    words = ["dcsurv", "reproduce", "--protocol", protocol]
    words += [word for name in datasets or () for word in ("--dataset", name)]
    words += [word for name in models or () for word in ("--model", name)]
    words += [] if splits is None else ["--splits", str(splits)]
    return shlex.join(words + (["--quick"] if quick else []))


def _remove_stale(out: Reproduction) -> None:
    """Delete tables and figures that an earlier call left: README.md does not speak of them."""
    made = {path.name for path in out.figure_files}
    for path in [*(out.folder / "tables").glob("*.*"), *(out.folder / "figures").glob("*.*")]:
        if path.stem not in out.tables and path.name not in made:
            remove_file(path)


def _paper_figures(out: Reproduction, results: Results, datasets: Sequence[str]) -> None:
    place = out.folder / "figures"
    make_folder(place)
    drawn = {
        "figure-3": figures.events_per_node({"support": paper_data.figure_3("support")}),
        "figure-S-1": figures.comparable_pairs(paper_data.supplement_figure_1()),
        "figure-S-2": figures.events_per_node({name: paper_data.figure_3(name) for name in ("metabric", "flchain")}),
    }
    rows = results.rows
    for dataset in datasets:
        part = rows[rows["dataset"].eq(dataset) & rows["model"].isin(PAPER_MODELS)] if len(rows) else rows
        if len(part):
            _, y = load(dataset)
            _, test = train_test_indices(y, random_state=PAPER_SPLIT)
            curves = {model: results.curves(key) for model, key in zip(part["model"], part["key"], strict=True)}
            by_risk = np.argsort(next(iter(curves.values())).rmst())
            patients = by_risk[(np.array(_CURVE_QUANTILES) * (len(test) - 1)).astype(int)]
            drawn[f"curves-{dataset}"] = figures.survival_curves(curves, y[test], patients.tolist())
    for metric, (_, number) in PRINTED.items():
        table = out.tables.get(f"table-{number}")
        if table is not None:
            ours = table.numbers.assign(metric=metric)
            printed = ours.drop(columns=["mean", "sd"]).rename(columns={"printed": "mean", "printed_sd": "sd"})
            drawn[f"table-{number}"] = figures.metric_table(ours, printed)
    for name, figure in drawn.items():
        out.figure_files += figures.save(figure, place / name)


def _write_readme(out: Reproduction, protocol: Protocol) -> None:
    found: dict[str, list[str]] = {}
    for results in out.results.values():
        for key in results.rows.get("key", ()):
            path = out.folder / "rows" / f"{key}.json"
            for name, number in json.loads(path.read_text(encoding="utf-8"))["row"]["versions"].items():
                found.setdefault(name, []).append(number)
    versions = {name: " and ".join(dict.fromkeys(numbers)) for name, numbers in found.items()}
    lines = [f"# {'The paper, reproduced' if protocol == 'paper' else 'Models compared on repeated splits'}", ""]
    lines += [f"Made by `{out.command}` with {', '.join(f'{k} {v}' for k, v in versions.items())}.", ""]
    if out.left_out:
        lines += [f"**{out.left_out}**", ""]
    if len(out.failures):
        lines += ["**Failed tasks:**", ""]
        lines += [
            f"- {f['model']} on {f['dataset']}, split {f['split']}: {f['cause']}" for _, f in out.failures.iterrows()
        ]
        lines += [""]
    for table in out.tables.values():
        lines += [table.markdown(), f"Numbers: `tables/{table.name}.csv`.", ""]
    pictures = [path for path in out.figure_files if path.suffix == ".png"]
    lines += [f"![{path.stem}](figures/{path.name})\n" for path in pictures]
    lines += [
        "Every number comes from files in `rows/`, named in the column `key` or `keys` of the CSV files: settings, "
        "seed, split fingerprint, metrics in both conventions with their intervals, seconds and versions. The "
        "predicted curves are in `curves/` under the same names."
    ]
    write_atomically(out.folder / "README.md", "\n".join(lines).encode())
