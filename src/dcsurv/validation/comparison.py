"""A model against a reference on the same folds, and what follows from it in plain words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import t as student

from dcsurv.validation.estimates import Pooled
from dcsurv.validation.refits import Patients


@dataclass(frozen=True)
class Verdict:
    """What the comparison with the reference comes to.

    Attributes
    ----------
    text : str
        ``"keep CoxPH"``, ``"no clear difference"`` or who is better in what.
    better : tuple of str
        The metrics in which the model is clearly better.
    worse : tuple of str
        Those in which the reference is.
    rests_on : str
        The numbers behind it, in a few sentences.

    Examples
    --------
    >>> from dcsurv.validation import Verdict
    >>> print(Verdict("keep CoxPH", (), ("C-td",), "C-td 0.640 against 0.661."))
    keep CoxPH
    """

    text: str
    better: tuple[str, ...]
    worse: tuple[str, ...]
    rests_on: str

    def __str__(self) -> str:
        return self.text


def compared(own: Pooled, other: Pooled, confidence: float) -> pd.DataFrame:
    """Return paired differences between two models that were fitted to, and predict, the same folds.

    Parameters
    ----------
    own, other
        The out-of-fold predictions of the model and of the reference.
    confidence
        Of the intervals; those of the metrics that decide hold together.

    Returns
    -------
    DataFrame
        ``metric, horizon, value, reference_value, difference, se, lower, upper, decides``; an interval for
        discrimination and error.

    Notes
    -----
    The folds of a cross-validation share most of their training patients, so that differences in J folds are no J
    independent numbers. Nadeau and Bengio (2003) make up for it: the variance of the mean is (1/J + test / training)
    times that between the folds, and the interval Student's with J - 1 degrees of freedom.
    """
    records = {metric.name: metric for metric in own.patients.metrics}
    mine, theirs = own.by_fold(), other.by_fold()
    means = {
        key: (float(values.mean()), float(other.values[key].mean()))
        for key, values in own.values.items()
        if key in other.values
    }
    gaps = {
        key: (mine[key] - theirs[key])[np.isfinite(mine[key] - theirs[key])]
        for key in means
        if key in mine and key in theirs and records[key[0]].better != "one"
    }
    # What is undefined has no interval, and must not widen those of the others.
    deciding = [
        key
        for key, known in gaps.items()
        if records[key[0]].decides and len(known) > 1 and np.isfinite(means[key]).all()
    ]
    together = 1 - (1 - confidence) / max(1, len(deciding))
    rows = []
    for key, (value, against) in means.items():
        se, reach = np.nan, np.nan
        known = gaps.get(key)
        if known is not None and len(known) > 1:
            tested = len(own.folds[0][0]) / len(own.patients.y)
            se = float(np.sqrt((1 / len(known) + tested / (1 - tested)) * known.var(ddof=1)))
            reach = se * float(student.ppf((1 + (together if key in deciding else confidence)) / 2, len(known) - 1))
        rows.append(
            {"metric": key[0], "horizon": np.nan if key[1] is None else key[1], "value": value,
             "reference_value": against, "difference": value - against, "se": se, "lower": value - against - reach,
             "upper": value - against + reach, "decides": key in deciding}
        )  # fmt: skip
    return pd.DataFrame(rows)


def judge(table: pd.DataFrame, patients: Patients, model: str, reference: str, confidence: float) -> Verdict:
    """Say what a comparison comes to."""
    signs = {metric.name: 1 if metric.better == "higher" else -1 for metric in patients.metrics}
    deciding = table[table["decides"]]
    better, worse, numbers = [], [], []
    for row in deciding.to_dict("records"):
        name, limits = row["metric"], (row["lower"], row["upper"])
        low, high = sorted(signs[name] * limit for limit in limits)
        if low > 0:
            better.append(name)
        elif high < 0:
            worse.append(name)
        numbers.append(
            f"{name} {row['value']:.3f} against {row['reference_value']:.3f}, difference {row['difference']:+.3f} "
            f"({limits[0]:+.3f} to {limits[1]:+.3f})"
        )
    if better and worse:
        text = f"{model} is better in {_and(better)}, {reference} in {_and(worse)}"
    elif better:
        text = f"{model} is better in {_and(better)}"
    elif worse:
        text = f"keep {reference}"
    else:
        text = "no clear difference"
    rests_on = (
        f"{model} against {reference}, the same {len(patients.y):,} patients ({int(patients.y['event'].sum()):,} "
        f"events), each predicted out of fold by models that have not seen them: "
    )
    rests_on += (
        f"{'; '.join(numbers)}. In brackets: {confidence:.0%} intervals that hold for all {len(numbers)} together."
        if numbers
        else "no metric that decides is defined in both."
    )
    if not better:
        rests_on += f" {reference} is the simpler model, so without a clear gain there is no reason to leave it."
    return Verdict(text, tuple(better), tuple(worse), rests_on)


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
