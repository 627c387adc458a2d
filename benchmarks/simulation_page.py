"""The page of the simulation study: goals, sizes, power, coverage and bias, each with its Monte Carlo error."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from population import HIGH, HORIZONS, NOISE, TRUTH, Cell
from printed import PRINTED
from studies import markdown

# Limits, set before the runs. That two Monte Carlo errors are allowed was decided after CoxPH's rows had been seen.
SIZES, LEAST_COVERAGE, NOMINAL, LEAST_POWER = (0.02, 0.08), 0.92, 0.95, 0.8
MOST_CALLED_HELPFUL = 0.05
DESIGN = ["hazards", "patients", "censoring", "censored"]
KEYS = ["part", *Cell._fields, "model", "what", "at", "kind"]
BY_HORIZON = list(HORIZONS)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per number and design: share of hits with its Monte Carlo error, bias with its own."""
    rows = rows.assign(at=rows["at"].fillna(""), model=rows["model"].fillna(""))
    rows["total"], rows["second"] = (
        rows["value"] * rows["numbers"],
        rows["squares"] + rows["numbers"] * rows["value"] ** 2,
    )
    grouped = rows.groupby(KEYS, sort=False)
    out = grouped[["repeats", "numbers", "hits", "outside", "total", "second"]].sum()
    out["target"] = grouped["target"].mean()
    out = out.reset_index()
    out["share"] = out["hits"] / out["numbers"]
    out["value"] = out["total"] / out["numbers"]
    spread = np.maximum(out["second"] / out["numbers"] - out["value"] ** 2, 0)
    out["error"] = np.where(
        out["kind"] == "value",
        np.sqrt(spread / np.maximum(out["repeats"] - 1, 1)),
        np.sqrt(np.maximum(out["share"] * (1 - out["share"]), 1e-12) / out["repeats"]),
    )
    out["bias"] = out["value"] - out["target"]
    out["cell"] = [Cell(*values) for values in out[list(Cell._fields)].itertuples(index=False, name=None)]
    return out


def under_null(found: pd.DataFrame) -> pd.DataFrame:
    """Return the p-values whose null hypothesis is true."""
    p = found[found["kind"] == "p"]
    perfect = p["model"].isin([TRUTH, "CoxPH", ""]) & ~p["what"].str.endswith("where they are not")
    # Censoring depends on nothing in the others; at the end of a study all are censored, and there is nothing to test.
    loose = ~p["design"].isin(["risk", "staggered", "administrative"]) | ~p["what"].str.startswith("censoring by")
    return p[perfect & loose]


def criteria(rows: pd.DataFrame) -> list[tuple[str, str, str, str]]:
    """Return what was to hold, what was found and whether it holds, chance of the study itself put aside."""
    if not len(rows):
        return []
    found = summary(rows)
    p, intervals = found[found["kind"] == "p"], found[found["kind"] == "interval"]
    sizes = under_null(found)
    low, high = SIZES
    outside = int(intervals["outside"].sum())
    out = [
        _judged("sizes", f"{low:g} to {high:g}", sizes, low, high),
        _judged("coverage", f"at least {LEAST_COVERAGE:g}", intervals, LEAST_COVERAGE, 1.0),
        (
            "intervals that exclude their own estimate",
            "none",
            f"{outside:,} of {intervals['numbers'].sum():,.0f}" if len(intervals) else "not run yet",
            "–" if not len(intervals) else "no" if outside else "yes",
        ),
    ]
    strongest = p[p["model"] == HIGH].sort_values("share").groupby("cell").tail(1)
    what = f"power against {HIGH}, the strongest test"
    out.append(_judged(what, f"at least {LEAST_POWER:g}", strongest, LEAST_POWER, 1.0))
    called = found[(found["kind"] == "called") & (found["model"] == NOISE)]
    goal = f"in at most {MOST_CALLED_HELPFUL:.0%} of the reports"
    return [*out, _judged("noise called helpful", goal, called, 0.0, MOST_CALLED_HELPFUL)]


def _judged(what: str, goal: str, rows: pd.DataFrame, low: float, high: float) -> tuple[str, str, str, str]:
    """Count how many shares lie between two limits, and how many lie so far outside that it is no chance."""
    if not len(rows):
        return what, goal, "not run yet", "–"
    share = rows["share"]
    nearest = share.clip(low, high)
    error = np.sqrt(nearest * (1 - nearest) / rows["repeats"])
    beyond = int(((share - nearest).abs() > 2 * error + 1e-9).sum())
    text = f"{int((share == nearest).sum())} of {len(share)}; {_short(share.min())} to {_short(share.max())}"
    text += f"; {beyond} further outside than two Monte Carlo errors" if (share != nearest).any() else ""
    return what, goal, text, "no" if beyond else "yes"


def cells_in(found: pd.DataFrame) -> list[Cell]:
    return list(dict.fromkeys(found["cell"]))


def share_table(found: pd.DataFrame, whats: Iterable[str]) -> list[str]:
    """Return a row per design and a column per number; early, median and late horizon in one field."""
    whats = [what for what in dict.fromkeys(whats) if what in set(found["what"])]
    lines = []
    for cell in cells_in(found):
        own = found[found["cell"] == cell]
        lines.append([str(cell), f"{own['repeats'].max():.0f}", *(_shares(own[own["what"] == what]) for what in whats)])
    return markdown([*DESIGN, "repeats", *whats], lines)


def _shares(rows: pd.DataFrame) -> str:
    """Return the shares at the horizons; of several features, their range."""
    if not len(rows):
        return "–"
    at = dict(zip(rows["at"], rows["share"], strict=True))
    if set(at) <= {*BY_HORIZON}:
        return " ".join(_short(at[name]) for name in BY_HORIZON if name in at)
    values = rows["share"]
    return _short(values.iloc[0]) if len(values) == 1 else f"{_short(values.min())} to {_short(values.max())}"


def _short(share: float) -> str:
    return f"{share:.3f}".lstrip("0") if share < 1 else "1.00"


def bias_table(found: pd.DataFrame, model: str) -> list[str]:
    """Return a row per metric and a column per design: mean minus the value in an endless cohort."""
    own = found[(found["kind"] == "value") & (found["model"] == model) & (found["part"] == "bias")]
    cells = cells_in(own)
    lines = []
    for (what, at), rows in own.groupby(["what", "at"], sort=False):
        by = {row["cell"]: row for row in rows.to_dict("records")}
        target = rows["target"]
        lines.append(
            [
                what + (f", {at}" if at else ""),
                f"{target.min():.3f}"
                if target.max() - target.min() < 5e-4
                else f"{target.min():.3f} to {target.max():.3f}",
                *(f"{by[cell]['bias']:+.4f} ± {by[cell]['error']:.4f}" if cell in by else "–" for cell in cells),
            ]
        )
    heads = [f"{cell.design}{f' x {cell.strength:g}' if cell.design == 'risk' else ''}" for cell in cells]
    return markdown(["metric", "in an endless cohort", *heads], lines)


def page(rows: pd.DataFrame) -> str:
    """Return the page; before anything was run, it says so."""
    lines = [
        "# Simulated inference",
        "",
        "Made by `make simulation`; every number is in rows.csv beside this page.",
        "",
    ]
    if not len(rows):
        return "\n".join([*lines, "Nothing was run yet.", ""])
    found = summary(rows)
    lines += ["## Goals", "", *markdown(["what", "goal", "found", "reached"], criteria(rows))]
    lines += [
        "Reached: none lies further outside than two Monte Carlo errors. The limits were set before the runs, this "
        "allowance after the rows of CoxPH had been seen; how many lie outside without it is in the table.",
        "",
    ]
    lines += _sizes(found) + _coverage(found) + _called(found) + _biases(found) + _printed(found)
    return "\n".join(lines)


def _sizes(found: pd.DataFrame) -> list[str]:
    null = under_null(found)
    lines = [
        "## Sizes",
        "",
        "How often a p-value is at most 0.05 where the null hypothesis is true. Three numbers in a field are those at "
        "the early, median and late horizon (quartiles of the event times); of the tests of a Cox model, the lowest "
        "and the highest of all features. The Monte Carlo error of a size of 0.05 is "
        f"{_errors(null, 0.05)}.",
        "",
    ]
    for part in dict.fromkeys(null["part"]):
        own = null[null["part"] == part]
        lines += share_table(own, own["what"])
    power = found[(found["kind"] == "p") & ~found.index.isin(null.index) & (found["design"] != "administrative")]
    lines += ["## Power", "", "How often it is where the null hypothesis is wrong.", ""]
    for model, own in power.groupby("model", sort=False):
        whose = {HIGH: f"Hazards {HIGH.split()[-1]} times too high:", "CoxPH": "Effects that change over time:"}
        lines += [whose.get(model, "Censoring that depends on features or risk:"), "", *share_table(own, own["what"])]
    return lines


def _errors(found: pd.DataFrame, share: float) -> str:
    """Return the Monte Carlo error of a share with the fewest and the most repeats."""
    errors = sorted({round(float(np.sqrt(share * (1 - share) / repeats)), 3) for repeats in found["repeats"]})
    return f"{errors[0]:.3f}" if len(errors) == 1 else f"{errors[0]:.3f} to {errors[-1]:.3f}"


def _coverage(found: pd.DataFrame) -> list[str]:
    intervals = found[found["kind"] == "interval"]
    lines = [
        "## Coverage",
        "",
        "How often a 95 % interval holds the value of an endless cohort; three numbers in a field as above. The Monte "
        f"Carlo error of 0.95 is {_errors(intervals, 0.95)}.",
        "",
    ]
    for (part, model), own in intervals.groupby(["part", "model"], sort=False):
        lines += [f"{part.capitalize()}{f', {model}' if model else ''}:", "", *share_table(own, own["what"])]
    return lines


def _called(found: pd.DataFrame) -> list[str]:
    called = found[found["kind"] == "called"]
    lines = ["## Decisions", "", "How often the report says of some threshold at some horizon that a model helps.", ""]
    shown = called.assign(what=called["model"])
    return lines + (share_table(shown, shown["what"]) if len(called) else ["Not run yet.", ""])


def _biases(found: pd.DataFrame) -> list[str]:
    lines = ["## Bias", "", "Mean minus the value in an endless cohort, with its Monte Carlo error.", ""]
    own = found[found["part"] == "bias"]
    for model in dict.fromkeys(own["model"]):
        lines += [f"{model.capitalize()}:", "", *bias_table(found, model)]
    return lines


def _printed(found: pd.DataFrame) -> list[str]:
    """Return the inventory of what is printed, each with the range over designs and horizons."""
    table = []
    for one in PRINTED:
        held = one.instead
        if one.rows is not None:
            rows = found[(found["part"] == one.rows[0]) & (found["what"] == one.rows[1]) & (found["kind"] == one.kind)]
            rows = rows[rows.index.isin(under_null(rows).index)] if one.kind == "p" else rows
            share = rows["share"]
            held = f"{_short(share.min())} to {_short(share.max())}" if len(share) else "not run yet"
        table.append([one.what, {"p": "p-value", "interval": "95 % interval"}[one.kind], ", ".join(one.where), held])
    return [
        "## Printed",
        "",
        "Every p-value and interval that is printed; lowest and highest size, or coverage, over designs and horizons. "
        "A test compares this list with what is printed.",
        "",
        *markdown(["number", "claims", "where", "found"], table),
    ]
