"""SplineCox: what it equals, what it learns, what it is not led astray by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter
from lifelines.datasets import load_rossi

import dcsurv
from dcsurv import CoxPH, SplineCox, make_outcome, persistence
from dcsurv.datasets import simulate
from dcsurv.kinds import kind_named
from dcsurv.models.bends import curvature, find_bends, natural_spline, place_knots
from dcsurv.models.cox_inference import RiskSets
from dcsurv.models.drawn import representatives
from dcsurv.models.partial_likelihood import PartialLikelihood
from dcsurv.models.penalised import Penalties, choose_penalties, fit_penalised
from dcsurv.preprocessing import OutsideTrainingWarning
from forging import array, forge

STRAIGHT = {"knots": 0, "penalty": 1e-9}


def drawn(n: int, log_risk: Any, columns: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, outcome with a third censored, and the true log risk."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, columns))
    truth = log_risk(X)
    time, end = rng.exponential(size=n) * np.exp(-truth), rng.exponential(2.0, n)
    return X, make_outcome(np.minimum(time, end) + 1e-9, time <= end), truth


# --- what it equals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_without_penalty_and_bends_it_is_lifelines(weighted):
    rossi = load_rossi()  # weeks, many of them tied
    X, y = rossi.drop(columns=["week", "arrest"]), make_outcome(rossi["week"], rossi["arrest"])
    weight = np.random.default_rng(0).uniform(0.2, 3.0, len(rossi)) if weighted else np.ones(len(rossi))
    weight /= weight.mean()  # only ratios matter here; lifelines' log likelihood is another for other sums
    options = {"fit_options": {"precision": 1e-13}, "weights_col": "w", "robust": True}
    theirs = CoxPHFitter().fit(rossi.assign(w=weight), "week", "arrest", **options)
    ours = SplineCox(**STRAIGHT, preprocess=None).fit(X, y, sample_weight=weight if weighted else None)
    np.testing.assert_allclose(ours.coef_, theirs.params_, rtol=1e-5, atol=1e-6)
    assert ours.log_likelihood_ == pytest.approx(theirs.log_likelihood_, abs=1e-6)


def test_without_penalty_and_bends_its_curves_are_those_of_coxph():
    cohort = simulate("independent", 400)
    ours, other = SplineCox(**STRAIGHT).fit(cohort.X, cohort.y), CoxPH(penalizer=0.0).fit(cohort.X, cohort.y)
    np.testing.assert_allclose(ours.coef_, other.coef_, atol=1e-5)
    curves = [model.predict_survival_function(cohort.X) for model in (ours, other)]
    np.testing.assert_array_equal(curves[0].times, curves[1].times)
    np.testing.assert_allclose(curves[0].values, curves[1].values, atol=1e-5)


@pytest.mark.parametrize("ties", ["none", "some", "one time"])
def test_slope_and_information_are_the_derivatives(ties, monkeypatch):
    monkeypatch.setattr("dcsurv.models.partial_likelihood._BLOCK_NUMBERS", 1)  # several blocks
    X, y, _ = drawn(250, lambda X: 0.5 * X[:, 0], columns=3)
    time = {"none": y["time"], "some": np.ceil(4 * y["time"]), "one time": np.ones(250)}[ties]
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 250)
    X -= X.mean(axis=0)
    likelihood = PartialLikelihood(X, time, y["event"], weight)
    coef = np.array([0.3, -0.2, 0.1])

    def at(c: np.ndarray) -> Any:
        return likelihood.evaluate(c, likelihood.terms @ c)

    sets = RiskSets.of(X, time, y["event"], coef, weight)
    np.testing.assert_allclose(
        likelihood.information(at(coef)), sets.information(np.ones(int(y["event"].sum()))), rtol=1e-9
    )
    for k, step in enumerate(1e-5 * np.eye(3)):
        up, down = at(coef + step), at(coef - step)
        assert likelihood.slope(at(coef))[k] == pytest.approx((up.value - down.value) / 2e-5, rel=1e-5, abs=1e-5)


def test_more_columns_than_patients_are_turned_and_come_back():
    X, y, _ = drawn(60, lambda X: X[:, 0], columns=90)
    wide = SplineCox(penalty=40.0, preprocess=None).fit(X, y)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    likelihood = PartialLikelihood(scaled, y["time"], y["event"], np.ones(60))
    fixed = Penalties(np.array([40.0]), np.array([40.0]), np.array([40.0]))
    direct = fit_penalised(likelihood, np.zeros(90, dtype=np.int64), fixed)
    np.testing.assert_allclose(wide.coef_ * X.std(axis=0), direct.coef, atol=1e-5)
    chosen = SplineCox(preprocess=None).fit(X, y)
    assert chosen.coef_.shape == (90,)
    assert 0 < chosen.degrees_of_freedom_["straight"] < 60


@pytest.mark.parametrize("others", [0, 3])
def test_a_group_turned_to_its_axes_chooses_the_same_penalties(others, monkeypatch):
    rng = np.random.default_rng(0)
    made = rng.normal(size=(60, 30 + others))
    information, target = made.T @ made, 5 * rng.normal(size=30 + others)
    group = np.r_[np.zeros(30), np.ones(others)].astype(np.int64)
    one = np.ones(1 + bool(others))
    bounds = Penalties(one, 1e-3 * one, 1e6 * one)
    chosen = []
    for share in (0.2, 0.0):
        monkeypatch.setattr("dcsurv.models.penalised._FEW_OTHERS", share)
        chosen.append(choose_penalties(information, target, group, one, bounds))
    np.testing.assert_allclose(*chosen, rtol=1e-8)
    assert (chosen[0] != 1).all()


def test_very_many_columns_are_turned_to_the_longest_axes(monkeypatch):
    """Columns made of few others have few axes, and lose nothing."""
    X, y, _ = drawn(200, lambda X: X[:, 0], columns=5)
    many = X @ np.random.default_rng(1).normal(size=(5, 40))
    exact = SplineCox(knots=0, preprocess=None).fit(many, y)
    monkeypatch.setattr("dcsurv.models.additive._MOST_AXES", 5)
    turned = SplineCox(knots=0, preprocess=None, penalty=exact.penalties_["straight"]).fit(many, y)
    np.testing.assert_allclose(turned.coef_, exact.coef_, atol=1e-4)
    assert sum(turned.degrees_of_freedom_.values()) < 5.001


@pytest.mark.parametrize("rare", [False, True])
def test_some_of_very_many_patients_stand_for_all(rare, monkeypatch):
    X, y, _ = drawn(6000, lambda X: 0.6 * X[:, 0] - 0.4 * X[:, 1])
    if rare:
        y["event"] &= np.random.default_rng(2).random(6000) < 0.15
    everybody = SplineCox(preprocess=None).fit(X, y)
    monkeypatch.setattr("dcsurv.models.additive._MOST_PATIENTS", 3000)
    monkeypatch.setattr("dcsurv.models.additive._FIRST_PATIENTS", 500)
    some = SplineCox(preprocess=None).fit(X, y)
    rows, weight = representatives(y, None, 3000)
    assert some.training_summary_["fitted_to"] == len(rows) == 3000
    assert y["event"][rows].sum() == (y["event"].sum() if rare else 3000 * y["event"].sum() // 6000)
    # They stand for as many of either kind, up to one factor, and have the same last time.
    ratio = weight[~y["event"][rows]].sum() / y["event"][rows].sum()
    assert ratio == pytest.approx((~y["event"]).sum() / y["event"].sum())
    assert y["time"][rows].max() == y["time"].max()
    np.testing.assert_allclose(some.coef_, everybody.coef_, atol=0.1)
    times = np.quantile(y["time"], [0.2, 0.5, 0.8])
    curves = [model.predict_survival_function(X[:200], times).values for model in (some, everybody)]
    assert np.abs(curves[0] - curves[1]).mean() < 0.02


def test_weights_go_on_counting_among_those_who_stand_for_all():
    _, y, _ = drawn(500, lambda X: X[:, 0])
    given = np.where(np.arange(500) % 2, 0.0, 3.0)
    rows, weight = representatives(y, given, 200)
    assert (rows % 2 == 0).all()
    np.testing.assert_array_equal(weight[y["event"][rows]], 3.0)
    np.testing.assert_array_equal(representatives(y, given, 500)[1], given)


def test_chosen_penalties_make_the_data_likeliest():
    X, y, _ = drawn(300, lambda X: 0.4 * X[:, 0] + 0.4 * X[:, 1] ** 2)
    model = SplineCox(preprocess=None).fit(X, y)

    def evidence(straight: float, bends: float) -> float:
        """Laplace's approximation, from a fit with these penalties."""
        one = SplineCox(preprocess=None, penalty=straight, bend_penalty=bends)
        scaled = ((X.astype(np.float32) - X.astype(np.float32).mean(axis=0)) / X.astype(np.float32).std(axis=0)).astype(
            np.float64
        )
        parts = [find_bends(x, k, place_knots(np.sort(x), 6), np.ones(300)) for k, x in enumerate(scaled.T)]
        terms = np.column_stack([scaled, *(part(scaled[:, part.column]) for part in parts)])
        group = (np.arange(terms.shape[1]) >= 4).astype(np.int64)
        both = np.array([straight, bends])
        likelihood = PartialLikelihood(terms, y["time"], y["event"], np.ones(300))
        found = fit_penalised(likelihood, group, Penalties(both, both, both))
        assert found.log_likelihood == pytest.approx(one.fit(X, y).log_likelihood_, abs=1e-3)
        information = likelihood.information(likelihood.evaluate(found.coef, likelihood.terms @ found.coef))
        ridge = both[group]
        _, determinant = np.linalg.slogdet(information + np.diag(ridge))
        return found.log_likelihood - 0.5 * (ridge @ found.coef**2 - np.log(ridge).sum() + determinant)

    straight, bends = model.penalties_["straight"], model.penalties_["bends"]
    best = evidence(straight, bends)
    for factor in (0.5, 2.0):
        assert evidence(factor * straight, bends) < best
        assert evidence(straight, factor * bends) < best


# --- bends ------------------------------------------------------------------------------------------------


def test_bends_are_smooth_straight_outside_and_uncorrelated_with_a_line():
    x = np.random.default_rng(0).gamma(2.0, size=2000)
    knots = place_knots(np.sort(x), 5)
    bends = find_bends(x, 0, knots, np.ones(len(x)))
    values = bends(x)
    np.testing.assert_allclose(np.corrcoef(np.column_stack([x, values]), rowvar=False) - np.eye(4), 0, atol=1e-8)
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-10)
    size = values.std(axis=0)
    assert size[0] == pytest.approx(1.0)
    assert (np.diff(size) < 0).all(), "the more they curve, the smaller they are"
    for outside in (np.linspace(-5, knots[0], 20), np.linspace(knots[-1], 1000.0, 20)):
        np.testing.assert_allclose(np.diff(bends(outside), n=2, axis=0), 0, atol=1e-8)
    fine = np.linspace(knots[0], knots[-1], 20001)
    step = fine[1] - fine[0]
    second = np.diff(natural_spline(fine, knots), n=2, axis=0) / step**2
    assert np.abs(np.diff(second, axis=0)).max() < 0.02 * np.abs(second).max(), "no corners"
    np.testing.assert_allclose(second.T @ second * step, curvature(knots), rtol=1e-3)


def test_few_values_are_knots_and_two_values_do_not_bend():
    np.testing.assert_array_equal(place_knots(np.array([0.0, 0, 1, 1, 2, 3]), 5), [0, 1, 2, 3])
    rng = np.random.default_rng(0)
    grade, treated = rng.integers(1, 4, 1500), rng.integers(0, 2, 1500)
    time = rng.exponential(1 / np.array([1.0, 3.0, 1.0])[grade - 1])  # only the middle one is at risk
    X = pd.DataFrame({"grade": grade, "treated": treated})
    model = SplineCox().fit(X, make_outcome(time, np.ones(1500)))
    assert [one.column for one in model.bends_] == [0]
    effect = model.partial_effects(pd.DataFrame({"grade": [1, 2, 3], "treated": 0}))["grade"].to_numpy()
    assert effect[1] - effect[0] == pytest.approx(np.log(3), abs=0.15)
    assert effect[2] - effect[0] == pytest.approx(0, abs=0.15)


def test_a_bent_effect_is_found_and_a_straight_one_stays_straight():
    X, y, truth = drawn(1000, lambda X: 0.7 * X[:, 0] ** 2)
    bent = SplineCox().fit(X, y)
    assert np.corrcoef(bent.partial_effects(X).sum(axis=1), truth)[0, 1] > 0.95
    assert bent.degrees_of_freedom_["bends"] > 2
    assert bent.score(X, y) > CoxPH().fit(X, y).score(X, y) + 0.1
    X, y, _ = drawn(1000, lambda X: 0.7 * X[:, 0])
    straight = SplineCox().fit(X, y)
    assert straight.degrees_of_freedom_["bends"] < 0.5
    np.testing.assert_allclose(straight.coef_, CoxPH().fit(X, y).coef_, atol=0.05)


def test_noise_is_shrunk_to_nothing():
    X, y, _ = drawn(300, lambda X: np.zeros(len(X)), columns=10)
    model = SplineCox().fit(X, y)
    assert sum(model.degrees_of_freedom_.values()) < 0.5
    assert np.abs(model.coef_).max() < 0.02 < np.abs(CoxPH().fit(X, y).coef_).max()
    assert np.ptp(model.predict(X)) > 0, "patients are ranked still"


@pytest.mark.parametrize("n", [100, 300, 1000])
def test_closer_to_the_truth_than_coxph_or_nearly(n):
    errors = []
    for seed in range(4):
        cohort = simulate("independent", n + 500, random_state=seed)
        times = np.linspace(1, 7, 7)
        fitted = [model.fit(cohort.X[:n], cohort.y[:n]) for model in (SplineCox(), CoxPH())]
        errors.append(
            [
                np.abs(model.predict_survival_function(cohort.X[n:], times).values - cohort.truth(times)[n:]).mean()
                for model in fitted
            ]
        )
    ours, other = np.mean(errors, axis=0)
    assert ours < 1.15 * other


def test_far_values_say_no_more_than_the_edge():
    X, y, _ = drawn(500, lambda X: X[:, 0] ** 2, columns=1)
    model = SplineCox(preprocess=None).fit(X, y)
    edge = float(model.upper_[0])  # a quarter of the range further out, and coarse
    assert X.max() + 0.25 * np.ptp(X) <= edge < X.max() + 0.25 * np.ptp(X) + 0.25
    effects = model.partial_effects(np.array([[edge], [edge + 1], [edge + 2]])).to_numpy()[:, 0]
    np.testing.assert_allclose(effects, effects[0], rtol=1e-6)
    with pytest.warns(OutsideTrainingWarning, match="2 patients are not to be used"):
        assert np.isfinite(model.predict_survival_function(np.array([[-1e30], [1e30]])).values).all()


# --- awkward tables ---------------------------------------------------------------------------------------


def awkward() -> dict[str, tuple[Any, Any, Any]]:
    rng = np.random.default_rng(0)
    n = 120
    x, time, event = rng.normal(size=(n, 3)), rng.exponential(size=n), rng.random(n) < 0.6
    early = time < np.median(time)
    far = x.copy()
    far[0] = 1e6
    cluster = np.where(rng.random((n, 3)) < 0.97, 1e-7 * x, 1e5 * x)
    one = np.arange(n) == 5
    return {
        "separated": (np.column_stack([early, x]), time, early),
        "in order": (np.column_stack([-time, x]), time, event),
        "copies": (np.column_stack([x, x, 2 * x]), time, event),
        "constant": (np.column_stack([x, np.ones(n)]), time, event),
        "nothing varies": (np.ones((n, 2)), time, event),
        "one event": (x, time, one),
        "one time": (x, np.ones(n), event),
        "an outlier": (far, time, event),
        "a cluster": (cluster, time, event),
        "huge": (1e10 * x, time, event),
        "wide copies": (np.repeat(x, 100, axis=1), time, event),
        "two patients": (x[:2], [1.0, 2.0], [1, 0]),
    }


@pytest.mark.parametrize("name", awkward())
@pytest.mark.parametrize("options", [{}, {"penalty": 1e-10, "bend_penalty": 1e-10}], ids=["chosen", "tiny"])
def test_no_table_is_too_awkward(name, options):
    X, time, event = awkward()[name]
    with np.errstate(all="raise", under="ignore"):
        model = SplineCox(preprocess=None, **options).fit(X, make_outcome(time, event))
        values = model.predict_survival_function(X).values
    assert np.isfinite(values).all()
    assert np.isfinite(model.coef_).all()
    assert np.isfinite([*model.penalties_.values(), *model.degrees_of_freedom_.values()]).all()


def test_copies_share_their_effect():
    X, y, _ = drawn(400, lambda X: X[:, 0], columns=2)
    model = SplineCox(knots=0).fit(np.column_stack([X, X[:, 0]]), y)
    assert model.coef_[0] == pytest.approx(model.coef_[2], abs=1e-6)


def test_rows_of_weight_zero_do_not_count_and_scale_of_weights_does_not():
    X, y, _ = drawn(300, lambda X: 0.5 * X[:, 0])
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 300)
    weight[200:] = 0
    whole = SplineCox(preprocess=None).fit(X, y, sample_weight=weight)
    part = SplineCox(preprocess=None).fit(X[:200], y[:200], sample_weight=1000 * weight[:200])
    np.testing.assert_allclose(whole.predict(X), part.predict(X), rtol=1e-9)


def test_the_order_of_rows_and_the_unit_of_time_and_features_do_not_matter():
    X, y, _ = drawn(300, lambda X: 0.5 * X[:, 0] ** 2)
    expected = SplineCox().fit(X, y).predict(X)
    np.testing.assert_array_equal(SplineCox().fit(X, y).predict(X), expected)
    order = np.random.default_rng(0).permutation(300)
    np.testing.assert_allclose(SplineCox().fit(X[order], y[order]).predict(X), expected, rtol=1e-4)
    days = make_outcome(365 * y["time"], y["event"])
    np.testing.assert_allclose(SplineCox().fit(3 * X + 7, days).predict(3 * X + 7), 365 * expected, rtol=1e-4)


def test_strength_multiplies_what_the_data_choose():
    X, y, _ = drawn(300, lambda X: 0.5 * X[:, 0])
    norms = [np.abs(SplineCox(strength=one).fit(X, y).coef_).sum() for one in (0.1, 1.0, 100.0)]
    assert norms[0] > norms[1] > norms[2]
    fixed = SplineCox(penalty=5.0, strength=100.0).fit(X, y)
    assert fixed.penalties_["straight"] == 5.0


# --- files ------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    X, y, _ = drawn(200, lambda X: X[:, 0] ** 2)
    model = SplineCox().fit(X, y)
    model.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors", model, X


def test_all_that_it_knows_comes_back(saved):
    path, model, X = saved
    loaded = dcsurv.load(path)
    assert loaded.penalties_ == model.penalties_
    assert loaded.degrees_of_freedom_ == model.degrees_of_freedom_
    assert loaded.log_likelihood_ == model.log_likelihood_
    pd.testing.assert_frame_equal(loaded.partial_effects(X), model.partial_effects(X), rtol=0, atol=0)
    assert dcsurv.load(path).knots is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (array("coef_", lambda a: a[:-1]), "numbers of the type float64 are expected"),
        (array("center_", lambda a: a * np.nan), "not finite"),
        (array("scale_", lambda a: 0 * a), "units or ranges"),
        (array("upper_", lambda a: a - 100), "units or ranges"),
        (array("times_", lambda a: a[1:]), "cumulative_hazard_ has the shape"),
        (array("times_", lambda a: a[::-1].copy()), "do not ascend"),
        (array("cumulative_hazard_", lambda a: -a), "does not ascend"),
        (array("cumulative_hazard_", lambda a: a * np.inf), "not finite"),
        (array("bends.column", lambda a: a + 100), "other columns"),
        (array("bends.column", lambda a: 0 * a), "other columns"),
        (array("bends.column", lambda a: a.astype(float)), "bends.column"),
        (array("bends.knots", lambda a: a + 1), "bends.places"),
        (array("bends.knots", lambda a: 0 * a), "cannot be"),
        (array("bends.places", lambda a: a[::-1].copy()), "do not ascend"),
        (array("bends.mix", lambda a: a * np.nan), "not finite"),
        (lambda header, arrays: arrays.pop("bends.line"), "bends.line"),
        (lambda header, arrays: header["training"].pop("penalties"), "penalties"),
        (lambda header, arrays: header["parameters"].update(strength=0), "strength"),
    ],
)
def test_a_damaged_file_is_refused(saved, change, message):
    path, _, _ = saved
    forge(path, change)
    with pytest.raises(persistence.ModelFileError, match=message):
        dcsurv.load(path)


def test_it_is_a_member_of_ensembles_and_known_by_name():
    kind = kind_named("spline-cox")
    assert kind.model is SplineCox
    assert kind.is_member
    X, y, _ = drawn(150, lambda X: X[:, 0])
    ensemble = dcsurv.CalibratedEnsemble(estimator=SplineCox(), n_members=2, random_state=0).fit(X, y)
    assert ensemble.score(X, y) > 0.65
