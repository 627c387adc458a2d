"""Packages outside dcsurv that bring models or metrics of their own."""

from __future__ import annotations

import sys

import pytest

from dcsurv import _extensions


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package of one module that counts how often it is imported."""
    monkeypatch.setattr(_extensions, "_waiting", None)
    monkeypatch.syspath_prepend(tmp_path)
    names = []

    def make(name, source):
        (tmp_path / f"{name}.py").write_text(source)
        metadata = tmp_path / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[{_extensions.GROUP}]\n{name}-brings = {name}\n")
        names.append(name)

    yield make
    for name in names:
        sys.modules.pop(name, None)


def test_extensions_are_imported_once_and_may_look_things_up_themselves(install):
    install(
        "first_extension", "from dcsurv._extensions import load_extensions\nload_extensions()\nimport second_extension"
    )
    install("second_extension", "times = 1")
    _extensions.load_extensions()
    assert sys.modules["second_extension"].times == 1
    sys.modules["second_extension"].times = 2
    _extensions.load_extensions()
    assert sys.modules["second_extension"].times == 2


def test_an_extension_that_cannot_be_imported_is_named_every_time(install):
    install("broken_extension", "raise RuntimeError('no such device')")
    for _ in range(2):
        with pytest.raises(ImportError, match=r"'broken_extension-brings' of the package 'broken_extension'.*no such"):
            _extensions.load_extensions()
