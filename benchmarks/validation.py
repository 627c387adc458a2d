"""What `dcsurv.validate` says, where the truth is known: simulated cohorts, and many new patients to see it on.

1. Is the optimism gone? Cohorts of METABRIC's size are validated; then the model that was fitted to the whole cohort
   predicts 20,000 new patients. Beside each other: the apparent value, Harrell's, the .632+ bootstrap's, that of
   cross-validation, and the truth.
2. How often is a verdict wrong? Two Cox models that see different features of the same strength, so that neither is
   better: how often does an interval of their difference leave 0 out? And where a Cox model is true: how often is
   anything else called better?

    python benchmarks/validation.py [--workers 2]

Writes the rows and the page of ``docs/results/validation``. Rows that are there already are not computed again.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

import dcsurv
from dcsurv.datasets import simulate
from dcsurv.metrics import evaluate
from dcsurv.target import make_outcome
from dcsurv.training import one_thread
from studies import OURS, REFERENCE, RESULTS, Rows, markdown, named_model, run_missing

OUT = RESULTS / "validation"
# As many patients as METABRIC has, with as many censored.
PATIENTS, CENSORED, NEW = 1904, 0.42, 20_000
METRICS = ["C-td", "IBS"]
MODELS = (OURS, "forest", REFERENCE)
HAZARDS = ("proportional", "non-linear")
IDENTITY = ["study", "model", "hazards", "repeat"]
# Resamples and repeats of the cross-validation of each cohort: errors of the bootstrap average out over the cohorts.
RESAMPLES, REPEATS = 10, 1
# Part two: patients, and features of each of two exchangeable models.
SMALL, EACH = 300, 6
# How far the corrected C-td may be from the truth, on average.
GOAL = 0.01


def one(study: str, model: str, hazards: str, repeat: int) -> list[dict[str, Any]]:
    """Return the rows of one simulated cohort."""
    started = time.process_time()
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = {"optimism": _optimism, "equal": _equal, "cox is true": _cox_is_true}[study](model, hazards, repeat)
    spent = round(time.process_time() - started, 1)
    return [
        {**dict(zip(IDENTITY, (study, model, hazards, repeat), strict=True)), **row, "seconds": spent} for row in rows
    ]


def _drawn(hazards: str, n: int, seed: int) -> tuple[pd.DataFrame, Any, Any]:
    """Return features, outcome and true curves."""
    cohort = simulate("independent", n, hazards=hazards, censored=CENSORED, random_state=seed)  # type: ignore[arg-type]
    return cohort.X.drop(columns=["centre", "enrolled"]), cohort.y, cohort.truth


def _optimism(model: str, hazards: str, repeat: int) -> list[dict[str, Any]]:
    X, y, truth = _drawn(hazards, PATIENTS, repeat)
    found = dcsurv.validate(
        named_model(model, 0), X, y, reference=None, metrics=METRICS, resamples=RESAMPLES, repeats=REPEATS,
        random_state=repeat,
    )  # fmt: skip
    X_new, y_new, truth_new = _drawn(hazards, NEW, 10_000 + repeat)
    fitted = named_model(model, 0).fit(X, y)
    value = _on_new(y_new, fitted.predict_survival_function(X_new))
    # How much better the true curves do in this cohort than in new patients: luck that all estimates share.
    luck = evaluate(y, truth, metrics=METRICS, n_null=0).set_index("metric")["value"] - _on_new(y_new, truth_new)
    assert found.bootstrap is not None
    merged = found.bootstrap.merge(found.performance[["metric", "cross_validated"]], on="metric")
    columns = ["metric", "apparent", "harrell", "out_of_bag", "corrected", "cross_validated"]
    return [
        {**row, "truth": value[row["metric"]], "luck": luck[row["metric"]]}
        for row in merged[columns].to_dict("records")
    ]


def _on_new(y: Any, curves: Any) -> pd.Series:
    """Return metrics of very many patients: a mean over four groups is the same and takes less long."""
    groups = np.array_split(np.arange(len(y)), 4)
    parts = [evaluate(y[rows], curves[rows], metrics=METRICS, n_null=0) for rows in groups]
    return pd.concat(parts).groupby("metric")["value"].mean()


class CoxOnSome(BaseEstimator):
    """CoxPH that sees some of the columns."""

    def __init__(self, first: int = 0) -> None:
        self.first = first

    def fit(self, X: pd.DataFrame, y: Any) -> CoxOnSome:
        self.model_ = dcsurv.CoxPH().fit(X.iloc[:, self.first : self.first + EACH], y)
        return self

    def predict_survival_function(self, X: pd.DataFrame) -> Any:
        return self.model_.predict_survival_function(X.iloc[:, self.first : self.first + EACH])


def _equal(model: str, hazards: str, repeat: int) -> list[dict[str, Any]]:
    """Compare two models that are equally good by symmetry."""
    generator = np.random.default_rng(repeat)
    X = pd.DataFrame(generator.normal(size=(SMALL, 2 * EACH))).add_prefix("x")
    times = generator.exponential(size=SMALL) * np.exp(-0.2 * X.sum(axis=1))
    could = generator.exponential(1.5, SMALL)
    y = make_outcome(np.minimum(times, could), times <= could)
    return _compared(CoxOnSome(), X, y, CoxOnSome(EACH), repeat)


def _cox_is_true(model: str, hazards: str, repeat: int) -> list[dict[str, Any]]:
    X, y, _ = _drawn(hazards, SMALL, 500 + repeat)
    return _compared(named_model(model, repeat), X, y, REFERENCE, repeat)


def _compared(model: Any, X: pd.DataFrame, y: Any, reference: Any, seed: int) -> list[dict[str, Any]]:
    found = dcsurv.validate(
        model, X, y, reference=reference, metrics=METRICS, resamples=0, repeats=2, random_state=seed
    )  # fmt: skip
    assert found.comparison is not None
    assert found.verdict is not None
    columns = ["metric", "difference", "se", "lower", "upper"]
    return [{**row, "verdict": found.verdict.text} for row in found.comparison[columns].to_dict("records")]


ESTIMATES = {
    "apparent": "apparent",
    "harrell": "Harrell's optimism off",
    "out_of_bag": "not drawn",
    "corrected": ".632+",
    "cross_validated": "cross-validated",
}


def optimism_table(rows: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return by model and hazards how far each estimate of C-td is from the truth, on average."""
    own = rows[(rows["study"] == "optimism") & (rows["metric"] == "C-td")]
    out = []
    for (model, hazards), part in own.groupby(["model", "hazards"], sort=False):
        cells = []
        for name in ESTIMATES:
            gap = part[name] - part["truth"] - part["luck"]
            error = gap.std() / np.sqrt(len(gap)) if len(gap) > 1 else np.nan
            cells.append(f"{gap.mean():+.4f} ({error:.4f})" if np.isfinite(error) else f"{gap.mean():+.4f}")
        luck = f"{part['luck'].mean():+.4f}"
        out.append((str(model), str(hazards), str(len(part)), f"{part['truth'].mean():.4f}", luck, *cells))
    return out


def single_table(rows: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return every cohort of our model."""
    own = rows[(rows["study"] == "optimism") & (rows["metric"] == "C-td") & (rows["model"] == OURS)]
    return [
        (
            *(str(row["hazards"]), str(row["repeat"]), f"{row['truth']:.4f}", f"{row['luck']:+.4f}"),
            *(f"{row[name]:.4f}" for name in ESTIMATES),
        )
        for _, row in own.iterrows()
    ]


def verdict_table(rows: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return how often intervals leave 0 out, and which verdicts were given."""
    out = []
    for study, what in (("equal", "two models, equally good"), ("cox is true", "SplineCox, where CoxPH is true")):
        own = rows[rows["study"] == study]
        if not len(own):
            continue
        first = own[own["metric"] == METRICS[0]]
        better = int(first["verdict"].str.contains(" is better").sum())
        keep = int(first["verdict"].str.startswith("keep").sum())
        shares = [
            f"{((part['lower'] > 0) | (part['upper'] < 0)).mean():.3f}" for name in METRICS
            for part in [own[own["metric"] == name]]
        ]  # fmt: skip
        out.append((what, str(len(first)), *shares, str(better), str(keep), str(len(first) - better - keep)))
    return out


def page(rows: pd.DataFrame) -> str:
    """Return the page; before anything was run, it says so."""
    lines = [
        "# Validation against the truth",
        "",
        "Made by `make validation`; every number is in rows.csv beside this page.",
        "",
    ]
    if not len(rows):
        return "\n".join([*lines, "Nothing was run yet.", ""])
    lines += [
        f"Simulated cohorts of {PATIENTS:,} patients, {CENSORED:.0%} censored, validated with {RESAMPLES} bootstrap "
        f"samples and {REPEATS} x 5 folds. The truth is the C-td, on {NEW:,} new patients, of the model that was "
        "fitted to the whole cohort.",
        "",
        "A cohort may happen to be easy to rank: luck is what the true curves score in it more than in new patients, "
        "and moves every estimate alike. The columns after it are estimate minus truth minus luck, mean over the "
        "cohorts, in brackets the standard error.",
        "",
    ]
    lines += markdown(["model", "hazards", "cohorts", "truth", "luck", *ESTIMATES.values()], optimism_table(rows))
    ours = rows[(rows["study"] == "optimism") & (rows["metric"] == "C-td") & (rows["model"] == OURS)]
    gaps = ours["corrected"] - ours["truth"]
    lines += [
        f"The goal was a corrected C-td of the default model within {GOAL} of the truth: it is {gaps.mean():+.4f} off "
        f"on average over {len(ours)} cohorts, luck included, and {(gaps - ours['luck']).mean():+.4f} without. One by "
        "one:",
        "",
    ]
    lines += markdown(["hazards", "cohort", "truth", "luck", *ESTIMATES.values()], single_table(rows))
    lines += [
        "## Verdicts",
        "",
        f"Cohorts of {SMALL} patients, 2 x 5 folds; two metrics decide, so that each interval holds 97.5 %. Two Cox "
        f"models with {EACH} features each, of the same strength, are equally good by symmetry: their intervals may "
        "leave 0 out in 2.5 of 100 cohorts each.",
        "",
    ]
    header = [
        "comparison",
        "cohorts",
        *(f"{name}: interval without 0" for name in METRICS),
        "better",
        "keep",
        "no clear difference",
    ]
    lines += markdown(header, verdict_table(rows))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=2, help="cohorts of each kind of hazards")
    parser.add_argument("--verdicts", type=int, default=60, help="cohorts behind each row of verdicts")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    tasks = [("optimism", m, h, r) for r in range(given.repeats) for h in HAZARDS for m in MODELS]
    tasks += [("equal", REFERENCE, HAZARDS[0], r) for r in range(given.verdicts)]
    tasks += [("cox is true", "spline-cox", HAZARDS[0], r) for r in range(given.verdicts)]
    rows = Rows(given.out / "rows.csv", IDENTITY)
    run_missing(rows, tasks, one, given.workers)
    rows.sort()
    rows.write()
    (given.out / "README.md").write_text(page(rows.frame), encoding="utf-8")


if __name__ == "__main__":
    main()
