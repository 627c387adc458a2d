"""The README is one screen: what it is, two commands, one picture, one table. Its blocks are run by test_docs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_two_commands_come_first():
    first = re.findall(r"```sh\n(.*?)```", TEXT, flags=re.S)[0]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"demo", "test", "docs"} <= set(re.findall(r"^(\w+):", makefile, flags=re.M))


def test_one_screen():
    outside = re.sub(r"<!-- (\w+) -->\n.*?<!-- /\1 -->", "", TEXT, flags=re.S)
    assert len(outside.splitlines()) <= 70


def test_one_picture_which_is_light():
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", TEXT)
    assert len(pictures) == 1
    assert (ROOT / pictures[0]).stat().st_size < 100_000


def test_one_table_of_measured_results():
    tables = re.findall(r"<!-- (\w+) -->\n(.*?)<!-- /\1 -->", TEXT, flags=re.S)
    assert len(tables) == 1
    assert "Made by `" in tables[0][1]  # the command that made it
