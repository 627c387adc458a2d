"""Forged and damaged files: some hundred mutants of every kind, and those that were once let in, by name."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dcsurv
from dcsurv import CoxPH
from dcsurv.cohort import ModelCard
from dcsurv.datasets import load_metabric
from dcsurv.durations import Horizon
from dcsurv.persistence import ModelFileError, file_bytes, read

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import mutants


@pytest.fixture(scope="module")
def files() -> list[mutants.Original]:
    return mutants.originals()


def test_every_registered_kind_is_among_the_files(files: list[mutants.Original]) -> None:
    from dcsurv.kinds import kinds

    there = {json.loads(one.text)["kind"] for one in files}
    assert {kind.model.__name__ for kind in kinds() if kind.model.__module__.startswith("dcsurv.")} <= there
    mutants.refuse_unsound(files)


def test_mutants_are_refused_in_words_or_predict_probabilities(files: list[mutants.Original], tmp_path: Path) -> None:
    path = tmp_path / "mutant.safetensors"
    found = []
    for k in range(135):
        one, change, data = mutants.mutant(files, 1, k)
        path.write_bytes(data)
        found.append((k, one.name, change, *mutants.fate(path, one.patients, shown=k % 27 == 0)))
    assert [one for one in found if one[3] in mutants.BAD] == []
    assert {one[3] for one in found} >= {mutants.REFUSED, mutants.PREDICTED}


@pytest.fixture(scope="module")
def cox(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, Any]]:
    X, y = load_metabric()
    model = CoxPH(time_unit="days").fit(X[:200], y[:200])
    card = ModelCard.of(model)
    card.attach(model)
    path = tmp_path_factory.mktemp("cox") / "model.safetensors"
    model.save(path)
    header, arrays = read(path)
    return path.with_name("forged.safetensors"), json.dumps(header), arrays


@pytest.mark.parametrize("number", ["0", "-1", "true", "1.0", '"1"', "null"])
def test_formats_that_never_were_are_refused(cox: Any, number: str) -> None:
    path, text, arrays = cox
    path.write_bytes(file_bytes(text.replace('"format": 1', f'"format": {number}'), arrays))
    with pytest.raises(ModelFileError, match=r"never was|cannot be read"):
        dcsurv.load(path)


@pytest.mark.parametrize("time", [-5.0, 0.0, 1e300, "5", None])
def test_horizons_are_positive_times(cox: Any, time: Any) -> None:
    path, text, arrays = cox
    header = json.loads(text)
    header["card"]["horizons"][0]["time"] = time
    path.write_bytes(file_bytes(json.dumps(header), arrays))
    with pytest.raises(ModelFileError, match=r"horizons\[0\]\.time"):
        ModelCard.of(dcsurv.load(path))


def test_nan_in_a_header_is_refused(cox: Any) -> None:
    path, text, arrays = cox
    header = json.loads(text)
    header["card"]["horizons"][0]["time"] = float("nan")
    path.write_bytes(file_bytes(json.dumps(header), arrays))
    with pytest.raises(ModelFileError, match="cannot be read"):
        dcsurv.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: arrays.update(coef_=arrays["coef_"][:-1]), "center_ has the shape"),
        (lambda arrays: arrays.update(coef_=arrays["coef_"] * np.nan), "not finite"),
        (lambda arrays: arrays.update(times_=arrays["times_"][::-1].copy()), "do not ascend"),
        (lambda arrays: arrays.update(cumulative_hazard_=-arrays["cumulative_hazard_"]), "does not ascend"),
        (lambda arrays: arrays.update(coef_=arrays["coef_"].astype(np.float32)), "float32"),
        (lambda arrays: arrays.pop("times_"), "times_ is missing"),
        (
            lambda arrays: arrays.update({name: arrays[name][:3] for name in arrays if len(arrays[name]) == 9}),
            "3 columns",
        ),
    ],
    ids=["length", "nan", "order", "negative", "type", "missing", "columns"],
)
def test_arrays_are_checked_where_they_are_read(cox: Any, change: Any, message: str) -> None:
    path, text, arrays = cox
    forged = dict(arrays)
    change(forged)
    path.write_bytes(file_bytes(text, forged))
    with pytest.raises(ModelFileError, match=message):
        dcsurv.load(path)


def test_a_loaded_model_whose_curves_cannot_be_blames_its_file(tmp_path: Path) -> None:
    X, y = load_metabric()
    dcsurv.DeepSurv(max_epochs=1, layer_size=4, random_state=0).fit(X[:100], y[:100]).save(tmp_path / "model")
    header, arrays = read(tmp_path / "model")
    huge = {name: np.full_like(one, 3e38) if name.endswith("weight") else one for name, one in arrays.items()}
    huge["network.layers.4.weight"][:, ::2] *= -1  # infinities of both signs meet: NaN on every processor
    (tmp_path / "model").write_bytes(file_bytes(json.dumps(header), huge))
    model = dcsurv.load(tmp_path / "model")
    with pytest.raises(ModelFileError, match="predicts what cannot be"):
        model.predict_survival_function(X[:5])
    with pytest.raises(ModelFileError, match="Copy the file again"):
        model.predict(X[:5])


def test_a_horizon_of_a_card_survives(cox: Any) -> None:
    path, text, arrays = cox
    path.write_bytes(file_bytes(text, arrays))
    assert isinstance(ModelCard.of(dcsurv.load(path)).horizons[0], Horizon)
