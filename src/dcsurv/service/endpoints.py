"""What the service answers, path by path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dcsurv.service.batching import Batcher
from dcsurv.service.fhir import risk_assessment
from dcsurv.service.limits import Limits
from dcsurv.service.metrics import METRICS_TYPE, ServiceCounts
from dcsurv.service.openapi import openapi
from dcsurv.service.problems import Problem
from dcsurv.service.reasons import Reasons
from dcsurv.service.receiving import Receiving, check_type, parameters
from dcsurv.service.served import ServedModel
from dcsurv.service.store import ModelStore
from dcsurv.service.streaming import FILE_OPTIONS, FileAnswer, FileJobs

_JSON = "application/json"
_FHIR = "application/fhir+json"
# Bytes and patients from which on a request is read and its answer written in a thread, so that others do not wait.
_LARGE_BODY, _LARGE = 100_000, 100


class Endpoints:
    """The service behind its paths.

    Parameters
    ----------
    store : ModelStore
        The models.
    limits : Limits
        What is borne.
    threads : int
        Threads that predict.
    needs_token : bool
        Whether requests have to carry a token.
    """

    def __init__(self, store: ModelStore, limits: Limits, threads: int, *, needs_token: bool) -> None:
        self._store, self._limits, self._needs_token = store, limits, needs_token
        self.counts: ServiceCounts = store.counts
        self._batcher, self._reasons = Batcher(threads), Reasons(limits.explaining)
        self._files, self._receiving = FileJobs(limits), Receiving(limits)
        self._working, self._bytes = 0, 0

    def close(self) -> None:
        """End the threads."""
        self._batcher.close()
        self._reasons.close()

    # --- predictions --------------------------------------------------------------------------------------

    async def predict(self, request: Request) -> Response:
        """Answer ``POST /v1/predict``."""
        served = self._model(request)
        content = await self._receiving.body(request, _JSON)
        async with self._work(len(content)):
            large = len(content) > _LARGE_BODY
            document = await _run(large, self._receiving.decoded, content)
            asked = await _run(large, served.asking.predict, document, self._limits.max_rows)
            found = await self._batcher.predict(served, asked)
            body = await _run(len(asked) > _LARGE, lambda: msgspec.json.encode(served.answer(asked, found)))
        self._count(served, len(asked))
        return Response(body, media_type=_JSON)

    async def predict_csv(self, request: Request) -> Response:
        """Answer ``POST /v1/predict/csv``."""
        served = self._model(request, *FILE_OPTIONS)
        check_type(request, "text/csv")
        job = self._files.begin(served, parameters(request, FILE_OPTIONS, ("keep",)))
        try:
            async for part in self._receiving.parts(request, self._limits.max_file, "text/csv"):
                job.take(part)
            first = await job.next()
        except BaseException:
            job.close()
            raise
        headers = {
            "Content-Disposition": 'attachment; filename="predictions.csv"',
            "X-Model-Name": quote(served.name),
            "X-Model-Version": quote(served.version),
            "X-Model-Digest": served.digest,
        }
        return FileAnswer(job, first or b"", headers, lambda: self._count(served, job.rows))

    async def explain(self, request: Request) -> Response:
        """Answer ``POST /v1/explain``."""
        served = self._model(request)
        content = await self._receiving.body(request, _JSON)
        async with self._work(len(content)):
            asked, horizon = served.asking.explain(self._receiving.decoded(content))
            return _json(await self._reasons.explain(served, asked, horizon))

    async def assess(self, request: Request) -> Response:
        """Answer ``POST /v1/fhir/RiskAssessment``."""
        served = self._model(request)
        content = await self._receiving.body(request, _JSON)
        async with self._work(len(content)):
            asked, horizon, subject = served.asking.assess(self._receiving.decoded(content))
            found = await self._batcher.predict(served, asked)
        self._count(served, 1)
        patient = served.patients(asked, found)[0]
        return _json(risk_assessment(served, patient, horizon, subject), _FHIR)

    # --- what there is ------------------------------------------------------------------------------------

    async def model(self, request: Request) -> Response:
        """Answer ``GET /v1/model``."""
        return _json(self._model(request).card)

    async def models(self, request: Request) -> Response:
        """Answer ``GET /v1/models``."""
        parameters(request)
        models = self._store.all()
        listed = [
            {**one.identity, "title": one.card["title"], "kind": one.card["kind"], "default": one is models[0]}
            for one in models
        ]
        return _json({"models": listed})

    async def health(self, request: Request) -> Response:
        """Answer ``GET /health``; which models there are only to those who may ask."""
        models, problems = self._store.all(), self._store.problems()
        status = "ok" if models and not problems else "degraded" if models else "down"
        document: dict[str, Any] = {"status": status}
        if request.scope["dcsurv.known"]:
            document |= {"models": [one.identity for one in models], "problems": problems}
        return _json(document, status=200 if models else 503)

    async def metrics(self, request: Request) -> Response:
        """Answer ``GET /metrics``."""
        return Response(self.counts.text(), headers={"Content-Type": METRICS_TYPE})

    async def openapi(self, request: Request) -> Response:
        """Answer ``GET /openapi.json``."""
        return _json(openapi(self._model(request), self._limits, needs_token=self._needs_token))

    # --- the means ----------------------------------------------------------------------------------------

    def _model(self, request: Request, *others: str) -> ServedModel:
        given = parameters(request, others, ("keep",) if others else ())
        return self._store.find(given.get("model"), given.get("version"))

    def _count(self, served: ServedModel, patients: int) -> None:
        self.counts.patients[served.name, served.version] += patients

    @asynccontextmanager
    async def _work(self, size: int) -> AsyncIterator[None]:
        """Answer a request whose body is there, if not too many are at it."""
        if self._working >= self._limits.concurrent or self._bytes + size > self._limits.documents:
            raise Problem(503, "Too many requests at once. Try again.", headers={"Retry-After": "1"})
        self._working += 1
        self._bytes += size
        try:
            async with self._in_time():
                yield
        finally:
            self._working -= 1
            self._bytes -= size

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._limits.seconds):
                yield
        except TimeoutError:
            detail = f"The answer would take longer than {self._limits.seconds:g} seconds. Ask for less, or later."
            raise Problem(503, detail, headers={"Retry-After": "5"}) from None


async def _run(in_thread: bool, function: Any, *arguments: Any) -> Any:
    return await asyncio.to_thread(function, *arguments) if in_thread else function(*arguments)


def _json(document: Any, media_type: str = _JSON, status: int = 200) -> Response:
    return Response(msgspec.json.encode(document), status, media_type=media_type)
