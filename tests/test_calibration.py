"""Recalibration maps: order kept, curves stay curves, probabilities repaired."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cohorts import CASES, random_cohort
from dcsurv import SurvivalCurves, make_outcome
from dcsurv.calibration import CalibratedEnsemble, HorizonMap, MapSequence, RankPreservingMap, map_from_state
from dcsurv.datasets import load
from dcsurv.metrics import calibration_at_horizon, concordance_index_td, cumulative_dynamic_auc, ddc, ddc_floor
from dcsurv.models import CoxPH, CoxTime
from dcsurv.nonparametric import kaplan_meier

MAPS = {
    "rank": RankPreservingMap,
    "horizon": HorizonMap,
    "both": lambda: MapSequence([HorizonMap(), RankPreservingMap()]),
    "other way round": lambda: MapSequence([RankPreservingMap(), HorizonMap()]),
}
every_map = pytest.mark.parametrize("name", MAPS)


def ranking(y: Any, curves: Any) -> tuple[float, float]:
    # Equal values alone are ties: a map may bring two patients closer than the default tolerance, and one pair shows.
    return concordance_index_td(y, curves), cumulative_dynamic_auc(y, curves, tied_tol=0.0).mean


def simulated(seed: int, n: int = 3000) -> tuple[Any, SurvivalCurves, SurvivalCurves]:
    """Return outcomes, the true curves exp(-(t/10)^1.3 r), and curves that are too bold and too dark at late times."""
    rng = np.random.default_rng(seed)
    risk = np.exp(rng.normal(0, 0.8, n))
    event_time = 10 * (rng.exponential(1, n) / risk) ** (1 / 1.3)
    censoring = rng.uniform(2, 25, n)
    y = make_outcome(np.minimum(event_time, censoring), event_time <= censoring)
    times = np.linspace(0.5, 25, 50)
    hazard = (times / 10) ** 1.3 * risk[:, None]
    wrong = np.exp(0.04 * times) * hazard**1.6
    return y, SurvivalCurves(times, np.exp(-hazard)), SurvivalCurves(times, np.exp(-wrong))


def assert_curves(curves: SurvivalCurves, times: Any) -> None:
    dense = np.unique(np.concatenate([[0.0], times, np.linspace(0, curves.times[-1] * 1.2, 301)]))
    values = curves.evaluate(dense)
    assert np.isfinite(values).all()
    assert (values >= 0).all()
    assert (values <= 1).all()
    assert (values[:, 0] == 1).all()
    assert np.diff(values, axis=1).max() <= 1e-12


# --- the order of patients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", ["support", "metabric", "flchain"])
@pytest.mark.parametrize("crossing", [False, True])
def test_rank_preserving_map_keeps_the_ranking_of_real_cohorts(dataset: str, crossing: bool) -> None:
    X, y = load(dataset)
    rows = np.random.default_rng(0).permutation(len(y))[:2400]
    X, y = X.iloc[rows], y[rows]
    model: Any = CoxTime(max_epochs=4, layer_size=16, random_state=0) if crossing else CoxPH()
    train, test = slice(0, 1200), slice(1200, None)
    curves = model.fit(X[train], y[train]).predict_survival_function(X[test])
    if crossing:
        values = curves.values
        assert (np.diff(np.argsort(values[:, 20])) != np.diff(np.argsort(values[:, -20]))).any()
    # Distorted, so that the map has work to do.
    curves = SurvivalCurves(curves.times, curves.values**2, interpolation="linear")
    mapped = RankPreservingMap().fit(y[test], curves).transform(curves)
    assert np.abs(mapped.values - curves.values).max() > 0.05
    np.testing.assert_allclose(ranking(y[test], mapped), ranking(y[test], curves), rtol=0, atol=1e-6)


@st.composite
def cohorts(draw: Any) -> tuple[Any, SurvivalCurves]:
    """Small cohorts with everything that goes wrong; survival values are equal or at least 1e-3 apart."""
    n = draw(st.integers(2, 40))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    time = rng.exponential(10, n)
    if draw(st.booleans()):
        time = np.round(time)  # ties, and zero
    event = rng.random(n) >= draw(st.sampled_from([0.0, 0.3, 0.95]))
    if draw(st.booleans()):
        event[:] = False
    event[np.argmin(time)] = True  # at least one, and comparable with the others
    n_times = draw(st.integers(1, 6))
    times = np.cumsum(rng.uniform(0.5, 8, n_times))
    kind = draw(st.sampled_from(["crossing", "constant", "certain"]))
    if kind == "crossing":
        values = np.sort(rng.integers(0, 1001, (n, n_times)), axis=1)[:, ::-1] / 1000
    elif kind == "constant":
        values = np.tile(np.sort(rng.random(n_times))[::-1], (n, 1))
    else:
        values = np.tile((rng.random((n, 1)) < 0.5).astype(float), (1, n_times))
    how = draw(st.sampled_from(["linear", "step"]))
    return make_outcome(time, event), SurvivalCurves(times, values, interpolation=how)


@every_map
@settings(max_examples=60, deadline=None)
@given(data=cohorts())
def test_curves_stay_curves(name: str, data: Any) -> None:
    y, curves = data
    fitted = MAPS[name]().fit(y, curves)
    assert_curves(fitted.transform(curves), y["time"])
    again = map_from_state(json.loads(json.dumps(fitted.get_state())))
    np.testing.assert_array_equal(again.transform(curves).values, fitted.transform(curves).values)


@settings(max_examples=100, deadline=None)
@given(data=cohorts())
def test_rank_preserving_map_keeps_every_order(data: Any) -> None:
    y, curves = data
    mapped = RankPreservingMap().fit(y, curves).transform(curves)
    t = np.concatenate([y["time"], curves.times, curves.times / 3])
    before, after = curves.evaluate_rows(t), mapped.evaluate_rows(t)
    gap, mapped_gap = (v[:, :, None] - v[:, None, :] for v in (before, after))
    clear = np.abs(gap) > 1e-12
    assert (np.sign(gap)[clear] == np.sign(mapped_gap)[clear]).all()
    assert concordance_index_td(y, mapped) == pytest.approx(concordance_index_td(y, curves), abs=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_maps_keep_the_ranking_of_crossing_curves(case: str) -> None:
    y, curves = random_cohort(3, **CASES[case])
    mapped = RankPreservingMap().fit(y, curves).transform(curves)
    np.testing.assert_allclose(ranking(y, mapped), ranking(y, curves), rtol=0, atol=1e-6)
    horizon = HorizonMap().fit(y, curves)
    t = horizon.horizons_[:, None]
    before = curves.evaluate_rows(horizon.horizons_)
    order = np.argsort(before, axis=1, kind="stable")
    after = np.take_along_axis(horizon(before, t), order, axis=1)
    assert (np.diff(after, axis=1) >= 0).all()


def test_tiny_survival_keeps_its_order() -> None:
    y, curves = random_cohort(0)
    fitted = RankPreservingMap().fit(y, curves)
    tiny = np.array([0.0, 1e-300, 1e-30, 2e-30, 1e-17, 1e-10])
    assert (np.diff(fitted(tiny, np.zeros(1))) > 0).all()
    close = 1 - np.array([1e-6, 1e-9, 1e-12, 0.0])
    assert (np.diff(fitted(close, np.zeros(1))) > 0).all()


def test_horizon_map_is_increasing_at_each_time_and_holds_a_curve_that_would_rise() -> None:
    y, truth, _ = simulated(0)
    # Right early and too dark late: survival must be lifted late, so a flat curve would rise.
    dark = SurvivalCurves(truth.times, np.exp(np.log(truth.values) * (1 + truth.times / 10)))
    fitted = HorizonMap().fit(y, dark)
    t = fitted.horizons_
    grid = np.linspace(0.01, 0.99, 99)
    assert (np.diff(fitted(grid[:, None], t), axis=0) > 0).all()
    assert fitted(np.array(0.5), t[-1:]) > fitted(np.array(0.5), t[:1]) + 0.05
    flat = SurvivalCurves(truth.times, np.full((1, 50), 0.5))
    assert_curves(fitted.transform(flat), t)
    # Ordinary curves fall fast enough: what transform gives is the map of (S, t), also between nodes.
    anywhere = np.random.default_rng(0).uniform(0, 24, 200)
    expected = fitted(dark.evaluate(anywhere), anywhere)
    np.testing.assert_allclose(fitted.transform(dark).evaluate(anywhere), expected, atol=2e-3)
    assert concordance_index_td(y, fitted.transform(dark)) == pytest.approx(concordance_index_td(y, dark), abs=1e-4)


# --- calibration ----------------------------------------------------------------------------------------------


def test_maps_repair_a_simulated_cohort() -> None:
    y, _, wrong = simulated(1)
    y_new, truth, wrong_new = simulated(2)
    floor = ddc_floor(y_new, truth)
    horizons = (4.0, 8.0, 14.0)

    def ici(curves: SurvivalCurves) -> float:
        return float(np.mean([calibration_at_horizon(y_new, curves, t).ici for t in horizons]))

    assert ddc(y_new, wrong_new) > 10 * floor
    mapped = {name: make().fit(y, wrong).transform(wrong_new) for name, make in MAPS.items()}
    for name in ("rank", "horizon", "both"):
        assert ddc(y_new, mapped[name]) < 4 * floor, name
    # One map for all times cannot repair what depends on time; the horizon map can.
    assert ici(wrong_new) > 0.06
    assert ici(mapped["horizon"]) < 0.015
    assert ici(mapped["both"]) < 0.02
    gap = {name: np.abs(curves.evaluate(truth.times) - truth.values).mean() for name, curves in mapped.items()}
    assert gap["both"] < 0.015
    assert gap["both"] < np.abs(wrong_new.values - truth.values).mean() / 4
    # From t = 1 on: earlier all survival is within 1e-8 of 1, and the map can only untie it.
    late = np.linspace(1, 20, 40)
    after, before = (cumulative_dynamic_auc(y_new, c, times=late).mean for c in (mapped["both"], wrong_new))
    assert after == pytest.approx(before, abs=1e-4)
    assert concordance_index_td(y_new, mapped["both"]) == pytest.approx(
        concordance_index_td(y_new, wrong_new), abs=1e-4
    )


def ended(seed: int, n: int = 1500) -> tuple[pd.DataFrame, Any, SurvivalCurves]:
    """Return a study in whole years that ends for all at once: some have the event then, all others are censored."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 0.8, n)
    years = np.ceil(10 * (rng.exponential(1, n) / np.exp(x)) ** (1 / 1.3))
    times = np.arange(1.0, 6.0)
    truth = SurvivalCurves(times, np.exp(-np.exp(x)[:, None] * (times / 10) ** 1.3), interpolation="step")
    return pd.DataFrame({"x": x}), make_outcome(np.minimum(years, 5.0), years <= 5), truth


@every_map
def test_the_end_of_a_study_is_not_the_end_of_its_patients(name: str) -> None:
    """At the very end nobody is followed on, but those who are censored there are known to be free of the event."""
    _, y, truth = ended(5)
    moved = MAPS[name]().fit(y, truth).transform(truth)
    assert np.abs((moved.evaluate(truth.times) - truth.values).mean(axis=0)).max() < 0.035


def test_an_ensemble_is_right_at_the_end_of_a_study() -> None:
    X, y, _ = ended(6, 600)
    model = CalibratedEnsemble(estimator=CoxPH(), companions=("spline-aft",), n_members=3, random_state=0).fit(X, y)
    found = model.predict_survival_function(X)(5.0).mean()
    assert found == pytest.approx(kaplan_meier(y)(5.0), abs=0.03)


@every_map
def test_true_curves_hardly_move(name: str) -> None:
    y, truth, _ = simulated(3)
    moved = MAPS[name]().fit(y, truth).transform(truth)
    assert np.abs(moved.evaluate(truth.times) - truth.values).mean() < 0.012


@pytest.mark.parametrize("make", [RankPreservingMap, HorizonMap])
def test_the_prior_protects_small_cohorts(make: Any) -> None:
    y, truth, _ = simulated(4)

    def moved(prior: float, n: int) -> float:
        starts = range(0, 600, 30)
        maps = [make(prior=prior).fit(y[k : k + n], truth[k : k + n]) for k in starts]
        return float(np.mean([np.abs(m(truth.values, truth.times) - truth.values).mean() for m in maps]))

    assert moved(2.0, 30) < 0.95 * moved(0.01, 30)
    assert moved(1e9, 30) < 1e-6
    assert moved(2.0, 1000) < 0.3 * moved(2.0, 30)


def test_rank_preserving_map_is_the_kaplan_meier_of_the_transform() -> None:
    # Five events, uncensored, at S = .9 .7 .5 .3 .2: K falls by 1/5 at each, and its middles are .9 .7 .5 .3 .1.
    times = np.array([1.0, 2.0])
    own = np.array([0.9, 0.7, 0.5, 0.3, 0.2])
    curves = SurvivalCurves(times, np.column_stack([own, np.zeros(5)]))
    fitted = RankPreservingMap(prior=5.0).fit((np.ones(5), np.ones(5)), curves)
    middles = np.array([0.9, 0.7, 0.5, 0.3, 0.1])
    np.testing.assert_allclose(fitted(own, np.ones(1)), (middles + own) / 2)
    np.testing.assert_allclose(fitted(np.array([0.0, 0.1, 1.0]), np.ones(1)), [0.0, (0.05 + 0.1) / 2, 1.0])


def test_weights_count_like_copies() -> None:
    y, _, wrong = simulated(5, n=200)
    times = np.random.default_rng(0).integers(0, 3, 200)
    rows = np.repeat(np.arange(200), times)
    for make in (RankPreservingMap, HorizonMap):
        weighted = make(prior=1e-6).fit(y, wrong, sample_weight=times)
        copied = make(prior=1e-6).fit(y[rows], wrong[rows])
        if make is RankPreservingMap:
            np.testing.assert_allclose(weighted.transform(wrong).values, copied.transform(wrong).values, atol=1e-6)
        else:  # horizons are quantiles of rows, and the penalties weigh differently
            ours, theirs = (m.transform(wrong).evaluate(wrong.times) for m in (weighted, copied))
            assert np.abs(ours - theirs).mean() < 0.02


# --- as objects -----------------------------------------------------------------------------------------------


@every_map
def test_any_library_s_curves_are_welcome(name: str) -> None:
    y, _, wrong = simulated(6, n=300)
    ours = MAPS[name]().fit(y, wrong)
    values, times = wrong.values, wrong.times
    theirs = MAPS[name]().fit(y, (values, times))
    assert theirs.get_state() == ours.get_state()
    frame = pd.DataFrame(values, columns=times)
    np.testing.assert_array_equal(ours.transform((values, times)).values, ours.transform(frame).values)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(ours)).transform(wrong).values, ours.transform(wrong).values
    )


def test_maps_compose() -> None:
    y, _, wrong = simulated(7, n=300)
    first, second = RankPreservingMap().fit(y, wrong), RankPreservingMap()
    once = first.transform(wrong)
    twice = second.fit(y, once).transform(once)
    t = np.array([0.3, 3.3, 11.7])
    np.testing.assert_array_equal(twice(t), second(first(wrong(t), t), t))
    together = MapSequence([RankPreservingMap(), RankPreservingMap()]).fit(y, wrong)
    np.testing.assert_array_equal(together.transform(wrong)(t), twice(t))
    np.testing.assert_array_equal(together(wrong(t), t), twice(t))


def test_what_cannot_be_fitted_is_refused() -> None:
    y, curves = random_cohort(0, n=20)
    with pytest.raises(ValueError, match="0 observed events"):
        RankPreservingMap().fit((y["time"], np.zeros(20)), curves)
    with pytest.raises(ValueError, match="20 curves for 19 patients"):
        HorizonMap().fit(y[1:], curves)
    with pytest.raises(ValueError, match="prior is 0"):
        HorizonMap(prior=0)
    with pytest.raises(ValueError, match="unknown kind 'magic'"):
        map_from_state({"kind": "magic"})
    state = RankPreservingMap().fit(y, curves).get_state()
    with pytest.raises(ValueError, match="must ascend"):
        map_from_state({**state, "mapped": state["mapped"][::-1]})
    state = HorizonMap().fit(y, curves).get_state()
    with pytest.raises(ValueError, match=r"slope.* expected float > 0"):
        map_from_state({**state, "slope": [-1.0] * len(state["slope"])})
    with pytest.raises(ValueError, match="as many"):
        map_from_state({**state, "slope": state["slope"][:-1]})
