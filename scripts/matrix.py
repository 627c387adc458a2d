"""Run the tests on every Python that is found here and that dcsurv says it works with; `make matrix` calls it.

Each has an environment of its own, ``.venv-3.12`` say, with the versions of constraints.txt. What came of it goes to
``docs/results/matrix``: numbers of tests, versions, the kind of machine. A Python that is not found is named as such.
``python scripts/matrix.py 3.13`` runs one and keeps what is known of the others.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "matrix"
PACKAGES = ("torch", "numpy", "scipy", "pandas", "scikit-learn", "lifelines", "numba", "matplotlib")


def supported() -> list[str]:
    """Return the versions of Python that the classifiers name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))


def interpreter(version: str) -> Path | None:
    """Return a Python of a version: on the path, or among those of pyenv. A shim that leads nowhere is none."""
    on_path = shutil.which(f"python{version}")
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    ours = sorted(root.glob(f"versions/{version}.*/bin/python{version}"))
    for candidate in (*([Path(on_path)] if on_path else []), *reversed(ours)):
        code = "import sys; print(sys.version_info[:2])"
        said = subprocess.run([candidate, "-c", code], capture_output=True, text=True).stdout
        if said.strip() == str(tuple(map(int, version.split(".")))):
            return candidate
    return None


def run(version: str, python: Path) -> dict[str, Any]:
    """Make the environment, run the tests in it, and return what came of them."""
    venv = f".venv-{version}"
    subprocess.run(["make", f"{venv}/.development", f"VENV={venv}", f"PYTHON={python}"], cwd=ROOT, check=True)
    report = ROOT / venv / "tests.xml"
    report.unlink(missing_ok=True)
    tests = ["make", "pytest", f"VENV={venv}", f"PYTEST_OPTIONS=--junit-xml={report}"]
    subprocess.run(tests, cwd=ROOT, check=False, env=os.environ | {"DCSURV_CI": "1"})
    suite = ElementTree.parse(report).getroot()[0]
    count = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    code = (
        "import json, platform; from importlib.metadata import version;"
        f"print(json.dumps([platform.python_version(), {{name: version(name) for name in {PACKAGES}}}]))"
    )
    said = subprocess.run([ROOT / venv / "bin" / "python", "-c", code], capture_output=True, text=True, check=True)
    exact, versions = json.loads(said.stdout)
    expected = sum("xfail" in (skip.get("type") or "") for skip in suite.iter("skipped"))
    failed = count["failures"] + count["errors"]
    return {
        "python": exact,
        "system": f"{platform.system()} {platform.machine()}",
        "passed": count["tests"] - failed - count["skipped"],
        "failed": failed,
        "skipped": count["skipped"] - expected,
        "expected to fail": expected,
        "versions": versions,
    }


def page(results: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [
        "# The tests on every supported Python",
        "",
        "Made by `make matrix`: all tests on every Python that is found, each in an environment of its own with the",
        "versions of `constraints.txt`.",
        "",
        "| Python | system | passed | failed | skipped | expected to fail |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for version, found in results.items():
        if found is None:
            lines.append(f"| {version} | not found on this machine | – | – | – | – |")
            continue
        cells = [found[name] for name in ("python", "system", "passed", "failed", "skipped", "expected to fail")]
        lines.append("| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells) + " |")
    shown = [f"Python {v}: " + ", ".join(f"{n} {x}" for n, x in r["versions"].items()) for v, r in results.items() if r]
    return "\n".join([*lines, "", *(f"- {one}" for one in shown), ""])


def main() -> None:
    path = RESULTS / "results.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    chosen = sys.argv[1:] or supported()
    for version in chosen:
        python = interpreter(version)
        known[version] = None if python is None else run(version, python)
    results = {version: known[version] for version in supported() if version in known}
    RESULTS.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "README.md").write_text(page(results), encoding="utf-8")
    print(page(results))
    failed = [version for version in chosen if results[version] is not None and results[version]["failed"]]
    if failed:
        raise SystemExit(f"Tests failed on Python {', '.join(failed)}.")


if __name__ == "__main__":
    main()
