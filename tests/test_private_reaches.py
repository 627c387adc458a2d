"""Private names stay in their room, and those of other packages with them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "dcsurv"
# Where the public interface of another package does not reach, one named place uses what it must.
ALLOWED = {
    "experiments/processes.py": "import joblib.externals.loky",  # it raises the errors of its own copy of loky
    "networks/_lstm_kernels.py": "import numba.core",  # vector instructions are emitted through its code generator
    "experiments/tuning/study.py": "._storage",  # attributes of a trial that another process runs
}
# Names with an underscore that are public by the word of those who define them.
PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_exit"}
# Rooms of other packages that are private, or vendored copies of a third one.
# Typer's documentation tells to derive from typer.core.TyperGroup.
FOREIGN = ("joblib.externals", "sklearn.utils._", "typer.main", "numba.core", "click")


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0].removesuffix(".py")


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__")) and name not in PUBLIC


def defined_in(tree: ast.AST) -> set[str]:
    """Return the private names that a file defines: functions, classes, attributes, parameters."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return {name for name in found if is_private(name)}


def reaches(path: Path, own: set[str]) -> list[str]:
    """Return where a file uses a private name that its room does not define."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            found.append(f"{path.name}:{node.lineno} .{node.attr}")
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            home = "dcsurv" if len(parts) > 1 and parts[0] == "dcsurv" and parts[1] == room_of(path) else None
            # The files of the house that begin with an underscore are rooms for all others.
            inner = parts[2:] if parts[0] == "dcsurv" else parts[1:]
            if (home is None and any(map(is_private, inner))) or name.startswith(FOREIGN):
                found.append(f"{path.name}:{node.lineno} import {name}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr"):
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else ""
            if is_private(name) and name not in own:
                found.append(f"{path.name}:{node.lineno} .{name}")
    allowed = ALLOWED.get(path.relative_to(SOURCE).as_posix())
    return [one for one in found if allowed is None or not one.split(" ", 1)[1].startswith(allowed)]


def test_no_room_reaches_for_private_names_of_another() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    own: dict[str, set[str]] = {}
    for path in files:
        own.setdefault(room_of(path), set()).update(defined_in(ast.parse(path.read_text(encoding="utf-8"))))
    found = [one for path in files for one in reaches(path, own[room_of(path)])]
    assert not found, "\n".join(found)


def test_the_walk_sees_a_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "from dcsurv.models.base import _CHUNK\nimport joblib.externals.loky\nmodel._nodes()\nself._own = 1\n"
        "from numpy._core import multiarray\ngetattr(model, '_curves')\ngetattr(model, '_own')\n"
        "from dcsurv._frames import as_pandas\n"
    )
    assert defined_in(ast.parse(text)) == {"_own"}
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
    found = reaches(SOURCE / "cli" / "demo.py", {"_own"})  # of the file only its place counts
    assert [one.split(" ", 1)[1] for one in found] == [
        "import dcsurv.models.base._CHUNK",
        "import joblib.externals.loky",
        "import numpy._core.multiarray",
        "._curves",
        "._nodes",
    ]
