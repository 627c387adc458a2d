"""A file with a table, on disk or in memory."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from dcsurv.cohort.errors import CohortError

_IN_MEMORY = 1 << 26  # bytes of a file that is held
_PACKED = b"\x1f\x8b"  # what gzip begins with


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
    """

    path: Path
    content: bytes | None = field(default=None, repr=False)
    digest: str | None = None

    @classmethod
    def read(cls, path: Path) -> TableFile:
        """Read a file once, into memory; one that is very large is only looked through for its digest."""
        if path.stat().st_size > _IN_MEMORY:
            with path.open("rb") as stream:
                return cls(path, digest=hashlib.file_digest(stream, "sha256").hexdigest())
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if content.startswith(_PACKED):
            with _unpacking(path):
                content = gzip.decompress(content)
        return cls(path, content, digest)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the file, unpacking it if it is packed."""
        if self.content is not None:
            yield io.BytesIO(self.content)
            return
        with self.path.open("rb") as stream:
            packed = stream.read(len(_PACKED)) == _PACKED
            stream.seek(0)
            if not packed:
                yield stream
                return
            with gzip.open(stream) as unpacked, _unpacking(self.path):
                yield cast(IO[bytes], unpacked)


@contextmanager
def _unpacking(path: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise CohortError(f"{path.name} is packed (gzip) and damaged or incomplete.", remedy="Copy it again.") from None
