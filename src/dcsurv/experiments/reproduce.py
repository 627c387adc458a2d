"""`dcsurv reproduce`: the paper's tables and figures beside the printed ones, or the fair repeated comparison."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from dcsurv import figures
from dcsurv.datasets import NAMES, load
from dcsurv.experiments import paper_data
from dcsurv.experiments.peers import PEERS
from dcsurv.experiments.plan import ABLATIONS, CALIBRATED, PAPER_MODELS, Plan, PlanError
from dcsurv.experiments.runner import Results, run
from dcsurv.experiments.tables import (
    MARGINAL,
    METRICS,
    PRINTED,
    PublishedTable,
    differences,
    notebook_table,
    printed_table,
    summary,
    wide_cells,
)
from dcsurv.models import paper_settings
from dcsurv.persistence import write_atomically
from dcsurv.target import train_test_indices

Protocol: TypeAlias = Literal["paper", "repeated"]

PAPER_SPLIT = 40
# What --quick keeps: the cheap rows of the smallest cohort, a few epochs.
_QUICK_MODELS = ("CoxPH", "DeepSurv", "CoxTime", "DCS-quant")
_QUICK_EPOCHS = 10
_QUICK_SPLITS = 2
# What the repeated protocol compares the others with: the first of these that was run.
_REFERENCES = (CALIBRATED, "CoxPH")
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
        What a quick look did not do; empty if it did everything.
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
        are installed.
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
        results = out.results["paper"] = run(plan, out.folder, **common)  # type: ignore[arg-type]
        _paper_tables(out, results, datasets)
        _paper_figures(out, results, datasets)
    else:
        here = [name for name, peer in PEERS.items() if peer.installed()]
        chosen = list(models or (*PAPER_MODELS, CALIBRATED, *here))
        plan = Plan(datasets, chosen, range(splits or 20), n_bootstrap=50, changes=changes)
        results = out.results["repeated"] = run(plan, out.folder, **common)  # type: ignore[arg-type]
        _repeated_tables(out, results)
    _write_readme(out, protocol)
    _remove_stale(out)
    return out


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
            path.unlink()


def _paper_tables(out: Reproduction, results: Results, datasets: Sequence[str]) -> None:
    _data_tables(out)
    rows = results.rows
    if len(rows) == 0:
        return
    far = []
    for metric, (_, number) in PRINTED.items():
        numbers = printed_table(rows, metric)
        if len(numbers) == 0:
            continue

        def cell(row: pd.Series) -> str:
            mark = "**" if abs(row["printed_sds"]) > 2 else ""
            return (
                f"{row['mean']:.3f} ± {row['sd']:.3f} (paper {row['printed']:.3f} ± {row['printed_sd']:.3f}, "
                f"{mark}{row['difference']:+.3f}{mark})"
            )

        out.add(
            PublishedTable(
                f"table-{number}",
                f"Table {number}: {metric}, mean ± sd over ten resamples of the test set, beside the printed figure "
                "and the difference. Bold: more than two printed sd apart.",
                numbers,
                wide_cells(numbers, cell),
            )
        )
        far.append(numbers[numbers["printed_sds"].abs() > 2].assign(metric=metric))
    if any(len(part) for part in far):
        _far_table(out, pd.concat(far, ignore_index=True))
    _point_table(out, rows)
    _notebook_table(out, rows)
    _ablation_tables(out, rows)
    _settings_table(out, datasets, list(dict.fromkeys(rows["model"])))


def _far_table(out: Reproduction, numbers: pd.DataFrame) -> None:
    cells = pd.DataFrame(
        {
            "metric": numbers["metric"],
            "dataset": numbers["dataset"].str.upper(),
            "model": numbers["model"],
            "ours": [f"{value:.3f}" for value in numbers["mean"]],
            "paper": [f"{value:.3f}" for value in numbers["printed"]],
            "difference": [f"{value:+.3f}" for value in numbers["difference"]],
            "printed sd": [f"{value:+.1f}" for value in numbers["printed_sds"]],
        }
    )
    out.add(PublishedTable("far-from-print", "Cells more than two printed standard deviations apart.", numbers, cells))


def _point_table(out: Reproduction, rows: pd.DataFrame) -> None:
    numbers = rows[["dataset", "model", "paper C-td", "paper CDAUC", "paper DDC", "fit_seconds", "epochs", "key"]]
    cells = wide_cells(
        numbers, lambda row: f"{row['paper C-td']:.4f} / {row['paper CDAUC']:.4f} / {row['paper DDC']:.4f}"
    )
    caption = "Values on the whole test set, before resampling: C-td / CDAUC / DDC in the paper's conventions."
    out.add(PublishedTable("point-values", caption, numbers, cells))


def _notebook_table(out: Reproduction, rows: pd.DataFrame) -> None:
    numbers = notebook_table(rows)
    if len(numbers) == 0:
        return
    wide = numbers.pivot(index="model", columns="metric")
    cells = pd.DataFrame({"model": list(dict.fromkeys(numbers["model"]))})
    for source, title in (("printed", "printed"), ("notebook", "authors' notebook"), ("value", "ours")):
        cells[title] = [
            " / ".join(f"{wide.loc[model, (source, metric)]:.3f}" for metric in PRINTED) for model in cells["model"]
        ]
    caption = (
        "METABRIC: the printed means, what the authors' published notebook shows for the same split, and ours on the "
        "whole test set. C-td / CDAUC / DDC."
    )
    out.add(PublishedTable("authors-notebook", caption, numbers, cells))


def _ablation_tables(out: Reproduction, rows: pd.DataFrame) -> None:
    groups = {
        "ablation-pairs": (
            "Ablation: kernel pairs of events with events and censored patients, or with events only; all else equal.",
            {"event-censored pairs": "DCS-quant", "event-event pairs only": "DCS-quant, event-event pairs"},
        ),
        "ablation-spacing": (
            "Ablation: the three spacings, all else as in DCS-quant.",
            {
                "linear": "DCS-quant, linear spacing",
                "log": "DCS-quant, log spacing",
                "quantile": "DCS-quant",
            },
        ),
    }
    for name, (caption, variants) in groups.items():
        if not set(variants.values()) <= set(rows["model"]):
            continue
        part = pd.concat([rows[rows["model"] == model].assign(variant=label) for label, model in variants.items()])
        columns = [f"paper {metric}{suffix}" for metric in PRINTED for suffix in (" mean", " sd")]
        numbers = part[["dataset", "variant", *columns, "key"]]
        cells = wide_cells(
            numbers,
            lambda row: " / ".join(f"{row[f'paper {m} mean']:.3f} ± {row[f'paper {m} sd']:.3f}" for m in PRINTED),
            row="variant",
        )
        out.add(PublishedTable(name, f"{caption} C-td / CDAUC / DDC, the paper's conventions.", numbers, cells))


def _settings_table(out: Reproduction, datasets: Sequence[str], models: Sequence[str]) -> None:
    long = []
    for dataset in datasets:
        for model in PAPER_MODELS:
            if model in models and model != "CoxPH":
                settings = paper_settings(model, dataset).get_params(deep=False)
                long += [{"dataset": dataset, "model": model, "setting": k, "value": v} for k, v in settings.items()]
    if not long:
        return
    numbers = pd.DataFrame(long)
    shown = (
        "layers", "layer_size", "encoder_layers", "encoder_size", "decoder_layers", "decoder_size", "bidirectional",
        "skip", "aggregation_layers", "aggregation_size", "n_nodes", "alpha", "lam", "sigma",
    )  # fmt: skip
    wide = numbers[numbers["setting"].isin(shown)].pivot(index=["dataset", "setting"], columns="model", values="value")
    wide = wide.reindex(columns=[m for m in PAPER_MODELS if m in wide.columns])
    wide = wide.loc[[(d, s) for d in datasets for s in shown if (d, s) in wide.index]].reset_index()
    wide["dataset"] = wide["dataset"].str.upper()
    cells = wide.map(lambda value: "" if pd.isna(value) else f"{value:g}" if isinstance(value, float) else str(value))
    out.add(PublishedTable("table-S-1", "Table S-1: the paper's best settings, as used here.", numbers, cells))


def _data_tables(out: Reproduction) -> None:
    first, second = paper_data.table_1().reset_index(), paper_data.table_2().reset_index()
    cells = pd.DataFrame(
        {
            "dataset": first["dataset"].str.upper(),
            "patients": first["patients"],
            "censored": [f"{value:.0%}" for value in first["censoring_rate"]],
            "|A|": [f"{value:.2e}" for value in first["A"]],
            "|B|": [f"{value:.2e}" for value in first["B"]],
            "F": [f"{value:.2f}" for value in first["F"]],
        }
    )
    out.add(PublishedTable("table-I", "Table I: comparable pairs.", first, cells))
    cells = pd.DataFrame(
        {
            "dataset": second["dataset"].str.upper(),
            "patients": second["patients"],
            "features": second["features"],
            "censored": [f"{value:.0%}" for value in second["censoring_rate"]],
            "missing": [f"{value:.1%}" for value in second["missing_share"]],
            "median survival of events": [
                f"{days:.0f} days ({months:.0f} months)"
                for days, months in zip(second["median_survival_days"], second["median_survival_months"], strict=True)
            ],
            "non-proportional": [f"{value:.0%}" for value in second["non_proportional_share"]],
        }
    )
    out.add(PublishedTable("table-II", "Table II: the cohorts.", second, cells))


def _paper_figures(out: Reproduction, results: Results, datasets: Sequence[str]) -> None:
    place = out.folder / "figures"
    place.mkdir(parents=True, exist_ok=True)
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


def _repeated_tables(out: Reproduction, results: Results) -> None:
    rows = results.rows
    if len(rows) == 0:
        return
    numbers = summary(rows, (*METRICS, *MARGINAL))
    over = f"over {rows['split'].nunique()} stratified 80/20 splits"
    shown = {
        "repeated": (
            ("C-td", "CDAUC", "DDC", "IBS"),
            f"Means {over}: C-td / CDAUC (tie tolerance 1e-8) / DDC / integrated Brier score, default conventions, no "
            "resampling of test sets. Censoring weights follow the features where these predict censoring.",
        ),
        "repeated-marginal": (
            MARGINAL,
            f"Means {over}: CDAUC / integrated Brier score with one censoring curve for all. On FLCHAIN, where the "
            "year of enrolment decides how long a patient could be followed, these reward what is wrong.",
        ),
        "repeated-ici": (
            ("ICI@Q1", "ICI@Q2", "ICI@Q3"),
            f"Means {over}: ICI at the quartiles of the event times, Q1 / Q2 / Q3.",
        ),
    }
    for name, (metrics, caption) in shown.items():
        columns = [f"{metric} mean" for metric in metrics]
        cells = wide_cells(numbers, partial(_joined, columns))
        out.add(PublishedTable(name, caption, numbers, cells))
    reference = next((name for name in _REFERENCES if name in set(rows["model"])), None)
    if reference is not None and rows["model"].nunique() > 1:
        gaps = differences(rows, reference, METRICS)
        for metric in METRICS:
            part = gaps[gaps["metric"] == metric]
            caption = (
                f"{metric}: what each row scores more than {reference} on the same splits, with a 95 % interval "
                "corrected for shared patients."
            )
            out.add(PublishedTable(f"difference-{metric}", caption, part, wide_cells(part, _gap)))


def _joined(columns: Sequence[str], row: pd.Series) -> str:
    return " / ".join("–" if pd.isna(row[column]) else f"{row[column]:.4f}" for column in columns)


def _gap(row: pd.Series) -> str:
    """Return a difference with its interval, which a single split does not have."""
    interval = "" if pd.isna(row["lower"]) else f" ({row['lower']:+.4f} to {row['upper']:+.4f})"
    return f"{row['difference']:+.4f}{interval}"


def _write_readme(out: Reproduction, protocol: Protocol) -> None:
    versions = {}
    for results in out.results.values():
        if len(results.rows):
            path = out.folder / "rows" / f"{results.rows['key'].iloc[0]}.json"
            versions = json.loads(path.read_text(encoding="utf-8"))["row"]["versions"]
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
