"""What a fit of the default model costs: against the version before and the field, from a thousand rows to a million.

python benchmarks/bench_fit.py [PART ...]    parts: before, peers, million, growth
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from before import NOW, run_before, run_piece

TURNS = 3
FEATURES = 20
LARGE, MILLION = 100_000, 1_000_000
# Sizes between which the growth of the time is measured, in rows and in features.
ROWS = (10_000, 100_000, 1_000_000)
COLUMNS, ROWS_OF_WIDE = (10, 100, 500, 2_000), 1_000

# A table of sys.argv: the training part of a cohort, or simulated, "rows x features"; then what is fitted to it. The
# model has been fitted to a few rows before, so that nothing is compiled or imported while the clock runs.
_DATA = """
import json, os, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, pandas as pd, torch
torch.set_num_threads(1)
import dcsurv

def table(name):
    if name in ("metabric", "support"):
        X, y = dcsurv.datasets.load(name)
        train, _ = dcsurv.train_test_indices(y, random_state=0)
        return X.iloc[train].reset_index(drop=True), y[train]
    n, p = map(int, name.split("x"))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p)).astype(np.float32)
    risk = 0.7 * X[:, 0] - 0.5 * X[:, 1] + 0.4 * np.maximum(X[:, 2], 0) * X[:, 3]
    event = 5 * rng.exponential(1, n) ** 0.8 * np.exp(-risk)
    end = rng.uniform(0, 12, n)
    y = dcsurv.make_outcome(np.minimum(event, end), event <= end)
    return pd.DataFrame(X, columns=[f"x{k}" for k in range(p)]), y

def memory():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024**2

X, y = table(sys.argv[1])
"""
_OURS = (
    _DATA
    + """
dcsurv.CalibratedEnsemble(random_state=0).fit(X[:400], y[:400])
before, start = memory(), time.process_time()
model = dcsurv.CalibratedEnsemble(random_state=0).fit(X, y)
result = {"cpu": time.process_time() - start, "gb_above_table": memory() - before, "weights": model.weights_}
"""
)
_PEERS = (
    _DATA
    + """
from sksurv.ensemble import GradientBoostingSurvivalAnalysis, RandomSurvivalForest
from dcsurv.preprocessing import Preprocessor
prepared = Preprocessor().fit(X).transform(X)
models = {
    "forest": RandomSurvivalForest(n_estimators=100, min_samples_leaf=15, n_jobs=1, random_state=0),
    "boosting": GradientBoostingSurvivalAnalysis(n_estimators=100, random_state=0),
}
result = {}
for name, model in models.items():
    start = time.process_time()
    model.fit(prepared, y)
    result[name] = time.process_time() - start
"""
)
_COX = (
    _DATA
    + """
from lifelines import CoxPHFitter
frame = X.assign(time=y["time"], event=y["event"])
CoxPHFitter().fit(frame[:1000], "time", "event")
start = time.process_time()
CoxPHFitter().fit(frame, "time", "event")
result = {"cpu": time.process_time() - start}
"""
)


def against_before() -> dict[str, Any]:
    """Return how many times less CPU a fit takes than in the version before, by turns; a large one once."""
    out = {}
    for name, turns in (("metabric", TURNS), ("support", TURNS), (f"{LARGE}x{FEATURES}", 1)):
        pairs = [(_now(name)["cpu"], run_before(_OURS, name)["result"]["cpu"]) for _ in range(turns)]
        now, before = (float(np.median(side)) for side in zip(*pairs, strict=True))
        out[name] = {"times_less_cpu": before / now, "now": now, "before": before}
    return {"fit_vs_before": out}


def against_peers() -> dict[str, Any]:
    """Return the CPU of a fit to SUPPORT as a share of that of scikit-survival's forest and boosting of 100 trees."""
    pairs = [(_now("support")["cpu"], run_piece(_PEERS, NOW, "support")["result"]) for _ in range(TURNS)]
    now = float(np.median([mine for mine, _ in pairs]))
    peers = {name: float(np.median([theirs[name] for _, theirs in pairs])) for name in ("forest", "boosting")}
    return {"fit_vs_peers": {"now": now, **{name: {"cpu": cpu, "ratio": now / cpu} for name, cpu in peers.items()}}}


def a_million() -> dict[str, Any]:
    """Return CPU and memory of a fit to a million rows, and the CPU as a multiple of that of lifelines' CoxPH."""
    name = f"{MILLION}x{FEATURES}"
    now, cox = _now(name), run_piece(_COX, NOW, name)["result"]["cpu"]
    return {"fit_of_a_million": {**now, "lifelines_cox": cox, "times_cox": now["cpu"] / cox}}


def growth() -> dict[str, Any]:
    """Return the exponents of CPU in rows and in features."""
    tables = {
        "rows": {n: f"{n}x{FEATURES}" for n in ROWS},
        "features": {p: f"{ROWS_OF_WIDE}x{p}" for p in COLUMNS},
    }
    out = {}
    for what, names in tables.items():
        cpu = {size: _now(name)["cpu"] for size, name in names.items()}
        exponent = float(np.polyfit(np.log(list(cpu)), np.log(list(cpu.values())), 1)[0])
        out[what] = {"exponent": exponent, "cpu": {str(size): seconds for size, seconds in cpu.items()}}
    return {"fit_growth": out}


def _now(name: str) -> dict[str, Any]:
    result: dict[str, Any] = run_piece(_OURS, NOW, name)["result"]
    return result


PARTS = {"before": against_before, "peers": against_peers, "million": a_million, "growth": growth}


def run(parts: list[str] | None = None) -> dict[str, Any]:
    """Return what the parts measured; all of them take about an hour, most of it the version before."""
    return {key: value for part in parts or PARTS for key, value in PARTS[part]().items()}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1:]), indent=2))
