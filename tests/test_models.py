"""The estimators on real data: what they predict, how they behave, what they equal."""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dcsurv
from dcsurv import SurvivalCurves, make_outcome, train_test_indices
from dcsurv.datasets import load
from dcsurv.metrics import concordance_index_td, cumulative_dynamic_auc, ddc
from dcsurv.models import (
    DCS,
    DRSA,
    BoostedHazards,
    CoxPH,
    CoxTime,
    DeepSurv,
    HazardForest,
    Kamran,
    SplineAFT,
    SplineCox,
    curve_model,
    paper_settings,
)
from dcsurv.models.baseline import MAX_NODES, thinned
from dcsurv.models.coxtime import _Controls
from dcsurv.networks import MLP, EncoderDecoder
from dcsurv.preprocessing import Preprocessor

SHORT = {"max_epochs": 8, "learning_rate": 0.01, "random_state": 0}
GRID = {**SHORT, "n_nodes": 10, "encoder_size": 8, "decoder_size": 8}
MODELS = {
    "CoxPH": CoxPH(),
    "SplineCox": SplineCox(),
    "SplineAFT": SplineAFT(),
    "DeepSurv": DeepSurv(**SHORT, layer_size=8, batch_size=64),
    "CoxTime": CoxTime(**SHORT, layer_size=8, batch_size=64),
    "DRSA": DRSA(**GRID),
    "Kamran": Kamran(**GRID),
    "DCS": DCS(**GRID),
    "BoostedHazards": BoostedHazards(max_rounds=30, random_state=0),
    "HazardForest": HazardForest(n_trees=20, random_state=0),
}
RANDOM = [name for name in MODELS if name not in ("CoxPH", "SplineCox", "SplineAFT")]
NETWORKS = [name for name in RANDOM if not name.startswith(("Boosted", "Hazard"))]
every_model = pytest.mark.parametrize("name", MODELS)
with_chance = pytest.mark.parametrize("name", RANDOM)


@pytest.fixture(scope="module")
def metabric() -> Any:
    return load("metabric")


@pytest.fixture(scope="module")
def flchain() -> Any:
    X, y = load("flchain")
    order = np.random.default_rng(0).permutation(len(y))  # the file is sorted by age
    return X.iloc[order], y[order]


@pytest.fixture(scope="module")
def table(metabric: Any) -> Any:
    """METABRIC as plain numbers."""
    return Preprocessor().fit_transform(metabric[0]).astype(np.float64)


@pytest.fixture(scope="module")
def fitted(metabric: Any) -> dict[str, Any]:
    X, y = metabric
    return {name: clone(model).fit(X[:800], y[:800]) for name, model in MODELS.items()}


# --- predictions ----------------------------------------------------------------------------------------------


@every_model
def test_curves_scores_and_hazards_agree(name: str, fitted: dict[str, Any], metabric: Any) -> None:
    (X, y), model = metabric, fitted[name]
    curves = model.predict_survival_function(X[800:900])
    assert isinstance(curves, SurvivalCurves)
    assert len(curves) == 100
    assert curves.to_frame().index.equals(X[800:900].index)
    assert (np.diff(curves.values, axis=1) <= 0).all()
    assert (curves.values >= 0).all()
    assert (curves.values <= 1).all()
    np.testing.assert_allclose(model.predict(X[800:900]), -curves.rmst(), rtol=1e-6)
    assert model.score(X[800:900], y[800:900]) == concordance_index_td(y[800:900], curves)
    times = np.array([100.0, 1000.0, 2000.0])
    some = model.predict_survival_function(X[800:900], times)
    np.testing.assert_array_equal(some.times, times)
    np.testing.assert_allclose(some.values, curves(times), atol=1e-7)
    hazard = model.predict_cumulative_hazard_function(X[800:900], times)
    np.testing.assert_allclose(np.exp(-hazard), some.values, atol=1e-7)


@every_model
def test_patients_differ_and_are_ranked_better_than_by_guessing(
    name: str, fitted: dict[str, Any], metabric: Any
) -> None:
    X, y = metabric
    assert np.ptp(fitted[name].predict(X[800:])) > 0
    assert fitted[name].score(X[800:], y[800:]) > 0.55


@every_model
def test_asking_beyond_the_last_node_warns(name: str, fitted: dict[str, Any], metabric: Any) -> None:
    X, _ = metabric
    with pytest.warns(UserWarning, match="held constant"):
        curves = fitted[name].predict_survival_function(X[800:810], [1000.0, 1e6])
    last = fitted[name].predict_survival_function(X[800:810]).values[:, -1]
    np.testing.assert_allclose(curves.values[:, 1], last, atol=1e-7)


@every_model
def test_prediction_in_chunks_is_the_same(
    name: str, fitted: dict[str, Any], metabric: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (X, _), model = metabric, fitted[name]
    whole = model.predict_survival_function(X[800:850]).values
    monkeypatch.setattr(curve_model, "_CHUNK_NUMBERS", 7 * model.numbers_per_row())
    sizes = []
    survival = type(model).survival_at_nodes
    monkeypatch.setattr(type(model), "survival_at_nodes", lambda self, X: sizes.append(len(X)) or survival(self, X))
    np.testing.assert_allclose(model.predict_survival_function(X[800:850]).values, whole, atol=1e-6)
    assert sizes == [7] * 7 + [1]
    assert model.predict_survival_function(X[800:850], [500.0]).values.shape == (50, 1)


@pytest.mark.parametrize("spacing", ["linear", "log", "quantile"])
def test_the_papers_rounded_grids_give_ascending_nodes(spacing: Any, metabric: Any) -> None:
    X, y = metabric
    model = DCS(**{**GRID, "n_nodes": 350, "max_epochs": 1, "decoder_layers": 0}, spacing=spacing, convention="paper")
    curves = model.fit(X[:300], y[:300]).predict_survival_function(X[300:310])
    assert model.grid_.size == 350
    assert (np.diff(curves.times) > 0).all()
    assert len(curves.times) == len(np.unique(model.grid_.nodes))


# --- reproducibility ------------------------------------------------------------------------------------------


@with_chance
def test_same_random_state_same_bits(name: str, fitted: dict[str, Any], metabric: Any) -> None:
    X, y = metabric
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002  the global state is what is tested
    again = clone(MODELS[name]).fit(X[:800], y[:800])
    np.testing.assert_array_equal(again.predict(X[800:]), fitted[name].predict(X[800:]))
    other = clone(MODELS[name]).set_params(random_state=1).fit(X[:800], y[:800])
    assert (other.predict(X[800:]) != again.predict(X[800:])).any()
    drawn = torch.rand(1), np.random.rand()  # noqa: NPY002
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002
    assert drawn == (torch.rand(1), np.random.rand()), "fitting used or changed the global random state"  # noqa: NPY002


@every_model
def test_pickle_and_clone(name: str, fitted: dict[str, Any], metabric: Any) -> None:
    X, _ = metabric
    copy = pickle.loads(pickle.dumps(fitted[name]))
    np.testing.assert_array_equal(copy.predict(X[800:]), fitted[name].predict(X[800:]))
    assert clone(fitted[name]).get_params() == fitted[name].get_params()
    assert not hasattr(clone(fitted[name]), "training_summary_")


def test_ctrl_c_leaves_a_usable_model(metabric: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    X, y = metabric
    loss, calls = DCS.loss, 0

    def interrupted(self: DCS, *args: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 50:
            os.kill(os.getpid(), signal.SIGINT)
        return loss(self, *args)

    monkeypatch.setattr(DCS, "loss", interrupted)
    with pytest.warns(UserWarning, match="interrupted"):
        model = DCS(**{**GRID, "max_epochs": 1000}).fit(X[:800], y[:800])
    assert model.training_summary_["stopped_by"] == "interrupt"
    assert 1 <= model.training_summary_["best_epoch"] < 20
    assert model.score(X[800:], y[800:]) > 0.5
    model.save(tmp_path / "model.safetensors")


# --- scikit-learn ---------------------------------------------------------------------------------------------


def test_pipeline_grid_search_and_cross_validation(table: Any, metabric: Any) -> None:
    X, y = table[:400], metabric[1][:400]
    pipeline = make_pipeline(StandardScaler(), DCS(**GRID, preprocess=None))
    scores = cross_val_score(pipeline, X, y, cv=3)
    assert scores.shape == (3,)
    assert ((scores > 0.4) & (scores < 1)).all()
    search = GridSearchCV(pipeline, {"dcs__lam": [0.5, 1.0], "dcs__spacing": ["log", "quantile"]}, cv=2).fit(X, y)
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(search.predict(X), search.best_estimator_.predict(X))
    pickle.loads(pickle.dumps(search)).predict(X)


@every_model
def test_a_table_with_missing_values_and_categories_goes_straight_in(name: str, flchain: Any) -> None:
    X, y = flchain
    assert X["creatinine"].isna().any()
    assert isinstance(X["flc_group"].dtype, pd.CategoricalDtype)
    model = clone(MODELS[name]).fit(X[:600], y[:600])
    assert model.score(X[600:1200], y[600:1200]) > 0.6
    assert list(model.feature_names_in_) == list(X.columns)


@every_model
def test_columns_are_found_by_name(name: str, fitted: dict[str, Any], metabric: Any) -> None:
    X, _ = metabric
    expected = fitted[name].predict(X[800:830])
    np.testing.assert_array_equal(fitted[name].predict(X[X.columns[::-1]][800:830]), expected)
    with pytest.warns(UserWarning, match="1 column that the model was not fitted with and does not use: 'ward'"):
        np.testing.assert_array_equal(fitted[name].predict(X.assign(ward=3)[800:830]), expected)


def test_numbers_of_numpy_are_numbers(metabric: Any, tmp_path: Path) -> None:
    X, y = metabric
    numpys = {"n_nodes": np.int64(6), "max_epochs": np.int32(1), "dropout": np.float32(0.1), "lam": np.float64(0.5)}
    model = DCS(**{**GRID, **numpys}).fit(X[:200], y[:200])
    model.save(tmp_path / "model.safetensors")
    assert dcsurv.load(tmp_path / "model.safetensors").n_nodes == 6
    with pytest.raises(ValueError, match=r"n_nodes is 6\.0, but None or a whole number of at least 1 is expected"):
        DCS(n_nodes=6.0).fit(X[:200], y[:200])
    with pytest.raises(ValueError, match="dropout is 1, but a number of at least 0 and below 1 is expected"):
        DCS(dropout=1).fit(X[:200], y[:200])


@every_model
def test_column_names_are_checked(name: str, fitted: dict[str, Any], metabric: Any) -> None:
    X, _ = metabric
    with pytest.raises(ValueError, match=r"no column 'MKI67'.*'KI67'"):
        fitted[name].predict(X.rename(columns={X.columns[0]: "KI67"}))
    with pytest.raises(ValueError, match="features"), pytest.warns(UserWarning, match="feature names"):
        fitted[name].predict(X.to_numpy()[:, :4])


@every_model
def test_arrays_and_outcomes_in_other_forms(name: str, table: Any, metabric: Any) -> None:
    table, y = table[:200], metabric[1]
    model = clone(MODELS[name])
    expected = model.fit(table, y[:200]).predict(table)
    as_frame = pd.DataFrame({"time": y["time"][:200], "event": y["event"][:200].astype(int)})
    as_tuple = (y["time"][:200], y["event"][:200])
    for outcome in (as_frame, as_tuple):
        np.testing.assert_array_equal(clone(model).fit(table, outcome).predict(table), expected)


def test_polars_in_pandas_out(metabric: Any) -> None:
    X, y = metabric
    model = CoxPH().fit(X[:800], y[:800])
    outcome = pl.DataFrame({"months": y["time"], "dead": y["event"]})
    other = pl.from_pandas(X.astype(dict.fromkeys(X.select_dtypes("category"), "str")))
    same = CoxPH().fit(other[:800], outcome[:800])
    assert same.feature_names_in_.tolist() == X.columns.tolist()
    curves = same.predict_survival_function(other[800:])
    np.testing.assert_array_equal(curves.values, model.predict_survival_function(X[800:]).values)
    assert same.score(other[800:], outcome[800:]) == model.score(X[800:], y[800:])
    with pytest.raises(ValueError, match="time_unit is 5, but a text such as 'days' is expected"):
        CoxPH(time_unit=5).fit(X, y)
    with pytest.raises(ValueError, match=r"a LazyFrame arrived, .* Pass what its collect\(\) returns"):
        CoxPH().fit(other.lazy(), y)


@pytest.mark.parametrize("preprocess", [None, StandardScaler(), "auto"], ids=["none", "transformer", "auto"])
def test_preprocessing_options(preprocess: Any, table: Any, metabric: Any) -> None:
    table, y = 3 * table + 1, metabric[1]
    model = CoxPH(preprocess=preprocess).fit(table[:800], y[:800])
    # Without a penalty worth the name, Cox's model does not depend on the scale of the columns.
    np.testing.assert_allclose(
        model.predict(table[800:]), CoxPH().fit(table[:800], y[:800]).predict(table[800:]), rtol=2e-3
    )


def test_none_as_preprocessing_refuses_missing_values(flchain: Any) -> None:
    X, y = flchain
    with pytest.raises(ValueError, match="NaN"):
        CoxPH(preprocess=None).fit(X[["age", "creatinine"]], y)
    imputing_nothing = CoxPH(preprocess=StandardScaler())
    with pytest.raises(ValueError, match="rows of X hold NaN or infinity after preprocessing with StandardScaler"):
        imputing_nothing.fit(X[["age", "creatinine"]], y)


# --- errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (DCS(batch_size=0), "batch_size is 0, but a whole number of at least 1"),
        (DCS(max_epochs=2.5), "max_epochs is 2.5"),
        (DCS(dropout=1.0), "dropout is 1.0, but a number of at least 0 and below 1"),
        (DCS(sigma=0.0), "sigma"),
        (DCS(spacing="cubic"), "spacing"),
        (DCS(convention="authors"), "convention"),
        (DCS(decoder_layers=0, skip=True), "decoder_layers is 0"),
        (DRSA(decoder_layers=0), "decoder_layers"),
        (DRSA(alpha=1.5), "alpha"),
        (DeepSurv(learning_rate=0), "learning_rate"),
        (DeepSurv(validation_fraction="tenth"), "validation_fraction"),
        (CoxPH(penalizer=-1), "penalizer"),
        (CoxPH(preprocess="none"), "preprocess is 'none'"),
        (SplineCox(knots=-1), "knots is -1, but None or a whole number of at least 0"),
        (SplineCox(penalty=0.0), "penalty is 0.0, but None or a number above 0"),
        (SplineCox(bend_penalty=-1), "bend_penalty"),
        (SplineCox(strength=0), "strength"),
        (BoostedHazards(folds=1), "folds is 1, but a whole number of at least 2"),
        (BoostedHazards(learning_rate=0), "learning_rate"),
        (BoostedHazards(subsample=1.5), "subsample is 1.5, but None or a number above 0 and at most 1 is expected"),
        (HazardForest(n_blocks=0), "n_blocks"),
        (HazardForest(min_leaf=0), "min_leaf"),
        (HazardForest(prior=0), "prior"),
    ],
)
def test_parameters_out_of_range_are_named(model: Any, message: str, metabric: Any) -> None:
    X, y = metabric
    with pytest.raises(ValueError, match=message):
        model.fit(X[:50], y[:50])


@every_model
def test_outcomes_that_cannot_be_learnt_from(name: str, metabric: Any) -> None:
    X, y = metabric
    with pytest.raises(ValueError, match="0 observed events"):
        clone(MODELS[name]).fit(X[:50], make_outcome(y["time"][:50], np.zeros(50)))
    with pytest.raises(ValueError, match="rows"):
        clone(MODELS[name]).fit(X[:50], y[:49])
    with pytest.raises(ValueError, match="zero for every patient with an event"):
        clone(MODELS[name]).fit(X[:50], y[:50], sample_weight=~y["event"][:50])


@every_model
def test_tiny_and_awkward_cohorts_train(name: str) -> None:
    """Five patients, one event, a time of 0, a constant column, ties."""
    X = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [3.0, 1.0], [4.0, 1.0]])
    y = make_outcome([0.0, 2.0, 2.0, 3.0, 3.0], [0, 1, 0, 0, 0])
    curves = clone(MODELS[name]).fit(X, y).predict_survival_function(X)
    assert np.isfinite(curves.values).all()


# --- what they equal ------------------------------------------------------------------------------------------


def test_coxph_equals_lifelines_on_support() -> None:
    """The split and its log-likelihood are those of the paper's notebook."""
    from lifelines import CoxPHFitter

    X, y = load("support")
    train, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=40)
    model = CoxPH(preprocess=Preprocessor(least_patients=1)).fit(X.iloc[train], y[train])
    assert (int(y["event"][train].sum()), len(train)) == (4834, 7098)
    assert model.log_likelihood_ == pytest.approx(-39848.065, abs=5e-3)
    frame = pd.DataFrame(model.preprocessor_.transform(X.iloc[train]).astype(float)).add_prefix("x")
    frame = frame.assign(time=y["time"][train], event=y["event"][train])
    theirs = CoxPHFitter(penalizer=1e-4).fit(frame, "time", "event")
    rows = pd.DataFrame(model.preprocessor_.transform(X.iloc[test[:50]]).astype(float)).add_prefix("x")
    ours = model.predict_survival_function(X.iloc[test[:50]])
    expected = theirs.predict_survival_function(rows, times=ours.times).to_numpy().T
    np.testing.assert_allclose(ours.values, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("dataset", "c_td", "cdauc", "divergence"),
    [
        ("metabric", 0.656594, 0.699691, 0.007362),
        ("support", 0.595991, 0.617770, 0.003777),
        ("flchain", 0.809021, 0.814202, 0.001801),
    ],
)
def test_coxph_scores_as_in_the_paper(dataset: str, c_td: float, cdauc: float, divergence: float) -> None:
    X, y = load(dataset)
    train, test = train_test_indices(y, random_state=40)
    curves = paper_settings("CoxPH", dataset).fit(X.iloc[train], y[train]).predict_survival_function(X.iloc[test])
    paper: Any = {"convention": "paper", "y_train": y[train]}
    assert concordance_index_td(y[test], curves, **paper) == pytest.approx(c_td, abs=2e-6)
    assert cumulative_dynamic_auc(y[test], curves, **paper).mean == pytest.approx(cdauc, abs=2e-6)
    assert ddc(y[test], curves, **paper) == pytest.approx(divergence, abs=2e-6)


def test_coxph_weights_remove_rows_and_do_not_depend_on_their_unit(table: Any, metabric: Any) -> None:
    table, y = table[:300], metabric[1][:300]
    weight = np.random.default_rng(0).integers(0, 3, 300)
    model = CoxPH(preprocess=None, penalizer=0.0)
    weighted = clone(model).fit(table, y, sample_weight=weight)
    removed = clone(model).fit(table[weight > 0], y[weight > 0], sample_weight=weight[weight > 0])
    scaled = clone(model).fit(table, y, sample_weight=0.5 * weight)
    for other in (removed, scaled):
        np.testing.assert_allclose(other.predict(table), weighted.predict(table), rtol=1e-6)
    assert not np.allclose(clone(model).fit(table, y).coef_, weighted.coef_, rtol=0.01)


def test_coxph_says_what_to_do_when_columns_determine_each_other() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    y = make_outcome(rng.exponential(size=60), np.ones(60))
    with pytest.raises(ValueError, match="raise penalizer"):
        CoxPH(penalizer=0.0, preprocess=None).fit(np.column_stack([x, 2 * x]), y)


def test_deepsurv_baseline_and_curves_equal_pycox(fitted: dict[str, Any], metabric: Any) -> None:
    from pycox.models import CoxPH as PycoxCoxPH

    (X, y), model = metabric, fitted["DeepSurv"]
    theirs = PycoxCoxPH(_Column(model.network_), device="cpu")
    inputs = model.preprocessor_.transform(X[:800])
    theirs.compute_baseline_hazards(inputs, (y["time"][:800], y["event"][:800].astype(float)))
    increments = np.diff(model.cumulative_hazard_, prepend=0.0)
    np.testing.assert_allclose(increments, theirs.baseline_hazards_.loc[model.times_], rtol=1e-5, atol=1e-6)
    frame = theirs.predict_surv_df(model.preprocessor_.transform(X[800:900])).loc[model.times_]
    np.testing.assert_allclose(model.predict_survival_function(X[800:900]).values, frame.T, atol=1e-6)


def test_coxtime_baseline_and_curves_equal_pycox(fitted: dict[str, Any], metabric: Any) -> None:
    from pycox.models import CoxTime as PycoxCoxTime

    (X, y), model = metabric, fitted["CoxTime"]

    class WithTime(torch.nn.Module):
        """Our network behind pycox's signature; its times are already scaled."""

        def __init__(self) -> None:
            super().__init__()
            self.network = model.network_

        def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
            return self.network(torch.cat([x, time], dim=1)).unsqueeze(1)

    # Among equal times events come first: pycox leaves out of the risk set what is sorted before the event.
    order = np.lexsort((~y["event"][:800], y["time"][:800]))
    inputs = model.preprocessor_.transform(X[:800])[order]
    scaled = model._scaled(y["time"][:800][order])
    theirs = PycoxCoxTime(WithTime(), device="cpu")
    theirs.compute_baseline_hazards(inputs, (scaled, y["event"][:800][order].astype("float32")))
    at = model._scaled(model.times_)
    np.testing.assert_allclose(model.increments_, theirs.baseline_hazards_.loc[at], rtol=1e-5, atol=1e-6)
    frame = theirs.predict_surv_df(model.preprocessor_.transform(X[800:850])).loc[at]
    np.testing.assert_allclose(model.predict_survival_function(X[800:850]).values, frame.T, atol=1e-5)


class _Column(torch.nn.Module):
    """A network whose output is a column, as pycox expects."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(x).unsqueeze(1)


def test_coxtime_controls_are_at_risk_in_the_same_part_and_follow_the_weights() -> None:
    rng = np.random.default_rng(0)
    time = rng.integers(1, 15, 60).astype(float)
    parts = (np.arange(0, 45), np.arange(45, 60))
    weight = torch.as_tensor(rng.integers(0, 3, 60), dtype=torch.float32)
    draw = _Controls(time, parts, weight, torch.device("cpu"))
    torch.manual_seed(0)
    rows = torch.arange(60)
    counts = np.zeros((60, 60))
    for _ in range(4000):
        counts[rows, draw(rows)] += 1
    for case in range(60):
        part = parts[0] if case < 45 else parts[1]
        at_risk = np.zeros(60)
        at_risk[part] = (time[part] >= time[case]) * weight.numpy()[part]
        if at_risk.sum() == 0:
            continue  # nobody to draw: some member of the part
        np.testing.assert_allclose(counts[case] / 4000, at_risk / at_risk.sum(), atol=0.05)
        assert (counts[case][at_risk == 0] == 0).all()


def test_sample_weight_moves_a_model_towards_the_heavy_patients(metabric: Any) -> None:
    X, y = metabric
    early = y["time"][:800] < np.median(y["time"][:800])
    for name in RANDOM:
        model = clone(MODELS[name])
        light = model.fit(X[:800], y[:800], sample_weight=np.where(early, 1, 10)).predict(X[800:]).mean()
        heavy = clone(model).fit(X[:800], y[:800], sample_weight=np.where(early, 10, 1)).predict(X[800:]).mean()
        assert heavy > light, name


# --- networks -------------------------------------------------------------------------------------------------


def test_mlp_layers_and_initialisation() -> None:
    network = MLP(5, 2, 7, dropout=0.3, output_bias=False)
    assert [type(layer).__name__ for layer in network.layers] == [
        *["Linear", "ReLU", "BatchNorm1d", "Dropout"] * 2,
        "Linear",
    ]
    assert network.layers[-1].bias is None
    assert (network.layers[0].bias == 0).all()
    assert network(torch.randn(4, 5)).shape == (4,)


@pytest.mark.parametrize("step_input", [False, True])
@pytest.mark.parametrize("encoder_layers", [0, 2])
@pytest.mark.parametrize("aggregation_layers", [1, 2])
def test_skip_is_the_concatenation_of_encoding_and_decoder_output(
    step_input: bool, encoder_layers: int, aggregation_layers: int
) -> None:
    torch.manual_seed(0)
    network = EncoderDecoder(
        5, 6, encoder_layers=encoder_layers, encoder_size=3, decoder_size=4, bidirectional=True, skip=True,
        aggregation_layers=aggregation_layers, aggregation_size=2, step_input=step_input,
    ).eval()  # fmt: skip
    x = torch.randn(7, 5)
    steps = torch.arange(1, 7).view(6, 1, 1).expand(6, 7, 1) / 6
    rows = torch.cat([x.expand(6, 7, 5), steps], dim=2) if step_input else x.expand(6, 7, 5)
    encoding = network.encoder(rows)
    joined = torch.cat([network.decoder(encoding, 6), encoding], dim=2)
    expected = network.aggregation(joined)[:, :, 0].T
    torch.testing.assert_close(network(x), expected, rtol=1e-5, atol=1e-6)


def test_without_decoder_the_last_layer_has_an_output_per_node() -> None:
    network = EncoderDecoder(5, 6, encoder_layers=1, encoder_size=3, decoder_layers=0, aggregation_layers=2)
    assert network(torch.randn(4, 5)).shape == (4, 6)
    assert network.aggregation[-1].out_features == 6


def test_encoder_decoder_starts_glorot_uniform_with_zero_biases() -> None:
    torch.manual_seed(0)
    network = EncoderDecoder(50, 6, encoder_layers=1, encoder_size=80, decoder_layers=0)
    weight, bound = network.encoder[0].weight.detach(), math.sqrt(6 / (50 + 80))
    assert weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert (network.encoder[0].bias == 0).all()


# --- the paper's settings, and bounds -------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", ["support", "metabric", "flchain"])
@pytest.mark.parametrize(
    "name", ["CoxPH", "DeepSurv", "CoxTime", "DRSA", "Kamran", "DCS-linear", "DCS-log", "DCS-quant"]
)
def test_paper_settings_are_those_of_table_s1(name: str, dataset: str) -> None:
    tables = json.loads((Path(__file__).parent / "reference" / "paper_tables.json").read_text())
    printed = tables["best_hyperparameters"][dataset].get(name, {})
    model = paper_settings(name, dataset, **({} if name == "CoxPH" else {"random_state": 3}))
    ours = model.get_params()
    hidden = ("layers", "layer_size") if name in ("DeepSurv", "CoxTime") else ("encoder_layers", "encoder_size")
    names = {
        "encoder_layers": hidden[0],
        "encoder_nodes": hidden[1],
        "decoder_nodes": "decoder_size",
        "aggregation_nodes": "aggregation_size",
        "output_nodes": "n_nodes",
    }
    for key, value in printed.items():
        assert ours[names.get(key, key)] == value, key
    if name != "CoxPH":
        assert (ours["batch_size"], ours["max_epochs"], ours["patience"]) == (50, 100, 10)
        assert (ours["dropout"], ours["random_state"]) == (0.2, 3)
    if "n_nodes" in ours:
        assert ours["convention"] == "paper"
    if name.startswith("DCS"):
        assert ours["spacing"].startswith(name[4:])


def test_paper_settings_refuses_unknown_names() -> None:
    with pytest.raises(ValueError, match="DCS-quant"):
        paper_settings("DCS", "support")
    with pytest.raises(ValueError, match="metabric"):
        paper_settings("DCS-quant", "gbsg")


def test_cox_curves_have_a_bounded_number_of_nodes() -> None:
    n = MAX_NODES + 1000
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    y = make_outcome(rng.exponential(np.exp(-X[:, 0])), np.ones(n))
    kept = thinned(n)
    assert (len(kept), kept[0], kept[-1]) == (MAX_NODES, 0, n - 1)
    assert (np.diff(kept) > 0).all()
    full_time = np.sort(y["time"])
    for model in (
        CoxPH(),
        BoostedHazards(max_rounds=1, random_state=0),
        DeepSurv(max_epochs=1, random_state=0),
        CoxTime(max_epochs=1, random_state=0),
    ):
        curves = model.fit(X, y).predict_survival_function(X[:5])
        np.testing.assert_array_equal(curves.times, full_time[kept])
    # CoxTime's increments still count every event since the node before.
    at_risk = y["time"] >= model.times_[700]
    deaths = model.increments_[700] * model._risk(model.prepare(X[at_risk]), model.times_[[700]]).sum()
    assert deaths == pytest.approx(kept[700] - kept[699], rel=1e-6)


@pytest.mark.parametrize("split", [2, 4])
def test_coxph_converges_where_long_steps_overshoot(split: int) -> None:
    """Extreme values of kappa and lambda: with its default step, lifelines ends far from the optimum here."""
    X, y = load("flchain")
    train, test = train_test_indices(y, random_state=split)
    model = CoxPH(preprocess=Preprocessor(least_patients=1)).fit(X.iloc[train], y[train])
    assert np.abs(model.coef_).max() < 2
    assert model.score(X.iloc[test], y[test]) > 0.77
