"""Programs of the machine that some tests need: without them a test is skipped, loudly, and on CI it fails."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

# Milliseconds after which a page that hangs is given up.
GUARD: Final = 600_000
FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


def program(*names: str) -> str:
    """Return the path of the first of some programs that is there."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    found = next((one for name in names if (one := shutil.which(name, path=path))), None)
    if found is not None:
        return found
    if os.environ.get("DCSURV_CI") == "1":
        pytest.fail(f"there is no {names[0]} here, and on CI it must be there. Install it.")
    pytest.skip(f"NOT CHECKED: there is no {names[0]} on this machine.")


@contextmanager
def chromium() -> Iterator[Any]:
    """Run the machine's own Chromium."""
    path = program("chromium", "chromium-browser", "google-chrome")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS), timeout=GUARD)
        yield browser
        browser.close()
