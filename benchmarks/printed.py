"""Every p-value and interval that ``evaluate``, ``compare``, ``info`` and the report print, and what answers for it.

Kept as data, so that ``tests/test_simulation.py`` can compare it with what is printed: a number that is missing here
fails a test, and so does one that the study has no rows of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pandas as pd


class Printed(NamedTuple):
    """A number that claims something about chance.

    Attributes
    ----------
    what
        What it is.
    kind
        ``"p"`` or ``"interval"``.
    rows
        Part of the study and name in its rows; none where ``instead`` says why.
    where
        A metric of evaluate or compare, a path in the numbers of the report or of ``dcsurv info --json``, a figure.
    instead
        Why the study has no rows of it.
    """

    what: str
    kind: str
    rows: tuple[str, str] | None
    where: tuple[str, ...]
    instead: str = ""


BANDS = "[its own study](../bands/README.md)"
PRINTED = [
    Printed("C-td", "interval", ("evaluate", "C-td"), ("evaluate: C-td", "report: discrimination/metrics/C-td/lower")),
]

_LEAF = re.compile(r"(.*_)?(p|p_value|p_corrected|lower|low|interval|band)$")  # upper limits stand beside lower ones
# Rows of tables are told apart by these.
_NAMES = ("metric",)


def limits_in(numbers: Any, path: str = "") -> Iterator[str]:
    """Yield where in nested plain data there are p-values and limits that are not empty, rows of a list as one."""
    if isinstance(numbers, dict):
        name = "".join(f"/{_brief(numbers[key])}" for key in _NAMES if key in numbers)
        for key, value in numbers.items():
            here = f"{path}{name}/{key}"
            if not _LEAF.match(str(key)):
                yield from limits_in(value, here)
            elif value is not None and value == value:  # NaN is not printed
                yield here.lstrip("/")
    elif isinstance(numbers, list | tuple):
        for one in numbers:
            yield from limits_in(one, path)


def _brief(metric: str) -> str:
    """Return a metric without the horizon that the report adds to its name."""
    return metric.partition(" at ")[0]


def limits_of(table: pd.DataFrame) -> set[str]:
    """Return which metrics of a table of ``evaluate`` or ``compare`` have a p-value or an interval."""
    columns = [name for name in ("p_value", "lower") if name in table]
    return set(table.loc[table[columns].notna().any(axis=1), "metric"])
