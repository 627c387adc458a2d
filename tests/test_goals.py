"""What the goals are judged by: the ICI that a perfect model would score, and the rows that are there."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dcsurv import CalibratedEnsemble, SurvivalCurves, train_test_indices
from dcsurv.datasets import load, simulate
from dcsurv.experiments.plan import CALIBRATED, Plan
from dcsurv.experiments.reproduced_tables import repeated_tables
from dcsurv.experiments.store import ResultStore
from dcsurv.experiments.tables import METRICS
from dcsurv.metrics import ddc, ddc_floor

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import ici_floor
import update_readme

# --- what a perfect model would score -----------------------------------------------------------------------------


def test_outcomes_drawn_from_curves_are_like_those_of_the_cohort():
    cohort = simulate("independent", 400)
    rng, groups = np.random.default_rng(0), np.zeros(400, dtype=int)
    drawn = [ici_floor.drawn_outcome(cohort.y, cohort.truth, groups, rng) for _ in range(20)]
    assert np.mean([y["event"].mean() for y in drawn]) == pytest.approx(cohort.y["event"].mean(), abs=0.03)
    # The truth is calibrated on what was drawn from it, as well as a perfect model can be on so few.
    assert np.mean([ddc(y, cohort.truth) for y in drawn]) == pytest.approx(ddc_floor(cohort.y, cohort.truth), rel=0.3)
    assert max(y["time"].max() for y in drawn) <= cohort.y["time"].max()


def test_the_floor_of_ici_is_above_0_and_falls_with_the_number_of_patients():
    few, many = (
        ici_floor.floor(one.y, one.truth, one.y, one.X, draws=8)
        for one in (simulate("independent", 150), simulate("independent", 2400))
    )
    assert [row["quartile"] for row in few] == [1, 2, 3]
    for small_one, large_one in zip(few, many, strict=True):
        assert 0 < large_one["floor"] < small_one["floor"] < small_one["p95"]


def test_the_floor_follows_groups_of_alike_follow_up():
    cohort = simulate("staggered", 600)
    rows = ici_floor.floor(cohort.y, cohort.truth, cohort.y, cohort.X, draws=4)
    assert all(0 < row["floor"] <= row["p95"] < 0.2 for row in rows)


def test_curves_that_are_kept_are_not_fitted_again(tmp_path, monkeypatch):
    _, y = load("metabric")
    _, test = train_test_indices(y, random_state=0)
    times = np.linspace(500, 9000, 20)
    curves = SurvivalCurves(times, np.exp(-np.outer(np.linspace(0.5, 2, len(test)), times / 5000)))
    task = Plan(["metabric"], [CALIBRATED], [0], n_bootstrap=50).tasks()[0]
    store = ResultStore(tmp_path / "run")
    store.prepare()
    store.write(task.key, {}, curves)
    monkeypatch.setattr(CalibratedEnsemble, "fit", lambda *_: pytest.fail("fitted"))
    words = [
        "ici_floor.py",
        "--folder",
        str(tmp_path / "run"),
        "--draws",
        "2",
        "--splits",
        "1",
        "--dataset",
        "metabric",
    ]
    monkeypatch.setattr(sys, "argv", [*words, "--output", str(tmp_path / "floor.csv")])
    ici_floor.main()
    ici_floor.main()
    table = pd.read_csv(tmp_path / "floor.csv")
    assert table["key"].tolist() == [task.key] * 3
    assert table["found"].gt(table["p95"]).any(), "these curves are not true"


# --- the goals ----------------------------------------------------------------------------------------------------


def test_goals_are_judged_on_the_rows_that_are_there(tmp_path, monkeypatch):
    names = (*METRICS, "marginal CDAUC", "marginal IBS")
    rows = [
        {"dataset": dataset, "model": model, "split": split, "key": f"{model}{split}", "fit_seconds": 1.0,
         "split_sha256": str(split), **dict.fromkeys(names, value + 0.01 * split)}
        for dataset in ("support", "metabric", "flchain")
        for model, value, splits in ((CALIBRATED, 0.7, 4), ("CoxPH", 0.72, 4), ("DRSA", 0.69, 2))
        for split in range(splits)
    ]  # fmt: skip
    monkeypatch.setattr(update_readme, "RESULTS", tmp_path)
    folder = tmp_path / "calibrated"
    for table in repeated_tables(pd.DataFrame(rows)):
        table.write(folder / "tables")
    text = update_readme.goals()
    assert "| SUPPORT | C-td | 0.7150 | at least 0.643: yes | at least 0.648: yes | 0.7350 (CoxPH) |  |" in text
    assert "| FLCHAIN | CDAUC | 0.7150 |  | at least 0.832: no, 0.1170 away |" in text
    # Both have two splits in common, on which DRSA is lower by 0.01, whatever the means over all are.
    assert "lowest of all rows, on common splits: no, 0.0100 away from DRSA" in text
    assert "0.6950 (DRSA, 2 splits)" in text
    assert "what a perfect model scores: not computed yet" in text
    floors = [
        {"dataset": "metabric", "split": split, "quartile": 3, "floor": 0.03 + split / 100, "p95": 0.72}
        for split in (0, 1)
    ]
    pd.DataFrame(floors).to_csv(folder / "ici-floor.csv", index=False)
    assert "a perfect model: 0.0350, 95th percentile 0.7200; within: yes" in update_readme.goals()
    others = [row for row in rows if row["model"] != CALIBRATED]
    for table in repeated_tables(pd.DataFrame(others)):
        table.write(folder / "tables")
    assert update_readme.goals() == "The run is not committed yet."
