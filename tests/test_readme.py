"""What the README shows is run, and its numbers are those of the committed results."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", TEXT, flags=re.S))
def test_python_blocks_run(block, tmp_path):
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "C-td" in done.stdout


def test_commands_exist():
    """`make demo` and `make test` are what set this up; the third command is run by test_reproduce."""
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, flags=re.S)
    commands = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    assert commands == ["make demo", "make test", "dcsurv reproduce --quick"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"demo", "test"} <= set(re.findall(r"^(\w+):", makefile, flags=re.M))


def test_the_demo_runs():
    done = subprocess.run([sys.executable, ROOT / "scripts" / "demo.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "DCS minus CoxPH" in done.stdout


def test_tables_are_those_of_the_committed_results():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "update_readme.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/paper.md"])
def test_links_lead_somewhere(page):
    path = ROOT / page
    prose = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)#]+)\)", prose):
        assert (path.parent / target).exists(), target
