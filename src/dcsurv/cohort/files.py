"""A file with a table, on disk, in memory, or out of a pipe."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import sys
import tempfile
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from dcsurv.cohort.errors import CohortError

_IN_MEMORY = 1 << 26  # bytes of a file that is held
_PACKED = b"\x1f\x8b"  # what gzip begins with
_STANDARD_INPUT = Path("-")
_BLOCK = 1 << 22


@dataclass(frozen=True)
class TableFile:
    """A file that is read piece by piece, or was read once and is in memory.

    Parameters
    ----------
    path : Path
        Where it is.
    content : bytes or None, default None
        Its bytes, unpacked if it is packed, where they are in memory.
    digest : str or None, default None
        SHA-256 of its bytes as they are on disk, where it was read.
    spooled : Path or None, default None
        A temporary copy of what came out of a pipe, if it was too much for memory; it goes when this object goes.
    """

    path: Path
    content: bytes | None = field(default=None, repr=False)
    digest: str | None = None
    spooled: Path | None = None

    @classmethod
    def find(cls, path: Path) -> TableFile:
        """Return a file to be read piece by piece; a pipe, which can be read once only, is read now."""
        if path == _STANDARD_INPUT:
            if sys.stdin is None or sys.stdin.isatty():
                raise CohortError(
                    "- stands for a table that is piped into the command, and there is none.",
                    parameter="path",
                    remedy="Pipe one, as in `cat patients.csv | dcsurv check -`, or name a file.",
                )
            return cls._out_of(sys.stdin.buffer, Path("standard input"))
        _refuse_no_file(path)
        if path.is_file():
            return cls(path)
        with path.open("rb") as stream:
            return cls._out_of(stream, path)

    @classmethod
    def read(cls, path: Path) -> TableFile:
        """Read a file once, into memory; one that is very large is only looked through for its digest."""
        found = cls.find(path)
        if found.digest is not None:
            return found
        if path.stat().st_size > _IN_MEMORY:
            with path.open("rb") as stream:
                return cls(path, digest=hashlib.file_digest(stream, "sha256").hexdigest())
        return cls._held(path.read_bytes(), path)

    @classmethod
    def _held(cls, content: bytes, path: Path) -> TableFile:
        """Return a file whose bytes are in memory, unpacked unless they become very many."""
        if not content:
            raise CohortError(f"{path.name} is empty (0 bytes).", parameter="path", remedy="Export the table again.")
        digest = hashlib.sha256(content).hexdigest()
        if content.startswith(_PACKED):
            with _unpacking(path), gzip.open(io.BytesIO(content)) as stream:
                unpacked = stream.read(_IN_MEMORY + 1)
            # What grows beyond all measure stays packed, and is unpacked piece by piece.
            content = unpacked if len(unpacked) <= _IN_MEMORY else content
        return cls(path, content, digest)

    @classmethod
    def _out_of(cls, stream: IO[bytes], path: Path) -> TableFile:
        """Take all that comes out of a pipe, into memory or, if it is very much, into a temporary file."""
        content = stream.read(_IN_MEMORY)
        if len(content) < _IN_MEMORY:
            return cls._held(content, path)
        digest = hashlib.sha256()
        handle, name = tempfile.mkstemp(prefix="dcsurv-", suffix=".table")
        try:
            with os.fdopen(handle, "wb") as copy:
                while content:
                    digest.update(content)
                    copy.write(content)
                    content = stream.read(_BLOCK)
        except BaseException:
            os.unlink(name)
            raise
        found = cls(path, digest=digest.hexdigest(), spooled=Path(name))
        weakref.finalize(found, Path(name).unlink, missing_ok=True)
        return found

    @property
    def place(self) -> Path:
        """Where its bytes are, if they are not in memory."""
        return self.spooled or self.path

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the file, unpacking it if it is packed."""
        with io.BytesIO(self.content) if self.content is not None else self.place.open("rb") as stream:
            packed = stream.read(len(_PACKED)) == _PACKED
            stream.seek(0)
            if not packed:
                yield stream
                return
            with gzip.open(stream) as unpacked, _unpacking(self.path):
                yield cast(IO[bytes], unpacked)


def _refuse_no_file(path: Path) -> None:
    """Refuse what is neither a file nor a pipe, and what is empty."""
    if path.is_dir():
        raise CohortError(f"{path} is a folder.", parameter="path", remedy="Name the file with the table of patients.")
    if path.is_symlink() and not path.exists():
        raise CohortError(
            f"{path} is a link that leads to no file.",
            parameter="path",
            remedy="Name the file itself, or mend the link.",
        )
    if not path.exists():
        raise CohortError(
            f"there is no file {path}.", parameter="path", remedy="Check the name and the folder that you are in."
        )
    kind = path.stat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
        raise CohortError(
            f"{path} is neither a file nor a pipe.",
            parameter="path",
            remedy="Name a file with a table, or pipe one in.",
        )
    if stat.S_ISREG(kind) and path.stat().st_size == 0:
        raise CohortError(f"{path.name} is empty (0 bytes).", parameter="path", remedy="Export the table again.")


@contextmanager
def _unpacking(path: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise CohortError(f"{path.name} is packed (gzip) and damaged or incomplete.", remedy="Copy it again.") from None
