"""Patients with known outcomes for a model that is there already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dcsurv.cli import options as o
from dcsurv.cli.shell import Shell, note
from dcsurv.cli.words import option
from dcsurv.cohort import Cohort, read_cohort_for
from dcsurv.messages import plural


def read_patients(
    shell: Shell, data: Path, fitted: Any, outcome: o.OtherOutcomeOptions, reading: o.ReadingOptions
) -> Cohort:
    """Read patients for a model, and say what was not as expected."""
    from dcsurv.preprocessing.ranges import RANGES_UNKNOWN

    cohort, odd = read_cohort_for(
        fitted, data, time=outcome.time, event=outcome.event, event_values=outcome.event_value or (),
        start=outcome.start, date_format=outcome.date_format, **reading.as_parameters(),
    )  # fmt: skip
    for text in (*cohort.notes, *(one.describe() for one in odd)):
        note(text)
    outside = fitted.look_outside(cohort.features)
    for text in [RANGES_UNKNOWN] if outside is None else outside.counts.describe():
        note(text)
    if cohort.incomplete:
        left_out = "is left out" if cohort.incomplete == 1 else "are left out"
        note(f"{plural(cohort.incomplete, 'row')} without a time or an event {left_out}.")
    coding = cohort.outcome.coding.describe().say(option)
    shell.say(f"{cohort.name}: {plural(len(cohort), 'patient')}; event {cohort.outcome.event!r}: {coding}")
    return cohort
