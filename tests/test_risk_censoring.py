"""Censoring that depends on the predicted risk: finding it, weighting by it, and a default that is right either way."""

from typing import Any

import numpy as np
import pytest

from dcsurv import CoxPH, SurvivalCurves, make_outcome, metrics, recalibrate
from dcsurv.calibration import make_maps
from dcsurv.datasets import simulate
from dcsurv.follow_up import RiskTest, study_risk
from dcsurv.follow_up.association import dependence_test
from dcsurv.metrics.censoring import predicted_risk, study_censoring

SHAPE = 1.2
# Rates of censoring at a log-risk of 0, so that about half of the patients are censored.
RATES = {0: 0.75, 1: 1.05, -1: 0.6}


def cohort(n: int, strength: int, seed: int) -> tuple[Any, Any, SurvivalCurves]:
    """Draw censored and complete outcomes, and the true curves; the rate of censoring is exp(strength x log-risk)."""
    rng = np.random.default_rng(seed)
    log_risk = rng.normal(size=n)
    event = (rng.exponential(size=n) * np.exp(-log_risk)) ** (1 / SHAPE)
    lost = rng.exponential(size=n) * np.exp(-strength * log_risk) / RATES[strength]
    nodes = np.append(np.quantile(event, np.arange(1, 150) / 150), event.max())
    truth = SurvivalCurves(nodes, np.exp(-np.exp(log_risk)[:, None] * nodes**SHAPE))
    return make_outcome(np.minimum(event, lost), event <= lost), make_outcome(event, np.ones(n)), truth


def moved(y: Any, truth: SurvivalCurves, censoring: Any) -> float:
    """Return by how much the maps of a perfect model move S, which they should leave alone."""
    times = np.quantile(y["time"][y["event"]], np.arange(0.05, 1, 0.05))
    fitted = make_maps(("horizon", "rank")).fit(y, truth, censoring=censoring)
    return float(np.abs(fitted.transform(truth)(times) - truth(times)).mean())


@pytest.mark.parametrize("strength", [0, 1, -1])
def test_maps_leave_a_perfect_model_alone_whatever_censoring_depends_on(strength: int) -> None:
    y, _, truth = cohort(5000, strength, 1)
    by_default = moved(y, truth, "auto")
    assert by_default < 0.010
    if strength:
        assert moved(y, truth, "marginal") > 1.3 * by_default
    else:
        assert moved(y, truth, "marginal") == by_default
        assert moved(y, truth, "by-risk") < 0.010


@pytest.mark.parametrize("strength", [1, -1])
def test_metrics_of_the_true_model_meet_their_population_values(strength: int) -> None:
    y, complete, truth = cohort(4000, strength, 2)
    times = np.quantile(y["time"][y["event"]], [0.25, 0.5, 0.75])

    def measured(y: Any, censoring: str) -> dict[str, np.ndarray]:
        calibration = [metrics.calibration_at_horizon(y, truth, t, censoring=censoring) for t in times]
        return {
            "brier": metrics.brier_score(y, truth, times, censoring=censoring)[1],
            "auc": metrics.cumulative_dynamic_auc(y, truth, times=times, censoring=censoring).auc,
            "net benefit": np.array(
                [
                    metrics.net_benefit(y, truth, t, thresholds=[0.2], censoring=censoring)["net_benefit"][0]
                    for t in times
                ]
            ),
            "ici": np.array([one.ici for one in calibration]),
            "ratio": np.array([one.ratio for one in calibration]),
        }

    right, found, biased = measured(complete, "marginal"), measured(y, "auto"), measured(y, "marginal")
    for name, most in (("brier", 0.012), ("auc", 0.03), ("net benefit", 0.03)):
        assert np.abs(found[name] - right[name]).max() < most, name
        assert np.abs(biased[name] - right[name]).sum() > 1.5 * np.abs(found[name] - right[name]).sum(), name
    assert found["ici"].max() < 0.03 < biased["ici"].max()
    assert np.abs(found["ratio"] - 1).max() < 0.06


def test_the_test_of_censoring_against_risk_keeps_its_level_and_finds_what_there_is() -> None:
    def share(strength: float, n: int, times: int, **more: Any) -> float:
        small = 0
        for k in range(times):
            drawn = simulate("risk", n, strength=strength, random_state=k, **more)
            small += study_risk(predicted_risk(drawn.y, [drawn.truth]), drawn.y).p_value < 0.05
        return small / times

    assert 0.015 < share(0.0, 200, 200) < 0.10  # .05, give or take three standard errors
    assert share(0.7, 200, 40) > 0.8


def test_censoring_at_the_end_of_a_study_is_no_dependence() -> None:
    drawn = simulate("administrative", 400, censored=0.5)
    found = study_censoring(drawn.y, [drawn.truth])
    assert np.isnan(found.p_value)
    assert not found.depends
    assert found.describe_risk() == ""


def test_the_score_test_is_that_of_a_logrank_test_with_two_groups() -> None:
    from lifelines.statistics import logrank_test

    drawn = simulate("risk", 300)
    high = drawn.X["grade"].to_numpy() > 0
    time, lost = np.ceil(drawn.y["time"] * 4), ~drawn.y["event"]  # ties of censorings
    time = np.where(lost, time, time - 0.5)  # but not with events
    expected = logrank_test(time[high], time[~high], lost[high], lost[~high]).p_value
    assert dependence_test(high[:, None].astype(float), time, lost) == pytest.approx(expected, rel=1e-9)


@pytest.mark.filterwarnings("ignore:Brier score. 1 of 100 times")
def test_the_features_come_first_then_the_risk_then_nothing() -> None:
    by_risk, staggered, neither = (simulate(name, 800, random_state=4) for name in ("risk", "staggered", "exponential"))
    found = study_censoring(staggered.y, [staggered.truth], staggered.X)
    assert (found.by, found.depends) == ("features", True)
    assert not found.risk.depends
    found = study_censoring(by_risk.y, [by_risk.truth], by_risk.X[["bmi"]])
    assert (found.by, found.depends) == ("risk", True)
    assert len(found.followed_until) == 10
    assert found.describe().startswith("Predicted risk predicts censoring (concordance 0.6")
    table = metrics.evaluate(by_risk.y, by_risk.truth, horizons=[4.0], metrics=["IBS", "C-td"], n_null=0)
    told = table.set_index("metric")["convention"]
    assert "G given the predicted risk (concordance with censoring 0.6" in told["IBS"]
    assert "predicted risk" not in told["C-td"]
    assert not study_censoring(neither.y, [neither.truth], neither.X).depends


@pytest.mark.filterwarnings("ignore:Brier score. 1 of 100 times")
def test_models_that_are_compared_have_the_same_weights() -> None:
    drawn = simulate("risk", 600, random_state=2)
    noise = drawn.truth[np.random.default_rng(0).permutation(600)]
    options: dict[str, Any] = {"metrics": ["IBS"], "n_bootstrap": 5}
    table = metrics.compare(drawn.y, {"noise": noise, "truth": drawn.truth}, **options)
    found = study_censoring(drawn.y, [noise, drawn.truth])
    assert found.by == "risk"
    assert found.depends
    one = metrics.integrated_brier_score(drawn.y, noise, censoring=found)
    assert table["reference_value"][0] == pytest.approx(one, abs=1e-12)
    # Alone, the noise is weighted by one curve: it does not predict censoring.
    alone = metrics.integrated_brier_score(drawn.y, noise)
    assert alone == metrics.integrated_brier_score(drawn.y, noise, censoring="marginal") != one


def test_groups_hold_where_many_have_the_same_risk() -> None:
    drawn = simulate("risk", 500, random_state=3)
    coarse = np.where(drawn.X["grade"] + drawn.X["treated"] > 0, 1.0, 0.0)
    found = study_risk(coarse, drawn.y, even_if=True)
    assert set(found.groups) == set(range(len(found.followed_until))) == {0, 1}
    assert not study_risk(np.ones(500), drawn.y, even_if=True).depends
    few = study_risk(drawn.truth(5.0)[:40], drawn.y[:40])
    assert np.isnan(few.risk.p_value)
    uno = metrics.concordance_index_uno(drawn.y, 1 - drawn.truth(5.0))
    assert uno != metrics.concordance_index_uno(drawn.y, 1 - drawn.truth(5.0), censoring="marginal")


def test_a_group_that_has_had_the_event_counts_when_it_could_not_be_followed_any_more() -> None:
    y, _, truth = cohort(4000, 1, 3)
    late = np.quantile(y["time"][y["event"]], [0.9])
    table = metrics.evaluate(y, truth, horizons=late, metrics=["O/E"], n_null=0)
    assert table["counted"][0] > 0.9
    found = study_censoring(y, [truth])
    assert (found.followed_until[found.groups] >= late).mean() < 0.85


def test_recalibration_says_what_its_weights_follow() -> None:
    old, new = (simulate("risk", 600, random_state=k) for k in (5, 6))
    columns = ["age", "marker", "grade", "treated"]
    model = CoxPH().fit(old.X[columns], old.y)
    done = recalibrate(model, new.X[columns], new.y)
    assert done.follow_up.depends
    assert done.follow_up.by == "features"
    assert done.follow_up.describe_risk().startswith("Predicted risk predicts censoring (concordance 0.6")


def test_the_test_is_said_in_words() -> None:
    assert str(RiskTest(0.55, 0.0042)).endswith("hardly predicts censoring (concordance 0.55, p = 0.004)")
    assert str(RiskTest(np.nan, np.nan)).startswith("There are too few censorings at different times")
