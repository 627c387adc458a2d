"""Whether the inference that dcsurv prints holds: sizes, power, coverage and bias where the truth is known.

Cohorts of ``dcsurv.datasets.simulate`` are drawn again and again, and the true curves, the truth with hazards 1.35
times too high, too narrow a model and pure noise are evaluated on them as ``dcsurv evaluate`` and the report do. How
often is a p-value below 0.05, how often does an interval hold its population value (``population.py``)? Writes the rows
and the page of ``docs/results/simulation``; what is printed where, and which rows answer for it, is in ``printed.py``.

    python benchmarks/simulation.py [--workers 2] [--part evaluate --part bias ...] [--repeats 200]

Rows are sums over batches of repeats. Those that are there are not computed again: delete those of a part that changed.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import reported
from dcsurv import CoxPH
from dcsurv.metrics import (
    calibration_at_horizon,
    compare,
    evaluate,
    evaluate_over_time,
    helpful_thresholds,
    net_benefit,
)
from dcsurv.metrics.censoring import study_censoring
from dcsurv.training import one_thread
from population import HIGH, MISLED, NARROW, NOISE, TRUTH, Cell, draw, population_of, seed_of
from studies import RESULTS, Rows, run_missing

OUT = RESULTS / "simulation"
LEVEL = 0.05
BATCH = 20
N_BOOTSTRAP = 200
N_NULL = 99
IDENTITY = ["part", *Cell._fields, "batch"]
# What the features do to the hazard in cohorts with proportional hazards, per unit.
EFFECTS = {"age": 0.5, "marker": 0.4, "grade": 0.3, "treated": -0.4, "bmi": 0.0, "centre": 0.0}


class Found(NamedTuple):
    """What one repeat says about one number: p, an interval or a value with its target, or whether it is called so."""

    model: str
    what: str
    at: str
    kind: str
    value: float
    target: float = np.nan
    lower: float = np.nan
    upper: float = np.nan

    @property
    def hit(self) -> float:
        """Whether p is at most the level, the interval holds the target, or it was said; NaN where nothing is."""
        if np.isnan(self.value):
            return np.nan
        if self.kind == "p":
            return float(self.value <= LEVEL)
        if self.kind == "called":
            return self.value
        return float(self.lower <= self.target <= self.upper) if self.kind == "interval" else np.nan

    @property
    def outside(self) -> float:
        """Whether an interval excludes its own estimate."""
        return float(not self.lower <= self.value <= self.upper) if self.kind == "interval" else np.nan


class Part(NamedTuple):
    """What to compute on a cohort of a design, given the number of the repeat; on which designs; how often."""

    compute: Callable[[Cell, int], list[Found]]
    cells: list[Cell]
    repeats: int


def evaluated(cell: Cell, repeat: int, models: Sequence[str], **more: Any) -> list[Found]:
    """Evaluate models as ``dcsurv evaluate`` does: every row of its table, with what is printed beside the value."""
    whole, cohort = population_of(cell), draw(cell, repeat)
    labels = {t: name for name, t in whole.horizons.items()}
    out = []
    for model in models:
        curves = whole.curves(model, cohort, seed_of(cell, repeat))
        table = evaluate(cohort.y, curves, X=cohort.X, horizons=list(labels), random_state=repeat, **more)
        for row in table.to_dict("records"):
            at = labels.get(row["horizon"], "")
            target = whole.target(model, row["metric"], at)
            first = (model, row["metric"], at)
            out.append(Found(*first, "value", row["value"], target))
            if np.isfinite(row["p_value"]):
                out.append(Found(*first, "p", row["p_value"]))
            if np.isfinite(row.get("lower", np.nan)):
                out.append(Found(*first, "interval", row["value"], target, row["lower"], row["upper"]))
    return out


def sizes(cell: Cell, repeat: int) -> list[Found]:
    """Return the p-values that ``dcsurv evaluate`` prints about a perfect model and about the follow-up."""
    cohort = draw(cell, repeat)
    followed = study_censoring(cohort.y, [cohort.truth], cohort.X)
    censoring = {
        "features": followed.p_value,
        "predicted risk": np.nan if followed.risk is None else followed.risk.p_value,
    }
    out = [Found("", f"censoring by {what}", "", "p", p) for what, p in censoring.items()]
    return out + [one for one in evaluated(cell, repeat, [TRUTH], n_null=N_NULL) if one.kind == "p"]


def together(cell: Cell, repeat: int) -> list[Found]:
    """Return the p-value of the first page of the report: all tests of calibration, corrected for their number."""
    whole, cohort = population_of(cell), draw(cell, repeat)
    study = reported.study_of(cohort, cohort.truth, list(whole.horizons.values()), N_BOOTSTRAP, repeat)
    return [Found(TRUTH, "calibration, corrected", "", "p", min(reported.trust(study)))]


def power(cell: Cell, repeat: int) -> list[Found]:
    """Return the p-values about a model whose hazards are too high."""
    return [one for one in evaluated(cell, repeat, [HIGH], n_null=N_NULL) if one.kind == "p"]


def intervals(cell: Cell, repeat: int) -> list[Found]:
    """Return the intervals that ``dcsurv evaluate`` prints."""
    found = evaluated(cell, repeat, [TRUTH, NARROW], n_bootstrap=N_BOOTSTRAP, n_null=0)
    return [one for one in found if one.kind == "interval"]


def reports(cell: Cell, repeat: int) -> list[Found]:
    """Return what only the report prints: intervals of the cohort and of other C, differences between groups."""
    whole, cohort = population_of(cell), draw(cell, repeat)
    study = reported.study_of(cohort, cohort.truth, list(whole.horizons.values()), N_BOOTSTRAP, repeat)
    numbers = reported.numbers_of(study)
    out = []
    for at, row in zip(whole.horizons, numbers["follow-up"]["horizons"], strict=True):
        target = whole.survival(TRUTH, row["horizon"]).mean()
        out.append(Found("", "Kaplan-Meier", at, "interval", row["survival"], target, row["lower"], row["upper"]))
    for row in numbers["discrimination"]["metrics"]:
        limits = (row["value"], whole.target(TRUTH, row["metric"]), row["lower"], row["upper"])
        out.append(Found(TRUTH, row["metric"], "", "interval", *limits))
    for row in numbers["subgroups"]["groups"]:
        for key, what, target in (("ratio", "O/E", 1.0), ("c_td", "C-td", whole.target(TRUTH, "C-td"))):
            if row["column"] == "centre" or what == "O/E":  # patients of one centre are like all
                limits = (row[key], target, row[f"{key}_lower"], row[f"{key}_upper"])
                out.append(Found(TRUTH, f"{what} in groups", "", "interval", *limits))
    lowest = 1.0
    for column, metric, row in reported.differences(numbers):
        if metric == "C-td" and column != "centre":
            continue  # patients of one treatment are less unlike each other: there is a difference
        out.append(Found("", f"{metric} of groups", "", "p", row["p"]))
        scale = np.log if metric == "O/E" else float
        limits = [float(scale(row[key])) for key in ("ratio" if metric == "O/E" else "difference", "lower", "upper")]
        out.append(Found("", f"{metric} of groups", "", "interval", limits[0], 0.0, *limits[1:]))
        lowest = min(lowest, row["p_corrected"])
    return [*out, Found("", "groups, corrected", "", "p", lowest)]


def bias(cell: Cell, repeat: int) -> list[Found]:
    """Return the values of every metric."""
    return [one for one in evaluated(cell, repeat, [TRUTH, NARROW], n_null=0) if one.kind == "value"]


def over_time(cell: Cell, repeat: int) -> list[Found]:
    """Return AUC(t) and the Brier score with their bands."""
    whole, cohort = population_of(cell), draw(cell, repeat)
    out = []
    for model in (TRUTH, NARROW):
        table = evaluate_over_time(
            cohort.y, whole.curves(model, cohort), None, N_BOOTSTRAP, X=cohort.X, times=list(whole.horizons.values()),
            random_state=repeat,
        )  # fmt: skip
        labels = {t: name for name, t in whole.horizons.items()}
        for row in table.to_dict("records"):
            at = labels[row["time"]]
            target = whole.target(model, row["metric"], at)
            out.append(Found(model, row["metric"], at, "interval", row["value"], target, row["lower"], row["upper"]))
    return out


def curve(cell: Cell, repeat: int) -> list[Found]:
    """Return the calibration curve with its band, for a low, a middle and a high predicted risk."""
    whole, cohort = population_of(cell), draw(cell, repeat)
    out = []
    for model in (TRUTH, NARROW):
        predicted = whole.curves(model, cohort)
        for at, t in whole.horizons.items():
            found = calibration_at_horizon(
                cohort.y, predicted, t, X=cohort.X, n_bootstrap=N_BOOTSTRAP, random_state=repeat
            )
            risk = np.sort(1 - cohort.truth.evaluate(np.array([t]))[:, 0])  # predictions keep the order
            for k in (len(found.predicted) * np.array([0.1, 0.5, 0.9])).astype(int):
                limits = (found.observed[k], risk[k], found.lower[k], found.upper[k])
                out.append(Found(model, "calibration curve", at, "interval", *limits))
    return out


def differences(cell: Cell, repeat: int) -> list[Found]:
    """Return the paired differences of ``compare``: a misled model and hazards that are too high against the truth."""
    whole, cohort = population_of(cell), draw(cell, repeat)
    labels = {t: name for name, t in whole.horizons.items()}
    curves = {model: whole.curves(model, cohort, seed_of(cell, repeat)) for model in (TRUTH, MISLED, HIGH)}
    table = compare(cohort.y, curves, n_bootstrap=N_BOOTSTRAP, X=cohort.X, horizons=list(labels), random_state=repeat)
    out = []
    for row in table.to_dict("records"):
        at, name = labels.get(row["horizon"], ""), row["metric"]
        target = whole.target(row["model"], name, at) - whole.target(TRUTH, name, at)
        limits = (row["difference"], target, row["lower"], row["upper"])
        if np.isfinite(row["lower"]):
            out.append(Found(row["model"], f"{name} difference", at, "interval", *limits))
    return out


def decisions(cell: Cell, repeat: int) -> list[Found]:
    """Return net benefit, and its difference to treating all, with intervals; and whether models are called helpful."""
    whole, cohort = population_of(cell), draw(cell, repeat)
    out = []
    for when, t in whole.horizons.items():
        levels = whole.thresholds(when)
        more = {"thresholds": levels, "n_bootstrap": N_BOOTSTRAP, "random_state": repeat}
        table = net_benefit(cohort.y, cohort.truth, t, X=cohort.X, **more)
        for row in table.to_dict("records"):
            for what, key in (("net benefit", "net_benefit"), ("net benefit - treat all", "over_all")):
                low, high = (f"{key}_{end}" if key == "over_all" else end for end in ("lower", "upper"))
                target = whole.target(TRUTH, what, f"{when}, {row['threshold']}")
                out.append(Found(TRUTH, what, when, "interval", row[key], target, row[low], row[high]))
    for model in (NOISE, TRUTH):
        curves = whole.curves(model, cohort, seed_of(cell, repeat))
        more = {"n_bootstrap": N_BOOTSTRAP, "random_state": repeat}
        table = helpful_thresholds(cohort.y, curves, list(whole.horizons.values()), X=cohort.X, **more)
        out.append(Found(model, "called helpful", "", "called", float(table["helps"].any())))
    return out


def cox(cell: Cell, repeat: int) -> list[Found]:
    """Return coefficients of CoxPH with interval and p, the test of proportional hazards, and effects over time."""
    cohort = draw(cell, repeat)
    model = CoxPH().fit(cohort.X.drop(columns="enrolled"), cohort.y)
    proportional = cell.hazards == "proportional"
    out = []
    for row in model.summary_.to_dict("records") if proportional else ():
        target = EFFECTS[row["feature"]]
        limits = np.log([row["hazard_ratio"], row["lower"], row["upper"]])
        out.append(Found("CoxPH", "hazard ratio", row["feature"], "interval", limits[0], target, *limits[1:]))
        if target == 0:
            out.append(Found("CoxPH", "coefficient", row["feature"], "p", row["p"]))
    name = "proportional hazards" if proportional else "proportional hazards, where they are not"
    for feature, row in model.proportional_hazards_.iterrows():
        out.append(Found("CoxPH", name, str(feature), "p", row["p"]))
    if proportional and model.effects_over_time_ is not None:
        for _, rows in model.effects_over_time_.groupby("column", sort=False):
            for place, k in {"early": 10, "median": 20, "late": 30}.items():
                row = rows.iloc[k]
                target = EFFECTS[row["feature"]]
                limits = (row["effect"], target, row["lower"], row["upper"])
                out.append(Found("CoxPH", "effect over time", place, "interval", *limits))
    return out


PH = "proportional"
CENSORED = (0.2, 0.5, 0.8)
EXPONENTIAL = [Cell(PH, 400, "exponential", 0, share) for share in CENSORED]
ADMINISTRATIVE = Cell(PH, 400, "administrative", 0, 0.5)
LARGER = [Cell(PH, 1000, "exponential", 0, share) for share in CENSORED]
NOT_PROPORTIONAL = Cell("non-proportional", 400, "exponential", 0, 0.5)
DEPENDENT = [
    Cell(PH, 400, "risk", 1, 0.5),
    Cell(PH, 400, "risk", -1, 0.5),
    Cell(PH, 400, "staggered", 0, 0.5),
]
# Large enough for a bias to show.
LARGE = [
    Cell(PH, 2000, "exponential", 0, 0.5),
    Cell(PH, 2000, "administrative", 0, 0.5),
    Cell(PH, 2000, "risk", 0.5, 0.5),
    Cell(PH, 2000, "risk", 1, 0.5),
    Cell(PH, 2000, "risk", -1, 0.5),
    Cell(PH, 2000, "staggered", 0, 0.5),
]

USUAL = [*EXPONENTIAL, ADMINISTRATIVE, NOT_PROPORTIONAL, *DEPENDENT]

PARTS = {
    "sizes": Part(sizes, USUAL, 200),
    "together": Part(together, [EXPONENTIAL[1], LARGER[1]], 200),
    "power": Part(power, [*EXPONENTIAL, *LARGER], 60),
    "evaluate": Part(intervals, USUAL, 200),
    "over time": Part(over_time, USUAL, 200),
    "curve": Part(curve, [*EXPONENTIAL, ADMINISTRATIVE], 100),
    "differences": Part(differences, [*EXPONENTIAL, ADMINISTRATIVE], 100),
    "decisions": Part(decisions, [EXPONENTIAL[1], EXPONENTIAL[2], ADMINISTRATIVE, DEPENDENT[0]], 100),
    "report": Part(reports, [EXPONENTIAL[1], LARGER[1]], 200),
    "cox": Part(cox, [EXPONENTIAL[0], EXPONENTIAL[2], LARGER[1], NOT_PROPORTIONAL], 200),
    "bias": Part(bias, LARGE, 40),
}


def one(part: str, hazards: str, n: int, design: str, strength: float, censored: float, batch: int) -> list[Any]:
    """Run a batch of repeats of one part on one design, and sum up."""
    cell = Cell(hazards, n, design, strength, censored)
    started = time.process_time()
    found: list[tuple[int, Found]] = []
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for repeat in range(batch * BATCH, (batch + 1) * BATCH):
            found += [(repeat, one) for one in PARTS[part].compute(cell, repeat)]
    seconds = round(time.process_time() - started, 1)
    first = dict(zip(IDENTITY, (part, *cell, batch), strict=True))
    return [{**first, **row, "seconds": seconds} for row in summed(found)]


def summed(found: list[tuple[int, Found]]) -> Iterator[dict[str, Any]]:
    """Return for each number in how many repeats it was there, how many there were, how many hit, and their mean."""
    table = pd.DataFrame(
        [{"repeat": repeat, **one._asdict(), "hit": one.hit, "outside": one.outside} for repeat, one in found]
    )
    table = table[table["value"].notna()]
    for key, rows in table.groupby(["model", "what", "at", "kind"], sort=False):
        yield {
            **dict(zip(("model", "what", "at", "kind"), key, strict=True)),
            "repeats": rows["repeat"].nunique(),
            "numbers": len(rows),
            "hits": rows["hit"].sum(),
            "outside": rows["outside"].sum(),
            "value": rows["value"].mean(),
            "squares": ((rows["value"] - rows["value"].mean()) ** 2).sum(),
            "target": rows["target"].mean(),
        }


def main() -> None:
    from simulation_page import criteria, page

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, help="of every design; default: what each part asks for")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="may be repeated; default: all")
    parser.add_argument("--output", type=Path, default=OUT)
    options = parser.parse_args()
    rows = Rows(options.output / "rows.csv", IDENTITY)
    tasks = [
        (name, *cell, batch)
        for name in options.part or PARTS
        for batch in range(-(-(options.repeats or PARTS[name].repeats) // BATCH))
        for cell in PARTS[name].cells
    ]
    run_missing(rows, tasks, one, options.workers)
    rows.sort()
    rows.write()
    (options.output / "README.md").write_text(page(rows.frame), encoding="utf-8")
    for what, goal, found, reached in criteria(rows.frame):
        print(f"{what}: {goal}; {found}; reached: {reached}")


if __name__ == "__main__":
    main()
