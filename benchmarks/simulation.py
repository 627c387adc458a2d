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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dcsurv import CoxPH
from dcsurv.follow_up import study_follow_up
from dcsurv.metrics import compare, evaluate, evaluate_over_time
from dcsurv.training import one_thread
from population import HIGH, MISLED, NARROW, NOISE, TRUTH, Cell, draw, population_of, seed_of
from studies import RESULTS, Rows, run_missing

OUT = RESULTS / "simulation"
LEVEL = 0.05
BATCH = 20
N_BOOTSTRAP = 200
IDENTITY = ["part", *Cell._fields, "batch"]
# What the features do to the hazard in cohorts with proportional hazards, per unit.
EFFECTS = {"age": 0.5, "marker": 0.4, "grade": 0.3, "treated": -0.4, "bmi": 0.0, "centre": 0.0}


class Found(NamedTuple):
    """What one repeat says about one number: a p-value, an interval with its target, or a value with its target."""

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
        """Whether p is below the level, or the interval holds the target; NaN where there is neither."""
        if np.isnan(self.value):
            return np.nan
        if self.kind == "p":
            return float(self.value <= LEVEL)
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


def evaluated(cell: Cell, repeat: int, models: tuple[str, ...] = (TRUTH, HIGH, NARROW), **more: Any) -> list[Found]:
    """Evaluate models as ``dcsurv evaluate`` does: every row of its table, with what is printed beside the value."""
    whole, cohort = population_of(cell), draw(cell, repeat)
    labels = {t: name for name, t in whole.horizons.items()}
    out = []
    for model in models:
        curves = whole.curves(model, cohort, seed_of(cell, repeat))
        options = {"n_bootstrap": N_BOOTSTRAP, "random_state": repeat} | more
        table = evaluate(cohort.y, curves, X=cohort.X, horizons=list(labels), **options)
        for row in table.to_dict("records"):
            at = labels.get(row["horizon"], "")
            target = whole.target(model, row["metric"], at)
            first = (model, row["metric"], at)
            out.append(Found(*first, "value", row["value"], target))
            if np.isfinite(row.get("p_value", np.nan)):
                out.append(Found(*first, "p", row["p_value"]))
            if np.isfinite(row.get("lower", np.nan)):
                out.append(Found(*first, "interval", row["value"], target, row["lower"], row["upper"]))
    return out


def tests_of_evaluate(cell: Cell, repeat: int) -> list[Found]:
    """Only the p-values that ``dcsurv evaluate`` prints, of the truth and of hazards that are too high."""
    found = evaluated(cell, repeat, (TRUTH, HIGH), n_bootstrap=0)
    cohort = draw(cell, repeat)
    p = study_follow_up(cohort.X, cohort.y).p_value
    return [one for one in found if one.kind == "p"] + [Found("", "censoring by features", "", "p", p)]


def over_time(cell: Cell, repeat: int) -> list[Found]:
    """AUC(t) and the Brier score with their bands."""
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


def differences(cell: Cell, repeat: int) -> list[Found]:
    """Paired differences of ``compare``: a misled model and hazards that are too high against the truth."""
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


def cox(cell: Cell, repeat: int) -> list[Found]:
    """Coefficients of CoxPH with interval and p, the test of proportional hazards, and effects over time."""
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


def bias(cell: Cell, repeat: int) -> list[Found]:
    """Values of every metric, without intervals."""
    found = evaluated(cell, repeat, (TRUTH, NARROW, NOISE), n_bootstrap=0)
    return [one for one in found if one.kind == "value"]


PH = "proportional"
CENSORED = (0.2, 0.5, 0.8)
TESTED = [
    *(Cell(PH, 400, "exponential", 0, share) for share in CENSORED),
    *(Cell(PH, 400, "administrative", 0, share) for share in CENSORED),
    Cell(PH, 1000, "exponential", 0, 0.5),
    Cell("log-normal", 400, "exponential", 0, 0.5),
    Cell("non-linear", 300, "exponential", 0, 0.5),
    Cell("non-proportional", 400, "exponential", 0, 0.5),
]
DEPENDENT = [
    Cell(PH, 400, "risk", 1, 0.5),
    Cell(PH, 400, "risk", -1, 0.5),
    Cell(PH, 400, "staggered", 0, 0.5),
]
LARGE = [
    Cell(PH, 2000, "exponential", 0, 0.5),
    Cell(PH, 2000, "administrative", 0, 0.5),
    Cell(PH, 2000, "risk", 0.5, 0.5),
    Cell(PH, 2000, "risk", 1, 0.5),
    Cell(PH, 2000, "risk", -1, 0.5),
    Cell(PH, 2000, "staggered", 0, 0.5),
]
COX = [
    Cell(PH, 400, "exponential", 0, 0.2),
    Cell(PH, 400, "exponential", 0, 0.8),
    Cell(PH, 1000, "exponential", 0, 0.5),
    Cell("non-proportional", 400, "exponential", 0, 0.5),
]

PARTS = {
    "tests": Part(tests_of_evaluate, TESTED + DEPENDENT, 400),
    "evaluate": Part(evaluated, TESTED + DEPENDENT, 200),
    "over time": Part(over_time, TESTED[:6] + DEPENDENT, 200),
    "differences": Part(differences, TESTED[:6], 200),
    "cox": Part(cox, COX, 400),
    "bias": Part(bias, LARGE, 60),
}


def one(part: str, hazards: str, n: int, design: str, strength: float, censored: float, batch: int) -> list[Any]:
    """Run a batch of repeats of one part on one design, and sum up."""
    cell = Cell(hazards, n, design, strength, censored)
    started = time.process_time()
    found: list[Found] = []
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for repeat in range(batch * BATCH, (batch + 1) * BATCH):
            found += PARTS[part].compute(cell, repeat)
    seconds = round(time.process_time() - started, 1)
    first = dict(zip(IDENTITY, (part, *cell, batch), strict=True))
    return [{**first, **row, "seconds": seconds} for row in summed(found)]


def summed(found: list[Found]) -> Iterator[dict[str, Any]]:
    """Return for each number in how many repeats it was there, how often it hit, and its mean."""
    table = pd.DataFrame([{**one._asdict(), "hit": one.hit, "outside": one.outside} for one in found])
    table = table[table["value"].notna()]
    for key, rows in table.groupby(["model", "what", "at", "kind"], sort=False):
        yield {
            **dict(zip(("model", "what", "at", "kind"), key, strict=True)),
            "repeats": len(rows),
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
        for cell in PARTS[name].cells
        for batch in range(-(-(options.repeats or PARTS[name].repeats) // BATCH))
    ]
    run_missing(rows, tasks, one, options.workers)
    rows.sort()
    rows.write()
    (options.output / "README.md").write_text(page(rows.frame), encoding="utf-8")
    for what, goal, found, reached in criteria(rows.frame):
        print(f"{what}: {goal}; {found}; reached: {reached}")


if __name__ == "__main__":
    main()
