"""The files of models: what their names say, whether they were replaced, and their bytes if they are plain files."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from dcsurv.messages import InputError, printable, shortened

SUFFIX: Final = ".safetensors"
# Bytes of a model that is read as a whole; the largest that the package makes have some hundred million.
_LARGEST: Final = 2_000_000_000

FileStamp = tuple[int, ...]


def name_and_version(path: Path) -> tuple[str, str]:
    """Return the name and the version of a model by the name of its file.

    Examples
    --------
    >>> from pathlib import Path
    >>> from dcsurv.service.files import name_and_version
    >>> name_and_version(Path("models/breast@2.1.safetensors")), name_and_version(Path("breast.safetensors"))
    (('breast', '2.1'), ('breast', '1'))
    """
    name, sign, version = path.stem.rpartition("@")
    return (name, version) if sign and name and version else (path.stem, "1")


def stamp(path: Path) -> FileStamp:
    """Return what tells whether a file was replaced, or may be read now; nothing if there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    if not stat.S_ISREG(found.st_mode):  # devices and folders change all the time, and stay what they are
        return (stat.S_IFMT(found.st_mode),)
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def content(path: Path) -> bytes:
    """Return the bytes of a plain file; refuse what could be waited for, or read from, without an end."""
    _check(path.stat())
    # Between the two looks it may have become something else: opened in this way, a pipe does not wait for a writer.
    opened = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(opened, "rb") as file:
        _check(os.fstat(opened))
        out = file.read(_LARGEST + 1)
    if len(out) > _LARGEST:
        raise _too_large()
    return out


def one_line(text: str, letters: int = 1000) -> str:
    """Return a text that may hold anything for one line of a log."""
    return printable(shortened(text, letters)).replace("\n", "\\n")


def _check(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise InputError("it is no plain file, but a folder, a pipe or a device.")
    if found.st_size > _LARGEST:
        raise _too_large()


def _too_large() -> InputError:
    return InputError(f"it is larger than {_LARGEST / 1e9:g} GB, which no model needs.")
