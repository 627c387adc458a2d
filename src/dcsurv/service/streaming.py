"""A file of patients in, a file of predictions out, piece by piece: the bytes that the command line writes."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dcsurv.cohort import CohortError, Predictor, apply_columns, inspect_table, read_chunks
from dcsurv.cohort.card import levels_of
from dcsurv.cohort.features import require_columns
from dcsurv.cohort.files import TableFile
from dcsurv.cohort.formats import TableFormat, clean_name
from dcsurv.cohort.prediction_files import csv_parts
from dcsurv.messages import plural
from dcsurv.service.asking import How, refuse
from dcsurv.service.limits import Limits
from dcsurv.service.problems import Problem, field_error
from dcsurv.service.reading import FieldFault
from dcsurv.service.receiving import ClientGone
from dcsurv.service.served import ServedModel

FILE_OPTIONS: Final = ("horizons", "bands", "level", "interval")
# What packed files, workbooks and Parquet files begin with.
_NO_TEXT: Final = (b"\x1f\x8b", b"PK\x03\x04", b"PAR1", b"\xd0\xcf\x11\xe0")
_NAME: Final = Path("the table")
_SHOWN = 10
_DESCRIPTORS: Final = Path("/proc/self/fd")
_TRUTH: Final = {"true": True, "false": False}


class FileJobs:
    """Files that are predicted at the same time, each in a thread.

    Parameters
    ----------
    limits : Limits
        How many, and for how long.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits, self._open = limits, 0

    def begin(self, served: ServedModel, given: Mapping[str, Any]) -> FileJob:
        """Begin with a file."""
        if self._open >= self._limits.files:
            raise Problem(503, "Too many files at once. Try again.", headers={"Retry-After": "5"})
        job = FileJob(served, _how(served, given), given.get("keep", []), self._limits.seconds, self._ended)
        self._open += 1
        return job

    def _ended(self) -> None:
        self._open -= 1


class FileJob:
    """One file: taken in, then predicted piece by piece, never faster than the client reads.

    Parameters
    ----------
    served : ServedModel
        The model.
    how : How
        What is predicted.
    keep : sequence of str
        Columns that are copied.
    seconds : float
        In which a piece has to be there.
    ended : callable
        Called once when all is over.
    """

    def __init__(
        self, served: ServedModel, how: How, keep: Sequence[str], seconds: float, ended: Callable[[], None]
    ) -> None:
        self._seconds, self._ended = seconds, ended
        # On disk, because it may be large, and without a name where that is possible: a crash leaves nothing behind.
        nameless = _DESCRIPTORS.is_dir()
        made: Any = tempfile.TemporaryFile if nameless else tempfile.NamedTemporaryFile
        self._file: Any = made(prefix="dcsurv-")
        place = _DESCRIPTORS / str(self._file.fileno()) if nameless else Path(self._file.name)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="dcsurv-file")
        self._predictor = Predictor(
            served.model, served.facts, how.horizons, [clean_name(name) for name in keep], how.level, how.interval
        )
        self._parts = _parts(self._predictor, self._file, place, served)

    @property
    def rows(self) -> int:
        """Patients predicted so far."""
        return self._predictor.rows

    def take(self, part: bytes) -> None:
        """Take in the next bytes of the file."""
        self._file.write(part)

    async def next(self) -> bytes | None:
        """Return the next piece of the predictions, None after the last."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._seconds):
                return await loop.run_in_executor(self._pool, next, self._parts, None)
        except CohortError as error:
            text = error.say(lambda parameter: str(parameter.name))
            raise Problem(422, text, [field_error("", "table", text)]) from None
        except TimeoutError:
            raise Problem(503, "The file takes too long.", headers={"Retry-After": "60"}) from None

    def close(self) -> None:
        """Let go of the file, after what the thread is at; all is over only then."""
        self._pool.submit(self._parts.close)
        last = asyncio.get_running_loop().run_in_executor(self._pool, self._file.close)
        last.add_done_callback(lambda _: self._ended())
        self._pool.shutdown(wait=False)


class FileAnswer(Response):
    """Sends the predictions of a file; if they fail on the way, the connection ends before the answer does.

    Parameters
    ----------
    job : FileJob
        Where the pieces come from.
    first : bytes
        The first of them.
    headers : mapping of str to str
        Of the answer.
    ended : callable
        Called when all is sent, or nothing more will be.
    """

    media_type = "text/csv"

    def __init__(self, job: FileJob, first: bytes, headers: Mapping[str, str], ended: Callable[[], None]) -> None:
        super().__init__(None, 200, dict(headers))
        del self.headers["content-length"]
        self._job, self._first, self._over = job, first, ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send piece after piece while somebody reads."""
        gone = asyncio.ensure_future(receive())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            part: bytes | None = self._first
            while part is not None and not gone.done():
                await send({"type": "http.response.body", "body": part, "more_body": True})
                part = await self._job.next()
            if gone.done():
                raise ClientGone
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            self._job.close()
            self._over()


def _how(served: ServedModel, given: Mapping[str, Any]) -> How:
    """Read what is to be predicted from the parameters of the address."""
    errors: list[FieldFault] = []
    asked: dict[str, Any] = {}
    if "horizons" in given:
        asked["horizons"] = given["horizons"].split(",")
    for name in ("bands", "interval"):
        if name in given:
            asked[name] = _TRUTH.get(given[name].lower(), given[name])
    if "level" in given:
        try:
            asked["level"] = float(given["level"])
        except ValueError:
            asked["level"] = given["level"]
    how = served.asking.how(asked, errors)
    labels = [one.label for one in how.horizons]
    if len(set(labels)) < len(labels):
        errors.append(field_error("/horizons", "horizon", "two horizons are written alike; leave one of them out."))
    refuse(errors)
    return how


def _parts(predictor: Predictor, file: Any, place: Path, served: ServedModel) -> Generator[bytes]:
    """Yield the predictions of a file as CSV; run in a thread."""
    file.flush()
    with place.open("rb") as stream:
        if stream.read(4).startswith(_NO_TEXT):
            raise CohortError("the body is no text.", remedy="Send CSV that is not packed.")
        if not stream.seek(0, 2):
            raise CohortError("the body is empty.", remedy="Send a table of patients with column names.")
    form = inspect_table(TableFile(_NAME, spooled=place))
    clash = [name for name in predictor.keep if name in predictor.names()]
    if clash:
        raise CohortError(f"keep names {clash[0]!r}, which is also the name of a prediction.")
    if "refuse" in served.policy.to_dict().values():
        _refuse_by_policy(form, served)
    yield from csv_parts(predictor, form)


def _refuse_by_policy(form: TableFormat, served: ServedModel) -> None:
    """Refuse a file with a value that the owner refuses, before anything is predicted."""
    policy, columns = served.policy, served.facts.columns
    require_columns(columns, form.columns)
    names = [one.name for one in columns if one.kind != "left out"]
    found: list[str] = []
    first = 0
    for chunk in read_chunks(form, columns=names, numbers=[one.name for one in columns if one.kind == "number"]):
        features, odd = apply_columns(chunk, columns, levels_of(served.model))
        outside = served.model.look_outside(features)
        rows: dict[int, str] = {}
        if policy.missing == "refuse":
            for name in names:
                rows |= dict.fromkeys(features[name].isna().to_numpy().nonzero()[0].tolist(), f"{name} is missing")
        if policy.unknown_level == "refuse":
            for one in odd:
                rows |= one.notes()
        if policy.out_of_range == "refuse" and outside is not None:
            rows |= outside.notes()
        found += [f"row {first + row + 1}: {rows[row]}" for row in sorted(rows)]
        first += len(chunk)
    if found:
        more = f"; and {plural(len(found) - _SHOWN, 'row')} more" if len(found) > _SHOWN else ""
        raise CohortError(f"the owner of this model does not allow such rows. {'; '.join(found[:_SHOWN])}{more}.")
