"""Bounds of the time to the event itself, by conformal risk control with censoring weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np

from dcsurv.curves import SurvivalCurves
from dcsurv.nonparametric import censoring_curve, kaplan_meier
from dcsurv.plain import Count, NotNegative, Share, declared
from dcsurv.target import FloatArray, IntArray, Outcome, make_outcome

# Shares of patients whose time may lie outside, for which a summary is kept. Others are rounded down to these.
_SHARES = np.arange(1, 200) / 200
# A patient seen to have the event stands for five at most: bounds end where fewer than a fifth could be followed.
_LOWEST_FOLLOWED = 0.2


class _State(msgspec.Struct):
    """What a file has to say of bounds."""

    early: list[Share]
    late: list[Share]
    until: list[NotNegative]
    patients: Count


class TimeInterval(NamedTuple):
    """Bounds of the time to the event.

    Attributes
    ----------
    lower : array of shape (n,)
        The event comes later than this.
    upper : array of shape (n,)
        And not after this; infinite where nobody was asked, or nobody was followed long enough to say.

    Examples
    --------
    >>> from dcsurv import CalibratedEnsemble, CoxPH
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 300)
    >>> model = CalibratedEnsemble(estimator=CoxPH(), n_members=2, random_state=0).fit(cohort.X, cohort.y)
    >>> bounds = model.predict_interval(cohort.X[:5], confidence=0.9)
    >>> bool((bounds.lower < model.predict_survival_function(cohort.X[:5]).quantile(0.3)).all()), bounds.upper[0]
    (True, np.float64(inf))
    """

    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True)
class TimeBounds:
    """How far curves must be read for a share of the patients to have the event outside, at most.

    Patients with a survival curve S have the event before the curve has fallen to q with a probability that is
    estimated from patients whom the model was not trained on, twice: by events before that, weighted by the inverse
    probability of having been followed so far, and by Kaplan-Meier of 1 - S at each patient's own time. The first is
    right if the censoring is, the second if the curves are, up to one map of all probabilities. The larger counts.

    Parameters
    ----------
    early : array of shape (199,)
        For each share of half a percent and its multiples, q: no more than the share have the event while S > q.
    late : array of shape (199,)
        The same for the event while S < q; 0 where nobody can say.
    until : array of shape (groups,)
        The time at which bounds end, of each group of alike follow-up.
    patients : int
        From how many patients.
    """

    early: FloatArray
    late: FloatArray
    until: FloatArray
    patients: int

    @classmethod
    def fit(cls, y: Outcome, survival: FloatArray, groups: IntArray, n_groups: int, weight: FloatArray | None) -> Self:
        """Find the bounds from outcomes, each patient's predicted survival at the own time, and groups.

        Parameters
        ----------
        y
            Outcomes of n patients.
        survival
            S(z | x) of each, from a model that was not trained on the patient, (n,).
        groups
            Which patients were followed alike, (n,): 0 to n_groups - 1.
        weight
            One weight per patient; None: all count the same.
        """
        own = np.ones(len(y)) if weight is None else weight / weight.mean()
        time, event = np.ascontiguousarray(y["time"]), np.ascontiguousarray(y["event"])
        until = np.zeros(n_groups)
        seen = np.zeros(len(y))  # what an event stands for
        for group in range(n_groups):
            rows = (groups == group) & (own > 0)
            if rows.any():
                g = censoring_curve(y[rows], sample_weight=own[rows])
                until[group] = _reached(g.times, g.values)
                inside = rows & event & (time <= until[group])
                seen[inside] = own[inside] / g.before(time[inside])
        most = max(float(seen.max()), float(own.max()))  # what a new patient may stand for
        order = np.argsort(-survival, kind="stable")
        level, total = survival[order], float(own.sum()) + float(own.max())
        counted = np.cumsum(seen[order])
        ranks = kaplan_meier(make_outcome(1.0 - survival, event), sample_weight=own)
        died = 1.0 - ranks(1.0 - level)
        # Those with the event while S >= level, at most and at least, a new patient counted against the bound.
        at_most = np.maximum((counted + most) / total, died + (1.0 - died) * float(own.max()) / total)
        at_least = np.minimum(counted / total, died * (1.0 - float(own.max()) / total))
        return cls(_early(level, at_most), _late(level, at_least), until, int((own > 0).sum()))

    def interval(self, curves: SurvivalCurves, groups: IntArray, outside: float, *, both: bool) -> TimeInterval:
        """Return the bounds of patients by their curves; a share ``outside`` of them has the event outside.

        Parameters
        ----------
        curves
            Of n patients.
        groups
            Which of the groups each belongs to, (n,).
        outside
            Share of patients, above 0 and below 1.
        both
            Whether it is split between both sides; otherwise there is a lower bound only.
        """
        end = self.until[groups]
        index = int(np.floor((outside / 2 if both else outside) / _SHARES[0] + 1e-9)) - 1
        upper = np.full(len(curves), np.inf)
        if index < 0:
            return TimeInterval(np.zeros(len(curves)), upper)
        reached = _time_at(curves, float(self.early[index]))
        lower = np.where(np.isnan(reached), end, np.minimum(reached, end))
        if both:
            reached = _time_at(curves, float(self.late[index]))
            upper = np.where(reached <= end, reached, np.inf)
        return TimeInterval(lower, upper)

    def get_state(self) -> dict[str, Any]:
        """Return plain numbers for a file; no patients."""
        arrays = {name: getattr(self, name).tolist() for name in ("early", "late", "until")}
        return {**arrays, "patients": self.patients}

    @classmethod
    def from_state(cls, state: dict[str, Any], n_groups: int) -> Self:
        """Rebuild from the file of a model that knows so many groups of alike follow-up."""
        declared(state, _State)
        early, late, until = (np.asarray(state[name], dtype=np.float64) for name in ("early", "late", "until"))
        levels = np.stack([early, late]) if early.shape == late.shape == _SHARES.shape else np.full((2, 1), np.nan)
        if not ((levels >= 0) & (levels <= 1)).all() or len(until) != n_groups:
            raise ValueError("bounds of times need levels of survival between 0 and 1, and times at which they end.")
        return cls(early, late, until, int(state["patients"]))


def _reached(times: FloatArray, followed: FloatArray) -> float:
    """Return the last time before which at least a fifth could be followed."""
    short = np.flatnonzero(followed < _LOWEST_FOLLOWED)
    return float(times[short[0]] if len(short) else times[-1])


def _early(level: FloatArray, at_most: FloatArray) -> FloatArray:
    """Return, for each share, the lowest level above which no more than the share have the event."""
    worst = np.maximum.accumulate(at_most)
    # Above level[k] lie those before k; if even the first is too many, only S = 1 is early enough.
    held = np.searchsorted(worst, _SHARES, side="right")
    out: FloatArray = np.where(held == 0, 1.0, np.append(level, 0.0)[held])
    return out


def _late(level: FloatArray, at_least: FloatArray) -> FloatArray:
    """Return, for each share, the highest level below which no more than the share have the event; 0 if none is."""
    safe = np.maximum.accumulate(at_least)
    found = np.searchsorted(safe, 1.0 - _SHARES, side="left")
    out: FloatArray = np.append(level, 0.0)[found]
    return out


def _time_at(curves: SurvivalCurves, level: float) -> FloatArray:
    if level <= 0.0:
        return np.full(len(curves), np.nan)
    return np.zeros(len(curves)) if level >= 1.0 else curves.quantile(1.0 - level)
