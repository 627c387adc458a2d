"""The studies of benchmarks/: they measure what they say, go on after a kill, and write pages from any results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dcsurv import CalibratedEnsemble, CoxPH, SurvivalCurves
from dcsurv.calibration.families import common_nodes, priors_of, templates_for
from dcsurv.calibration.weights import stacking_weights
from dcsurv.datasets import simulate
from dcsurv.follow_up import study_follow_up
from dcsurv.preprocessing import Preprocessor

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import bands
import ranking
import small
import stacking
import studies
import truth

CELL = truth.CELLS[0]


def run(module, monkeypatch, folder, *words):
    monkeypatch.setattr(sys, "argv", [f"{module.__name__}.py", "--workers", "1", "--output", str(folder), *words])
    module.main()


# --- rows ---------------------------------------------------------------------------------------------------------


def test_rows_that_are_there_are_not_computed_again(tmp_path):
    calls = []

    def one(name, share):
        calls.append((name, share))
        return [{"name": name, "share": share, "value": 1 / 3}]

    tasks = [("b", 0.85), ("a", 0.2), ("a", 0.3)]
    path = tmp_path / "rows.csv"
    studies.run_missing(studies.Rows(path, ["name", "share"]), tasks[:2], one, 1)
    studies.run_missing(studies.Rows(path, ["name", "share"]), tasks, one, 1)
    assert calls == tasks
    again = studies.Rows(path, ["name", "share"])
    assert again.missing(tasks) == []
    again.sort()
    assert again.frame["share"].tolist() == [0.2, 0.3, 0.85]


def test_models_are_found_by_registered_name_and_peers_by_theirs():
    assert studies.named_model("calibrated", 7).random_state == 7
    assert type(studies.named_model("coxph", 7)).__name__ == "CoxPH"
    assert studies.named_model("random survival forest", 7).random_state == 7
    with pytest.raises(ValueError, match="there is no model 'forrest'"):
        studies.named_model("forrest", 0)


# --- simulated truth ----------------------------------------------------------------------------------------------


def test_the_truth_has_no_error():
    cohort = simulate("exponential", 500, censored=0.5)
    found = truth.measures(cohort.truth, cohort.truth, {"early": 1.0, "median": 4.0, "late": 10.0})
    assert {name for name, value in found.items() if value != 0} == {"slope", "cloglog slope"}
    assert found["slope"] == pytest.approx(1)
    assert found["cloglog slope"] == pytest.approx(1)


def test_compressed_and_shifted_curves_are_measured_as_what_they_are():
    cohort = simulate("exponential", 500, censored=0.5)
    times, values = cohort.truth.times, cohort.truth.values
    at = {"early": 1.0, "median": 4.0, "late": 10.0}
    compressed = SurvivalCurves(times, (values + values.mean(axis=0)) / 2)
    found = truth.measures(cohort.truth, compressed, at)
    assert found["slope"] == pytest.approx(2)
    for by in ("predicted", "true"):  # the order of the patients is the same
        assert found[f"late, lowest {by} risk"] < -0.1
        assert found[f"late, highest {by} risk"] > 0.1
    assert found["restricted mean bias"] == pytest.approx(0, abs=1e-3)
    powered = truth.measures(cohort.truth, SurvivalCurves(times, values**0.5), at)
    assert powered["cloglog slope"] == pytest.approx(1, abs=0.02)  # hazards halved for all: no other order, no slope
    assert powered["restricted mean bias"] > 0.1
    assert powered["MAE"] > 0.1
    # Who is called low, and who is low, are others where the ranking is chance.
    chance = SurvivalCurves(times, values[np.random.default_rng(0).permutation(len(values))])
    found = truth.measures(cohort.truth, chance, at)
    assert abs(found["slope"]) < 0.15
    assert found["late, lowest predicted risk"] > 0.2
    assert found["late, lowest true risk"] < -0.2


def test_horizons_lie_where_patients_are_followed():
    assert truth.Cell("proportional", 1000, "exponential", 0.85) in truth.CELLS  # 150 events of 1,000
    assert len(set(truth.CELLS)) == len(truth.CELLS)
    for cell in truth.CELLS[::4]:
        times, share = truth.horizons(cell)
        assert times["early"] < times["median"] < times["late"]
        assert share > 0.3


def row(model: str, repeat: int = 0, cell: truth.Cell = CELL, **values: float) -> dict:
    tenths = [
        f"{t}, {w} {b} risk" for t in truth.QUANTILES for w in ("lowest", "highest") for b in ("predicted", "true")
    ]
    rest = dict.fromkeys(["restricted mean bias", *tenths], 0.0) | {
        "MAE": 0.04,
        "slope": 1.0,
        "cloglog slope": 1.0,
        "followed": 0.4,
    }
    return dict(zip(truth.IDENTITY, (*cell, repeat, model), strict=True)) | rest | values


def test_goals_are_judged_design_by_design():
    elsewhere = truth.Cell("non-linear", 300, "exponential", 0.5)
    rows = pd.DataFrame([
        row("coxph", MAE=0.04), row("coxph", 1, MAE=0.02, slope=1.3),
        row("calibrated", MAE=0.044), row("calibrated", 1, MAE=0.026),
        row("coxph", cell=elsewhere, MAE=0.09), row("calibrated", cell=elsewhere, MAE=0.05, slope=1.2),
    ])  # fmt: skip
    ph, larger, other, slopes = truth.criteria(rows)
    assert ph[2:] == ("1.17 on average, 1.17 at most", "yes")
    assert larger[2:] == ("not run yet", "–")
    assert other[2:] == ("in 1 of 1 designs", "yes")
    assert slopes[2:] == ("in 1 of 2 designs (coxph: 1 of 2)", "no")
    # A peer that was run once is compared on the cohort that both have.
    more = pd.concat([rows, pd.DataFrame([row("forest", cell=elsewhere, MAE=0.049)])])
    assert truth.criteria(more)[2][2:] == ("in 0 of 1 designs", "no")
    text = truth.page(more)
    assert "| non-linear | 300 | exponential | 50% | 0.0500 | 0.0900 | **0.0490** |" in text
    assert "| proportional | 300 | exponential | 30% | 1.17 (1.10 to 1.30) | – |" in text


def test_the_study_of_the_truth_runs_and_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(truth, "CELLS", [CELL])
    monkeypatch.setattr(truth, "TEST_PATIENTS", 200)
    run(truth, monkeypatch, tmp_path, "--repeats", "1", "--model", "coxph")
    run(truth, monkeypatch, tmp_path, "--repeats", "2", "--model", "coxph")
    assert "1 of 1: proportional 300 exponential 0.3 1 coxph" in capsys.readouterr().out
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert rows["repeat"].tolist() == [0, 1]
    assert rows["MAE"].between(0.01, 0.12).all()
    assert rows["slope"].between(0.5, 1.6).all()
    assert "| proportional | 300 | exponential | 30% | **0.0" in (tmp_path / "README.md").read_text()


# --- small cohorts ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cohorts():
    try:
        return small.cohorts()
    except subprocess.CalledProcessError:
        pytest.skip("the package with one of the cohorts cannot be downloaded here")


def test_small_cohorts_are_small_and_hold_no_outcome_in_disguise(cohorts):
    assert set(cohorts) == set(small.ABOUT)
    assert len(cohorts) >= 8
    for name, (X, y) in cohorts.items():
        assert len(X) == len(y) < small.MOST_PATIENTS, name
        assert y["event"].sum() >= small.LEAST_EVENTS, name
        for column in X.select_dtypes("number"):
            assert not X[column].is_unique, f"{name}: {column} is a number of the patient"
            same = (X[column] == y["time"])[y["event"]].mean()
            assert same < 0.1, f"{name}: {column} is the time of {same:.0%} of the events"
            assert abs(X[column].corr(pd.Series(y["event"], X.index, dtype=float))) < 0.6, f"{name}: {column}"


def test_patients_with_several_rows_become_one():
    table = pd.DataFrame(
        {
            "start": [10.0, 0.0, 0.0], "stop": [16.0, 10.0, 50.0], "event": [1, 0, 0], "age": [6.0, 6.0, -1.0],
            "year": [0.2, 0.2, 0.1], "surgery": [0, 0, 1], "transplant": [1, 0, 0], "id": [3, 3, 1],
        }
    )  # fmt: skip
    found = small.by_patient(table)
    assert found.to_dict("records") == [
        {"age": -1.0, "year": 0.1, "surgery": 1, "stop": 50.0, "event": 0},
        {"age": 6.0, "year": 0.2, "surgery": 0, "stop": 16.0, "event": 1},
    ]


def test_differences_are_means_over_cohorts_of_means_over_splits():
    def line(cohort, split, model, ctd, ibs):
        sizes = {"patients": 100, "events": 50, "features": 3}
        return {"cohort": cohort, "split": split, "model": model, **sizes, "C-td": ctd, "CDAUC": ctd, "IBS": ibs} | {
            "DDC": 0.1, "DDC floor": 0.08, "DDC passed": 1.0, "ICI": float("nan"), "ICI floor": 0.03, "ICI passed": 0.5
        }  # fmt: skip

    rows = pd.DataFrame([
        line("a", 0, "coxph", 0.6, 0.2), line("a", 1, "coxph", 0.7, 0.2), line("b", 0, "coxph", 0.5, 0.1),
        line("a", 0, "calibrated", 0.7, 0.3), line("a", 1, "calibrated", 0.7, 0.14),
        line("b", 0, "calibrated", 0.6, 0.11), line("b", 1, "calibrated", 0.9, 0.9),  # no row of CoxPH beside it
    ])  # fmt: skip
    found = {one[0]: one[1:] for one in small.summary(rows, "calibrated")}
    assert found["C-td"] == ("+0.0750", "0.0250", "2 of 2", "yes")
    assert found["IBS"] == ("+0.0150", "0.0050", "0 of 2", "no")
    assert found["DDC"] == ("+0.0000", "0.0000", "0 of 2", "yes")
    assert found["ICI"] == ("not run yet", "–", "–", "–")
    assert "| b | 100 | 50 | 3 | coxph | 0.5000 |" in small.page(rows)
    assert "| coxph | 0.1000 | 0.0800 | 100 % | nan | 0.0300 | 50 % |" in small.page(rows)


def test_the_study_of_small_cohorts_runs_and_goes_on(tmp_path, monkeypatch, capsys):
    cohort = simulate("exponential", 150, censored=0.3)
    monkeypatch.setattr(small, "cohorts", lambda: {"lung": (cohort.X, cohort.y)})
    run(small, monkeypatch, tmp_path, "--splits", "1", "--model", "coxph")
    run(small, monkeypatch, tmp_path, "--splits", "2", "--model", "coxph")
    assert "1 of 1: lung 1 coxph" in capsys.readouterr().out
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert rows["split"].tolist() == [0, 1]
    assert rows[small.METRICS].notna().all(axis=None)
    assert "| lung | 150 |" in (tmp_path / "README.md").read_text()


# --- ways to combine families -------------------------------------------------------------------------------------


def few_patients(seed):
    """Draw patients with fewer events than networks and trees need: two families, which train at once."""
    cohort = simulate("exponential", 90, censored=0.6, random_state=seed)
    return cohort.X[["age", "marker", "grade"]], cohort.y


def test_the_choice_is_what_the_ensemble_does():
    (X, y), (T, _) = few_patients(1), few_patients(2)
    model = CalibratedEnsemble(random_state=7).fit(X, y)
    preprocessor = Preprocessor().fit(X)
    F, prepared = preprocessor.transform(X).astype(np.float32), preprocessor.transform(T).astype(np.float32)
    curves = stacking.cross_fitted(F, y, prepared, 7, lambda name, make: make())
    assert set(curves) == {
        f"{name}{more}" for name in ("spline-cox", "spline-aft") for more in ("", ", 5 folds")
    } | {"coxph"}  # fmt: skip
    combine = stacking.Combiner(y, curves, study_follow_up(F, y))
    found, weights = combine(stacking.WAYS[stacking.CHOSEN])
    assert weights == pytest.approx(model.weights_, abs=1e-6)
    times = np.linspace(0.5, 10, 20)
    np.testing.assert_allclose(found(times), model.predict_survival_function(T)(times), atol=1e-6)
    assert combine(stacking.WAYS["dcs alone"]) is None
    other, _ = combine(stacking.WAYS["no map at all"])
    assert not np.allclose(other(times), found(times), atol=1e-4)


def test_the_choice_has_the_prior_of_the_ensemble():
    chosen = stacking.WAYS[stacking.CHOSEN].prior
    templates, _ = templates_for(None, None, 500)
    assert [chosen.get(name, 1.0) for name in stacking.FAMILIES] == priors_of(templates)
    shown = {way for _, lines in stacking.TABLES.values() for way in lines.values()}
    assert shown <= set(stacking.WAYS)


def test_weights_are_those_of_the_package_and_go_to_the_prior():
    cohort = simulate("exponential", 300, censored=0.5)
    nodes, rng = common_nodes(cohort.y), np.random.default_rng(0)
    right = cohort.truth.evaluate(nodes)
    curves = [right**0.7, right[rng.permutation(300)], right**1.4]
    prior = [1.0, 1.0, 3.0]
    found = stacking.weights_of(cohort.y, nodes, curves, prior, 0.5)
    np.testing.assert_allclose(found, stacking_weights(cohort.y, nodes, curves, prior), atol=1e-8)
    assert found[1] < 0.1
    np.testing.assert_allclose(stacking.weights_of(cohort.y, nodes, curves, prior, 1e6), [0.2, 0.2, 0.6], atol=1e-3)
    np.testing.assert_array_equal(stacking.weights_of(cohort.y, nodes, curves, prior, np.inf), [0.2, 0.2, 0.6])


def test_gaps_are_means_over_cohorts_with_their_errors():
    def line(cohort, split, way, ibs):
        return {"kind": "packaged", "cohort": cohort, "split": split, "way": way, "IBS": ibs}

    rows = pd.DataFrame([
        line("a", 1, stacking.CHOSEN, 0.1), line("a", 2, stacking.CHOSEN, 0.3), line("b", 1, stacking.CHOSEN, 0.2),
        line("a", 1, "equal weights", 0.3), line("a", 2, "equal weights", 0.3), line("b", 1, "equal weights", 0.2),
    ])  # fmt: skip
    found = stacking.against_chosen(stacking.by_cohort(rows, "IBS")).loc["equal weights"]
    assert found["mean"] == pytest.approx(0.25)
    assert found["gap"] == pytest.approx(0.05)
    assert found["error"] == pytest.approx(0.05)


def test_the_study_of_families_runs_and_goes_on(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "benchmark"
    (folder / "cohorts").mkdir(parents=True)
    X, y = few_patients(3)
    X.assign(time=y["time"], status=y["event"].astype(int)).to_csv(folder / "cohorts" / "few.csv", index=False)
    (folder / "cohorts" / "few.folds.json").write_text(json.dumps({"1": list(range(30)), "2": list(range(30, 60))}))
    about = {"rows": len(X), "columns": dict.fromkeys(X, "number")}
    (folder / "cohorts.json").write_text(json.dumps({"few": about, "metabric": about}))
    published = [("few", "Good", 1, "harrell_c,isbs", 1.0, 0.0), ("few", "Bad", 1, "harrell_c,isbs", 0.0, 1.0)]
    columns = ["cohort", "learner", "iteration", "tuned_for", "harrell_c", "isbs"]
    pd.DataFrame(published, columns=columns).to_csv(folder / "published_scores.csv", index=False)
    monkeypatch.setattr(stacking, "CELLS", [truth.Cell("proportional", 80, "exponential", 0.6)])
    monkeypatch.setattr(truth, "TEST_PATIENTS", 100)
    few = [stacking.CHOSEN, "equal weights", "coxph alone", "5 folds"]
    monkeypatch.setattr(stacking, "WAYS", {name: stacking.WAYS[name] for name in few})
    words = [str(folder), "--cache", str(tmp_path / "cache"), "--kinds", "neutral", "simulated"]
    run(stacking, monkeypatch, tmp_path, *words, "--first")
    run(stacking, monkeypatch, tmp_path, *words)
    assert "2 of 2: simulated proportional, 80 1" in capsys.readouterr().out
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert set(rows["cohort"]) == {"few", "proportional, 80"}  # none of the paper's three
    assert rows.loc[rows["kind"] == "neutral", ["harrell_c", "isbs", "C-td", "IBS"]].notna().all(axis=None)
    assert rows.loc[rows["kind"] == "simulated", ["MAE", "slope"]].notna().all(axis=None)
    text = (tmp_path / "README.md").read_text()
    assert "| **the five** | 2.00 | 2.00 |" in text  # between the good and the bad learner
    # Curves that are kept give the same rows.
    (tmp_path / "rows.csv").unlink()
    monkeypatch.setattr(stacking, "train", None)
    run(stacking, monkeypatch, tmp_path, *words)
    again = pd.read_csv(tmp_path / "rows.csv").sort_values(["cohort", "split", "way"], ignore_index=True)
    pd.testing.assert_frame_equal(again, rows.sort_values(["cohort", "split", "way"], ignore_index=True))


def test_weights_by_order_look_at_the_order():
    cohort = simulate("exponential", 400, censored=0.3)
    nodes, rng = common_nodes(cohort.y), np.random.default_rng(0)
    right = cohort.truth.evaluate(nodes)
    blurred = 0.5 * right + 0.5 * right[rng.permutation(400)]
    curves, half = [right**4, blurred], np.array([0.5, 0.5])  # all in order, but far too low; about right, but blurred
    by_brier, by_order = (ranking.order_weights(cohort.y, nodes, curves, half, share, None) for share in (0.0, np.inf))
    assert by_brier[0] < 0.4 < 0.7 < by_order[0]
    assert by_brier.sum() == pytest.approx(1) == by_order.sum()


def test_the_page_of_ranking_says_what_gained_most():
    lines = [(ranking.CHOSEN, 0.70), ("CoxTime", 0.69), ("DeepSurv", 0.71), ("dcs alone", 0.9)]
    rows = pd.DataFrame([
        {"kind": "packaged", "cohort": cohort, "split": 1, "way": way}
        | dict.fromkeys(ranking.OWN_METRICS, value + more)
        for cohort, more in (("a", 0.0), ("b", 0.1))
        for way, value in lines
    ])  # fmt: skip
    text = ranking.page(rows)
    assert "C-td: gains beyond two standard errors in 1 of 2 changes" in text
    assert "Largest gain: DeepSurv, +0.0100 ± 0.0000." in text
    assert "| CoxTime | -0.0100 ± 0.0000 |" in text
    assert "| dcs | +0.2000" in text


@pytest.mark.parametrize("module", [truth, small, stacking, ranking])
def test_pages_can_be_made_of_nothing(module, tmp_path):
    page = module.page(studies.Rows(tmp_path / "rows.csv", module.IDENTITY).frame)
    assert "Nothing was run yet." in page


# --- bands and bounds -------------------------------------------------------------------------------------------


def test_the_study_of_bands_fits_counts_and_goes_on(tmp_path, monkeypatch):
    def quick(name: str) -> CalibratedEnsemble:
        return CalibratedEnsemble(estimator=CoxPH(), n_members=3)

    monkeypatch.setattr(bands, "make_model", quick)
    monkeypatch.setattr(bands, "cells", lambda: [CELL])
    for name in ("CHOSEN_ON", "BOOTSTRAPPED"):
        monkeypatch.setattr(bands, name, [CELL])
    monkeypatch.setattr(bands, "REFITS", 2)
    run(bands, monkeypatch, tmp_path, "--repeats", "3", "--bootstrap", "1")
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert rows.groupby(["repeat", "bands"]).ngroups == 4
    assert set(rows.loc[rows["repeat"] == bands.CHOSEN_BEFORE, "what"]) == {
        "band", "lower bound", "quantile of the curve", "both bounds",
    }  # fmt: skip
    assert rows["coverage"].between(0, 1).all()
    chosen, other = (bands.of(rows, f"band, c = {c}", examined=False) for c in (8, 0))
    assert (chosen["size"].to_numpy() >= other["size"].to_numpy()).all()
    assert chosen["size"].mean() > 1.02 * other["size"].mean()
    same = bands.of(rows, "band", examined=False)
    np.testing.assert_allclose(chosen["coverage"], same["coverage"])
    text = (tmp_path / "README.md").read_text()
    for part in ("## Goals", "## The constant", "| **8** |", "| bootstrap |", "| lower bound, mean |"):
        assert part in text
    monkeypatch.setattr(bands, "run", None)
    run(bands, monkeypatch, tmp_path, "--repeats", "3", "--bootstrap", "1")
    assert "Nothing was run yet" in bands.page(rows[:0])


def test_goals_of_bands_look_at_every_design():
    times = bands.QUANTILES
    rows = pd.DataFrame([
        dict(zip(bands.IDENTITY, (*cell, 2, "folds"), strict=True), what="band", at=at, coverage=held, size=0.1)
        for cell, early in ((truth.CELLS[0], 0.95), (truth.CELLS[1], 0.6))
        for at, held in zip(times, [early, *[0.95] * (len(times) - 1)], strict=True)
    ])  # fmt: skip
    mean, fresh, anywhere, lowest, *elsewhere = bands.goals(rows)
    assert mean[2:] == ("0.935", "yes")
    assert fresh[2:] == (f"{(0.6 + 11 * 0.95) / 12:.3f}", "yes"), "the first design was used to choose"
    assert anywhere[2:] == ("0.775", "yes")
    assert lowest[2:] == ("0.600", "no")
    assert [one[2:] for one in elsewhere] == [("not run yet", "–")] * 2
