"""An ensemble of several families: weights, maps of their own, sizes that follow the events, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from typer.testing import CliRunner

import dcsurv
from dcsurv import CalibratedEnsemble, CoxPH, SplineCox, fold_indices
from dcsurv.calibration import COMPANIONS, HorizonMap, MapSequence, default_member, make_maps
from dcsurv.calibration.families import folds_for, templates_for
from dcsurv.calibration.horizon_fit import known_weights
from dcsurv.calibration.weights import stacking_weights
from dcsurv.cli import app
from dcsurv.curves import SurvivalCurves
from dcsurv.datasets import simulate
from dcsurv.persistence import ModelFileError

FAMILIES = ["dcs", "spline-cox", "spline-aft", "boosted", "forest"]


@pytest.fixture(scope="module")
def cohort() -> Any:
    return simulate("independent", 500)


@pytest.fixture(scope="module")
def fitted(cohort: Any) -> CalibratedEnsemble:
    model = CalibratedEnsemble(n_members=3, random_state=0).set_params(estimator__max_epochs=3)
    return model.fit(cohort.X[:400], cohort.y[:400])


# --- weights ------------------------------------------------------------------------------------------------------


def three_families(cohort: Any) -> tuple[np.ndarray, list[np.ndarray]]:
    nodes = np.linspace(0.5, 10, 20)
    truth = cohort.truth(nodes)
    everybody = np.broadcast_to(truth.mean(axis=0), truth.shape)
    return nodes, [truth, everybody, truth**3]


def test_weights_solve_the_quadratic_programme(cohort: Any) -> None:
    nodes, curves = three_families(cohort)
    y, prior = cohort.y, np.array([1.0, 2.0, 1.0]) / 4
    found = stacking_weights(y, nodes, curves, prior)
    quantiles = np.quantile(y["time"][y["event"]], (np.arange(20) + 0.5) / 20)
    at = np.unique(np.minimum(np.searchsorted(nodes, quantiles), len(nodes) - 1))
    seen = known_weights(y["time"], y["event"], nodes[at], np.ones(len(y))).T / len(at)
    alive = y["time"][:, None] > nodes[at]

    def cost(a: np.ndarray) -> float:
        mean = sum(share * one[:, at] for share, one in zip(a, curves, strict=True))
        return float((seen * (alive - mean) ** 2).sum() + 0.5 * ((a - prior) ** 2).sum())

    simplex = [{"type": "eq", "fun": lambda a: a.sum() - 1}]
    best = minimize(cost, prior, bounds=[(0, 1)] * 3, constraints=simplex, options={"ftol": 1e-14, "maxiter": 500})
    assert cost(found) == pytest.approx(best.fun, abs=1e-4)
    np.testing.assert_allclose(found, np.where(best.x < 0.02, 0, best.x), atol=0.02)
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()


def test_weights_find_the_truth_with_many_events_and_keep_to_the_prior_with_few(cohort: Any) -> None:
    many = simulate("independent", 5000)
    of_many = stacking_weights(many.y, *three_families(many), [1, 1, 1])
    assert of_many[0] > 0.85, of_many
    nodes, curves = three_families(cohort)
    few = [one[:12] for one in curves]

    def pulled(y: Any, of: list[np.ndarray]) -> float:
        """Return how much a prior for the third family gains it."""
        asked, equal = (stacking_weights(y, nodes, of, prior)[2] for prior in ([1, 1, 8], [1, 1, 1]))
        return float(asked - equal)

    assert pulled(cohort.y[:12], few) > 5 * abs(pulled(cohort.y, curves))
    weight = np.where(np.arange(500) < 12, 1.0, 0.0)
    np.testing.assert_allclose(
        stacking_weights(cohort.y, nodes, curves, [1, 1, 1], weight),
        stacking_weights(cohort.y[:12], nodes, few, [1, 1, 1]),
        atol=1e-6,
        err_msg="a patient of weight 0 is not there",
    )


# --- what it is made of -------------------------------------------------------------------------------------------


def test_curves_are_the_weighted_mean_of_mapped_families(fitted: CalibratedEnsemble, cohort: Any) -> None:
    X, y, new = cohort.X[:400], cohort.y[:400], cohort.X[400:]
    assert list(fitted.weights_) == FAMILIES
    assert sum(fitted.weights_.values()) == pytest.approx(1)
    prepared, train = fitted.prepare(new), fitted.prepare(X)
    nodes = fitted.nodes
    assert nodes[-1] == y["time"].max()
    folds = fold_indices(y, n_folds=3, random_state=int(np.random.RandomState(0).randint(2**31 - 1, size=1)[0]))
    mean = np.zeros((len(new), len(nodes)))
    for family in fitted.families_:
        assert len(family.members) == (0 if family.weight == 0 else 6 if family.name == "dcs" else 3)
        if family.weight == 0:
            continue
        each = [member.predict_survival_function(prepared).evaluate(nodes) for member in family.members]
        raw = np.mean(each, axis=0)
        out_of_fold = np.zeros((len(y), len(nodes)))
        for k, (_, left_out) in enumerate(folds):
            own = family.members[k * family.n_seeds : (k + 1) * family.n_seeds]
            out_of_fold[left_out] = np.mean([one.survival_at(train[left_out], nodes) for one in own], axis=0)
        # The map of a family rests on what its members say of patients that they have not seen.
        again = MapSequence([HorizonMap(prior=200)]).fit(
            y, SurvivalCurves(nodes, out_of_fold, interpolation="linear"), censoring="marginal"
        )
        moved = np.minimum.accumulate(again(raw, nodes), axis=1)
        mean += family.weight * moved
    # Curves of an accelerated model are read between its nodes by others, by the ensemble where they are.
    np.testing.assert_allclose(fitted.survival_at_nodes(prepared), mean, atol=1e-3)
    expected = fitted.map_.transform(SurvivalCurves(nodes, fitted.survival_at_nodes(prepared), interpolation="linear"))
    times = np.linspace(0.5, 9.5, 30)
    np.testing.assert_allclose(fitted.predict_survival_function(new)(times), expected(times), atol=1e-12)


def test_families_that_are_wrong_hardly_count(fitted: CalibratedEnsemble, cohort: Any) -> None:
    """Networks of three epochs know little: the mean is nearer to the truth than they are, and near the best."""
    new, times = cohort.X[400:], np.linspace(0.5, 9.5, 30)
    truth = cohort.truth[400:](times)
    error = np.abs(fitted.predict_survival_function(new)(times) - truth).mean()
    prepared = fitted.prepare(new)
    of_each = {
        family.name: np.abs(
            family.map.held(np.mean([*family.by_fold(prepared, times)], axis=0), times).T - truth
        ).mean()
        for family in fitted.families_
        if family.members
    }
    assert error < 0.7 * of_each["dcs"]
    assert error < 1.3 * min(of_each.values())
    assert fitted.weights_["dcs"] < 0.3


def test_every_way_to_the_same_bits(fitted: CalibratedEnsemble, cohort: Any, tmp_path: Path) -> None:
    X, y, new = cohort.X[:400], cohort.y[:400], cohort.X[400:]
    expected = fitted.predict_survival_function(new).values
    parallel = clone(fitted).set_params(n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(parallel.predict_survival_function(new).values, expected)
    fitted.save(tmp_path / "model")
    restored = dcsurv.load(tmp_path / "model")
    np.testing.assert_array_equal(restored.predict_survival_function(new).values, expected)
    np.testing.assert_array_equal(restored.predict_band(new).lower, fitted.predict_band(new).lower)
    assert restored.weights_ == fitted.weights_
    assert restored.get_params()["companions"] == COMPANIONS
    assert restored.remarks_ == fitted.remarks_


def test_bands_come_from_the_folds(fitted: CalibratedEnsemble, cohort: Any) -> None:
    new, times = cohort.X[400:], np.array([1.0, 5.0, 9.0])
    sources = fitted.band_sources(fitted.prepare(new))
    assert len(sources.replicates) == 3, "one mean of all families for each fold"
    assert sources.factor == pytest.approx(4 / 3)
    assert [share for share, _ in sources.families] == [w for w in fitted.weights_.values() if w > 0]
    band = fitted.predict_band(new, times)
    assert ((band.lower <= band.survival) & (band.survival <= band.upper)).all()
    for one in sources.replicates:
        assert np.mean((band.lower <= one(times)) & (one(times) <= band.upper)) > 0.95


# --- what follows from the events, and what users say -------------------------------------------------------------


def test_sizes_follow_the_events(cohort: Any) -> None:
    assert (folds_for(50), folds_for(399), folds_for(400), folds_for(3), folds_for(1)) == (10, 10, 5, 3, 2)
    small, large = (templates_for(None, None, n)[0] for n in (100, 1000))
    assert [type(one).__name__ for one in small] == [type(one).__name__ for one in large]
    assert (small[0].encoder_size, small[0].n_nodes) == (32, 10)
    assert (large[0].encoder_size, large[0].n_nodes) == (64, 40)
    few, remarks = templates_for(None, None, 30)
    assert [type(one).__name__ for one in few] == ["SplineCox", "SplineAFT"]
    assert "30 events, too few for networks and trees" in remarks[0]
    asked, said = templates_for(None, COMPANIONS, 30)
    assert len(asked) == 5, "what was asked for is done"
    assert said == []
    model = CalibratedEnsemble(random_state=0).fit(cohort.X[:60], cohort.y[:60])
    assert list(model.weights_) == ["spline-cox", "spline-aft"]
    assert "too few for networks" in model.remarks_[0]
    assert model.training_summary_["folds"] == 10


def test_families_of_ones_own(cohort: Any, tmp_path: Path) -> None:
    X, y = cohort.X[:150], cohort.y[:150]
    alone = CalibratedEnsemble(estimator=CoxPH(), n_members=2, random_state=0).fit(X, y)
    assert alone.weights_ == {"coxph": 1.0}
    assert alone.display_name == "CalibratedEnsemble (2 × CoxPH)"
    mixed = CalibratedEnsemble(
        estimator=CoxPH(), companions=["spline-cox", SplineCox(knots=0)], n_members=2, random_state=0
    ).fit(X, y)
    assert list(mixed.weights_) == ["coxph", "spline-cox", "spline-cox 2"]
    mixed.save(tmp_path / "mixed")
    restored = dcsurv.load(tmp_path / "mixed")
    np.testing.assert_array_equal(restored.predict(X), mixed.predict(X))
    assert restored.companions[1].knots == 0
    networks = CalibratedEnsemble(companions=(), n_members=2, seeds_per_member=1).set_params(estimator__max_epochs=1)
    assert list(networks.fit(X, y).weights_) == ["dcs"]
    changed = CalibratedEnsemble().set_params(estimator__lam=1.0)
    assert changed.companions == COMPANIONS
    assert changed.estimator.lam == 1.0
    assert clone(changed).companions == COMPANIONS
    for wrong, message in (
        ("forest", "companions is 'forest'"),
        (["magic"], "no model 'magic'"),
        ([None], "companions has a NoneType"),
        ([CalibratedEnsemble()], "companions has a CalibratedEnsemble"),
    ):
        with pytest.raises(ValueError, match=message):
            CalibratedEnsemble(companions=wrong).fit(X, y)


def test_weights_of_patients_count(cohort: Any) -> None:
    X, y = cohort.X[:200], cohort.y[:200]
    model = CalibratedEnsemble(estimator=CoxPH(), companions=["spline-aft"], n_members=2, random_state=0)
    plain = model.fit(X, y).predict(X)
    assert np.allclose(model.fit(X, y, sample_weight=np.full(200, 3.0)).predict(X), plain, rtol=1e-6)
    assert not np.allclose(model.fit(X, y, sample_weight=np.linspace(0.1, 2, 200)).predict(X), plain, rtol=1e-3)


def test_damaged_families_are_refused(fitted: CalibratedEnsemble, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    header, arrays = dcsurv.persistence.read(tmp_path / "model")
    families = header["families"]
    kept = next(k for k, one in enumerate(families) if one["members"])

    def changed(**change: Any) -> list[Any]:
        return [one | change if k == kept else one for k, one in enumerate(families)]

    for bad in (
        families[1:],
        changed(weight=0.9999),
        changed(weight=-families[kept]["weight"]),
        changed(members=families[kept]["members"] + 1),
        changed(folds=1),
        changed(map=make_maps(["horizon"]).maps[0].get_state()),
    ):
        document = {key: value for key, value in header.items() if key not in ("format", "kind")} | {"families": bad}
        dcsurv.persistence.save(tmp_path / "bad", "CalibratedEnsemble", document, arrays)
        with pytest.raises(ModelFileError):
            dcsurv.load(tmp_path / "bad")


def test_settings_of_the_default_are_kept_in_files(tmp_path: Path) -> None:
    from dcsurv.experiments.tuning import read_settings, save_settings

    save_settings(tmp_path / "settings.json", CalibratedEnsemble())
    found = read_settings(tmp_path / "settings.json")
    assert tuple(found.companions) == COMPANIONS
    assert found.estimator.get_params() == default_member().get_params()
    save_settings(tmp_path / "alone.json", CalibratedEnsemble(estimator=CoxPH()))
    assert read_settings(tmp_path / "alone.json").companions is None


@pytest.mark.usefixtures("undrawn")
def test_what_it_is_made_of_is_shown(fitted: CalibratedEnsemble, cohort: Any, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.safetensors")
    done = CliRunner().invoke(app, ["info", str(tmp_path / "model.safetensors")])
    assert done.exit_code == 0, done.output
    shown = " ".join(done.output.split())
    assert "What the model is made of" in shown
    for name, weight in fitted.weights_.items():
        assert f"{name} {100 * weight:.0f} %" in shown
    dcsurv.write_report(tmp_path / "report.html", fitted, cohort.X[400:], cohort.y[400:], n_bootstrap=2, unit="years")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "What the model is made of" in page
    assert "spline-aft: accelerated failure times" in page
    assert f">{100 * fitted.weights_['spline-aft']:.0f} %<" in page
