"""The server: uvicorn with time limits of its own for those who send slowly or not at all.

The only place that reaches into uvicorn: its connection class is extended by timers, and by answers in our words.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import struct
import sys
import uuid
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dcsurv.messages import InputError
from dcsurv.service.guard import HEADERS, OTHER, write_down
from dcsurv.service.limits import Limits
from dcsurv.service.metrics import ServiceCounts
from dcsurv.service.problems import MEDIA_TYPE, Problem

if TYPE_CHECKING:
    from fastapi import FastAPI

# Bytes of the head of a request, and seconds in which a connection that was ended has to take its last bytes.
_LONGEST_HEAD: Final = 65_536
_LAST_BYTES: Final = 5.0
# Bytes of answers that may wait for a client; from more on, all of them have to be taken in time.
_WAITING: Final = 16_384
# For how long a system goes on to send what a closed connection has left: it is ended with a reset.
_NOT_AT_ALL: Final = struct.pack("ii", 1, 0)
# Seconds in which a stopping service still answers on connections that were idle: a request may be on its way.
_LAST_REQUEST: Final = 0.5
# Open files beside connections, and connections that wait to be accepted.
_SPARE, _BACKLOG = 256, 4096
# Seconds for which a thread keeps the interpreter: those who wait for an answer wait for no more than this.
_SWITCH: Final = 0.001
# Answers are trees of many small things without a circle; they need not be looked through so often.
_GARBAGE: Final = (20_000, 20, 20)


class PatientConnection(HttpToolsProtocol):
    """A connection that is ended if its client does not go on.

    Parameters
    ----------
    limits : Limits
        For how long is waited.
    counts : ServiceCounts
        What is counted.
    **given : object
        What uvicorn gives to its connections.
    """

    def __init__(self, *, limits: Limits, counts: ServiceCounts, **given: Any) -> None:
        super().__init__(**given)
        self._limits, self._counts = limits, counts
        self._since = self.loop.time()  # when the wait for a request began
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._head: int | None = None  # bytes of a head that is on its way
        self._stopping = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, unless there are too many connections."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            transport.abort()
        else:
            transport.set_write_buffer_limits(_WAITING, 0)
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._wait_no_more()
        self._all_is_taken()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begin to wait until the client takes what is sent, also on a connection that is closing."""
        super().pause_writing()
        self._sending = self.loop.call_later(self._limits.seconds, self._cut)

    def resume_writing(self) -> None:
        """End that wait."""
        self._all_is_taken()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Take in what came, as long as heads stay short and come in time."""
        if self.transport.is_closing():
            return
        if self._timer is None and self._is_idle():
            self._wait()
        super().data_received(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > _LONGEST_HEAD:
                self._refuse(_too_long())

    def on_message_begin(self) -> None:
        """Begin to count the bytes of a head."""
        self._head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """End the wait for the head of a request, and look how long it was if it came all at once."""
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > _LONGEST_HEAD:
            raise _too_long()  # comes back as an error of the parser
        self._head = None
        self._wait_no_more()
        super().on_headers_complete()
        if self._stopping:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """Go on, or see to it that a connection which ends with this answer does end."""
        super().on_response_complete()
        if self.transport.is_closing():
            self.loop.call_later(self._limits.seconds, self._cut)

    def shutdown(self) -> None:
        """End when what was asked is answered, also what is asked at this moment."""
        self._stopping = True
        if self._is_idle():
            self.loop.call_later(_LAST_REQUEST, self._end_if_idle)
        else:
            self.cycle.keep_alive = False

    def timeout_keep_alive_handler(self) -> None:
        """End a connection on which nothing was asked for long."""
        self._end()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or too much of it."""
        cause = getattr(sys.exception(), "__context__", None)
        self._refuse(cause if isinstance(cause, Problem) else Problem(400, "This is no request of HTTP."))

    def unanswered(self) -> int:
        """Return how many requests wait behind another, or have an answer that was not taken."""
        untaken = self._is_idle() and self.transport.get_write_buffer_size() > 0
        return len(self.pipeline) + untaken

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self._since = self.loop.time()
        self._timer = self.loop.call_later(self._limits.header_seconds, self._too_late)

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _all_is_taken(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _too_late(self) -> None:
        self._timer = None
        if self._head:
            self._refuse(Problem(408, f"The request did not arrive within {self._limits.header_seconds:g} seconds."))
        else:
            self._end()

    def _refuse(self, problem: Problem) -> None:
        """Send what is wrong, where no request could be read."""
        if self.transport.is_closing():
            return
        if not self._is_idle() and (self.pipeline or not self.cycle.more_body):
            self.cycle.keep_alive = False  # what was asked before is answered, and then it is over
            return
        number = str(uuid.uuid4()).encode()
        body = msgspec.json.encode(problem.document())
        headers = {b"content-type": MEDIA_TYPE.encode(), b"content-length": b"%d" % len(body), **HEADERS}
        headers |= {b"x-request-id": number, b"connection": b"close"}
        lines = [b"HTTP/1.1 %d %s" % (problem.status, problem.document()["title"].encode())]
        lines += [name + b": " + value for name, value in headers.items()]
        self.transport.write(b"\r\n".join([*lines, b"", body]))
        write_down(self._counts, OTHER, OTHER, problem.status, self.loop.time() - self._since, number)
        self._end()

    def _end_if_idle(self) -> None:
        if self._is_idle():
            self._end()

    def _end(self) -> None:
        """Close, and do not wait for long until the last bytes are taken."""
        if not self.transport.is_closing():
            self.transport.close()
            self.loop.call_later(_LAST_BYTES, self._cut)

    def _cut(self) -> None:
        """End a connection at once; the system, too, lets go of bytes that nobody takes."""
        if self not in self.connections:
            return  # its number may be that of another connection by now
        if sys.platform != "win32":
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NOT_AT_ALL)
        self.transport.abort()


def _too_long() -> Problem:
    return Problem(431, f"The head of a request may have {_LONGEST_HEAD:,} bytes.")


class _Server(uvicorn.Server):
    """A server that says when it is ready, and how many requests it has left without an answer."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready, self.left = ready, 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # models stay; what requests leave behind is found quicker without them
        gc.set_threshold(*_GARBAGE)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        for one in self.server_state.connections:
            self.left += one.unanswered() if isinstance(one, PatientConnection) else 0


def bind(host: str, port: int) -> socket.socket:
    """Return a socket on which a service can be asked.

    Parameters
    ----------
    host : str
        Address or name of this machine.
    port : int
        0: any that is free.

    Returns
    -------
    socket
        Bound, not yet listening.
    """
    bound: socket.socket | None = None
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind)
        if sys.platform != "win32":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        if bound is not None:
            bound.close()
        raise InputError(
            f"the service cannot be asked on {host}, port {port} ({error.strerror or error}).",
            parameter="port",
            remedy="Choose another port; 0 takes any that is free.",
        ) from None
    return bound


def run(app: FastAPI, bound: socket.socket, limits: Limits, ready: Callable[[], None]) -> int:
    """Answer until a signal ends it: what was accepted is answered first.

    Parameters
    ----------
    app : FastAPI
        The service.
    bound : socket
        Where it is asked.
    limits : Limits
        What it bears.
    ready : callable
        Called when it answers.

    Returns
    -------
    int
        How many requests were given up, because of a second signal or because they took too long.
    """
    import torch
    from threadpoolctl import threadpool_limits

    limits = replace(limits, connections=min(limits.connections, _open_files() - _SPARE))
    counts: ServiceCounts = app.state.counts
    config = uvicorn.Config(
        app,
        http=partial(PatientConnection, limits=limits, counts=counts),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=int(limits.seconds + _LAST_BYTES),
    )
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    sys.setswitchinterval(_SWITCH)
    # uvicorn sends itself the signal again when it is done; by then all is well.
    before = {one: signal.signal(one, lambda *_: None) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")  # they would name values of patients
            server = _Server(config, ready)
            server.run(sockets=[bound])
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    return counts.cut + server.left


def _open_files() -> int:
    """Allow as many open files as this process may have, and return how many these are."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 1 << 20
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft
