"""Take the README's picture of the calculator: ``python scripts/calculator_picture.py dcsurv-demo/model.safetensors``.

The model is that of the demo. The service is started and ended here; Chromium and playwright are needed, as for the
tests.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from io import BytesIO
from pathlib import Path

import doc_blocks

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "calculator.png"
COLOURS = 96  # enough for a page, and a third of the bytes


def take(address: str) -> bytes:
    """Return what a reader sees who compares two patients."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 1010}, locale="en-GB")
        page.goto(address)
        page.click("#example")
        page.get_by_text("positive", exact=True).check()
        age = page.get_by_label("Age at diagnosis (years)", exact=True)
        age.fill("52")
        page.wait_for_selector("#found:not([hidden])")
        page.click("#keep")
        before = page.inner_text("#summary")
        age.fill("72")
        page.wait_for_function("before => document.querySelector('#summary').textContent !== before", arg=before)
        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        found: bytes = page.screenshot()
        browser.close()
    return found


def main(model: str) -> None:
    """Serve the model, take the picture, write it."""
    from PIL import Image

    with doc_blocks.served(f"dcsurv serve {shlex.quote(model)}") as address:
        taken = take(address)
    picture = Image.open(BytesIO(taken)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    picture.save(PICTURE, optimize=True)
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1])
