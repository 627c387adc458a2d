"""What will hurt before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dcsurv.cohort.cohort import Cohort
from dcsurv.cohort.columns import ColumnReason
from dcsurv.cohort.errors import CohortError
from dcsurv.cohort.findings import Finding
from dcsurv.cohort.leakage import leaks, one_sided
from dcsurv.cohort.oddities import copies, half_read, odd_numbers, repeated_patients, spelled_differently
from dcsurv.cohort.sample_size import enough_patients
from dcsurv.durations import Horizon, describe_time
from dcsurv.grid import TimeGrid
from dcsurv.messages import Message, ModelChoice, ModelParameter, Parameter, listed, plural
from dcsurv.nonparametric import last_usable_time, least_at_risk
from dcsurv.target import make_outcome

# Where most intervals have fewer events, or all together have fewer, counting them tells nothing new.
_EVENTS_PER_BUCKET, _FEW_EVENTS = 5, 50
_MUCH_MISSING = 0.4
_ORDER = {"error": 0, "warning": 1, "note": 2}


class _LeftOut(NamedTuple):
    """What is said about columns that were left out for one of some reasons."""

    code: str
    reasons: set[ColumnReason]
    one: str
    several: str
    remedy: str = ""
    parameter: str | None = None


_LEFT_OUT = (
    _LeftOut("constant-columns", {"constant", "constant or empty"}, "it never changes", "they never change"),
    _LeftOut("empty-columns", {"no value", "few values"}, "it is (nearly) empty", "they are (nearly) empty"),
    _LeftOut(
        "id-columns",
        {"identifier", "row number", "free text"},
        "it looks like an identifier or free text",
        "they look like identifiers or free text",
        Message("Keep one with {categorical} or {numeric}."),
        "categorical",
    ),
    _LeftOut(
        "date-columns",
        {"dates"},
        "it holds dates",
        "they hold dates",
        "Turn dates into numbers, such as an age or days since diagnosis.",
    ),
)


def check_cohort(cohort: Cohort, horizons: Sequence[Horizon] = ()) -> list[Finding]:
    """Look for what would spoil a model or its evaluation.

    Parameters
    ----------
    cohort : Cohort
        The patients.
    horizons : sequence of Horizon, default ()
        Times of interest, to be compared with the follow-up.

    Returns
    -------
    list of Finding
        The worst first.

    Examples
    --------
    >>> from dcsurv.cohort import Cohort, check_cohort
    >>> from dcsurv.datasets import load_metabric
    >>> X, y = load_metabric()
    >>> table = X.assign(days=y["time"], died=y["event"], weeks=y["time"] / 7)
    >>> findings = check_cohort(Cohort.from_frame(table, time="days", event="died", unit="days"))
    >>> leak = next(finding for finding in findings if finding.code == "leakage")
    >>> leak.severity, leak.columns, leak.parameter
    ('warning', ('weeks',), 'drop')
    >>> print(leak.remedy)
    If it was not known at time 0 (a date of death, a follow-up, another form of the outcome), use drop=['weeks'].
    """
    checks: tuple[Callable[[Cohort], Iterator[Finding]], ...] = (
        _times, _events, _features, _intervals, repeated_patients, _rows, odd_numbers, half_read, _missing, _columns,
        copies, spelled_differently, leaks, one_sided,
    )  # fmt: skip
    found = [finding for check in checks for finding in check(cohort)]
    found += _follow_up(cohort, horizons)
    found += enough_patients(cohort, horizons)
    found += _reach(cohort)
    return sorted(found, key=lambda finding: _ORDER[finding.severity])


def require_features(cohort: Cohort) -> None:
    """Refuse a cohort of which no column is left to predict from.

    Parameters
    ----------
    cohort : Cohort
        The patients.

    Raises
    ------
    CohortError
        If there are no features.
    """
    for finding in _features(cohort):
        raise CohortError(finding.message, parameter=finding.parameter, remedy=finding.remedy)


def _features(cohort: Cohort) -> Iterator[Finding]:
    if cohort.features.shape[1] == 0:
        left_out = [f"{column.name} ({column.text or 'as asked'})" for column in cohort.columns]
        reason = f" All were left out: {listed(left_out)}." if left_out else ""
        message = f"besides the outcome, {cohort.name} has no column to predict from.{reason}"
        if any(column.chosen for column in cohort.columns):
            yield Finding("error", "no-features", message, Message("Name fewer columns in {drop}."), "drop")
        elif cohort.columns:
            remedy = Message("Add columns that were known at time 0, or keep one with {categorical} or {numeric}.")
            yield Finding("error", "no-features", message, remedy, "categorical")
        else:
            yield Finding("error", "no-features", message, "Add columns that were known at time 0.")


def _times(cohort: Cohort) -> Iterator[Finding]:
    name = cohort.outcome.time
    negative, zero = int((cohort.time < 0).sum()), int((cohort.time == 0).sum())
    if negative:
        rows = np.flatnonzero(cohort.time < 0)
        yield Finding(
            "error",
            "negative-times",
            f"{plural(negative, 'time in', 'times in')} {name!r} {_is(negative)} negative (the lowest is "
            f"{cohort.time.min():g}, the first in patient {rows[0] + 1} of those with an outcome).",
            "Correct or remove these rows; often a start and an end date were exchanged.",
            "time",
            (name,),
            {"rows": negative},
        )
    if zero:
        yield Finding(
            "warning",
            "time-zero",
            f"{plural(zero, 'patient has', 'patients have')} time 0 "
            f"({int((cohort.event & (cohort.time == 0)).sum()):,} with the event).",
            "Such patients tell a model next to nothing; check whether they belong to the cohort.",
            None,
            (name,),
            {"rows": zero},
        )
    if cohort.incomplete:
        yield Finding(
            "warning",
            "outcome-missing",
            f"{plural(cohort.incomplete, 'row has', 'rows have')} no time or no event and {_is(cohort.incomplete)} "
            "left out.",
            "If outcomes are missing for a reason, results apply to the other patients only.",
            numbers={"rows": cohort.incomplete},
        )


def _events(cohort: Cohort) -> Iterator[Finding]:
    n, events = len(cohort), cohort.events
    name = cohort.outcome.event
    if n < 2:
        yield Finding(
            "error", "too-few-patients", f"there is {plural(n, 'patient')}; a model needs many.", "Add patients."
        )
    if events == 0:
        yield Finding(
            "error",
            "no-events",
            Message(
                "no patient has the event: {coding} in {name!r}.", coding=cohort.outcome.coding.describe(), name=name
            ),
            Message("If it is coded otherwise, say so with {event_values}."),
            "event_values",
            (name,),
        )
        return
    if events == n and n > 1:
        yield Finding(
            "note",
            "no-censoring",
            "every patient has the event; none is censored.",
            Message("Right for complete follow-up; otherwise check {event_values}."),
            "event_values",
            (name,),
        )


def _intervals(cohort: Cohort) -> Iterator[Finding]:
    """Count the events in the intervals of the default network."""
    if cohort.events < _FEW_EVENTS or not (cohort.time > 0).any():
        return
    from dcsurv.models import DCS

    default = DCS()
    assert default.n_nodes is not None
    grid = TimeGrid.make(make_outcome(np.maximum(cohort.time, 0), cohort.event), default.spacing, default.n_nodes)
    buckets = np.bincount(np.minimum(grid.bucket(cohort.time[cohort.event]), grid.size - 1), minlength=grid.size)
    thin = int((buckets < _EVENTS_PER_BUCKET).sum())
    if thin > grid.size / 2:
        yield Finding(
            "warning",
            "events-per-bucket",
            f"{thin} of the {grid.size} time intervals of the default network have fewer than {_EVENTS_PER_BUCKET} "
            "events.",
            Message(
                "Use fewer of them, such as {fewer}, or {model}.",
                fewer=ModelParameter("n_nodes", 15),
                model=ModelChoice("CoxPH"),
            ),
            numbers={"intervals": grid.size, "thin": thin},
        )


def _rows(cohort: Cohort) -> Iterator[Finding]:
    if cohort.features.shape[1] == 0:
        return
    whole = cohort.features.assign(**{"\0time": cohort.time, "\0event": cohort.event})
    copied = int(whole.duplicated().sum())
    if copied:
        yield Finding(
            "warning",
            "duplicate-rows",
            f"{plural(copied, 'row repeats', 'rows repeat')} another one in every column that is used, outcome "
            "included.",
            "Patients entered twice end up in the training and in the test part, and flatter the results: remove "
            "copies.",
            numbers={"rows": copied},
        )
    if copied or any(column.reason == "identifier" for column in cohort.columns):
        return
    same = int(cohort.features.duplicated().sum())
    if cohort.features.shape[1] >= 3 and same > 0.2 * len(cohort):
        yield Finding(
            "note",
            "same-features",
            f"{plural(same, 'patient shares', 'patients share')} all features with another one.",
            Message(
                "Right if columns are few and coarse; rows of one patient stay together with {group}, the column "
                "that says whose they are."
            ),
            "group",
            numbers={"rows": same},
        )


def _missing(cohort: Cohort) -> Iterator[Finding]:
    used = [c for c in cohort.columns if c.kind != "left out"]
    much = [c for c in used if c.missing > _MUCH_MISSING]
    if much:
        shown = listed([f"{c.name} ({c.missing:.0%})" for c in sorted(much, key=lambda c: -c.missing)])
        yield Finding(
            "warning",
            "missing-values",
            f"much is missing in {shown}.",
            Message(
                "Missing numbers become the median, missing categories the most frequent one; leave such columns out "
                "with {drop} if that makes no sense."
            ),
            "drop",
            tuple(c.name for c in much),
        )
    elif some := [c for c in used if c.missing > 0]:
        yield Finding(
            "note",
            "some-missing",
            f"values are missing in {len(some)} of {plural(len(used), 'column')}, at most "
            f"{max(c.missing for c in some):.0%}.",
            "They are filled with the median or the most frequent category.",
            None,
            tuple(c.name for c in some),
        )


def _columns(cohort: Cohort) -> Iterator[Finding]:
    left_out = [c for c in cohort.columns if c.kind == "left out" and not c.chosen]
    for code, reasons, one, several, remedy, parameter in _LEFT_OUT:
        names = tuple(c.name for c in left_out if c.reason in reasons)
        if names:
            why = one if len(names) == 1 else several
            yield Finding("note", code, f"left out, because {why}: {listed(names)}.", remedy, parameter, names)
    mixed = [c for c in cohort.columns if c.reason == "mixed"]
    if mixed:
        shown = listed([f"{c.name} ({c.text})" for c in mixed], 4)
        yield Finding(
            "warning",
            "mixed-columns",
            f"some columns hold numbers and words: {shown}.",
            Message(
                "Correct the words, or take the column as groups with {categorical}.",
                categorical=Parameter("categorical", [mixed[0].name]),
            ),
            "categorical",
            tuple(c.name for c in mixed),
        )


def _follow_up(cohort: Cohort, horizons: Sequence[Horizon]) -> list[Finding]:
    if len(cohort) < 2 or (cohort.time < 0).any() or not (cohort.time > 0).any():
        return []
    last = last_usable_time(cohort.time, cohort.event)
    text = describe_time(last, cohort.unit)
    least = least_at_risk(len(cohort))
    found = [
        Finding(
            "note",
            "last-usable-horizon",
            f"the last usable horizon is {text}: until then at least {plural(least, 'patient')} {_is(least)} under "
            "observation.",
            "Predictions beyond it rest on very few patients.",
            "horizons",
            numbers={"time": last},
        )
    ]
    found += [
        Finding(
            "warning",
            "horizon-too-late",
            f"the horizon {horizon.label} lies beyond the last usable one, {text}.",
            Message("Choose an earlier one with {horizons}."),
            "horizons",
            numbers={"horizon": horizon.time, "last": last},
        )
        for horizon in horizons
        if horizon.time > last
    ]
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
            "note",
            "follow-up-depends-on-features",
            f"follow-up depends on the features: {found.describe()} Some patients could be followed to {low} only, "
            f"others to {high}.",
            "The default model allows for it, and evaluations weight patients accordingly. DRSA, Kamran and DCS as "
            "published do not: they predict death where nobody could be followed. Predictions beyond such a time are "
            "marked, in the column followed_to.",
            None,
            tuple(one.feature for one in found.features[:3]),
            {"concordance": found.concordance},
        )


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
