"""Reports whose pictures are frames: for tests of their words and numbers, because drawing is half of the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


def _frames(sections: Any, folder: Path) -> tuple[dict[str, str], list[Path]]:
    """Return empty pictures, and the files that they would be in."""
    names = [picture.name for section in sections for picture in section.pictures()]
    return dict.fromkeys(names, "<svg></svg>"), [folder / f"{name}.svg" for name in names]


@contextmanager
def undrawn_reports() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcsurv.report.write.draw_pictures", _frames)
        yield
