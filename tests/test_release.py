"""What a release says of itself, and what a plain install leaves out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import dcsurv

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# With every package of the extras out of reach: what plain users do works, what needs one names it.
WITHOUT_EXTRAS = """
import json, pathlib, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyarrow", "optuna", "distributed", "psycopg", "sqlalchemy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import dcsurv
from dcsurv.cli import app
from dcsurv.datasets import load_metabric
from typer.testing import CliRunner

X, y = load_metabric()
X, y = X[:200], y[:200]
X.assign(days=y["time"], died=y["event"].astype(int)).to_csv("patients.csv", index=False)
pathlib.Path("patients.parquet").write_bytes(b"PAR1 and more")
outcome = ["--time", "days", "--event", "died", "--unit", "days"]
ended = {}
for name, arguments in {
    "fit": ["fit", "patients.csv", *outcome, "--model", "coxph", "--evaluate", "none", "-o", "m.safetensors"],
    "predict": ["predict", "m.safetensors", "patients.csv", "--horizons", "5y", "-o", "p.csv"],
    "write": ["predict", "m.safetensors", "patients.csv", "--horizons", "5y", "-o", "p.parquet"],
    "read": ["check", "patients.parquet", *outcome],
    "tune": ["tune", "patients.csv", *outcome, "--model", "coxph", "--trials", "1", "-o", "settings.json"],
    "cluster": ["reproduce", "--cluster", "tcp://127.0.0.1:1", "-o", "results"],
}.items():
    done = CliRunner().invoke(app, arguments)
    ended[name] = [done.exit_code, " ".join(done.stderr.split())]
try:
    dcsurv.tune("coxph", X, y, n_trials=1)
except ImportError as error:
    ended["in Python"] = [2, str(error)]
print(json.dumps(ended))
"""


def test_what_is_rare_is_an_extra_and_its_error_names_it(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout)
    for name in ("fit", "predict"):
        code, text = ended[name]
        assert code == 0, text
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 201
    for name, extra in {"write": "parquet", "read": "parquet", "tune": "tune", "cluster": "cluster"}.items():
        assert extra in PROJECT["optional-dependencies"]
        code, text = ended[name]
        assert code == 2, text
        assert f'pip install "dcsurv[{extra}]"' in text
    assert ended["in Python"][1] in ended["tune"][1]
    assert not (tmp_path / "p.parquet").exists()


def test_every_supported_python_is_a_classifier_and_in_the_workflow() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert named == ["3.11", "3.12", "3.13"]
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    assert f"python: [{', '.join(map(json.dumps, named))}]" in workflow
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_one_version_everywhere() -> None:
    """`__version__` is the only place; what repeats it for others is compared."""
    assert "version" in PROJECT["dynamic"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.*)$", citation, flags=re.M)[1] == dcsurv.__version__
