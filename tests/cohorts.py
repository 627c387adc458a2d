"""Random cohorts with crossing curves, ties, heavy censoring and times beyond the grid, for the parity tests."""

from __future__ import annotations

import numpy as np

from dcsurv import SurvivalCurves, make_outcome


def random_cohort(seed, n=300, n_times=40, *, censoring=0.4, tied_times=False, tied_curves=False, beyond=False):
    """Return (outcome, curves); the curves of two patients cross about as often as not."""
    rng = np.random.default_rng(seed)
    time = rng.exponential(10, n) + 0.05
    if tied_times:
        time = np.ceil(time)
    event = rng.random(n) >= censoring
    end = np.quantile(time, 0.7) if beyond else time.max() * 1.01
    grid = np.sort(rng.uniform(0, end, n_times))
    grid[-1] = end
    hazard = rng.gamma(0.6, 0.1, (n, n_times))
    survival = np.exp(-np.cumsum(hazard, axis=1))
    if tied_curves:
        survival[rng.permutation(n)[: n // 2]] = survival[0]
        survival = np.round(survival, 2)
    return make_outcome(time, event), SurvivalCurves(grid, survival)


CASES = {
    "plain": {},
    "no censoring": {"censoring": 0.0},
    "heavy censoring": {"censoring": 0.9},
    "tied times": {"tied_times": True},
    "tied curves": {"tied_curves": True},
    "all ties": {"tied_times": True, "tied_curves": True, "censoring": 0.6},
    "beyond the grid": {"beyond": True},
    "few": {"n": 12, "n_times": 3, "tied_times": True},
}
