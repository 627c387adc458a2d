"""The calibrated ensemble and local recalibration, on METABRIC and on a cohort whose truth is known."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import dcsurv
from dcsurv import SurvivalCurves, fold_indices, make_outcome, train_test_indices
from dcsurv.calibration import (
    CalibratedEnsemble,
    HorizonMap,
    MapSequence,
    RankPreservingMap,
    default_member,
    recalibrate,
)
from dcsurv.datasets import load
from dcsurv.metrics import calibration_at_horizon, concordance_index_td, cumulative_dynamic_auc, ddc, ddc_floor
from dcsurv.models import DCS, CoxPH, DeepSurv
from dcsurv.models.together import fit_together
from dcsurv.persistence import ModelFileError
from test_sklearn_checks import Adapter

CHEAP = DCS(decoder_layers=0, max_epochs=8, learning_rate=0.01, n_nodes=15, encoder_size=16)


@pytest.fixture(scope="module")
def metabric() -> Any:
    X, y = load("metabric")
    train, test = train_test_indices(y, random_state=0)
    return X.iloc[train], y[train], X.iloc[test], y[test]


@pytest.fixture(scope="module")
def fitted(metabric: Any) -> CalibratedEnsemble:
    return CalibratedEnsemble(estimator=CHEAP, n_members=4, seeds_per_member=2, random_state=0).fit(*metabric[:2])


def simulated(seed: int, n: int, late: float = 0.0) -> tuple[pd.DataFrame, Any, SurvivalCurves]:
    """Return features, outcomes and the true curves; ``late`` darkens the prognosis as time goes on."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    risk = np.exp(X @ [0.8, -0.5, 0.0])
    times = np.linspace(0.25, 25, 100)
    hazard = (times / 10) ** 1.3 * np.exp(late * times / 10)
    event_time = np.interp(rng.exponential(1, n) / risk, np.append(0, hazard), np.append(0, times), right=99.0)
    censoring = rng.uniform(2, 22, n)
    y = make_outcome(np.minimum(event_time, censoring), event_time <= censoring)
    return pd.DataFrame(X, columns=["a", "b", "c"]), y, SurvivalCurves(times, np.exp(-risk[:, None] * hazard))


# --- what it predicts -----------------------------------------------------------------------------------------


def test_curves_are_the_mapped_mean_of_members_trained_without_their_fold(
    fitted: CalibratedEnsemble, metabric: Any
) -> None:
    X, y, X_test, _ = metabric
    features = fitted.preprocessor_.transform(X_test)
    members = [member.predict_survival_function(features) for member in fitted.members_]
    nodes = np.unique(np.concatenate([curves.times for curves in members]))
    mean = np.mean([curves.evaluate(nodes) for curves in members], axis=0)
    expected = fitted.map_.transform(SurvivalCurves(nodes, mean))
    curves = fitted.predict_survival_function(X_test)
    anywhere = np.linspace(0, nodes[-1], 77)
    assert curves.to_frame().index.equals(X_test.index)
    assert fitted.predict_survival_function(X_test, anywhere[1:]).to_frame().index.equals(X_test.index)
    np.testing.assert_allclose(curves.evaluate(anywhere), expected.evaluate(anywhere), atol=1e-12)
    np.testing.assert_array_equal(fitted.predict_survival_function(X_test, anywhere[1:]).values, curves(anywhere[1:]))
    np.testing.assert_allclose(fitted.predict(X_test), -curves.rmst(), rtol=1e-12)

    # The folds are those of the seed, members have never seen their own, and the maps rest on these curves only.
    draws = np.random.RandomState(0).randint(2**31 - 1, size=9)
    folds = [fold for fold in fold_indices(y, n_folds=4, random_state=int(draws[0])) for _ in range(2)]
    prepared = fitted.preprocessor_.transform(X)
    out_of_fold = np.zeros((len(y), len(nodes)))
    for (train, left_out), seed, member in zip(folds, draws[1:], fitted.members_, strict=True):
        alone = clone(CHEAP).set_params(preprocess=None, random_state=int(seed))
        fit_together([alone], prepared, y, None, [train])
        own = member.predict_survival_function(prepared[left_out])
        np.testing.assert_allclose(alone.predict_survival_function(prepared[left_out]).values, own.values, atol=1e-4)
        out_of_fold[left_out] += own.evaluate(nodes) / 2
    again = MapSequence([HorizonMap(), RankPreservingMap()]).fit(y, SurvivalCurves(nodes, out_of_fold), X=X)
    np.testing.assert_allclose(
        again.transform(SurvivalCurves(nodes, mean)).evaluate(anywhere), curves.evaluate(anywhere), atol=1e-6
    )


def test_maps_help_calibration_and_leave_the_ranking(fitted: CalibratedEnsemble, metabric: Any) -> None:
    X, y, X_test, y_test = metabric
    raw = CalibratedEnsemble(estimator=CHEAP, n_members=4, seeds_per_member=2, maps=(), random_state=0).fit(X, y)
    ranked = CalibratedEnsemble(estimator=CHEAP, n_members=4, seeds_per_member=2, maps=["rank"], random_state=0).fit(
        X, y
    )
    before, after = raw.predict_survival_function(X_test), fitted.predict_survival_function(X_test)
    assert ddc(y_test, after) < ddc(y_test, before)
    assert raw.score(X_test, y_test) == concordance_index_td(y_test, before) > 0.6
    assert fitted.score(X_test, y_test) == pytest.approx(raw.score(X_test, y_test), abs=1e-3)
    same = ranked.predict_survival_function(X_test)
    assert ranked.score(X_test, y_test) == pytest.approx(raw.score(X_test, y_test), abs=1e-6)
    areas = [cumulative_dynamic_auc(y_test, curves, tied_tol=1e-8).mean for curves in (same, before)]
    assert areas[0] == pytest.approx(areas[1], abs=1e-6)


def test_ensemble_comes_close_to_a_known_truth() -> None:
    X, y, _ = simulated(0, 2000)
    X_new, y_new, truth = simulated(1, 2000)
    member = DCS(decoder_layers=0, max_epochs=15, learning_rate=0.01, lam=1.0, n_nodes=20, criterion="ranked")
    settings: dict[str, Any] = {"estimator": member, "n_members": 3, "seeds_per_member": 1, "random_state": 0}
    raw = CalibratedEnsemble(**settings, maps=()).fit(X, y).predict_survival_function(X_new)
    ours = CalibratedEnsemble(**settings).fit(X, y).predict_survival_function(X_new)
    t = np.linspace(1, 15, 30)
    error_before, error = (np.abs(curves(t) - truth(t)).mean() for curves in (raw, ours))
    assert error_before > 0.06
    assert error < error_before / 2
    floor = ddc_floor(y_new, truth, n_simulations=50)
    assert ddc(y_new, raw) > 10 * floor
    assert ddc(y_new, ours) < 4 * floor
    for horizon in (4.0, 8.0, 14.0):
        before, after = (calibration_at_horizon(y_new, curves, horizon).ici for curves in (raw, ours))
        assert after < before / 2
    assert concordance_index_td(y_new, ours) == pytest.approx(concordance_index_td(y_new, raw), abs=1e-3)


def test_bands_hold_the_curve_and_grow_with_the_level(fitted: CalibratedEnsemble, metabric: Any) -> None:
    X_test = metabric[2]
    times = np.linspace(300, 7000, 12)  # days
    band = fitted.predict_band(X_test, times, level=0.9)
    np.testing.assert_array_equal(band.survival, fitted.predict_survival_function(X_test, times).values)
    assert band.lower.shape == (len(X_test), 12)
    assert (band.lower <= band.survival).all()
    assert (band.survival <= band.upper).all()
    assert (band.lower >= 0).all()
    assert (band.upper <= 1).all()
    for edge in (band.lower, band.upper):
        assert (np.diff(edge, axis=1) <= 0).all()
    wide = fitted.predict_band(X_test, times, level=0.99)
    assert (wide.upper - wide.lower).mean() > 1.2 * (band.upper - band.lower).mean() > 0.01
    # Most members lie inside a band of two standard deviations.
    features = fitted.preprocessor_.transform(X_test)
    members = [fitted.map_.transform(m.predict_survival_function(features)).evaluate(times) for m in fitted.members_]
    held = fitted.predict_band(X_test, times, level=0.954)
    assert np.mean([(held.lower <= s) & (s <= held.upper) for s in members]) > 0.9
    assert len(fitted.predict_band(X_test[:2]).times) == len(fitted.predict_survival_function(X_test[:2]).times)
    with pytest.raises(ValueError, match="level is 1"):
        fitted.predict_band(X_test, times, level=1.0)


# --- how it behaves -------------------------------------------------------------------------------------------


def test_the_number_of_processes_changes_nothing(fitted: CalibratedEnsemble, metabric: Any) -> None:
    X, y, X_test, _ = metabric
    parallel = clone(fitted).set_params(n_jobs=2).fit(X, y)
    assert parallel.map_.get_state() == fitted.map_.get_state()
    np.testing.assert_array_equal(
        parallel.predict_survival_function(X_test).values, fitted.predict_survival_function(X_test).values
    )
    other = clone(fitted).set_params(random_state=1).fit(X, y)
    assert other.map_.get_state() != fitted.map_.get_state()


def test_files_and_pickles_predict_the_same(fitted: CalibratedEnsemble, metabric: Any, tmp_path: Path) -> None:
    X_test = metabric[2]
    fitted.save(tmp_path / "model")
    fitted.save(tmp_path / "again")
    assert (tmp_path / "model").read_bytes() == (tmp_path / "again").read_bytes()
    expected = fitted.predict_survival_function(X_test).values
    for copy in (dcsurv.load(tmp_path / "model"), pickle.loads(pickle.dumps(fitted))):
        assert isinstance(copy, CalibratedEnsemble)
        np.testing.assert_array_equal(copy.predict_survival_function(X_test).values, expected)
        np.testing.assert_array_equal(copy.predict(X_test), fitted.predict(X_test))
        np.testing.assert_array_equal(copy.predict_band(X_test).lower, fitted.predict_band(X_test).lower)
        assert copy.get_params()["estimator__n_nodes"] == 15
        assert copy.training_summary_ == fitted.training_summary_
        with pytest.raises(ValueError, match="has no column 'MKI67'"):
            copy.predict(X_test.rename(columns={X_test.columns[0]: "other"}))
    clone(dcsurv.load(tmp_path / "model"))


def test_a_fresh_process_loads_an_ensemble(fitted: CalibratedEnsemble, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    code = "import sys, dcsurv; print(type(dcsurv.load(sys.argv[1])).__name__)"
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "model"], capture_output=True, text=True)
    assert done.stdout.strip() == "CalibratedEnsemble", done.stderr


def test_other_members_weights_and_scoring(metabric: Any, tmp_path: Path) -> None:
    X, y, X_test, y_test = metabric
    X, y = X[:400], y[:400]
    cox = CalibratedEnsemble(estimator=CoxPH(), n_members=3, maps=("rank",), random_state=0)
    weight = np.random.default_rng(0).uniform(0.5, 2, 400)
    cox.fit(X, y, sample_weight=weight)
    curves = cox.predict_survival_function(X_test)
    assert curves.interpolation == "step"
    assert cox.score(X_test, y_test) > 0.6
    assert cox.training_summary_["weighted"]
    cox.save(tmp_path / "cox")
    np.testing.assert_array_equal(dcsurv.load(tmp_path / "cox").predict(X_test), cox.predict(X_test))
    scores = cross_val_score(cox, X, y, cv=3)
    assert (scores > 0.55).all()
    plain = CalibratedEnsemble(
        estimator=DeepSurv(max_epochs=3, layer_size=8), n_members=2, seeds_per_member=1, preprocess=None, random_state=0
    )
    numbers = cox.preprocessor_.transform(X)
    assert plain.fit(numbers, y).predict(numbers[:5]).shape == (5,)


def test_parameters_of_the_default_members_can_be_set(metabric: Any) -> None:
    X, y = metabric[0][:200], metabric[1][:200]
    ensemble = CalibratedEnsemble(n_members=np.int64(2), seeds_per_member=1, random_state=0)
    assert ensemble.get_params()["estimator__feature_bins"] == 8
    ensemble.set_params(estimator__n_nodes=15, estimator__max_epochs=1)
    usual = default_member().get_params()
    changed = {name for name, value in ensemble.estimator.get_params().items() if value != usual[name]}
    assert changed == {"n_nodes", "max_epochs"}, "the other parameters are those of the recommended member"
    assert ensemble.fit(X, y).members_[0].grid_.size == 15
    follows = CalibratedEnsemble(estimator=default_member(max_epochs=1), n_members=2, seeds_per_member=1).fit(X, y)
    assert {member.grid_.size for member in follows.members_} == {max(10, int(y["event"].sum()) // 2 // 10)}


def test_a_damaged_description_is_refused(fitted: CalibratedEnsemble, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    header, arrays = dcsurv.persistence.read(tmp_path / "model")
    for name, change in {
        "unknown kind": {"members": [{**header["members"][0], "kind": "Magic"}]},
        "members: expected array of length >= 1": {"members": []},
        "must be a sequence": {"map": header["map"]["maps"][0]},
        "not those of its members": {"members": header["members"][:2]},
    }.items():
        document = {key: value for key, value in {**header, **change}.items() if key not in ("format", "kind")}
        dcsurv.persistence.save(tmp_path / "bad", "CalibratedEnsemble", document, arrays)
        with pytest.raises(ModelFileError, match=name):
            dcsurv.load(tmp_path / "bad")


def test_what_cannot_work_is_refused(metabric: Any, tmp_path: Path) -> None:
    X, y = metabric[0][:60], metabric[1][:60]
    for settings, message in (
        ({"estimator": "DCS"}, "estimator is a str"),
        ({"n_members": 1}, "n_members is 1"),
        ({"seeds_per_member": 0}, "seeds_per_member is 0"),
        ({"maps": ("magic",)}, "maps is"),
        ({"maps": "rank"}, "maps is"),
        ({"estimator": CoxPH(), "n_members": 61}, "Use fewer members"),
    ):
        with pytest.raises(ValueError, match=message):
            CalibratedEnsemble(**settings).fit(X, y)
    few = make_outcome(y["time"], np.arange(60) < 1)
    with pytest.raises(ValueError, match="1 event among"):
        CalibratedEnsemble(estimator=CoxPH()).fit(X, few)

    class Special(CoxPH):
        pass

    with pytest.raises(ModelFileError, match="Special cannot be saved"):
        CalibratedEnsemble(estimator=Special(), n_members=2).fit(X, y).save(tmp_path / "model")


class CheckedEnsemble(Adapter, CalibratedEnsemble):
    pass


def inapplicable(estimator: Any) -> dict[str, str]:
    reason = "folds are dealt by row number, so a row left out deals the others differently"
    return {"check_sample_weight_equivalence_on_dense_data": reason}


@parametrize_with_checks(
    [CheckedEnsemble(estimator=CoxPH(penalizer=0.1), n_members=2, random_state=0)],
    expected_failed_checks=inapplicable,
)
def test_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


# --- another hospital -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ensemble", "model"])
def test_recalibration_follows_another_cohort(kind: str, tmp_path: Path) -> None:
    X, y, _ = simulated(2, 1500)
    model: Any = CoxPH() if kind == "model" else CalibratedEnsemble(estimator=CoxPH(), n_members=3, random_state=0)
    model.fit(X, y)
    X_local, y_local, _ = simulated(3, 1000, late=1.0)
    X_new, y_new, truth = simulated(4, 1000, late=1.0)
    before = model.predict_survival_function(X_new).values
    moved = recalibrate(model, X_local, y_local)
    np.testing.assert_array_equal(model.predict_survival_function(X_new).values, before)
    t = np.linspace(1, 12, 20)
    error = [np.abs(m.predict_survival_function(X_new)(t) - truth(t)).mean() for m in (model, moved.model)]
    assert error[0] > 0.05
    assert error[1] < 0.025
    assert (moved.patients, moved.events) == (1000, int(y_local["event"].sum()))
    assert len(moved.horizons) == 3
    assert (np.abs(moved.ratio_after - 1) < 0.05).all()
    assert (np.abs(moved.ratio_before - 1) > np.abs(moved.ratio_after - 1)).all()
    own = [m.predict_survival_function(X_local)(moved.horizons) for m in (model, moved.model)]
    np.testing.assert_allclose(moved.mean_change, np.abs(own[1] - own[0]).mean(axis=0))
    assert f"Recalibrated on 1000 patients with {moved.events} events" in str(moved)
    assert moved.model.score(X_new, y_new) == pytest.approx(model.score(X_new, y_new), abs=1e-3)
    moved.model.save(tmp_path / "local")
    np.testing.assert_array_equal(dcsurv.load(tmp_path / "local").predict(X_new), moved.model.predict(X_new))
    if kind == "model":
        with pytest.raises(ValueError, match="a band needs the spread of several"):
            moved.model.predict_band(X_new)


def test_few_local_patients_hardly_move_a_good_model() -> None:
    X, y, _ = simulated(2, 1500)
    model = CoxPH().fit(X, y)
    X_new, _, truth = simulated(4, 1000)
    t = np.linspace(1, 12, 20)
    nothing = recalibrate(model, X[:50], y[:50], maps=())
    np.testing.assert_array_equal(
        nothing.model.predict_survival_function(X_new).values, model.predict_survival_function(X_new).values
    )
    assert (nothing.mean_change == 0).all()
    errors = []
    for seed in range(5):
        X_local, y_local, _ = simulated(10 + seed, 20)
        moved = recalibrate(model, X_local, y_local).model
        errors.append(np.abs(moved.predict_survival_function(X_new)(t) - truth(t)).mean())
    assert np.mean(errors) < 0.12


def test_recalibration_refuses_what_it_cannot_use(fitted: CalibratedEnsemble, metabric: Any) -> None:
    with pytest.raises(ValueError, match="model is a str"):
        recalibrate("model", *metabric[2:])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="0 observed events"):
        recalibrate(fitted, metabric[2], make_outcome(metabric[3]["time"], np.zeros(len(metabric[3]))))
