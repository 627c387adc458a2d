"""A model and a metric from outside, one file each: found by all that fit, search, keep, compute or show them."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dcsurv
from cohorts import random_cohort
from dcsurv import kinds
from dcsurv.kinds import ModelKind, kind_named, names, register
from dcsurv.metrics import (
    Metric,
    Prepared,
    catalogue,
    compare,
    evaluate,
    find_metric,
    from_function,
    list_metrics,
    register_metric,
)
from dcsurv.models import SurvivalEstimator
from dcsurv.persistence import ModelFileError

MODEL = '''
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

METRICS = '''
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
x = rng.normal(size=(200, 2))
time = rng.exponential(np.exp(-x[:, 0])) + 0.01
lost = rng.exponential(2, size=200) + 0.01
frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "days": np.minimum(time, lost), "died": (time <= lost).astype(int)})
frame[:140].to_csv("patients.csv", index=False)
frame[140:].to_csv("others.csv", index=False)
outcome = ["--time", "days", "--event", "died"]

def run(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exit_code:
        sys.exit(f"{words}: {done.output}")
    return done.output

said = {"models": run("models")}
fit = ["fit", "patients.csv", *outcome, "--evaluate", "none", "--jobs", 1]
said["fit"] = run(*fit, "--model", "halves", "-o", "toy.safetensors", "--quick")
run(*fit, "--model", "calibrated-halves-strict", "-o", "many.safetensors", "--set", "n_members=2")
search = ["--trials", 3, "--folds", 2, "--jobs", 2, "--criterion", "mean-miss", "-o", "s.json"]
said["tune"] = run("tune", "patients.csv", *outcome, "--model", "halves", *search)
run(*fit, "--settings", "s.json", "--model", "halves", "-o", "tuned.safetensors")
said["evaluate"] = run("evaluate", "toy.safetensors", "others.csv", *outcome, "--bootstrap", 5)
said["info"] = run("info", "many.safetensors")
run("predict", "many.safetensors", "others.csv", "-o", "p.csv")
run("recalibrate", "toy.safetensors", "others.csv", *outcome, "-o", "local.safetensors")

X, y = frame[["a", "b"]], dcsurv.make_outcome(frame["days"], frame["died"])
toy, many, local, tuned = (dcsurv.load(f"{name}.safetensors") for name in ("toy", "many", "local", "tuned"))
toy.save("again.safetensors")
same = np.array_equal(dcsurv.load("again.safetensors").predict(X), toy.predict(X))
report = dcsurv.write_report("r.html", toy, X[140:], y[140:], n_bootstrap=5)

import toy_metrics
curves = toy.predict_survival_function(X[140:])
table = dcsurv.metrics.evaluate(y[140:], curves, n_bootstrap=20, n_null=0)
found = tune(dcsurv.CoxPH(), X, y, n_trials=3, folds=2, space={"penalizer": Float(1e-3, 1.0)}, criterion="mean-miss")
refused = None
try:
    Criterion.make("known alive")
except ValueError as error:
    refused = str(error)
settings = json.load(open("s.json"))
json.dump({
    "said": said, "prior": toy.prior, "same": bool(same), "member": many.estimator.prior, "members": len(many.members_),
    "local": local.display_name, "score": many.score(X, y), "tuned": tuned.prior,
    "settings": settings["parameters"].get("prior", 1.0), "searched for": settings["criterion"],
    "page": open("r.html", encoding="utf-8").read(), "doc": type(toy).__doc__,
    "numbers": {key: report.numbers[key].get("others") for key in ("error", "calibration", "distribution")},
    "rows": json.loads(table.to_json(orient="records")), "by hand": toy_metrics.miss(y[140:], curves, np.ones(60)),
    "criterion": found.criterion.labels, "direction": found.criterion.directions,
    "trials": found.trials["Mean miss"].tolist(), "best": found.best_value, "refused": refused,
}, open("out.json", "w"))
"""

AT_HORIZONS = ("Calibration intercept", "Calibration slope", "E50", "E90", "ICI", "Known alive", "O/E")


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a fresh process says in which the toys are installed; the package is not told about them."""
    folder: Path = tmp_path_factory.mktemp("toys")
    for name, text in (("toy_model", MODEL), ("toy_metrics", METRICS)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        metadata = folder / f"{name}-0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n", encoding="utf-8")
        (metadata / "entry_points.txt").write_text(f"[dcsurv.extensions]\ntoy = {name}\n", encoding="utf-8")
    path = os.pathsep.join([str(folder), str(Path(dcsurv.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", USE],
        cwd=folder, env={**os.environ, "PYTHONPATH": path, "COLUMNS": "160"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "out.json").read_text(encoding="utf-8"))


# --- the model ---------------------------------------------------------------------------------------------------


def test_the_command_line_fits_and_lists_the_toy(used: Any) -> None:
    assert "two exponential curves (also halves-strict)" in " ".join(used["said"]["models"].split())
    assert "toy.safetensors: Halves, fitted to all 140 patients" in used["said"]["fit"]
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
    assert "Halves, trained on 140 patients" in used["page"]
    assert "prior : float, default 1.0" in used["doc"]
    assert "time_unit : str or None, default None" in used["doc"]


def test_two_models_of_one_name_are_refused() -> None:
    class CoxPH(dcsurv.DCS):
        pass

    known = kind_named("coxph")
    with pytest.raises(ValueError, match="has one of its names"):
        register(ModelKind(name="mine", model=CoxPH, meaning="another CoxPH"))
    assert kind_named("coxph") is known
    before = names()
    assert register(known) is known, "the same class may come again"
    assert names() == before


class Bare(SurvivalEstimator):
    """Lacks everything."""


@dataclass(kw_only=True, repr=False, eq=False)
class Whole(SurvivalEstimator):
    """Predicts the same for everybody."""

    k: int = 3
    shares: tuple[float, ...] = (0.5,)
    extra: Any = None

    def fit_prepared(self, X, y, weight):
        self.times_ = np.array([1.0, 2.0])
        return {}

    @property
    def nodes(self):
        return self.times_

    def survival_at_nodes(self, X):
        return np.tile([0.9, 0.8], (len(X), 1))

    def get_state(self):
        return dict(self.extra or {}), {"times": self.times_}

    def set_state(self, header, arrays):
        self.times_ = arrays["times"]


@pytest.fixture
def kept(monkeypatch):
    """Forget what a test registers."""
    names()  # registers those that there are
    monkeypatch.setattr(kinds, "_kinds", dict(kinds._kinds))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": "MyCap"}, "'MyCap' is no name of small letters"),
        ({"name": ""}, "'' is no name"),
        ({"variants": {"Whole-2": {}}}, "'Whole-2' is no name"),
        ({"variants": {"whole": {}}}, "the variant 'whole' has the name of the model"),
        ({"variants": {"coxph": {}}}, "'coxph' .* has one of its names, coxph"),
        ({"variants": {"dcs-log": {}}}, "'dcs' .* has one of its names, dcs-log"),
        ({"name": "dcs-log"}, "'dcs' .* has one of its names, dcs-log"),
        ({"name": "calibrated-whole"}, "'calibrated' .* has one of its names, calibrated-whole"),
        ({"model": dict}, "has no fit; derive from"),
        ({"model": Whole()}, "is no class; derive from"),
        ({"model": Bare}, "Bare lacks fit_prepared and get_state and nodes and set_state and survival_at_nodes"),
        ({"variants": {"whole-2": {"depth": 2}}}, "'whole-2' sets 'depth', which is no parameter of Whole"),
        ({"quick": {"depth": 2}}, "'quick' sets 'depth'"),
    ],
)
def test_records_of_models_that_cannot_work_are_refused(kept, changed, words):
    before = names()
    with pytest.raises(ValueError, match=words):
        register(ModelKind(**{"name": "whole", "model": Whole, "meaning": "the same for everybody", **changed}))
    assert names() == before
    register(ModelKind(name="whole", model=Whole, meaning="the same", variants={"whole-2": {"k": 2}}))
    assert kinds.make_model("WHOLE-2").k == 2


def test_a_class_that_lacks_a_method_is_refused_before_the_fit():
    y, _ = random_cohort(3, n=40)
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(ValueError, match="Bare cannot be fitted: its class lacks fit_prepared and"):
        Bare().fit(X, y)


def test_parameters_that_a_file_could_not_hold_are_refused_before_the_fit(kept, tmp_path):
    y, _ = random_cohort(3, n=40)
    X = np.random.default_rng(0).normal(size=(40, 2))
    for value in (5.0, np.float64(5), True, "5"):
        with pytest.raises(ValueError, match=f"^k is {re.escape(repr(value))}, but int is expected.$"):
            Whole(k=value).fit(X, y)
    register(ModelKind(name="whole", model=Whole, meaning="the same", is_member=True))
    model = Whole(k=np.int64(5), shares=[1, 2.5]).fit(X, y)
    model.save(tmp_path / "m.safetensors")
    assert dcsurv.load(tmp_path / "m.safetensors").k == 5
    for state in ({"parameters": {}}, {"training": {}, "kind": "CoxPH"}):
        for one in (Whole(extra=state), dcsurv.CalibratedEnsemble(estimator=Whole(extra=state), n_members=2)):
            with pytest.raises(
                ModelFileError, match=r"get_state of Whole returns ('kind', 'training'|'parameters'), which"
            ):
                one.fit(X, y).save(tmp_path / "n.safetensors")


def test_an_ensemble_whose_extension_is_not_installed_says_so(kept, monkeypatch, tmp_path):
    y, _ = random_cohort(3, n=60)
    X = np.random.default_rng(0).normal(size=(60, 2))
    register(ModelKind(name="whole", model=Whole, meaning="the same", is_member=True))
    Whole().fit(X, y).save(tmp_path / "one.safetensors")
    dcsurv.CalibratedEnsemble(estimator=Whole(), n_members=2).fit(X, y).save(tmp_path / "many.safetensors")
    monkeypatch.delitem(kinds._kinds, "whole")
    for name, what in (("one", "it"), ("many", "a member")):
        with pytest.raises(ModelFileError, match=f"{what} is of the unknown kind 'Whole'; known are.*install that.$"):
            dcsurv.load(tmp_path / f"{name}.safetensors")


# --- the metrics -------------------------------------------------------------------------------------------------


def test_evaluate_finds_the_metrics(used):
    rows = {(row["metric"], row["horizon"]): row for row in used["rows"]}
    names = list(dict.fromkeys(row["metric"] for row in used["rows"]))
    assert names == ["C-td", "CDAUC", "IBS", "Mean miss", "DDC", *AT_HORIZONS]
    toy = rows["Mean miss", None]
    assert toy["value"] == pytest.approx(used["by hand"])
    assert toy["lower"] < toy["value"] < toy["upper"]
    assert toy["convention"] == "mean restricted to the last node"
    assert [row["metric"] for row in used["rows"]].count("Known alive") == 3


def test_the_command_line_finds_the_metrics(used):
    shown = " ".join(used["said"]["evaluate"].split())
    assert "Mean miss Mean error of the mean of those with the event. Lower is better." in shown
    assert "Known alive at " in shown


def test_tuning_finds_the_metrics_also_in_other_processes(used):
    assert used["searched for"] == ["Mean miss"]
    assert used["criterion"] == ["Mean miss"]
    assert used["direction"] == ["minimize"]
    assert used["best"] == min(used["trials"])
    assert "there are C-td, CDAUC, IBS, Mean miss, DDC" in used["refused"]


def test_the_report_finds_the_metrics(used):
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


def undefined(y, curves, sample_weight):
    return np.nan


def test_a_metric_decides_a_validation_only_if_it_says_so_and_is_defined():
    y, _ = random_cohort(3, n=150)
    X = np.random.default_rng(0).normal(size=(len(y), 2))
    plain = Metric("Share", "error", "lower", "Share of events.", "weights count", from_function(share_of_events))
    empty = Metric("Empty", "error", "lower", "Nothing.", "none", from_function(undefined), decides=True)
    shown = {}
    for name, more in {"alone": [], "beside": [plain, empty]}.items():
        found = dcsurv.validate(
            dcsurv.SplineCox(), X, y, metrics=["C-td", "IBS", *more], resamples=0, repeats=1, folds=2
        )
        shown[name] = found
    assert shown["beside"].verdict == shown["alone"].verdict
    assert "hold for all 2 together" in shown["beside"].verdict.rests_on
    table = shown["beside"].comparison.set_index("metric")
    assert table.index[table["decides"]].tolist() == ["C-td", "IBS"]
    assert dataclasses.replace(plain, decides=True).decides
    only = dcsurv.validate(dcsurv.SplineCox(), X, y, metrics=[empty], resamples=0, repeats=1, folds=2).verdict
    assert only.text == "no clear difference"
    assert "no metric that decides is defined in both" in only.rests_on
    with pytest.raises(ValueError, match="decides=True of the metric 'Share': only discrimination and error"):
        dataclasses.replace(plain, decides=True, aspect="calibration")
    assert [metric.name for metric in list_metrics() if metric.decides] == ["C-td", "CDAUC", "IBS"]


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


def of_the_events(y, curves, sample_weight):
    return float(np.average(1 - curves.at_own(y["time"]), weights=sample_weight))


def fails(setting):
    raise RuntimeError("no such file.")


def test_a_metric_that_fails_is_named():
    y, curves = random_cohort(3, n=60)

    def of(prepare, **more):
        return Metric("Odd", "error", "lower", "Odd.", "none", prepare, **more)

    named = "the metric 'Odd' from the module 'test_own' "
    for one, words in {
        of(fails): "failed with RuntimeError: no such file. Repair it, or leave",
        of(lambda setting: Prepared(fails)): "failed with RuntimeError: no such file",
        of(from_function(lambda y, curves, weight: [1, 2])): r"of the shape \(1, 2\) where \(1,\) is",
        of(lambda setting: 0.5): "returned float where a Prepared is expected",
        of(lambda setting: Prepared(lambda weighting: np.ones(4))): r"of the shape \(4,\) where \(1,\)",
        of(lambda setting: Prepared(lambda weighting: np.ones(1), horizons=(1.0,)), per_horizon=True): r"\(1, 1\) is",
    }.items():
        with pytest.raises(catalogue.MetricError, match=named + ".*" + words):
            evaluate(y, curves, metrics=["C-td", one])
    with pytest.raises(ValueError, match="per_horizon=True of the metric 'Odd': from_function makes a metric of one"):
        of(from_function(undefined), per_horizon=True)


def test_undefined_in_every_resample_is_not_explained_by_few_events():
    y, curves = random_cohort(3, n=60)
    one = Metric("Empty", "error", "lower", "Nothing.", "none", from_function(undefined))
    with pytest.warns(UserWarning, match="^Empty was undefined in all 3 resamples; its interval is left out.$"):
        evaluate(y, curves, metrics=[one], n_bootstrap=3)


def test_the_null_is_looked_at_from_the_worse_side():
    y, curves = random_cohort(3, n=60)

    def p_value(better, sign):
        prepare = from_function(lambda *given: sign * of_the_events(*given))
        one = Metric("Risk", "error", better, "Risk.", "none", prepare, null=True)
        return evaluate(y, curves, metrics=[one], n_null=50)["p_value"].iloc[0]

    assert p_value("higher", -1) == p_value("lower", 1) == p_value("zero", -1)
    assert p_value("higher", 1) + p_value("lower", 1) == pytest.approx(1 + 1 / 51)


def test_two_metrics_of_one_name_are_refused_where_they_are_asked_for():
    y, curves = random_cohort(3, n=60)
    own = Metric("ibs", "error", "lower", "Share of events.", "weights count", from_function(share_of_events))
    for chosen in (["IBS", own], [own, "IBS"]):
        with pytest.raises(ValueError, match="two metrics of one name"):
            evaluate(y, curves, metrics=chosen)
    assert evaluate(y, curves, metrics=[own])["metric"].tolist() == ["ibs"]
    assert evaluate(y, curves, metrics=["IBS", "ibs"])["metric"].tolist() == ["IBS"]


def test_records_travel_to_other_processes(own):
    for metric in list_metrics():
        assert pickle.loads(pickle.dumps(metric)).name == metric.name


def test_the_paper_has_metrics_of_its_own():
    assert [metric.name for metric in list_metrics("paper")] == ["C-td", "CDAUC", "DDC"]
    y, curves = random_cohort(4, n=60)
    with pytest.raises(ValueError, match=r"metrics holds \['ibs'\], but in the paper convention there are"):
        evaluate(y, curves, y, metrics=["ibs"], convention="paper")
