"""What the metrics promise beyond parity: weights, resampling, truncation, intervals, refusals."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cohorts import CASES, random_cohort
from dcsurv import SurvivalCurves, make_outcome
from dcsurv.cohort import last_usable_time, usable_horizons
from dcsurv.curves import as_curves
from dcsurv.datasets import simulate
from dcsurv.metrics import (
    auc,
    brier,
    brier_score,
    calibration_at_horizon,
    compare,
    concordance_index_harrell,
    concordance_index_td,
    concordance_index_uno,
    cumulative_dynamic_auc,
    d_calibration,
    ddc,
    ddc_floor,
    default_horizons,
    evaluate,
    integrated_brier_score,
)
from dcsurv.metrics.catalogue import choose_metrics
from dcsurv.metrics.evaluation import PreparedMetrics
from dcsurv.metrics.inputs import SortedCohort
from dcsurv.metrics.resampling import resample_counts
from dcsurv.metrics.setting import Setting

FUNCTIONS = {
    "C-td": concordance_index_td,
    "CDAUC": lambda y, curves: cumulative_dynamic_auc(y, curves).mean,
    "IBS": integrated_brier_score,
    "DDC": ddc,
    "ICI": lambda y, curves: calibration_at_horizon(y, curves, float(np.median(y["time"]))).ici,
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("from_train", [False, True])
def test_resampling_by_counts_equals_the_naive_loop(name, from_train):
    """A patient's pairs with its own copies are left out."""
    y, curves = random_cohort(7, **CASES[name])
    y_train = random_cohort(8, **{**CASES[name], "n": 200})[0] if from_train else None
    metrics = ["C-td", "CDAUC", "IBS", "DDC", "O/E"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # times left out, in the tiny cohort
        prepared = PreparedMetrics(
            choose_metrics(metrics), Setting(y, curves, y_train, weights_from="train" if from_train else "test")
        )
        counts = next(resample_counts(len(y), 20, random_state=5))
        fast = prepared.resampled(counts)
        for b, row in enumerate(counts.astype(int)):
            drawn = np.repeat(np.arange(len(y)), row)
            if not y["event"][drawn].any() or len(np.unique(y["time"][drawn])) < 3:
                continue
            naive = {
                "C-td": concordance_index_td(y, curves, sample_weight=row),
                "CDAUC": cumulative_dynamic_auc(
                    y[drawn], curves[drawn], times=prepared.parts["CDAUC"].times, y_train=y_train, censoring="marginal"
                ).mean,
                "IBS": integrated_brier_score(
                    y[drawn], curves[drawn], times=prepared.parts["IBS"].times, y_train=y_train, censoring="marginal"
                ),
                "DDC": ddc(y[drawn], curves[drawn]),
            }
            for metric, value in naive.items():
                assert fast[(metric, np.nan)][b] == pytest.approx(value, abs=1e-12), metric


@pytest.mark.parametrize("name", CASES)
def test_integer_weights_count_as_copies(name):
    y, curves = random_cohort(9, **CASES[name])
    counts = np.random.default_rng(1).integers(1, 4, len(y))
    copies = np.repeat(np.arange(len(y)), counts)
    # C-td leaves out a patient's pairs with copies of itself when weighted, so it is compared without adjusted ties.
    weighted = concordance_index_td(y, curves, ties="antolini", sample_weight=counts)
    assert weighted == pytest.approx(concordance_index_td(y[copies], curves[copies], ties="antolini"), abs=1e-12)
    weighted = d_calibration(y, curves, sample_weight=counts)
    np.testing.assert_allclose(weighted.bins, d_calibration(y[copies], curves[copies]).bins, atol=1e-12)
    assert weighted.p_value == pytest.approx(d_calibration(y[copies], curves[copies]).p_value, abs=1e-9)
    times = np.unique(np.quantile(y["time"], [0.3, 0.5, 0.7]))
    for metric in (  # a test of what censoring depends on would take copies for patients
        lambda y, curves, **more: brier_score(y, curves, times, censoring="marginal", **more)[1],
        lambda y, curves, **more: cumulative_dynamic_auc(y, curves, times=times, censoring="marginal", **more).auc,
        lambda y, curves, **more: concordance_index_uno(y, -curves.rmst(), censoring="marginal", **more),
        lambda y, curves, **more: concordance_index_harrell(y, -curves.rmst(), **more),
    ):
        weighted = metric(y, curves, sample_weight=counts)
        np.testing.assert_allclose(weighted, metric(y[copies], curves[copies]), atol=1e-12)
    horizon = float(times[1]) if len(times) > 1 else float(times[0])
    weighted, copied = (
        calibration_at_horizon(y, curves, horizon, censoring="marginal", sample_weight=counts),
        calibration_at_horizon(y[copies], curves[copies], horizon, censoring="marginal"),
    )
    assert weighted.ratio == pytest.approx(copied.ratio, abs=1e-9)


@given(seed=st.integers(0, 10_000), case=st.sampled_from(sorted(CASES)))
@settings(max_examples=40, deadline=None)
def test_metrics_are_finite_bounded_and_do_not_depend_on_order(seed, case):
    y, curves = random_cohort(seed, **CASES[case])
    if y["event"].sum() < 2 or y["time"][y["event"]].min() >= np.median(y["time"]):
        return  # too little to compute anything from, which the refusals below cover
    shuffled = np.random.default_rng(seed).permutation(len(y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for name, metric in FUNCTIONS.items():
            value = metric(y, curves)
            assert np.isfinite(value)
            assert 0 <= value <= (np.log(10) if name == "DDC" else 4 if name == "IBS" else 1)
            assert metric(y[shuffled], curves[shuffled]) == pytest.approx(value, abs=1e-9)


def test_a_perfect_ranking_scores_one_and_its_reverse_zero():
    time = np.arange(1.0, 41.0)
    y = make_outcome(time, np.ones(40))
    rank = np.linspace(3.0, 0.2, 40)[:, None]
    grid = np.linspace(1, 40, 30)
    good = SurvivalCurves(grid, np.exp(-rank * grid / 20))
    bad = good[::-1]
    assert concordance_index_td(y, good) == 1
    assert concordance_index_td(y, bad) == 0
    assert cumulative_dynamic_auc(y, good).mean == pytest.approx(1)
    assert cumulative_dynamic_auc(y, bad).mean == pytest.approx(0)
    assert concordance_index_harrell(y, -time) == 1
    assert integrated_brier_score(y, good) < integrated_brier_score(y, bad)


def test_true_curves_are_calibrated_and_wrong_ones_are_not():
    rng = np.random.default_rng(0)
    rate = rng.uniform(0.02, 0.2, 4000)
    death, censoring = rng.exponential(1 / rate), rng.exponential(20, 4000)
    y = make_outcome(np.minimum(death, censoring), death <= censoring)
    grid = np.linspace(0.25, y["time"].max(), 400)
    truth = SurvivalCurves(grid, np.exp(-rate[:, None] * grid), interpolation="constant_hazard")
    wrong = SurvivalCurves(grid, np.exp(-2 * rate[:, None] * grid), interpolation="constant_hazard")
    assert ddc(y, truth) < 3 * ddc_floor(y, truth)
    assert d_calibration(y, truth).p_value > 0.01
    assert d_calibration(y, wrong).p_value < 1e-6
    right, off = calibration_at_horizon(y, truth, 8.0), calibration_at_horizon(y, wrong, 8.0)
    assert right.ici < 0.03
    assert right.ratio == pytest.approx(1, abs=0.05)
    true_risk = 1 - np.exp(-rate * 8)
    expected_ici = np.mean((1 - np.exp(-2 * rate * 8)) - true_risk)
    assert off.ici == pytest.approx(expected_ici, abs=0.02)
    assert off.e50 <= off.e90
    assert (np.diff(off.predicted) >= 0).all()


def test_the_floor_is_what_a_true_model_scores_on_average():
    rng = np.random.default_rng(3)
    n, scores = 300, []
    rate = rng.uniform(0.02, 0.2, n)
    grid = np.linspace(0.5, 60, 200)
    for _ in range(60):
        death, censoring = rng.exponential(1 / rate), rng.uniform(0, 40, n)
        y = make_outcome(np.minimum(death, censoring), death <= censoring)
        truth = SurvivalCurves(grid, np.exp(-rate[:, None] * grid), interpolation="constant_hazard")
        scores.append(ddc(y, truth))
    assert ddc_floor(y, truth) == pytest.approx(np.mean(scores), rel=0.15)


def test_times_without_weights_are_left_out_and_named():
    y, curves = random_cohort(0, n=100)
    short = make_outcome([1.0, 5.0, 8.0, 9.0], [1, 1, 0, 0])  # G is 0 from 9 on
    late = np.array([2.0, 6.0, 30.0])
    for metric in (
        lambda: brier_score(y, curves, late, y_train=short)[0],
        lambda: cumulative_dynamic_auc(y, curves, times=late, y_train=short).times,
    ):
        with pytest.warns(UserWarning, match="1 of 3 times was left out.*last time used is 6"):
            assert metric().tolist() == [2.0, 6.0]
    with pytest.warns(UserWarning, match="events after 9, where the censoring weights run out"):
        concordance_index_uno(y, -curves.rmst(), y_train=short)
    with pytest.raises(ValueError, match="cannot be computed at any"):
        brier_score(y, curves, [1e9])
    with pytest.raises(ValueError, match="cannot be computed at any"):
        calibration_at_horizon(y, curves, 1e9)


def test_a_weight_of_zero_is_as_if_the_patient_were_not_there():
    y, curves = random_cohort(4, n=60)
    weight = np.where(y["time"] > np.quantile(y["time"], 0.6), 0.0, 1.0)
    keep = weight > 0
    for metric in (concordance_index_td, integrated_brier_score, ddc):
        assert metric(y, curves, sample_weight=weight) == metric(y[keep], curves[keep])
    ours = cumulative_dynamic_auc(y, curves, sample_weight=weight)
    assert ours.mean == cumulative_dynamic_auc(y[keep], curves[keep]).mean
    assert np.isfinite(ours.auc).all()
    tables = evaluate(y, curves, sample_weight=weight), evaluate(y[keep], curves[keep])
    np.testing.assert_array_equal(tables[0]["value"], tables[1]["value"])
    with pytest.raises(ValueError, match="0 observed events"):
        cumulative_dynamic_auc(y, curves, sample_weight=~y["event"])


def test_weights_do_not_make_pairs_out_of_rounding():
    y, curves = make_outcome([1, 2, 3], [0, 0, 1]), SurvivalCurves([1.0, 10.0], np.tile([0.9, 0.1], (3, 1)))
    for ties in ("adjusted", "antolini"):
        with pytest.raises(ValueError, match="no two patients"):
            concordance_index_td(y, curves, ties=ties, sample_weight=[0.1, 0.2, 0.3])


def test_follow_up_of_the_training_part_limits_the_times():
    """Also where its last patient had the event, so that the censoring curve never reaches 0."""
    y, curves = random_cohort(0, n=100)
    short = make_outcome([1.0, 2.0, 3.0, 4.0], [1, 0, 1, 1])
    with pytest.warns(UserWarning, match="last time used is 4"):
        assert brier_score(y, curves, [2.0, 4.0, 9.0], y_train=short)[0].tolist() == [2.0, 4.0]


def test_a_model_without_risk_loses_only_what_is_undefined():
    y, _ = random_cohort(0, n=50)
    certain = SurvivalCurves([1.0, 100.0], np.ones((50, 2)))
    with pytest.warns(UserWarning, match=" at .* is left out: every predicted risk there is "):
        table = evaluate(y, certain, n_bootstrap=5)
    assert not {"O/E", "Calibration intercept", "Calibration slope"} & set(table["metric"])
    assert np.isfinite(table["value"]).all()
    with pytest.warns(UserWarning, match=" at .* is left out"):
        gaps = compare(y, {"some": random_cohort(0, n=50)[1], "certain": certain}, n_bootstrap=5)
    assert set(gaps["metric"]) == {"C-td", "CDAUC", "IBS", "DDC", "E50", "E90", "ICI"}


def test_evaluate_is_one_tidy_table_that_agrees_with_the_functions():
    y, curves = random_cohort(1, n=400)
    table = evaluate(y, curves, n_bootstrap=200)
    value = table.set_index("metric")["value"]
    for name in ("C-td", "CDAUC", "IBS", "DDC"):
        assert value[name] == pytest.approx(FUNCTIONS[name](y, curves), abs=1e-12)
    np.testing.assert_allclose(table.loc[table["metric"] == "ICI", "horizon"], default_horizons(y))
    resampled = table[table["lower"].notna()]
    assert (resampled["lower"] <= resampled["mean"]).all()
    assert (resampled["mean"] <= resampled["upper"]).all()
    inside = resampled[resampled["metric"].isin(["C-td", "CDAUC", "IBS", "O/E"])]
    assert ((inside["lower"] <= inside["value"]) & (inside["value"] <= inside["upper"])).all()
    assert list(table["metric"][:6]) == ["C-td", "CDAUC", "IBS", "DDC", *["Calibration intercept"] * 2]
    assert (table["convention"].str.len() > 10).all()
    again = evaluate(y, curves, n_bootstrap=200)
    assert table.equals(again)


def test_a_horizon_that_few_patients_reach_is_computed_if_asked_for_and_said_to_be_of_few():
    y, curves = random_cohort(1, n=400)
    last = last_usable_time(y["time"], y["event"])
    late = float(np.sort(y["time"])[-3])
    assert late > last
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        usable = evaluate(y, curves, horizons=[last], metrics=["O/E"], n_null=0)
    with pytest.warns(UserWarning, match=f"fewer than 10 of these patients .* after {last:g}.* said of {late:g} rests"):
        both = evaluate(y, curves, horizons=[last, late], metrics=["O/E"], n_null=0)
    assert both["horizon"].tolist() == [last, late]
    assert both["value"][0] == pytest.approx(usable["value"][0], abs=1e-12)


def test_horizons_by_default_are_those_that_a_report_would_keep():
    """Of thirty patients, a quarter had the event after the time that ten reach."""
    cohort = simulate("independent", 30, random_state=3)
    y = make_outcome(cohort.y["time"], np.ones(30))
    quartiles = np.quantile(y["time"], [0.25, 0.5, 0.75])
    usable, unusable = usable_horizons(quartiles, y)
    assert len(unusable) == 1
    assert default_horizons(y).tolist() == usable
    table = evaluate(y, cohort.truth, metrics=["O/E"], n_null=0)
    assert table["horizon"].tolist() == usable


def test_numbers_of_numpy_are_numbers():
    y, curves = random_cohort(1, n=100)
    options = {"metrics": ["C-td", "ICI"], "random_state": np.int64(3)}
    table = evaluate(y, curves, n_bootstrap=np.int64(10), horizons=np.float32(2), **options)
    assert table.equals(evaluate(y, curves, n_bootstrap=10, horizons=[2.0], **options))
    for wrong in (1, 2.0, True, -5, "10"):
        with pytest.raises(ValueError, match="0 or a whole number of at least 2"):
            evaluate(y, curves, n_bootstrap=wrong)


def test_compare_pairs_the_resamples():
    y, curves = random_cohort(2, n=300)
    noise = np.random.default_rng(0).permutation(len(y))
    table = compare(y, {"model": curves, "same": curves, "noise": curves[noise]}, n_bootstrap=100)
    same = table[table["model"] == "same"]
    far = same["metric"].isin(["DDC", "E50", "E90", "ICI"])
    assert (same["difference"] == 0).all()
    assert (same.loc[~far, ["lower", "upper"]] == 0).all(axis=None)
    assert same.loc[far, ["lower", "upper"]].isna().all(axis=None)
    assert set(table["reference"]) == {"model"}
    shifted = table[(table["model"] == "noise") & (table["metric"] == "C-td")].iloc[0]
    assert shifted["lower"] < shifted["difference"] < shifted["upper"]
    assert shifted["difference"] == pytest.approx(shifted["value"] - shifted["reference_value"])


def test_default_times():
    y, _ = random_cohort(0)
    cohort = SortedCohort(y)
    events = np.sort(y["time"][y["event"]])
    np.testing.assert_allclose(auc.default_times(cohort, paper=True), np.linspace(events[0], events[-1], 51)[:-1])
    first, last = auc.default_times(cohort)[[0, -1]]
    assert np.mean(events <= first) == pytest.approx(0.05, abs=0.02)
    end = last + (last - first) / 49
    assert np.mean(y["time"] >= end) == pytest.approx(0.1, abs=0.02)
    assert brier.default_times(cohort)[[0, -1]].tolist() == np.quantile(y["time"], [0.05, 0.95]).tolist()


def test_memory_grows_with_patients_times_nodes_not_with_pairs():
    import tracemalloc

    n = 20_000
    y, curves = random_cohort(0, n=n, n_times=20)
    concordance_index_td(y[:50], curves[:50])  # compile outside the measurement
    cumulative_dynamic_auc(y[:50], curves[:50])
    tracemalloc.start()
    concordance_index_td(y, curves)
    cumulative_dynamic_auc(y, curves)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * n * 20 * 8, "n x n bytes would be 400 MB"


BAD_Y = {
    "negative times": (([-1.0, 2.0, 3.0], [1, 0, 1]), "negative"),
    "missing times": (([np.nan, 2.0, 3.0], [1, 0, 1]), "missing or infinite"),
    "event codes": (([1.0, 2.0, 3.0], [1, 2, 3]), "competing risks"),
    "no events": (([1.0, 2.0, 3.0], [0, 0, 0]), "0 observed events"),
    "lengths": (([1.0, 2.0], [1, 0]), "3 curves for 2 patients"),
}
METRICS = {
    "concordance_index_td": concordance_index_td,
    "cumulative_dynamic_auc": cumulative_dynamic_auc,
    "integrated_brier_score": integrated_brier_score,
    "brier_score": lambda y, c: brier_score(y, c, [1.5]),
    "calibration_at_horizon": lambda y, c: calibration_at_horizon(y, c, 1.5),
    "d_calibration": d_calibration,
    "ddc": ddc,
    "evaluate": evaluate,
}


@pytest.mark.parametrize("bad", BAD_Y)
@pytest.mark.parametrize("name", METRICS)
def test_bad_outcomes_are_refused_by_every_metric(name, bad):
    y, words = BAD_Y[bad]
    if bad == "no events" and name in ("d_calibration", "ddc"):
        assert np.isfinite(ddc(y, ([[0.5], [0.4], [0.3]], [2.0]))), "D-calibration needs no event"
        return
    with pytest.raises(ValueError, match=words):
        METRICS[name](y, ([[0.9, 0.5], [0.8, 0.4], [0.7, 0.3]], [1.0, 2.0]))


@pytest.mark.parametrize("name", METRICS)
def test_rising_curves_are_refused_by_every_metric(name):
    with pytest.raises(ValueError, match="must never rise"):
        METRICS[name](([1.0, 2.0], [1, 1]), ([[0.5, 0.9], [0.5, 0.9]], [1.0, 2.0]))


EVERY_METRIC = {
    **METRICS,
    "concordance_index_harrell": lambda y, c: concordance_index_harrell(y, -as_curves(c).rmst()),
    "concordance_index_uno": lambda y, c: concordance_index_uno(y, -as_curves(c).rmst()),
    "ddc_floor": lambda y, c: ddc_floor(y, c, n_simulations=2),
    "compare": lambda y, c: compare(y, {"a": c, "b": c}, n_bootstrap=2),
}
NEED_NO_EVENT = ("d_calibration", "ddc", "ddc_floor")
CORRUPTIONS = {
    "negative time": lambda t, e, s, i: t.__setitem__(i, -1.0),
    "NaN time": lambda t, e, s, i: t.__setitem__(i, np.nan),
    "infinite time": lambda t, e, s, i: t.__setitem__(i, np.inf),
    "other event code": lambda t, e, s, i: e.__setitem__(i, 2.0),
    "missing event": lambda t, e, s, i: e.__setitem__(i, np.nan),
    "no events": lambda t, e, s, i: e.fill(0.0),
    "rising curve": lambda t, e, s, i: s.__setitem__(i, s[i][::-1] - [0.5, 0.1, 0.0]),
    "NaN in a curve": lambda t, e, s, i: s.__setitem__((i, 1), np.nan),
    "survival above 1": lambda t, e, s, i: s.__setitem__((i, 0), 1.5),
    "negative survival": lambda t, e, s, i: s.__setitem__((i, 2), -0.2),
    "one patient too few": lambda t, e, s, i: None,
}


@given(
    seed=st.integers(0, 1000),
    n=st.integers(2, 30),
    name=st.sampled_from(sorted(EVERY_METRIC)),
    what=st.sampled_from(sorted(CORRUPTIONS)),
    where=st.integers(0, 29),
)
@settings(max_examples=300, deadline=None)
def test_any_corruption_is_refused_with_a_sentence(seed, n, name, what, where):
    rng = np.random.default_rng(seed)
    time, event = rng.uniform(0.5, 3.0, n), np.ones(n)
    survival = np.sort(rng.uniform(0.05, 0.95, (n, 3)), axis=1)[:, ::-1].copy()
    CORRUPTIONS[what](time, event, survival, where % n)
    if what == "no events" and name in NEED_NO_EVENT:
        return
    if what == "one patient too few":
        survival = survival[1:]
    with pytest.raises(ValueError, match=r"[a-z].{20,}"):
        EVERY_METRIC[name]((time, event), (survival, [1.0, 2.0, 3.0]))


def test_one_patient_cannot_be_ranked():
    one = make_outcome([1.0], [1])
    with pytest.raises(ValueError, match="no two patients can be compared"):
        concordance_index_td(one, ([[0.5]], [1.0]))
    with pytest.raises(ValueError, match="cannot be computed at any"):
        cumulative_dynamic_auc(one, ([[0.5]], [1.0]))
    assert ddc(one, ([[0.5]], [1.0])) == pytest.approx(np.log(10))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda y, c: concordance_index_td(y, c, ties="some"), "ties is 'some'"),
        (lambda y, c: concordance_index_td(y, c, convention="paper"), "pass y_train"),
        (lambda y, c: concordance_index_td(y, c, convention="other"), "convention is 'other'"),
        (lambda y, c: concordance_index_harrell(y, c.values), "one score per patient"),
        (lambda y, c: concordance_index_harrell(y, np.full(len(y), np.nan)), "NaN or infinite"),
        (lambda y, c: cumulative_dynamic_auc(y, c, times=[2.0, 1.0]), "ascending"),
        (lambda y, c: cumulative_dynamic_auc(y, c, times=[-1.0]), "not negative"),
        (lambda y, c: cumulative_dynamic_auc(y, c, censoring_weights="after"), "'before' or 'at'"),
        (lambda y, c: calibration_at_horizon(y, c, -1), "one finite time above 0"),
        (lambda y, c: evaluate(y, c, metrics=["accuracy"]), r"metrics holds \['accuracy'\]"),
        (lambda y, c: evaluate(y, c, n_bootstrap=5, sample_weight=np.ones(len(y))), "cannot be combined"),
        (lambda y, c: evaluate(y, c, n_bootstrap=5, confidence=95), "confidence is 95"),
        (lambda y, c: evaluate(y, c, n_bootstrap=-1), "n_bootstrap is -1"),
        (lambda y, c: evaluate(y, c, n_bootstrap=2.5), "n_bootstrap is 2.5"),
        (lambda y, c: evaluate(y, c, metrics="DDC"), "pass a list"),
        (lambda y, c: evaluate(y, c, metrics=[]), "metrics is empty"),
        (lambda y, c: ddc_floor(y, c, n_simulations=0), "n_simulations is 0"),
        (lambda y, c: concordance_index_harrell(y, -c.rmst(), tied_tol=np.nan), "tied_tol is nan"),
        (lambda y, c: cumulative_dynamic_auc(y, c, tied_tol=-1.0), "tied_tol is -1"),
        (lambda y, c: compare(y, {"one": c}), "at least two models"),
        (lambda y, c: compare(y, {"a": c, "b": c}, reference="z"), "reference is 'z'"),
        (lambda y, c: concordance_index_td(y, c, sample_weight=[1.0]), "sample_weight has shape"),
    ],
)
def test_bad_arguments_are_refused_in_words(call, words):
    y, curves = random_cohort(0, n=40)
    with pytest.raises(ValueError, match=words):
        call(y, curves)


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).random(3000),
        np.random.default_rng(1).normal(size=3000),
        1 + np.random.default_rng(2).random(3000) * 1e-12,  # alike in the upper half of their bits
        -1 - np.random.default_rng(3).random(3000) * 1e-12,
        np.random.default_rng(4).integers(-3, 3, 500) / 3,
        np.array([1.0, -1.0, 0.0, -0.0, np.inf, -np.inf, 5e-324]),
        np.ones(5),
    ],
    ids=["shares", "normal", "close", "close negative", "tied", "extreme", "constant"],
)
def test_radix_sort_is_a_sort(values):
    from dcsurv.metrics._kernels import ascending

    order = np.empty(len(values), np.int64)
    ascending(values, values.view(np.int64), order, np.empty_like(order))
    np.testing.assert_array_equal(values[order], np.sort(values))
    np.testing.assert_array_equal(np.sort(order), np.arange(len(values)))
