"""What is written is there whole or not at all, after any failure or signal; what the dead have left is removed."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dcsurv import writing
from dcsurv.writing import (
    check_folder_writable,
    check_writable,
    make_folder,
    remove_file,
    remove_leftovers,
    scratch_folder,
    together,
    where_now,
    write_atomically,
)

FAILURES = (OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), MemoryError())
# The steps at which a disk, or a person, may stop a write.
STEPS = ((os, "fsync"), (os, "replace"), (os, "chmod"), (tempfile, "mkstemp"), (tempfile, "mkdtemp"))


def contents(folder: Path) -> dict[str, bytes | str | None]:
    """Return everything below a folder: the bytes of files, where links lead, None for folders."""
    out: dict[str, bytes | str | None] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        out[name] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return out


class Faults:
    """Counts the steps of a write, and lets the one with a number fail."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count, self.at, self.error = 0, -1, BaseException()
        patch.setattr(os, "fsync", lambda _: None)  # which would only take time: nothing here ends the machine
        for module, name in STEPS:
            patch.setattr(module, name, self._step(getattr(module, name)))

    def _step(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self.at:
                raise self.error
            return real(*arguments, **options)

        return step

    def next(self, at: int = -1, error: BaseException | None = None) -> None:
        self.count, self.at, self.error = 0, at, error or BaseException()


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    monkeypatch.setattr(writing, "_tidied", set())
    return Faults(monkeypatch)


def page_and_figures(folder: Path, word: str) -> None:
    """Write what a report writes: a page, figures in a folder, in which old ones give way."""
    with together(folder):
        make_folder(folder / "figures")
        for name in (f"{word}.svg", "both.svg"):
            write_atomically(folder / "figures" / name, word.encode())
        write_atomically(folder / "page.html", word.encode())
        for old in (folder / "figures").glob("*.svg"):
            if old.name not in (f"{word}.svg", "both.svg"):
                remove_file(old)


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("before", ["nothing", "an earlier page"])
def test_files_that_belong_together_are_all_there_or_none(
    before: str, error: BaseException, tmp_path: Path, faults: Faults
) -> None:
    (tmp_path / "mine.txt").write_text("not a page")
    if before != "nothing":
        page_and_figures(tmp_path, "old")
    old = contents(tmp_path)
    number = 0
    while contents(tmp_path) == old:
        number += 1
        faults.next(number, error)
        struck = False
        try:
            page_and_figures(tmp_path, "new")
        except type(error):
            struck = True
        assert struck == (faults.count >= number)
    assert number > 10
    new = {"figures": None, "figures/both.svg": b"new", "figures/new.svg": b"new", "page.html": b"new"}
    assert contents(tmp_path) == {**new, "mine.txt": b"not a page"}


def test_a_file_that_makes_room_for_itself_is_there_in_the_end(tmp_path: Path) -> None:
    (tmp_path / "picture.svg").write_bytes(b"old")
    with together(tmp_path):
        remove_file(tmp_path / "picture.svg")
        write_atomically(tmp_path / "picture.svg", b"new")
        write_atomically(tmp_path / "gone.svg", b"new")
        remove_file(tmp_path / "gone.svg")
    assert contents(tmp_path) == {"picture.svg": b"new"}


# A child for every other line of the code that writes, killed there; then the next one that writes to the folder.
LIVES = """
import json, os, shutil, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from dcsurv import writing
from test_writing import contents, page_and_figures

folder = Path(sys.argv[1])
os.fsync = lambda _: None

def state():
    found = {name: data for name, data in contents(folder).items() if ".part" not in name}
    return "old" if found == old else "new" if found == new else "between"

def die_at(line):
    left = line
    def each_line(frame, event, argument):
        nonlocal left
        left -= event == "line"
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return each_line
    sys.settrace(lambda frame, event, argument: each_line if frame.f_code.co_filename == writing.__file__ else None)

def fresh(word):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    page_and_figures(folder, word)
    return contents(folder)

new, old = fresh("new"), fresh("old")
line, lives = 0, []
while True:
    line += 2
    child = os.fork()
    if child == 0:
        writing._tidied.clear()
        die_at(line)
        page_and_figures(folder, "new")
        sys.settrace(None)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        break
    at_once, hidden = state(), len([name for name in contents(folder) if ".part" in name])
    writing.remove_leftovers(folder)
    lives.append((at_once, bool(hidden), state(), len([name for name in contents(folder) if ".part" in name])))
    if at_once != "old":
        fresh("old")
print(json.dumps(lives))
"""


def test_kill_9_at_every_line_leaves_the_old_or_the_new_to_the_next_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIVES, tmp_path / "out", Path(__file__).parent], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lives = json.loads(done.stdout)
    assert len(lives) > 100
    for at_once, hidden, after, left in lives:
        assert after in ("old", "new")
        assert left == 0, "what a process that is gone has left is removed"
        assert at_once == after or (hidden and after == "new"), "between two moves, the list of them is there"
    assert {after for _, _, after, _ in lives} == {"old", "new"}
    assert any(at_once == "between" for at_once, *_ in lives), "some were killed between two moves"


def test_only_what_is_ours_and_dead_is_removed(tmp_path: Path) -> None:
    dead = tmp_path / ".m.safetensors.dcsurv-abcdefgh.part"
    strange = tmp_path / ".m.safetensors.abcdefgh.part"
    dead.write_bytes(b"half")
    strange.write_bytes(b"another program's")
    forged = tmp_path / ".dcsurv-12345678.part"
    (forged / "x").mkdir(parents=True)
    (tmp_path / "sub").mkdir()
    (forged / "moves.json").write_text(json.dumps({"moved": [], "removed": ["sub/../../outside"]}))
    outside = tmp_path.parent / "outside"
    outside.write_text("stays")
    with writing.written_atomically(tmp_path / "live.csv") as stream:
        stream.write(b"1")
        (hidden,) = tmp_path.glob(".live.csv.*.part")
        inside = f"from pathlib import Path; from dcsurv.writing import *; remove_leftovers(Path({str(tmp_path)!r}))"
        subprocess.run([sys.executable, "-c", inside], check=True)
        assert hidden.exists(), "its process lives"
    assert sorted(contents(tmp_path)) == [strange.name, "live.csv", "sub"]
    assert outside.read_text() == "stays"
    outside.unlink()


def test_a_scratch_folder_is_removed_by_the_next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = (
        "import os, signal, tempfile; from dcsurv.writing import scratch_folder\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        "with scratch_folder() as place:\n"
        "    (place / 'rows').mkdir(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", killed], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr(writing, "_tidied", set())
    with scratch_folder() as place:
        assert list(tmp_path.iterdir()) == [place]
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_and_the_file_that_it_leads_to_is_replaced(tmp_path: Path) -> None:
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    target, link = tmp_path / "there" / "m", tmp_path / "here" / "link"
    link.symlink_to(target)
    write_atomically(link, b"through a link that led nowhere")
    target.write_bytes(b"old")
    with together(link.parent):
        write_atomically(link, b"new")
        assert target.read_bytes() == b"old"
        assert where_now(link).read_bytes() == b"new"
    assert contents(tmp_path) == {"here": None, "here/link": str(target), "there": None, "there/m": b"new"}
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="symbolic links"):
        write_atomically(loop, b"")
    for odd in (Path("/dev/null"), tmp_path / "pipe"):
        os.mkfifo(odd) if not odd.exists() else None
        with pytest.raises(ValueError, match="device or a pipe"):
            write_atomically(odd, b"")


def test_an_output_is_tried_before_the_work_without_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = contents(tmp_path)
    check_writable(tmp_path / "m")
    check_writable(tmp_path / ("größer" * 30))  # as long a name as there can be
    check_folder_writable(tmp_path / "new" / "folder")
    for bad, error in ((tmp_path / ("m" * 256), OSError), (tmp_path / "no" / "m", FileNotFoundError)):
        with pytest.raises(error):
            check_writable(bad)
    with pytest.raises(IsADirectoryError):
        check_writable(tmp_path)

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path))

    monkeypatch.setattr(tempfile, "mkstemp", refused)
    for check in (check_writable, check_folder_writable):
        with pytest.raises(PermissionError):
            check(tmp_path / "m")
    assert contents(tmp_path) == old


def test_a_long_name_can_be_written(tmp_path: Path) -> None:
    name = "m" * 255
    write_atomically(tmp_path / name, b"1")
    with together(tmp_path):
        write_atomically(tmp_path / name, b"2")
    assert contents(tmp_path) == {name: b"2"}


def test_leftovers_of_a_folder_that_is_gone_are_none(tmp_path: Path) -> None:
    remove_leftovers(tmp_path / "nowhere")
    assert contents(tmp_path) == {}
