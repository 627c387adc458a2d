"""The tables that `dcsurv reproduce` publishes, made from the rows of its runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pandas as pd

from dcsurv.experiments import paper_data
from dcsurv.experiments.plan import CALIBRATED, PAPER_MODELS
from dcsurv.experiments.tables import (
    MARGINAL,
    METRICS,
    PRINTED,
    PublishedTable,
    differences,
    notebook_table,
    over_splits,
    printed_table,
    summary,
    wide_cells,
)
from dcsurv.models import paper_settings

# What the repeated protocol compares the others with: the first of these that was run.
_REFERENCES = (CALIBRATED, "CoxPH")


def paper_tables(rows: pd.DataFrame, datasets: Sequence[str]) -> Iterator[PublishedTable]:
    """Make the paper's tables, ours beside the printed figures, and those that explain them.

    Parameters
    ----------
    rows : DataFrame
        ``Results.rows`` of the paper's protocol.
    datasets : sequence of str
        The cohorts that were asked for.
    """
    yield from _data_tables()
    if len(rows) == 0:
        return
    far = []
    for metric, (_, number) in PRINTED.items():
        numbers = printed_table(rows, metric)
        if len(numbers) == 0:
            continue
        yield PublishedTable(
            f"table-{number}",
            f"Table {number}: {metric}, mean ± sd over ten resamples of the test set, beside the printed figure "
            "and the difference. Bold: more than two printed sd apart.",
            numbers,
            wide_cells(numbers, _beside_print),
        )
        far.append(numbers[numbers["printed_sds"].abs() > 2].assign(metric=metric))
    if any(len(part) for part in far):
        yield _far_table(pd.concat(far, ignore_index=True))
    yield _point_table(rows)
    yield from _notebook_table(rows)
    yield from _ablation_tables(rows)
    yield from _settings_table(datasets, list(dict.fromkeys(rows["model"])))


def repeated_tables(rows: pd.DataFrame) -> Iterator[PublishedTable]:
    """Make the tables of the fair comparison: means over splits, and what each model scores more than a reference.

    A row may have fewer splits than others: its means are over those that it has, its differences over those that it
    has in common with the reference, and the tables say how many.

    Parameters
    ----------
    rows : DataFrame
        ``Results.rows`` of the repeated protocol.
    """
    if len(rows) == 0:
        return
    numbers = summary(rows, (*METRICS, *MARGINAL))
    over = over_splits(_counts(numbers, "runs"))
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
        cells = wide_cells(numbers, partial(_joined, metrics))
        cells.insert(1, "splits", [_runs(numbers[numbers["model"] == model]) for model in cells["model"]])
        if _partly(numbers, metrics):
            caption += " (n): over n of the splits, because the others were not scored so."
        yield PublishedTable(name, caption, numbers, cells)
    reference = next((name for name in _REFERENCES if name in set(rows["model"])), None)
    if reference is not None and rows["model"].nunique() > 1:
        gaps = differences(rows, reference, METRICS)
        for metric in METRICS:
            part = gaps[(gaps["metric"] == metric) & (gaps["splits"] > 0)]
            if len(part) == 0:
                continue
            caption = (
                f"{metric}: what each row scores more than {reference} on the same splits, with a 95 % interval "
                f"corrected for shared patients; {over_splits(_counts(part, 'splits'))}."
            )
            yield PublishedTable(f"difference-{metric}", caption, part, wide_cells(part, _gap))


def _beside_print(row: pd.Series) -> str:
    mark = "**" if abs(row["printed_sds"]) > 2 else ""
    return (
        f"{row['mean']:.3f} ± {row['sd']:.3f} (paper {row['printed']:.3f} ± {row['printed_sd']:.3f}, "
        f"{mark}{row['difference']:+.3f}{mark})"
    )


def _far_table(numbers: pd.DataFrame) -> PublishedTable:
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
    return PublishedTable("far-from-print", "Cells more than two printed standard deviations apart.", numbers, cells)


def _point_table(rows: pd.DataFrame) -> PublishedTable:
    numbers = rows[["dataset", "model", "paper C-td", "paper CDAUC", "paper DDC", "fit_seconds", "epochs", "key"]]
    cells = wide_cells(
        numbers, lambda row: f"{row['paper C-td']:.4f} / {row['paper CDAUC']:.4f} / {row['paper DDC']:.4f}"
    )
    caption = "Values on the whole test set, before resampling: C-td / CDAUC / DDC in the paper's conventions."
    return PublishedTable("point-values", caption, numbers, cells)


def _notebook_table(rows: pd.DataFrame) -> Iterator[PublishedTable]:
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
    yield PublishedTable("authors-notebook", caption, numbers, cells)


def _ablation_tables(rows: pd.DataFrame) -> Iterator[PublishedTable]:
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
        yield PublishedTable(name, f"{caption} C-td / CDAUC / DDC, the paper's conventions.", numbers, cells)


def _settings_table(datasets: Sequence[str], models: Sequence[str]) -> Iterator[PublishedTable]:
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
    yield PublishedTable("table-S-1", "Table S-1: the paper's best settings, as used here.", numbers, cells)


def _data_tables() -> Iterator[PublishedTable]:
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
    yield PublishedTable("table-I", "Table I: comparable pairs.", first, cells)
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
    yield PublishedTable("table-II", "Table II: the cohorts.", second, cells)


def _joined(metrics: Sequence[str], row: pd.Series) -> str:
    """Return means, a dash where there is none, and how many splits one is over if not over all of the row."""
    out = []
    for metric in metrics:
        mean, runs = row[f"{metric} mean"], row[f"{metric} runs"]
        out.append("–" if pd.isna(mean) else f"{mean:.4f}" + (f" ({runs})" if runs < row["runs"] else ""))
    return " / ".join(out)


def _partly(numbers: pd.DataFrame, metrics: Sequence[str]) -> bool:
    """Return whether some mean is over some of a row's splits only."""
    return any(((numbers[f"{m} runs"] > 0) & (numbers[f"{m} runs"] < numbers["runs"])).any() for m in metrics)


def _runs(own: pd.DataFrame) -> str:
    """Return how many splits a model has; one number for each cohort if these differ."""
    counts = [str(n) for n in own["runs"]]
    return counts[0] if len(set(counts)) == 1 else " / ".join(counts)


def _counts(table: pd.DataFrame, column: str) -> dict[tuple[str, str], int]:
    columns = (table["dataset"], table["model"], table[column])
    return {(dataset, model): int(n) for dataset, model, n in zip(*columns, strict=True)}


def _gap(row: pd.Series) -> str:
    """Return a difference with its interval, which a single split does not have."""
    interval = "" if pd.isna(row["lower"]) else f" ({row['lower']:+.4f} to {row['upper']:+.4f})"
    return f"{row['difference']:+.4f}{interval}"
