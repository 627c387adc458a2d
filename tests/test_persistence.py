"""Model files: what comes back, what is refused, what is not in them."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from sklearn.preprocessing import StandardScaler

from dcsurv import persistence
from dcsurv.datasets import load
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
)
from dcsurv.persistence import ModelFileError
from dcsurv.preprocessing import Preprocessor

FIXTURES = Path(__file__).parent / "fixtures" / "format1"
KINDS = ["CoxPH", "DeepSurv", "CoxTime", "DRSA", "Kamran", "DCS", "CalibratedEnsemble"]
SHORT = {"max_epochs": 2, "random_state": 0}
GRID = {**SHORT, "n_nodes": 6, "encoder_size": 4, "decoder_size": 4}
MODELS = [
    CoxPH(time_unit="days"),
    SplineCox(strength=np.float64(1.5)),
    DeepSurv(**SHORT, layers=2, layer_size=4),
    CoxTime(**SHORT, layer_size=4),
    DRSA(**GRID),
    Kamran(**GRID),
    BoostedHazards(max_rounds=10, random_state=0, n_blocks=np.int64(2)),
    HazardForest(n_trees=10, random_state=0),
    DCS(**GRID, decoder_layers=2, bidirectional=True, skip=True, aggregation_layers=2),
    DCS(**{**GRID, "decoder_layers": 0, "recurrent_dropout": np.float64(0.1)}, convention="paper"),
    DCS(**{**GRID, "random_state": np.random.RandomState(0)}, preprocess=Preprocessor(ordinal=("sex",))),
    SplineAFT(distribution="log-normal", time_knots=np.int64(4)),
]


@pytest.fixture(scope="module")
def flchain() -> Any:
    X, y = load("flchain")
    order = np.random.default_rng(0).permutation(len(y))  # the file is sorted by age
    return X.iloc[order], y[order]


@pytest.fixture
def saved(flchain: Any, tmp_path: Path) -> Path:
    X, y = flchain
    path = tmp_path / "model.safetensors"
    DCS(**GRID).fit(X[:300], y[:300]).save(path)
    return path


# The loaded model does not know which levels were there, but too rare to be kept.
@pytest.mark.filterwarnings("ignore:levels that were not there in fit")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_the_same_bits_come_back(model: Any, flchain: Any, tmp_path: Path) -> None:
    X, y = flchain
    model.fit(X[:300], y[:300])
    path = tmp_path / "model.safetensors"
    model.save(path)
    loaded = persistence.load(path)
    assert type(loaded) is type(model)
    np.testing.assert_array_equal(loaded.predict(X[300:500]), model.predict(X[300:500]))
    ours, theirs = (m.predict_survival_function(X[300:500]) for m in (model, loaded))
    np.testing.assert_array_equal(ours.times, theirs.times)
    np.testing.assert_array_equal(ours.values, theirs.values)
    assert loaded.training_summary_ == json.loads(json.dumps(model.training_summary_))
    wrong = X[300:500].rename(columns={"age": "years"})
    with pytest.raises(ValueError, match="years"):
        loaded.predict(wrong)
    # Saving what was loaded gives the same file.
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_format_1_keep_loading(kind: str) -> None:
    expected = json.loads((FIXTURES / "expected.json").read_text())
    X, _ = load(expected["dataset"])
    header, _ = persistence.read(FIXTURES / f"{kind}.safetensors")
    assert header["format"] == 1
    model = persistence.load(FIXTURES / f"{kind}.safetensors")
    curves = model.predict_survival_function(X.iloc[expected["rows"]], expected["times"])
    np.testing.assert_allclose(curves.values, expected["survival"][kind], atol=1e-5)


def test_a_fresh_process_loads_without_lifelines_or_pickle(saved: Path) -> None:
    code = (
        "import sys; from dcsurv.persistence import load; model = load(sys.argv[1]); print(type(model).__name__);"
        "assert not {'lifelines', 'numba', 'matplotlib', 'optuna'} & set(sys.modules), 'imported too much'"
    )
    done = subprocess.run([sys.executable, "-c", code, str(saved)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "DCS"


def test_header_says_what_the_model_is(saved: Path) -> None:
    header, arrays = persistence.read(saved)
    assert header["kind"] == "DCS"
    assert header["features"]["names"][:2] == ["age", "sex"]
    assert header["features"]["types"][:2] == ["number", "category"]
    assert header["grid"]["size"] == len(arrays["grid.nodes"])
    assert header["training"]["patients"] == 300
    # Packages differ in whether their metadata name the build ("2.13.0+cpu") as the module itself does.
    assert header["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert {"parameters", "architecture", "preprocessing", "time_unit", "conventions"} <= header.keys()


@pytest.mark.parametrize("model", MODELS[:9], ids=lambda model: type(model).__name__)
def test_no_patient_rows_in_the_file(model: Any, flchain: Any, tmp_path: Path) -> None:
    """The file of a model fitted to five times as many patients holds no array with that many rows."""
    X, y = flchain
    n = 1500
    model.fit(X[:n], y[:n]).save(tmp_path / "model.safetensors")
    _, arrays = persistence.read(tmp_path / "model.safetensors")
    distinct_event_times = len(np.unique(y["time"][:n][y["event"][:n]]))
    for name, array in arrays.items():
        if name.startswith("trees."):
            continue  # as long as the trees are large; test_trees.py looks at what is in their leaves
        if name.startswith("baseline.") or name in ("times_", "cumulative_hazard_"):
            assert array.shape == (distinct_event_times,)
        else:
            assert max(array.shape, default=0) < 100, name


def rewrite(path: Path, change: Any, *, with_digest: bool = True) -> None:
    """Save a changed file again, as someone would who knows the format."""
    header, arrays = persistence.read(path)
    change(header, arrays)
    text = json.dumps(header, sort_keys=True)
    digest = persistence._digest(text, arrays) if with_digest else "0" * 64
    save_file(arrays, path, {"dcsurv": json.dumps({"header": text, "sha256": digest})})


def test_truncated_files_are_refused(saved: Path) -> None:
    data = saved.read_bytes()
    for size in [0, 4, 8, 100, len(data) // 2, len(data) - 1]:
        saved.write_bytes(data[:size])
        with pytest.raises(ModelFileError, match="not a model file or is incomplete"):
            persistence.load(saved)


def test_every_flipped_byte_is_noticed(saved: Path) -> None:
    data = saved.read_bytes()
    for position in np.linspace(0, len(data) - 1, 300).astype(int):
        changed = bytearray(data)
        changed[position] ^= 0x01
        saved.write_bytes(changed)
        with pytest.raises(ModelFileError):
            persistence.load(saved)


def test_foreign_files_are_refused_and_not_executed(tmp_path: Path) -> None:
    import pickle

    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "executed"),)

    pickled, torched = tmp_path / "pickle.safetensors", tmp_path / "torch.safetensors"
    pickled.write_bytes(pickle.dumps(Bomb()))
    torch.save({"model": Bomb()}, torched)
    huge = tmp_path / "huge.safetensors"
    huge.write_bytes(struct.pack("<Q", 2**62) + b"{}")
    text = tmp_path / "text.safetensors"
    text.write_text("age,sex\n1,2\n")
    for path in (pickled, torched, huge, text):
        with pytest.raises(ModelFileError, match="not a model file"):
            persistence.load(path)
    assert not (tmp_path / "executed").exists()
    other = tmp_path / "other.safetensors"
    save_file({"weight": np.ones(3)}, other)
    with pytest.raises(ModelFileError, match="not one that dcsurv wrote"):
        persistence.load(other)
    save_file({"weight": np.ones(3)}, other, {"dcsurv": "[1, 2"})
    with pytest.raises(ModelFileError, match="header that cannot be read"):
        persistence.load(other)


def test_edited_files_are_refused(saved: Path) -> None:
    rewrite(saved, lambda header, arrays: header["parameters"].update(lam=2.0), with_digest=False)
    with pytest.raises(ModelFileError, match="changed after it was saved"):
        persistence.load(saved)


def test_a_newer_format_asks_for_an_update(saved: Path) -> None:
    rewrite(saved, lambda header, arrays: header.update(format=persistence.FORMAT + 1))
    with pytest.raises(ModelFileError, match="Update dcsurv"):
        persistence.load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header, arrays: header.update(kind="os.system"), "unknown kind"),
        (lambda header, arrays: header["parameters"].update(shell="rm"), "shell"),
        (lambda header, arrays: header["parameters"].update(decoder_size=5), "size mismatch"),
        (lambda header, arrays: header["parameters"].update(decoder_size=10**5), "size mismatch"),
        (lambda header, arrays: header["parameters"].update(decoder_size=10**9), "overflow"),
        (lambda header, arrays: header["parameters"].update(encoder_layers=10**9), "layers are announced"),
        (lambda header, arrays: header["parameters"].update(sigma=0), "sigma"),
        (lambda header, arrays: header.pop("preprocessing"), "preprocessing"),
        (lambda header, arrays: arrays.pop("grid.nodes"), "grid.nodes"),
    ],
    ids=[
        "kind",
        "parameter",
        "size",
        "large size",
        "huge size",
        "huge depth",
        "range",
        "missing part",
        "missing array",
    ],
)
def test_inconsistent_files_are_refused_even_with_a_valid_digest(saved: Path, change: Any, message: str) -> None:
    rewrite(saved, change)
    with pytest.raises(ModelFileError, match=message):
        persistence.load(saved)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        persistence.load(tmp_path / "nowhere.safetensors")


def test_a_failed_write_leaves_the_old_file_alone(saved: Path, monkeypatch: pytest.MonkeyPatch, flchain: Any) -> None:
    before = saved.read_bytes()
    model = persistence.load(saved)

    def full_disk(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        model.save(saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_files_get_the_usual_permissions(saved: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    assert saved.stat().st_mode == plain.stat().st_mode


def test_a_foreign_transformer_cannot_be_saved(flchain: Any, tmp_path: Path) -> None:
    X, y = flchain
    numbers = X[["age", "kappa", "lambda"]]
    model = CoxPH(preprocess=StandardScaler()).fit(numbers[:300], y[:300])
    with pytest.raises(ModelFileError, match="StandardScaler cannot be saved without pickle"):
        model.save(tmp_path / "model.safetensors")
    assert os.listdir(tmp_path) == []


def test_a_file_can_be_copied_and_renamed(saved: Path, tmp_path: Path) -> None:
    shutil.copy(saved, tmp_path / "copy.bin")
    assert persistence.load(tmp_path / "copy.bin").get_params() == persistence.load(saved).get_params()


def test_a_card_travels_with_the_model(flchain: Any, tmp_path: Path) -> None:
    X, y = flchain
    model = CoxPH().fit(X[:300], y[:300])
    model.save(tmp_path / "plain.safetensors")
    assert "card" not in persistence.read(tmp_path / "plain.safetensors")[0]
    assert not hasattr(persistence.load(tmp_path / "plain.safetensors"), "card_")
    model.card_ = {"outcome": {"time": "days"}, "words": ["größer"]}
    model.save(tmp_path / "card.safetensors")
    loaded = persistence.load(tmp_path / "card.safetensors")
    assert loaded.card_ == model.card_
    np.testing.assert_array_equal(loaded.predict(X[300:400]), model.predict(X[300:400]))
    model.card_ = {"value": float("nan")}
    with pytest.raises(ModelFileError, match="cannot be saved"):
        model.save(tmp_path / "card.safetensors")
    assert persistence.load(tmp_path / "card.safetensors").card_["words"] == ["größer"]
    assert not hasattr(model.fit(X[:300], y[:300]), "card_")  # another fit, another card
