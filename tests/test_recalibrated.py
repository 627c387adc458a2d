"""A recalibrated model says what it is: which model, which maps, fitted on whom, how good before and after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import dcsurv
from dcsurv.calibration import CalibratedEnsemble, FittedOn, Recalibrated, recalibrate
from dcsurv.cohort import ModelCard
from dcsurv.datasets import load
from dcsurv.kinds import kind_named, kinds, make_model
from dcsurv.persistence import ModelFileError, read

FORMAT1 = Path(__file__).parent / "fixtures" / "format1"


@pytest.fixture(scope="module")
def metabric() -> Any:
    X, y = load("metabric")
    return X, y


@pytest.fixture(scope="module")
def cox(metabric: Any) -> dcsurv.CoxPH:
    X, y = metabric
    return dcsurv.CoxPH(time_unit="days").fit(X[:600], y[:600])


@pytest.fixture(scope="module")
def ensemble(metabric: Any) -> CalibratedEnsemble:
    X, y = metabric
    members = {"estimator__max_epochs": 2, "n_members": 2, "seeds_per_member": 1, "random_state": 0}
    return CalibratedEnsemble().set_params(**members).fit(X[:400], y[:400])


@pytest.mark.parametrize(("name", "inside"), [("coxph", "CoxPH"), ("calibrated", "CalibratedEnsemble")])
def test_recalibrated_files_of_version_01_come_back_as_what_they_are(name: str, inside: str, metabric: Any) -> None:
    expected = json.loads((FORMAT1 / "recalibrated.json").read_text())
    model = dcsurv.load(FORMAT1 / f"recalibrated-{name}.safetensors")
    assert isinstance(model, Recalibrated)
    assert type(model.model).__name__ == inside
    assert str(model.fitted_on_).startswith("317 patients (181 events) of local.csv, 20")
    assert model.maps == ("horizon", "rank")
    curves = model.predict_survival_function(metabric[0].iloc[expected["rows"]], expected["times"])
    np.testing.assert_allclose(curves.values, expected["survival"][name], atol=1e-6)
    card = ModelCard.of(model)
    assert card.seen(model.fitted_on_.digest) == "recalibrated with"
    assert card.evaluation is not None


def test_the_wrapper_tells_which_model_which_maps_and_on_whom(cox: dcsurv.CoxPH, metabric: Any) -> None:
    X, y = metabric
    done = recalibrate(cox, X[600:900], y[600:900], maps=("rank",), name="hospital B")
    model = done.model
    assert model.model is cox
    assert model.display_name == "CoxPH, recalibrated"
    text = repr(model)
    assert "CoxPH" in text
    assert "maps=('rank',)" in text
    assert f"300 patients ({y['event'][600:900].sum()} events) of hospital B" in text
    assert repr(model.before_recalibration()) == repr(cox)
    assert model.training_summary_ is cox.training_summary_
    assert model.follow_up_ is cox.follow_up_
    assert model.time_unit == "days"
    assert {"C-td", "IBS", "DDC", "ICI", "O/E"} <= set(done.before["metric"])
    assert done.after is not None
    ranking = [table.set_index("metric").loc["C-td", "value"] for table in (done.before, done.after)]
    assert ranking[0] == pytest.approx(ranking[1], abs=0.02), "maps of five folds differ, but keep the ranking in each"


def test_refitting_refits_the_maps_alone_and_a_clone_keeps_the_model(cox: dcsurv.CoxPH, metabric: Any) -> None:
    X, y = metabric
    model = Recalibrated(cox, fitted_on="here").fit(X[600:900], y[600:900])
    first = model.predict_survival_function(X[900:920]).values
    copy = clone(model)
    assert copy.model is cox
    with pytest.raises(NotFittedError):
        copy.predict(X[:3])
    np.testing.assert_array_equal(copy.fit(X[600:900], y[600:900]).predict_survival_function(X[900:920]).values, first)
    copy.fit(X[900:1200], y[900:1200])
    assert not np.array_equal(copy.predict_survival_function(X[900:920]).values, first)
    np.testing.assert_array_equal(model.predict_survival_function(X[900:920]).values, first)
    with pytest.raises(NotFittedError):
        Recalibrated(dcsurv.CoxPH()).fit(X[:50], y[:50])
    with pytest.raises(ValueError, match="a fitted model of dcsurv is expected"):
        Recalibrated("model.safetensors").fit(X[:50], y[:50])


def test_the_name_of_the_patients_is_not_that_of_those_who_come_next(
    cox: dcsurv.CoxPH, metabric: Any, tmp_path: Path
) -> None:
    X, y = metabric
    first = recalibrate(cox, X[600:900], y[600:900], name="local.csv").model
    first.save(tmp_path / "model")
    loaded = dcsurv.load(tmp_path / "model")
    assert "of local.csv" in repr(loaded)
    for model in (clone(first), clone(loaded), loaded):
        assert "local.csv" not in repr(model.fit(X[900:1100], y[900:1100]))
        assert model.fitted_on_.name is None


def test_what_is_said_and_saved_is_what_was_fitted(cox: dcsurv.CoxPH, metabric: Any, tmp_path: Path) -> None:
    X, y = metabric
    model = Recalibrated(cox).fit(X[600:900], y[600:900])
    first = model.predict_survival_function(X[900:920]).values
    model.set_params(maps=("rank",))
    assert "maps=('horizon', 'rank')), fitted on 300 patients" in repr(model)
    assert repr(model).endswith("; maps changed since")
    with pytest.raises(ModelFileError, match=r"maps changed since the maps were fitted\. Fit them again"):
        model.save(tmp_path / "model")
    model.set_params(maps=("horizon", "rank"), model=dcsurv.DeepSurv())
    assert repr(model).startswith("Recalibrated(CoxPH(")
    assert repr(model).endswith("; model changed since")
    np.testing.assert_array_equal(model.predict_survival_function(X[900:920]).values, first)
    with pytest.raises(ModelFileError, match="model changed since"):
        model.save(tmp_path / "model")
    model.set_params(model=cox).save(tmp_path / "model")
    header, arrays = read(tmp_path / "model")
    document = {key: value for key, value in header.items() if key not in ("format", "kind")}
    with pytest.raises(ValueError, match=r"its maps are \('horizon', 'rank'\), but it says \('rank',\)"):
        Recalibrated.from_saved({**document, "maps": ["rank"]}, arrays)


def test_the_model_inside_keeps_its_parameters_and_its_fit(metabric: Any) -> None:
    X, y = metabric
    cox = dcsurv.CoxPH().fit(X[:600], y[:600])
    model = Recalibrated(cox).fit(X[600:900], y[600:900])
    first = model.predict_survival_function(X[900:920]).values
    assert set(model.get_params()) == {"model", "maps", "fitted_on"}
    with pytest.raises(ValueError, match="model__penalizer is a parameter of the model inside, which is fitted before"):
        clone(model).set_params(model__penalizer=5.0)
    assert cox.penalizer == dcsurv.CoxPH().penalizer
    cox.set_params(penalizer=5.0).fit(X[900:1200], y[900:1200])
    np.testing.assert_array_equal(model.predict_survival_function(X[900:920]).values, first)
    assert "penalizer" not in repr(model)


def test_the_same_bits_come_back_from_a_file_also_after_two_recalibrations(
    ensemble: CalibratedEnsemble, metabric: Any, tmp_path: Path
) -> None:
    X, y = metabric
    once = recalibrate(ensemble, X[600:800], y[600:800], name="first").model
    twice = recalibrate(once, X[800:1000], y[800:1000], maps=("rank",), name="second", digest="abc").model
    twice.save(tmp_path / "model.safetensors")
    again = dcsurv.load(tmp_path / "model.safetensors")
    assert [one.fitted_on_.name for one in again.recalibrations] == ["first", "second"]
    assert (
        again.fitted_on_
        == twice.fitted_on_
        == FittedOn(200, int(y["event"][800:1000].sum()), "second", "abc", twice.fitted_on_.date)
    )
    assert again.evaluation_ == json.loads(json.dumps(twice.evaluation_))
    assert isinstance(again.innermost, CalibratedEnsemble)
    expected = twice.predict_survival_function(X[1000:1050])
    np.testing.assert_array_equal(again.predict_survival_function(X[1000:1050]).values, expected.values)
    for a, b in zip(again.predict_band(X[1000:1010]), twice.predict_band(X[1000:1010]), strict=True):
        np.testing.assert_array_equal(a, b)
    header, _ = read(tmp_path / "model.safetensors")
    assert header["kind"] == header["model"]["kind"] == "Recalibrated"


def test_a_band_is_recalibrated_as_the_curve_is(ensemble: CalibratedEnsemble, metabric: Any) -> None:
    X, y = metabric
    model = recalibrate(ensemble, X[600:900], y[600:900]).model
    band = model.predict_band(X[900:930], [1000.0, 3000.0])
    np.testing.assert_array_equal(band.survival, model.predict_survival_function(X[900:930], [1000.0, 3000.0]).values)
    assert (band.lower <= band.survival).all()
    assert (band.survival <= band.upper).all()
    assert not np.array_equal(band.lower, ensemble.predict_band(X[900:930], [1000.0, 3000.0]).lower)
    assert model.has_band
    assert not recalibrate(dcsurv.CoxPH().fit(X[:300], y[:300]), X[300:600], y[300:600]).model.has_band


def test_a_damaged_wrapper_is_refused(cox: dcsurv.CoxPH, metabric: Any, tmp_path: Path) -> None:
    X, y = metabric
    recalibrate(cox, X[600:900], y[600:900]).model.save(tmp_path / "model")
    header, arrays = read(tmp_path / "model")
    for words, change in {
        "unknown kind": {"model": {**header["model"], "kind": "Magic"}},
        "must be a sequence": {"map": header["map"]["maps"][0]},
        "maps is": {"maps": ["magic"]},
    }.items():
        document = {key: value for key, value in {**header, **change}.items() if key not in ("format", "kind")}
        dcsurv.persistence.save(tmp_path / "bad", "Recalibrated", document, arrays)
        with pytest.raises(ModelFileError, match=words):
            dcsurv.load(tmp_path / "bad")


@pytest.mark.usefixtures("undrawn")
def test_the_report_speaks_of_this_recalibration(metabric: Any, tmp_path: Path) -> None:
    X, y = metabric[0][["age", "er_positive"]], metabric[1]
    cox = dcsurv.CoxPH(time_unit="days").fit(X[:600], y[:600])
    local = {"X_local": X[600:900], "y_local": y[600:900]}
    model = recalibrate(cox, **local, name="hospital B").model
    options: dict[str, Any] = {"n_bootstrap": 0, "X_train": X[:600], "y_train": y[:600]}
    dcsurv.write_report(tmp_path / "r.html", model, X[900:1100], y[900:1100], reference=cox, **options)
    page = (tmp_path / "r.html").read_text()
    assert "CoxPH, recalibrated" in page
    assert "hospital B" in page
    assert "Each member was trained" not in page
    assert "CoxPH was not" in page, "a reference that was not recalibrated is called so"
    numbers = dcsurv.write_report(
        tmp_path / "r.html", model, X[900:1100], y[900:1100], reference=recalibrate(cox, **local).model, **options
    ).numbers
    page = (tmp_path / "r.html").read_text()
    assert "CoxPH was not" not in page
    assert numbers["model"]["name"] == "CoxPH, recalibrated"


@pytest.mark.parametrize("name", [kind.name for kind in kinds() if kind.by_name and not kind.wraps])
def test_a_model_of_any_kind_that_is_fitted_again_leaves_its_recalibration_as_it_was(name: str, metabric: Any) -> None:
    X, y = metabric
    model = make_model(name).set_params(**kind_named(name).quick).fit(X[:120], y[:120])
    own = model.predict_survival_function(X[300:310]).values
    recalibrated = Recalibrated(model).fit(X[120:220], y[120:220])
    first = recalibrated.predict_survival_function(X[300:310]).values
    model.fit(X[220:340], y[220:340])
    assert not np.array_equal(model.predict_survival_function(X[300:310]).values, own)
    np.testing.assert_array_equal(recalibrated.predict_survival_function(X[300:310]).values, first)
