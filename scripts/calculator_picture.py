"""Take the picture of the calculator for the README: ``python scripts/calculator_picture.py metabric.safetensors``.

The model is one of METABRIC with measured labels, in days. The service is started and ended here; Chromium and
playwright are needed, as for the tests.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

PICTURE = Path(__file__).parent.parent / "docs" / "gallery" / "calculator.png"
COLOURS = 96  # enough for a page, and a third of the bytes
LOG2: dict[str, Any] = {"unit": "log₂"}
WORDS: dict[str, Any] = {
    "title": "Survival after breast cancer",
    "event": "die",
    "event_free": "alive",
    "features": {
        "age": {"label": "Age at diagnosis", "unit": "years"},
        "EGFR": {**LOG2, "help": "Expression of the gene, microarray"},
        "PGR": LOG2,
        "ERBB2": {**LOG2, "label": "ERBB2 (HER2)"},
        "MKI67": {**LOG2, "label": "MKI67 (Ki-67)"},
        "hormone_treatment": {"label": "Hormone treatment"},
        "radiotherapy": {"label": "Radiotherapy"},
        "chemotherapy": {"label": "Chemotherapy"},
        "er_positive": {"label": "Oestrogen receptor", "levels": {"yes": "positive", "no": "negative"}},
    },
}


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

    with tempfile.TemporaryDirectory() as folder:
        words = Path(folder, "words.json")
        words.write_text(json.dumps(WORDS), encoding="utf-8")
        command = ["dcsurv", "serve", model, "--words", str(words), "--port", "0", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            assert service.stdout is not None
            text = ""
            while '"address"' not in text:
                line = service.stdout.readline()
                if not line:
                    sys.exit("the service did not start.")
                text += line
            address = text.split('"address": "')[1].split('"')[0]
            try:
                taken = take(address)
            finally:
                service.terminate()
    picture = Image.open(BytesIO(taken)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    picture.save(PICTURE, optimize=True)
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1])
