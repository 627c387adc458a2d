from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from cohorts import random_cohort
from dcsurv.figures import PALETTE, evaluation, patients
from dcsurv.metrics import calibration_at_horizon, d_calibration, evaluate_over_time, net_benefit
from dcsurv.nonparametric import kaplan_meier
from figure_checks import check_texts

LONG = "Calibrated ensemble of many members (5 × DCS)"
FEATURES = ["age", "cost in $ and $", "a_name_that_goes_on_and_on_until_nobody_reads_it", "Größe <b>"]


def forest_table():
    rows = [(c, g) for c in FEATURES for g in ("below 56.2", "56.2 to 67.5", "above 67.5 (few events)")]
    table = pd.DataFrame(rows, columns=["column", "group"]).assign(value=np.linspace(0.6, 1.5, 12))
    table.loc[4, "value"] = np.nan
    return table.assign(lower=table["value"] - 0.2, upper=table["value"] + 0.3)


def importance_table():
    rows = [(f, h, k / 50) for k, f in enumerate(FEATURES[::-1]) for h in ("by 5 years", "by 10 years", "by 15 years")]
    table = pd.DataFrame(rows, columns=["feature", "horizon", "value"])
    return table.assign(lower=table["value"] - 0.01, upper=table["value"] + 0.02)


@pytest.fixture(scope="module")
def cohort():
    return random_cohort(0, n=200)


@pytest.fixture(scope="module")
def drawn(cohort):
    """Every figure, by name, with long and awkward names."""
    y, curves = cohort
    auc = evaluate_over_time(y, curves, None, 5, metrics=["AUC"])
    calibrated = calibration_at_horizon(y, curves, 5.0)
    groups = pd.DataFrame({"predicted": [0.2, 0.5], "observed": [0.25, 0.4], "lower": [0.1, 0.3], "upper": [0.4, 0.6]})
    benefit = net_benefit(y, curves, 5.0)
    times, survival = np.linspace(1, 20, 20), np.exp(-np.outer([0.05, 0.1, 0.2], np.linspace(1, 20, 20)))
    interval = pd.DataFrame({"time": [0.0, 5.0], "lower": [0.9, 0.5], "upper": [1.0, 0.8]})
    return {
        "follow-up": patients.follow_up(y, unit="days since diagnosis", interval=interval),
        "missing": patients.missing_values(pd.Series([0.9, 0.3, 0.1, 0.001], index=FEATURES)),
        "auc": evaluation.metric_over_time({LONG: auc, "CoxPH": auc}, ylabel="AUC(t)", chance=0.5, horizons=[5.0]),
        "calibration": evaluation.calibration_curve(
            calibrated.predicted, calibrated.observed, risks=calibrated.predicted, groups=groups, label="by 5 years"
        ),
        "bins": evaluation.d_calibration_bins(
            {"before recalibration": np.full(10, 0.1), "after recalibration": d_calibration(y, curves).bins}
        ),
        "decision": evaluation.decision_curve({LONG: benefit, "CoxPH": benefit}, label="by 5,479 days"),
        "forest": evaluation.forest(forest_table(), xlabel="C-td (higher is better)", overall=0.9),
        "ratios": evaluation.forest(forest_table(), xlabel="observed / expected", overall=1, logarithmic=True),
        "patients": patients.patient_curves(
            times, survival, ["low risk", "middle", "high risk"], lower=survival**1.3, upper=survival**0.7, unit="years"
        ),
        "importance": evaluation.importance_at_horizons(importance_table(), xlabel="drop of AUC when shuffled"),
    }


NAMES = ["follow-up", "missing", "auc", "calibration", "bins", "decision", "forest", "ratios", "patients", "importance"]


@pytest.mark.parametrize("name", NAMES)
def test_no_text_is_cut_off_or_covers_another(drawn, name):
    check_texts(drawn[name])
    width, _ = drawn[name].get_size_inches()
    assert width <= 4.5, "on a phone a wider figure would have letters too small to read"


def test_follow_up_counts_the_patients_at_risk(drawn, cohort):
    y, _ = cohort
    ax, table = drawn["follow-up"].axes
    shown = {text.get_position()[0]: text.get_text() for text in table.texts if text.get_text() != "number at risk"}
    assert len(shown) > 3
    for t, text in shown.items():
        assert int(text.replace(",", "")) == (y["time"] >= t).sum()
    (line,) = [line for line in ax.lines if line.get_color() == PALETTE[0]]
    km = kaplan_meier(y)
    np.testing.assert_array_equal(line.get_xydata()[1:-1], np.column_stack([km.times, km.values]))


def test_calibration_shows_the_curve_but_no_patients_own_risk(drawn, cohort):
    y, curves = cohort
    own = calibration_at_horizon(y, curves, 5.0)
    ax = drawn["calibration"].axes[0]
    curve = ax.lines[1].get_xydata()
    np.testing.assert_allclose(curve[:, 1], np.interp(curve[:, 0], own.predicted, own.observed))
    assert not np.isin(curve[:, 0], own.predicted).any()
    assert ax.get_xlim() == ax.get_ylim()


def test_bins_have_the_height_of_their_share(drawn, cohort):
    y, curves = cohort
    bars = drawn["bins"].axes[0].patches
    np.testing.assert_allclose([bar.get_height() for bar in bars[10:]], 100 * d_calibration(y, curves).bins)
    assert to_hex(bars[10].get_facecolor()) == PALETTE[0].lower()


def test_decision_curve_shows_model_all_and_none(drawn, cohort):
    y, curves = cohort
    table = net_benefit(y, curves, 5.0)
    lines = {line.get_label(): line for line in drawn["decision"].axes[0].lines}
    assert set(lines) == {LONG[:39] + "…", "CoxPH", "treat all", "treat none"}
    np.testing.assert_allclose(lines["CoxPH"].get_ydata(), table["net_benefit"])
    np.testing.assert_allclose(lines["treat all"].get_ydata(), table["treat_all"])
    assert lines["CoxPH"].get_linestyle() != lines[LONG[:39] + "…"].get_linestyle(), "told apart without colours, too"


def test_decision_curve_has_a_band_and_a_bar_where_the_model_helps(cohort):
    y, curves = cohort
    table = net_benefit(y, curves, 5.0, n_bootstrap=5)
    ax = evaluation.decision_curve({"model": table, "CoxPH": table[["threshold", "net_benefit", "treat_all"]]}).axes[0]
    assert len(ax.collections) == 1
    ax = evaluation.decision_curve({"model": table.assign(helps=table["threshold"].between(0.2, 0.3))}).axes[0]
    bar = ax.collections[1]
    assert bar.get_label() == "the model helps"
    assert len(bar.get_segments()) == 11


def test_forest_leaves_out_what_is_unknown(drawn):
    table = forest_table()
    marks = [line.get_xdata()[0] for line in drawn["forest"].axes[0].lines if line.get_marker() == "s"]
    np.testing.assert_allclose(marks, table["value"].dropna())


def test_over_time_has_a_band_where_there_is_an_interval(drawn, cohort):
    y, curves = cohort
    auc = evaluate_over_time(y, curves, None, 5, metrics=["AUC"])
    ax = drawn["auc"].axes[0]
    assert len(ax.collections) == 2
    line = next(line for line in ax.lines if line.get_label() == "CoxPH")
    np.testing.assert_allclose(line.get_xydata(), auc[["time", "value"]])


def test_dollars_are_no_formula():
    assert evaluation.plain("cost in $ and $") == r"cost in \$ and \$"
    assert evaluation.plain(" a\n b ") == "a b"
    assert evaluation.plain("x" * 50, 10) == "x" * 9 + "…"


def test_tables_that_cannot_be_drawn_are_refused():
    with pytest.raises(ValueError, match="lacks the columns"):
        evaluation.forest(pd.DataFrame({"column": ["a"]}), xlabel="x")
    with pytest.raises(ValueError, match="the table of 'm' lacks the columns"):
        evaluation.metric_over_time({"m": pd.DataFrame({"time": [1]})}, ylabel="y")
