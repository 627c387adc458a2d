"""SplineAFT: what it equals, what it learns, what it is not led astray by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from lifelines import LogLogisticAFTFitter, LogNormalAFTFitter, WeibullAFTFitter
from lifelines.datasets import load_rossi
from scipy.stats import norm
from sklearn.base import clone

import dcsurv
from dcsurv import CoxPH, SplineAFT, make_outcome, persistence
from dcsurv.kinds import kind_named
from dcsurv.models.aft_likelihood import DISTRIBUTIONS, AFTLikelihood
from dcsurv.models.bends import find_bends, place_knots
from forging import array, forge

PLAIN = {"knots": 0, "penalty": 1e-9, "time_knots": 0}
FITTERS = {"weibull": WeibullAFTFitter, "log-logistic": LogLogisticAFTFitter, "log-normal": LogNormalAFTFitter}
ERRORS = {
    "weibull": lambda rng, n: np.log(rng.exponential(size=n)),
    "log-logistic": lambda rng, n: rng.logistic(size=n),
    "log-normal": lambda rng, n: rng.normal(size=n),
}


def drawn(
    n: int, location: Any, *, error: str = "weibull", sigma: float = 0.5, columns: int = 4, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, outcome with some censored, and the true location of log T."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, columns))
    truth = 2 + location(X)
    time, end = np.exp(truth + sigma * ERRORS[error](rng, n)), rng.exponential(30.0, n)
    return X, make_outcome(np.minimum(time, end), time <= end), truth


# --- what it equals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "weighted"), [("weibull", False), ("log-logistic", True), ("log-normal", True)])
def test_without_penalty_and_bends_it_is_lifelines(name, weighted):
    rossi = load_rossi().astype(float)
    X, y = rossi.drop(columns=["week", "arrest"]), make_outcome(rossi["week"], rossi["arrest"])
    weight = np.random.default_rng(0).uniform(0.2, 3.0, len(rossi)) if weighted else np.ones(len(rossi))
    weight /= weight.mean()
    options = {"weights_col": "w", "robust": True, "fit_options": {"ftol": 1e-14}}
    theirs = FITTERS[name]().fit(rossi.assign(w=weight), "week", "arrest", **options)
    ours = SplineAFT(**PLAIN, distribution=name, preprocess=None).fit(X, y, sample_weight=weight if weighted else None)
    location = "mu_" if name == "log-normal" else ("alpha_" if name == "log-logistic" else "lambda_")
    np.testing.assert_allclose(ours.coef_, theirs.params_[location].drop("Intercept")[X.columns], atol=1e-4)
    assert ours.log_likelihood_ == pytest.approx(theirs.log_likelihood_, abs=1e-4)
    times = np.array([5.0, 20.0, 50.0])
    expected = theirs.predict_survival_function(X[:50], times=times).T
    np.testing.assert_allclose(ours.predict_survival_function(X[:50], times).values, expected, atol=5e-4)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_slope_and_information_are_the_derivatives(name):
    X, y, _ = drawn(80, lambda X: X[:, 0], columns=2)
    log_time, event = np.log(y["time"]), y["event"]
    clock = find_bends(log_time[event], 0, place_knots(np.sort(log_time[event]), 4), np.ones(event.sum()))
    times = np.column_stack([log_time, clock(log_time)])
    speeds = np.column_stack([np.ones(event.sum()), clock.slope(log_time[event])])
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 80)
    likelihood = AFTLikelihood(X, times, speeds, event, weight, DISTRIBUTIONS[name])
    coef = np.array([2.0, 0.5, -0.2, 1.3, 0.05, -0.02])

    def at(c: np.ndarray) -> Any:
        return likelihood.evaluate(c, likelihood.terms @ c)

    slope, information = likelihood.slope(at(coef)), likelihood.information(at(coef))
    for k, step in enumerate(1e-5 * np.eye(6)):
        up, down = at(coef + step), at(coef - step)
        assert slope[k] == pytest.approx((up.value - down.value) / 2e-5, rel=1e-5, abs=1e-4)
        change = (likelihood.slope(up) - likelihood.slope(down)) / 2e-5
        np.testing.assert_allclose(-information[k], change, rtol=1e-5, atol=1e-3)
    assert np.linalg.eigvalsh(information)[0] > 0, "one maximum"
    assert at(-coef).value == -np.inf, "time cannot run backwards"


def test_the_speed_of_a_clock_is_its_derivative():
    x = np.random.default_rng(0).normal(size=300)
    clock = find_bends(x, 0, place_knots(np.sort(x), 5), np.ones(300))
    at = np.linspace(-4, 4, 50)
    np.testing.assert_allclose(clock.slope(at), (clock(at + 1e-6) - clock(at - 1e-6)) / 2e-6, atol=1e-6)


def test_chosen_penalties_and_distribution_make_the_data_likeliest():
    """Against the evidence by the determinant of the whole information, in b and log σ, with penalties varied."""
    X, y, _ = drawn(300, lambda X: 0.5 * X[:, 0] + 0.3 * X[:, 1], error="log-normal", columns=6)
    model = SplineAFT(knots=0, time_knots=0, preprocess=None).fit(X, y)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)

    def evidence(penalty: float, name: str) -> float:
        one = SplineAFT(knots=0, time_knots=0, preprocess=None, penalty=penalty, distribution=name).fit(X, y)
        like = AFTLikelihood(
            scaled, np.log(y["time"])[:, None], np.ones((y["event"].sum(), 1)), y["event"], np.ones(300),
            DISTRIBUTIONS[name],
        )  # fmt: skip
        coef = np.r_[one.intercept_, one.coef_ * X.std(axis=0), 1.0] / one.sigma_
        ridge = np.r_[0.0, np.full(6, penalty), 0.0]
        information = like.information(like.evaluate(coef, like.terms @ coef)) + np.diag(ridge)
        scale = np.r_[1 / one.sigma_, np.ones(6), 1 / one.sigma_]
        _, determinant = np.linalg.slogdet(scale * information * scale[:, None])
        return one.log_likelihood_ - 0.5 * (ridge @ coef**2 - 6 * np.log(penalty) + determinant)

    chosen = model.penalties_["straight"]
    best = evidence(chosen, model.distribution_)
    assert evidence(0.5 * chosen, model.distribution_) < best
    assert evidence(2.0 * chosen, model.distribution_) < best
    assert all(evidence(chosen, name) < best for name in DISTRIBUTIONS if name != model.distribution_)


# --- what it learns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_distribution_and_the_effects_are_found(name):
    X, y, truth = drawn(1500, lambda X: 0.6 * X[:, 0] - 0.4 * X[:, 1] ** 2, error=name)
    model = SplineAFT().fit(X, y)
    assert model.distribution_ == name
    assert model.sigma_ == pytest.approx(0.5, rel=0.15)
    assert np.corrcoef(model.partial_effects(X).sum(axis=1), truth)[0, 1] > 0.97
    assert model.degrees_of_freedom_["bends"] > 1.5
    assert model.degrees_of_freedom_["clock"] < 1.5


def test_straight_effects_stay_straight_and_noise_is_shrunk():
    bends = []
    for seed in range(5):
        X, y, _ = drawn(800, lambda X: 0.6 * X[:, 0], seed=seed)
        model = SplineAFT(preprocess=None).fit(X, y)
        bends.append(model.degrees_of_freedom_["bends"])
        assert model.coef_[0] == pytest.approx(0.6, abs=0.06)
    assert np.median(bends) < 0.7
    X, y, _ = drawn(300, lambda X: 0 * X[:, 0], columns=10)
    model = SplineAFT().fit(X, y)
    assert model.degrees_of_freedom_["straight"] + model.degrees_of_freedom_["bends"] < 0.7
    assert np.ptp(model.predict(X)) > 0, "patients are ranked still"


def test_the_clock_bends_where_no_distribution_fits():
    """Most events early, then hardly any: the curve of all patients should follow."""
    rng = np.random.default_rng(0)
    late = rng.random(1500) < 0.6
    time = np.where(late, rng.uniform(0.0, 100.0, 1500), rng.uniform(1.0, 3.0, 1500))
    X, y = rng.normal(size=(1500, 1)), make_outcome(np.minimum(time, 50), time <= 50)
    at = np.array([1.0, 2.0, 3.0, 10.0, 30.0, 49.0])
    survived = (time[:, None] > at).mean(axis=0)
    worst = [
        np.abs(SplineAFT(time_knots=knots).fit(X, y).predict_survival_function(X, at).values.mean(axis=0) - survived)
        for knots in (0, 5)
    ]
    assert worst[1].max() < 0.5 * worst[0].max()


def test_hazards_need_not_be_proportional():
    X, y, truth = drawn(600, lambda X: 0.8 * X[:, 0], error="log-normal")
    times = np.array([2.0, 5.0, 10.0, 20.0])
    exact = norm.sf((np.log(times) - truth[:, None]) / 0.5)
    ours, cox = (
        np.abs(model.fit(X, y).predict_survival_function(X, times).values - exact).mean()
        for model in (SplineAFT(), CoxPH())
    )
    assert ours < 0.7 * cox


def test_straight_lines_between_nodes_are_exact():
    X, y, _ = drawn(500, lambda X: 1.5 * X[:, 0] + X[:, 1] ** 2, error="log-logistic", sigma=1.5)
    model = SplineAFT(preprocess=None).fit(X, y)
    assert len(model.nodes) <= 256
    assert model.nodes[-1] == y["time"].max()
    times = model.nodes[-1] * np.r_[np.geomspace(1e-7, 0.009, 300), np.linspace(0.01, 1.0, 1000)]
    exact = model._survival(model._location(X.astype(np.float32)), times)
    np.testing.assert_allclose(model.predict_survival_function(X, times).values, exact, atol=1e-3)


def test_far_values_say_no_more_than_the_edge():
    X, y, _ = drawn(500, lambda X: X[:, 0] ** 2, columns=1)
    model = SplineAFT(preprocess=None).fit(X, y)
    edge = float(model.upper_[0])
    effects = model.partial_effects(np.array([[edge], [edge + 1], [edge + 2]])).to_numpy()[:, 0]
    np.testing.assert_allclose(effects, effects[0], rtol=1e-6)


# --- awkward tables ---------------------------------------------------------------------------------------


def awkward() -> dict[str, tuple[Any, Any, Any]]:
    rng = np.random.default_rng(0)
    n = 120
    x, time, event = rng.normal(size=(n, 3)), rng.exponential(size=n), rng.random(n) < 0.6
    early = time < np.median(time)
    far = x.copy()
    far[0] = 1e6
    return {
        "separated": (np.column_stack([early, x]), time, early),
        "in order": (np.column_stack([np.log(time), x]), time, np.ones(n)),
        "copies": (np.column_stack([x, x, 2 * x]), time, event),
        "constant": (np.column_stack([x, np.ones(n)]), time, event),
        "nothing varies": (np.ones((n, 2)), time, event),
        "one event": (x, time, np.arange(n) == 5),
        "one event, the first": (x, time, time == time.min()),
        "one event, the last": (x, time, time == time.max()),
        "one time": (x, np.ones(n), event),
        "one time, all events": (x, np.ones(n), np.ones(n)),
        "two times": (x, np.where(early, 1.0, 9.0), event),
        "times of 0": (x, np.where(rng.random(n) < 0.3, 0.0, time), event),
        "only times of 0": (x, np.zeros(n), event),
        "a late time": (x, np.where(np.arange(n) == 3, 1e12, time), np.ones(n)),
        "times of all sizes": (x, np.exp(100 * x[:, 0]), event),
        "an outlier": (far, time, event),
        "huge": (1e10 * x, time, event),
        "wide": (rng.normal(size=(40, 300)), time[:40], event[:40]),
        "wide copies": (np.repeat(x, 100, axis=1), time, event),
        "two patients": (x[:2], [1.0, 2.0], [1, 0]),
    }


@pytest.mark.parametrize("name", awkward())
@pytest.mark.parametrize("options", [{}, {"penalty": 1e-10, "bend_penalty": 1e-10}], ids=["chosen", "tiny"])
def test_no_table_is_too_awkward(name, options):
    X, time, event = awkward()[name]
    with np.errstate(all="raise", under="ignore"):
        model = SplineAFT(preprocess=None, **options).fit(X, make_outcome(time, event))
        values = model.predict_survival_function(X).values
    assert np.isfinite(values).all()
    assert (np.diff(values, axis=1) <= 0).all()
    assert ((values >= 0) & (values <= 1)).all()
    assert np.isfinite([model.sigma_, model.intercept_, model.log_likelihood_, *model.coef_]).all()
    assert np.isfinite([*model.penalties_.values(), *model.degrees_of_freedom_.values()]).all()


def test_times_of_0_count_as_a_thousandth_of_the_median():
    X, y, _ = drawn(300, lambda X: 0.5 * X[:, 0])
    y["time"][:5] = 0.0
    moved = y.copy()
    moved["time"][:5] = 1e-3 * np.median(y["time"][5:])
    np.testing.assert_allclose(SplineAFT().fit(X, y).coef_, SplineAFT().fit(X, moved).coef_, rtol=0.01)


def test_rows_of_weight_zero_do_not_count_and_scale_of_weights_does_not():
    X, y, _ = drawn(300, lambda X: 0.5 * X[:, 0])
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 300)
    weight[200:] = 0
    whole = SplineAFT(preprocess=None).fit(X, y, sample_weight=weight)
    part = SplineAFT(preprocess=None).fit(X[:200], y[:200], sample_weight=1000 * weight[:200])
    np.testing.assert_allclose(whole.predict(X), part.predict(X), rtol=1e-9)


def test_the_same_input_gives_the_same_bits_and_order_and_units_do_not_matter():
    X, y, _ = drawn(300, lambda X: 0.5 * X[:, 0] ** 2)
    model = SplineAFT().fit(X, y)
    expected = model.predict(X)
    np.testing.assert_array_equal(clone(model).fit(X, y).predict(X), expected)
    order = np.random.default_rng(0).permutation(300)
    np.testing.assert_allclose(SplineAFT().fit(X[order], y[order]).predict(X), expected, rtol=1e-3)
    days = make_outcome(365 * y["time"], y["event"])
    np.testing.assert_allclose(SplineAFT().fit(3 * X + 7, days).predict(3 * X + 7), 365 * expected, rtol=1e-3)


def test_strength_multiplies_what_the_data_choose():
    X, y, _ = drawn(300, lambda X: 0.5 * X[:, 0])
    norms = [np.abs(SplineAFT(strength=one).fit(X, y).coef_).sum() for one in (0.1, 1.0, 100.0)]
    assert norms[0] > norms[1] > norms[2]
    assert SplineAFT(penalty=5.0, strength=100.0).fit(X, y).penalties_["straight"] == 5.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distribution": "gamma"}, "distribution is 'gamma', but None or one of 'weibull', 'log-logistic'"),
        ({"time_knots": -1}, "time_knots is -1"),
        ({"time_knots": None}, "time_knots is None"),
        ({"knots": 2.5}, "knots is 2.5"),
    ],
)
def test_parameters_out_of_range_are_named(options, message):
    X, y, _ = drawn(50, lambda X: X[:, 0])
    with pytest.raises(ValueError, match=message):
        SplineAFT(**options).fit(X, y)


# --- files ------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    X, y, _ = drawn(300, lambda X: X[:, 0] ** 2)
    y["time"] **= 2 - y["time"] / (y["time"] + 5)  # a clock that bends
    model = SplineAFT().fit(X, y)
    model.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors", model, X


def test_all_that_it_knows_comes_back(saved):
    path, model, X = saved
    loaded = dcsurv.load(path)
    for name in ("distribution_", "sigma_", "intercept_", "penalties_", "degrees_of_freedom_", "log_likelihood_"):
        assert getattr(loaded, name) == getattr(model, name)
    curves = [one.predict_survival_function(X) for one in (model, loaded)]
    np.testing.assert_array_equal(curves[0].times, curves[1].times)
    np.testing.assert_array_equal(curves[0].values, curves[1].values)
    pd.testing.assert_frame_equal(loaded.partial_effects(X), model.partial_effects(X), rtol=0, atol=0)
    loaded.save(path.with_name("again.safetensors"))
    assert path.with_name("again.safetensors").read_bytes() == path.read_bytes()


def test_no_patient_rows_in_the_file(saved):
    _, arrays = persistence.read(saved[0])
    assert all(max(array.shape, default=0) <= 256 for array in arrays.values())
    assert len(arrays["times_"]) == 256, "nodes, whatever the number of patients"


def _error(**values: Any) -> Any:
    return lambda header, arrays: header["error"].update(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (array("coef_", lambda a: a[:-1]), "numbers of the type float64 are expected"),
        (array("scale_", lambda a: 0 * a), "units or ranges"),
        (array("times_", lambda a: a[::-1].copy()), "do not ascend"),
        (array("times_", lambda a: a - a[0]), "do not ascend from above 0"),
        (array("times_", lambda a: a * np.nan), "not finite"),
        (array("times_", lambda a: a[:0]), "do not ascend"),
        (array("bends.mix", lambda a: a * np.nan), "not finite"),
        (array("clock.bends.mix", lambda a: a[1:]), "bends.mix"),
        (array("clock.bends.column", lambda a: a + 1), "other columns"),
        (lambda header, arrays: arrays.pop("clock.bends.line"), "bends.line"),
        (lambda header, arrays: header.pop("error"), "error"),
        (_error(distribution_="os.system"), "error.distribution_: invalid"),
        (_error(distribution_=["weibull"]), "model"),
        (_error(sigma_=0), "error.sigma_: expected float > 0"),
        (_error(unit_=-1.0), "error.unit_: expected float > 0"),
        (_error(intercept_="high"), "error.intercept_: expected float, got str"),
        (lambda header, arrays: header["parameters"].update(distribution="gamma"), "distribution"),
    ],
)
def test_a_damaged_file_is_refused(saved, change, message):
    path, _, _ = saved
    forge(path, change)
    with pytest.raises(persistence.ModelFileError, match=message):
        dcsurv.load(path)


def test_it_is_a_member_of_ensembles_and_known_by_name():
    kind = kind_named("spline-aft")
    assert kind.model is SplineAFT
    assert kind.is_member
    X, y, _ = drawn(150, lambda X: X[:, 0])
    ensemble = dcsurv.CalibratedEnsemble(estimator=SplineAFT(), n_members=2, random_state=0).fit(X, y)
    assert ensemble.score(X, y) > 0.65
