"""A built wheel, installed where there is nothing else, does the main job."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def _what_a_plain_install_needs(packages: Path) -> set[str]:
    """Return the names of what pip would install with the wheel, as its metadata and theirs say it; no extras."""
    (wheel,) = metadata.distributions(name="dcsurv", path=[str(packages)])
    found: set[str] = set()
    asked = [(Requirement(line), "") for line in wheel.requires or ()]
    while asked:
        requirement, extra = asked.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        needs = [Requirement(line) for line in metadata.distribution(name).requires or ()]
        asked += [(need, part) for part in requirement.extras for need in needs]
        if name not in found:
            found.add(name)
            asked += [(need, "") for need in needs]
    return found


def _link(package: metadata.Distribution, packages: Path) -> None:
    """Put an installed package into another environment: links take no time, unlike gigabytes of copies."""
    for part in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
        if not (packages / part).exists():  # several packages may share a folder, as those of CUDA do
            (packages / part).symlink_to(str(package.locate_file(part)))


def test_a_wheel_in_an_empty_environment_runs_the_demo(tmp_path: Path) -> None:
    if os.environ.get("DCSURV_CI") != "1":
        pytest.skip("building and installing takes a while: set DCSURV_CI=1 to run it")
    constraints = str(ROOT / "constraints.txt")
    # The wheel is built from a copy, so that nothing of this folder (an old build/, say) slips in.
    source = tmp_path / "source"
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in files:
        if (ROOT / name).is_file() and name.startswith(("src/", "pyproject.toml", "README.md", "LICENSE")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "--quiet"]
    # Also what builds the wheel is held to the constraints.
    environment = {**os.environ, "PIP_CONSTRAINT": constraints, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.pop("PYTHONPATH", None)
    subprocess.run([*pip, "wheel", "--no-deps", "-w", tmp_path / "dist", source], env=environment, check=True)
    (wheel,) = (tmp_path / "dist").glob("dcsurv-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    install = ["--python", tmp_path / "venv", "install", "--no-deps", wheel]
    subprocess.run([*pip, *install], env=environment, check=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    for name in _what_a_plain_install_needs(packages):
        _link(metadata.distribution(name), packages)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    demo = [tmp_path / "venv" / "bin" / "dcsurv", "demo", "--quick"]  # that it runs here, not how well it predicts
    done = subprocess.run(demo, cwd=elsewhere, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "CalibratedEnsemble" in done.stdout
    made = {path.name for path in (elsewhere / "dcsurv-demo").iterdir()}
    assert {"model.safetensors", "predictions.csv", "report.html"} <= made
    tune = ["tune", "dcsurv-demo/metabric.csv", "--time", "days", "--event", "died", "-o", "settings.json"]
    told = subprocess.run(
        [tmp_path / "venv" / "bin" / "dcsurv", *tune], cwd=elsewhere, env=environment, capture_output=True, text=True
    )
    assert told.returncode == 2, told.stderr
    assert 'pip install "dcsurv[tune]"' in told.stderr, "a plain install leaves it out, and says so"
