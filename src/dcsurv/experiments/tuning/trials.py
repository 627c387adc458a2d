"""One trial: a setting fitted on the folds, stopped where it falls behind, is too slow or fails."""

from __future__ import annotations

import math
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from dcsurv.experiments.tuning.criteria import Criterion
from dcsurv.follow_up import FollowUp, study_follow_up
from dcsurv.messages import cause_of, plural
from dcsurv.models import NetworkEstimator, SurvivalEstimator
from dcsurv.models.curve_model import held_out_curves
from dcsurv.search_space import TuningError
from dcsurv.target import IntArray, Outcome, fold_indices
from dcsurv.training import one_thread, watch

# Epochs of the first fold after which a trial is compared with others, and how far they are on the way to the end.
RUNGS: Final = {4: 0.2, 8: 0.35, 16: 0.5}
# The end of the first fold on that way; the end of the last but one is at 1.
_FIRST_FOLD: Final = 0.75
# Steps of a trial: an epoch of the first fold is a step of its number, the end of fold k is step 1000 k.
FOLD_STEP: Final = 1000
# So many trials run without comparison.
_FREE_TRIALS: Final = 5

# Objectives, turned so that higher is better, by step.
Steps: TypeAlias = dict[int, tuple[float, ...]]
State: TypeAlias = Literal["complete", "pruned", "slow", "failed"]


@dataclass(frozen=True)
class Fold:
    """Rows to fit on and rows to judge with; features are encoded already where trials can share that."""

    X: Any
    y: Outcome
    X_held_out: Any
    y_held_out: Outcome
    together: Mapping[str, IntArray] = field(default_factory=dict)  # rows of one patient, if the model asks for them

    @cached_property
    def follow_up(self) -> FollowUp:
        """Whether the features predict censoring among those to judge with, and who was followed alike."""
        return study_follow_up(self.X_held_out, self.y_held_out)


@dataclass(frozen=True)
class TrialResult:
    """What became of a trial.

    Attributes
    ----------
    state
        complete; pruned (fell behind); slow (stopped for its time); failed.
    folds
        The metrics of every fold that ended.
    """

    state: State
    seconds: float
    steps: Steps = field(default_factory=dict)
    folds: list[dict[str, float]] = field(default_factory=list)
    cause: str = ""
    traceback: str = ""


class _Stopped(Exception):
    """A trial is ended before its time."""

    def __init__(self, state: State, cause: str) -> None:
        super().__init__(cause)
        self.state, self.cause = state, cause


@dataclass(frozen=True)
class TrialRunner:
    """Everything that the trials of a search share: the estimator, the folds, the criterion.

    Parameters
    ----------
    estimator
        Unfitted, with the parameters that are not searched.
    trial_timeout
        Seconds of computing time after which a trial is stopped, or as soon as it cannot end within them.
    """

    estimator: Any
    folds: Sequence[Fold]
    criterion: Criterion
    trial_timeout: float | None = None

    def run(self, settings: Mapping[str, Any], bars: Steps | None = None) -> TrialResult:
        """Fit and judge some settings on one thread, fold by fold; a failure is returned, not raised.

        Parameters
        ----------
        bars
            By step, what a trial must reach to go on; it is stopped where it stays below in every objective.
        """
        course = _Course(self, bars or {})
        try:
            with one_thread(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for fold in self.folds:
                    course.run_fold(clone(self.estimator).set_params(**settings), fold)
        except _Stopped as stop:
            return course.outcome(stop.state, stop.cause)
        except Exception as error:
            # Settings that cannot be, a loss that is no number, too little memory: the search goes on without it.
            return course.outcome("failed", cause_of(error), traceback.format_exc())
        return course.outcome("complete")


class _Course:
    """The course of one trial over the folds."""

    def __init__(self, evaluation: TrialRunner, bars: Steps) -> None:
        self.evaluation, self.bars = evaluation, bars
        self.steps: Steps = {}
        self.measured: list[dict[str, float]] = []
        self.begin = time.perf_counter()
        # A trial runs on one thread, whose computing time does not depend on what else the machine does.
        self.work_begin = self.first_epoch_end = time.thread_time()

    def run_fold(self, model: Any, fold: Fold) -> None:
        with watch(lambda epoch, history: self._after_epoch(model, fold, epoch)):
            model.fit(fold.X, fold.y, **fold.together)
        if getattr(model, "training_summary_", {}).get("stopped_by") == "interrupt":
            raise KeyboardInterrupt  # Ctrl-C ends a training, but here it must end the search
        criterion = self.evaluation.criterion
        curves = held_out_curves(model, fold.X_held_out)
        self.measured.append(criterion.measure(fold.y_held_out, curves, fold.follow_up))
        if len(self.measured) < len(self.evaluation.folds):
            self._reach(FOLD_STEP * len(self.measured), criterion.upward(criterion.objectives(self.measured)))
        self._check_time(0.0)

    def _after_epoch(self, model: Any, fold: Fold, epoch: int) -> None:
        if not isinstance(model, NetworkEstimator):
            self._check_time(0.0)  # a member of an ensemble is being trained
            return
        if epoch == 1:  # compiles and allocates, and says little about the others
            self.first_epoch_end = time.thread_time()
        else:
            per_epoch = (time.thread_time() - self.first_epoch_end) / (epoch - 1)
            shortest = min(model.max_epochs, 1 + model.patience)
            folds_left = len(self.evaluation.folds) - len(self.measured) - 1
            self._check_time(per_epoch * (max(0, shortest - epoch) + shortest * folds_left))
        if epoch in RUNGS and not self.measured:
            # Folds that are not encoded for all trials hold what the user passed; the model has its own encoding.
            train, held_out = (model.encode(model.check_features(X)) for X in (fold.X, fold.X_held_out))
            model.after_training(train, fold.y, None)
            criterion = self.evaluation.criterion
            now = criterion.measure(fold.y_held_out, model.curves_of(held_out), fold.follow_up)
            self._reach(epoch, criterion.upward(criterion.objectives([now])))

    def _reach(self, step: int, value: tuple[float, ...]) -> None:
        self.steps[step] = value
        bar = self.bars.get(step)
        if bar is not None and all(v < b for v, b in zip(value, bar, strict=True)):
            where = f"fold {step // FOLD_STEP}" if step >= FOLD_STEP else f"epoch {step} of fold 1"
            raise _Stopped("pruned", f"behind other trials after {where}")

    def _check_time(self, needed: float) -> None:
        """Stop a trial that has had its time, or needs more than is left even if it ends as soon as it can."""
        limit = self.evaluation.trial_timeout
        if limit is None or len(self.measured) == len(self.evaluation.folds):
            return
        spent = time.thread_time() - self.work_begin
        if spent + needed > limit:
            how = f"needs at least {spent + needed:.0f} s" if needed else f"has taken {spent:.0f} s"
            raise _Stopped("slow", f"{how} of computing time, and {limit:g} s are allowed")

    def outcome(self, state: State, cause: str = "", trace: str = "") -> TrialResult:
        return TrialResult(state, time.perf_counter() - self.begin, self.steps, self.measured, cause, trace)


def make_folds(
    estimator: Any,
    X: Any,
    y: Outcome,
    indices: Sequence[tuple[IntArray, IntArray]],
    *,
    share: bool,
    groups: IntArray | None = None,
) -> list[Fold]:
    """Cut the data into folds; with ``share``, encode the features of each fold once for all trials.

    The encoding is fitted on a fold's training rows, by the estimator's own code, as every fit would do again.
    """
    rows = X.iloc if isinstance(X, pd.DataFrame) else np.asarray(X)
    out = []
    for train, held_out in indices:
        asked = groups is not None and has_fit_parameter(estimator, "groups")
        together = {"groups": groups[train]} if groups is not None and asked else {}
        fold = Fold(rows[train], y[train], rows[held_out], y[held_out], together)
        if share:
            coder = clone(estimator)
            encoded = coder.fit_encoding(fold.X, fold.y)
            held_out_encoded = coder.encode(coder.check_features(fold.X_held_out))
            fold = replace(fold, X=encoded, X_held_out=held_out_encoded)
        out.append(fold)
    return out


def can_share(estimator: Any, searched: Sequence[str]) -> bool:
    """Whether the encoding of features is the estimator's, and the same in every trial."""
    return isinstance(estimator, SurvivalEstimator) and not any(name.startswith("preprocess") for name in searched)


def make_indices(
    folds: int | Sequence[tuple[Any, Any]], y: Outcome, random_state: int, groups: IntArray | None = None
) -> list[tuple[IntArray, IntArray]]:
    """Return the rows of every fold: dealt with about the same share of events, or the user's own pairs."""
    expected = "a number of folds from 2 on, or pairs of (training rows, held-out rows),"
    if isinstance(folds, int | np.integer):
        if isinstance(folds, bool) or not 2 <= folds <= len(y):
            raise TuningError(f"folds is {folds!r}, but {expected} is expected for {len(y)} patients.")
        return fold_indices(y, n_folds=int(folds), random_state=random_state, groups=groups)
    everybody = np.arange(len(y))
    try:
        out = [(everybody[np.asarray(train)], everybody[np.asarray(held_out)]) for train, held_out in folds]
    except (TypeError, ValueError, IndexError) as error:
        raise TuningError(f"folds cannot be used: {error}. {expected.capitalize()} is expected.") from None
    if not out:
        raise TuningError(f"folds is empty, but {expected} is expected.")
    for number, (train, held_out) in enumerate(out, start=1):
        if not (train.size and held_out.size):
            raise TuningError(f"pair {number} of folds has no {'held-out' if train.size else 'training'} rows.")
        both = np.intersect1d(train, held_out)
        if both.size:
            raise TuningError(
                f"pair {number} of folds has {plural(both.size, 'row')} on both sides, row {both[0]} for one. A "
                "patient to judge a model with must not be one that it was trained on: take them off one side."
            )
        if groups is not None and np.isin(groups[held_out], groups[train]).any():
            raise TuningError(f"pair {number} of folds has rows of one group on both sides: take them off one side.")
    return out


def bars(others: Sequence[tuple[State, Steps]], keep: float, n_folds: int) -> Steps:
    """Return what a trial must reach at each step to go on, given how other trials did.

    At a step that lies at share p of the way, the best keep^p of all trials go on, so that about ``keep`` of them
    would end all folds if trials did not get better over time. A trial that was stopped for falling behind counts
    as worse at every later step; one that was too slow, failed or ended its training before a step does not count.
    With a single fold there are but its epochs to stop at, where the share stays at most half of the way.
    """
    out: Steps = {}
    progress = {**RUNGS, **{FOLD_STEP * k: _fold_progress(k, n_folds) for k in range(1, n_folds)}}
    for step, share in progress.items():
        reached = [steps[step] for _, steps in others if step in steps]
        behind = sum(state == "pruned" and max(steps, default=0) < step for state, steps in others)
        going_on = math.ceil(keep**share * (len(reached) + behind + 1))
        if len(reached) + behind >= _FREE_TRIALS and going_on <= len(reached):
            out[step] = tuple(float(np.sort(column)[::-1][going_on - 1]) for column in np.array(reached).T)
    return out


def _fold_progress(fold: int, n_folds: int) -> float:
    if n_folds == 2:
        return 1.0  # the first fold is the last but one as well
    return _FIRST_FOLD + (1 - _FIRST_FOLD) * (fold - 1) / (n_folds - 2)
