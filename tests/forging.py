"""Model files that say something else than they did, with a digest that fits: what a forger could write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from dcsurv import persistence

Change = Callable[[dict[str, Any], dict[str, Any]], Any]


def array(name: str, value: Callable[[Any], Any]) -> Change:
    """Return a change of one array."""
    return lambda header, arrays: arrays.update({name: value(arrays[name])})


def forge(path: Path, change: Change) -> None:
    """Change the header and the arrays of a model file in their place, and write it anew."""
    header, arrays = persistence.read(path)
    change(header, arrays)
    text = json.dumps(header, sort_keys=True)
    digest = persistence._digest(text, arrays)
    save_file(arrays, path, {"dcsurv": json.dumps({"header": text, "sha256": digest})})
