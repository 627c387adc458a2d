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


PRINTED = [
    *(
        Printed(name, "interval", ("evaluate", name), (f"evaluate: {name}", *where))
        for name, *where in (
            ("C-td", "report: discrimination/metrics/C-td/lower"),
            ("CDAUC", "report: discrimination/metrics/CDAUC/lower"),
            ("IBS", "report: error/metrics/IBS/lower"),
            ("O/E", "report: calibration/horizons/ratio_interval"),
            ("Calibration intercept", "report: calibration/horizons/intercept_interval"),
            ("Calibration slope", "report: calibration/horizons/slope_interval"),
        )
    ),
    *(
        Printed(name, "p", ("sizes", name), (f"evaluate: {name}", where))
        for name, where in (
            ("ICI", "report: calibration/horizons/ici_null/p_value"),
            ("E50", "report: calibration/horizons/e50_null/p_value"),
            ("E90", "report: calibration/horizons/e90_null/p_value"),
            ("DDC", "report: distribution/d_calibration/p_value"),
        )
    ),
    Printed("calibration, corrected", "p", ("together", "calibration, corrected"), ("report: summary/trust/p",)),
    Printed("censoring by features", "p", ("sizes", "censoring by features"), ("info: follow_up/p_value",)),
    Printed(
        "censoring by predicted risk",
        "p",
        ("sizes", "censoring by predicted risk"),
        ("report: follow-up/censoring/risk/p_value",),
    ),
    *(
        Printed(f"{name}, difference between models", "interval", ("differences", f"{name} difference"), where)
        for name, *where in (
            ("C-td", "compare: C-td", "report: discrimination/difference/C-td/lower"),
            ("CDAUC", "compare: CDAUC", "report: discrimination/difference/CDAUC/lower"),
            ("IBS", "compare: IBS", "report: error/difference/IBS/lower"),
            ("O/E", "compare: O/E"),
            ("Calibration intercept", "compare: Calibration intercept"),
            ("Calibration slope", "compare: Calibration slope"),
        )
    ),
    Printed("AUC over time", "interval", ("over time", "AUC"), ("figure: auc",)),
    Printed("Brier score over time", "interval", ("over time", "Brier"), ("figure: brier",)),
    Printed("calibration curve", "interval", ("curve", "calibration curve"), ("figure: calibration",)),
    Printed(
        "Harrell’s C", "interval", ("report", "Harrell’s C"), ("report: discrimination/metrics/Harrell’s C/lower",)
    ),
    Printed("Uno’s C", "interval", ("report", "Uno’s C"), ("report: discrimination/metrics/Uno’s C/lower",)),
    Printed(
        "Kaplan-Meier survival",
        "interval",
        ("report", "Kaplan-Meier"),
        ("report: follow-up/horizons/lower", "figure: follow-up"),
    ),
    *(
        Printed(f"{name} in a group", "interval", ("report", f"{name} in groups"), where)
        for name, *where in (
            ("C-td", "report: subgroups/groups/c_td_lower", "figure: subgroups-c-td"),
            ("O/E", "report: subgroups/groups/ratio_lower", "figure: subgroups-o-e"),
        )
    ),
    *(
        Printed(
            f"{name} of a group against the others",
            kind,
            ("report", f"{name} of groups"),
            (f"report: subgroups/differences/{name}/{key}",),
        )
        for name in ("C-td", "O/E")
        for kind, key in (("interval", "lower"), ("p", "p"))
    ),
    Printed(
        "groups, corrected",
        "p",
        ("report", "groups, corrected"),
        ("report: subgroups/differences/C-td/p_corrected", "report: subgroups/differences/O/E/p_corrected"),
    ),
    Printed(
        "hazard ratio of CoxPH",
        "interval",
        ("cox", "hazard ratio"),
        ("info: hazard_ratios/lower", "report: hazards/hazard_ratios/lower", "figure: hazard-ratios"),
    ),
    Printed(
        "coefficient of CoxPH",
        "p",
        ("cox", "coefficient"),
        ("info: hazard_ratios/p", "report: hazards/hazard_ratios/p"),
    ),
    Printed(
        "proportional hazards",
        "p",
        ("cox", "proportional hazards"),
        ("info: proportional_hazards/p", "report: hazards/proportional_hazards/p"),
    ),
    Printed(
        "effects of CoxPH over time", "interval", ("cox", "effect over time"), ("figure: hazard-ratios-over-time",)
    ),
    Printed(
        "net benefit",
        "interval",
        ("decisions", "net benefit"),
        ("report: decisions/net_benefit/lower", "figure: decision"),
    ),
    Printed(
        "net benefit less that of treating all",
        "interval",
        ("decisions", "net benefit - treat all"),
        ("report: decisions/net_benefit/over_all_lower",),
    ),
    Printed("survival of a patient", "interval", None, ("figure: examples",), "see the study of bands and bounds"),
]
# What looks like a limit and claims nothing about chance, and figures without one.
WITHOUT = {
    "report: importance/importance/auc_drop_low": "lowest of the random orders, and said so",
    "report: importance/importance/brier_rise_low": "lowest of the random orders, and said so",
    "figure: importance-auc": "range over the random orders, and said so",
    "figure: importance-brier": "range over the random orders, and said so",
    "figure: d-calibration": "no interval",
    "figure: beeswarm": "no interval",
    "figure: why": "no interval",
    "figure: nomogram": "no interval",
}

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
