"""The owner's words lie beside a model, and are read again with it."""

from __future__ import annotations

import json

import pytest

import dcsurv
from dcsurv.datasets import simulate
from dcsurv.messages import InputError
from dcsurv.service import ModelStore
from dcsurv.service.wording import words_beside


@pytest.fixture
def model(tmp_path):
    cohort = simulate("independent", 100)
    path = tmp_path / "heart@2.safetensors"
    dcsurv.CoxPH().fit(cohort.X, cohort.y).save(path)
    return path


def said(path, **words):
    path.write_text(json.dumps(words), encoding="utf-8")


def test_words_of_a_version_come_before_those_of_the_name(model, tmp_path):
    assert words_beside(model) is None
    said(tmp_path / "heart.words.json", title="Heart")
    assert words_beside(model) == tmp_path / "heart.words.json"
    said(tmp_path / "heart@2.words.json", title="Heart, anew")
    assert words_beside(model) == tmp_path / "heart@2.words.json"
    assert words_beside(tmp_path / "heart.safetensors") == tmp_path / "heart.words.json"


def test_new_words_are_read_without_a_new_model(model, tmp_path):
    store = ModelStore(tmp_path)
    store.open()
    first = store.find()
    assert first.card["title"] is None
    store.look()
    assert store.find() is first
    said(tmp_path / "heart.words.json", title="Heart failure")
    store.look()
    assert store.find().card["title"] == "Heart failure"
    assert store.find().digest == first.digest


def test_words_that_cannot_be_used_leave_the_model_as_it_was(model, tmp_path):
    store = ModelStore(tmp_path)
    store.open()
    first = store.find()
    said(tmp_path / "heart.words.json", features={"aeg": {"label": "Age"}})
    store.look()
    assert store.find() is first
    (problem,) = store.problems()
    assert "'aeg' is no feature of the model" in problem["problem"]
    with pytest.raises(InputError, match="'aeg' is no feature of the model"):
        ModelStore(model).open()


def test_words_of_the_command_stand_for_all_models_of_a_folder(model, tmp_path):
    said(tmp_path / "heart.words.json", title="Heart")
    words = {"title": "All", "features": {"only_of_another_model": {"label": "x"}}}
    store = ModelStore(tmp_path, words=words)
    store.open()
    assert store.find().card["title"] == "All"
    with pytest.raises(InputError, match="only_of_another_model"):
        ModelStore(model, words=words).open()
