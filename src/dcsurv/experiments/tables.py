"""From rows to tables: means over splits, paired differences, and ours beside the paper's printed figures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from scipy.stats import t as student

from dcsurv.experiments.plan import PAPER_NETWORKS
from dcsurv.writing import make_folder, together, write_atomically

# Metric -> (name in the printed tables, table of the paper).
PRINTED: Final = {
    "C-td": ("c_index_td", "III"),
    "CDAUC": ("cdauc", "IV"),
    "DDC": ("ddc", "V"),
}
METRICS: Final = ("C-td", "CDAUC", "IBS", "DDC", "ICI@Q1", "ICI@Q2", "ICI@Q3")
# With one censoring curve for all, for those who compare with figures of others.
MARGINAL: Final = ("marginal CDAUC", "marginal IBS")
_TEST_SHARE = 0.2


def summary(rows: pd.DataFrame, metrics: Sequence[str] = METRICS) -> pd.DataFrame:
    """Return the mean and sd over splits (and seeds) of every model, never the best split.

    Parameters
    ----------
    rows : DataFrame
        ``Results.rows``.
    metrics : sequence of str, default ("C-td", "CDAUC", "IBS", "DDC", "ICI@Q1", "ICI@Q2", "ICI@Q3")
        Columns of the rows.

    Returns
    -------
    DataFrame
        One row per dataset and model: ``runs``, and ``mean`` and ``sd`` of each metric in the default convention over
        the ``runs`` that have it, which are fewer where some were not scored with it.
    """
    grouped = rows.groupby(["dataset", "model"], sort=False)
    parts: dict[str, pd.Series] = {"runs": grouped.size()}
    for metric in metrics:
        parts[f"{metric} mean"] = grouped[metric].mean()
        parts[f"{metric} sd"] = grouped[metric].std(ddof=1)
        parts[f"{metric} runs"] = grouped[metric].count()
    parts["fit_seconds"] = grouped["fit_seconds"].mean()
    parts["keys"] = grouped["key"].agg(";".join)
    return pd.DataFrame(parts).reset_index()


def over_splits(runs: Mapping[tuple[str, str], int]) -> str:
    """Say over how many splits rows are means: the most that a row has, then the rows that have fewer.

    Parameters
    ----------
    runs : mapping
        How many splits, by dataset and model.
    """
    most = max(runs.values())
    models = list(dict.fromkeys(model for _, model in runs))
    counts = {model: {dataset: n for (dataset, name), n in runs.items() if name == model} for model in models}
    networks = [model for model in models if model in PAPER_NETWORKS]
    alike = {n for model in networks for n in counts[model].values()}
    fewer = []
    if len(alike) == 1 and len(networks) > 1 and (n := alike.pop()) < most:
        fewer.append(f"the paper's networks over {n}")
        models = [model for model in models if model not in networks]
    for model in models:
        own = counts[model]
        if len(set(own.values())) == 1:
            fewer += [f"{model} over {n}" for n in set(own.values()) if n < most]
        else:
            fewer += [f"{model} on {dataset.upper()} over {n}" for dataset, n in own.items() if n < most]
    return f"over {most} stratified 80/20 splits" + (f" ({'; '.join(fewer)})" if fewer else "")


def differences(
    rows: pd.DataFrame, reference: str, metrics: Sequence[str] = METRICS, *, confidence: float = 0.95
) -> pd.DataFrame:
    """Return what every model scores more than a reference on the splits that both have.

    Seeds of one split are averaged first. The interval is Student's with the variance of Nadeau and Bengio (2003),
    (1/J + test/train) s^2 over J splits: splits share most of their training patients, so that the plain interval
    would be too narrow.

    Parameters
    ----------
    rows : DataFrame
        ``Results.rows``.
    reference : str
        The model that the others are compared with.
    metrics : sequence of str, default ("C-td", "CDAUC", "IBS", "DDC", "ICI@Q1", "ICI@Q2", "ICI@Q3")
        Columns of the rows.
    confidence : float, default 0.95
        Level of the intervals.

    Returns
    -------
    DataFrame
        One row per dataset, model and metric: ``splits, difference, lower, upper``; no interval for a single split.
    """
    if reference not in set(rows["model"]):
        raise ValueError(f"reference is {reference!r}, but the rows are of {', '.join(sorted(set(rows['model'])))}.")
    out = []
    for dataset, part in rows.groupby("dataset", sort=False):
        if part.groupby("split")["split_sha256"].nunique().max() > 1:
            raise ValueError(f"rows of one split of {dataset} come from different data; they cannot be paired.")
        for metric in metrics:
            wide = part.pivot_table(index="split", columns="model", values=metric, aggfunc="mean", sort=False)
            for model in wide.columns:
                if model == reference or reference not in wide:
                    continue
                paired = (wide[model] - wide[reference]).dropna()
                gap = paired.to_numpy()
                behind = part["model"].isin([model, reference]) & part["split"].isin(paired.index)
                lower, upper = _corrected_interval(gap, confidence)
                out.append(
                    {
                        "dataset": dataset,
                        "metric": metric,
                        "model": model,
                        "reference": reference,
                        "splits": len(gap),
                        "difference": float(gap.mean()) if len(gap) else np.nan,
                        "lower": lower,
                        "upper": upper,
                        "keys": ";".join(part.loc[behind, "key"]),
                    }
                )
    return pd.DataFrame(out)


def _corrected_interval(gap: np.ndarray, confidence: float) -> tuple[float, float]:
    n = len(gap)
    if n < 2:
        return np.nan, np.nan
    width = student.ppf((1 + confidence) / 2, n - 1) * np.sqrt(
        (1 / n + _TEST_SHARE / (1 - _TEST_SHARE)) * gap.var(ddof=1)
    )
    return float(gap.mean() - width), float(gap.mean() + width)


def published() -> dict[str, Any]:
    """Return the figures that the authors published: Tables III to V, and their notebook's values on METABRIC."""
    text = resources.files("dcsurv.experiments").joinpath("printed.json").read_text(encoding="utf-8")
    out: dict[str, Any] = json.loads(text)
    return out


def notebook_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return ours beside the authors' own notebook, for the split that both ran (METABRIC, seed 40).

    Returns
    -------
    DataFrame
        One row per model and metric: ``printed`` in the paper, ``notebook``, and our ``value`` on the test set.
    """
    figures = published()
    notebook = figures["notebook"]["metabric"]
    part = rows[rows["dataset"].eq("metabric") & rows["split"].eq(40)].set_index("model")
    out = []
    for model in notebook:
        if model in part.index:
            for metric, theirs in zip(PRINTED, notebook[model], strict=True):
                printed = figures[PRINTED[metric][0]][model]["metabric"]["mean"]
                value = float(part.loc[model, f"paper {metric}"])
                row = {"model": model, "metric": metric, "printed": printed, "notebook": theirs, "value": value}
                out.append({**row, "key": part.loc[model, "key"]})
    return pd.DataFrame(out)


def printed_table(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return ours beside the printed figures of Table III (C-td), IV (CDAUC) or V (DDC).

    Parameters
    ----------
    rows : DataFrame
        ``Results.rows``.
    metric : str
        ``"C-td"``, ``"CDAUC"`` or ``"DDC"``.

    Returns
    -------
    DataFrame
        One row per dataset and model: ``value`` on the test set, ``mean`` and ``sd`` over ten resamples of it,
        ``printed`` and ``printed_sd``, ``difference`` of the means, and that in units of the printed sd.
    """
    printed = published()[PRINTED[metric][0]]
    out = []
    for (dataset, model), part in rows.groupby(["dataset", "model"], sort=False):
        if model not in printed:
            continue
        paper = printed[model][dataset]
        mean = float(part[f"paper {metric} mean"].mean())
        out.append(
            {
                "dataset": dataset,
                "model": model,
                "value": float(part[f"paper {metric}"].mean()),
                "mean": mean,
                "sd": float(part[f"paper {metric} sd"].mean()),
                "printed": paper["mean"],
                "printed_sd": paper["std"],
                "difference": mean - paper["mean"],
                # A printed sd of .000 is one below .0005.
                "printed_sds": (mean - paper["mean"]) / max(paper["std"], 5e-4),
                "key": ";".join(part["key"]),
            }
        )
    return pd.DataFrame(out)


@dataclass(frozen=True)
class PublishedTable:
    """A table to publish: numbers for machines, cells for readers."""

    name: str
    caption: str
    numbers: pd.DataFrame
    cells: pd.DataFrame

    def write(self, folder: Path) -> None:
        """Write NAME.csv (numbers), NAME.md and NAME.tex (cells)."""
        with together(folder):
            make_folder(folder)
            write_atomically(folder / f"{self.name}.csv", self.numbers.to_csv(index=False).encode())
            write_atomically(folder / f"{self.name}.md", self.markdown().encode())
            write_atomically(folder / f"{self.name}.tex", self.latex().encode())

    def markdown(self) -> str:
        rows: list[Any] = [self.cells.columns, *self.cells.itertuples(index=False)]
        lines = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
        lines.insert(1, ["---"] * self.cells.shape[1])
        return f"{self.caption}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"

    def latex(self) -> str:
        """Return a booktabs table."""
        columns = "l" + "r" * (self.cells.shape[1] - 1)
        rows = [" & ".join(map(_latex_cell, row)) + r" \\" for row in self.cells.itertuples(index=False)]
        head = " & ".join(map(_latex_cell, self.cells.columns)) + r" \\"
        body = "\n".join(rows)
        return (
            f"\\begin{{table}}\n\\caption{{{_latex_cell(self.caption)}}}\n\\label{{tab:{self.name}}}\n"
            f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{head}\n\\midrule\n{body}\n\\bottomrule\n"
            "\\end{tabular}\n\\end{table}\n"
        )


def _latex_cell(value: object) -> str:
    text = "".join(_LATEX.get(letter, letter) for letter in str(value))
    return re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", text)


_LATEX: Final = {
    **{letter: f"\\{letter}" for letter in "&%_#${}"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
}


def wide_cells(long: pd.DataFrame, cell: Callable[[pd.Series], str], *, row: str = "model") -> pd.DataFrame:
    """Return one row per model and one column per dataset, each cell made from a row of numbers."""
    names = list(dict.fromkeys(long[row]))
    datasets = list(dict.fromkeys(long["dataset"]))
    out = pd.DataFrame({row: names})
    for dataset in datasets:
        part = long[long["dataset"] == dataset].set_index(row)
        out[dataset.upper()] = [cell(part.loc[name]) if name in part.index else "" for name in names]
    return out
