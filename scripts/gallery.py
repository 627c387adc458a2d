"""Run the blocks of docs/gallery.md and keep their pictures in docs/gallery/."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from doc_blocks import ROOT, run_page, write_outputs

PAGE = ROOT / "docs" / "gallery.md"
FOLDER = ROOT / "docs" / "gallery"


def shown() -> set[str]:
    """Return the pictures of docs/gallery/ that any page shows."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return {name for page in pages for name in re.findall(r"gallery/([\w-]+\.svg)", page.read_text(encoding="utf-8"))}


def main() -> None:
    os.environ.setdefault("MPLBACKEND", "agg")
    with tempfile.TemporaryDirectory() as folder:
        for _ in run_page(PAGE, Path(folder)):
            pass
        made = {path.name for path in Path(folder).glob("*.svg")}
        if made != shown():
            raise SystemExit(f"made {sorted(made)}, but the pages show {sorted(shown())}.")
        for name in sorted(made):
            shutil.copy(Path(folder) / name, FOLDER / name)
    write_outputs(PAGE)


if __name__ == "__main__":
    main()
