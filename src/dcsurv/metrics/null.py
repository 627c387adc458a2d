"""What a perfect model would score: outcomes drawn from the curves themselves, censored as the patients were."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dcsurv.curves import SurvivalCurves
from dcsurv.metrics.setting import Setting
from dcsurv.nonparametric import censoring_curve
from dcsurv.target import FloatArray, unpack

# How many outcomes are drawn if nothing else is asked for: the smallest p-value is 1 / 401.
N_NULL = 400
# Halvings of the interval between two nodes in which a curve that a map bends reaches a level; then a straight line.
_HALVINGS = 8
# At most so many patients in all the drawn cohorts together, and never fewer cohorts than this.
_MOST_PATIENTS, _LEAST_DRAWS = 20_000_000, 100


def check_n_null(n_null: Any) -> int:
    """Return how many outcomes to draw: a whole number, or 0 for none."""
    if not isinstance(n_null, numbers.Integral) or isinstance(n_null, bool) or n_null < 0:
        raise ValueError(f"n_null is {n_null!r}, but a whole number of draws is expected, or 0 for none.")
    return int(n_null)


def p_text(p: float) -> str:
    """Print a p-value that was simulated, with no more digits than that gives."""
    return "< 0.01" if p < 0.01 else f"{p:.2f}"


def number_of_draws(asked: int, n_patients: int) -> int:
    """Return how many outcomes to draw: as many as asked for, fewer in a cohort so large that it would take minutes."""
    return min(asked, max(_LEAST_DRAWS, _MOST_PATIENTS // n_patients))


def drawn_outcomes(
    setting: Setting, sample_weight: FloatArray | None, n_draws: int, random_state: int
) -> Iterator[npt.NDArray[np.void]]:
    """Yield outcomes as the patients of a setting would have them if their curves were true.

    Event times come from the curves. Who was censored is censored at the same time again, unless the event comes
    before; who had the event is given a time of censoring from the censoring curve (of the own group) after it. So each
    patient keeps the follow-up that is known of it, whatever that depends on.
    """
    rng = np.random.default_rng([random_state, 1])
    time = unpack(setting.y)[0]
    inverse = _InverseCurves(setting.curves)
    followed = _FollowedUntil(setting, sample_weight, max(float(time.max()), inverse.end))
    for _ in range(n_draws):
        until = followed.draw(rng)
        level = rng.random(len(time))  # S(T|x) of an event time drawn from the curve is uniform
        seen = level >= setting.curves.at_own(until)
        out = np.empty_like(setting.y)
        out["event"] = seen
        out["time"] = np.where(seen, np.minimum(inverse(level), until), until)
        yield out


class _FollowedUntil:
    """Times at which patients would have been censored: their own where known, else drawn."""

    def __init__(self, setting: Setting, sample_weight: FloatArray | None, end: float) -> None:
        self.time, event = unpack(setting.y)
        groups = np.zeros(len(event), dtype=np.int64) if setting.follow_up is None else setting.follow_up.groups
        self.parts = []
        for label in np.unique(groups):
            own = groups == label
            g = censoring_curve(setting.y[own], sample_weight=None if sample_weight is None else sample_weight[own])
            rows = np.flatnonzero(own & event)
            # Beyond the last censoring nobody knows: such a patient is followed to the end.
            self.parts.append((rows, g.before(self.time[rows]), -g.values, np.append(g.times, end)))

    def draw(self, rng: np.random.Generator) -> FloatArray:
        out = self.time.copy()
        for rows, still_there, falling, times in self.parts:
            level = still_there * rng.random(len(rows))
            out[rows] = times[np.searchsorted(falling, -level, side="left")]
        return out


class _InverseCurves:
    """The first time at which each curve is at or below a level; the last node where it never is."""

    def __init__(self, curves: SurvivalCurves) -> None:
        self.curves = curves
        self.knots = curves.times if curves.times[0] == 0 else np.append(0.0, curves.times)
        self.table = curves.evaluate_rows(self.knots)
        self.end = float(self.knots[-1])

    def __call__(self, level: FloatArray) -> FloatArray:
        from dcsurv.metrics._calibration_kernels import first_at_or_below

        hit = np.empty(len(level), dtype=np.int64)
        first_at_or_below(self.table, level, hit)
        here = np.minimum(hit, len(self.knots) - 1)
        if self.curves.interpolation == "step":
            return self.knots[here]
        before = np.maximum(here - 1, 0)
        columns = np.arange(len(level))
        low, high = self.knots[before], self.knots[here]
        above, below = self.table[before, columns], self.table[here, columns]
        if self.curves.transform is not None or self.curves.interpolation != "linear":
            for _ in range(_HALVINGS):
                middle = (low + high) / 2
                value = self.curves.at_own(middle)
                reached = value <= level
                high, below = np.where(reached, middle, high), np.where(reached, value, below)
                low, above = np.where(reached, low, middle), np.where(reached, above, value)
        drop = above - below
        share = np.divide(above - level, drop, out=np.ones_like(drop), where=drop > 0)
        out: FloatArray = low + np.clip(share, 0.0, 1.0) * (high - low)
        return out
