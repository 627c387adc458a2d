"""How far predictions are from the truth where it is known: simulated cohorts, by the kind of hazards.

Four kinds of event times (``dcsurv.datasets.simulate``), 300 to 4,000 patients, 20 to 90 % of them censored. Each model
is fitted to a cohort and its curves of new patients are compared with their true ones. Writes the rows and the page of
``docs/results/truth``. Rows that are there already are not computed again: delete those of a model that has changed.

    python benchmarks/truth.py [--workers 2] [--repeats 5] [--model calibrated --model coxph ...]

Any registered model may be asked for, and the peers "random survival forest" and "gradient boosting".
"""

from __future__ import annotations

import argparse
import time
import warnings
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dcsurv.datasets import simulate
from dcsurv.training import one_thread
from studies import OURS, REFERENCE, RESULTS, Rows, markdown, models_in, named_model, run_missing

OUT = RESULTS / "truth"
PROPORTIONAL = "proportional"
TEST_PATIENTS = 1500
# Event-time quantiles of the early, the median and the last usable horizon, and the patients they are found on.
QUANTILES = {"early": 0.1, "median": 0.5, "late": 0.95}
REFERENCE_PATIENTS = 20_000
N_TIMES = 100
CLIPPED = 0.005  # S is kept this far from 0 and 1 before the complementary log-log
# Goals, set before the runs.
MOST_TIMES_COX, SLOPES = 1.25, (0.9, 1.1)


class Cell(NamedTuple):
    """A design: kind of hazards, patients to train on, kind of censoring, share of censored patients."""

    hazards: str
    n: int
    design: str
    censored: float

    def __str__(self) -> str:
        return f"{self.hazards} | {self.n:,} | {self.design} | {self.censored:.0%}"


CELLS = [
    Cell(PROPORTIONAL, 300, "exponential", 0.3),
    Cell(PROPORTIONAL, 300, "administrative", 0.6),
    Cell(PROPORTIONAL, 1000, "exponential", 0.2),
    Cell(PROPORTIONAL, 1000, "exponential", 0.5),
    Cell(PROPORTIONAL, 1000, "administrative", 0.7),
    Cell(PROPORTIONAL, 1000, "exponential", 0.85),  # 150 events of 1,000
    Cell(PROPORTIONAL, 1000, "administrative", 0.9),
    Cell(PROPORTIONAL, 4000, "exponential", 0.5),
    Cell("log-normal", 300, "exponential", 0.5),
    Cell("log-normal", 1000, "exponential", 0.5),
    Cell("log-normal", 1000, "administrative", 0.8),
    Cell("non-linear", 300, "exponential", 0.5),
    Cell("non-linear", 1000, "exponential", 0.5),
    Cell("non-linear", 1000, "administrative", 0.8),
    Cell("non-linear", 4000, "exponential", 0.5),
    Cell("non-proportional", 300, "exponential", 0.5),
    Cell("non-proportional", 1000, "exponential", 0.5),
    Cell("non-proportional", 1000, "administrative", 0.3),
    Cell("non-proportional", 4000, "exponential", 0.5),
]
IDENTITY = [*Cell._fields, "repeat", "model"]


def draw(cell: Cell, n: int, what: str) -> Any:
    """Draw a cohort of a design; what it is for decides the seed, so that no two share patients or luck."""
    seed = zlib.crc32(f"{cell} {what}".encode())
    return simulate(cell.design, n, hazards=cell.hazards, censored=cell.censored, random_state=seed)  # type: ignore[arg-type]


def horizons(cell: Cell) -> tuple[dict[str, float], float]:
    """Return the horizons of a design, the same in every repeat, and the share that could be followed to the last.

    They are quantiles of the event times that are observed, so that patients are followed there.
    """
    cohort = draw(cell, REFERENCE_PATIENTS, "horizons")
    times = np.quantile(cohort.y["time"][cohort.y["event"]], list(QUANTILES.values()))
    return dict(zip(QUANTILES, times.tolist(), strict=True)), float((cohort.could_follow >= times[-1]).mean())


def slope(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the slope of the regression of the truth on the prediction; 1 if differences have the right size."""
    spread = np.var(predicted)
    return float(np.cov(truth, predicted, bias=True)[0, 1] / spread) if spread > 0 else float("nan")


def cloglog(survival: np.ndarray) -> np.ndarray:
    return np.log(-np.log(np.clip(survival, CLIPPED, 1 - CLIPPED)))


def measures(truth: Any, predicted: Any, times: dict[str, float]) -> dict[str, float]:
    """Compare curves with the true ones of the same patients, up to the last of the horizons."""
    last = times["late"]
    grid = np.linspace(0, last, N_TIMES + 1)
    true, ours = truth.evaluate(grid), predicted.evaluate(grid)
    mean_time = np.trapezoid(true, grid, axis=1).mean()
    out = {
        "MAE": float(np.abs(ours - true)[:, 1:].mean()),
        "slope": slope(true[:, -1], ours[:, -1]),
        "cloglog slope": slope(cloglog(true[:, -1]), cloglog(ours[:, -1])),
        "restricted mean bias": float(np.trapezoid(ours - true, grid, axis=1).mean() / mean_time),
    }
    tenth = len(true) // 10
    for name, t in times.items():
        true, ours = truth.evaluate(np.array([t]))[:, 0], predicted.evaluate(np.array([t]))[:, 0]
        for by, values in {"predicted": ours, "true": true}.items():
            order = np.argsort(-values, kind="stable")  # the lowest risk first
            for who, rows in {"lowest": order[:tenth], "highest": order[-tenth:]}.items():
                out[f"{name}, {who} {by} risk"] = float((ours - true)[rows].mean())
    return out


def one(hazards: str, n: int, design: str, censored: float, repeat: int, model: str) -> list[dict[str, Any]]:
    """Fit one model to one cohort and compare its curves of new patients with the truth."""
    cell = Cell(hazards, n, design, censored)
    times, share = horizons(cell)
    train, test = draw(cell, n, f"train {repeat}"), draw(cell, TEST_PATIENTS, f"test {repeat}")
    started = time.process_time()
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = named_model(model, repeat).fit(train.X.drop(columns="enrolled"), train.y)
        curves = fitted.predict_survival_function(test.X.drop(columns="enrolled"))
    row = {**dict(zip(IDENTITY, (*cell, repeat, model), strict=True)), "events": int(train.y["event"].sum())}
    row |= {"horizon": times["late"], "followed": share, **measures(test.truth, curves, times)}
    return [row | {"seconds": round(time.process_time() - started, 2)}]


def cells_in(rows: pd.DataFrame) -> list[Cell]:
    found = {Cell(*values) for values in rows[list(Cell._fields)].itertuples(index=False, name=None)}
    return [cell for cell in CELLS if cell in found]


def by_repeat(rows: pd.DataFrame, cell: Cell, column: str) -> pd.DataFrame:
    """Return one column of a design: a row per repeat, a column per model."""
    inside = (rows[list(Cell._fields)] == list(cell)).all(axis=1)
    return rows[inside].pivot(index="repeat", columns="model", values=column)


def times_cox(rows: pd.DataFrame, cell: Cell, model: str) -> tuple[float, pd.Series] | None:
    """Return the mean error of a model as a multiple of CoxPH's, and the multiples repeat by repeat."""
    table = by_repeat(rows, cell, "MAE")
    both = table[[model, REFERENCE]].dropna() if {model, REFERENCE} <= set(table) else table[:0]
    if not len(both):
        return None
    return float(both[model].mean() / both[REFERENCE].mean()), both[model] / both[REFERENCE]


def best_of_others(table: pd.DataFrame) -> tuple[str, float, float] | None:
    """Return the model that is best beside ours, its mean error and ours, over the repeats that both have."""
    pairs = []
    for other in [m for m in table if m != OURS] if OURS in table else []:
        both = table[[OURS, other]].dropna()
        if len(both):
            pairs.append((other, float(both[other].mean()), float(both[OURS].mean())))
    return min(pairs, key=lambda pair: pair[1] - pair[2], default=None)


def criteria(rows: pd.DataFrame) -> list[tuple[str, str, str, str]]:
    """Return what was to be reached, what was found and whether it was reached."""
    out = []
    cells = cells_in(rows)
    for n in (300, 1000):
        found = [times_cox(rows, cell, OURS) for cell in cells if (cell.hazards, cell.n) == (PROPORTIONAL, n)]
        means = [one[0] for one in found if one is not None]
        goal = f"at most {MOST_TIMES_COX:g} in every design"
        text = f"{np.mean(means):.2f} on average, {max(means):.2f} at most" if means else "not run yet"
        out.append((f"MAE / MAE of CoxPH, proportional hazards, n = {n:,}", goal, text, _within(means, MOST_TIMES_COX)))
    gaps = [best_of_others(by_repeat(rows, cell, "MAE")) for cell in cells if cell.hazards != PROPORTIONAL]
    lowest = [ours <= other for _, other, ours in (gap for gap in gaps if gap is not None)]
    out.append(_counted("MAE, other hazards", "lowest of all models", lowest))
    low, high = SLOPES
    inside = {}
    for model in (OURS, REFERENCE):
        means = [by_repeat(rows, cell, "slope").get(model, pd.Series(dtype=float)).mean() for cell in cells]
        inside[model] = [low <= one <= high for one in means if one == one]
    what, goal, text, reached = _counted("slope at the last horizon", f"{low:g} to {high:g}", inside[OURS])
    beside = f" ({REFERENCE}: {sum(inside[REFERENCE])} of {len(inside[REFERENCE])})" if inside[REFERENCE] else ""
    out.append((what, goal, text + beside, reached))
    return out


def _within(values: list[float], most: float) -> str:
    return "–" if not values else "yes" if max(values) <= most else "no"


def _counted(what: str, goal: str, reached: list[bool]) -> tuple[str, str, str, str]:
    text = f"in {sum(reached)} of {len(reached)} designs" if reached else "not run yet"
    return what, goal, text, "–" if not reached else "yes" if all(reached) else "no"


def _with_range(value: float, values: pd.Series) -> str:
    return f"{value:.2f}" if len(values) == 1 else f"{value:.2f} ({values.min():.2f} to {values.max():.2f})"


def page(rows: pd.DataFrame) -> str:
    """Return the page; before anything was run, it says so."""
    lines = ["# Simulated truth", "", "Made by `make truth`; every number is in rows.csv beside this page.", ""]
    if not len(rows):
        return "\n".join([*lines, "Nothing was run yet.", ""])
    cells, models = cells_in(rows), models_in(rows)
    counts = rows.groupby("model")["repeat"].nunique()
    repeats = ", ".join(f"{model} {counts[model]}" for model in models)
    lines += [
        f"Cohorts of `dcsurv.datasets.simulate`, six features; curves of {TEST_PATIENTS:,} new patients against their "
        f"true ones at {N_TIMES} times, evenly up to the last usable horizon: the 95 % quantile of the event times "
        f"that are observed, to which at least {rows['followed'].min():.0%} of the patients could be followed. "
        f"Repeats: {repeats}. Means over the repeats; their range in brackets. The rows with 85 % censored are 150 "
        "events of 1,000.",
        "",
        "## Goals",
        "",
        *markdown(["what", "goal", f"found for `{OURS}`", "reached"], criteria(rows)),
        "## Mean absolute error of S",
        "",
    ]
    design = ["hazards", "patients", "censoring", "censored"]
    table = []
    for cell in cells:
        errors = by_repeat(rows, cell, "MAE")
        means = {model: float(errors[model].mean()) for model in models if model in errors}
        lowest = min(means, key=means.__getitem__)
        numbers = [f"{means[m]:.4f}" if m in means else "–" for m in models]
        table.append([str(cell), *(f"**{x}**" if m == lowest else x for m, x in zip(models, numbers, strict=True))])
    lines += markdown([*design, *models], table)
    lines += [
        "Bold: the lowest mean; the goal is judged on the repeats that both models have.",
        "",
        "## Proportional hazards: error as a multiple of CoxPH's",
        "",
    ]
    others = [model for model in models if model != REFERENCE]
    table = [
        [str(cell), *("–" if found is None else _with_range(*found) for found in multiples)]
        for cell in cells
        if cell.hazards == PROPORTIONAL
        for multiples in [[times_cox(rows, cell, model) for model in others]]
    ]
    lines += markdown([*design, *others], table)
    lines += [
        "## Slopes of the truth on the prediction",
        "",
        "At the last horizon, over patients: the regression of the true S on the predicted S. Above 1: predictions "
        "differ too little between patients; below 1: too much. In square brackets the same on the complementary "
        f"log-log scale, S kept between {CLIPPED:g} and {1 - CLIPPED:g}; the goal is about the plain slope, which "
        "needs no such bounds.",
        "",
    ]
    table = []
    for cell in cells:
        plain, log = by_repeat(rows, cell, "slope"), by_repeat(rows, cell, "cloglog slope")
        texts = [
            f"{_with_range(plain[m].mean(), plain[m].dropna())} [{log[m].mean():.2f}]" if m in plain else "–"
            for m in models
        ]
        table.append([str(cell), *texts])
    lines += markdown([*design, *models], table)
    for by, told in {
        "predicted": "whom the model gives the lowest and the highest risk at that time",
        "true": "who have the lowest and the highest risk at that time. A model that is right on average for "
        "whom it calls low is not for these",
    }.items():
        lines += [f"## Bias of S in the extreme tenths by {by} risk", ""]
        lines += [f"Predicted minus true S, mean of the tenth of the patients {told}.", ""]
        shown = [f"{name}, {who} {by} risk" for who in ("lowest", "highest") for name in QUANTILES]
        table = []
        for cell in cells:
            for model in [m for m in (OURS, REFERENCE) if m in models]:
                found = [by_repeat(rows, cell, column) for column in shown]
                if model in found[0]:
                    table.append([str(cell), model, *(f"{one[model].mean():+.3f}" for one in found)])
        heads = [f"{who}, {name}" for who in ("lowest", "highest") for name in QUANTILES]
        lines += markdown([*design, "model", *heads], table)
    lines += ["Early, median, late: the 10 %, 50 % and 95 % quantile of the event times.", ""]
    lines += ["## Bias of the restricted mean", "", "Up to the last horizon, as a share of the true mean.", ""]
    table = []
    for cell in cells:
        bias = by_repeat(rows, cell, "restricted mean bias")
        table.append([str(cell), *(f"{bias[m].mean():+.1%}" if m in bias else "–" for m in models)])
    lines += markdown([*design, *models], table)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--model", action="append", help=f"may be repeated; default: {OURS} and {REFERENCE}")
    parser.add_argument("--output", type=Path, default=OUT)
    options = parser.parse_args()
    rows = Rows(options.output / "rows.csv", IDENTITY)
    tasks = [
        (*cell, repeat, model)
        for repeat in range(options.repeats)
        for cell in CELLS
        for model in options.model or [OURS, REFERENCE]
    ]
    run_missing(rows, tasks, one, options.workers)
    rows.sort()
    rows.write()
    (options.output / "README.md").write_text(page(rows.frame), encoding="utf-8")
    for what, goal, found, reached in criteria(rows.frame):
        print(f"{what}: {goal}; {found}; reached: {reached}")


if __name__ == "__main__":
    main()
