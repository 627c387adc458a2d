"""Packages outside dcsurv that bring models or metrics of their own."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

from dcsurv import _extensions
from dcsurv.cli import app
from dcsurv.metrics import Metric
from dcsurv.metrics.catalogue import MetricError


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


@pytest.mark.parametrize("source", ["raise RuntimeError('no such device.')", "import sys; sys.exit(3)", "1 +"])
def test_a_command_names_the_extension_that_is_broken(install, source):
    install("broken_extension", source)
    done = CliRunner().invoke(app, ["models"])
    assert done.exit_code == 1
    said = " ".join(done.output.split())
    assert said.startswith("Error: the extension 'broken_extension-brings' of the package 'broken_extension' could not")
    assert "Repair or uninstall that package." in said
    assert "unexpected" not in said


def test_a_metric_that_fails_names_its_extension(install):
    install("odd_extension", "def prepare(setting): return {}['weights']")
    _extensions.load_extensions()
    prepare = sys.modules["odd_extension"].prepare
    metric = Metric("Odd", "error", "lower", "Odd.", "none", prepare)
    with (
        pytest.raises(
            MetricError, match=r"'Odd' from the extension 'odd_extension-brings' of the package 'odd_ext.*Key"
        ),
        metric.blamed(),
    ):
        metric.prepare(None)
