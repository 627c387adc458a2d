"""Services that the tests start: real processes on loopback, asked over real connections."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pandas as pd

import dcsurv

SOURCE = Path(dcsurv.__file__).parents[1]
COMMAND = "from dcsurv.cli import main; main()"
# Ends what hangs; nothing is waited for that long.
PATIENCE = 120.0

# A service with limits that the command line does not offer, so that what is late is late soon.
WITH_LIMITS = """
import json, sys
from pathlib import Path
from dcsurv.service import Access, Limits, ModelStore, Policy, make_app
from dcsurv.service.server import bind, run
given = json.loads(sys.argv[1])
store = ModelStore(Path(given["path"]), Policy(**given.get("policy", {})))
store.open()
limits, access = Limits(**given.get("limits", {})), Access(**given.get("access", {}))
bound = bind("127.0.0.1", 0)
address = f"http://127.0.0.1:{bound.getsockname()[1]}/"
app = make_app(store, limits=limits, access=access)
run(app, bound, limits, lambda: print(json.dumps({"address": address}), flush=True))
"""


def wait_until(condition: Callable[[], bool]) -> None:
    """Ask again, and leave the processor to those who are asked, until it is so."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.02)


class Running:
    """A service in a process of its own, and a client that asks it."""

    def __init__(self, *words: object, script: str = COMMAND, environment: dict[str, str] | None = None) -> None:
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed when the service is)
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE), **(environment or {})},
        )
        assert self.process.stdout is not None
        lines = []
        while line := self.process.stdout.readline():
            lines.append(line)
            try:
                self.address: str = json.loads("".join(lines))["address"]
                break
            except ValueError:
                continue
        else:
            self.process.wait()
            raise AssertionError(f"the service did not start: {self.logged()}")
        self.client = httpx.Client(base_url=self.address, timeout=PATIENCE, trust_env=False)

    def logged(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def connect(self, buffered: int | None = None) -> socket.socket:
        """A bare connection, for what no client would send, on which so many bytes wait for one who does not read."""
        host, _, port = self.address.removeprefix("http://").strip("/").rpartition(":")
        made = socket.socket()
        made.settimeout(PATIENCE)
        if buffered is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffered)
        try:
            made.connect((host, int(port)))
        except OSError:
            made.close()
            raise
        return made

    def stop(self) -> int:
        """End it as a system does, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        self.client.close()
        return code

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.client.close()
        self.log.close()


def serve(path: Path, *options: object) -> Running:
    """Start ``dcsurv serve``."""
    return Running("serve", path, "--port", 0, "--json", *options)


def serve_with(path: Path, **given: Any) -> Running:
    """Start a service through Python, with any limits."""
    return Running(json.dumps({"path": str(path), **given}), script=WITH_LIMITS)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Patients as a request has them."""
    plain = frame.astype(object).where(frame.notna(), None)
    return [dict(zip(plain.columns, row, strict=True)) for row in plain.to_numpy().tolist()]


def raw_answer(connection: socket.socket) -> bytes:
    """Read until the other side has ended the connection."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def request_bytes(body: bytes, path: str = "/v1/predict", length: int | None = None, more: Sequence[str] = ()) -> bytes:
    """A request as bytes, whose announced length may be another than it has."""
    size = len(body) if length is None else length
    head = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {size}"]
    return "\r\n".join([*head, *more, "", ""]).encode() + body
