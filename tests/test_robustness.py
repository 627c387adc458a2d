"""What users do to models without meaning harm: odd weights, threads, settings of torch, refits, identifiers."""

from __future__ import annotations

import threading

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

import dcsurv
from dcsurv import (
    DCS,
    DRSA,
    BoostedHazards,
    CalibratedEnsemble,
    CoxPH,
    CoxTime,
    DeepSurv,
    HazardForest,
    Kamran,
)
from dcsurv.datasets import load_metabric
from dcsurv.losses import ranking_kernel
from dcsurv.persistence import ModelFileError

SMALL = {"max_epochs": 2, "random_state": 0}
MODELS = [
    CoxPH(),
    DeepSurv(**SMALL),
    CoxTime(**SMALL),
    DRSA(n_nodes=8, decoder_size=8, **SMALL),
    Kamran(n_nodes=8, decoder_size=8, **SMALL),
    DCS(n_nodes=8, decoder_layers=0, **SMALL),
    BoostedHazards(max_rounds=5, random_state=0),
    HazardForest(n_trees=10, random_state=0),
]
every_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)


@pytest.fixture(scope="module")
def data():
    X, y = load_metabric()
    return X[:300], y[:300]


def small_dcs(**changes):
    return DCS(**{"n_nodes": 8, "decoder_size": 8, "max_epochs": 2, "random_state": 0, **changes})


@every_model
@pytest.mark.parametrize("scale", [1 / 300, 7.0])
def test_only_the_ratios_of_weights_matter(model, scale, data):
    X, y = data
    ones, scaled = (model.fit(X, y, np.full(len(y), w)).predict(X) for w in (1.0, scale))
    np.testing.assert_allclose(scaled, ones, rtol=1e-4)


def test_threads_get_the_same_bits(data):
    X, y = data
    alone = small_dcs().fit(X, y).predict(X)
    found = {}
    threads = [
        threading.Thread(target=lambda k=k: found.update({k: small_dcs().fit(X, y).predict(X)})) for k in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for values in found.values():
        np.testing.assert_array_equal(values, alone)
    assert len(found) == 3


def test_settings_of_torch_do_not_matter(data):
    X, y = data
    expected = {kind: kind(**SMALL).fit(X, y).predict(X) for kind in (DCS, DeepSurv, CoxTime)}
    torch.set_default_dtype(torch.float64)
    try:
        for kind, values in expected.items():
            with torch.no_grad():
                np.testing.assert_array_equal(kind(**SMALL).fit(X, y).predict(X), values)
            with torch.inference_mode():
                np.testing.assert_array_equal(kind(**SMALL).fit(X, y).predict(X), values)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clip_norm": -1.0}, "clip_norm is -1.0"),
        ({"clip_norm": "a"}, "clip_norm is 'a'"),
        ({"device": "gpu"}, "device is 'gpu', but 'cpu', 'cuda' or 'mps'"),
        ({"sigma": 0.001}, "sigma is 0.001"),
    ],
)
def test_bad_settings_are_refused_in_words(changes, words, data):
    with pytest.raises(ValueError, match=words):
        small_dcs(**changes).fit(*data)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_said_and_a_failed_refit_leaves_no_mixture(data):
    X, y = data
    model = small_dcs().fit(X, y)
    with pytest.raises(ValueError, match="this machine has 'cpu' only"):
        model.set_params(device="cuda").fit(X, y)
    model.set_params(device="cpu")
    with pytest.raises(ValueError, match="0 observed events"):
        model.fit(X, (y["time"], np.zeros(len(y))))
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("model", [DCS(), CoxPH(), CalibratedEnsemble()], ids=lambda model: type(model).__name__)
def test_an_unfitted_model_says_so(model, data):
    X, _ = data
    with pytest.raises(NotFittedError):
        model.predict_survival_function(X)


def test_settings_changed_after_the_fit_are_not_saved(data, tmp_path):
    model = small_dcs().fit(*data).set_params(decoder_size=64)
    with pytest.raises(ModelFileError, match="decoder_size changed since the model was fitted"):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())
    model.set_params(decoder_size=8, verbose=True).save(tmp_path / "model")
    np.testing.assert_array_equal(dcsurv.load(tmp_path / "model").predict(data[0]), model.predict(data[0]))


def test_parameters_set_after_the_fit_do_not_change_predictions(data):
    X, y = data
    model = small_dcs().fit(X, y)
    before = model.predict(X)
    np.testing.assert_array_equal(model.set_params(preprocess=None, decoder_size=64).predict(X), before)


def test_any_seed_of_numpy_will_do(data, tmp_path):
    X, y = data
    by_int, by_numpy = (small_dcs(random_state=seed).fit(X, y) for seed in (7, np.int64(7)))
    np.testing.assert_array_equal(by_int.predict(X), by_numpy.predict(X))
    by_numpy.save(tmp_path / "model")
    assert dcsurv.load(tmp_path / "model").random_state == 7
    first, second = (small_dcs(random_state=np.random.default_rng(3)).fit(X, y).predict(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_names_of_patients_are_refused(data):
    X, y = data
    named = X.assign(name=[f"Mrs Smith {i}" for i in range(len(X))])
    with pytest.raises(ValueError, match="'name' has 300 different values in 300 rows, which looks like an identifier"):
        small_dcs().fit(named, y)
    some_levels = X.assign(ward=pd.Categorical(np.arange(len(X)) % 30))
    small_dcs().fit(some_levels, y)


def test_pairs_that_do_not_count_cannot_overflow():
    survival = torch.tensor([[1.0, 0.999], [1e-6, 1e-7]], requires_grad=True)
    value, pairs = ranking_kernel(survival, torch.tensor([1, 0]), torch.tensor([1, 1]), sigma=0.01)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(survival.grad).all()
    assert pairs == 1


def test_kamran_is_validated_on_the_objective_that_it_is_trained_on(data, monkeypatch):
    """Its plain sums weigh pairs more in a larger batch, so validation batches have the size of the trained ones."""
    from dcsurv.training import loop

    seen = []
    deal = loop._deal
    monkeypatch.setattr(loop, "_deal", lambda rows, size: (seen.append(size), deal(rows, size))[1])
    Kamran(n_nodes=8, decoder_size=8, batch_size=50, **SMALL).fit(*data)
    assert set(seen) == {50}
    seen.clear()
    small_dcs(batch_size=50).fit(*data)
    assert set(seen) == {50, loop.VALIDATION_BATCH}
