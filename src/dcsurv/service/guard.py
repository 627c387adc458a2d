"""Around every request: who may ask and how often, what every answer carries, and what is written of it."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
import traceback
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dcsurv.service.limits import Limits, Rate
from dcsurv.service.metrics import ServiceCounts
from dcsurv.service.problems import MEDIA_TYPE, Problem
from dcsurv.service.receiving import ClientGone

_access = logging.getLogger("dcsurv.service.access")
_log = logging.getLogger("dcsurv.service")

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
_UUID = re.compile(rb"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# A host and perhaps a port, and nothing else: what stands behind a bracket or before an @ is somebody's trick.
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:@/\\\s]+)(:[0-9]*)?")
OTHER: Final = "other"
# What every answer carries unless it says so itself.
HEADERS: Final = {
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Parameters
    ----------
    token : str or None, default None
        What a request has to carry as its bearer token; None: nothing.
    hosts : tuple of str or None, default ('localhost', '127.0.0.1', '[::1]')
        Names under which the service is asked; None: any.
    behind_proxy : bool, default False
        Whether a reverse proxy says where requests come from.

    Examples
    --------
    >>> from dcsurv.service import Access
    >>> "localhost" in Access().hosts
    True
    """

    token: str | None = None
    hosts: tuple[str, ...] | None = LOOPBACK
    behind_proxy: bool = False

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse a request that came under another name, or from a page of somebody else.

        Parameters
        ----------
        headers : mapping
            Of the request, by small names.
        """
        if self.hosts is None:
            return
        host = _host_of(headers.get(b"host", b"").decode("latin-1"))
        if host not in self.hosts:
            raise Problem(421, "The service does not go by this name. Its owner can allow it as a host.")
        origin = headers.get(b"origin")
        if origin is not None and _host_of(_place_of(origin.decode("latin-1"))) not in self.hosts:
            raise Problem(403, "Pages of other sites may not ask this service.")

    def knows(self, headers: Mapping[bytes, bytes]) -> bool:
        """Tell whether a request carries the token, in a time that does not depend on how much of it is right.

        Parameters
        ----------
        headers : mapping
            Of the request, by small names.

        Returns
        -------
        bool
            True where no token is needed.
        """
        if self.token is None:
            return True
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        return kind.lower() == b"bearer" and hmac.compare_digest(given.strip(), self.token.encode())


def _host_of(authority: str) -> str:
    """Return a host without its port, in small letters; nothing if it is none."""
    found = _HOST.fullmatch(authority.lower())
    return found[1] if found else ""


def _place_of(origin: str) -> str:
    """Return the host and the port of the page that asks; nothing if there are none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


class Guard:
    """The outermost layer of the service.

    Parameters
    ----------
    app : ASGI application
        What answers.
    access : Access
        Who may ask.
    limits : Limits
        How often.
    counts : ServiceCounts
        What is counted.
    routes : collection of str
        Paths that are written down as they are.
    free : collection of str
        Paths for which no token is needed.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        limits: Limits,
        counts: ServiceCounts,
        routes: Collection[str],
        free: Collection[str],
    ) -> None:
        self._app, self._access, self._limits, self._counts = app, access, limits, counts
        self._routes, self._free = frozenset(routes), frozenset(free)
        self._rate = Rate(limits.rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        begun = time.perf_counter()
        number = headers.get(b"x-request-id", b"")
        if not _UUID.fullmatch(number):  # anything else could be somebody's name
            number = str(uuid.uuid4()).encode()
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = list(message.get("headers", ()))
                said = {name.lower() for name, _ in own}
                own += [(name, value) for name, value in HEADERS.items() if name not in said]
                own.append((b"x-request-id", number))
                message = {**message, "headers": own}
            try:
                async with asyncio.timeout(self._limits.seconds):
                    await send(message)
            except TimeoutError:
                raise ClientGone from None

        self._counts.in_progress += 1
        try:
            try:
                self._check(scope, headers, begun)
                await self._app(scope, receive, answer)
            except ClientGone:
                status = 499
            except Exception as error:
                if status:  # an answer that has begun is not ended: the connection is
                    _log.error("request %s failed on the way: %s", number.decode(), without_values(error))
                    status = 500
                elif isinstance(error, Problem):
                    await send_problem(error, answer)
                else:
                    _log.error("request %s failed: %s", number.decode(), without_values(error))
                    await send_problem(Problem(500, "Something unexpected happened; it is in the log."), answer)
        except ClientGone:
            status = 499
        except asyncio.CancelledError:  # the service ends, and waits no longer
            self._counts.cut += 1
            status = 500
            raise
        finally:
            self._counts.in_progress -= 1
            route = scope["path"] if scope["path"] in self._routes else OTHER
            write_down(self._counts, scope["method"], route, status, time.perf_counter() - begun, number)

    def _check(self, scope: Scope, headers: Mapping[bytes, bytes], now: float) -> None:
        self._access.check(headers)
        client = scope.get("client")
        address = str(client[0]) if client else ""
        if self._access.behind_proxy and (forwarded := headers.get(b"x-forwarded-for")):
            address = forwarded.rpartition(b",")[2].strip().decode("latin-1")[:64]  # what the nearest proxy has seen
        if (wait := self._rate.wait(address, now)) > 0:
            detail = f"More than {self._limits.rate:g} requests per second. Wait a little."
            raise Problem(429, detail, headers={"Retry-After": str(max(1, round(wait)))})
        scope["dcsurv.known"] = known = self._access.knows(headers)
        if not known and scope["path"] not in self._free:
            detail = "This service asks for a token: send it as Authorization: Bearer."
            raise Problem(401, detail, headers={"WWW-Authenticate": "Bearer"})


def write_down(counts: ServiceCounts, method: str, route: str, status: int, seconds: float, number: bytes) -> None:
    """Count an answer, and write its line into the log."""
    counts.answered(method, route, status, seconds)
    _access.info("%s %s %d %.1f ms %s", method, route, status, 1000 * seconds, number.decode("ascii"))


async def send_problem(problem: Problem, send: Send) -> None:
    """Send what is wrong as problem details."""
    body = msgspec.json.encode(problem.document())
    headers: list[Any] = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode(), value.encode("latin-1")) for name, value in problem.headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def without_values(error: BaseException) -> str:
    """Say where an error happened and of which kind it is; its text could hold a value of a patient."""
    places = traceback.extract_tb(error.__traceback__)[-6:]
    where = " < ".join(f"{one.filename.rsplit('/', 1)[-1]}:{one.lineno} {one.name}" for one in reversed(places))
    return f"{type(error).__name__} at {where}"
