"""How often the bands of S(t | x) and the bounds of the time hold the truth, in simulated cohorts.

The default model is fitted to cohorts of the designs of ``benchmarks/truth.py`` and of some whose censoring follows
the features. On new patients of each, the share whose true S lies in the 90 % band is counted at quantiles of the event
times, and the probability that the time lies beyond its lower bound. The one constant of the bands was chosen on the
first two cohorts of the designs ``CHOSEN_ON``; what is examined is everything else. Writes the rows and the page of
``docs/results/bands``. Rows that are there already are not computed again.

    python benchmarks/bands.py [--workers 2] [--repeats 3] [--bootstrap 1]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import truth
from dcsurv.calibration.bands import NUMBERS_PER_TIME
from dcsurv.kinds import make_model
from dcsurv.models.bands import band_around
from dcsurv.training import one_thread
from studies import RESULTS, Rows, markdown, run_missing
from truth import PROPORTIONAL, Cell, draw

OUT = RESULTS / "bands"
IDENTITY = [*Cell._fields, "repeat", "bands"]
LEVEL = 0.9
QUANTILES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
CONFIDENCES = (0.8, 0.9, 0.95)
TEST_PATIENTS = 500
REFERENCE_PATIENTS = 20_000
# Censoring that follows the features: lost by risk, by the year of enrolment, by the centre.
BY_FEATURES = [
    Cell(PROPORTIONAL, 1000, "risk", 0.5),
    Cell("non-linear", 1000, "risk", 0.5),
    Cell(PROPORTIONAL, 1000, "staggered", 0.5),
    Cell("log-normal", 1000, "staggered", 0.6),
    Cell("log-normal", 1000, "centre", 0.6),
]
CHOSEN_ON = [truth.CELLS[k] for k in (0, 3, 5, 9, 11, 14, 16)]
CHOSEN_BEFORE = 2
NUMBERS = (0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0)
# Resampling costs as much as so many fits more: it is studied on few designs.
REFITS = 10
BOOTSTRAPPED = [truth.CELLS[k] for k in (0, 8, 11, 15)]
# Goals, set before the runs.
LEAST_MEAN, LEAST_AT_A_TIME = 0.87, 0.75


def cells() -> list[Cell]:
    """Return all designs."""
    return [*truth.CELLS, *BY_FEATURES]


def chosen_on(cell: Cell, repeat: int) -> bool:
    """Return whether the constant was chosen on a cohort."""
    return cell in CHOSEN_ON and repeat < CHOSEN_BEFORE


def held(truth_: np.ndarray, band: Any) -> np.ndarray:
    """Return the share of the patients whose true survival a band holds, at each time."""
    inside: np.ndarray = ((band.lower <= truth_) & (truth_ <= band.upper)).mean(axis=0)
    return inside


def of_bands(model: Any, X: Any, curves: Any, times: np.ndarray, choose: bool) -> Iterator[dict[str, Any]]:
    """Yield coverage and mean width of the bands at each time; also for other constants where one is to be chosen."""
    true = curves.evaluate(times)
    bands = {"band": model.predict_band(X, times, level=LEVEL)}
    if choose:
        sources = model.band_sources(model.prepare(X))
        relative, absolute = (reach(times, LEVEL) for reach in (sources.relative_reach, sources.absolute_reach))
        for numbers in NUMBERS:
            scaled = absolute * np.sqrt(numbers / NUMBERS_PER_TIME)
            bands[f"band, c = {numbers:g}"] = band_around(times, bands["band"].survival, relative, scaled)
    for what, band in bands.items():
        width = (band.upper - band.lower).mean(axis=0)
        for at, share, size in zip(QUANTILES, held(true, band), width, strict=True):
            yield {"what": what, "at": at, "coverage": share, "size": size}


def of_intervals(model: Any, X: Any, curves: Any) -> Iterator[dict[str, Any]]:
    """Yield the probability of a time inside the bounds; as size, the bound as a multiple of the curve's quantile."""
    predicted = model.predict_survival_function(X)
    for confidence in CONFIDENCES:
        end = model.time_bounds_.until.max()
        plain = np.nan_to_num(predicted.quantile(1 - confidence), nan=end)
        lower, _ = model.predict_interval(X, confidence)
        both = model.predict_interval(X, confidence, side="both")
        above = np.where(np.isinf(both.upper), 0.0, curves.at_own(np.minimum(both.upper, curves.times[-1])))
        yield {"what": "lower bound", "at": confidence, "coverage": curves.at_own(lower).mean(),
               "size": np.median(lower) / np.median(plain)}  # fmt: skip
        yield {"what": "quantile of the curve", "at": confidence, "coverage": curves.at_own(plain).mean(), "size": 1.0}
        yield {"what": "both bounds", "at": confidence, "coverage": (curves.at_own(both.lower) - above).mean(),
               "size": np.isfinite(both.upper).mean()}  # fmt: skip


def run(hazards: str, n: int, design: str, censored: float, repeat: int, bands: str) -> list[dict[str, Any]]:
    """Fit the default to one cohort and look where the truth about new patients lies."""
    cell = Cell(hazards, n, design, censored)
    reference = draw(cell, REFERENCE_PATIENTS, "horizons")
    times = np.quantile(reference.y["time"][reference.y["event"]], QUANTILES)
    unused = [] if design == "staggered" else ["enrolled"]
    train, test = draw(cell, n, f"train {repeat}"), draw(cell, TEST_PATIENTS, f"new {repeat}")
    new = test.X.drop(columns=unused)
    settings = {} if bands == "folds" else {"bands": bands, "n_refits": REFITS}
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make_model("calibrated").set_params(random_state=repeat, **settings)
        model.fit(train.X.drop(columns=unused), train.y)
        rows = [*of_bands(model, new, test.truth, times, chosen_on(cell, repeat))]
        if bands == "folds":
            rows += of_intervals(model, new, test.truth)
    identity = dict(zip(IDENTITY, (*cell, repeat, bands), strict=True))
    return [{**identity, "events": int(train.y["event"].sum()), **row} for row in rows]


def tasks(repeats: int, bootstrap: int) -> list[tuple[Any, ...]]:
    """Return what is run: cohorts of all designs, and refits on some of those that nothing was chosen on."""
    folds = [(*cell, repeat, "folds") for repeat in range(repeats) for cell in sorted(cells(), key=lambda cell: cell.n)]
    seeds = range(CHOSEN_BEFORE, CHOSEN_BEFORE + bootstrap)
    return [*folds, *((*cell, repeat, "bootstrap") for repeat in seeds for cell in BOOTSTRAPPED)]


def by_cell(rows: pd.DataFrame, column: str = "coverage") -> pd.DataFrame:
    """Return the mean over the repeats of each design, a column per time or confidence."""
    return rows.groupby([*Cell._fields, "at"])[column].mean().unstack("at")


def ordered(table: pd.DataFrame) -> list[tuple[Cell, pd.Series]]:
    found = {Cell(*key): row for key, row in table.iterrows()}
    return [(cell, found[cell]) for cell in cells() if cell in found]


def of(rows: pd.DataFrame, what: str, bands: str = "folds", *, examined: bool = True) -> pd.DataFrame:
    """Return the rows of one kind of band or bound."""
    wanted = rows[(rows["what"] == what) & (rows["bands"] == bands)]
    keys = wanted[[*Cell._fields, "repeat"]].itertuples(index=False, name=None)
    used = np.array([chosen_on(Cell(*cell), repeat) for *cell, repeat in keys], dtype=bool)
    return wanted[used != examined]


def goals(rows: pd.DataFrame) -> list[tuple[str, str, str, str]]:
    """Return what was to be reached, what was found and whether it was reached."""
    found = by_cell(of(rows, "band"))
    keys = [Cell(*key) for key in found.index]
    designs = found[[key in truth.CELLS for key in keys]]
    fresh = found[[key in truth.CELLS and key not in CHOSEN_ON for key in keys]]
    others = found[[key not in truth.CELLS for key in keys]]
    return [
        _goal("90 % bands, mean coverage", LEAST_MEAN, designs.stack().mean()),
        _goal("the same, designs that nothing was chosen on", LEAST_MEAN, fresh.stack().mean()),
        _goal("lowest mean over the designs at any time", LEAST_AT_A_TIME, designs.mean(axis=0).min()),
        _goal("lowest of any design at any time", LEAST_AT_A_TIME, designs.stack().min()),
        _goal("censoring that follows the features, mean coverage", LEAST_MEAN, others.stack().mean()),
        _goal("the same, lowest of any design at any time", LEAST_AT_A_TIME, others.stack().min()),
    ]


def _cohorts(rows: pd.DataFrame) -> int:
    return len(rows[[*Cell._fields, "repeat"]].drop_duplicates())


def _goal(what: str, goal: float, found: float) -> tuple[str, str, str, str]:
    if np.isnan(found):
        return what, f"at least {goal:.2f}", "not run yet", "–"
    return what, f"at least {goal:.2f}", f"{found:.3f}", "yes" if found >= goal else "no"


def page(rows: pd.DataFrame) -> str:
    """Return the page; before anything was run, it says so."""
    lines = ["# Bands and bounds", "", "Made by `make bands`; every number is in rows.csv beside this page.", ""]
    if not len(rows):
        return "\n".join([*lines, "Nothing was run yet.", ""])
    examined = of(rows, "band")
    lines += [
        f"The default model, fitted to cohorts of `dcsurv.datasets.simulate`, and the truth about {TEST_PATIENTS} new "
        f"patients of each. {len(by_cell(examined))} designs, {_cohorts(examined)} cohorts in all, none of "
        "which was used to choose anything. Times are quantiles of the event times that are observed.",
        "",
        "## Goals",
        "",
        *markdown(["what", "goal", "found", "reached"], goals(rows)),
        "## Bands of 90 % by the folds, by design",
        "",
        "Share of the patients whose true S(t | x) the band holds, at each quantile of the event times.",
        "",
    ]
    design = ["hazards", "patients", "censoring", "censored"]
    heads = [f"{at:.0%}" for at in QUANTILES]
    width = by_cell(examined, "size")
    table = [
        [str(cell), *(f"{value:.2f}" for value in row), f"{row.mean():.3f}", f"{width.loc[tuple(cell)].mean():.3f}"]
        for cell, row in ordered(by_cell(examined))
    ]
    means = by_cell(examined).mean(axis=0)
    table.append(["**all** | | | ", *(f"{value:.2f}" for value in means), f"{means.mean():.3f}",
                  f"{width.to_numpy().mean():.3f}"])  # fmt: skip
    lines += markdown([*design, *heads, "mean", "width"], table)
    lines += [*_choice(rows, heads), *_resampled(rows, design, heads), *_bounds(rows, design)]
    return "\n".join(lines)


def _choice(rows: pd.DataFrame, heads: list[str]) -> list[str]:
    """Return the table that the constant was chosen by."""
    table = []
    for numbers in NUMBERS:
        some = of(rows, f"band, c = {numbers:g}", examined=False)
        if len(some):
            found = by_cell(some)
            mark = "**" if numbers == NUMBERS_PER_TIME else ""
            means = [f"{value:.2f}" for value in found.mean(axis=0)]
            lowest = f"{found.to_numpy().min():.2f}"
            table.append([f"{mark}{numbers:g}{mark}", *means, f"{found.to_numpy().mean():.3f}", lowest,
                          f"{by_cell(some, 'size').to_numpy().mean():.3f}"])  # fmt: skip
    if not table:
        return []
    return [
        "## The constant",
        "",
        f"How many numbers a model is taken to learn for each time, chosen on {len(CHOSEN_ON)} designs with "
        f"{CHOSEN_BEFORE} cohorts each, none of which is in the tables above. 0 is the grouped jackknife and the "
        "spread between families alone.",
        "",
        *markdown(["c", *heads, "mean", "lowest of any design at any time", "width"], table),
    ]


def _resampled(rows: pd.DataFrame, design: list[str], heads: list[str]) -> list[str]:
    """Return the table of bands by bootstrap refits beside those by the folds on the same cohorts."""
    some = of(rows, "band", "bootstrap")
    if not len(some):
        return []
    table = []
    keys = [*Cell._fields, "repeat"]
    same = of(rows, "band").merge(some[keys].drop_duplicates(), on=keys)
    for name, part in {"folds": same, "bootstrap": some}.items():
        width = by_cell(part, "size")
        for cell, row in ordered(by_cell(part)):
            numbers = [f"{row.mean():.3f}", f"{width.loc[tuple(cell)].mean():.3f}"]
            table.append([str(cell), name, *(f"{value:.2f}" for value in row), *numbers])
    return [
        "## Bands by bootstrap refits",
        "",
        f"{REFITS} refits, {_cohorts(some)} cohorts, beside the bands by the folds of the same cohorts.",
        "",
        *markdown([*design, "bands", *heads, "mean", "width"], table),
    ]


def _bounds(rows: pd.DataFrame, design: list[str]) -> list[str]:
    """Return the table of the bounds of the time."""
    lower, plain, both = (by_cell(of(rows, what)) for what in ("lower bound", "quantile of the curve", "both bounds"))
    if not len(lower):
        return []
    finite, size = by_cell(of(rows, "both bounds"), "size"), by_cell(of(rows, "lower bound"), "size")

    def numbers(get: Any) -> list[str]:
        parts = [f"{get(lower)[at]:.3f} ({get(plain)[at]:.3f})" for at in CONFIDENCES]
        return [*parts, f"{get(size)[LEVEL]:.2f}", f"{get(both)[LEVEL]:.3f}", f"{get(finite)[LEVEL]:.0%}"]

    summary = []
    for name, frame in {"lower bound": lower, "quantile of the curve": plain}.items():
        for what, get in {"mean": pd.DataFrame.mean, "lowest of any design": pd.DataFrame.min}.items():
            summary.append([f"{name}, {what}", *(f"{get(frame)[at]:.3f}" for at in CONFIDENCES)])
    table = [[str(cell), *numbers(lambda frame, key=tuple(cell): frame.loc[key])] for cell, _ in ordered(lower)]
    table.append(["**all** | | | ", *numbers(lambda frame: frame.mean(axis=0))])
    heads = [f"lower, {at:.0%}" for at in CONFIDENCES]
    return [
        "## Bounds of the time",
        "",
        "`predict_interval`: the probability that the true time lies beyond its lower bound; in brackets, beyond the "
        "plain quantile of the predicted curve. Then, at 90 %, the median bound as a multiple of that quantile, the "
        "probability between both bounds, and the share of patients with a finite upper one.",
        "",
        *markdown(["bound", *(f"{at:.0%}" for at in CONFIDENCES)], summary),
        *markdown([*design, *heads, "times the quantile", "both, 90%", "finite"], table),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--bootstrap", type=int, default=1, help="cohorts of each design with refits")
    parser.add_argument("--output", type=Path, default=OUT)
    options = parser.parse_args()
    rows = Rows(options.output / "rows.csv", IDENTITY)
    run_missing(rows, tasks(options.repeats, options.bootstrap), run, options.workers)
    rows.sort()
    rows.write()
    (options.output / "README.md").write_text(page(rows.frame), encoding="utf-8")
    for what, goal, found, reached in goals(rows.frame):
        print(f"{what}: {goal}; {found}; reached: {reached}")


if __name__ == "__main__":
    main()
