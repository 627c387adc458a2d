"""The version before, beside this one: its source out of git, run in processes of its own.

What is compared is a piece of Python that both versions run, with the same packages, in turns.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COMMIT = "c7755b2"
BEFORE, NOW = ROOT / "build" / "before" / "src", ROOT / "src"

# Prints what the piece has cost as the last line: CPU seconds of all threads and ended children, wall seconds, and the
# most memory that the process had (see timing.peak_memory_gb). The piece may set `result` to plain data.
_FRAME = """
import json, os, time
result = None
_start = time.perf_counter(), sum(os.times()[:4])
{piece}
_cost = {{"cpu": sum(os.times()[:4]) - _start[1], "wall": time.perf_counter() - _start[0]}}
_line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({{**_cost, "memory_gb": int(_line.split()[1]) / 1024**2, "result": result}}))
"""


def source_before() -> Path:
    """Return the folder with the source of the version before, exported on first use."""
    if not BEFORE.exists():
        archive = subprocess.run(["git", "archive", COMMIT, "src"], cwd=ROOT, check=True, capture_output=True).stdout
        partial = BEFORE.parent.with_name(f"before.{os.getpid()}")
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            files.extractall(partial, filter="data")
        try:
            partial.rename(BEFORE.parent)
        except OSError:  # another process was quicker
            shutil.rmtree(partial)
    return BEFORE


def run_piece(piece: str, source: Path = NOW, *arguments: str, **environment: str) -> dict[str, Any]:
    """Run a piece of Python with dcsurv from a source folder; return cpu, wall, memory_gb and result.

    ``arguments`` are the piece's ``sys.argv[1:]``, ``environment`` is added to that of this process.
    """
    done = subprocess.run(
        [sys.executable, "-c", _FRAME.format(piece=piece), *arguments],
        env={**os.environ, **environment, "PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    out: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return out


def run_before(piece: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """Run a piece of Python with the version before."""
    return run_piece(piece, source_before(), *arguments, **environment)
