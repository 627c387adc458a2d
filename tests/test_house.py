"""The house itself: what names mean, and whom its sentences speak to."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import dcsurv

SOURCE = Path(dcsurv.__file__).parent
MODULES = {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text("utf-8")) for path in SOURCE.rglob("*.py")}

# Names that may mean two things, each with the reason.
SHARED_NAMES: dict[str, str] = {
    "Cohort": "of patients (cohort) and of their sorted outcomes (metrics)",
    "Criterion": "of a training (models.dcs) and of a search (experiments.tuning)",
}


def test_a_name_means_one_thing() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module, tree in MODULES.items():
        for node in tree.body:
            match node:
                case ast.ClassDef(name=name):
                    places[name].append(module)
                case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                    places[name].append(module)
                case ast.Assign(targets=[ast.Name(id=name)]) if name[0].isupper() and not name.isupper():
                    places[name].append(module)
        for node in ast.walk(tree):  # a class of another package, under its own name
            if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("dcsurv"):
                for alias in node.names:
                    if alias.asname is None and alias.name in ("Outcome", "Table", "Progress", "Evaluation", "Cohort"):
                        places[alias.name].append(f"{module} (from {node.module})")
    twice = {name: found for name, found in places.items() if len(found) > 1 and not name.startswith("_")}
    assert {name: found for name, found in twice.items() if name not in SHARED_NAMES} == {}
    assert set(SHARED_NAMES) <= set(twice), "an exception that is no longer needed"
