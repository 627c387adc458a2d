"""A griffe extension: our docstrings, written for any reader, as the Markdown that the site wants.

They use a few reStructuredText roles (:func:, :class:, :math:), math directives and plain tables; a Returns
section may hold a sentence only.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

_PAGES = Path(__file__).parents[1] / "docs" / "api"
_ROLE = re.compile(r":(func|class|meth|mod|attr|data):`~?([^`]+)`")
_MATH = re.compile(r":math:`([^`]+)`")
_TABLE = re.compile(r"(?m)^(=+ +=[= ]*\n(?:.*\n)*?=+ +=[= ]*\n(?:.*\n)*?=+ +=[= ]*)$")
_PROSE_RETURNS = re.compile(r"(?ms)^Returns\n-------\n((?:(?!^\w+\n-{3,}$).)*)")


def documented() -> dict[str, str]:
    """Return what the reference shows: short name -> full name."""
    names: dict[str, str] = {}
    for page in sorted(_PAGES.glob("*.md")):
        for full in re.findall(r"(?m)^::: (\S+)", page.read_text(encoding="utf-8")):
            names[full.rpartition(".")[2]] = full
    return names


class SiteDocstrings(griffe.Extension):
    """Rewrite every docstring before it is parsed."""

    def __init__(self) -> None:
        self.known = documented()

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = self.rewritten(obj.docstring.value)

    def rewritten(self, text: str) -> str:
        text = _ROLE.sub(self._reference, text)
        text = _MATH.sub(lambda m: f"${m[1]}$", text)
        text = re.sub(r"(?m)^( *)\.\. math:: (.+)$", lambda m: f"{m[1]}$$\n{m[1]}{m[2]}\n{m[1]}$$", text)
        text = _TABLE.sub(lambda m: f"```text\n{m[1]}\n```", text)
        text = re.sub(r"(?m)^ *::\n", "", text)
        text = re.sub(r"\\\n +", " ", text)  # a list of parameters that runs over two lines
        return _PROSE_RETURNS.sub(self._returns, text)

    def _reference(self, match: re.Match[str]) -> str:
        name = match[2]
        full = self.known.get(name.rpartition(".")[2])
        return f"[`{name}`][{full}]" if full else f"`{name}`"

    @staticmethod
    def _returns(match: re.Match[str]) -> str:
        """Give a sentence without a name the place where a description goes."""
        body = match[1].rstrip("\n")
        if re.search(r"(?m)^ +\S", body):  # names with descriptions below them
            return re.sub(r"(?m)^(\w+)$", r"\1 :", match[0])
        lines = "\n".join(f"    {line}" if line else "" for line in body.splitlines())
        return f"Returns\n-------\n:\n{lines}\n\n"
