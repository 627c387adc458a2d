"""How the calibrated model does on small cohorts, beside CoxPH: public ones with fewer than 700 patients.

Fifty stratified 80/20 splits of each, the metrics of ``dcsurv.metrics.evaluate`` with its defaults on every test part.
Writes the rows and the page of ``docs/results/small``. Rows that are there already are not computed again: delete those
of a model that has changed.

    python benchmarks/small.py [--workers 2] [--splits 50] [--model calibrated --model coxph ...]

Any registered model may be asked for, and the peers "random survival forest" and "gradient boosting". The cohorts come
with packages that the tests install, or are fetched by name as `make datasets` does.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dcsurv import metrics
from dcsurv.metrics import find_metric
from dcsurv.target import make_outcome, train_test_indices
from dcsurv.training import one_thread
from studies import (
    OURS,
    REFERENCE,
    RESULTS,
    Rows,
    markdown,
    models_in,
    named_model,
    packaged_tables,
    run_missing,
)

OUT = RESULTS / "small"
METRICS = ["C-td", "CDAUC", "IBS", "DDC", "ICI"]
# Those of which a perfect model does not score 0 on so few test patients.
AGAINST_PERFECT = ["DDC", "ICI"]
N_NULL, LEVEL = 200, 0.05
IDENTITY = ["cohort", "split", "model"]
MOST_PATIENTS, LEAST_EVENTS = 700, 40
# What each cohort is, and which columns are left out because they are names, or the outcome in disguise.
ABOUT = {
    "breast": "breast cancer (GSE7390), distant metastasis; the four clinical features, not the genes, which are more "
    "than the events",
    "gbsg2": "German breast cancer, recurrence or death",
    "larynx": "cancer of the larynx, death",
    "lung": "advanced lung cancer (NCCTG), death; without the code of the institution",
    "pbc": "primary biliary cirrhosis (Mayo), death; transplanted patients are censored; without the number",
    "rossi": "released prisoners, arrest within a year",
    "stanford": "Stanford heart transplants, death since acceptance; one row per patient, features at acceptance",
    "veteran": "lung cancer (Veterans' Administration), death",
    "whas500": "heart attack (Worcester), death; without the days in hospital, which end with an early death",
}


def cohorts() -> dict[str, tuple[pd.DataFrame, Any]]:
    """Return features and outcomes by name: one event, censored on the right, one row per patient."""
    from lifelines.datasets import load_larynx, load_lung, load_rossi, load_stanford_heart_transplants
    from sksurv.datasets import load_breast_cancer, load_gbsg2, load_veterans_lung_cancer, load_whas500

    out = {}
    X, y = load_breast_cancer()
    out["breast"] = X[["age", "er", "grade", "size"]], make_outcome(y["t.tdm"], y["e.tdm"])
    X, y = load_gbsg2()
    out["gbsg2"] = X, make_outcome(y["time"], y["cens"])
    larynx = load_larynx()
    out["larynx"] = _parted(larynx, "time", larynx["death"] == 1, ["death"])
    lung = load_lung()
    out["lung"] = _parted(lung, "time", lung["status"] == 1, ["status", "inst"])
    pbc = packaged_tables(["pbc.csv"])["pbc.csv"]
    out["pbc"] = _parted(pbc, "time", pbc["status"] == 2, ["status", "id", "Unnamed: 0"])
    rossi = load_rossi()
    out["rossi"] = _parted(rossi, "week", rossi["arrest"] == 1, ["arrest"])
    stanford = by_patient(load_stanford_heart_transplants())
    out["stanford"] = _parted(stanford, "stop", stanford["event"] == 1, ["event"])
    X, y = load_veterans_lung_cancer()
    out["veteran"] = X, make_outcome(y["Survival_in_days"], y["Status"])
    X, y = load_whas500()
    out["whas500"] = X.drop(columns="los"), make_outcome(y["lenfol"], y["fstat"])
    return out


def _parted(table: pd.DataFrame, when: str, event: Any, others: list[str]) -> tuple[pd.DataFrame, Any]:
    return table.drop(columns=[when, *others]), make_outcome(table[when], event)


def by_patient(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per patient of the Stanford table: the last day, whether it was of death, what was known at first.

    Whether a patient gets a transplant is known later, and only of those who live that long.
    """
    groups = table.sort_values(["id", "start"]).groupby("id")
    first = groups[["age", "year", "surgery"]].first()
    return first.assign(stop=groups["stop"].max(), event=groups["event"].max()).reset_index(drop=True)


def one(cohort: str, split: int, model: str, X: pd.DataFrame, y: Any) -> list[dict[str, Any]]:
    """Return the row of one model on one split of one cohort."""
    training, test = train_test_indices(y, random_state=split)
    started = time.process_time()
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few patients: the last times have no censoring weight, and the like
        fitted = named_model(model, split).fit(X.iloc[training], y[training])
        curves = fitted.predict_survival_function(X.iloc[test])
        table = metrics.evaluate(y[test], curves, X=X.iloc[test], metrics=METRICS, n_null=N_NULL)
    by_metric = {name: table[table["metric"] == name] for name in METRICS}
    values = {name: float(own["value"].mean()) for name, own in by_metric.items()}
    for name in AGAINST_PERFECT:  # ICI: means over the quartiles of the event times
        values[f"{name} floor"] = float(by_metric[name]["floor"].mean())
        values[f"{name} passed"] = float((by_metric[name]["p_value"] > LEVEL).mean())
    row = dict(zip(IDENTITY, (cohort, split, model), strict=True))
    sizes = {"patients": len(y), "events": int(y["event"].sum()), "features": X.shape[1]}
    return [{**row, **sizes, **values, "seconds": round(time.process_time() - started, 2)}]


def differences(rows: pd.DataFrame, model: str) -> pd.DataFrame:
    """Return model minus CoxPH by cohort and metric: mean over the splits that both have."""
    found = {name: part.set_index(["cohort", "split"])[METRICS] for name, part in rows.groupby("model")}
    if not {model, REFERENCE} <= set(found):
        return pd.DataFrame(columns=METRICS, dtype=float)
    gap = found[model].sub(found[REFERENCE]).dropna(how="all")
    return gap.groupby("cohort").mean()


def summary(rows: pd.DataFrame, model: str) -> list[tuple[str, ...]]:
    """Return by metric: mean difference, standard error over the cohorts, how many are better, whether not worse."""
    gaps = differences(rows, model)
    out = []
    for name in METRICS:
        gap, sign = gaps[name].dropna(), 1 if find_metric(name).better == "higher" else -1
        if not len(gap):
            out.append((name, "not run yet", "–", "–", "–"))
            continue
        error = f"{gap.std() / np.sqrt(len(gap)):.4f}" if len(gap) > 1 else "–"
        better = f"{int((sign * gap > 0).sum())} of {len(gap)}"
        out.append((name, f"{gap.mean():+.4f}", error, better, "yes" if sign * gap.mean() >= 0 else "no"))
    return out


SUMMARY = ["metric", f"{OURS} - {REFERENCE}", "standard error", "cohorts in which it is better", "not worse on average"]


AGAINST_COLUMNS = [
    "model",
    *(f"{name}{part}" for name in AGAINST_PERFECT for part in ("", " of a perfect model", " tests passed")),
]


def against_perfect(rows: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return by model: what it scores, what a perfect one would, how many tests it passes; means over the cohorts."""
    out = []
    for model in models_in(rows):
        means = rows[rows["model"] == model].groupby("cohort").mean(numeric_only=True).mean()
        cells = [
            cell
            for name in AGAINST_PERFECT
            for cell in (
                f"{means[name]:.4f}",
                f"{means[f'{name} floor']:.4f}",
                f"{100 * means[f'{name} passed']:.0f} %",
            )
        ]
        out.append((model, *cells))
    return out


def page(rows: pd.DataFrame) -> str:
    """Return the page; before anything was run, it says so."""
    lines = ["# Small cohorts", "", "Made by `make small`; every number is in rows.csv beside this page.", ""]
    if not len(rows):
        return "\n".join([*lines, "Nothing was run yet.", ""])
    models = models_in(rows)
    counts = rows.groupby("model")["split"].nunique()
    lines += [
        f"Public cohorts with fewer than {MOST_PATIENTS} patients and at least {LEAST_EVENTS} events; stratified 80/20 "
        f"splits ({', '.join(f'{model} {counts[model]}' for model in models)}). C-td and CDAUC: higher is better; IBS, "
        "DDC and ICI (mean over the quartiles of the event times): lower is better. GBSG2 and WHAS500 were also among "
        "the cohorts on which [the defaults were chosen](../development/README.md).",
        "",
        "## Against CoxPH",
        "",
        "Goal: not worse on average in each of the five.",
        "",
        *markdown(SUMMARY, summary(rows, OURS)),
        "Means over the cohorts, each the mean over its splits; the standard error is over the cohorts.",
        "",
    ]
    lines += [
        "## Against a perfect model",
        "",
        "On so few test patients a perfect model does not score 0. What it would score is simulated from each model's "
        f"own curves; a test is passed if p is above {LEVEL}, as 95 of 100 of a perfect model's are.",
        "",
        *markdown(AGAINST_COLUMNS, against_perfect(rows)),
    ]
    others = [model for model in models if model not in (OURS, REFERENCE)]
    if others:
        table = [[model, *(f"{one[1]} ± {one[2]}" for one in summary(rows, model))] for model in others]
        lines += markdown([f"other models - {REFERENCE}", *METRICS], table)
    lines += ["## By cohort", ""]
    table = []
    for cohort, part in rows.groupby("cohort"):
        sizes = [f"{part[name].iloc[0]:,}" for name in ("patients", "events", "features")]
        means = part.groupby("model")[METRICS].mean()
        table += [[cohort, *sizes, m, *(f"{means.loc[m, x]:.4f}" for x in METRICS)] for m in models if m in means.index]
    lines += markdown(["cohort", "patients", "events", "features", "model", *METRICS], table)
    lines += [f"- {name}: {about}" for name, about in ABOUT.items() if name in set(rows["cohort"])]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--splits", type=int, default=50)
    parser.add_argument("--model", action="append", help=f"may be repeated; default: {OURS} and {REFERENCE}")
    parser.add_argument("--output", type=Path, default=OUT)
    options = parser.parse_args()
    rows = Rows(options.output / "rows.csv", IDENTITY)
    data = cohorts()
    tasks = [
        (cohort, split, model, X, y)
        for split in range(options.splits)
        for cohort, (X, y) in data.items()
        for model in options.model or [OURS, REFERENCE]
    ]
    run_missing(rows, tasks, one, options.workers)
    rows.sort()
    rows.write()
    (options.output / "README.md").write_text(page(rows.frame), encoding="utf-8")
    for name, gap, error, better, fine in summary(rows.frame, OURS):
        print(f"{name}: {gap} (standard error {error}), better in {better}; not worse: {fine}")


if __name__ == "__main__":
    main()
