"""Intercept, slope, the band of the calibration curve, and the observed risk by strata of predicted risk."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from dcsurv import SurvivalCurves, make_outcome
from dcsurv.datasets import simulate
from dcsurv.metrics import calibration_at_horizon, concordance_index_td, cumulative_dynamic_auc, evaluate
from dcsurv.metrics.catalogue import choose_metrics
from dcsurv.metrics.evaluation import PreparedMetrics
from dcsurv.metrics.horizon_fit import cloglog
from dcsurv.metrics.setting import Setting
from dcsurv.nonparametric import kaplan_meier


def bent(truth: SurvivalCurves, factor: float = 1.0, power: float = 1.0) -> SurvivalCurves:
    """Return curves with H' = factor * H^power."""
    hazard = -np.log(np.clip(truth.values, 1e-12, 1.0))
    return SurvivalCurves(truth.times, np.exp(-factor * hazard**power), interpolation=truth.interpolation)


@pytest.mark.parametrize("horizon", [3.0, 8.0])
def test_intercept_and_slope_are_those_that_bent_the_curves(horizon):
    cohort = simulate("independent", 8000, random_state=1)
    right = calibration_at_horizon(cohort.y, cohort.truth, horizon)
    assert right.intercept == pytest.approx(0, abs=0.08)
    assert right.slope == pytest.approx(1, abs=0.12)
    high = calibration_at_horizon(cohort.y, bent(cohort.truth, factor=1.35), horizon)
    assert high.intercept - right.intercept == pytest.approx(-np.log(1.35), abs=1e-3)
    assert high.slope == pytest.approx(right.slope, abs=1e-3)
    extreme = calibration_at_horizon(cohort.y, bent(cohort.truth, power=1.5), horizon)
    assert extreme.slope == pytest.approx(right.slope / 1.5, abs=1e-3)


def test_intercept_and_slope_maximise_the_likelihood():
    rng = np.random.default_rng(0)
    risk = rng.uniform(0.05, 0.9, 300)
    died = rng.uniform(size=300) < risk**1.3
    y = make_outcome(np.where(died, 1.0, 2.0), died | (rng.uniform(size=300) < 0.5))  # nobody is lost before 1.5
    curves = SurvivalCurves([0.5, 3.0], np.column_stack([1 - risk, 1 - risk]))
    found = calibration_at_horizon(y, curves, 1.5)

    def loss(coef, slope=None):
        fitted = 1 - np.exp(-np.exp(coef[0] + (coef[1] if slope is None else slope) * cloglog(risk)))
        return -np.where(died, np.log(fitted), np.log1p(-fitted)).mean()

    both = minimize(loss, [0.0, 1.0], tol=1e-12).x
    alone = minimize(lambda coef: loss(coef, 1.0), [0.0], tol=1e-12).x
    assert found.slope == pytest.approx(both[1], abs=1e-4)
    assert found.intercept == pytest.approx(alone[0], abs=1e-4)


def test_the_observed_risk_is_kaplan_meier_within_tenths():
    cohort = simulate("independent", 1000, random_state=3)
    t = 5.0
    risk = 1 - cohort.truth.evaluate(np.array([t]))[:, 0]
    tenths = pd.qcut(risk, 10, labels=False)
    by_hand = np.mean([1 - kaplan_meier(cohort.y[tenths == k])(t) for k in range(10)])
    found = calibration_at_horizon(cohort.y, cohort.truth, t, censoring="marginal")
    assert found.observed_risk == pytest.approx(by_hand, abs=1e-9)
    assert found.ratio == pytest.approx(found.observed_risk / risk.mean())


@pytest.mark.parametrize("strength", [-1.0, 1.0])
def test_observed_over_expected_is_right_where_censoring_depends_on_risk(strength):
    """Of one Kaplan-Meier curve for all it is .85 to 1.15."""
    cohort = simulate("risk", 12_000, strength=strength, random_state=2)
    horizons = np.quantile(cohort.y["time"][cohort.y["event"]], [0.5, 0.8])
    ratios = [calibration_at_horizon(cohort.y, cohort.truth, t, censoring="marginal").ratio for t in horizons]
    plain = (1 - kaplan_meier(cohort.y)(horizons)) / (1 - cohort.truth.evaluate(horizons)).mean(axis=0)
    assert np.abs(np.array(ratios) - 1).max() < 0.035
    assert np.abs(plain - 1).max() > 0.06


def test_a_tenth_without_anybody_left_is_joined_with_others():
    """All of the half at higher risk are lost at 1; at 2 only the whole cohort has somebody to look at."""
    n = 40
    time = np.concatenate([np.full(n // 2, 1.0), np.linspace(1.5, 4.0, n // 2)])
    event = np.concatenate([np.arange(n // 2) % 2 == 0, np.arange(n // 2) % 2 == 0])
    high = np.arange(n) < n // 2
    curves = SurvivalCurves([1.0, 4.0], np.where(high, 0.5, 0.8)[:, None] * np.array([1.0, 0.5]))
    y = make_outcome(time, event)
    found = calibration_at_horizon(y, curves, 2.0)
    assert found.observed_risk == pytest.approx(1 - kaplan_meier(y)(2.0))


def test_the_band_holds_the_curve_and_narrows_with_patients():
    few, many = (simulate("independent", n, random_state=4) for n in (200, 3200))
    widths = []
    for one in (few, many):
        found = calibration_at_horizon(one.y, one.truth, 5.0, n_bootstrap=60)
        assert found.lower is not None
        assert found.upper is not None
        inside = (found.lower <= found.observed) & (found.observed <= found.upper)
        assert inside.mean() > 0.9
        widths.append(np.mean(found.upper - found.lower))
        assert found.lower.shape == found.predicted.shape
    assert widths[1] < 0.5 * widths[0]
    assert calibration_at_horizon(few.y, few.truth, 5.0).lower is None


def test_evaluate_has_what_the_function_has():
    cohort = simulate("independent", 300)
    table = evaluate(cohort.y, cohort.truth, horizons=[4.0], n_bootstrap=20, n_null=0).set_index("metric")
    one = calibration_at_horizon(cohort.y, cohort.truth, 4.0)
    for name, value in {
        "Calibration intercept": one.intercept, "Calibration slope": one.slope, "O/E": one.ratio, "ICI": one.ici,
        "E50": one.e50, "E90": one.e90,
    }.items():  # fmt: skip
        assert table.loc[name, "value"] == pytest.approx(value, abs=1e-12), name
    intervals = table.loc[["Calibration intercept", "Calibration slope", "O/E"]]
    assert ((intervals["lower"] < intervals["value"]) & (intervals["value"] < intervals["upper"])).all()


def test_the_same_curve_for_all_has_no_slope():
    cohort = simulate("independent", 100)
    same = SurvivalCurves([2.0, 9.0], np.tile([0.8, 0.4], (100, 1)))
    with pytest.warns(UserWarning, match="Calibration slope at 4 is left out: every predicted risk there is the same"):
        table = evaluate(
            cohort.y, same, metrics=["Calibration slope", "Calibration intercept"], horizons=[4.0], n_null=0
        )
    assert table["metric"].tolist() == ["Calibration intercept"]


# --- what does not move with the size of the cohort ---------------------------------------------------------------


def test_cdauc_is_level_in_the_number_of_patients():
    """Up to the last event it would be .015 lower at 200 patients; 40 cohorts have a standard error of .005."""
    few = [simulate("exponential", 200, censored=0.3, random_state=k) for k in range(40)]
    large = simulate("exponential", 6000, censored=0.3, random_state=99)
    small = np.mean([cumulative_dynamic_auc(one.y, one.truth).mean for one in few])
    assert small == pytest.approx(cumulative_dynamic_auc(large.y, large.truth).mean, abs=0.012)


def test_a_patient_makes_no_pair_with_its_copy():
    cohort = simulate("independent", 60)
    counts = np.random.default_rng(0).multinomial(60, np.full(60, 1 / 60)).astype(np.float64)[None, :]
    rows = np.repeat(np.arange(60), counts[0].astype(int))
    drawn = concordance_index_td(cohort.y[rows], cohort.truth[rows])
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for convention in ("default", "paper"):
            setting = Setting(cohort.y, cohort.truth, cohort.y, convention)
            found[convention] = PreparedMetrics(choose_metrics(["C-td"]), setting).resampled(counts)["C-td", np.nan][0]
    assert found["default"] == pytest.approx(concordance_index_td(cohort.y, cohort.truth, sample_weight=counts[0]))
    assert found["default"] < drawn  # copies would count as ranked rightly
    assert found["paper"] > found["default"]  # as the authors' loop over resampled rows has it
