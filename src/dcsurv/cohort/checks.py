"""What will hurt before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dcsurv.cohort.cohort import Cohort, last_usable_time
from dcsurv.cohort.durations import Horizon, describe_time
from dcsurv.cohort.errors import listed
from dcsurv.cohort.findings import Finding
from dcsurv.cohort.leakage import leaks, one_sided
from dcsurv.grid import TimeGrid
from dcsurv.target import make_outcome

_EVENTS_PER_FEATURE, _EVENTS_PER_BUCKET, _FEW_EVENTS = 10, 5, 50
_MUCH_MISSING = 0.4
# A word in the note of a column that was left out, what it means for several, and what to do.
_LEFT_OUT = {
    "constant-columns": ("is always", "never change", ""),
    "empty-columns": ("has ", "are (nearly) empty", ""),
    "id-columns": ("looks like", "look like identifiers or free text", "Keep one with --categorical or --numeric."),
    "date-columns": ("dates", "hold dates", "Turn them into numbers, such as an age or days since diagnosis."),
}
_ORDER = {"error": 0, "warning": 1, "note": 2}


def check_cohort(cohort: Cohort, horizons: Sequence[Horizon] = ()) -> list[Finding]:
    """Look for what would spoil a model or its evaluation; the worst findings come first.

    Examples
    --------
    >>> findings = check_cohort(read_cohort("patients.csv", time="days", event="died"))  # doctest: +SKIP
    """
    checks: tuple[Callable[[Cohort], Iterator[Finding]], ...] = (
        _times, _events, _rows, _missing, _columns, leaks, one_sided,
    )  # fmt: skip
    found = [finding for check in checks for finding in check(cohort)]
    found += _follow_up(cohort, horizons)
    found += _reach(cohort)
    return sorted(found, key=lambda finding: _ORDER[finding.severity])


def _times(cohort: Cohort) -> Iterator[Finding]:
    name = cohort.outcome.time
    negative, zero = int((cohort.time < 0).sum()), int((cohort.time == 0).sum())
    if negative:
        rows = np.flatnonzero(cohort.time < 0)
        yield Finding(
            "error", "negative-times",
            f"{negative} times in {name!r} are negative (the lowest is {cohort.time.min():g}, the first in patient "
            f"{rows[0] + 1} of those with an outcome).",
            "Correct or remove these rows; often a start and an end date were exchanged.", (name,), {"rows": negative},
        )  # fmt: skip
    if zero:
        yield Finding(
            "warning", "time-zero", f"{zero} patients have time 0, {int((cohort.event & (cohort.time == 0)).sum())} "
            "of them with the event.",
            "They tell a model next to nothing; check whether they belong to the cohort.", (name,), {"rows": zero},
        )  # fmt: skip
    if cohort.incomplete:
        yield Finding(
            "warning", "outcome-missing", f"{cohort.incomplete} rows have no time or no event and are left out.",
            "If they are missing for a reason, results apply to the others only.", numbers={"rows": cohort.incomplete},
        )  # fmt: skip


def _events(cohort: Cohort) -> Iterator[Finding]:
    n, events = len(cohort), cohort.events
    name = cohort.outcome.event
    if n < 2:
        yield Finding("error", "too-few-patients", f"there is {n} patient; a model needs many.", "Add patients.")
    if events == 0:
        yield Finding(
            "error", "no-events", f"no patient has the event: {cohort.outcome.coding.describe()} in {name!r}.",
            "If it is coded otherwise, say so with --event-value.", (name,),
        )  # fmt: skip
        return
    if events == n and n > 1:
        yield Finding(
            "note", "no-censoring", "every patient has the event; none is censored.",
            "Right for complete follow-up; otherwise check --event-value.", (name,),
        )  # fmt: skip
    if events < _FEW_EVENTS:
        yield Finding(
            "warning", "few-events", f"there are {events} events. Networks need some hundred to learn from, and every "
            "interval will be wide.",
            "Prefer --model coxph and few columns.", numbers={"events": events},
        )  # fmt: skip
    n_features = cohort.features.shape[1]
    if n_features and events / n_features < _EVENTS_PER_FEATURE:
        yield Finding(
            "warning", "events-per-feature", f"there are {events / n_features:.1f} events per column ({events} "
            f"events, {n_features} columns); 10 or more are advisable.",
            "Leave out columns that are not needed, with --drop.", numbers={"events_per_feature": events / n_features},
        )  # fmt: skip
    if (cohort.time > 0).any() and n > 1 and events >= _FEW_EVENTS:
        from dcsurv.models import DCS

        default = DCS()
        grid = TimeGrid.make(make_outcome(np.maximum(cohort.time, 0), cohort.event), default.spacing, default.n_nodes)
        buckets = np.bincount(np.minimum(grid.bucket(cohort.time[cohort.event]), grid.size - 1), minlength=grid.size)
        thin = int((buckets < _EVENTS_PER_BUCKET).sum())
        if thin > grid.size / 2:
            yield Finding(
                "warning", "events-per-bucket",
                f"{thin} of the {grid.size} time intervals of the default network have fewer than {_EVENTS_PER_BUCKET} "
                "events.",
                "Use fewer of them, such as --set n_nodes=15, or --model coxph.",
                numbers={"intervals": grid.size, "thin": thin},
            )  # fmt: skip


def _rows(cohort: Cohort) -> Iterator[Finding]:
    if cohort.features.shape[1] == 0:
        return
    whole = cohort.features.assign(**{"\0time": cohort.time, "\0event": cohort.event})
    copies = int(whole.duplicated().sum())
    if copies:
        yield Finding(
            "warning", "duplicate-rows", f"{copies} rows repeat another one in every column that is used, outcome "
            "included.",
            "Patients entered twice end up in the training and in the test part, and flatter the results: remove "
            "copies.",
            numbers={"rows": copies},
        )  # fmt: skip
    ids = [c.name for c in cohort.columns if c.kind == "left out" and "identifier" in c.note]
    if not ids and copies == 0:
        features = int(cohort.features.duplicated().sum())
        if cohort.features.shape[1] >= 3 and features > 0.2 * len(cohort):
            yield Finding(
                "note", "same-features", f"{features} patients share all their features with another one.",
                "Right if columns are few and coarse; several rows of one patient (visits) are not supported.",
                numbers={"rows": features},
            )  # fmt: skip


def _missing(cohort: Cohort) -> Iterator[Finding]:
    used = [c for c in cohort.columns if c.kind != "left out"]
    much = [c for c in used if c.missing > _MUCH_MISSING]
    if much:
        shown = listed([f"{c.name} ({c.missing:.0%})" for c in sorted(much, key=lambda c: -c.missing)])
        yield Finding(
            "warning", "missing-values", f"much is missing in {shown}.",
            "Missing numbers become the median, missing categories the most frequent one; leave such columns out with "
            "--drop if that makes no sense.", tuple(c.name for c in much),
        )  # fmt: skip
    elif some := [c for c in used if c.missing > 0]:
        yield Finding(
            "note", "some-missing", f"values are missing in {len(some)} of {len(used)} columns, at most "
            f"{max(c.missing for c in some):.0%}.",
            "They are filled with the median or the most frequent category.", tuple(c.name for c in some),
        )  # fmt: skip


def _columns(cohort: Cohort) -> Iterator[Finding]:
    left_out = [c for c in cohort.columns if c.kind == "left out" and not c.chosen]
    for code, (word, text, advice) in _LEFT_OUT.items():
        names = tuple(c.name for c in left_out if word in c.note)
        if names:
            yield Finding("note", code, f"left out, because they {text}: {listed(names)}.", advice, names)
    mixed = tuple(c.name for c in cohort.columns if c.kind == "number" and c.note)
    if mixed:
        shown = listed([f"{c.name} ({c.text})" for c in cohort.columns if c.name in mixed], 4)
        yield Finding(
            "warning", "mixed-columns", f"some columns hold numbers and words: {shown}.",
            "Correct the words, or take the column as groups with --categorical.", mixed,
        )  # fmt: skip


def _follow_up(cohort: Cohort, horizons: Sequence[Horizon]) -> list[Finding]:
    if len(cohort) < 2 or (cohort.time < 0).any() or not (cohort.time > 0).any():
        return []
    last = last_usable_time(cohort.time, cohort.event)
    text = describe_time(last, cohort.unit)
    found = [
        Finding(
            "note", "last-usable-horizon", f"the last usable horizon is {text}: until then at least "
            f"{min(10, max(1, len(cohort) // 2))} patients are under observation.",
            "Predictions beyond rest on very few patients.", numbers={"time": last},
        )
    ]  # fmt: skip
    for horizon in horizons:
        if horizon.time > last:
            found.append(
                Finding(
                    "warning", "horizon-too-late", f"the horizon {horizon.label} lies beyond the last usable one, "
                    f"{text}.",
                    "Choose an earlier one with --horizons.", numbers={"horizon": horizon.time, "last": last},
                )
            )  # fmt: skip
    return found


def _reach(cohort: Cohort) -> Iterator[Finding]:
    """Name the features that decide how long a patient could be followed."""
    from dcsurv.follow_up import study_follow_up  # brings scikit-learn, which no help text needs

    if len(cohort) < 2 or (cohort.time < 0).any() or cohort.features.shape[1] == 0:
        return
    found = study_follow_up(cohort.features, cohort.y)
    if found.depends:
        low, high = (describe_time(float(t), cohort.unit) for t in np.quantile(found.followed_until, [0, 1]))
        yield Finding(
            "note", "follow-up-depends-on-features",
            f"follow-up depends on the features: {found.describe()} Some patients could be followed to {low} only, "
            f"others to {high}.",
            "The default model allows for it, and evaluations weigh by it. DRSA, Kamran and DCS as published do not: "
            "they predict that patients die who could not be followed so far. Predictions beyond such a time are "
            "marked, in the column followed_to.",
            tuple(one.feature for one in found.features[:3]), {"concordance": found.concordance},
        )  # fmt: skip
