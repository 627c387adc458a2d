"""Does the search find better settings than the paper's, and how long does it take?

DCS-quant on METABRIC, the paper's search space, criterion CDAUC over five folds of split 0's training part; the best
settings and the paper's are then trained on that part from five seeds and judged on split 0's test part, which the
search has not seen. Writes docs/results/tuning. A run that was killed goes on where it was.

    python benchmarks/tuning.py [--quick] [--workers N] [--output FOLDER] [--work FOLDER]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import warnings
from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import t as student

from dcsurv import DCS, metrics, paper_settings, train_test_indices, tune
from dcsurv.datasets import load
from dcsurv.experiments import Plan, Results, run
from dcsurv.experiments.tuning import Choice, TuningResult, paper_space
from dcsurv.experiments.tuning.spaces import active
from dcsurv.figures import save

DATASET, MODEL, SPLIT = "metabric", "DCS-quant", 0
SEARCHED, PAPER = "searched", "the paper's"
METRICS = ("C-td", "CDAUC", "IBS", "DDC")
LOWER_IS_BETTER = ("IBS", "DDC")
N_TRIALS, N_FOLDS, SEEDS, RESAMPLES = 100, 5, range(5), 1000
# Seconds of computing time that one trial may take: a sixtieth of what two cores do in an hour.
TRIAL_TIMEOUT = 120.0
HOUR = 3600.0


def searched_space(y_train: npt.NDArray[np.void]) -> dict[str, Any]:
    """Return the paper's space, with the number of nodes that its table of best settings has besides."""
    paper = paper_settings(MODEL, DATASET)
    space = paper_space(paper, y_train)
    rule = space["n_nodes"]
    assert isinstance(rule, Choice)
    return {**space, "n_nodes": Choice(tuple(sorted({*rule.options, paper.n_nodes})))}


def search(X: pd.DataFrame, y: npt.NDArray[np.void], study: Path, workers: int, *, quick: bool = False) -> TuningResult:
    """Search on split 0's training part of a cohort, from the library's defaults on and not from the paper's best."""
    train, _ = train_test_indices(y, random_state=SPLIT)
    X_train, y_train = X.iloc[train], y[train]
    space = searched_space(y_train)
    defaults = DCS().get_params()
    estimator = paper_settings(MODEL, DATASET, **{name: defaults[name] for name in space})
    if quick:
        estimator.set_params(max_epochs=2)
        space["n_nodes"] = Choice(space["n_nodes"].options[:2])
    return tune(
        estimator,
        X_train,
        y_train,
        n_trials=4 if quick else N_TRIALS,
        space=space,
        criterion="CDAUC",
        folds=2 if quick else N_FOLDS,
        trial_timeout=TRIAL_TIMEOUT,
        storage=study,
        workers=workers,
        random_state=0,
        progress=True,
    )


def wall_seconds(result: TuningResult) -> float:
    """Return for how long at least one trial was running: pauses after a kill do not count.

    Nor does a trial that was lost with its process, which ended nobody knows when: its time of completion is that of
    its recovery. Only trials that ended by themselves have noted their seconds.
    """
    spans = sorted(
        (t.datetime_start, t.datetime_complete)
        for t in result.study.get_trials(deepcopy=False)
        if t.state.is_finished() and "seconds" in t.user_attrs and not t.user_attrs.get("lost")
    )
    total, end = 0.0, datetime.min
    for start, stop in spans:
        total += max(0.0, (stop - max(start, end)).total_seconds())
        end = max(end, stop)
    return total


def judge(result: TuningResult, folder: Path, workers: int, *, quick: bool = False) -> Results:
    """Train the best settings and the paper's on split 0 from each seed."""
    models = {SEARCHED: result.best_estimator(), PAPER: paper_settings(MODEL, DATASET)}
    if quick:
        models = {name: model.set_params(max_epochs=2) for name, model in models.items()}
    seeds = list(SEEDS)[:2] if quick else list(SEEDS)
    plan = Plan(datasets=[DATASET], models=models, splits=[SPLIT], seeds=seeds, n_bootstrap=50 if quick else 200)
    return run(plan, folder, workers=workers, progress=True)


def differences(results: Results, n_resamples: int) -> pd.DataFrame:
    """Return searched minus the paper's, paired by seed and by patient.

    ``seed_lower, seed_upper``: Student's interval over the seeds (would another training differ as much?).
    ``patient_lower, patient_upper``: percentiles over resamples of the test patients of the mean over the seeds (would
    other patients?).
    """
    rows = results.rows.set_index(["model", "seed"]).sort_index()
    _, y = load(DATASET)
    train, test = train_test_indices(y, random_state=SPLIT)
    drawn = np.random.default_rng(0).multinomial(len(test), np.full(len(test), 1 / len(test)), size=n_resamples)
    seeds = sorted(rows.index.get_level_values("seed").unique())
    resampled = {
        model: np.mean(
            [_resampled(results.curves(rows.loc[(model, s), "key"]), y, train, test, drawn) for s in seeds], 0
        )
        for model in (SEARCHED, PAPER)
    }
    out = []
    for k, metric in enumerate(METRICS):
        gap = np.array([rows.loc[(SEARCHED, s), metric] - rows.loc[(PAPER, s), metric] for s in seeds])
        reach = student.ppf(0.975, len(gap) - 1) * gap.std(ddof=1) / math.sqrt(len(gap))
        patients = np.nanquantile(resampled[SEARCHED][:, k] - resampled[PAPER][:, k], [0.025, 0.975])
        out.append(
            {
                "metric": metric,
                SEARCHED: float(np.mean([rows.loc[(SEARCHED, s), metric] for s in seeds])),
                PAPER: float(np.mean([rows.loc[(PAPER, s), metric] for s in seeds])),
                "difference": float(gap.mean()),
                "seed_lower": float(gap.mean() - reach),
                "seed_upper": float(gap.mean() + reach),
                "patient_lower": float(patients[0]),
                "patient_upper": float(patients[1]),
            }
        )
    return pd.DataFrame(out)


def _resampled(curves: Any, y: Any, train: Any, test: Any, drawn: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the four metrics of one model on every resample of the test patients, (B, 4)."""
    out = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the last times of a resample have no censoring weight left
        for counts in drawn:
            part = np.flatnonzero(counts)
            given: Any = {"sample_weight": counts[part]}
            cohort, some = y[test][part], curves[part]
            out.append(
                (
                    metrics.concordance_index_td(cohort, some, **given),
                    metrics.cumulative_dynamic_auc(cohort, some, y_train=y[train], **given).mean,
                    metrics.integrated_brier_score(cohort, some, y_train=y[train], **given),
                    metrics.ddc(cohort, some, **given),
                )
            )
    return np.array(out)


def write_page(output: Path, result: TuningResult, results: Results, gaps: pd.DataFrame, facts: dict[str, Any]) -> None:
    """Write the page, its tables and its figures."""
    (output / "figures").mkdir(parents=True, exist_ok=True)
    for old in (output / "figures").iterdir():
        old.unlink()
    figures = {"history": result.plot_history(), "parallel": result.plot_parallel()}
    if (result.trials["state"] == "complete").sum() > 2:
        figures["importance"] = result.plot_importance()
    for name, figure in figures.items():
        save(figure, output / "figures" / name)
    result.trials.to_csv(output / "trials.csv", index=False)
    gaps.to_csv(output / "differences.csv", index=False)
    results.rows.drop(columns=["key"]).to_csv(output / "judged.csv", index=False)
    result.save_settings(output / "settings.json")
    facts["differences"] = gaps.to_dict("records")
    (output / "summary.json").write_text(json.dumps(facts, indent=1) + "\n")
    (output / "README.md").write_text(page(result, gaps, facts, list(figures)))


def page(result: TuningResult, gaps: pd.DataFrame, facts: dict[str, Any], figures: list[str]) -> str:
    counts, best = facts["trials"], result.best_trial
    paper = paper_settings(MODEL, DATASET).get_params()
    # Through the space, which knows what has no part in a network.
    paper_values = {name: paper[name] if active(result.space[name], paper) else None for name in result.space}
    slowest = result.trials.loc[result.trials["state"] == "complete", "seconds"].max()
    titles = {
        "history": "Every trial in the order of trials, and the best so far.",
        "importance": "How much of the criterion each parameter explains among the complete trials.",
        "parallel": "Settings of the complete trials, coloured by the criterion.",
    }
    pictures = "\n\n".join(f"![{titles[name]}](figures/{name}.png)" for name in figures)
    return f"""# A search of settings: {MODEL} on {DATASET.upper()}

Made by `make tuning` (`python benchmarks/tuning.py`) with dcsurv {version("dcsurv")}, optuna {version("optuna")},
torch {version("torch")}, Python {platform.python_version()}, {facts["workers"]} workers on {facts["cores"]} cores.

The paper's space, unshrunk (and with the number of nodes of its best settings, which its rule leaves out), is searched
on the training part of split {SPLIT} ({facts["n_train"]} patients) for the best CDAUC over {facts["folds"]} folds, from
the library's defaults on. The best settings and the paper's are then trained on that part from {facts["seeds"]} seeds
and judged on the test part ({facts["n_test"]} patients), which the search has not seen.

## The search

{counts["started"]} trials were started: {counts["complete"]} completed all {facts["folds"]} folds,
{counts["pruned"]} were stopped for falling behind, {counts["slow"]} for their time (a trial may take
{TRIAL_TIMEOUT:g} seconds of computing time), {counts["failed"]} failed. It took {facts["seconds"] / 60:.1f} minutes,
{"under" if facts["seconds"] < HOUR else "over"} an hour; the longest complete trial took {slowest:.0f} seconds.

Best CDAUC over the folds: {facts["best_value"]:.4f} (trial {int(best["number"])}). Its settings, in
[settings.json](settings.json), beside those that the paper lists:

| parameter | searched | the paper's |
|---|---|---|
{_lines(f"| `{name}` | {_shown(best[name])} | {_shown(paper_values[name])} |" for name in result.space)}

A size of layers that a network does not have is shown as –.

## On the test part

Means over {facts["seeds"]} seeds, default conventions. The first interval is Student's over the paired seeds: would
other trainings differ as much? The second comes from {facts["resamples"]} resamples of the test patients: would other
patients? Both are 95 % intervals of the difference.

| metric | better is | searched | the paper's | difference | over seeds | over patients |
|---|---|---|---|---|---|---|
{_lines(_difference(row) for row in gaps.to_dict("records"))}

{_lines(_reading(row) for row in gaps.to_dict("records"))}

## Figures

{pictures}

Every trial is in [trials.csv](trials.csv), every training in [judged.csv](judged.csv).
"""


def _lines(parts: Iterable[str]) -> str:
    return "\n".join(parts)


def _difference(row: dict[str, Any]) -> str:
    better = "lower" if row["metric"] in LOWER_IS_BETTER else "higher"
    intervals = (f"{row[f'{kind}_lower']:+.4f} to {row[f'{kind}_upper']:+.4f}" for kind in ("seed", "patient"))
    cells = (
        row["metric"],
        better,
        f"{row[SEARCHED]:.4f}",
        f"{row[PAPER]:.4f}",
        f"{row['difference']:+.4f}",
        *intervals,
    )
    return f"| {' | '.join(cells)} |"


def _reading(row: dict[str, Any]) -> str:
    """Say in words what a difference and its intervals allow to say."""
    good = (row["difference"] < 0) == (row["metric"] in LOWER_IS_BETTER)
    sure = [row[f"{kind}_lower"] * row[f"{kind}_upper"] > 0 for kind in ("seed", "patient")]
    verdict = f"the searched settings are {'better' if good else 'worse'}"
    if all(sure):
        return f"- {row['metric']}: {verdict}, by more than seeds and patients explain."
    if sure[0]:
        return f"- {row['metric']}: {verdict} on these patients whatever the seed; other patients may show otherwise."
    if sure[1]:
        return f"- {row['metric']}: {verdict} on average, but the seeds differ too much to rely on it."
    return f"- {row['metric']}: the two cannot be told apart."


def _shown(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="a look in a minute: few trials and epochs, another folder"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, help="where the page goes (docs/results/tuning)")
    parser.add_argument("--work", type=Path, help="where the study and the trainings are kept (reproduction/tuning)")
    given = parser.parse_args()
    root = Path(__file__).parents[1]
    work = given.work or root / "reproduction" / ("tuning-quick" if given.quick else "tuning")
    output = given.output or (work / "page" if given.quick else root / "docs" / "results" / "tuning")
    work.mkdir(parents=True, exist_ok=True)

    X, y = load(DATASET)
    train, test = train_test_indices(y, random_state=SPLIT)
    result = search(X, y, work / "study.sqlite", given.workers, quick=given.quick)
    results = judge(result, work / "judged", given.workers, quick=given.quick)
    resamples = 20 if given.quick else RESAMPLES
    gaps = differences(results, resamples)
    states = result.trials["state"]
    facts = {
        "dataset": DATASET,
        "model": MODEL,
        "seconds": wall_seconds(result),
        "trials": {
            "started": int((states != "lost").sum()),
            **{state: int((states == state).sum()) for state in ("complete", "pruned", "slow", "failed", "lost")},
        },
        "best_value": result.best_value,
        "best_params": result.best_params,
        "folds": 2 if given.quick else N_FOLDS,
        "seeds": int(results.rows["seed"].nunique()),
        "resamples": resamples,
        "n_train": len(train),
        "n_test": len(test),
        "workers": given.workers,
        "cores": os.cpu_count(),
    }
    write_page(output, result, results, gaps, facts)
    print((output / "README.md").read_text())


if __name__ == "__main__":
    main()
