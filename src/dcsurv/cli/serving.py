"""``dcsurv serve``: a model for people, as a page, and for programs, as an API."""

from __future__ import annotations

import ipaddress
import logging
import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dcsurv.cli.app import command
from dcsurv.cli.groups import OptionGroup, described
from dcsurv.cli.shell import Shell, note
from dcsurv.cohort import CohortError

_TOKEN = "DCSURV_TOKEN"
_LEAST_TOKEN, _MOST_TOKEN = 16, 4096


class UnlikeTraining(StrEnum):
    """What is done with values unlike those of training."""

    NOTE = "note"
    REFUSE = "refuse"


@dataclass(frozen=True)
class PlaceOptions(OptionGroup, panel="Where and for whom"):
    """Where the service is asked, and who may ask."""

    host: Annotated[
        str,
        described(
            metavar="ADDRESS",
            help="Address to listen on. Any but this machine's own needs a token, or --behind-proxy.",
            show_default=True,
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        described(metavar="N", help="Port to listen on; 0: any that is free.", min=0, max=65535, show_default=True),
    ] = 8765
    token_file: Annotated[
        Path | None,
        described(
            metavar="FILE",
            help=f"File with the token that every request has to carry. Default: {_TOKEN} of the environment, if set.",
        ),
    ] = None
    behind_proxy: Annotated[
        bool,
        described(
            "--behind-proxy",
            help="A reverse proxy in front decides who may ask, and says in X-Forwarded-For who it was.",
        ),
    ] = False
    allowed_host: Annotated[
        list[str] | None,
        described(
            metavar="NAME",
            help="Name under which the service may be asked beside localhost. May be repeated.",
        ),
    ] = None


@dataclass(frozen=True)
class UnlikeOptions(OptionGroup, panel="Values unlike training"):
    """What is done with values that the model has not learnt from."""

    out_of_range: Annotated[
        UnlikeTraining, described(help="Numbers outside the range of training.", show_default=True)
    ] = UnlikeTraining.NOTE
    unknown_level: Annotated[
        UnlikeTraining, described(help="Levels that the model does not know.", show_default=True)
    ] = UnlikeTraining.NOTE
    missing: Annotated[UnlikeTraining, described(help="Values that are not known.", show_default=True)] = (
        UnlikeTraining.NOTE
    )


@dataclass(frozen=True)
class LimitOptions(OptionGroup, panel="Limits"):
    """What the service bears."""

    max_rows: Annotated[int, described(metavar="N", help="Patients of one JSON request.", min=1, show_default=True)] = (
        10_000
    )
    max_body: Annotated[
        int, described(metavar="MB", help="Size of one JSON request.", min=1, max=1000, show_default=True)
    ] = 8
    max_file: Annotated[
        int, described(metavar="MB", help="Size of one CSV request.", min=1, max=100_000, show_default=True)
    ] = 200
    seconds: Annotated[
        float, described(metavar="N", help="Time for one answer.", min=1, max=3600, show_default=True)
    ] = 30.0
    rate: Annotated[
        float,
        described(
            metavar="N", help="Requests per second of one client address; 0: any.", min=0, max=1e6, show_default=True
        ),
    ] = 50.0
    concurrent: Annotated[
        int, described(metavar="N", help="Requests at the same time.", min=1, max=10_000, show_default=True)
    ] = 256


@command
def serve(
    path: Annotated[
        Path, typer.Argument(help="Model file, or a folder of them: name@version.safetensors.", show_default=False)
    ],
    *,
    words: Annotated[
        Path | None,
        described(
            metavar="FILE",
            help="JSON file with the owner's words: title, notice, event, labels and units of features. "
            "Default: model.words.json beside model.safetensors, if there is one.",
        ),
    ] = None,
    languages: Annotated[
        Path | None,
        described(
            metavar="FOLDER", help="Folder with files of words for the page in further languages, such as fr.json."
        ),
    ] = None,
    place: PlaceOptions,
    unlike: UnlikeOptions,
    limits: LimitOptions,
    access_log: Annotated[
        bool,
        described(
            "--access-log/--no-access-log",
            help="Write a line for every request: method, path, status, time, number; nothing of a patient.",
            show_default=True,
            panel="Output",
        ),
    ] = True,
    shell: Shell,
) -> None:
    """Serve a model as a risk calculator: a page for people, an API for programs; on this machine only unless told.

    A folder may hold several models: breast@2.safetensors is version 2 of breast, and without a sign the version is 1.
    A file that is replaced is read again while the service goes on; one that cannot be used is left out, and what was
    there before goes on answering. /openapi.json says how to ask, /health how it is. Ctrl-C or a signal to terminate
    ends it when all that was asked is answered.
    """
    from dcsurv.messages import needs_extra, plural
    from dcsurv.service import (
        SERVED_POLICY,
        Access,
        Limits,
        ModelStore,
        Policy,
        make_app,
        page_files,
        read_owner_words,
    )

    with needs_extra("A service", "serve"):
        from dcsurv.service.server import bind, run

    token = _token(place.token_file)
    is_loopback = _is_loopback(place.host)
    if not is_loopback and token is None and not place.behind_proxy:
        raise CohortError(
            f"--host {place.host} can be asked from elsewhere, and there is no token.",
            remedy=f"Name a file with one by --token-file, or set {_TOKEN}; or say --behind-proxy if a reverse proxy "
            "in front decides who may ask.",
        )
    policy = Policy(unlike.out_of_range.value, unlike.unknown_level.value, unlike.missing.value)
    bounds = Limits(
        max_rows=limits.max_rows,
        max_body=limits.max_body * 1_000_000,
        max_file=limits.max_file * 1_000_000,
        seconds=limits.seconds,
        rate=limits.rate,
        concurrent=limits.concurrent,
    )
    _log_to_stderr(access_log)
    store = ModelStore(path, policy, None if words is None else read_owner_words(words))
    store.open()
    bound = bind(place.host, place.port)
    access = Access(token, _hosts(place, is_loopback), place.behind_proxy)
    app = make_app(store, limits=bounds, access=access, page=page_files(languages), page_policy=SERVED_POLICY)
    address = _address(place.host, bound.getsockname()[1])

    often = f"{bounds.rate:g} requests" if bounds.rate else "any number of requests"

    def ready() -> None:
        shell.say(f"Open {address} in a browser. {store.describe()}.")
        shell.say(
            f"Limits: {bounds.max_rows:,} patients and {limits.max_body} MB per request, {limits.max_file} MB per "
            f"file, {bounds.seconds:g} s per answer, {often} per second and address, {bounds.concurrent} at once."
        )
        shell.result({"address": address, "process": os.getpid(), "models": [one.identity for one in store.all()]})
        sys.stdout.flush()

    cut = run(app, bound, bounds, ready)
    left = f"{plural(cut, 'request')} {'was' if cut == 1 else 'were'} not answered."
    note(f"stopped; {left if cut else 'all that was asked is answered.'}")


def _token(file: Path | None) -> str | None:
    """Return the token that requests have to carry."""
    where = _TOKEN if file is None else f"--token-file {file}"
    remedy = f"It is one word of at least {_LEAST_TOKEN} letters, such as `openssl rand -hex 24` makes."
    if file is None:
        found = os.environ.get(_TOKEN)
    else:
        try:
            with file.open("rb") as opened:
                found = opened.read(_MOST_TOKEN + 1).decode("ascii", errors="replace")
        except OSError as error:
            remedy = f"Name a file that may be read, with the token in it. {remedy}"
            raise CohortError(f"{where} cannot be read ({error.strerror}).", remedy=remedy) from None
    if found is None:
        return None
    word = found.strip()
    if not _LEAST_TOKEN <= len(word) <= _MOST_TOKEN or not word.isascii() or not word.isprintable() or " " in word:
        raise CohortError(f"{where} holds no usable token.", remedy=remedy)
    return word


def _is_loopback(host: str) -> bool:
    """Tell whether an address is one of this machine alone; a name such as 127.example.org is not."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _hosts(place: PlaceOptions, is_loopback: bool) -> tuple[str, ...] | None:
    """Return the names under which the service may be asked; None: any, where a token or a proxy decides."""
    from dcsurv.service.guard import LOOPBACK

    named = {name.lower() for name in place.allowed_host or []}
    if not is_loopback and not named:
        return None
    own = f"[{place.host}]" if ":" in place.host else place.host.lower()
    return (*LOOPBACK, *sorted({*named, own} - {*LOOPBACK}))


def _address(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


class _ToStderr(logging.Handler):
    """Writes to standard error as it is at the moment, not as it was once."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(f"{self.format(record)}\n")


def _log_to_stderr(access_log: bool) -> None:
    """Write what the service has to say to standard error, one line each."""
    logger = logging.getLogger("dcsurv.service")
    handler = _ToStderr()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO if access_log else logging.WARNING)
    logger.propagate = False
