"""Every p-value and interval that ``evaluate``, the command line and the report print, and which rows answer for it.

Kept as data, so that ``tests/test_simulation.py`` can compare it with what is printed: a number that is missing here
fails a test, and so does one that the study has no rows of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pandas as pd

# Part of the study and name in its rows; a text where another study, or nothing, answers, and why.
Answer = tuple[str, str] | str

_LEAF = re.compile(r"(.*_)?(p|p_value|lower|low|interval|band)$")  # an upper limit has a lower one beside it
# Rows of tables are told apart by these.
_NAMES = ("metric",)


def limits_in(numbers: Any, path: str = "") -> Iterator[str]:
    """Yield where in nested plain data there are p-values and limits that are not empty, rows of a list as one."""
    if isinstance(numbers, dict):
        name = "".join(f"/{_brief(numbers[key])}" for key in _NAMES if key in numbers)
        for key, value in numbers.items():
            here = f"{path}{name}/{key}"
            if _LEAF.match(str(key)):
                if value is not None and value == value:  # NaN is not printed
                    yield here.lstrip("/")
            else:
                yield from limits_in(value, f"{path}{name}/{key}")
    elif isinstance(numbers, list | tuple):
        for one in numbers:
            yield from limits_in(one, path)


def _brief(metric: str) -> str:
    """Return a metric without the horizon that the report adds to its name."""
    return metric.partition(" at ")[0]


def limits_of(table: pd.DataFrame) -> set[tuple[str, str]]:
    """Return which metrics of a table of ``evaluate`` have a p-value and which an interval."""
    kinds = {"p_value": "p", "lower": "interval"}
    return {
        (metric, kind)
        for column, kind in kinds.items()
        if column in table
        for metric in table.loc[table[column].notna(), "metric"]
    }
