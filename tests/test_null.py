"""What a perfect model would score: outcomes drawn from the curves, and the p-values that come of them."""

from __future__ import annotations

import numpy as np
import pytest

from dcsurv import SurvivalCurves, study_follow_up
from dcsurv.datasets import simulate
from dcsurv.metrics import Metric, Setting, ddc, evaluate, find_metric, from_function
from dcsurv.metrics.null import drawn_outcomes, number_of_draws, p_text

DISTANCES = ["DDC", "E50", "E90", "ICI"]


def wrong(truth: SurvivalCurves, times: float = 1.35) -> SurvivalCurves:
    """Hazards that are too high by a factor."""
    return SurvivalCurves(truth.times, truth.values**times, interpolation=truth.interpolation)


@pytest.mark.parametrize("censored", [0.2, 0.8])
@pytest.mark.parametrize("design", ["exponential", "administrative"])
def test_the_truth_passes_and_a_hazard_that_is_too_high_does_not(design, censored):
    """Of 40 tests of the truth at most 7 reject (P = .001 at a size of .05); of 8 of a wrong model most do."""
    rejected = []
    for seed in range(40):
        cohort = simulate(design, 250, censored=censored, random_state=seed)
        found = evaluate(cohort.y, cohort.truth, metrics=["DDC"], n_null=39, random_state=seed)
        rejected.append(found["p_value"][0] <= 0.05)
    assert sum(rejected) <= 7
    power = []
    for seed in range(8):
        cohort = simulate(design, 1000, censored=censored, random_state=seed)
        found = evaluate(cohort.y, wrong(cohort.truth), metrics=["DDC"], n_null=39, random_state=seed)
        power.append(found["p_value"][0] <= 0.05)
    assert sum(power) >= 6


def test_the_test_at_horizons_has_the_size_it_claims():
    cohorts = [simulate("independent", 200, random_state=seed) for seed in range(40)]
    found = np.array(
        [evaluate(one.y, one.truth, metrics=["ICI"], horizons=[4.0], n_null=39)["p_value"][0] for one in cohorts]
    )
    assert (found <= 0.05).sum() <= 7
    assert 0.3 < found.mean() < 0.7  # of 40 uniform numbers the mean has a standard deviation of .046


def test_drawn_outcomes_keep_the_follow_up_that_is_known():
    cohort = simulate("staggered", 400)
    found = study_follow_up(cohort.X, cohort.y)
    draws = list(drawn_outcomes(Setting(cohort.y, cohort.truth, follow_up=found), None, 30, 0))
    censored = ~cohort.y["event"]
    for y in draws:
        assert (y["time"][censored] <= cohort.y["time"][censored]).all()
        again = censored & ~y["event"]
        np.testing.assert_array_equal(y["time"][again], cohort.y["time"][again])
    assert np.mean([y["event"].mean() for y in draws]) == pytest.approx(cohort.y["event"].mean(), abs=0.03)
    # Who was enrolled late cannot be followed for long in any draw, although time of censoring was drawn for some.
    late = cohort.X["enrolled"] > cohort.X["enrolled"].quantile(0.8)
    assert max(y["time"][late].max() for y in draws) < cohort.y["time"].max() / 2


@pytest.mark.parametrize("interpolation", ["linear", "constant_hazard", "step"])
@pytest.mark.parametrize("bent", [False, True])
def test_drawn_event_times_are_those_of_the_curves(interpolation, bent):
    times = np.arange(1.0, 9.0)
    curve = SurvivalCurves(
        times, np.exp(-np.outer(np.full(4000, 0.2), times)), interpolation=interpolation,
        transform=(lambda s, t: s**1.5) if bent else None,
    )  # fmt: skip
    y = np.zeros(4000, dtype=[("event", bool), ("time", float)])
    y["time"] = 20.0
    (drawn,) = drawn_outcomes(Setting(y, curve), None, 1, 3)
    for t in (0.7, 2.0, 5.5, 8.0):
        expected = 1 - curve.evaluate(np.array([t]))[0, 0]
        # Four standard errors of a share of 4,000.
        assert np.mean(drawn["event"] & (drawn["time"] <= t)) == pytest.approx(expected, abs=4 * 0.0079)


def test_the_columns_say_what_a_perfect_model_scores():
    cohort = simulate("independent", 300)
    table = evaluate(cohort.y, cohort.truth, n_bootstrap=10, n_null=30, horizons=[4.0])
    far = table["metric"].isin(DISTANCES)
    columns = ["floor", "null_95", "p_value"]
    assert table.loc[far, columns].notna().all(axis=None)
    assert table.loc[far, ["mean", "sd", "lower", "upper"]].isna().all(axis=None)
    assert table.loc[~far, columns].isna().all(axis=None)
    assert table.loc[~far, "lower"].notna().all()
    assert (table.loc[far, "floor"] < table.loc[far, "null_95"]).all()
    row = table[table["metric"] == "DDC"].iloc[0]
    setting = Setting(cohort.y, cohort.truth)
    by_hand = np.array([ddc(y, cohort.truth) for y in drawn_outcomes(setting, None, 30, 0)])
    assert row["floor"] == pytest.approx(by_hand.mean())
    assert row["null_95"] == pytest.approx(np.quantile(by_hand, 0.95))
    assert row["p_value"] == (1 + (by_hand >= row["value"]).sum()) / 31
    without = evaluate(cohort.y, cohort.truth, n_null=0, horizons=[4.0])
    assert without[columns].isna().all(axis=None)
    assert (table["value"] == without["value"]).all()


def test_a_metric_of_ones_own_may_have_a_null():
    def shift(y, curves, sample_weight):
        return float(abs(np.average(y["time"], weights=sample_weight) - np.average(curves.rmst(8.0))))

    own = Metric("Shift", "calibration", "lower", "A distance.", "mean time", from_function(shift), null=True)
    cohort = simulate("independent", 100)
    row = evaluate(cohort.y, cohort.truth, metrics=[own], n_null=20).iloc[0]
    assert 0 < row["floor"] < row["null_95"]
    assert find_metric("ICI").null
    assert not find_metric("C-td").null


def test_weights_count_in_the_null_as_in_the_value():
    cohort = simulate("independent", 300)
    some = np.arange(300) < 120
    part = evaluate(cohort.y[some], cohort.truth[some], metrics=["ICI"], horizons=[4.0], n_null=20)
    weighted = evaluate(cohort.y, cohort.truth, metrics=["ICI"], horizons=[4.0], n_null=20, sample_weight=some * 1.0)
    np.testing.assert_allclose(weighted[["value", "floor", "p_value"]], part[["value", "floor", "p_value"]])


def test_large_cohorts_are_drawn_less_often():
    assert number_of_draws(400, 50_000) == 400
    assert number_of_draws(400, 100_000) == 200
    assert number_of_draws(400, 10_000_000) == 100
    assert number_of_draws(20, 10_000_000) == 20
    assert p_text(0.0049) == "< 0.01"
    assert p_text(0.25) == "0.25"


@pytest.mark.parametrize("n_null", [-1, 2.5, True, "ten"])
def test_a_number_of_draws_is_whole(n_null):
    cohort = simulate("independent", 50)
    with pytest.raises(ValueError, match="a whole number of draws"):
        evaluate(cohort.y, cohort.truth, n_null=n_null)


def test_the_censoring_curve_is_that_of_the_patients_unless_asked_for():
    cohort, other = simulate("independent", 300), simulate("administrative", 300, random_state=1)
    options = {"metrics": ["IBS"], "horizons": [4.0]}
    own = evaluate(cohort.y, cohort.truth, **options)
    given = evaluate(cohort.y, cohort.truth, other.y, **options)
    assert own.equals(given)
    trained = evaluate(cohort.y, cohort.truth, other.y, weights_from="train", **options)
    assert abs(trained["value"][0] - own["value"][0]) > 1e-4
    assert trained["convention"][0].endswith("G of the training part")
    with pytest.raises(ValueError, match="pass y_train"):
        evaluate(cohort.y, cohort.truth, weights_from="train")
    with pytest.raises(ValueError, match="'test' or 'train'"):
        evaluate(cohort.y, cohort.truth, weights_from="both")
