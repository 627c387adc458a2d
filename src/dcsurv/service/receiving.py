"""What arrives with a request: its body within limits of size and time, its media type, its model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any

import msgspec
from starlette.requests import Request

from dcsurv.messages import listed, shortened
from dcsurv.service.limits import Limits
from dcsurv.service.problems import Problem, field_error

# A body that is too large is still taken in up to so many times its limit, because most clients read no answer before.
_PATIENCE = 4
_CLOSE = {"Connection": "close"}


class Receiving:
    """Takes in the bodies of requests.

    Parameters
    ----------
    limits : Limits
        Of size and time.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits, self._held = limits, 0

    @staticmethod
    def decoded(content: bytes) -> Any:
        """Return the JSON document of a body."""
        try:
            return msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            # What is said names a place, never what is there.
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise Problem(400, f"The body is not valid JSON: {shortened(reason)}.") from None

    async def body(self, request: Request, *types: str) -> bytes:
        """Return the body of a request."""
        parts: list[bytes] = []
        held = 0
        try:
            async for part in self.parts(request, self._limits.max_body, *types):
                held += len(part)
                self._held += len(part)
                if self._held > self._limits.bodies:
                    detail = "The service is receiving as much as it can hold. Try again."
                    raise Problem(503, detail, headers={"Retry-After": "1", **_CLOSE})
                parts.append(part)
        finally:
            self._held -= held
        return b"".join(parts)

    async def parts(self, request: Request, limit: int, *types: str) -> AsyncIterator[bytes]:
        """Yield the body of a request as it comes, in time and not too much of it."""
        check_type(request, *types)
        announced = request.headers.get("content-length", "0")
        size, most = 0, _PATIENCE * limit
        too_large = Problem(413, f"The body may have {limit:,} bytes. Send it in parts.", headers=_CLOSE)
        if int(announced) > most:
            raise too_large
        loop = asyncio.get_running_loop()
        end = loop.time() + self._limits.body_seconds
        while True:
            try:
                async with asyncio.timeout_at(end):
                    message = await request.receive()
            except TimeoutError:
                detail = f"The body did not arrive within {self._limits.body_seconds:g} seconds."
                raise Problem(408, detail, headers=_CLOSE) from None
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            size += len(part)
            if size <= limit:
                if part:
                    yield part
            elif size > most:
                raise too_large
            if not message.get("more_body", False):
                if size > limit:
                    raise too_large
                return


class ClientGone(Exception):
    """Whoever asked is not there any more."""


def check_type(request: Request, *types: str) -> None:
    """Refuse a body of another kind: a page of somebody else can send plain text, but not JSON."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in types:
        raise Problem(415, f"The body has to be of the type {listed(types)}; say so in Content-Type.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "The body may not be packed.")


def parameters(request: Request, known: Collection[str] = (), several: Collection[str] = ()) -> dict[str, Any]:
    """Return the parameters of the address, each once; no patient's value belongs there."""
    if not request.scope["query_string"]:
        return {}
    out: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in several:
            out.setdefault(name, []).append(value)
        elif name in ("model", "version", *known) and name not in out:
            out[name] = value
        else:
            allowed = listed(["model", "version", *known, *several], 12)
            detail = f"the address may hold {allowed}, each once. Values of patients belong into the body."
            raise Problem(422, detail, [field_error("", "parameter", detail)])
    return out
