"""The files of a folder of models may be anything: what is no model is told, and stands in nobody's way."""

from __future__ import annotations

import logging
import os
import stat
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dcsurv
from dcsurv.datasets import simulate
from dcsurv.service import ModelStore
from dcsurv.service.wording import words_beside


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Two models, as the bytes of their files."""
    path = tmp_path_factory.mktemp("versions") / "one.safetensors"
    out = []
    for seed in (0, 1):
        cohort = simulate("independent", 100, random_state=seed)
        dcsurv.CoxPH().fit(cohort.X, cohort.y).save(path)
        out.append(path.read_bytes())
    return out


@pytest.fixture
def folder(tmp_path: Path, versions: list[bytes]) -> Path:
    (tmp_path / "heart.safetensors").write_bytes(versions[0])
    return tmp_path


def opened(folder: Path) -> ModelStore:
    store = ModelStore(folder)
    store.open()
    return store


def answering(store: ModelStore) -> list[tuple[str, str]]:
    return [(one.name, one.version) for one in store.all()]


def problem(store: ModelStore, name: str) -> str:
    return next(str(one["problem"]) for one in store.problems() if one["name"] == name)


# --- what is no plain file --------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipes_devices_and_folders_are_not_read(folder: Path) -> None:
    os.mkfifo(folder / "pipe.safetensors")
    (folder / "endless.safetensors").symlink_to("/dev/zero")
    (folder / "folder.safetensors").mkdir()
    (folder / "linked.safetensors").symlink_to(folder / "heart.safetensors")
    store = ModelStore(folder)
    looking = threading.Thread(target=store.open, daemon=True)  # it would wait for ever
    looking.start()
    looking.join(60)
    assert not looking.is_alive()
    assert answering(store) == [("heart", "1"), ("linked", "1")]
    for name in ("pipe", "endless", "folder"):
        assert problem(store, name) == "it is no plain file, but a folder, a pipe or a device."


def test_a_file_that_no_model_can_be_is_not_read(folder: Path) -> None:
    with (folder / "huge.safetensors").open("wb") as file:
        file.truncate(2_000_000_001)  # without content: it takes no place
    assert "larger than 2 GB" in problem(opened(folder), "huge")


def test_a_look_that_hangs_does_not_hold_up_the_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(folder)
    begun, enough = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        enough.wait()

    monkeypatch.setattr(store, "look", hang)
    store.watch(0)
    begun.wait()
    ending = threading.Thread(target=store.close, kwargs={"seconds": 0}, daemon=True)
    ending.start()
    ending.join(60)
    assert not ending.is_alive()
    enough.set()


# --- files that are renamed, and refusals that pass -------------------------------------------------------------


def test_a_file_that_is_renamed_goes_on_answering(folder: Path) -> None:
    store = opened(folder)
    before = store.find()
    (folder / "heart.safetensors").rename(folder / "heart@1.safetensors")
    for _ in range(4):
        store.look()
        assert answering(store) == [("heart", "1")]
        assert store.problems() == []
    assert store.find() is before  # not even read again


def test_a_second_file_of_a_name_answers_when_the_first_is_gone(folder: Path, versions: list[bytes]) -> None:
    first, second = folder / "heart.safetensors", folder / "heart@1.safetensors"
    store = opened(folder)
    digest = store.find().digest
    second.write_bytes(versions[1])
    for _ in range(3):
        store.look()
    assert problem(store, "heart") == "heart.safetensors has the same name and version."
    assert store.counts.loads["refused"] == 1  # once, not at every look
    first.unlink()
    store.look()  # the first may be on its way
    assert store.find().digest == digest
    store.look()
    assert (store.find().digest != digest, store.problems()) == (True, [])


def test_a_torn_file_stands_in_nobodys_way(tmp_path: Path, versions: list[bytes]) -> None:
    (tmp_path / "heart.safetensors").write_bytes(versions[0][:-9])
    (tmp_path / "heart@1.safetensors").write_bytes(versions[1])
    assert answering(opened(tmp_path)) == [("heart", "1")]


def test_a_file_that_may_be_read_later_is_read_then(
    folder: Path, versions: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after chmod; whoever runs the tests may be allowed everything, so that the refusal is made."""
    new, refused = folder / "new.safetensors", [True]
    new.write_bytes(versions[1])
    plain = os.open

    def refuse(path: Any, *given: Any, **more: Any) -> int:
        if refused[0] and Path(os.fsdecode(path)) == new:
            raise PermissionError(13, "Permission denied", str(path))
        return plain(path, *given, **more)

    monkeypatch.setattr(os, "open", refuse)
    store = opened(folder)
    assert problem(store, "new") == "new.safetensors cannot be read (Permission denied)."
    refused[0] = False
    store.look()
    assert answering(store) == [("heart", "1"), ("new", "1")]


def test_a_change_of_rights_is_noticed(folder: Path) -> None:
    (folder / "torn.safetensors").write_bytes(b"torn")
    store = opened(folder)
    for mode in (0o600, 0o640):
        then = os.stat(folder / "torn.safetensors").st_ctime_ns
        while os.stat(folder / "torn.safetensors").st_ctime_ns == then:  # clocks of files are coarse
            (folder / "torn.safetensors").chmod(mode)
        store.look()
    assert stat.S_IMODE(os.stat(folder / "torn.safetensors").st_mode) == 0o640
    assert store.counts.loads["refused"] == 3


# --- names and texts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"br\xe9ast", b"two\nlines@\x1b[31m2"], ids=["no UTF-8", "control"])
def test_a_name_that_cannot_be_shown_is_refused_in_words(
    folder: Path, versions: list[bytes], name: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = os.path.join(os.fsencode(folder), name + b".safetensors")
    try:
        Path(os.fsdecode(path)).write_bytes(versions[1])
    except OSError:
        return  # a system that has no such names
    with caplog.at_level(logging.INFO, "dcsurv.service"):
        store = opened(folder)
    assert answering(store) == [("heart", "1")]
    (found,) = store.problems()
    assert found["problem"] == "the name of the file holds what cannot be shown. Give it another name."
    assert msgspec.json.encode(store.problems())
    for text in (*caplog.messages, found["name"], found["version"]):
        assert text.isprintable()


def test_what_is_logged_of_a_file_is_one_line(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The text of an error may hold what stands in the file."""
    (folder / "heart.words.json").write_text('{"features": {"a\\n2026 all is well\\u001b[2J": {}}}', "utf-8")
    store = ModelStore(folder)
    with caplog.at_level(logging.INFO, "dcsurv.service"):
        store.look()
    assert "all is well" in caplog.text
    assert all(text.isprintable() for text in caplog.messages)


def test_no_folder_is_named_in_a_problem(folder: Path) -> None:
    (folder / "torn.safetensors").write_bytes(b"torn")
    (folder / "folder.safetensors").mkdir()
    for one in opened(folder).problems():
        assert "/" not in one["problem"]


def test_names_are_read_in_one_way(tmp_path: Path) -> None:
    """An @ without a version is part of the name, also where words are looked for."""
    (tmp_path / "heart.words.json").write_text("{}")
    assert words_beside(tmp_path / "heart@.safetensors") is None
    assert words_beside(tmp_path / "heart@2.safetensors") == tmp_path / "heart.words.json"
