"""What a report is about: the model, the patients it was tried on, and its predictions for them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from dcsurv.cohort import OutcomeColumns, usable_horizons
from dcsurv.curves import BeyondLastNodeWarning, SurvivalCurves
from dcsurv.durations import describe_time
from dcsurv.follow_up import FollowUp
from dcsurv.messages import plural
from dcsurv.metrics import default_horizons
from dcsurv.metrics.censoring import study_censoring
from dcsurv.nonparametric import kaplan_meier
from dcsurv.preprocessing.ranges import RANGES_UNKNOWN
from dcsurv.target import FloatArray, IntArray, Outcome, check_outcome

MOST_PATIENTS_DRAWN = 6


@dataclass
class Study:
    """The model, its predictions for the held-out patients, and what else was passed.

    Attributes
    ----------
    curves
        As the model predicts them.
    before
        As the model predicted them before it was recalibrated the last time: of an ensemble the mean of its members.
    reference_curves
        Of the model to compare with.
    baseline
        The same Kaplan-Meier curve for everybody.
    baseline_of
        Whose it is: of the training patients if they are there and the model was not recalibrated since, to others
        with another level of risk; else of the evaluated ones.
    seen
        Whether the model was fitted to, or recalibrated with, these very patients.
    horizons, left_out
        Times to look at, and those that the data cannot say anything about, with the reason.
    """

    model: Any
    X: pd.DataFrame
    y: Outcome
    X_train: pd.DataFrame | None
    y_train: Outcome | None
    follow_up: FollowUp  # what predicts censoring among these patients, features or predicted risk: weights follow it
    reference: Any
    unit: str | None
    n_bootstrap: int
    random_state: int
    subgroups: Sequence[str] | Mapping[str, Any] | None
    patients: Sequence[tuple[str, int]] | None
    data_name: str | None
    seen: bool
    as_array: bool
    curves: SurvivalCurves
    before: SurvivalCurves | None
    reference_curves: SurvivalCurves | None
    baseline: SurvivalCurves
    baseline_of: Literal["training", "evaluated"]
    horizons: list[float] = field(default_factory=list)
    left_out: list[tuple[float, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    outcome: OutcomeColumns | None = None  # where the table kept the outcome, if anybody knows
    file_holds: str | None = None  # what the model's file holds, in words, if anybody knows
    validation: Mapping[str, Any] | None = None  # what refits of the model and of the reference have shown

    @property
    def full_name(self) -> str:
        """What the model is, with its parts."""
        name: str = self.model.display_name
        return name

    @property
    def name(self) -> str:
        """What to call the model in tables and figures."""
        return _short(self.full_name)

    @property
    def reference_name(self) -> str:
        name = _short(self.reference.display_name)
        return name if name != self.name else f"{name} (reference)"

    @property
    def before_name(self) -> str:
        """What to call the model of the curves before."""
        return f"before {'the last ' if len(self.model.recalibrations) > 1 else ''}recalibration"

    @property
    def kind(self) -> str:
        """What the patients are to the model."""
        return "already seen" if self.seen else "held-out"

    @property
    def n_events(self) -> int:
        return int(self.y["event"].sum())

    def weighting(self, rows: IntArray | None = None) -> dict[str, Any]:
        """Return how metrics weight the patients, or some of them, against censoring."""
        if not self.follow_up.depends:
            return {"censoring": "marginal"}
        return {"censoring": self.follow_up if rows is None else self.follow_up.take(rows)}

    @property
    def weighted_by(self) -> str:
        """Say where the censoring curve G comes from."""
        if self.follow_up.depends:
            given = (
                "the features, within groups of these patients that were followed alike"
                if self.follow_up.by == "features"
                else "the predicted risk, within tenths of it"
            )
            return (
                f"G, the chance of not being censored, is estimated given {given}; patients count at times that at "
                "least 5% of their group could reach, and at all times if four fifths of it had had the event before. "
            )
        return "G, the censoring curve, comes from the same patients. "

    @property
    def middle_horizon(self) -> float | None:
        """The horizon at which sections that need one time look."""
        return self.horizons[len(self.horizons) // 2] if self.horizons else None

    def predict(self, frame: pd.DataFrame, times: npt.ArrayLike | None = None) -> SurvivalCurves:
        """Predict for rows in the form in which the caller's features came."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BeyondLastNodeWarning)
            out: SurvivalCurves = self.model.curves_for(self.features(frame), times)
        return out

    def features(self, frame: pd.DataFrame) -> Any:
        return frame.to_numpy() if self.as_array else frame

    def when(self, t: float, *, brief: bool = False) -> str:
        """Write a time with its unit; without years or months beside it if brief."""
        text = describe_time(t, self.unit, brief=brief)
        return text if self.unit else f"time {text}"


def _short(name: str) -> str:
    """Leave out what a model is made of: CalibratedEnsemble (2 × SplineAFT), recalibrated."""
    return re.sub(r" \(.*\)", "", name)


def make_study(
    model: Any,
    X: Any,
    y: Any,
    *,
    X_train: Any,
    y_train: Any,
    reference: Any,
    horizons: npt.ArrayLike | None,
    unit: str | None,
    **more: Any,
) -> Study:
    """Check what was passed and predict for the held-out patients."""
    as_array = not isinstance(X, pd.DataFrame)
    frame = _as_frame(X, model)
    outcome = check_outcome(y, n_rows=len(frame))
    train = None if y_train is None else check_outcome(y_train, min_events=1)
    train_frame = None if X_train is None else _as_frame(X_train, model)
    if train_frame is not None and train is not None and len(train_frame) != len(train):
        raise ValueError(
            f"X_train has {len(train_frame)} rows and y_train {len(train)}: they must be the same patients."
        )
    remarks: list[str] = []
    if train is not None:
        if np.array_equal(train, outcome):
            raise ValueError("y_train is y: the evaluated patients. Pass those that the model was fitted to, or none.")
        if other := _others_than_fitted(model, train):
            warnings.warn(other, UserWarning, stacklevel=3)
            remarks.append(other)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        curves = model.curves_for(X)
        inside = model.before_recalibration()
        before = None if inside is None else inside.curves_for(X)
        reference_curves = None if reference is None else reference.curves_for(X)
        outside = model.look_outside(X)
    remarks += [RANGES_UNKNOWN] if outside is None else outside.counts.describe(values=False)
    for warning in heard:
        if issubclass(warning.category, UserWarning) and str(warning.message) not in remarks:
            remarks.append(str(warning.message))
    if model.recalibrations and reference is not None and not reference.recalibrations:
        on = " and then on ".join(str(one.fitted_on_) for one in model.recalibrations)
        remarks.append(
            f"The model was recalibrated on {on}; {reference.display_name} was not, so that their ranking can be "
            "compared, but not their calibration."
        )
    of_training = train is not None and not model.recalibrations
    km = kaplan_meier(train if of_training else outcome)
    baseline = SurvivalCurves(km.times, np.tile(km.values, (len(outcome), 1)), interpolation="step")
    _check_choices(more.get("patients"), more.get("subgroups"), frame)
    study = Study(
        model=model,
        X=frame,
        y=outcome,
        X_train=train_frame,
        y_train=train,
        follow_up=study_censoring(outcome, [curves], frame),
        reference=reference,
        unit=unit or getattr(model, "time_unit", None),
        as_array=as_array,
        curves=curves,
        before=before,
        reference_curves=reference_curves,
        baseline=baseline,
        baseline_of="training" if of_training else "evaluated",
        remarks=remarks,
        **more,
    )
    _choose_horizons(study, horizons)
    return study


def _others_than_fitted(model: Any, train: Outcome) -> str:
    """Say so if the training patients that were passed cannot be those that the model was fitted to."""
    fitted = getattr(model.innermost, "training_summary_", {})
    passed = {"patients": len(train), "events": int(train["event"].sum())}
    if all(fitted.get(name, count) == count for name, count in passed.items()):
        return ""
    words = [f"{plural(one['patients'], 'patient')} ({plural(one['events'], 'event')})" for one in (fitted, passed)]
    return (
        f"The model was fitted to {words[0]}, but {words[1]} were passed as its training patients: what is said of "
        "them here is not of those that it was fitted to."
    )


def _as_frame(X: Any, model: Any) -> pd.DataFrame:
    if isinstance(X, pd.DataFrame):
        return X.reset_index(drop=True)
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(f"X has shape {array.shape}, but a table with one row per patient is expected.")
    names = getattr(model, "feature_names_in_", None)
    if names is None or len(names) != array.shape[1]:
        names = [f"x{k}" for k in range(array.shape[1])]
    return pd.DataFrame(array, columns=[str(name) for name in names]).infer_objects()


def _check_choices(patients: Any, subgroups: Any, frame: pd.DataFrame) -> None:
    """Refuse rows and columns that are not there before anything is computed."""
    if patients is not None:
        rows = [row for _, row in patients]
        inside = all(0 <= row < len(frame) for row in rows)
        if not inside or not 1 <= len(set(rows)) == len(rows) <= MOST_PATIENTS_DRAWN:
            raise ValueError(
                f"patients is {rows}, but one to {MOST_PATIENTS_DRAWN} different row numbers from 0 to "
                f"{len(frame) - 1} are expected."
            )
    if isinstance(subgroups, Mapping):
        for name, labels in subgroups.items():
            if len(labels) != len(frame):
                raise ValueError(
                    f"subgroups has {len(labels)} labels for {name!r}, but there are {len(frame)} patients."
                )
    elif subgroups is not None:
        unknown = [name for name in subgroups if name not in frame.columns]
        if unknown:
            raise ValueError(f"subgroups names {unknown}, but the features are {[str(c) for c in frame.columns]}.")


def _choose_horizons(study: Study, horizons: npt.ArrayLike | None) -> None:
    """Keep the horizons that can be used; say why the others are left out."""
    if horizons is None or np.size(horizons) == 0:
        try:
            asked: FloatArray = default_horizons(study.y)
        except ValueError:
            return  # no event: the sections say so
    else:
        asked = np.unique(np.atleast_1d(np.asarray(horizons, dtype=np.float64)))
        if asked.ndim != 1 or not np.isfinite(asked).all() or (asked <= 0).any():
            raise ValueError(f"horizons is {horizons!r}, but one or more finite times above 0 are expected.")
    study.horizons, unusable = usable_horizons(asked.tolist(), study.y, study.y_train)
    study.left_out = [(one.time, one.describe(study.unit)) for one in unusable]
