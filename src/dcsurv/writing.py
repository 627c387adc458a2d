"""Files that are there whole or not at all, however the process that writes them ends.

A file is written beside its place and then moved there. Files that belong together, such as a page and its figures, are
first all written to a hidden folder. Then the list of moves is written, which is the moment at which they are there: a
process that is killed between two moves leaves the list, and the next one that writes there finishes them.

What is hidden has a name that ends in ``.dcsurv-XXXXXXXX.part``, and is locked as long as its process lives; the system
sees to that. So what has such a name, belongs to the same user and can be locked was left by a process that is gone,
and the next one removes it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

_MARK: Final = "dcsurv-"
_HIDDEN: Final = re.compile(r"\.(.+\.)?dcsurv-[a-z0-9_]{8}\.part")
# The list of moves in a hidden folder; with it, what is there belongs in its place.
_MOVES: Final = "moves.json"
# So much of a name is repeated in the hidden one, which may not become too long for the disk.
_LETTERS: Final = 40
# Folders in which this process has removed what others have left.
_tidied: Final[set[Path]] = set()


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all, also after a power failure."""
    with written_atomically(path) as stream:
        stream.write(data)


@contextmanager
def written_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write that is there whole at the end of the block, or not at all if the block fails.

    Inside a block of :func:`together` it is there at the end of that one. Of a link the file that it leads to is
    replaced; the link stays.
    """
    target = _place_of(path)
    batch = _batch.get()
    if batch is not None:
        staged = batch.stage(target)
        with staged.open("xb") as stream:
            yield stream
            _to_disk(stream)
        batch.staged[target] = staged
        batch.removed = [one for one in batch.removed if one != target]  # it was to make room for this one
        return
    require_folder(target.parent)
    _remove_leftovers_once(target.parent)
    handle, hidden = _open_hidden(target)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            _to_disk(stream)
            os.chmod(hidden, 0o666 & ~_umask())  # mkstemp's files are for the owner alone
            os.replace(hidden, target)  # before the lock ends with the stream
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    _names_to_disk(target.parent)


@contextmanager
def together(folder: Path) -> Iterator[None]:
    """Let all files that are written inside the block be there at its end, or none of them if it fails.

    The same goes for folders of :func:`make_folder` and for files removed by :func:`remove_file`. A block within
    another one ends with that.

    Parameters
    ----------
    folder
        What is written is meant to be below it.
    """
    if _batch.get() is not None:
        yield
        return
    batch = _Batch(folder)
    token = _batch.set(batch)
    try:
        yield
        batch.commit()
    except BaseException:
        batch.discard()
        raise
    finally:
        _batch.reset(token)


def make_folder(folder: Path) -> None:
    """Make a folder for files to be written, with those above it; inside a block of :func:`together`, at its end."""
    if _batch.get() is None:
        folder.mkdir(parents=True, exist_ok=True)


def require_folder(folder: Path) -> None:
    """Raise FileNotFoundError if a folder is not there, unless it will be made at the end of :func:`together`."""
    if _batch.get() is None and not folder.is_dir():
        raise FileNotFoundError(f"the folder {folder} does not exist. Create it first.")


def remove_file(path: Path) -> None:
    """Remove a file that is there; inside a block of :func:`together`, at its end."""
    batch = _batch.get()
    if batch is None:
        path.unlink()
    else:
        batch.remove(Path(os.path.realpath(path.parent)) / path.name)


def where_now(path: Path) -> Path:
    """Return where a file can be read that was written inside a block of :func:`together` which has not ended."""
    batch = _batch.get()
    return path if batch is None else batch.staged.get(Path(os.path.realpath(path)), path)


def check_writable(path: Path) -> None:
    """Raise OSError or ValueError if a file cannot be written there; leave no trace of the attempt.

    What processes that are gone have left in the folder is removed, or finished.
    """
    target = _place_of(path)
    require_folder(target.parent)
    _remove_leftovers_once(target.parent)
    if target.exists():
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    else:
        with contextlib.suppress(FileNotFoundError):  # which is as it should be: a name may be too long, say
            os.stat(target)
    _try_to_write(target)


def check_folder_writable(folder: Path) -> None:
    """Raise OSError if a folder, which need not be there yet, cannot hold files that are written; leave no trace."""
    real = Path(os.path.realpath(folder))
    place = _nearest(real)
    if not place.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
    _remove_leftovers_once(place)
    _try_to_write(place / real.name)


def remove_leftovers(folder: Path) -> None:
    """Remove what processes that are gone have left in a folder; what they had finished but for its name gets that."""
    if os.name != "posix":  # where there are no locks of this kind nothing is known to be dead
        return
    try:
        found = sorted(Path(entry) for entry in os.scandir(folder) if _HIDDEN.fullmatch(entry.name))
    except OSError:
        return
    for one in found:
        with contextlib.suppress(OSError, ValueError), _dead(one) as dead:
            if dead and one.is_dir():
                _move_listed(one)
                _remove_hidden(one)
            elif dead:
                one.unlink()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder that is gone after the block; that of a process that was killed is removed by the next one."""
    place = Path(tempfile.gettempdir())
    _remove_leftovers_once(place)
    with _hidden_folder(place) as folder:
        yield folder


class _Batch:
    """Files that are written together, with what is to be moved and removed in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.realpath(folder))
        self.staged: dict[Path, Path] = {}
        self.removed: list[Path] = []
        self._hidden: dict[Path, Path] = {}
        self._open = contextlib.ExitStack()

    def stage(self, target: Path) -> Path:
        """Return where the file for a place is written first: under its own name, which readers may go by."""
        return Path(tempfile.mkdtemp(dir=self._hidden_for(target))) / target.name

    def remove(self, target: Path) -> None:
        self._hidden_for(target)
        self.staged.pop(target, None)
        self.removed.append(target)

    def commit(self) -> None:
        """Move everything to its place, or nothing if that fails."""
        with self._open:
            for base, hidden in self._hidden.items():
                own = [(staged, target) for target, staged in self.staged.items() if hidden in staged.parents]
                changes = {
                    "moved": [
                        [str(staged.relative_to(hidden)), str(target.relative_to(base))] for staged, target in own
                    ],
                    "removed": [str(one.relative_to(base)) for one in self.removed if self._hidden_for(one) == hidden],
                }
                with (hidden / f"{_MOVES}.new").open("xb") as stream:
                    stream.write(json.dumps(changes).encode())
                    _to_disk(stream)
                os.replace(hidden / f"{_MOVES}.new", hidden / _MOVES)
                _names_to_disk(hidden)
            undo: list[Callable[[], object]] = []
            try:
                for hidden in self._hidden.values():
                    _move_listed(hidden, undo)
            except BaseException:
                for step in reversed(undo):
                    step()
                raise

    def discard(self) -> None:
        self._open.close()

    def _hidden_for(self, target: Path) -> Path:
        """Return the hidden folder on the disk of a place, in a folder that both are below."""
        nearest = _nearest(target.parent)
        for base, hidden in self._hidden.items():
            if (base == nearest or base in nearest.parents) and base.stat().st_dev == nearest.stat().st_dev:
                return hidden
        wanted = _nearest(self.folder)
        base = wanted if wanted in nearest.parents and wanted.stat().st_dev == nearest.stat().st_dev else nearest
        _remove_leftovers_once(base)
        self._hidden[base] = self._open.enter_context(_hidden_folder(base))
        return self._hidden[base]


_batch: ContextVar[_Batch | None] = ContextVar("dcsurv_batch", default=None)


def _move_listed(hidden: Path, undo: list[Callable[[], object]] | None = None) -> None:
    """Do what the list in a hidden folder says, as far as it is not done; collect how to undo it, if that is wanted."""
    base, listed = hidden.parent, hidden / _MOVES
    if not listed.is_file():
        return
    changes = json.loads(listed.read_text(encoding="utf-8"))
    steps: list[tuple[Path | None, Path]] = [(hidden / staged, base / target) for staged, target in changes["moved"]]
    steps += [(None, base / target) for target in changes["removed"]]
    if any(".." in target.parts or base not in target.parents for _, target in steps):
        return  # not a list of ours
    touched = set()
    for staged, target in steps:
        if staged is not None and not staged.exists():
            continue  # it is in its place
        for folder in [one for one in reversed(target.parents) if not one.exists()]:
            if undo is not None:
                undo.append(partial(_remove_folder, folder))
            folder.mkdir(exist_ok=True)
        if undo is not None:
            undo.append(_kept(target, staged, hidden))
        if staged is None:
            target.unlink(missing_ok=True)
        else:
            os.replace(staged, target)
        touched.add(target.parent)
    for folder in touched:
        _names_to_disk(folder)
    listed.unlink()


def _kept(target: Path, staged: Path | None, hidden: Path) -> Callable[[], None]:
    """Keep what is in a place, and return how to put it back there."""
    kept = Path(tempfile.mkdtemp(dir=hidden)) / target.name
    if target.exists():
        _link(target, kept)

    def put_back() -> None:
        if staged is not None and not staged.exists() and target.exists():
            _link(target, staged)  # so that the list can still be gone through, should this be the last step
        if kept.exists():
            os.replace(kept, target)
        elif staged is not None:
            target.unlink(missing_ok=True)

    return put_back


def _link(path: Path, other: Path) -> None:
    """Give a file another name; where the disk cannot do that, copy it."""
    try:
        os.link(path, other)
    except OSError:
        shutil.copy2(path, other)


@contextmanager
def _hidden_folder(place: Path) -> Iterator[Path]:
    """Yield a new hidden folder, locked as long as this process lives, and remove it in the end."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=place, prefix=f".{_MARK}", suffix=".part"))
        handle = os.open(folder, os.O_RDONLY) if os.name == "posix" else None
        if handle is None or _lock(handle, folder):
            break
        os.close(handle)  # it was taken for dead before it was locked
    try:
        yield folder
    finally:
        try:
            _remove_hidden(folder)
        except BaseException:  # Ctrl-C, for one
            _remove_hidden(folder)
            raise
        finally:
            if handle is not None:
                os.close(handle)


def _remove_hidden(folder: Path) -> None:
    """Remove a hidden folder, the list of moves first: what is left of it without that means nothing."""
    (folder / _MOVES).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _remove_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _try_to_write(target: Path) -> None:
    try:
        handle, hidden = _open_hidden(target)
    except FileNotFoundError:  # of a folder that is there, but is none of a disk
        raise ValueError(f"{target.parent} cannot be written to. Choose another place.") from None
    try:
        os.close(handle)
    finally:
        hidden.unlink()


def _open_hidden(target: Path) -> tuple[int, Path]:
    """Open a new hidden file beside a place, locked as long as it is open."""
    while True:
        prefix = f".{target.name[:_LETTERS]}.{_MARK}"
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=prefix, suffix=".part")
        if os.name != "posix" or _lock(handle, Path(name)):
            return handle, Path(name)
        os.close(handle)


def _lock(handle: int, path: Path) -> bool:
    """Lock what was opened; return whether it is still there."""
    import fcntl

    with contextlib.suppress(OSError):  # a disk without locks, on which nothing is ever taken for dead
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


@contextmanager
def _dead(hidden: Path) -> Iterator[bool]:
    """Yield whether something hidden is ours and its process is gone; it is locked meanwhile."""
    import fcntl

    handle = os.open(hidden, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield os.fstat(handle).st_uid == os.geteuid() and os.path.samestat(os.fstat(handle), os.stat(hidden))
    finally:
        os.close(handle)


def _place_of(path: Path) -> Path:
    """Return the place that a path means: what a link leads to, be it there or not."""
    real = Path(os.path.realpath(path))
    if real.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    if real.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if real.exists() and not real.is_file():
        raise ValueError(f"{path} is a device or a pipe, which cannot be replaced. Name an ordinary file.")
    return real


def _nearest(folder: Path) -> Path:
    """Return a folder, or where it is not there yet the nearest one above it that is."""
    # A link that is left in a real path leads to itself: it is there, but no folder.
    return next(one for one in (folder, *folder.parents) if os.path.lexists(one))


def _remove_leftovers_once(folder: Path) -> None:
    if folder not in _tidied:
        _tidied.add(folder)
        remove_leftovers(folder)


def _to_disk(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _names_to_disk(folder: Path) -> None:
    """Let the new names of files survive a power failure as well."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
