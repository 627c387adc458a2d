"""Metrics against pycox and scikit-survival: C-td, CDAUC, and a bootstrap of four metrics at once."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import numpy as np

from dcsurv import SurvivalCurves, make_outcome
from dcsurv.metrics import auc as our_auc
from dcsurv.metrics import brier as our_brier
from dcsurv.metrics import concordance_index_td, cumulative_dynamic_auc, ddc, evaluate
from dcsurv.metrics.inputs import SortedCohort
from timing import best_seconds, named, peak_memory_gb, seconds


def cohort(n: int, n_nodes: int, events: float = 0.6, seed: int = 0):
    """Return an outcome and crossing curves."""
    rng = np.random.default_rng(seed)
    time = rng.exponential(10, n) + 0.01
    y = make_outcome(time, rng.random(n) < events)
    hazard = rng.gamma(1.0, 2 / n_nodes, (n, n_nodes))
    return y, SurvivalCurves(np.linspace(0, time.max(), n_nodes + 1)[1:], np.exp(-np.cumsum(hazard, axis=1)))


def ctd_vs_pycox(n: int = 20_000, n_nodes: int = 200) -> dict[str, object]:
    from pycox.evaluation.concordance import concordance_td

    y, curves = cohort(n, n_nodes)
    table = np.ascontiguousarray(curves.values.T)
    index = np.clip(np.searchsorted(curves.times, y["time"], side="right") - 1, 0, n_nodes - 1)

    def peer() -> float:
        return concordance_td(y["time"], y["event"], table, index, "adj_antolini")

    return named("ctd_vs_pycox", *best_seconds(lambda: concordance_index_td(y, curves), peer, turns=3))


def cdauc_vs_sksurv(n: int = 20_000, n_times: int = 50) -> dict[str, object]:
    from sksurv.metrics import cumulative_dynamic_auc as peer
    from sksurv.util import Surv

    y, curves = cohort(n, 200)
    surv = Surv.from_arrays(y["event"], y["time"])
    times = np.linspace(*np.quantile(y["time"], [0.02, 0.95]), n_times)
    risk = 1 - curves.evaluate(times)
    same = {"times": times, "censoring_weights": "at", "censoring": "marginal"}  # the peer's weights
    ours = cumulative_dynamic_auc(y, curves, **same).mean
    assert abs(ours - peer(surv, surv, risk, times)[1]) < 1e-9, "both sides must compute the same number"
    timed = best_seconds(
        lambda: cumulative_dynamic_auc(y, curves, **same),
        lambda: peer(surv, surv, risk, times),
    )
    return named("cdauc_vs_sksurv", *timed)


def bootstrap_vs_loop(n: int = 1775, n_bootstrap: int = 1000, loops: int = 20) -> dict[str, object]:
    """C-td, CDAUC, DDC and integrated Brier score of resampled cohorts; the loop is timed on some and scaled up."""
    from pycox.evaluation.concordance import concordance_td
    from sksurv.metrics import cumulative_dynamic_auc as peer_auc
    from sksurv.metrics import integrated_brier_score as peer_brier
    from sksurv.util import Surv

    y, curves = cohort(n, 100, events=0.68)
    whole = SortedCohort(y)
    auc_times, brier_times = our_auc.default_times(whole), our_brier.default_times(whole)
    rng = np.random.default_rng(0)

    def loop() -> None:
        for _ in range(loops):
            drawn = rng.integers(0, n, n)
            some, predicted = y[drawn], curves[drawn]
            surv = Surv.from_arrays(some["event"], some["time"])
            last = some["time"].max()
            index = np.clip(np.searchsorted(curves.times, some["time"], side="right") - 1, 0, len(curves.times) - 1)
            concordance_td(some["time"], some["event"], np.ascontiguousarray(predicted.values.T), index)
            times = auc_times[(auc_times < last) & (auc_times >= some["time"].min())]
            peer_auc(surv, surv, 1 - predicted.evaluate(times), times)
            times = brier_times[(brier_times < last) & (brier_times >= some["time"].min())]
            peer_brier(surv, surv, predicted.evaluate(times), times)
            ddc(some, predicted)  # neither package has it: ours stands on both sides

    def ours() -> None:
        evaluate(y, curves, n_bootstrap=n_bootstrap, metrics=["C-td", "CDAUC", "DDC", "IBS"], n_null=0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mine, some = best_seconds(ours, loop, turns=3)
    return named("bootstrap_vs_loop", mine, some * n_bootstrap / loops)


def large_cohort(n: int = 100_000, n_nodes: int = 50) -> dict[str, float]:
    """C-td and CDAUC at n = 100,000, in a process of its own: its peak memory, where n x n bytes would be 10 GB."""
    if "large_cohort" not in sys.argv:
        child = subprocess.run([sys.executable, __file__, "large_cohort"], check=True, capture_output=True, text=True)
        return json.loads(child.stdout)
    y, curves = cohort(n, n_nodes)
    spent = seconds(lambda: (concordance_index_td(y, curves), cumulative_dynamic_auc(y, curves)))
    return {"seconds": spent, "peak_memory_gb": peak_memory_gb()}


def run() -> dict[str, object]:
    return {**ctd_vs_pycox(), **cdauc_vs_sksurv(), **bootstrap_vs_loop(), "metrics_at_100000": large_cohort()}


if __name__ == "__main__":
    print(json.dumps(large_cohort() if "large_cohort" in sys.argv else run(), indent=2))
