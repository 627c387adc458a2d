"""The service as an ASGI application on FastAPI."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dcsurv.service.endpoints import Endpoints
from dcsurv.service.guard import Access, Guard
from dcsurv.service.limits import Limits
from dcsurv.service.problems import Problem
from dcsurv.service.store import ModelStore

# Seconds between two looks at the model files.
_LOOK_EVERY: Final = 1.0
_DETAILS: Final = {404: "There is nothing at this address.", 405: "This address is not asked in this way."}


class StaticFile(Protocol):
    """A file that is given out as it is."""

    @property
    def media_type(self) -> str:
        """What it is."""

    @property
    def content(self) -> bytes:
        """What is in it."""


def make_app(
    store: ModelStore,
    *,
    limits: Limits | None = None,
    access: Access | None = None,
    page: Mapping[str, StaticFile] | None = None,
    page_policy: str = "default-src 'self'",
) -> FastAPI:
    """Return the service of some models as an ASGI application.

    Parameters
    ----------
    store : ModelStore
        The models, opened.
    limits : Limits or None, default None
        What it bears.
    access : Access or None, default None
        Who may ask; None: whoever is on this machine.
    page : mapping of str to StaticFile, or None, default None
        Files of the page by their path; ``""`` is the page itself.
    page_policy : str, default "default-src 'self'"
        Content-security-policy of the page.

    Returns
    -------
    FastAPI
        The application. While it runs, it looks for models that were replaced.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import dcsurv
    >>> from dcsurv.datasets import load_metabric
    >>> from dcsurv.service import ModelStore, make_app
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "breast@2.safetensors")
    ...     dcsurv.CoxPH(time_unit="days").fit(*load_metabric()).save(file)
    ...     store = ModelStore(file)
    ...     store.open()
    >>> make_app(store).title, store.describe()
    ('dcsurv', "1 model: 'breast 2'")
    """
    bounds, who = limits or Limits(), access or Access()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    endpoints = Endpoints(store, bounds, max(1, min(cores, 4)), needs_token=who.token is not None)

    @asynccontextmanager
    async def while_running(app: FastAPI) -> AsyncIterator[None]:
        store.watch(_LOOK_EVERY)
        try:
            yield
        finally:
            store.close()
            endpoints.close()

    app = FastAPI(title="dcsurv", openapi_url=None, docs_url=None, redoc_url=None, lifespan=while_running)
    posts = {
        "/v1/predict": endpoints.predict,
        "/v1/predict/csv": endpoints.predict_csv,
        "/v1/explain": endpoints.explain,
        "/v1/fhir/RiskAssessment": endpoints.assess,
    }
    gets = {
        "/v1/model": endpoints.model,
        "/v1/models": endpoints.models,
        "/health": endpoints.health,
        "/metrics": endpoints.metrics,
        "/openapi.json": endpoints.openapi,
    }
    for path, function in posts.items():
        app.add_route(path, function, methods=["POST"])
    for path, function in gets.items():
        app.add_route(path, function, methods=["GET"])
    files = {f"/{path}": file for path, file in (page or {}).items()}
    for path, file in files.items():
        app.add_route(path, _static(file, page_policy), methods=["GET"])
    app.router.redirect_slashes = False
    app.state.counts = store.counts  # for what is answered before a request could be read
    app.add_exception_handler(HTTPException, _no_such_path)
    app.add_middleware(
        Guard,
        access=who,
        limits=bounds,
        counts=store.counts,
        routes=(*posts, *gets, *files),
        free=("/health", *files),
    )
    return app


def _static(file: StaticFile, policy: str):  # type: ignore[no-untyped-def]  # an endpoint
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-cache"}

    async def give(request: Request) -> Response:
        return Response(file.content, headers=headers, media_type=file.media_type)

    return give


def _no_such_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = _DETAILS.get(error.status_code, str(error.detail))
    raise Problem(error.status_code, detail, headers=dict(error.headers or {}))
