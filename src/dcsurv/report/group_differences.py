"""Whether a group of patients differs from the others: bootstrap variances of two groups that share nobody."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

_Z = 1.959963984540054  # of a 95 % interval
_COLUMNS = ("column", "group", "metric", "difference", "ratio", "lower", "upper", "p", "p_corrected")


def group_differences(groups: pd.DataFrame) -> pd.DataFrame:
    """Compare every group with the others of its feature.

    Parameters
    ----------
    groups : DataFrame
        One row per group: ``c_td``, ``ratio`` and their standard deviations ``sd_c_td`` and ``sd_ratio``; the same of
        the other groups together with ``others_`` before the names. NaN where there is nothing to compare.

    Returns
    -------
    DataFrame
        One row per comparison that could be made: the difference of C-td, or the ratio of O/E, with a 95 % interval,
        ``p``, and ``p_corrected`` for all rows (Holm).
    """
    rows: list[dict[str, Any]] = []
    for row in groups.to_dict("records"):
        named = {"column": row["column"], "group": row["group"]}
        own, spread, other, others_spread = _measured(row, "c_td")
        gap, error = own - other, math.hypot(spread, others_spread)
        if error > 0 and math.isfinite(gap):
            ends = {"lower": gap - _Z * error, "upper": gap + _Z * error}
            rows.append(named | {"metric": "C-td", "difference": gap, **ends, "p": two_sided(gap / error)})
        own, spread, other, others_spread = _measured(row, "ratio")
        if own > 0 and other > 0:
            gap, error = math.log(own / other), math.hypot(spread / own, others_spread / other)
            if error > 0:
                ends = {"lower": math.exp(gap - _Z * error), "upper": math.exp(gap + _Z * error)}
                rows.append(named | {"metric": "O/E", "ratio": own / other, **ends, "p": two_sided(gap / error)})
    table = pd.DataFrame(rows).reindex(columns=_COLUMNS)
    table["p_corrected"] = holm(table["p"].tolist())
    return table


def holm(p: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number by Holm's procedure, in their order."""
    corrected, largest = [0.0] * len(p), 0.0
    for place, k in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - place) * p[k]))
        corrected[k] = largest
    return corrected


def _measured(row: dict[Any, Any], name: str) -> list[float]:
    """Return a value and its standard deviation, of the group and of the others; NaN for what is not there."""
    keys = (name, f"sd_{name}", f"others_{name}", f"others_sd_{name}")
    return [float("nan") if row.get(key) is None else float(row[key]) for key in keys]


def two_sided(z: float) -> float:
    """Return the p-value of a standard normal number."""
    return math.erfc(abs(z) / math.sqrt(2))
