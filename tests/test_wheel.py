"""A built wheel, installed where there is nothing else, does the main job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_a_wheel_in_an_empty_environment_runs_the_demo(tmp_path: Path) -> None:
    if os.environ.get("DCSURV_CI") != "1":
        pytest.skip("building and installing takes minutes: set DCSURV_CI=1 to run it")
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
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    # Also what builds the wheel is held to the constraints.
    environment = {**os.environ, "PIP_CONSTRAINT": constraints, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.pop("PYTHONPATH", None)
    pip = [python, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", tmp_path / "dist", source], env=environment, check=True)
    (wheel,) = (tmp_path / "dist").glob("dcsurv-*.whl")
    # Modules are compiled when they are imported; compiling all of them takes longer than everything else here.
    subprocess.run([*pip, "install", "--no-compile", "-c", constraints, wheel], env=environment, check=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [tmp_path / "venv" / "bin" / "dcsurv", "demo"], cwd=elsewhere, env=environment, capture_output=True, text=True
    )
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
