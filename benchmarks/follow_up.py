"""What models predict, and what metrics say, where the possible follow-up depends on the features.

Simulated cohorts with a known truth (``dcsurv.datasets.simulate``): six kinds of censoring, three sizes. And FLCHAIN,
where the year of enrolment decides how long a patient could be followed. The default of version 0.1.0, which was wrong
there, is run from its own sources, in a worktree of this repository. Writes the rows and the page of
``docs/results/follow-up``; rows that are there already are not computed again.

    python benchmarks/follow_up.py [--workers 2]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "results" / "follow-up"
BEFORE_COMMIT = "d963876"
DESIGNS = ("independent", "exponential", "staggered", "drift", "centre", "risk")
# Patients to train on: how many cohorts are drawn.
SIZES = {500: 3, 2000: 2, 10_000: 1}
# The table of the page: one design, the models of the literature beside ours.
SHOWN, SHOWN_SIZE, SHOWN_COHORTS = "staggered", 4000, 3
TEST_PATIENTS = 3000
TIMES = np.array([2.0, 4.0, 6.0, 8.0, 10.0])
GRID = np.linspace(0.1, 10.9, 60)
LATE = 2007  # enrolled in the last three of ten years
BEFORE, AFTER = "CalibratedEnsemble, 0.1.0", "CalibratedEnsemble"
MODELS = (AFTER, BEFORE, "CoxPH")
# FLCHAIN: the times of its curves, years of enrolment in the figure, times and day in the tables.
DAYS = np.linspace(0, 5000, 101)[1:]
YEARS = (1996, 1997, 1999, 2001)
SHOWN_DAYS = (2000.0, 3500.0, 4200.0, 4600.0, 4900.0)
SHOWN_DAY = 4600.0
PUBLISHED = ("DCS, as published", "Kamran", "DRSA", "DCS", "CoxTime")


def simulate(design: str, n: int, seed: int) -> Any:
    """Draw a cohort; read from its file, because version 0.1.0 does not have it."""
    name = "simulated_cohorts"
    if name not in sys.modules:
        path = ROOT / "src" / "dcsurv" / "datasets" / "simulated.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name].simulate(design, n, random_state=seed)


def build(model: str) -> Any:
    import dcsurv

    if model in (AFTER, BEFORE):
        return dcsurv.CalibratedEnsemble(random_state=0)
    if model == "DCS, as published":
        # The loss, the grid and the start of the paper; sizes as in its settings for METABRIC.
        return dcsurv.paper_settings("DCS-quant", "metabric", random_state=0)
    if model in ("Kamran", "DRSA"):
        return dcsurv.paper_settings(model, "flchain", random_state=0, preprocess="auto")
    return {"DCS": dcsurv.DCS, "CoxTime": dcsurv.CoxTime, "CoxPH": dcsurv.CoxPH}[model](
        **({} if model == "CoxPH" else {"random_state": 0})
    )


def fit_and_read(model: str, design: str, n: int, seed: int) -> dict[str, Any]:
    """Fit one model to one cohort and read its curves for new patients at the times of the study."""
    import torch

    torch.set_num_threads(1)
    train, test = simulate(design, n, seed), simulate(design, TEST_PATIENTS, 1000 + seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The paper's grid is in whole days.
        in_days = model == "DCS, as published" or model in ("Kamran", "DRSA")
        y = train.y.copy()
        if in_days:
            y["time"] = np.maximum(y["time"] * 365.25, 1)
        curves = build(model).fit(train.X, y).predict_survival_function(test.X)
        scale = 365.25 if in_days else 1.0
        survival = curves.evaluate(GRID * scale)
        at = curves.evaluate(TIMES * scale)
    truth, truth_at = test.truth.evaluate(GRID), test.truth.evaluate(TIMES)
    late = (test.X["enrolled"] > LATE).to_numpy()
    short = test.could_follow < 4
    row: dict[str, Any] = {"design": design, "n": n, "cohort": seed, "model": model}
    row["MAE"] = float(np.abs(survival - truth).mean())
    row["MAE, followed < 4 years"] = float(np.abs(survival - truth)[short].mean())
    for k, t in enumerate(TIMES):
        row[f"late {t:g}"], row[f"late truth {t:g}"] = float(at[late, k].mean()), float(truth_at[late, k].mean())
    row |= _scores(test, survival)
    return row


def _scores(test: Any, survival: np.ndarray) -> dict[str, float]:
    """Return the integrated Brier score with both kinds of weights, as far as the installed version knows them."""
    from dcsurv import metrics

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = {}
        values = np.minimum.accumulate(np.clip(survival, 0, 1), axis=1)
        if hasattr(metrics, "censoring"):
            for name in ("auto", "marginal"):
                score = metrics.integrated_brier_score(test.y, (values, GRID), X=test.X, censoring=name)
                out["IBS" if name == "auto" else "marginal IBS"] = float(score)
        else:
            out["marginal IBS"] = float(metrics.integrated_brier_score(test.y, (values, GRID)))
            out["survival"] = np.round(values, 4).tolist()  # scored by those who know more
    return out


def flchain(model: str) -> dict[str, Any]:
    """Fit one model to split 0 of FLCHAIN and read its curves for the others."""
    import torch

    import dcsurv
    from dcsurv.datasets import load_flchain

    torch.set_num_threads(1)
    X, y = load_flchain()
    train, test = dcsurv.train_test_indices(y, random_state=0)
    estimator = build(model)
    if model in ("DCS, as published", "Kamran", "DRSA"):
        name = "DCS-quant" if model == "DCS, as published" else model
        estimator = dcsurv.paper_settings(name, "flchain", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        curves = estimator.fit(X.iloc[train], y[train]).predict_survival_function(X.iloc[test])
        values = np.minimum.accumulate(np.clip(curves.evaluate(DAYS), 0, 1), axis=1)
    return {"model": model, "survival": np.round(values, 4).tolist()}


def read_flchain(found: list[dict[str, Any]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return mean S by year of enrolment and time, and the Brier scores with both kinds of weights."""
    import dcsurv
    from dcsurv import metrics
    from dcsurv.datasets import load_flchain

    X, y = load_flchain()
    _, test = dcsurv.train_test_indices(y, random_state=0)
    year, outcome = X["sample_yr"].iloc[test].astype(int).to_numpy(), y[test]
    means, scores = [], []
    for row in found:
        survival = np.array(row["survival"])
        for one in np.unique(year):
            inside = year == one
            some = {
                "model": row["model"], "year": one, "patients": int(inside.sum()),
                "followed to": float(outcome["time"][inside].max()),
            }  # fmt: skip
            means += [some | {"day": t, "mean S": float(survival[inside, k].mean())} for k, t in enumerate(DAYS)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            score: dict[str, Any] = {"model": row["model"]}
            for name in ("auto", "marginal"):
                options: dict[str, Any] = {"X": X.iloc[test], "censoring": name}
                by = "by features" if name == "auto" else "marginal"
                curves = (survival, DAYS)
                score[f"Brier at {SHOWN_DAY:g}, {by}"] = float(
                    metrics.brier_score(outcome, curves, [SHOWN_DAY], **options)[1][0]
                )
                score[f"IBS, {by}"] = float(metrics.integrated_brier_score(outcome, curves, **options))
                score[f"CDAUC, {by}"] = float(metrics.cumulative_dynamic_auc(outcome, curves, **options).mean)
        scores.append(score)
    return pd.DataFrame(means), pd.DataFrame(scores)


def draw(means: pd.DataFrame) -> None:
    """Draw mean predicted S by year of enrolment, before and after, with Kaplan-Meier as far as patients were seen."""
    import dcsurv
    from dcsurv.datasets import load_flchain
    from dcsurv.figures.style import DARK, DASHED, PALETTE, mark, new_figure, save, style_context
    from dcsurv.nonparametric import kaplan_meier

    X, y = load_flchain()
    _, test = dcsurv.train_test_indices(y, random_state=0)
    year = X["sample_yr"].iloc[test].astype(int).to_numpy()
    shown = ("DCS, as published", BEFORE, AFTER)
    with style_context():
        figure = new_figure(9.6, 3.3)
        axes = figure.subplots(1, len(shown), sharey=True)
        for ax, model in zip(axes, shown, strict=True):
            for one, color in zip(YEARS, PALETTE, strict=False):
                part = means[(means["model"] == model) & (means["year"] == one)]
                end = float(part["followed to"].iloc[0])
                last = int((part["day"] <= end).sum())
                ax.plot(part["day"][:last], part["mean S"][:last], color=color)
                ax.plot(part["day"][last - 1 :], part["mean S"][last - 1 :], color=color, linestyle=DASHED)
                km = kaplan_meier(y[test][year == one])
                ax.step(km.times, km.values, where="post", color=color, linewidth=0.7, alpha=0.6)
            ax.set(title=model, xlabel="days", xlim=(0, float(DAYS[-1])), ylim=(0, 1.02))
        axes[0].set_ylabel("mean survival of those enrolled in a year")
        handles = [mark(str(one), color=color, linestyle="-") for one, color in zip(YEARS, PALETTE, strict=False)]
        handles.append(mark("predicted beyond the last patient of that year", color=DARK, linestyle=DASHED))
        handles.append(mark("Kaplan-Meier", color=DARK, linestyle="-", linewidth=0.7))
        figure.legend(handles=handles, loc="outside lower center", ncols=6)
        (OUT / "figures").mkdir(exist_ok=True)
        save(figure, OUT / "figures" / "flchain")


def tasks() -> list[tuple[str, str, int, int]]:
    out = [(m, d, n, s) for d in DESIGNS for n, count in SIZES.items() for s in range(count) for m in MODELS]
    out += [(m, SHOWN, SHOWN_SIZE, s) for s in range(SHOWN_COHORTS) for m in MODELS]
    out += [(m, SHOWN, SHOWN_SIZE, 0) for m in PUBLISHED]
    return sorted(out, key=lambda task: (task[2] > SHOWN_SIZE, -task[2]))  # the largest last


def run(task: tuple[str, str, int, int], before: Path) -> dict[str, Any]:
    """Run a task, in a process of its own if it needs the sources of version 0.1.0."""
    if task[0] != BEFORE:
        return fit_and_read(*task)
    row = _elsewhere(["--one", json.dumps(task)], before)
    test = simulate(task[1], TEST_PATIENTS, 1000 + task[3])
    return row | _scores(test, np.array(row.pop("survival")))


def _elsewhere(words: list[str], before: Path) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(before / "src")}
    done = subprocess.run(
        [sys.executable, __file__, *words], env=environment, check=True, capture_output=True, text=True
    )
    out: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return out


def run_flchain(model: str, before: Path) -> dict[str, Any]:
    return _elsewhere(["--flchain", model], before) if model == BEFORE else flchain(model)


def write(rows: pd.DataFrame, means: pd.DataFrame, scores: pd.DataFrame) -> None:
    """Write the rows and the tables of the page."""
    order = [*MODELS, *PUBLISHED]
    rows = rows.assign(place=rows["model"].map(order.index)).sort_values(["design", "n", "cohort", "place"])
    rows.drop(columns="place").round(5).to_csv(OUT / "rows.csv", index=False)
    lines = ["# Follow-up that depends on the features", ""]
    lines += ["Made by `python benchmarks/follow_up.py`; every number is in the CSV files beside this page.", ""]
    shown = rows[(rows["design"] == SHOWN) & (rows["n"] == SHOWN_SIZE)]
    lines += [
        f"Enrolled over ten years, closed in year 11, {SHOWN_SIZE:,} patients: mean S of those enrolled in the last "
        "three years, at 2, 4, 6, 8, 10 years, and the mean absolute error (MAE) of S over all patients and times.", "",
        "| model | cohorts | mean S of the late enrolled | MAE of S | IBS | IBS, one censoring curve for all |",
        "| --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    truth = " ".join(f"{shown[f'late truth {t:g}'].mean():.2f}".lstrip("0") for t in TIMES)
    lines.append(f"| *truth* | | *{truth}* | | | |")
    for model in ("DCS, as published", "Kamran", "DRSA", BEFORE, "DCS", AFTER, "CoxTime", "CoxPH"):
        part = shown[shown["model"] == model]
        if len(part):
            late = " ".join(f"{part[f'late {t:g}'].mean():.2f}".lstrip("0") for t in TIMES)
            numbers = " | ".join(f"{part[name].mean():.4f}" for name in ("MAE", "IBS", "marginal IBS"))
            lines.append(f"| {model} | {len(part)} | {late} | {numbers} |")
    lines += ["", "MAE of S, means over the cohorts:", ""]
    lines += [
        f"| follow-up | patients | cohorts | {AFTER} | {BEFORE} | CoxPH | difference, after - before |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for design in DESIGNS:
        for n in SIZES:
            part = rows[(rows["design"] == design) & (rows["n"] == n)].pivot(
                index="cohort", columns="model", values="MAE"
            )
            gap = part[AFTER] - part[BEFORE]
            spread = f" ± {gap.std() / np.sqrt(len(gap)):.4f}" if len(gap) > 1 else ""
            numbers = " | ".join(f"{part[model].mean():.4f}" for model in MODELS)
            lines.append(f"| {design} | {n:,} | {len(part)} | {numbers} | {gap.mean():+.4f}{spread} |")
    lines += ["", "± is the standard error of the mean difference over the cohorts.", ""]
    lines += ["## FLCHAIN, split 0", "", "![Mean survival by year of enrolment](figures/flchain.png)", ""]
    listed = ", ".join(f"{t:g}" for t in SHOWN_DAYS)
    years = sorted(means.loc[means["patients"] >= 20, "year"].unique())
    lines += [f"Mean predicted S at {listed} days by year of enrolment, years with at least 20 test patients:", ""]
    ends = means.drop_duplicates("year").set_index("year")["followed to"]
    lines += ["| model | " + " | ".join(f"{one} (to {ends[one]:,.0f})" for one in years) + " |"]
    lines += ["| --- " * (len(years) + 1) + "|"]
    for model in means["model"].unique():
        part = means[means["model"] == model].set_index(["year", "day"])["mean S"]
        cells = [" ".join(f"{part[one, t]:.2f}".lstrip("0") for t in SHOWN_DAYS) for one in years]
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Scores of the same curves, with weights that follow the features and with one censoring curve for all:",
        "",
    ]
    lines += ["| " + " | ".join(scores.columns) + " |", "| --- " * scores.shape[1] + "|"]
    lines += [
        "| " + " | ".join(str(v) if isinstance(v, str) else f"{v:.4f}" for v in row) + " |" for row in scores.to_numpy()
    ]
    (OUT / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--flchain", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.flchain:
        print(json.dumps(flchain(options.flchain)))
        return
    if options.one:
        print(json.dumps(fit_and_read(*json.loads(options.one))))
        return
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / "rows.csv"
    done = pd.read_csv(path).to_dict("records") if path.exists() else []
    known = {(row["model"], row["design"], row["n"], row["cohort"]) for row in done}
    waiting = [task for task in tasks() if task not in known]
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "-q", str(before), BEFORE_COMMIT], check=True)
        try:
            pool = joblib.Parallel(n_jobs=options.workers, return_as="generator_unordered")
            for count, row in enumerate(pool(joblib.delayed(run)(task, before) for task in waiting), start=1):
                done.append(row)
                pd.DataFrame(done).to_csv(path, index=False)  # goes on here after a kill
                print(f"{count} of {len(waiting)}: {row['model']}, {row['design']}, {row['n']}", flush=True)
            if not (OUT / "flchain.csv").exists():
                models = ("DCS, as published", "Kamran", "DRSA", BEFORE, "DCS", AFTER, "CoxTime", "CoxPH")
                pool = joblib.Parallel(n_jobs=options.workers)
                means, scores = read_flchain(pool(joblib.delayed(run_flchain)(model, before) for model in models))
                means.round(4).to_csv(OUT / "flchain.csv", index=False)
                scores.round(4).to_csv(OUT / "flchain-scores.csv", index=False)
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True)
    means = pd.read_csv(OUT / "flchain.csv")
    draw(means)
    write(pd.DataFrame(done), means, pd.read_csv(OUT / "flchain-scores.csv"))


if __name__ == "__main__":
    main()
