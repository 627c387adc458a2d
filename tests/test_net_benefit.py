from __future__ import annotations

import sys

import numpy as np
import pytest

from cohorts import CASES, random_cohort
from dcsurv import SurvivalCurves, make_outcome
from dcsurv.datasets import simulate
from dcsurv.follow_up import study_risk
from dcsurv.metrics import default_horizons, helpful_thresholds, net_benefit
from dcsurv.metrics.censoring import study_censoring
from dcsurv.metrics.resampling import resample_counts


def kaplan_meier_risk(time, event, horizon):
    """The risk by a horizon, one time after the other."""
    survival = 1.0
    for t in sorted(set(time[event & (time <= horizon)])):
        survival *= 1 - ((time == t) & event).sum() / (time >= t).sum()
    return 1 - survival


def by_hand(y, risk, horizon, threshold):
    """Vickers' formula for one threshold: n true positives and false positives, both by Kaplan-Meier."""
    treated = risk >= threshold
    if not treated.any():
        return 0.0
    time, event = y["time"][treated], y["event"][treated]
    share = treated.mean()
    if time.max() < horizon and kaplan_meier_risk(time, event, horizon) < 1:
        return np.nan
    positive = kaplan_meier_risk(time, event, horizon) * share
    return positive - (share - positive) * threshold / (1 - threshold)


@pytest.mark.parametrize("case", CASES)
def test_net_benefit_is_the_formula_worked_out_by_hand(case):
    y, curves = random_cohort(3, **CASES[case])
    horizon = float(np.quantile(y["time"], 0.4))
    risk = 1 - curves.evaluate(np.array([horizon]))[:, 0]
    table = net_benefit(y, curves, horizon)
    assert table["threshold"].tolist() == pytest.approx(np.arange(1, 100) / 100)
    expected = [by_hand(y, risk, horizon, p) for p in table["threshold"]]
    np.testing.assert_allclose(table["net_benefit"], expected, atol=1e-12)
    everybody = [by_hand(y, np.ones(len(y)), horizon, p) for p in table["threshold"]]
    np.testing.assert_allclose(table["treat_all"], everybody, atol=1e-12)
    np.testing.assert_allclose(table["treated"], [(risk >= p).mean() for p in table["threshold"]])


def test_without_censoring_it_counts_true_and_false_positives():
    y, curves = random_cohort(1, n=200, censoring=0.0)
    horizon = float(np.median(y["time"]))
    risk, gone = 1 - curves.evaluate(np.array([horizon]))[:, 0], y["time"] <= horizon
    for p, value in net_benefit(y, curves, horizon, thresholds=[0.1, 0.35, 0.6])[
        ["threshold", "net_benefit"]
    ].to_numpy():
        true, false = (risk >= p) & gone, (risk >= p) & ~gone
        assert value == pytest.approx(true.mean() - false.mean() * p / (1 - p))


def test_a_perfect_model_gains_the_share_of_events_at_every_threshold():
    time = np.array([1.0, 2.0, 3.0, 8.0, 9.0])
    y = make_outcome(time, [1, 1, 1, 1, 1])
    curves = SurvivalCurves([5.0], np.where(time <= 5, 0.0, 1.0)[:, None])
    np.testing.assert_allclose(net_benefit(y, curves, 5.0)["net_benefit"], 3 / 5)


def test_weights_count_as_copies():
    y, curves = random_cohort(5, n=80, tied_times=True)
    weight = np.random.default_rng(0).integers(0, 4, 80)
    rows = np.repeat(np.arange(80), weight)
    copied = net_benefit(y[rows], curves[rows], 6.0)
    np.testing.assert_allclose(net_benefit(y, curves, 6.0, sample_weight=weight), copied, atol=1e-12)


def test_patients_lost_before_the_horizon_give_no_number():
    y = make_outcome([1.0, 2.0, 9.0, 9.0], [1, 0, 1, 0])
    curves = SurvivalCurves([5.0], [[0.1], [0.1], [0.6], [0.9]])
    table = net_benefit(y, curves, 5.0, thresholds=[0.05, 0.5, 0.95])
    # The two with a risk of 90% were last seen at 2, with survival 1/2.
    assert np.isnan(table["net_benefit"][1])
    assert table["net_benefit"][2] == 0
    assert table["treated"].tolist() == [1, 0.5, 0]


def test_chunks_do_not_change_the_result(monkeypatch):
    y, curves = random_cohort(2, n=50)
    whole = net_benefit(y, curves, 4.0)
    monkeypatch.setattr(sys.modules["dcsurv.metrics.net_benefit"], "_CHUNK", 120)
    np.testing.assert_array_equal(net_benefit(y, curves, 4.0), whole)


def test_what_cannot_be_computed_is_refused():
    y, curves = random_cohort(2, n=50)
    for thresholds in ([0.0], [1.0], [], [np.nan], [[0.1]]):
        with pytest.raises(ValueError, match="above 0 and below 1"):
            net_benefit(y, curves, 4.0, thresholds=thresholds)
    for horizon in (0, -1, np.inf, np.nan, [1.0, 2.0]):
        with pytest.raises(ValueError, match="one finite time above 0"):
            net_benefit(y, curves, horizon)
    with pytest.raises(ValueError, match="the last patient was seen at"):
        net_benefit(y, curves, 1e6)


def test_resampling_by_counts_equals_the_naive_loop():
    for censoring in ("marginal", "by-risk"):
        y, curves = random_cohort(4, n=150)
        found = study_censoring(y, [curves]) if censoring == "marginal" else study_risk(curves(4.0), y, even_if=True)
        table = net_benefit(y, curves, 4.0, thresholds=[0.2, 0.4], censoring=found, n_bootstrap=30, confidence=0.8)
        draws = []
        for counts in next(resample_counts(150, 30, 0)).astype(int):
            rows = np.repeat(np.arange(150), counts)
            one = net_benefit(y[rows], curves[rows], 4.0, thresholds=[0.2, 0.4], censoring=found.take(rows))
            draws.append([one["net_benefit"], one["net_benefit"] - one["treat_all"]])
        expected = np.quantile(draws, [0.1, 0.9], axis=0)
        for names, limits in (
            (("lower", "upper"), expected[:, 0]),
            (("over_all_lower", "over_all_upper"), expected[:, 1]),
        ):
            for name, limit in zip(names, limits, strict=True):
                np.testing.assert_allclose(table[name], limit, atol=1e-12)
        np.testing.assert_allclose(table["over_all"], table["net_benefit"] - table["treat_all"])


def test_noise_is_not_said_to_help_and_a_model_is():
    said = {"noise": 0, "hardly different": 0, "truth": 0, "line above both": 0}
    for seed in range(20):
        cohort = simulate("exponential", 300, censored=0.4, random_state=seed)
        rng = np.random.default_rng(seed)
        times = cohort.truth.times
        spread = np.exp(0.15 * rng.normal(size=(300, 1)))
        models = {
            "noise": cohort.truth[rng.permutation(300)],
            "hardly different": SurvivalCurves(times, cohort.truth(times).mean(axis=0) ** spread),
            "truth": cohort.truth,
        }
        horizons = default_horizons(cohort.y)
        for name, curves in models.items():
            table = helpful_thresholds(cohort.y, curves, horizons, n_bootstrap=60, censoring="marginal")
            said[name] += table["helps"].any()
            if name == "noise":
                said["line above both"] += ((table["net_benefit"] > 0) & (table["over_all"] > 0)).any()
    assert said["noise"] <= 1
    assert said["hardly different"] <= 1
    assert said["truth"] >= 14
    assert said["line above both"] >= 14  # which was said to help


def test_limits_for_all_thresholds_at_once_are_lower_and_grow_with_confidence():
    y, curves = random_cohort(6, n=200)
    one = net_benefit(y, curves, 4.0, n_bootstrap=200, confidence=0.9)  # 5 % below, as of one-sided limits
    tables = {c: helpful_thresholds(y, curves, [2.0, 4.0], n_bootstrap=200, confidence=c) for c in (0.8, 0.95)}
    at = {c: table[table["horizon"] == 4.0].reset_index() for c, table in tables.items()}
    inside = one["treated"].between(0.1, 0.9)
    assert (at[0.95]["lower"] < one["lower"])[inside].all()
    assert (at[0.95]["lower"] <= at[0.8]["lower"]).all()
    np.testing.assert_allclose(at[0.8]["over_all"], one["over_all"])
    assert list(tables[0.8].columns) == [
        "horizon", "threshold", "net_benefit", "over_all", "lower", "over_all_lower", "helps",
    ]  # fmt: skip


@pytest.mark.parametrize("censoring", ["marginal", "by-risk"])
def test_treating_all_or_nobody_does_not_help(censoring):
    cohort = simulate("risk", 400, random_state=1)
    for level in (0.001, 0.999):
        table = helpful_thresholds(
            cohort.y, cohort.truth, [5.0], thresholds=[level], n_bootstrap=20, censoring=censoring
        )
        assert not table["helps"].any()


def test_resamples_and_weights_exclude_each_other():
    y, curves = random_cohort(2, n=50)
    with pytest.raises(ValueError, match="cannot be combined"):
        net_benefit(y, curves, 4.0, sample_weight=np.ones(50), n_bootstrap=10)
    with pytest.raises(ValueError, match="at least 2 resamples"):
        helpful_thresholds(y, curves, [4.0], n_bootstrap=0)
