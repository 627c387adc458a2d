"""The risk calculator as a process: tokens, limits, slow clients, models replaced under load, a graceful end."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import select
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import dcsurv
from dcsurv.datasets import load_metabric
from dcsurv.messages import InputError
from dcsurv.service import Access, Limits, ModelStore, Problem, make_app
from dcsurv.service.files import name_and_version
from dcsurv.service.served import ServedModel
from dcsurv.service.server import bind
from serving import PATIENCE, Running, raw_answer, request_bytes, serve, serve_with, wait_until
from test_cli import run

TOKEN = "a-token-of-some-length"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
PATIENT: dict[str, Any] = {"age": 61.5, "chemotherapy": "yes"}
QUESTION: dict[str, Any] = {"patients": [PATIENT], "horizons": ["5y"]}


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Two models with the same features and other predictions, as the bytes of their files."""
    X, y = load_metabric(labels="measured")
    path = tmp_path_factory.mktemp("versions") / "one.safetensors"
    out = []
    for rows in (slice(0, 900), slice(900, None)):
        dcsurv.CoxPH(time_unit="days").fit(X[list(PATIENT)].iloc[rows], y[rows]).save(path)
        out.append(path.read_bytes())
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, versions: list[bytes]) -> Path:
    path = tmp_path_factory.mktemp("models")
    (path / "steady.safetensors").write_bytes(versions[0])
    return path


def put(path: Path, content: bytes) -> str:
    """Replace a file as a careful owner does, and return the digest of the new one."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    os.replace(fresh, path)
    return hashlib.sha256(content).hexdigest()


# --- who may ask, and how much ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with a token, words, refusals and small limits."""
    place = tmp_path_factory.mktemp("strict")
    (place / "token").write_text(f"{TOKEN}\n")
    words = {"title": "Five years", "event": "death", "features": {"age": {"unit": "years"}}}
    (place / "words.json").write_text(json.dumps(words))
    options = ["--token-file", place / "token", "--words", place / "words.json", "--max-rows", 3, "--max-body", 1]
    options += ["--out-of-range", "refuse", "--unknown-level", "refuse", "--missing", "refuse", "--rate", 2000]
    with serve(folder, *options, "--allowed-host", "calculator.example") as running:
        yield running


def allowed(strict: Running, path: str = "/v1/predict", **given: Any) -> httpx.Response:
    headers = {**BEARER, **given.pop("headers", {})}
    return strict.client.request("POST" if given else "GET", path, headers=headers, **given)


def test_without_the_token_nothing_is_answered(strict: Running) -> None:
    for headers in ({}, {"Authorization": "Bearer no"}, {"Authorization": f"Basic {TOKEN}"}):
        done = strict.client.post("/v1/predict", json=QUESTION, headers=headers)
        assert (done.status_code, done.headers["www-authenticate"]) == (401, "Bearer")
        assert strict.client.get("/v1/model", headers=headers).status_code == 401
        assert strict.client.get("/health", headers=headers).json() == {"status": "ok"}
    assert allowed(strict, json=QUESTION).status_code == 200
    assert allowed(strict, "/health").json()["models"][0]["name"] == "steady"
    schema = allowed(strict, "/openapi.json").json()
    assert schema["security"] == [{"token": []}]
    assert "401" in schema["paths"]["/v1/predict"]["post"]["responses"]
    assert TOKEN not in strict.logged()


def test_the_owners_words_and_refusals_are_in_the_card_and_the_schema(strict: Running) -> None:
    card = allowed(strict, "/v1/model").json()
    assert (card["title"], card["event"], card["features"][0]["unit"]) == ("Five years", "death", "years")
    assert set(card["policy"].values()) == {"refuse"}
    age = allowed(strict, "/openapi.json").json()["components"]["schemas"]["Patient"]["properties"]["age"]
    assert (age["type"], age["minimum"], age["maximum"]) == (
        ["number"],
        card["features"][0]["low"],
        card["features"][0]["high"],
    )
    done = allowed(strict, json={"patients": [{**PATIENT, "age": 140}]})
    assert done.json()["errors"][0]["code"] == "outside"
    csv = {"Content-Type": "text/csv"}
    done = allowed(strict, "/v1/predict/csv", content=b"age,chemotherapy\n61,yes\n140,no\n61,\n", headers=csv)
    assert done.status_code == 422
    assert "row 2: outside training range: age 140" in done.json()["detail"]
    assert "row 3: chemotherapy is missing" in done.json()["detail"]
    assert allowed(strict, "/v1/predict/csv", content=b"age,chemotherapy\n61,yes\n", headers=csv).status_code == 200


def test_limits_are_kept(strict: Running) -> None:
    assert allowed(strict, json={"patients": [PATIENT] * 4}).json()["errors"][0]["code"] == "rows"
    assert allowed(strict, content=b" " * 1_000_001, headers={"Content-Type": "application/json"}).status_code == 413
    endless = (b" " * 100_000 for _ in range(11))
    assert allowed(strict, content=endless, headers={"Content-Type": "application/json"}).status_code == 413
    with strict.connect() as connection:
        connection.sendall(request_bytes(b"{", length=10**12, more=[f"Authorization: Bearer {TOKEN}"]))
        assert b" 413 " in raw_answer(connection)


def test_names_of_the_service_can_be_added(strict: Running) -> None:
    assert strict.client.get("/health", headers={"Host": "calculator.example"}).status_code == 200
    assert strict.client.get("/health", headers={"Host": "calculator.example.org"}).status_code == 421
    page = {"Origin": "https://calculator.example"}
    assert allowed(strict, json=QUESTION, headers=page).status_code == 200


def test_another_host_needs_a_token_or_a_proxy(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DCSURV_TOKEN", raising=False)
    said = run("serve", folder, "--host", "0.0.0.0", code=2).stderr
    assert "--token-file" in said
    assert "--behind-proxy" in said
    (tmp_path / "token").write_text("short")
    assert "no usable token" in run("serve", folder, "--token-file", tmp_path / "token", code=2).stderr
    assert "no model file" in run("serve", tmp_path, code=2).stderr
    assert "there is no file or folder" in run("serve", tmp_path / "none", code=2).stderr
    (tmp_path / "torn.safetensors").write_bytes(b"torn")
    assert "torn.safetensors" in run("serve", tmp_path, code=2).stderr
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(InputError, match="Choose another port"):
            bind("127.0.0.1", taken.getsockname()[1])


def test_only_an_address_of_this_machine_alone_needs_no_token(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DCSURV_TOKEN", raising=False)
    for host in ("127.example.org", "127.0.0.1.example.org", "::", "192.168.0.1"):
        assert "there is no token" in " ".join(run("serve", folder, "--host", host, code=2).stderr.split())


def test_a_token_file_that_cannot_be_used_is_told_in_words(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00" * 40)
    (tmp_path / "long").write_bytes(b"x" * 5000)
    for name, reason in (
        ("none", "No such file or directory"),
        (".", "Is a directory"),
        ("binary", "holds no usable token"),
        ("long", "holds no usable token"),
    ):
        said = " ".join(run("serve", folder, "--token-file", tmp_path / name, code=2).stderr.split())
        assert reason in said
        assert "openssl rand" in said
        assert "Errno" not in said
        assert "codec" not in said


def test_what_is_said_at_the_start_and_at_the_end_is_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DCSURV_TOKEN", raising=False)

    def said(cut: int, *options: object) -> str:
        def ends_at_once(app: Any, bound: Any, limits: Any, ready: Any) -> int:
            bound.close()
            ready()
            return cut

        monkeypatch.setattr("dcsurv.service.server.run", ends_at_once)
        done = run("serve", folder, "--port", 0, *options)
        return " ".join((done.stdout + done.stderr).split())

    assert "any number of requests per second and address" in said(0, "--rate", 0)
    assert "50 requests per second and address" in said(0)
    assert "stopped; all that was asked is answered." in said(0)
    assert "stopped; 1 request was not answered." in said(1)
    assert "stopped; 2 requests were not answered." in said(2)


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:80", "http://localhost:80", None),
        ("[::1]:80", "http://[::1]", None),
        ("LOCALHOST", None, None),
        ("[::1]evil.example", None, 421),
        ("[::1]:80evil.example", None, 421),
        ("evil.example@localhost", None, 421),
        ("localhost/evil.example", None, 421),
        ("", None, 421),
        ("localhost", "http://[", 403),
        ("localhost", "http://[::1]evil.example", 403),
        ("localhost", "http://evil.example@localhost", 403),
        ("localhost", "null", 403),
    ],
)
def test_only_a_name_of_the_service_and_nothing_beside_it_passes(
    host: str, origin: str | None, status: int | None
) -> None:
    headers = {b"host": host.encode()} | ({} if origin is None else {b"origin": origin.encode()})
    if status is None:
        Access().check(headers)
        return
    with pytest.raises(Problem) as refused:
        Access().check(headers)
    assert refused.value.status == status


# --- clients that do not go on ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hasty(folder: Path) -> Iterator[Running]:
    limits = {"header_seconds": 2, "body_seconds": 2, "idle_seconds": 2, "rate": 0.1, "connections": 50}
    with serve_with(folder, limits=limits, access={"behind_proxy": True}) as running:
        yield running


def test_clients_that_do_not_go_on_are_ended(hasty: Running) -> None:
    sent = {
        "nothing": b"",
        "half a head": b"POST /v1/predict HTTP/1.1\r\nHost: loc",
        "half a body": request_bytes(b'{"patients": [', length=999, more=["X-Forwarded-For: 10.0.0.1"]),
        "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
        "an endless head": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 300_000,
    }
    connections = {}
    for name, content in sent.items():
        connections[name] = hasty.connect()
        try:
            connections[name].sendall(content)
        except OSError:
            assert name == "an endless head"
    answers = {name: raw_answer(connection) for name, connection in connections.items()}
    for connection in connections.values():
        connection.close()
    assert answers["nothing"] == b""
    assert b" 408 " in answers["half a head"]
    assert b" 408 " in answers["half a body"]
    assert b" 400 " in answers["no HTTP"]
    assert answers["an endless head"] == b"" or b" 431 " in answers["an endless head"]
    for name in ("half a head", "half a body", "no HTTP"):
        assert b"application/problem+json" in answers[name]
        assert b"x-request-id: " in answers[name]
        assert b"x-content-type-options: nosniff" in answers[name]
    # An idle connection is ended, too, after its answer.
    with hasty.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 10.0.0.2\r\n\r\n")
        assert b'{"status":"ok"' in raw_answer(connection)


GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


def test_what_cannot_be_read_is_answered_counted_and_logged(strict: Running) -> None:
    def sent(content: bytes) -> bytes:
        with strict.connect() as connection:
            connection.sendall(content)
            return raw_answer(connection)

    def counted(status: int) -> int:
        text = allowed(strict, "/metrics").text
        found = re.search(rf'(?m)^dcsurv_requests_total.*route="other",status="{status}"}} (\d+)$', text)
        return 0 if found is None else int(found[1])

    # A long head is refused, also if it comes all at once.
    for status, content in ((400, b"no HTTP\r\n\r\n"), (431, GET + b"X: " + b"x" * 66_000 + b"\r\n\r\n")):
        before = counted(status)
        answer = sent(content)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        number = re.search(rb"x-request-id: (\S+)", answer)
        assert number is not None
        assert re.search(rf"other other {status} .* {number[1].decode()}\n", strict.logged())
        assert counted(status) == before + 1
    assert sent(GET + b"X: " + b"x" * 60_000 + b"\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    # What was asked before is answered; then the connection is ended.
    for bad in (b"no HTTP\r\n\r\n", GET + b"X: " + b"x" * 66_000 + b"\r\n\r\n"):
        for good in (1, 3):
            answer = sent((GET + b"\r\n") * good + bad)
            assert answer.count(b"HTTP/1.1 200 ") == answer.count(b'{"status":') == good
    # A body that is no HTTP is refused at once.
    answer = sent(b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent in another way there")
def test_who_is_cut_off_by_a_second_signal_is_told(folder: Path) -> None:
    with serve(folder) as running, running.connect() as connection:
        connection.sendall(request_bytes(b'{"patients": [', length=999))
        # This one and that one.
        wait_until(lambda: "dcsurv_requests_in_progress 2" in running.client.get("/metrics").text)
        running.client.close()
        running.process.send_signal(signal.SIGINT)
        wait_until(lambda: not listens(running))  # it has begun to stop
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(PATIENCE) == 0
        assert "stopped; 1 request was not answered." in " ".join(running.logged().split())
        assert "all that was asked" not in running.logged()


@pytest.mark.skipif(not hasattr(select, "poll"), reason="this system has no poll")
def test_clients_that_do_not_read_are_ended(folder: Path) -> None:
    """Whether the answer is a stream or one piece, and whether the connection would be closed after it."""
    table = b"age,chemotherapy\n" + b"61.5,yes\n" * 60_000
    months = [f"{k}m" for k in range(1, 51)]
    large = json.dumps({"patients": [PATIENT] * 1500, "horizons": months}).encode()
    sent = {
        "stream": request_bytes(table, "/v1/predict/csv").replace(b"application/json", b"text/csv"),
        "one piece": request_bytes(large),
        "the last": request_bytes(large, more=["Connection: close"]),
    }
    with serve_with(folder, limits={"seconds": 5, "rate": 0}) as running:
        connections = {name: running.connect(4096) for name in sent}
        for name, connection in connections.items():
            connection.sendall(sent[name])
        for name, connection in connections.items():
            ended = select.poll()
            ended.register(connection, 0)  # only that it was ended, nothing is read
            assert ended.poll(1000 * PATIENCE), name
            connection.close()
        wait_until(lambda: 'route="/v1/predict/csv",status=' in running.client.get("/metrics").text)
        assert 'route="/v1/predict/csv",status="499"} 1' in running.client.get("/metrics").text


def test_too_many_requests_of_one_address_are_refused(hasty: Running) -> None:
    def status(address: str) -> int:
        # What a client says of itself comes before what the proxy adds.
        return hasty.client.get("/health", headers={"X-Forwarded-For": f"1.2.3.4, {address}"}).status_code

    assert 429 in [status("10.0.0.3") for _ in range(40)]
    assert status("10.0.0.4") == 200


def test_more_connections_than_are_borne_are_ended_and_others_go_on(hasty: Running) -> None:
    many = [hasty.connect() for _ in range(70)]
    ended = 0
    for connection in many:
        ended += raw_answer(connection) == b""
        connection.close()
    assert ended == 70
    assert hasty.client.get("/health", headers={"X-Forwarded-For": "10.0.0.5"}).status_code == 200


# --- models that are replaced ----------------------------------------------------------------------------------


def listens(service: Running) -> bool:
    try:
        service.connect().close()
    except ConnectionError:
        return False
    return True


def survival(answer: dict[str, Any]) -> float:
    return float(answer["patients"][0]["horizons"][0]["survival"])


def turning(service: Running) -> str | None:
    """The digest of the model that is replaced, as a service has it now."""
    models = service.client.get("/v1/models", headers=BEARER).json()["models"]
    return next((str(one["digest"]) for one in models if one["name"] == "turning"), None)


def load(service: Running, found: list[tuple[str, float]], enough: threading.Event) -> None:
    with httpx.Client(base_url=service.address, timeout=PATIENCE, trust_env=False, headers=BEARER) as client:
        while not enough.is_set():
            done = client.post("/v1/predict", json=QUESTION, params={"model": "turning"})
            assert done.status_code == 200, done.text
            found.append((done.json()["model"]["digest"], survival(done.json())))


def load_to_the_end(service: Running, answered: list[int], lost: list[Exception]) -> None:
    with httpx.Client(base_url=service.address, timeout=PATIENCE, trust_env=False) as client:
        while True:
            try:
                done = client.post("/v1/predict", json=QUESTION)
            except httpx.ConnectError:
                return  # it listens no more
            except httpx.HTTPError as error:
                lost.append(error)
                return
            answered.append(done.status_code)


def test_a_model_that_is_replaced_under_load_is_the_old_or_the_new_one(
    folder: Path, strict: Running, versions: list[bytes]
) -> None:
    """Two processes on one folder, three replacements, a torn file; then the end of one of them under load."""
    path = folder / "turning.safetensors"
    known = {hashlib.sha256(content).hexdigest() for content in versions}
    digest = put(path, versions[0])
    with serve(folder, "--rate", 0, "--no-access-log") as first, ThreadPoolExecutor(8) as pool:
        wait_until(lambda: turning(strict) == digest)  # it looks every second
        found: list[tuple[str, float]] = []
        enough = threading.Event()
        asking = [pool.submit(load, service, found, enough) for service in (first, strict, first, strict)]
        try:
            for turn in range(1, 4):
                digest = put(path, versions[turn % 2])
                while {turning(first), turning(strict)} != {digest}:
                    assert not any(one.done() for one in asking)
            path.write_bytes(versions[0][:-100])  # torn, and not even whole for a moment
            while first.client.get("/health").json()["status"] == "ok":
                assert not any(one.done() for one in asking)
            assert first.client.get("/health").json()["problems"][0]["answers"] is True
            assert turning(first) == digest
        finally:
            enough.set()
        for one in asking:
            one.result()
        numbers = {digest: {number for other, number in found if other == digest} for digest in known}
        assert {digest for digest, _ in found} == known
        assert [len(some) for some in numbers.values()] == [1, 1]
        assert len(set.union(*numbers.values())) == 2
        assert "the model before stays" in first.logged()
        # The first process ends, and nothing that it accepted is lost; the second goes on.
        answered: list[int] = []
        lost: list[Exception] = []
        asking = [pool.submit(load_to_the_end, first, answered, lost) for _ in range(8)]
        while len(answered) < 30:
            assert not any(one.done() for one in asking)
        assert first.stop() == 0
        for one in asking:
            one.result()
        assert (lost, set(answered)) == ([], {200})
        assert "all that was asked is answered" in first.logged()
    path.unlink()
    wait_until(lambda: turning(strict) is None)  # a file that is gone is withdrawn
    assert allowed(strict, "/health").json()["status"] == "ok"


def test_more_than_is_borne_is_refused_for_a_while(folder: Path) -> None:
    store = ModelStore(folder)
    store.open()

    async def status(path: str, **limits: Any) -> tuple[int, bool]:
        transport = httpx.ASGITransport(make_app(store, limits=Limits(**limits)))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            if path.endswith("csv"):
                done = await client.post(path, content=b"age\n1\n", headers={"Content-Type": "text/csv"})
            else:
                done = await client.post(path, json={"patient": PATIENT} if "explain" in path else QUESTION)
        return done.status_code, "retry-after" in done.headers

    assert asyncio.run(status("/v1/predict", concurrent=0)) == (503, True)
    assert asyncio.run(status("/v1/predict", seconds=0)) == (503, True)
    assert asyncio.run(status("/v1/predict", max_body=10)) == (413, False)
    assert asyncio.run(status("/v1/explain", explaining=0)) == (503, True)
    assert asyncio.run(status("/v1/predict/csv", files=0)) == (503, True)
    assert asyncio.run(status("/v1/predict")) == (200, False)


def test_what_goes_wrong_is_logged_without_the_values(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ModelStore(folder)
    store.open()

    def fail(*_: Any) -> None:
        raise RuntimeError("age 61.5 is the matter")

    monkeypatch.setattr(ServedModel, "predict", fail)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(make_app(store))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post("/v1/predict", json=QUESTION)

    done = asyncio.run(ask())
    assert (done.status_code, done.headers["content-type"]) == (500, "application/problem+json")
    assert "RuntimeError at test_service_process.py" in caplog.text
    assert "61.5" not in caplog.text + done.text


def test_a_store_goes_by_what_is_there(tmp_path: Path, versions: list[bytes]) -> None:
    for name in ("b@2", "b@10", "b@old", "a"):
        put(tmp_path / f"{name}.safetensors", versions[0])
    (tmp_path / ".hidden.safetensors").write_bytes(b"")
    put(tmp_path / "a@1.safetensors", versions[1])
    store = ModelStore(tmp_path)
    store.open()
    assert [one["problem"] for one in store.problems()] == ["a.safetensors has the same name and version."]
    assert [(one.name, one.version) for one in store.all()] == [("a", "1"), ("b", "10"), ("b", "2"), ("b", "old")]
    assert store.find("b").version == "10"
    (tmp_path / "b@10.safetensors").unlink()
    store.look()  # it may be on its way
    assert store.find("b").version == "10"
    store.look()
    assert store.find("b").version == "2"
    before = store.find("b")
    put(tmp_path / "b@2.safetensors", versions[0])  # the same again
    store.look()
    assert store.find("b") is before
    assert name_and_version(Path("x@.safetensors")) == ("x@", "1")
