"""Internal-external validation: every centre, or period, is predicted by a model that was fitted to the others."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import t as student

from dcsurv.curves import SurvivalCurves
from dcsurv.messages import Message, plural
from dcsurv.metrics import evaluate
from dcsurv.target import FloatArray, IntArray
from dcsurv.validation.refits import Patients, ValidationError

# With fewer events of its own, a centre only helps to fit.
MIN_EVENTS: Final = 10
# A column of numbers with more different values than this is a date or a year: its fifths are the periods.
_MOST_LABELS, _PERIODS = 20, 5
# Metrics that are ratios are pooled as logarithms.
_RATIOS: Final = ("O/E",)


@dataclass(frozen=True)
class Centre:
    """The patients of one centre or period."""

    name: str
    rows: IntArray
    events: int


def find_centres(by: Any, patients: Patients) -> tuple[list[Centre], list[str]]:
    """Return the centres with enough events, and what is to be said about the others."""
    labels = pd.Series(np.asarray(by)).reset_index(drop=True)
    if len(labels) != len(patients.y):
        raise ValidationError(
            Message(
                "{by} has {labels} labels, but there are {patients} patients.", labels=len(labels),
                patients=len(patients.y),
            ),
            parameter="by",
            remedy="Pass one label per patient.",
        )  # fmt: skip
    if labels.isna().any():
        labels = labels.astype(object).where(labels.notna(), "not known")
    elif pd.api.types.is_numeric_dtype(labels) and labels.nunique() > _MOST_LABELS:
        labels = _periods(labels)
    if labels.nunique() > max(_MOST_LABELS, len(labels) // MIN_EVENTS):
        raise ValidationError(
            Message(
                "{by} has {different} different labels among {patients} patients, too many to be centres.",
                different=labels.nunique(),
                patients=len(labels),
            ),
            parameter="by",
            remedy="Name fewer, larger groups, such as centres or years.",
        )
    found, notes = [], []
    for name, rows in labels.groupby(labels, sort=True).groups.items():
        own = np.asarray(rows, dtype=np.int64)
        events = int(patients.y["event"][own].sum())
        if events < MIN_EVENTS:
            notes.append(f"{name} has {plural(events, 'event')}, too few to validate on; it helps to fit.")
        else:
            found.append(Centre(str(name), own, events))
    if len(found) < 2:
        raise ValidationError(
            Message(
                "{by} has {found} with at least {least} events, but two are needed.",
                found=plural(len(found), "group"), least=MIN_EVENTS,
            ),
            parameter="by",
            remedy="Put small centres together.",
        )  # fmt: skip
    return found, notes


def _periods(values: pd.Series) -> pd.Series:
    """Return fifths of a column of numbers, by name."""
    fifths = pd.qcut(values, _PERIODS, duplicates="drop")
    grouped = values.groupby(fifths, observed=True)
    names = {
        at: f"{low:g} to {high:g}"
        for at, low, high in zip(grouped.min().index, grouped.min(), grouped.max(), strict=True)
    }
    return fifths.astype(object).map(names)


def measure_centre(
    centre: Centre, patients: Patients, curves: SurvivalCurves, n_bootstrap: int, confidence: float, random_state: int
) -> pd.DataFrame:
    """Return the metrics of one centre, at those horizons that its patients allow."""
    y = patients.y[centre.rows]
    follow_up = None if patients.follow_up is None else patients.follow_up.take(centre.rows)
    metrics = list(patients.metrics)
    first, last = float(y["time"][y["event"]].min()), float(np.sort(y["time"])[-MIN_EVENTS])
    horizons = patients.horizons[(patients.horizons >= first) & (patients.horizons < last)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        table = evaluate(
            y,
            curves,
            n_bootstrap=n_bootstrap,
            censoring="marginal" if follow_up is None else follow_up,
            horizons=horizons if len(horizons) else None,
            metrics=metrics if len(horizons) else [metric for metric in metrics if not metric.per_horizon],
            confidence=confidence,
            random_state=random_state,
        )
    table.insert(0, "centre", centre.name)
    table.insert(1, "patients", len(y))
    table.insert(2, "events", centre.events)
    return table


def summarise(table: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """Return each metric over the centres: random-effects mean, heterogeneity, and what a new centre may see."""
    rows = []
    for (metric, horizon), own in table.groupby(["metric", "horizon"], dropna=False, sort=False):
        usable = own[np.isfinite(own["value"]) & np.isfinite(own["sd"]) & (own["sd"] > 0)]
        ratio = metric in _RATIOS
        if ratio:
            usable = usable[usable["value"] > 0]
        if len(usable) < 2:
            continue
        value, sd = (usable[name].to_numpy(np.float64) for name in ("value", "sd"))
        found = random_effects(np.log(value) if ratio else value, sd / value if ratio else sd, confidence)
        back = np.exp if ratio else np.asarray
        shown = {name: float(back(found[name])) for name in ("mean", "lower", "upper", "new_lower", "new_upper")}
        rows.append({"metric": metric, "horizon": horizon, "centres": len(usable), **shown, "i2": found["i2"]})
    return pd.DataFrame(rows)


def random_effects(value: FloatArray, se: FloatArray, confidence: float = 0.95) -> Mapping[str, float]:
    """Return a random-effects mean (DerSimonian and Laird) with Hartung and Knapp's interval.

    Parameters
    ----------
    value
        One estimate per centre.
    se
        Its standard error.
    confidence
        Of the intervals.

    Returns
    -------
    mapping
        ``mean, lower, upper``; ``tau2``, the variance between centres; ``i2``, the share of all variance that it is;
        ``new_lower, new_upper``, within which the true value of another centre is expected (Higgins et al.), NaN with
        fewer than three.
    """
    k, weight = len(value), 1 / se**2
    fixed = np.average(value, weights=weight)
    q = float((weight * (value - fixed) ** 2).sum())
    tau2 = max(0.0, (q - (k - 1)) / (weight.sum() - (weight**2).sum() / weight.sum()))
    full = 1 / (se**2 + tau2)
    mean = float(np.average(value, weights=full))
    variance = float((full * (value - mean) ** 2).sum() / ((k - 1) * full.sum()))
    # Never narrower than without Hartung and Knapp: few centres may agree by luck.
    error = np.sqrt(max(variance, 1 / full.sum()))
    reach = float(student.ppf((1 + confidence) / 2, k - 1)) * error
    new = np.nan
    if k > 2:
        new = float(student.ppf((1 + confidence) / 2, k - 2) * np.sqrt(tau2 + error**2))
    i2 = max(0.0, (q - (k - 1)) / q) if q > 0 else 0.0
    return {"mean": mean, "lower": mean - reach, "upper": mean + reach, "tau2": tau2, "i2": i2,
            "new_lower": mean - new, "new_upper": mean + new}  # fmt: skip


def others(n: int, centre: Centre, groups: IntArray | None = None) -> npt.NDArray[np.int64]:
    """Return the rows of everybody else; a patient who was in this centre as well is none of them."""
    inside = centre.rows if groups is None else np.flatnonzero(np.isin(groups, groups[centre.rows]))
    return np.setdiff1d(np.arange(n), inside)
