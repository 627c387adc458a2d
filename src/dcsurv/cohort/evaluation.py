"""How good a model is on patients that it has not seen: a fifth of them, held out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd

from dcsurv._learn import clone
from dcsurv.cohort.cohort import Cohort
from dcsurv.cohort.errors import CohortError
from dcsurv.cohort.horizons import usable_horizons
from dcsurv.curves import SurvivalCurves
from dcsurv.durations import Horizon
from dcsurv.follow_up import FollowUp
from dcsurv.messages import plural
from dcsurv.metrics import evaluate, list_metrics
from dcsurv.metrics.censoring import study_censoring
from dcsurv.models import CoxPH, SurvivalModel
from dcsurv.models.curve_model import held_out_curves
from dcsurv.plain import plain
from dcsurv.preprocessing import UnknownLevelsWarning
from dcsurv.target import IntArray, train_test_indices

# With fewer events in a test part, its numbers are noise.
MIN_TEST_EVENTS = 5
TEST_SHARE = 0.2
_COLUMNS = (
    "metric", "horizon", "value", "sd", "lower", "upper", "floor", "null_95", "p_value", "counted", "convention"
)  # fmt: skip

# Called with what is done next.
Progress: TypeAlias = Callable[[str], None]


class TooFewEvents(CohortError):
    """The patients to evaluate with have so few events that numbers would be noise."""


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a model, and of CoxPH on the same patients.

    Attributes
    ----------
    how
        Which patients were predicted by a model trained on which others, in words.
    table
        One row per metric and horizon; ``lower`` and ``upper`` are bootstrap limits, ``sd`` is over folds, ``floor``,
        ``null_95`` and ``p_value`` compare with a perfect model.
    reference
        The same for CoxPH, or None.
    notes
        What could not be measured.
    """

    how: str
    patients: int
    events: int
    table: pd.DataFrame
    reference: pd.DataFrame | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "how": self.how,
            "patients": self.patients,
            "events": self.events,
            "metrics": _rows(self.table),
            "reference": None if self.reference is None else {"model": "CoxPH", "metrics": _rows(self.reference)},
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class HeldOut:
    """A model fitted to one part of the patients, its evaluation on the other, and who was where."""

    model: SurvivalModel
    reference: SurvivalModel | None
    train: IntArray
    test: IntArray
    evaluation: Evaluation


@dataclass(frozen=True)
class Measured:
    """The metrics of curves, what their weights follow, what was not measured, and notes on weights and the like."""

    table: pd.DataFrame
    follow_up: FollowUp
    unmeasured: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def evaluate_curves(
    y: Any,
    curves: SurvivalCurves,
    y_train: Any | None,
    horizons: Sequence[Horizon],
    *,
    follow_up: FollowUp,
    n_bootstrap: int,
    seed: int = 0,
    unit: str | None = None,
) -> Measured:
    """Measure curves at those of the horizons that these patients allow."""
    events = int(y["event"].sum())
    if events < MIN_TEST_EVENTS:
        raise CohortError(
            f"there {'is' if events == 1 else 'are'} {plural(events, 'event')} among the {plural(len(y), 'patient')} "
            f"to evaluate with, but at least {MIN_TEST_EVENTS} are needed to say anything."
        )
    labels = {horizon.time: horizon.label for horizon in horizons}
    usable, unusable = usable_horizons(labels, y, y_train)
    unmeasured = [f"Nothing is measured at {labels[one.time]}: {one.describe(unit)}." for one in unusable]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = evaluate(
            y,
            curves,
            n_bootstrap=n_bootstrap,
            censoring=follow_up if follow_up.depends else "marginal",
            horizons=usable or None,
            metrics=None if usable else [metric.name for metric in list_metrics() if not metric.per_horizon],
            random_state=seed,
        )
    notes = _what_weights_follow(follow_up, table)
    notes += dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, UserWarning))
    return Measured(table, follow_up, tuple(unmeasured), tuple(notes))


def _what_weights_follow(follow_up: FollowUp, table: pd.DataFrame) -> list[str]:
    """Say what censoring depends on, and what the weights do about it."""
    risk = follow_up.describe_risk()
    if not follow_up.depends:
        return [f"{risk}: one curve of censoring serves for all."] if risk else []
    weighted = [metric.name for metric in list_metrics() if metric.weighted]
    shares = table.loc[table["metric"].isin(weighted), "counted"]
    count = (
        "patients count at times that others like them could reach "
        f"({shares.min():.0%} to {shares.max():.0%} of the patients)"
    )
    if follow_up.by == "risk":
        return [f"{risk}: the weights of {', '.join(weighted)} follow it, and {count}."]
    found = (
        f"{follow_up.describe()} So the weights of {', '.join(weighted)} follow the features, and {count}. With one "
        "curve of censoring for all, these numbers favour models that predict death where nobody is followed."
    )
    return [found, f"{risk}; the weights follow the features."] if risk else [found]


def hold_out(
    estimator: SurvivalModel,
    cohort: Cohort,
    horizons: Sequence[Horizon],
    *,
    seed: int,
    n_bootstrap: int,
    progress: Progress,
) -> HeldOut:
    """Fit to four fifths of the patients, evaluate on the last fifth, beside CoxPH."""
    y = cohort.y
    train, test = train_test_indices(y, test_size=TEST_SHARE, random_state=seed, groups=cohort.groups)
    _require_events(cohort, test)
    progress(f"fitting to {len(train):,} patients, for the evaluation on {len(test):,} others")
    model = fit(clone(estimator), cohort, train)
    progress(f"evaluating on {len(test):,} held-out patients")
    found = _measure(model, cohort, train, test, horizons, n_bootstrap, seed)
    notes = [*found.unmeasured, *found.notes]
    reference, reference_table = None, None
    if not isinstance(model, CoxPH):
        try:
            reference = fit(CoxPH(time_unit=cohort.unit), cohort, train)
            reference_table = _measure(
                reference, cohort, train, test, horizons, n_bootstrap, seed, found.follow_up
            ).table
        except ValueError as error:
            notes.append(f"CoxPH, for comparison, could not be fitted: {error}")
    how = f"held-out {TEST_SHARE:.0%}, drawn at random with the same share of events (seed {seed})"
    evaluation = Evaluation(how, len(test), int(y["event"][test].sum()), found.table, reference_table, tuple(notes))
    return HeldOut(model, reference, train, test, evaluation)


def fit(estimator: SurvivalModel, cohort: Cohort, rows: IntArray | None = None) -> SurvivalModel:
    """Fit to some patients; a training that Ctrl-C cut short is no model."""
    chosen = cohort if rows is None else cohort.take(rows)
    fitted: SurvivalModel = estimator.fit(chosen.features, chosen.y, **chosen.together)
    if fitted.training_summary_.get("stopped_by") == "interrupt":
        raise KeyboardInterrupt
    return fitted


def _measure(
    model: SurvivalModel,
    cohort: Cohort,
    train: IntArray,
    test: IntArray,
    horizons: Sequence[Horizon],
    n_bootstrap: int,
    seed: int,
    follow_up: FollowUp | None = None,
) -> Measured:
    """Measure a model on test patients, its weights those of the model that it stands beside, if any."""
    with warnings.catch_warnings():
        # A level of a category that only test patients have counts as missing; that is part of what is measured.
        warnings.simplefilter("ignore", UnknownLevelsWarning)
        curves = held_out_curves(model, cohort.features.iloc[test])
    if follow_up is None:
        follow_up = study_censoring(cohort.y[test], [curves], cohort.features.iloc[test])
    return evaluate_curves(
        cohort.y[test], curves, cohort.y[train], horizons, follow_up=follow_up, n_bootstrap=n_bootstrap, seed=seed,
        unit=cohort.unit,
    )  # fmt: skip


def _require_events(cohort: Cohort, test: IntArray) -> None:
    events = int(cohort.event[test].sum())
    if events < MIN_TEST_EVENTS:
        raise TooFewEvents(
            f"with {plural(cohort.events, 'event')} among {plural(len(cohort), 'patient')}, a test part has {events}: "
            "too few to evaluate a model.",
            remedy="Fit without an evaluation, or bring more patients.",
        )


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    columns = [name for name in _COLUMNS if name in table]
    rows: list[dict[str, Any]] = plain(table[columns].to_dict("records"), finite=True)
    return rows
