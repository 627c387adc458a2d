from __future__ import annotations

import sys

import numpy as np
import pytest

from cohorts import CASES, random_cohort
from dcsurv import SurvivalCurves, make_outcome
from dcsurv.metrics import net_benefit


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
