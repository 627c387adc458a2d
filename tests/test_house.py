"""The house itself: its map, what names mean, and whom its sentences speak to."""

from __future__ import annotations

import ast
import re
import string
import tomllib
from collections import defaultdict
from pathlib import Path

import dcsurv

SOURCE = Path(dcsurv.__file__).parent
MODULES = {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text("utf-8")) for path in SOURCE.rglob("*.py")}

# Names that may mean two things, each with the reason.
SHARED_NAMES: dict[str, str] = {}


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


ROOT = Path(__file__).parents[1]


def layers() -> list[set[str]]:
    """The rooms from the top of the house down, as the contract of import-linter has them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    contract = next(one for one in settings["contracts"] if one["type"] == "layers")
    return [set(re.findall(r"dcsurv\.(\w+)", layer)) for layer in reversed(contract["layers"])]


def test_every_module_is_a_room_of_the_contract() -> None:
    modules = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert modules - {"__init__"} == set().union(*layers())


def test_the_map_shows_the_rooms_that_there_are_in_their_order() -> None:
    """The table of CONTRIBUTING.md, against the contract and against the files."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    table = re.search(r"(?m)^\| room \|.*\n\|[-|]+\n((?:\|.*\n)+)", text)
    assert table is not None
    drawn = [name for row in table[1].splitlines() for name in re.findall(r"`([\w/.]+)`", row.split("|")[1])]
    missing = [name for name in drawn if not (SOURCE / name).exists()]
    assert not missing, f"CONTRIBUTING.md shows {', '.join(missing)}, which src/dcsurv does not have."
    floor = {room: number for number, layer in enumerate(layers()) for room in layer}
    rooms = [name.removesuffix("/").removesuffix(".py") for name in drawn]
    assert set(rooms) == set(floor)
    assert rooms == sorted(rooms, key=floor.__getitem__), "a room stands below one that it may be imported from"


# Modules outside the command line in which a text may hold --word, each with the reason.
SPEAK_OF_OPTIONS = {
    "report/svg.py": "names of colours in CSS",
    "validation/page.py": "names of colours in CSS",
    "experiments/reproduce.py": "the command that makes the results again, for their README",
}


def test_python_users_never_read_an_option_of_the_command_line() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for module, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and not module.startswith("cli/"):
                found[module] += re.findall(r"(?<![\w-])(?:--[a-z][\w-]*|-o\b)", node.value)
    assert {module for module, words in found.items() if words} == set(SPEAK_OF_OPTIONS), found


def calls(name: str) -> list[tuple[str, ast.Call]]:
    return [
        (f"{module}:{node.lineno}", node)
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


def test_templates_of_messages_are_constant_and_name_real_parameters() -> None:
    """An f-string would read braces of a user's column as fields; a field without a value is a parameter."""
    import inspect

    import dcsurv.cohort as room

    functions = [getattr(room, name) for name in room.__all__] + [room.Cohort.from_frame, dcsurv.validate]
    real = {name for one in functions if callable(one) for name in inspect.signature(one).parameters}
    found = calls("Message")
    assert len(found) > 20
    for place, call in found:
        template = call.args[0]
        assert isinstance(template, ast.Constant), place
        fields = {name for _, name, _, _ in string.Formatter().parse(template.value) if name}
        given = {keyword.arg for keyword in call.keywords}
        assert given <= fields, place
        assert fields - given <= real, place
    for place, call in calls("Parameter"):
        name = call.args[0]
        assert not isinstance(name, ast.Constant) or name.value in real, place


def test_errors_and_findings_name_the_parameter_that_their_remedy_is_about() -> None:
    for place, call in [*calls("CohortError"), *calls("InputError"), *calls("Finding")]:
        if place.startswith("cli/"):
            continue
        named = {keyword.arg: keyword.value for keyword in call.keywords}
        sentences = [
            node for node in ast.walk(call) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Message"
        ]
        about = [one for one in sentences if not any("ModelChoice" in ast.unparse(k.value) for k in one.keywords)]
        if about:
            positional = len(call.args) > 4 and ast.unparse(call.func) == "Finding"
            assert "parameter" in named or positional, place
