"""What `make demo` shows: the embedded cohorts, and DCS against CoxPH on held-out patients of METABRIC."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

import dcsurv
from dcsurv.datasets import load_metabric
from dcsurv.experiments.paper_data import table_1, table_2
from dcsurv.metrics import compare, evaluate


def show(console: Console, title: str, header: list[str], rows: list[list[str]]) -> None:
    table = Table(*header, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def cohorts(console: Console) -> None:
    both = table_1().join(table_2().drop(columns=["patients", "censoring_rate"]))
    rows = [
        [
            str(name).upper(), f"{row['patients']:,.0f}", f"{row['features']:.0f}", f"{row['censoring_rate']:.0%}",
            f"{row['missing_share']:.1%}", f"{row['median_survival_days']:,.0f}",
            f"{row['non_proportional']:.0f} of {row['features']:.0f}", f"{row['F']:.1f}",
        ]
        for name, row in both.iterrows()
    ]  # fmt: skip
    header = ["cohort", "patients", "features", "censored", "missing", "median event (days)", "not prop.", "|B|/|A|"]
    show(console, "The three embedded cohorts (the paper's Tables I and II)", header, rows)


def cells(table: pd.DataFrame) -> dict[str, str]:
    """Return the metrics of one model as text, with intervals where there are any."""
    out = {}
    for _, row in table.iterrows():
        name = row["metric"] if pd.isna(row["horizon"]) else f"{row['metric']} at {row['horizon']:,.0f} days"
        interval = "" if pd.isna(row["lower"]) else f" ({row['lower']:.3f} to {row['upper']:.3f})"
        out[name] = f"{row['value']:.3f}{interval}"
    return out


def main() -> None:
    console = Console(width=110)
    cohorts(console)
    X, y = load_metabric()
    train, test = dcsurv.train_test_indices(y, random_state=0)
    models = {"CoxPH": dcsurv.CoxPH(), "DCS": dcsurv.DCS(random_state=0)}
    curves = {}
    for name, model in models.items():
        with console.status(f"fitting {name} to {len(train)} patients of METABRIC"):
            curves[name] = model.fit(X.iloc[train], y[train]).predict_survival_function(X.iloc[test])
    columns = {name: cells(evaluate(y[test], curves[name], y[train], n_bootstrap=500)) for name in models}
    rows = [[metric, *(columns[name][metric] for name in models)] for metric in columns["CoxPH"]]
    show(console, f"METABRIC, {len(test)} held-out patients, 95 % intervals", ["metric", *models], rows)
    gaps = compare(y[test], curves, y[train], n_bootstrap=500, metrics=["C-td", "CDAUC", "IBS", "DDC"])
    rows = [
        [g["metric"], f"{g['difference']:+.3f} ({g['lower']:+.3f} to {g['upper']:+.3f})"] for _, g in gaps.iterrows()
    ]
    show(console, "DCS minus CoxPH on the same resamples", ["metric", "difference"], rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dcs.safetensors"
        models["DCS"].save(path)
        again = dcsurv.load(path).predict_survival_function(X.iloc[test[:3]])
        console.print(f"Saved and loaded: {path.stat().st_size / 1024:.0f} kB, no pickle, no patient rows.")
    rows = [
        [f"patient {i}", *(f"{s:.2f}" for s in again[k]([365, 5 * 365, 10 * 365])), f"{m / 365:.1f} years"]
        for k, (i, m) in enumerate(zip(test[:3], again.median(), strict=True))
    ]
    show(console, "Probability of survival", ["", "1 year", "5 years", "10 years", "median"], rows)


if __name__ == "__main__":
    main()
