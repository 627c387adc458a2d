"""Inverse-probability-of-censoring weights of a test cohort: one censoring curve for all, or given features or risk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from dcsurv.curves import as_curves
from dcsurv.follow_up import FollowUp, study_follow_up, study_risk
from dcsurv.metrics.inputs import SortedCohort, warn
from dcsurv.nonparametric import LOWEST_CENSORING, censoring_curve
from dcsurv.target import BoolArray, FloatArray, check_outcome, check_sample_weight

CensoringWeights: TypeAlias = Literal["before", "at"]
WeightsFrom: TypeAlias = Literal["test", "train"]
Censoring: TypeAlias = Literal["auto", "marginal", "by-features", "by-risk"] | FollowUp
# Survival this close to 0 or 1 counts as this, so that the logarithm of the hazard is finite.
_EDGE = 1e-9
# Of a group that could not be followed to a time, the state at it is known well enough if no more than this share had
# been free of the event when its follow-up ended.
_FINISHED = 0.2


def predicted_risk(y: Any, models: Sequence[Any]) -> FloatArray:
    """Return the risk of n patients as each model sees it, (n, models).

    From curves it is the logarithm of the cumulative hazard at the median event time, or where they end if that is
    before. A row of scores, one per patient, is a risk already.
    """
    outcome = check_outcome(y)
    events = outcome["time"][outcome["event"]]
    columns = []
    for curves in models:
        if isinstance(curves, np.ndarray) and curves.ndim == 1:
            columns.append(curves)
            continue
        predicted = as_curves(curves, len(outcome))
        t = min(float(np.median(events)), float(predicted.times[-1])) if len(events) else float(predicted.times[-1])
        survival = np.clip(predicted.evaluate(np.array([t]))[:, 0], _EDGE, 1 - _EDGE)
        columns.append(np.log(-np.log(survival)))
    return np.column_stack(columns)


def study_censoring(
    y: Any, models: Sequence[Any], X: Any | None = None, sample_weight: npt.ArrayLike | None = None
) -> FollowUp:
    """Return what censoring is found to depend on: the features, else the risks that models predict, else nothing.

    Either way ``risk`` says how well these risks predict censoring.
    """
    by_risk = study_risk(predicted_risk(y, models), y, sample_weight=sample_weight)
    if X is None:
        return by_risk
    by_features = study_follow_up(X, y, sample_weight=sample_weight)
    return by_risk if by_risk.depends and not by_features.depends else replace(by_features, risk=by_risk.risk)


def resolve_follow_up(
    censoring: Censoring, X: Any | None, y: Any, models: Sequence[Any], sample_weight: npt.ArrayLike | None = None
) -> FollowUp | None:
    """Return the groups within which censoring is estimated, those with weight 0 left out, or None: one curve for all.

    ``models``: the curves that are to be weighted, of several models if they are to be compared.
    """
    if isinstance(censoring, FollowUp):
        found = censoring
        if len(found.groups) != len(y):
            raise ValueError(
                f"censoring was made from {len(found.groups)} patients, but there are {len(y)} here. Make it from "
                "these with dcsurv.study_follow_up(X, y)."
            )
    elif censoring == "by-features":
        if X is None:
            raise ValueError("censoring='by-features' needs the features of the patients: pass X.")
        found = study_follow_up(X, y, sample_weight=sample_weight, even_if=True)
    elif censoring == "by-risk":
        found = study_risk(predicted_risk(y, models), y, sample_weight=sample_weight, even_if=True)
    elif censoring == "auto":
        found = study_censoring(y, models, X, sample_weight)
    elif censoring == "marginal":
        return None
    else:
        raise ValueError(
            f"censoring is {censoring!r}, but 'auto', 'marginal', 'by-features', 'by-risk' or what study_follow_up "
            "returns is expected."
        )
    if len(found.followed_until) == 1:
        return None
    if sample_weight is None:
        return found
    return found.take(check_sample_weight(sample_weight, len(y)) > 0)


class CensoringModel:
    """Inverse-probability-of-censoring weights from the training outcome or from the test cohort itself.

    Parameters
    ----------
    y_train
        Outcome whose one censoring curve is taken for all; None: that of the cohort.
    weights
        ``"before"`` weights an event at z by 1/G(z-), the probability of having been able to see it; ``"at"`` by
        1/G(z), as scikit-survival does. They differ where events and censorings share a time.
    follow_up
        Groups of the cohort's patients, in their original order, each with its own censoring curve; ``y_train`` is not
        used then. Patients count at times until which at least 5 % of their group could have been followed, and at all
        times if four fifths of their group had had the event before that: nearly all of them are known to have had it.
        No weight in such a group exceeds 20.
    """

    def __init__(
        self, cohort: SortedCohort, y_train: Any | None, weights: CensoringWeights, follow_up: FollowUp | None = None
    ) -> None:
        if weights not in get_args(CensoringWeights):
            raise ValueError(f"censoring_weights is {weights!r}, but 'before' or 'at' is expected.")
        self.cohort = cohort
        self.weights = weights
        self.follow_up = follow_up
        self.train = None if y_train is None or follow_up is not None else censoring_curve(y_train)
        # Patients of each group in the order of the cohort; one slice for all if there are no groups.
        self.groups: list[Any] = [slice(None)]
        self._starts = [cohort.start]
        self._distinct = [cohort.distinct]
        self._places = [cohort.group]
        if follow_up is not None:
            labels = follow_up.groups[cohort.order]
            self.groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
            parts = [np.unique(cohort.time[rows], return_index=True, return_inverse=True) for rows in self.groups]
            self._distinct = [part[0] for part in parts]
            self._places = [part[2] for part in parts]
            self._starts = [
                np.append(part[1], len(rows)).astype(np.int64) for part, rows in zip(parts, self.groups, strict=True)
            ]
        self._lowest = [0.0] * len(self.groups)
        if follow_up is not None:
            self._lowest = [LOWEST_CENSORING * self._finished(k) for k in range(len(self.groups))]
        # Who counts until when is settled once, for all resamples.
        self._once = self.estimate(np.ones((1, len(cohort))))

    def _finished(self, group: int) -> bool:
        """Return whether few of a group were free of the event when less than 5 % of it could be followed on."""
        from dcsurv.metrics._kernels import product_limit

        event, start = self.cohort.event[self.groups[group]], self._starts[group]
        every = np.ones((1, len(event)))
        followed, free = np.empty((2, 1, len(start) - 1))
        product_limit(every, start, ~event, True, followed)
        product_limit(every, start, event, False, free)
        thin = np.flatnonzero(followed[0] < LOWEST_CENSORING)
        return bool(free[0, thin[0] if len(thin) else -1] <= _FINISHED)

    def estimate(self, weight: FloatArray) -> CensoringEstimate:
        """Return the censoring probabilities under each weighting, (B, n)."""
        return CensoringEstimate(self, weight)

    def counts(self, times: FloatArray) -> BoolArray:
        """Return which groups count at each time, (groups, m): at least 5 % could have been followed beyond it."""
        if self.follow_up is None:
            return np.ones((1, len(times)), dtype=bool)
        return np.array([self._once.later(k, times)[0] >= LOWEST_CENSORING for k in range(len(self.groups))])

    def share_counted(self, times: FloatArray) -> FloatArray:
        """Return the share of the patients who count at each time, (m,)."""
        sizes = [len(self.cohort.time[rows]) for rows in self.groups]
        out: FloatArray = np.average(self.counts(times), axis=0, weights=sizes)
        return out

    def usable(self, times: FloatArray, *, needs_cases: bool) -> BoolArray:
        """Return at which times the patients who count are enough for a metric, (m,)."""
        out = np.zeros(len(times), dtype=bool)
        cohort = self.cohort
        for rows, counts in zip(self.groups, self.counts(times), strict=True):
            time, event = cohort.time[rows], cohort.event[rows]
            first = time[event].min(initial=np.inf) if needs_cases else 0.0
            out |= counts & (times >= first) & (times < time[-1])
        return out & (times < self.runs_out())

    def runs_out(self) -> float:
        """Return the time from which on nothing can be weighted: G is 0, or lies beyond the training follow-up."""
        if self.train is None:
            ends = [_first_zero(times, g[0]) for times, g in zip(self._distinct, self._once.curves, strict=True)]
            return max(ends)
        end = _first_zero(self.train.times, self.train.values)
        return end if end < np.inf else float(np.nextafter(self.train.times[-1], np.inf))


def _first_zero(times: FloatArray, values: FloatArray) -> float:
    gone = times[values <= 0]
    return float(gone[0]) if len(gone) else np.inf


class CensoringEstimate:
    """The censoring probabilities of a cohort's groups under each of B weightings.

    Attributes
    ----------
    weight
        The weightings, (B, n).
    curves
        G of each group at its distinct times, (B, K); empty if one curve of training patients is used.
    """

    def __init__(self, model: CensoringModel, weight: FloatArray) -> None:
        from dcsurv.metrics._kernels import product_limit

        self.model, self.weight = model, weight
        self.curves: list[FloatArray] = []
        self._case: FloatArray | None = None
        lost = ~model.cohort.event
        if model.train is None:
            for rows, start, lowest in zip(model.groups, model._starts, model._lowest, strict=True):
                out = np.empty((len(weight), len(start) - 1))
                product_limit(np.ascontiguousarray(weight[:, rows]), start, lost[rows], True, out)
                self.curves.append(np.maximum(out, lowest, out=out))

    def later(self, group: int, times: FloatArray) -> FloatArray:
        """Return G(t) of a group at other times, (B, m)."""
        if self.model.train is not None:
            return np.broadcast_to(self.model.train(times), (len(self.weight), len(times)))
        return self._read(group, times, "right")

    def seen(self, group: int, times: FloatArray) -> FloatArray:
        """Return G(t-), or G(t), of a group at times of events of any group, (B, m)."""
        return self._read(group, times, "left" if self.model.weights == "before" else "right")

    def _read(self, group: int, times: FloatArray, side: Literal["left", "right"]) -> FloatArray:
        where = np.searchsorted(self.model._distinct[group], times, side=side)
        curve = self.curves[group]
        return np.concatenate([np.ones((len(curve), 1)), curve], axis=1)[:, where]

    def _at_time(self, group: int, t: float) -> FloatArray:
        """Return G(t) of a group at one time, (B, 1); what :meth:`later` returns, without its copies."""
        curve, passed = self.curves[group], int(self.model._distinct[group].searchsorted(t, side="right"))
        return curve[:, passed - 1 : passed] if passed else np.ones((len(curve), 1))

    def at_events(self) -> FloatArray:
        """Return G(z_i-) or G(z_i) of every patient in the own group, (B, n) or (1, n)."""
        model, cohort = self.model, self.model.cohort
        if model.train is not None:
            read = model.train.before if model.weights == "before" else model.train
            return np.where(cohort.time <= model.train.times[-1], read(cohort.time), 0.0)[None, :]
        out = np.empty_like(self.weight)
        for rows, curve, place in zip(model.groups, self.curves, model._places, strict=True):
            at = curve
            if model.weights == "before":
                at = np.concatenate([np.ones((len(at), 1)), at[:, :-1]], axis=1)
            out[:, rows] = at[:, place]
        return out

    def case_weights(self) -> FloatArray:
        """Return weight / G for events, 0 for censored patients and where G has run out, (B, n)."""
        if self._case is None:
            probability = self.at_events()
            use = np.broadcast_to(self.model.cohort.event & (probability > 0), self.weight.shape)
            self._case = np.divide(self.weight, probability, out=np.zeros_like(self.weight), where=use)
        return self._case

    def at(self, t: float) -> tuple[FloatArray, FloatArray]:
        """Return the weights of the patients as cases and as controls at one time, both (B, n).

        Without groups, those of the controls are not divided by G(t), which is the same for all.
        """
        model = self.model
        if model.follow_up is None:
            return self.case_weights(), self.weight
        factor = np.zeros_like(self.weight)
        for k, rows in enumerate(model.groups):
            if model._once._at_time(k, t)[0, 0] >= LOWEST_CENSORING:  # else the group does not count there
                g = self._at_time(k, t)
                factor[:, rows] = np.divide(1.0, g, out=np.zeros_like(g), where=g > 0)
        return self.case_weights() * (factor > 0), self.weight * factor

    def known(self, t: float) -> tuple[FloatArray, FloatArray]:
        """Return the weights of those whose state at a time is known, and of those who count at it, both (B, n).

        Weighted so, the patients whose state is known stand for all who count.
        """
        gone = self.model.cohort.time <= t
        case, control = self.at(t)
        if self.model.follow_up is None:
            control = self.weight / np.maximum(self.later(0, np.array([t])), 1e-12)
            return np.where(gone, case, control), self.weight
        return np.where(gone, case, control), np.where(control > 0, self.weight, 0.0)


def keep_usable(times: FloatArray, model: CensoringModel, *, what: str, needs_cases: bool = True) -> FloatArray:
    """Drop the times where a metric is undefined, and say so."""
    keep = model.usable(times, needs_cases=needs_cases)
    if keep.all():
        return times
    if not keep.any():
        cohort = model.cohort
        first = float(cohort.time[cohort.event][0]) if needs_cases else 0.0
        end = min(float(cohort.time[-1]), model.runs_out())
        raise ValueError(
            f"{what} cannot be computed at any of the times from {times.min():g} to {times.max():g} ({len(times)}): "
            f"it needs events before and patients under observation after a time, with a censoring weight, which "
            f"these data give from {first:g} to before {end:g}. Choose times in between."
        )
    lost = int((~keep).sum())
    warn(
        f"{what}: {lost} of {len(times)} times {'was' if lost == 1 else 'were'} left out, for lack of events before, "
        f"of patients after, or of a censoring weight; the last time used is {times[keep].max():g}."
    )
    return times[keep]
