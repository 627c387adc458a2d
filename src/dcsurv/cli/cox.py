"""What ``dcsurv info`` shows of a Cox model: hazard ratios, their errors, and whether hazards are proportional."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dcsurv.cli.shell import Shell
from dcsurv.cli.tables import add, plain_table, show_table
from dcsurv.models import CoxPH
from dcsurv.models.cox_summary import describe_test, p_text, ratio_text

_SHOWN_ROWS = 40


def show_hazard_ratios(shell: Shell, model: CoxPH) -> None:
    """Show a row per column of the model, and what to know about it."""
    summary, tests = model.summary_, model.proportional_hazards_
    table = plain_table("feature", "ratio", "95 % interval", "p", "PH test p", right=(1, 2, 3, 4))
    before = None
    for _, row in summary.head(_SHOWN_ROWS).iterrows():
        feature = row["feature"]
        level = "" if pd.isna(row["level"]) else f": {row['level']} vs {row['reference']}"
        ratio, interval = ratio_text(row["hazard_ratio"], row["lower"], row["upper"])
        # All levels of a category are tested together.
        tested = "" if feature == before else p_text(tests.loc[feature, "p"])
        add(table, f"{feature}{level}", ratio, interval, p_text(row["p"]), tested)
        before = feature
    show_table(shell, "Hazard ratios per unit of the feature", table)
    if len(summary) > _SHOWN_ROWS:
        shell.say(f"  and {len(summary) - _SHOWN_ROWS} more; --json lists all.")
    shell.show()
    for text in (describe_test(tests), *model.remarks_):
        shell.show(text[:1].upper() + text[1:], style="dim", markup=False)


def hazard_ratios_as_data(model: CoxPH) -> dict[str, Any]:
    """Return the same, all of it, as plain data."""
    return {
        "hazard_ratios": model.summary_.reset_index().to_dict("records"),
        "proportional_hazards": model.proportional_hazards_.reset_index().to_dict("records"),
        "remarks": model.remarks_,
    }
