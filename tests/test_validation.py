"""Validation: what it says against independent computations, what it survives, and what it refuses."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from sklearn.base import BaseEstimator
from typer.testing import CliRunner

import dcsurv
from dcsurv import CalibratedEnsemble, CoxPH, SplineCox, SurvivalCurves, fold_indices
from dcsurv.cli import app
from dcsurv.datasets import simulate
from dcsurv.metrics import evaluate, list_metrics
from dcsurv.validation import ValidationError
from dcsurv.validation.centres import random_effects
from dcsurv.validation.estimates import optimism
from dcsurv.validation.refits import resampled_counts, seeds

FEATURES = ["age", "marker", "bmi", "grade", "treated"]


def drawn(n: int, hazards: str = "proportional", seed: int = 0):
    cohort = simulate("independent", n, hazards=hazards, random_state=seed)
    return cohort.X[FEATURES], cohort.y


def concordance(y, risk, weight) -> float:
    """Weighted share of pairs, of which the first is known to be earlier, that are in the right order."""
    earlier = (y["time"][:, None] < y["time"][None, :]) & y["event"][:, None]
    pairs = weight[:, None] * weight[None, :] * earlier
    return float((pairs * (risk[:, None] > risk[None, :])).sum() / pairs.sum())


# --- against independent computations ---------------------------------------------------------------------


def test_optimism_of_a_cox_model_is_harrells():
    """Fits by lifelines to repeated rows, as rms::validate makes them, and a concordance counted pair by pair."""
    X, y = drawn(150)
    found = dcsurv.validate(CoxPH(penalizer=0), X, y, resamples=6, repeats=1, folds=2, metrics=["C-td"]).bootstrap
    frame = X.assign(time=y["time"], event=y["event"])
    everybody = np.ones(len(y))

    def risk(copies):
        fitter = CoxPHFitter().fit(frame.iloc[copies], "time", "event")
        return fitter.predict_log_partial_hazard(X).to_numpy()

    gaps, unseen = [], []
    for counts in resampled_counts(len(y), 6, 0):
        own = risk(np.repeat(np.arange(len(y)), counts.astype(int)))
        gaps.append(concordance(y, own, counts) - concordance(y, own, everybody))
        unseen.append(concordance(y, own, (counts == 0).astype(float)))
    apparent = concordance(y, risk(np.arange(len(y))), everybody)
    row = found.iloc[0]
    assert row["apparent"] == pytest.approx(apparent, abs=1e-9)
    # Copies of an event are ties, which Efron's rule treats a little otherwise than a weight.
    assert row["optimism"] == pytest.approx(np.mean(gaps), abs=2e-3)
    assert row["harrell"] == pytest.approx(apparent - np.mean(gaps), abs=2e-3)
    assert row["out_of_bag"] == pytest.approx(np.mean(unseen), abs=3e-3)
    assert 2 * row["harrell"] - 1 == pytest.approx(2 * (apparent - np.mean(gaps)) - 1, abs=4e-3), "Somers' Dxy"


def test_the_632_plus_estimate_by_hand():
    metrics = [metric for metric in list_metrics() if metric.name in ("C-td", "DDC")]
    whole = {"apparent": [["C-td", None, 0.9], ["DDC", None, 0.01]],
             "no_information": [["C-td", None, 0.5], ["DDC", None, 0.2]]}  # fmt: skip
    rows = [
        {"training": [["C-td", None, 0.92], ["DDC", None, 0.03]],
         "original": [["C-td", None, 0.88], ["DDC", None, 0.02]],
         "out_of_bag": [["C-td", None, value], ["DDC", None, 0.1]]}
        for value in (0.6, 0.8)
    ]  # fmt: skip
    found = optimism(whole, rows, metrics).set_index("metric")
    overfitting = (0.9 - 0.7) / (0.9 - 0.5)
    weight = 0.632 / (1 - 0.368 * overfitting)
    assert found.loc["C-td", "corrected"] == pytest.approx((1 - weight) * 0.9 + weight * 0.7)
    assert found.loc["C-td", "harrell"] == pytest.approx(0.9 - 0.04)
    assert found.loc["C-td", "monte_carlo"] == pytest.approx(weight * np.std([0.6, 0.8], ddof=1) / np.sqrt(2))
    assert found.loc["DDC", "corrected"] == pytest.approx(0.0), "calibration: Harrell's, 0.01 - (0.03 - 0.02)"


@pytest.fixture(scope="module")
def compared():
    X, y = drawn(200, "non-linear")
    metrics = ["C-td", "IBS", "DDC", "ICI", "O/E"]
    return X, y, dcsurv.validate(SplineCox(), X, y, resamples=0, repeats=2, random_state=3, metrics=metrics)


def test_errors_are_pooled_and_pairs_stay_within_a_fold(compared):
    X, y, found = compared
    assert found.bootstrap is None
    pooled, within = [], []
    for seed in seeds(3, 2, 2):
        nodes = np.union1d(y["time"], found.patients.horizons)
        values = np.empty((len(y), len(nodes)))
        for train, test in fold_indices(y, n_folds=5, random_state=seed):
            curves = SplineCox().fit(X.iloc[train], y[train]).predict_survival_function(X.iloc[test])
            values[test] = curves.evaluate(nodes)
            early = nodes < curves.times[0]
            values[np.ix_(test, early)] = 1 - np.outer(1 - curves.values[:, 0], nodes[early] / curves.times[0])
            within.append(evaluate(y[test], SurvivalCurves(nodes, values[test]), metrics=["C-td"])["value"][0])
        pooled.append(evaluate(y, SurvivalCurves(nodes, values), metrics=["IBS", "DDC", "ICI", "O/E"]))
    table = found.performance.set_index("metric")
    assert table.loc["C-td", "cross_validated"] == pytest.approx(np.mean(within), abs=1e-6)
    by_hand = pd.concat(pooled).groupby(["metric", "horizon"], dropna=False)[["value", "floor"]].mean()
    for metric, horizon, value, floor in found.performance[
        ["metric", "horizon", "cross_validated", "floor"]
    ].to_numpy():
        if metric != "C-td":
            own = by_hand.loc[metric].loc[[horizon]].iloc[0]
            assert value == pytest.approx(own["value"], rel=1e-3), metric
            assert floor == pytest.approx(own["floor"], rel=1e-3, nan_ok=True), metric
    assert table.loc["IBS", "lower"] < table.loc["IBS", "cross_validated"] < table.loc["IBS", "upper"]
    assert np.isnan(table.loc["DDC", "lower"]), "a metric with a null has no interval"


def test_the_difference_has_the_variance_of_nadeau_and_bengio(compared):
    *_, found = compared
    own, other = (found._found[role].pooled.by_fold()["IBS", None] for role in ("model", "reference"))
    gaps = own - other
    row = found.comparison.set_index("metric").loc["IBS"]
    assert len(gaps) == 10
    assert row["se"] == pytest.approx(np.sqrt((1 / 10 + 0.2 / 0.8) * gaps.var(ddof=1)))
    assert row["decides"]
    assert not found.comparison.set_index("metric").loc["DDC", "decides"]
    from scipy.stats import t

    reach = row["se"] * t.ppf(1 - 0.05 / 2 / 2, 9)  # two metrics decide
    assert (row["lower"], row["upper"]) == pytest.approx((row["difference"] - reach, row["difference"] + reach))


class Noise(BaseEstimator):
    """Predicts anything; without sample weights, so that rows are repeated."""

    seen: list[int] = []  # noqa: RUF012

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        Noise.seen.append(len(X))
        return self

    def predict_survival_function(self, X):
        rate = np.random.default_rng(self.random_state).uniform(0.01, 0.5, len(X))
        times = np.linspace(0.5, 11, 20)
        return SurvivalCurves(times, np.exp(-np.outer(rate, times)))


def test_noise_is_no_reason_to_leave_cox():
    X, y = drawn(200)
    Noise.seen.clear()
    found = dcsurv.validate(Noise(), X, y, resamples=2, repeats=1, metrics=["C-td", "IBS"])
    assert found.verdict.text == "keep CoxPH"
    assert "without a clear gain there is no reason to leave it" in found.verdict.rests_on
    assert sorted(Noise.seen) == [160] * 5 + [200] * 3, "five folds, everybody, two resamples with repeated rows"
    assert found.instability.table()["mape"].min() > 0.1


def test_a_better_model_is_called_better():
    X, y = drawn(200)
    found = dcsurv.validate(CoxPH(), X, y, reference=Noise(), resamples=0, repeats=1, metrics=["IBS"])
    assert found.verdict.text == "CoxPH is better in IBS"
    assert "no reason to leave it" not in found.verdict.rests_on
    assert re.search(r"IBS 0\.\d+ against 0\.\d+, difference -0\.\d+", found.verdict.rests_on)


def test_where_neither_is_better_nothing_is_claimed():
    """Cox is true and the other model finds the same: two cohorts, the studies in docs/results have more."""
    for seed in (1, 2):
        X, y = drawn(200, seed=seed)
        found = dcsurv.validate(SplineCox(), X, y, resamples=0, repeats=1, metrics=["C-td", "IBS"])
        assert found.verdict.text == "no clear difference"


class Remembers(CoxPH):
    """Notes which patients it was given, and how much each counted."""

    fits: list[tuple[pd.DataFrame, np.ndarray | None]] = []  # noqa: RUF012

    def fit(self, X, y, sample_weight=None):
        Remembers.fits.append((X, sample_weight))
        return super().fit(X, y, sample_weight)


def test_instability_by_hand_and_resamples_are_weights():
    X, y = drawn(120)
    Remembers.fits.clear()
    found = dcsurv.validate(Remembers(), X, y, reference=None, resamples=4, repeats=1, folds=2, metrics=["C-td"])
    weighted = [(X, weight) for X, weight in Remembers.fits if weight is not None]
    assert len(weighted) == 4
    for rows, weight in weighted:
        assert not rows.index.has_duplicates, "a patient is there once, and cannot be in two folds of an ensemble"
        assert weight.sum() == len(y)
    t = float(found.patients.horizons[1])
    own = 1 - CoxPH().fit(X, y).predict_survival_function(X)(t)
    refits = []
    for counts in resampled_counts(len(y), 4, 0):
        rows = counts > 0
        refits.append(1 - CoxPH().fit(X[rows], y[rows], counts[rows]).predict_survival_function(X)(t))
    table = found.instability.patients(t)
    assert table["risk"].to_numpy() == pytest.approx(own, abs=1e-3)
    assert table["mape"].to_numpy() == pytest.approx(np.abs(np.stack(refits) - own).mean(axis=0), abs=1e-3)
    assert table["lower"].to_numpy() == pytest.approx(np.quantile(refits, 0.025, axis=0), abs=1e-3)
    curves = found.calibration_instability(t)
    assert len(curves) == 5
    with pytest.raises(ValueError, match="horizon is 99, but risks are known by"):
        found.plot_instability(99)


def test_random_effects_of_the_bcg_trials():
    """Thirteen trials of BCG; DerSimonian and Laird's estimate as metafor prints it (rma, method="DL")."""
    trials = np.array([
        (4, 119, 11, 128), (6, 300, 29, 274), (3, 228, 11, 209), (62, 13536, 248, 12619), (33, 5036, 47, 5761),
        (180, 1361, 372, 1079), (8, 2537, 10, 619), (505, 87886, 499, 87892), (29, 7470, 45, 7232),
        (17, 1699, 65, 1600), (186, 50448, 141, 27197), (5, 2493, 3, 2338), (27, 16886, 29, 17825),
    ], dtype=float)  # fmt: skip
    a, b, c, d = trials.T
    value = np.log(a / (a + b)) - np.log(c / (c + d))
    se = np.sqrt(1 / a - 1 / (a + b) + 1 / c - 1 / (c + d))
    found = random_effects(value, se)
    assert found["mean"] == pytest.approx(-0.7141, abs=5e-5)
    assert found["tau2"] == pytest.approx(0.3088, abs=5e-5)
    assert found["i2"] == pytest.approx(0.9212, abs=5e-5)
    assert found["new_lower"] < found["lower"] < -0.7141 < found["upper"] < found["new_upper"]


# --- centres ------------------------------------------------------------------------------------------------


def test_every_centre_is_predicted_by_the_others():
    cohort = simulate("independent", 240)
    X = cohort.X[[*FEATURES, "centre"]]
    Remembers.fits.clear()
    found = dcsurv.validate(Remembers(), X, cohort.y, reference=None, by="centre", resamples=0, repeats=1, folds=2)
    fits = [rows for rows, _ in Remembers.fits]
    assert all(list(rows.columns) == FEATURES for rows in fits), "the centre is no feature"
    table = found.centres
    assert sorted(set(table["centre"])) == sorted(set(X["centre"]))
    for name, part in table.groupby("centre"):
        own = (X["centre"] == name).to_numpy()
        model = CoxPH().fit(X.loc[~own, FEATURES], cohort.y[~own])
        value = concordance(cohort.y[own], model.predict(X.loc[own, FEATURES]), np.ones(own.sum()))
        assert part.set_index("metric").loc["C-td", "value"] == pytest.approx(value, abs=1e-6), "no ties before a step"
        assert part["patients"].iloc[0] == own.sum()
    summary = found.centres_summary.set_index("metric")
    own = table[table["metric"] == "C-td"]
    assert summary.loc["C-td", "mean"] == pytest.approx(
        random_effects(own["value"].to_numpy(), own["sd"].to_numpy())["mean"]
    )
    assert found.plot_centres("C-td").axes[0].get_xlabel() == "C-td"


def test_years_become_periods_and_small_centres_help():
    cohort = simulate("independent", 300)
    found = dcsurv.validate(
        CoxPH(), cohort.X[FEATURES], cohort.y, by=cohort.X["enrolled"], resamples=0, repeats=1, folds=2,
        metrics=["C-td"],
    )  # fmt: skip
    assert len(found.centres) == 5
    assert found.centres["centre"][0].startswith("2000")
    labels = np.where(np.arange(300) < 8, "tiny", np.where(np.arange(300) % 2, "A", "B"))
    found = dcsurv.validate(
        CoxPH(), cohort.X[FEATURES], cohort.y, by=labels, resamples=0, repeats=1, folds=2, metrics=["C-td"]
    )  # fmt: skip
    assert found.centres["centre"].tolist() == ["A", "B"]
    assert "tiny has" in found.notes[0]
    assert "it helps to fit" in found.notes[0]


# --- it goes on ---------------------------------------------------------------------------------------------

# A child that is killed in its fourth fit of the model, then the same again, and once undisturbed.
LIVES = """
import hashlib, json, os, pathlib, signal, sys
import dcsurv
from dcsurv.datasets import simulate
from dcsurv.plain import plain

folder, fits_left = pathlib.Path(sys.argv[1]), -1

class Mortal(dcsurv.SplineCox):
    def fit(self, X, y, sample_weight=None):
        global fits_left
        fits_left -= 1
        if fits_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(X, y, sample_weight)

def validated(name):
    cohort = simulate("independent", 120)
    X = cohort.X[["age", "marker", "grade"]]
    return dcsurv.validate(
        Mortal(), X, cohort.y, resamples=3, repeats=1, metrics=["C-td", "DDC"], folder=folder / name
    ).to_dict()

def finished():
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (folder / "killed" / "rows").glob("*.json")}

child = os.fork()
if child == 0:
    fits_left = 4
    validated("killed")
    os._exit(0)
_, status = os.waitpid(child, 0)
before = finished()
again = validated("killed")
same = json.dumps(plain(again, finite=True)) == json.dumps(plain(validated("undisturbed"), finite=True))
print(json.dumps({"status": status, "before": before, "after": finished(), "same": same}))
"""


def test_kill_9_and_continue_loses_nothing_and_changes_nothing(tmp_path):
    command = [sys.executable, "-c", LIVES, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert os.WTERMSIG(found["status"]) == signal.SIGKILL
    assert len(found["before"]) == 4, "three fits of the model were finished, and one of CoxPH"
    assert found["before"].items() <= found["after"].items(), "what was finished was not computed again"
    assert len(found["after"]) == 18, "two models: everybody, three resamples, five folds"
    assert found["same"], "the same to the last bit"


def test_an_ensemble_is_fitted_anew_and_can_be_sent_to_another_process():
    from dcsurv.experiments.dispatch import attempt
    from dcsurv.experiments.processes import dumps
    from dcsurv.validation.refits import Patients, Refit, fit_and_predict, prepared_estimator

    X, y = drawn(120)
    model = CalibratedEnsemble(estimator=SplineCox(), n_members=2, n_jobs=-1)
    found = dcsurv.validate(model, X, y, resamples=2, repeats=1, folds=2, metrics=["C-td", "IBS"])
    assert found.names["model"] == "CalibratedEnsemble"
    assert not hasattr(model, "members_"), "the model that was passed is not touched"
    patients = Patients(X, y, np.array([3.0]), found.patients.metrics, None)
    rows = np.arange(0, 120, 2)
    counts = np.arange(60) % 3 + 1.0
    own = Refit("model", "resample", 0, rows, np.arange(120), 5, counts, prepared_estimator(model, 5), patients)
    assert own.estimator.n_jobs == 1, "processes are for refits"
    sent = pickle.loads(dumps(own))
    assert sent.key == own.key
    here, there = attempt(fit_and_predict, own), attempt(fit_and_predict, sent)
    assert here.row == there.row is not None
    assert np.array_equal(here.curves.values, there.curves.values)


class Fragile(CoxPH):
    """Cannot be fitted where some patients count twice."""

    def fit(self, X, y, sample_weight=None):
        if sample_weight is not None and len(X) % 2:
            raise FloatingPointError("no convergence")
        return super().fit(X, y, sample_weight)


def test_what_fails_is_said():
    X, y = drawn(100)
    lost = sum(int((counts > 0).sum() % 2) for counts in resampled_counts(100, 6, 1))
    assert 0 < lost <= 3
    found = dcsurv.validate(Fragile(), X, y, reference=None, resamples=6, repeats=1, folds=2, random_state=1)
    assert f"Fragile could not be fitted to {lost} of 6 bootstrap samples" in found.notes[0]
    assert len(found.instability.refits) == 6 - lost
    with pytest.raises(
        ValidationError, match="Broken could not be fitted to all but fold 1: FloatingPointError: no convergence"
    ):
        dcsurv.validate(Broken(), X, y, resamples=0, repeats=1, folds=2)
    found = dcsurv.validate(CoxPH(), X, y, reference=Broken(), resamples=0, repeats=1, folds=2, metrics=["C-td"])
    assert found.verdict is None
    assert "Broken" in found.notes[0]


class Broken(CoxPH):
    """Cannot be fitted at all."""

    def fit(self, X, y, sample_weight=None):
        raise FloatingPointError("no convergence")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"resamples": 1}, "resamples= is 1, but 0 or a whole number of at least 2"),
        ({"folds": 40}, "a fold of 40 has"),
        ({"by": "hospital"}, "by= names 'hospital', which is no column"),
        ({"by": np.arange(100)[:50]}, "by= has 50 labels, but there are 100 patients"),
        ({"by": np.array(["A"] * 100)}, "two are needed"),
        ({"workers": 0}, "workers is 0"),
        ({"confidence": 95}, "confidence is 95"),
    ],
)
def test_what_cannot_be_is_refused_in_words(options, words):
    X, y = drawn(100)
    with pytest.raises(ValueError, match=re.escape(words)):
        dcsurv.validate(CoxPH(), X, y, **({"repeats": 1, "resamples": 0} | options))


# --- the command --------------------------------------------------------------------------------------------


def run(*arguments, code=0):
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    assert done.exit_code == code, done.stdout + done.stderr
    return done


def test_the_command_writes_a_page_tables_and_figures_and_goes_on(tmp_path):
    cohort = simulate("independent", 200)
    table = cohort.X[[*FEATURES, "centre"]].assign(years=cohort.y["time"], died=cohort.y["event"].astype(int))
    table.to_csv(tmp_path / "patients.csv", index=False)
    out = tmp_path / "validation"
    given = ("validate", tmp_path / "patients.csv", "--time", "years", "--event", "died", "--unit", "years", "--model",
             "spline-cox", "--by", "centre", "--resamples", 2, "--repeats", 1, "--jobs", 1, "-o", out)  # fmt: skip
    first = run(*given)
    text = " ".join(first.stdout.split())
    assert "Verdict: no clear difference." in text
    assert "dcsurv fit" in text
    assert "tasks" in first.stderr, "progress where there is no terminal"
    page = (out / "index.html").read_text("utf-8")
    assert "Validation of SplineCox" in page
    assert "No clear difference." in page
    assert all((out / path).exists() for path in re.findall(r'src="([^"]+)"', page))
    assert {path.stem for path in (out / "tables").iterdir()} >= {"performance", "comparison", "bootstrap", "centres"}
    rows = {path.name: path.stat().st_mtime_ns for path in (out / "refits" / "rows").iterdir()}
    again = run(*given, "--json")
    assert rows == {path.name: path.stat().st_mtime_ns for path in (out / "refits" / "rows").iterdir()}
    document = json.loads(again.stdout)
    assert document["verdict"] == "no clear difference"
    assert document["performance"][0]["metric"] == "C-td"
    assert "years" not in [column["metric"] for column in document["performance"]]


def test_the_command_refuses_in_words(tmp_path):
    X, y = drawn(100)
    X.assign(years=y["time"], died=y["event"].astype(int)).to_csv(tmp_path / "p.csv", index=False)
    given = ("validate", tmp_path / "p.csv", "--time", "years", "--event", "died", "--model", "coxph")
    assert "--by names the column 'ward'" in run(*given, "--by", "ward", "-o", tmp_path / "v", code=2).stderr
    X.assign(years=y["time"], died=y["event"].astype(int), id=[f"p{k}" for k in range(100)]).to_csv(
        tmp_path / "p.csv", index=False
    )
    said = run(*given, "--by", "id", "-o", tmp_path / "v", code=2).stderr
    assert "Error: --by has 100 different labels among 100 patients" in said
    assert "fewer, larger groups" in said
    said = run(*given, "--by", "years", "-o", tmp_path / "v", code=2).stderr
    assert "--by names 'years', which holds the outcome. Name the column of the centre or period." in said
    assert "Name a folder" in run(*given, "-o", tmp_path / "p.csv", code=2).stderr
