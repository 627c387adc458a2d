"""The study of inference in small: what is printed holds where the truth is known, and nothing printed is left out."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from dcsurv import CoxPH, write_report
from dcsurv.cli import app
from dcsurv.datasets import simulate
from dcsurv.metrics import compare, evaluate
from undrawing import undrawn_reports

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import population
import printed
import simulation
import simulation_page
import studies
from population import HIGH, MISLED, NARROW, NOISE, TRUTH, Cell

CELL = Cell("proportional", 300, "exponential", 0, 0.3)


@pytest.fixture(scope="module", autouse=True)
def _small():
    """Populations of a few thousand patients: their error is small beside that of the cohorts here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(population, "REFERENCE_PATIENTS", 4000)
        patch.setattr(population, "_COHORTS", 2)
        population.endless.cache_clear()
        yield
    population.endless.cache_clear()


# --- population values --------------------------------------------------------------------------------------------


def test_values_of_an_endless_cohort_are_those_of_theory():
    whole = population.population_of(CELL)
    true = whole.survival(TRUTH, whole.horizons["median"])
    assert whole.target(TRUTH, "Brier", "median") == pytest.approx(float(np.mean(true * (1 - true))))
    assert whole.target(NOISE, "AUC", "median") == pytest.approx(0.5)
    assert whole.target(TRUTH, "C-td") > 0.6  # computed from the same outcomes as DDC, which is 0 also after it
    assert whole.target(TRUTH, "ICI", "late") == whole.target(TRUTH, "DDC") == 0
    assert whole.target(TRUTH, "O/E", "early") == 1
    for model, intercept, slope in ((TRUTH, 0, 1), (HIGH, -np.log(1.35), 1), (NARROW, None, 1 / 0.6)):
        assert whole.target(model, "Calibration slope", "median") == pytest.approx(slope, abs=1e-3)
        if intercept is not None:
            assert whole.target(model, "Calibration intercept", "median") == pytest.approx(intercept, abs=1e-3)
    # Too high by 1.35, risks are off by S - S^1.35; a misled model is off on average where it is misled.
    assert whole.target(HIGH, "ICI", "median") == pytest.approx(float(np.mean(true - true**1.35)), abs=1e-3)
    assert 0.02 < whole.target(MISLED, "ICI", "median") < 0.15
    assert whole.target(MISLED, "C-td") < whole.target(TRUTH, "C-td") - 0.02


@pytest.mark.parametrize("model", [TRUTH, NARROW, MISLED])
def test_values_of_an_endless_cohort_are_met_by_a_large_one(model):
    whole = population.population_of(CELL)
    found = simulation.evaluated(CELL._replace(n=8000), 0, [model], n_null=0)
    assert {one.what for one in found} >= {"C-td", "CDAUC", "IBS", "DDC", "ICI", "E50", "E90", "O/E"}
    limits = {"O/E": 0.08, "Calibration intercept": 0.08, "Calibration slope": 0.12}
    for one in found:
        assert one.target == whole.target(model, one.what, one.at)
        assert one.value == pytest.approx(one.target, abs=limits.get(one.what, 0.03)), one


# --- counting -----------------------------------------------------------------------------------------------------


def test_hits_are_counted_repeat_by_repeat():
    low = simulation.Found("truth", "C-td", "", "interval", 0.7, 0.8, 0.6, 0.75)
    high = low._replace(target=0.7)
    strange = low._replace(value=0.5, target=0.65)
    small = simulation.Found("truth", "ICI", "early", "p", 0.04)
    rows = list(
        simulation.summed([(0, low), (0, high), (1, high), (1, strange), (0, small), (1, small._replace(value=0.3))])
    )
    interval, p = rows
    assert (interval["repeats"], interval["numbers"], interval["hits"], interval["outside"]) == (2, 4, 3, 1)
    assert (p["repeats"], p["hits"]) == (2, 1)
    identity = dict(zip(simulation.IDENTITY, ("evaluate", *CELL, 0), strict=True))
    found = simulation_page.summary(pd.DataFrame([identity | row for row in rows])).set_index("what")
    assert found.loc["C-td", "share"] == 0.75
    assert found.loc["C-td", "error"] == pytest.approx(
        np.sqrt(0.75 * 0.25 / 2)
    )  # cohorts, not numbers, are independent
    assert found.loc["ICI", "share"] == 0.5
    goals = {
        what: reached
        for what, _, _, reached in simulation_page.criteria(pd.DataFrame([identity | row for row in rows]))
    }
    assert goals["intervals that exclude their own estimate"] == "no"
    assert goals["noise called helpful"] == "–"


# --- what holds, in small -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tried():
    """The p-values and intervals of a perfect model on 20 cohorts, and the p-values of one that is wrong on 10."""
    found: dict[str, list[simulation.Found]] = {TRUTH: [], HIGH: []}
    for repeat in range(20):
        found[TRUTH] += simulation.evaluated(CELL, repeat, [TRUTH], n_bootstrap=50, n_null=39)
    for repeat in range(10):
        found[HIGH] += simulation.evaluated(CELL, repeat, [HIGH], n_null=39)
    return found


def test_a_perfect_model_is_rarely_called_wrong_and_a_wrong_one_often(tried):
    for what in ("ICI", "E50", "E90", "DDC"):
        sizes, power = (
            np.mean([one.hit for one in tried[model] if (one.what, one.kind) == (what, "p")]) for model in (TRUTH, HIGH)
        )
        assert sizes <= 0.2, what  # 0.05 and three errors of 20 cohorts
        assert power >= 0.35, what


def test_intervals_hold_their_population_values_and_their_own(tried):
    intervals = [one for one in tried[TRUTH] if one.kind == "interval"]
    assert {one.what for one in intervals} >= {
        "C-td",
        "CDAUC",
        "IBS",
        "O/E",
        "Calibration intercept",
        "Calibration slope",
    }
    assert not any(one.outside for one in intervals)
    for what in {one.what for one in intervals}:
        assert np.mean([one.hit for one in intervals if one.what == what]) >= 0.8, what  # 0.95 less three errors


def test_the_study_runs_goes_on_and_writes_its_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(simulation, "BATCH", 2)
    monkeypatch.setitem(simulation.PARTS, "cox", simulation.PARTS["cox"]._replace(cells=[CELL]))
    for repeats in ("2", "4"):
        words = ["simulation.py", "--workers", "1", "--output", str(tmp_path), "--part", "cox", "--repeats", repeats]
        monkeypatch.setattr(sys, "argv", words)
        simulation.main()
    assert "1 of 1: cox proportional 300 exponential 0 0.3 1" in capsys.readouterr().out
    assert pd.read_csv(tmp_path / "rows.csv")["batch"].unique().tolist() == [0, 1]
    assert "| proportional | 300 | exponential | 30% | 4 |" in (tmp_path / "README.md").read_text()


def test_a_page_can_be_made_of_nothing(tmp_path):
    rows = studies.Rows(tmp_path / "rows.csv", simulation.IDENTITY).frame
    assert "Nothing was run yet." in simulation_page.page(rows)


# --- nothing is left out ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Where evaluate, compare, ``dcsurv info`` and a report with all its sections print p-values and limits."""
    folder = tmp_path_factory.mktemp("report")
    train, test = (simulate("independent", 300, random_state=seed) for seed in (1, 2))
    model = CoxPH(time_unit="years").fit(train.X, train.y)
    reference = CoxPH(time_unit="years").fit(train.X[["age", "marker"]], train.y)
    model.save(folder / "cox.safetensors")
    curves = {"a": model.predict_survival_function(test.X), "b": test.truth}
    out = {
        f"evaluate: {one}"
        for one in printed.limits_of(evaluate(test.y, curves["a"], n_bootstrap=10, X=test.X, n_null=9))
    }
    out |= {f"compare: {one}" for one in printed.limits_of(compare(test.y, curves, n_bootstrap=10, X=test.X))}
    told = CliRunner().invoke(app, ["info", str(folder / "cox.safetensors"), "--json"])
    out |= {f"info: {path}" for path in printed.limits_in(json.loads(told.stdout))}
    options = {"X_train": train.X, "y_train": train.y, "reference": reference, "n_bootstrap": 10}
    with undrawn_reports():
        report = write_report(folder / "report.html", model, test.X, test.y, **options)
    out |= {f"report: {path}" for path in printed.limits_in(report.numbers)}
    return out | {f"figure: {re.sub(r'-[0-9]+$', '', file.stem)}" for file in report.figures}


def test_every_number_with_a_claim_about_chance_is_in_the_list(shown):
    listed = {where for one in printed.PRINTED for where in one.where}
    assert shown - listed - set(printed.WITHOUT) == set()
    assert (listed | set(printed.WITHOUT)) - shown == set()


def test_the_study_answers_for_every_number_in_the_list():
    rows = pd.read_csv(simulation.OUT / "rows.csv")
    have = set(rows[["part", "what", "kind"]].itertuples(index=False, name=None))
    for one in printed.PRINTED:
        assert one.instead or (*one.rows, one.kind) in have, one.what
