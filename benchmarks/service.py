"""The risk calculator under load, on loopback, part by part: how fast, how steady, what is lost.

``python benchmarks/service.py`` does the parts that docs/results/service/results.json does not have yet, each bounded
in count and time, and writes the page anew after each; ``--part speed`` does one again. The model is the default one of
METABRIC, with features in measured units. Speed is measured by ``wrk``; on a machine that does something else it is not
worth writing down.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "results" / "service"
sys.path.insert(0, str(ROOT / "tests"))

import dcsurv  # noqa: E402
from dcsurv.datasets import load_metabric  # noqa: E402
from serving import Running, records, request_bytes, serve  # noqa: E402

WRK = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = io.open("{body}"):read("*a")
function delay() return {delay} end
"""
WITHOUT_A_LIMIT = ("--rate", 0, "--no-access-log")


class Bench:
    """What the parts share: the model, its patients, and how long things may take."""

    def __init__(self, model: Path, place: Path, short: bool) -> None:
        self.model, self.place, self.short = model, place, short
        self.patients = records(load_metabric(labels="measured")[0])
        (place / "models").mkdir()
        shutil.copy(model, place / "models" / "metabric.safetensors")

    def serve(self, *options: object) -> Running:
        return serve(self.place / "models", *WITHOUT_A_LIMIT, *options)

    def question(self, patients: int) -> bytes:
        return json.dumps({"patients": self.patients[:patients]}).encode()

    def wrk(
        self, service: Running, patients: int, connections: int, seconds: float, delay: str = "0"
    ) -> dict[str, Any]:
        """Ask for so many seconds, and return what wrk says."""
        body, script = self.place / f"{patients}.json", self.place / "post.lua"
        body.write_bytes(self.question(patients))
        script.write_text(WRK.format(body=body, delay=delay))
        words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "30s", "--latency", "-s", script]
        text = subprocess.run(
            [*map(str, words), f"{service.address}v1/predict"], check=True, capture_output=True, text=True
        ).stdout
        spread = {share: _milliseconds(found) for share, found in re.findall(r"(?m)^ +(50|90|99)% +(\S+)", text)}
        requests = int(re.search(r"(\d+) requests in", text)[1])  # type: ignore[index]
        per_second = float(re.search(r"Requests/sec: +(\S+)", text)[1])  # type: ignore[index]
        errors = sum(map(int, re.findall(r"(?:connect|read|write|timeout|responses:) (\d+)", text)))
        return {"requests": requests, "per_second": per_second, "errors": errors, "milliseconds": spread}


def _milliseconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()  # type: ignore[union-attr]
    return round(float(number) * {"us": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}[unit], 2)


def memory(process: int) -> float:
    """Return how many megabytes a process holds."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())[1]) / 1024  # type: ignore[index]


# --- speed -----------------------------------------------------------------------------------------------------


def speed(bench: Bench) -> dict[str, Any]:
    """Single patients: as many as it can, and half of that."""
    seconds = 5 if bench.short else 30
    with bench.serve() as service:
        bench.wrk(service, 1, 32, 3)
        full = bench.wrk(service, 1, 32, seconds)
        pause = 16_000 / (full["per_second"] / 2)
        half = bench.wrk(service, 1, 16, seconds, f"math.random() * {2 * max(pause - 10, 1):.1f}")
    return {"cores": len(os.sched_getaffinity(0)), "all": full, "half": half}


def batches(bench: Bench) -> dict[str, Any]:
    """Compare a thousand patients a request with `predict` in one process."""
    script = (
        "import sys, time, pathlib; from dcsurv.persistence import load; from dcsurv.cohort import *\n"
        "model = load(sys.argv[1]); card = ModelCard.of(model)\n"
        "for _ in range(2):\n"
        "    begun = time.perf_counter(); predictor = Predictor(model, card, card.horizons, bands=0.9)\n"
        "    for rows in write_predictions(predictor, inspect_table(sys.argv[2]), pathlib.Path(sys.argv[3])): pass\n"
        "    print(rows / (time.perf_counter() - begun))\n"
    )
    import pandas as pd

    table = pd.concat([pd.DataFrame(bench.patients)] * (10 if bench.short else 50), ignore_index=True)
    table.to_csv(bench.place / "many.csv", index=False)
    words = [sys.executable, "-c", script, bench.model, bench.place / "many.csv", bench.place / "out.csv"]
    done = subprocess.run([str(one) for one in words], check=True, capture_output=True, text=True)
    alone = float(done.stdout.split()[-1])
    with bench.serve() as service:
        bench.wrk(service, 1000, 4, 3)
        found = bench.wrk(service, 1000, 4, 5 if bench.short else 30)
    per_second = 1000 * found["per_second"]
    return {"predict_per_second": alone, "service_per_second": per_second, "share": per_second / alone, "wrk": found}


def steady(bench: Bench) -> dict[str, Any]:
    """Memory over very many requests."""
    wanted = 5000 if bench.short else 100_000
    with bench.serve() as service:
        bench.wrk(service, 1, 32, 3)
        held, requests, errors = [memory(service.process.pid)], 0, 0
        while requests < wanted:
            found = bench.wrk(service, 1, 32, 2 if bench.short else 15)
            requests, errors = requests + found["requests"], errors + found["errors"]
            held.append(round(memory(service.process.pid), 1))
    return {"requests": requests, "errors": errors, "megabytes": held}


# --- clients that hold on --------------------------------------------------------------------------------------


async def ask(service: Running, content: bytes, times: int = 1) -> list[int]:
    """Ask on one connection, one after the other; return the statuses, 0 for what was lost."""
    host, port = service.address.removeprefix("http://").strip("/").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    found = []
    try:
        for _ in range(times):
            writer.write(content)
            found.append(0)
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
            await reader.readexactly(size)
            found[-1] = int(head[9:12])
            if b"connection: close" in head:
                break
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()
    return found


def connections(bench: Bench) -> dict[str, Any]:
    """Very many open connections that ask nothing, and some that do."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    many = 1000 if bench.short else 10_000

    async def hold(service: Running) -> dict[str, Any]:
        host, port = service.address.removeprefix("http://").strip("/").split(":")
        held = []
        for start in range(0, many, 500):
            more = (asyncio.open_connection(host, int(port)) for _ in range(min(500, many - start)))
            held += await asyncio.gather(*more)
        content = request_bytes(bench.question(1))
        asked = await asyncio.gather(*(ask(service, content, 10) for _ in range(10)))
        ended = await asyncio.gather(
            *(asyncio.wait_for(reader.read(), 120) for reader, _ in held), return_exceptions=True
        )
        for _, writer in held:
            writer.close()
        statuses = Counter(status for some in asked for status in some)
        return {
            "open": many,
            "asked_meanwhile": sum(statuses.values()),
            "answered": statuses[200],
            "ended_by_the_service": sum(one == b"" or isinstance(one, ConnectionError) for one in ended),
            "answered_afterwards": Counter(await ask(service, content))[200],
        }

    with bench.serve() as service:
        before = memory(service.process.pid)
        found = asyncio.run(hold(service))
        return found | {"megabytes": [round(before, 1), round(memory(service.process.pid), 1)]}


def slow(bench: Bench) -> dict[str, Any]:
    """Clients that send a byte now and then, or half a body, beside others."""
    many = 50 if bench.short else 500

    async def crawl(service: Running, content: bytes) -> bytes:
        host, port = service.address.removeprefix("http://").strip("/").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            for byte in content[:200]:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.5)
                if reader.at_eof():
                    break
            return await reader.read()
        except OSError:
            return b""
        finally:
            writer.close()

    async def half(service: Running, content: bytes) -> bytes:
        host, port = service.address.removeprefix("http://").strip("/").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(content[:-10])
        found = await reader.read()
        writer.close()
        return found

    async def together(service: Running) -> dict[str, Any]:
        content = request_bytes(bench.question(1))
        crawling = [asyncio.create_task(crawl(service, content)) for _ in range(many)]
        cut = [asyncio.create_task(half(service, content)) for _ in range(many)]
        asked = await asyncio.gather(*(ask(service, content, 50) for _ in range(20)))
        answers = await asyncio.gather(*crawling, *cut)
        return {
            "slow_heads": many,
            "half_bodies": many,
            "ended": Counter(one[9:12].decode() or "closed" for one in answers),
            "asked_meanwhile": sum(map(len, asked)),
            "answered": sum(status == 200 for some in asked for status in some),
        }

    with bench.serve() as service:
        return asyncio.run(together(service))


# --- ends and beginnings ---------------------------------------------------------------------------------------


def stops(bench: Bench) -> dict[str, Any]:
    """Terminated under load, again and again: what was accepted is answered."""
    rng = random.Random(0)

    async def load(service: Running, wait: float) -> Counter[int]:
        found: Counter[int] = Counter()
        content = request_bytes(bench.question(1))

        async def one() -> None:
            while True:
                try:
                    found.update(await ask(service, content, 1000))
                except OSError:
                    return  # it listens no more

        asking = [asyncio.create_task(one()) for _ in range(32)]
        await asyncio.sleep(wait)
        service.process.terminate()
        await asyncio.gather(*asking)
        return found

    found: Counter[int] = Counter()
    codes = []
    for _ in range(2 if bench.short else 20):
        with bench.serve() as service:
            found += asyncio.run(load(service, rng.uniform(0.5, 2.0)))
            codes.append(service.stop())
    return {"times": len(codes), "codes": Counter(map(str, codes)), "answered": found[200], "lost": found[0],
            "others": sum(found.values()) - found[200] - found[0]}  # fmt: skip


def replaced(bench: Bench) -> dict[str, Any]:
    """Replace a model file again and again under load, with a second service on the same folder."""
    folder = bench.place / "turning"
    folder.mkdir()
    X, y = load_metabric(labels="measured")
    files, times = [bench.model.read_bytes()], 5 if bench.short else 100
    for rows in (slice(0, 900), slice(900, None)):
        dcsurv.CoxPH(time_unit="days").fit(X.iloc[rows], y[rows]).save(folder / "made")
        files.append((folder / "made").read_bytes())
    known = [hashlib.sha256(one).hexdigest() for one in files]

    def put(number: int) -> None:
        (folder / "made").write_bytes(files[number])
        os.replace(folder / "made", folder / "metabric.safetensors")

    async def load(services: list[Running]) -> dict[str, Any]:
        answers: Counter[tuple[str, float]] = Counter()
        failed = 0
        enough = asyncio.Event()

        async def one(service: Running) -> None:
            nonlocal failed
            import httpx

            async with httpx.AsyncClient(base_url=service.address, timeout=60, trust_env=False) as client:
                while not enough.is_set():
                    done = await client.post("/v1/predict", json={"patients": bench.patients[:1]})
                    failed += done.status_code != 200
                    found = done.json()
                    answers[found["model"]["digest"], found["patients"][0]["horizons"][0]["survival"]] += 1

        asking = [asyncio.create_task(one(service)) for service in services * 4]
        for turn in range(1, times + 1):
            put(turn % len(files))
            await asyncio.sleep(1.5)
        enough.set()
        await asyncio.gather(*asking)
        numbers = {digest: {number for other, number in answers if other == digest} for digest in known}
        return {
            "replacements": times,
            "services": len(services),
            "answers": sum(answers.values()),
            "failed": failed,
            "digests": len({digest for digest, _ in answers}),
            "of_no_known_model": sum(count for (digest, _), count in answers.items() if digest not in known),
            "digests_with_two_numbers": sum(len(one) > 1 for one in numbers.values()),
        }

    put(0)
    with serve(folder, *WITHOUT_A_LIMIT) as first, serve(folder, *WITHOUT_A_LIMIT) as second:
        return asyncio.run(load([first, second]))


def fuzz(bench: Bench) -> dict[str, Any]:
    """Make up requests from the schema, valid and not: every answer is one that the schema names."""
    import schemathesis
    from hypothesis.errors import Unsatisfiable
    from schemathesis.checks import load_all_checks
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    load_all_checks()
    X, y = load_metabric(labels="measured")
    folder = bench.place / "fuzzed"
    folder.mkdir()
    dcsurv.CoxPH(time_unit="days").fit(X, y).save(folder / "cox.safetensors")
    statuses: Counter[str] = Counter()
    failures: list[str] = []
    with serve(folder, *WITHOUT_A_LIMIT) as service:
        schema = schemathesis.openapi.from_url(f"{service.address}openapi.json")
        for operation in [found.ok() for found in schema.get_all_operations()]:
            excluded = [positive_data_acceptance] if operation.path.endswith("csv") else []
            for mode in schemathesis.GenerationMode:
                try:
                    _every_answer_is_named(operation, mode, excluded, 50 if bench.short else 800, statuses)
                except Unsatisfiable:
                    continue  # nothing invalid can be made where nothing is asked for
                except BaseException as error:
                    failures.append(f"{operation.label} ({mode.value}): {error}"[:2000])
    examples = sum(statuses.values())
    return {"examples": examples, "statuses": dict(sorted(statuses.items())), "failures": failures}


def _every_answer_is_named(
    operation: Any, mode: Any, excluded: list[Any], examples: int, statuses: Counter[str]
) -> None:
    from hypothesis import HealthCheck, given, seed, settings

    @seed(0)
    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def holds(case: Any) -> None:
        done = case.call()
        statuses[str(done.status_code)] += 1
        case.validate_response(done, excluded_checks=excluded)

    holds()


PARTS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "speed": speed, "batches": batches, "steady": steady, "connections": connections, "slow": slow, "stops": stops,
    "replaced": replaced, "fuzz": fuzz,
}  # fmt: skip


def page(results: dict[str, Any]) -> str:
    """Return the results as a page."""
    lines = ["# The risk calculator under load", "", "Made by `python benchmarks/service.py`, on loopback.", ""]
    lines += ["| what | found |", "|---|---|"]
    if one := results.get("speed"):
        every, half = one["all"], one["half"]
        lines.append(
            f"| one patient a request, {one['cores']} cores | {every['per_second']:.0f} requests per second; at "
            f"{half['per_second']:.0f} per second half are answered within {half['milliseconds']['50']:g} ms, 99 % "
            f"within {half['milliseconds']['99']:g} ms; {every['errors'] + half['errors']} errors |"
        )
    if one := results.get("batches"):
        lines.append(
            f"| 1,000 patients a request | {one['service_per_second']:,.0f} patients per second, {one['share']:.0%} of "
            f"`predict` in one process ({one['predict_per_second']:,.0f}) |"
        )
    if one := results.get("steady"):
        held = one["megabytes"]
        lines.append(
            f"| memory over {one['requests']:,} requests | {held[1]:.0f} MB after the first part, {held[-1]:.0f} MB "
            f"after the last, at most {max(held):.0f} MB; {one['errors']} errors |"
        )
    if one := results.get("connections"):
        lines.append(
            f"| {one['open']:,} open connections | {one['answered']} of {one['asked_meanwhile']} requests answered "
            f"meanwhile; {one['ended_by_the_service']:,} ended by the service; {one['megabytes'][0]:.0f} to "
            f"{one['megabytes'][1]:.0f} MB |"
        )
    if one := results.get("slow"):
        ended = ", ".join(f"{count} × {status}" for status, count in sorted(one["ended"].items()))
        lines.append(
            f"| {one['slow_heads']} slow heads and {one['half_bodies']} half bodies | ended: {ended}; "
            f"{one['answered']} of {one['asked_meanwhile']} other requests answered |"
        )
    if one := results.get("stops"):
        lines.append(
            f"| terminated under load (SIGTERM), {one['times']} times | {one['answered']:,} answered, "
            f"{one['lost']} lost, {one['others']} refused |"
        )
    if one := results.get("replaced"):
        lines.append(
            f"| a model replaced {one['replacements']} times, {one['services']} services | {one['answers']:,} answers "
            f"of {one['digests']} models, {one['failed']} failed, {one['of_no_known_model']} of an unknown model, "
            f"{one['digests_with_two_numbers']} digests with two numbers |"
        )
    if one := results.get("fuzz"):
        statuses = ", ".join(f"{count} × {status}" for status, count in one["statuses"].items())
        lines.append(f"| {one['examples']:,} requests from the schema | {statuses}; {len(one['failures'])} failures |")
    return "\n".join(lines) + "\n"


def fitted(place: Path) -> Path:
    """Fit the default model."""
    X, y = load_metabric(labels="measured")
    dcsurv.CalibratedEnsemble(time_unit="days").fit(X, y).save(place / "default.safetensors")
    return place / "default.safetensors"


def main() -> None:
    """Do the parts that are missing, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="the default model of METABRIC; fitted if not given")
    parser.add_argument("--part", choices=PARTS, action="append", help="do this part, also if it was done before")
    parser.add_argument("--short", action="store_true", help="a look at each part, not a result")
    parser.add_argument("--output", type=Path, default=OUT)
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    file = asked.output / "results.json"
    results = json.loads(file.read_text("utf-8")) if file.exists() else {}
    for name in asked.part or [one for one in PARTS if one not in results]:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as place:
            model = asked.model or fitted(Path(place))
            results[name] = PARTS[name](Bench(model, Path(place), asked.short))
        results[name]["seconds"] = round(time.monotonic() - begun, 1)
        file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (asked.output / "README.md").write_text(page(results), encoding="utf-8")
        print(name, json.dumps(results[name]))


if __name__ == "__main__":
    main()
