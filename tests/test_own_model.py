"""A model from outside: one file, found by the command line, tuning, files, ensembles, evaluation and the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dcsurv
from dcsurv.kinds import ModelKind, kind_named, register

TOY = '''
"""A model of our own: one exponential distribution per half of the patients, cut at the median of the first feature."""

from dataclasses import dataclass

import numpy as np

from dcsurv import ModelKind
from dcsurv.kinds import register
from dcsurv.models import SurvivalEstimator
from dcsurv.search_space import Float


@dataclass(kw_only=True, repr=False, eq=False)
class Halves(SurvivalEstimator):
    """Two exponential curves.

    Parameters
    ----------
    prior : float, default 1.0
        Events that both halves are taken to share.
    """

    prior: float = 1.0

    def fit_prepared(self, X, y, weight):
        self.cut_ = float(np.median(X[:, 0]))
        high = X[:, 0] > self.cut_
        overall = y["event"].sum() / y["time"].sum()
        self.rates_ = np.array([
            (y["event"][part].sum() + self.prior) / (y["time"][part].sum() + self.prior / overall)
            for part in (~high, high)
        ])
        self.times_ = np.linspace(0, y["time"].max(), 30)[1:]
        return {"cut": self.cut_}

    @property
    def nodes(self):
        return self.times_

    def survival_at_nodes(self, X):
        return np.exp(-np.outer(self.rates_[(X[:, 0] > self.cut_).astype(int)], self.times_))

    def get_state(self):
        return {"cut": self.cut_}, {"rates": self.rates_, "times": self.times_}

    def set_state(self, header, arrays):
        self.cut_, self.rates_, self.times_ = header["cut"], arrays["rates"], arrays["times"]


register(ModelKind(
    name="halves", model=Halves, meaning="two exponential curves", space={"prior": Float(0.1, 10.0, log=True)},
    quick={"prior": 2.0}, is_member=True, variants={"halves-strict": {"prior": 50.0}},
))
'''

USE = """
import json, sys
import numpy as np
import pandas as pd
from typer.testing import CliRunner
import dcsurv
from dcsurv.cli import app

rng = np.random.default_rng(0)
x = rng.normal(size=(200, 2))
time = rng.exponential(np.exp(-x[:, 0])) + 0.01
lost = rng.exponential(2, size=200) + 0.01
frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "days": np.minimum(time, lost), "died": (time <= lost).astype(int)})
frame[:150].to_csv("patients.csv", index=False)
frame[150:].to_csv("others.csv", index=False)
outcome = ["--time", "days", "--event", "died"]

def run(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exit_code:
        sys.exit(f"{words}: {done.output}")
    return done.output

said = {"models": run("models")}
fit = ["fit", "patients.csv", *outcome, "--bootstrap", 0, "--jobs", 1]
said["fit"] = run(*fit, "--model", "halves", "-o", "toy.safetensors", "--quick")
run(*fit, "--model", "calibrated-halves-strict", "-o", "many.safetensors", "--set", "n_members=2")
search = ["--trials", 3, "--folds", 2, "--jobs", 2, "-o", "s.json"]
said["tune"] = run("tune", "patients.csv", *outcome, "--model", "halves", *search)
run(*fit, "--settings", "s.json", "--model", "halves", "-o", "tuned.safetensors")
said["evaluate"] = run("evaluate", "toy.safetensors", "others.csv", *outcome, "--bootstrap", 0)
said["info"] = run("info", "many.safetensors")
run("predict", "many.safetensors", "others.csv", "-o", "p.csv")
run("report", "toy.safetensors", "others.csv", *outcome, "--bootstrap", 0, "-o", "r.html")
run("recalibrate", "toy.safetensors", "others.csv", *outcome, "-o", "local.safetensors")
X, y = frame[["a", "b"]], dcsurv.make_outcome(frame["days"], frame["died"])
toy, many, local, tuned = (dcsurv.load(f"{name}.safetensors") for name in ("toy", "many", "local", "tuned"))
toy.save("again.safetensors")
same = np.array_equal(dcsurv.load("again.safetensors").predict(X), toy.predict(X))
json.dump({
    "said": said, "prior": toy.prior, "same": bool(same), "member": many.estimator.prior, "members": len(many.members_),
    "local": local.display_name, "score": many.score(X, y), "tuned": tuned.prior,
    "settings": json.load(open("s.json"))["parameters"].get("prior", 1.0),
    "page": open("r.html", encoding="utf-8").read(), "doc": type(toy).__doc__,
}, open("out.json", "w"))
"""


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a fresh process says in which the toy is installed; the package is not told about it."""
    folder: Path = tmp_path_factory.mktemp("toy")
    (folder / "toy_model.py").write_text(TOY, encoding="utf-8")
    metadata = folder / "toy-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[dcsurv.extensions]\ntoy = toy_model\n", encoding="utf-8")
    path = os.pathsep.join([str(folder), str(Path(dcsurv.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", USE],
        cwd=folder, env={**os.environ, "PYTHONPATH": path, "COLUMNS": "160"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "out.json").read_text(encoding="utf-8"))


def test_the_command_line_fits_and_lists_the_toy(used: Any) -> None:
    assert "two exponential curves (also halves-strict)" in " ".join(used["said"]["models"].split())
    assert "toy.safetensors: Halves, fitted to all 150 patients" in used["said"]["fit"]
    assert used["prior"] == 2.0, "--quick takes the settings of the record"
    assert "C-td" in used["said"]["evaluate"]


def test_tuning_searches_the_space_of_the_record(used: Any) -> None:
    assert "prior" in used["said"]["tune"]
    assert used["tuned"] == pytest.approx(used["settings"])
    assert 0.1 <= used["tuned"] <= 10


def test_a_saved_toy_comes_back_alone_and_as_a_member(used: Any) -> None:
    assert used["same"]
    assert used["member"] == 50.0
    assert used["members"] == 2
    assert "CalibratedEnsemble (2 × Halves)" in used["said"]["info"]
    assert used["score"] > 0.6
    assert used["local"] == "Halves, recalibrated"


def test_the_report_and_the_docstring_know_the_toy(used: Any) -> None:
    assert "Halves, trained on 150 patients" in used["page"]
    assert "prior : float, default 1.0" in used["doc"]
    assert "time_unit : str or None, default None" in used["doc"]


def test_two_models_of_one_name_are_refused() -> None:
    class CoxPH(dcsurv.DCS):
        pass

    known = kind_named("coxph")
    with pytest.raises(ValueError, match="has one of its names"):
        register(ModelKind(name="mine", model=CoxPH, meaning="another CoxPH"))
    assert kind_named("coxph") is known
    assert register(known) is known, "the same class may come again"
