"""A metric from outside: one file, found by everything that computes, shows or searches metrics."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dcsurv
from cohorts import random_cohort
from dcsurv.metrics import (
    Metric,
    catalogue,
    compare,
    evaluate,
    find_metric,
    from_function,
    list_metrics,
    register_metric,
)

TOY = '''
"""Two metrics of our own: the error of the mean, and the share of patients known to be alive at a horizon."""

import numpy as np

from dcsurv.metrics import Metric, Prepared, from_function, register_metric


def miss(y, curves, sample_weight):
    error = np.abs(curves.rmst() - y["time"])
    return np.average(error[y["event"]], weights=sample_weight[y["event"]])


def prepare_alive(setting):
    alive = setting.cohort.time > setting.horizons[:, None]

    def values(weighting):
        return alive @ weighting.weight.T / weighting.weight.sum(axis=1)

    return Prepared(values, horizons=tuple(setting.horizons.tolist()))


register_metric(Metric(
    name="Mean miss", aspect="error", better="lower", meaning="Mean error of the mean of those with the event.",
    convention="mean restricted to the last node", prepare=from_function(miss),
))
register_metric(Metric(
    name="Known alive", aspect="calibration", better="higher", meaning="Share of the patients seen after a horizon.",
    convention="no weights", prepare=prepare_alive, per_horizon=True,
))
'''

USE = """
import json, sys
import numpy as np
import pandas as pd
from typer.testing import CliRunner
import dcsurv
from dcsurv.cli import app
from dcsurv.experiments.tuning import Criterion, Float, tune

rng = np.random.default_rng(0)
x = rng.normal(size=(160, 2))
time = rng.exponential(np.exp(-x[:, 0])) + 0.01
lost = rng.exponential(2, size=160) + 0.01
frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "days": np.minimum(time, lost), "died": (time <= lost).astype(int)})
frame.to_csv("patients.csv", index=False)
X, y = frame[["a", "b"]], dcsurv.make_outcome(frame["days"], frame["died"])
model = dcsurv.CoxPH().fit(X[:100], y[:100])
model.save("cox.safetensors")
table = dcsurv.metrics.evaluate(y[100:], model.predict_survival_function(X[100:]), n_bootstrap=20)
outcome = ["--time", "days", "--event", "died", "--bootstrap", "5"]
shown = CliRunner().invoke(app, ["evaluate", "cox.safetensors", "patients.csv", *outcome])
found = tune(dcsurv.CoxPH(), X, y, n_trials=3, folds=2, workers=1, space={"penalizer": Float(1e-3, 1.0)},
             criterion="mean-miss")
refused = None
try:
    Criterion.make("known alive")
except ValueError as error:
    refused = str(error)
report = dcsurv.write_report("report.html", model, X[100:], y[100:], n_bootstrap=5)
import toy_metric
curves = model.predict_survival_function(X[100:])
json.dump({
    "rows": json.loads(table.to_json(orient="records")), "by hand": toy_metric.miss(y[100:], curves, np.ones(60)),
    "shown": shown.stdout, "exit": shown.exit_code, "criterion": found.criterion.labels,
    "direction": found.criterion.directions, "trials": found.trials["Mean miss"].tolist(), "best": found.best_value,
    "refused": refused, "page": open("report.html", encoding="utf-8").read(),
    "numbers": {key: report.numbers[key].get("others") for key in ("error", "calibration", "distribution")},
}, sys.stderr)
"""


AT_HORIZONS = ("Calibration intercept", "Calibration slope", "E50", "E90", "ICI", "Known alive", "O/E")


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    """What a fresh process says in which the toy is installed; the package is not told about it."""
    folder: Path = tmp_path_factory.mktemp("toy")
    (folder / "toy_metric.py").write_text(TOY, encoding="utf-8")
    metadata = folder / "toy-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[dcsurv.extensions]\ntoy = toy_metric\n", encoding="utf-8")
    path = os.pathsep.join([str(folder), str(Path(dcsurv.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", USE],
        cwd=folder, env={**os.environ, "PYTHONPATH": path, "COLUMNS": "160"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    try:
        return json.loads(done.stderr.splitlines()[-1])
    except (ValueError, IndexError):
        pytest.fail(done.stderr)


def test_evaluate_finds_the_toy(used):
    rows = {(row["metric"], row["horizon"]): row for row in used["rows"]}
    names = list(dict.fromkeys(row["metric"] for row in used["rows"]))
    assert names == ["C-td", "CDAUC", "IBS", "Mean miss", "DDC", *AT_HORIZONS]
    toy = rows["Mean miss", None]
    assert toy["value"] == pytest.approx(used["by hand"])
    assert toy["lower"] < toy["value"] < toy["upper"]
    assert toy["convention"] == "mean restricted to the last node"
    assert [row["metric"] for row in used["rows"]].count("Known alive") == 3


def test_the_command_line_finds_the_toy(used):
    assert used["exit"] == 0, used["shown"]
    shown = " ".join(used["shown"].split())
    assert "Mean miss Mean error of the mean of those with the event. Lower is better." in shown
    assert "Known alive at " in shown


def test_tuning_finds_the_toy_also_in_other_processes(used):
    assert used["criterion"] == ["Mean miss"]
    assert used["direction"] == ["minimize"]
    assert used["best"] == min(used["trials"])
    assert "there are C-td, CDAUC, IBS, Mean miss, DDC" in used["refused"]


def test_the_report_finds_the_toy(used):
    assert [row["metric"] for row in used["numbers"]["error"]] == ["Mean miss"]
    assert [row["metric"].partition(" at ")[0] for row in used["numbers"]["calibration"]] == ["Known alive"] * 3
    assert used["numbers"]["distribution"] is None
    assert "Mean error of the mean of those with the event. Lower is better." in used["page"]


@pytest.fixture
def own(monkeypatch):
    """A metric that was registered in this process and is forgotten after the test."""
    monkeypatch.setattr(catalogue, "_RECORDS", dict(catalogue._RECORDS))
    return register_metric(
        Metric("Share", "error", "lower", "Share of events.", "weights count", from_function(share_of_events))
    )


def share_of_events(y, curves, sample_weight):
    return np.average(y["event"], weights=sample_weight)


def test_weights_and_resamples_of_a_plain_function_are_in_the_order_of_the_patients(own):
    y, curves = random_cohort(3, n=80)
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    table = evaluate(y, curves, metrics=["share"], sample_weight=weight)
    assert table["value"].tolist() == pytest.approx([np.average(y["event"], weights=weight)])
    gaps = compare(y, {"a": curves, "b": curves[::-1]}, n_bootstrap=30, metrics=["Share", "C-td"])
    assert gaps["metric"].tolist() == ["C-td", "Share"]
    assert gaps["difference"].iloc[1] == gaps["lower"].iloc[1] == gaps["upper"].iloc[1] == 0
    draws = evaluate(y, curves, n_bootstrap=400, metrics=["share"]).iloc[0]
    share = y["event"].mean()
    assert draws["sd"] == pytest.approx(np.sqrt(share * (1 - share) / len(y)), rel=0.15)


def test_records_are_found_by_name_and_kept_apart(own):
    assert find_metric("c_td") is find_metric("C-td") is find_metric("CTD")
    assert find_metric("oe").name == "O/E"
    with pytest.raises(ValueError, match=r"no metric 'AIC'; there are C-td, CDAUC, IBS, Share, DDC, Cal"):
        find_metric("AIC")
    with pytest.raises(ValueError, match="a metric 'Share' already"):
        register_metric(dataclasses.replace(own, name="SHARE"))
    changed = register_metric(dataclasses.replace(own, meaning="Another."), replace=True)
    assert find_metric("share") is changed
    with pytest.raises(ValueError, match="better of the metric 'New' is 'up', but one of higher, lower, one"):
        dataclasses.replace(own, name="New", better="up")
    with pytest.raises(ValueError, match="needs a name"):
        dataclasses.replace(own, name="-")


def test_records_travel_to_other_processes(own):
    for metric in list_metrics():
        assert pickle.loads(pickle.dumps(metric)).name == metric.name


def test_the_paper_has_metrics_of_its_own():
    assert [metric.name for metric in list_metrics("paper")] == ["C-td", "CDAUC", "DDC"]
    y, curves = random_cohort(4, n=60)
    with pytest.raises(ValueError, match=r"metrics holds \['ibs'\], but in the paper convention there are"):
        evaluate(y, curves, y, metrics=["ibs"], convention="paper")
