"""What the docs show for deployment works: the unit, the proxy, and the container as far as that can be told."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import typer

import dcsurv
from dcsurv.cli import app
from dcsurv.datasets import load_metabric
from programs import program

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "docs" / "deploy"
GUARD = 300  # seconds after which a program that hangs is given up


def options_of(words: list[str]) -> dict[str, Any]:
    """What the program makes of a command line, without running it; an unknown option is an error."""
    command = typer.main.get_command(app).commands[words[0]]
    return command.make_context(words[0], list(words[1:])).params


def settings_of(unit: str) -> dict[str, str]:
    return dict(re.findall(r"(?m)^([A-Z]\w+)=(.*)$", unit))


def test_the_unit_starts_a_service_that_may_do_nothing_else() -> None:
    said = settings_of((DEPLOY / "dcsurv.service").read_text(encoding="utf-8"))
    words = shlex.split(said["ExecStart"])
    assert words[0] == "/opt/dcsurv/bin/dcsurv"
    started = options_of(words[1:])
    assert started["host"] == "127.0.0.1"
    assert started["behind_proxy"]
    assert said["IPAddressAllow"] == "localhost"
    assert said["ReadOnlyPaths"] == str(started["path"])
    # What was accepted is answered within the time for one answer, and a little more.
    assert int(said["TimeoutStopSec"]) > started["seconds"] + 5


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    checker = program("systemd-analyze")
    unit = (DEPLOY / "dcsurv.service").read_text(encoding="utf-8").replace("/opt/dcsurv/bin/dcsurv", "/bin/true")
    (tmp_path / "dcsurv.service").write_text(unit, encoding="utf-8")
    done = subprocess.run(
        [checker, "verify", tmp_path / "dcsurv.service"], capture_output=True, text=True, timeout=GUARD
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_nginx_accepts_the_proxy(tmp_path: Path) -> None:
    checker, openssl = program("nginx"), program("openssl")
    proxy = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=x",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True, timeout=GUARD,
    )  # fmt: skip
    (tmp_path / "users").touch()
    for there, here in {
        "/etc/ssl/certs/calculator.pem": certificate,
        "/etc/ssl/private/calculator.key": key,
        "/etc/nginx/calculator.users": tmp_path / "users",
        "listen 443 ssl": "listen 127.0.0.1:8443 ssl",
    }.items():
        assert there in proxy
        proxy = proxy.replace(there, str(here))
    whole = f"pid {tmp_path}/pid; error_log stderr; events {{}} http {{ client_body_temp_path {tmp_path}; {proxy} }}"
    (tmp_path / "nginx.conf").write_text(whole, encoding="utf-8")
    done = subprocess.run(
        [checker, "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf"], capture_output=True, text=True, timeout=GUARD
    )
    assert done.returncode == 0, done.stderr
    assert "[warn]" not in done.stderr
    # The unit listens where the proxy asks, under the name that the proxy is asked by.
    unit = settings_of((DEPLOY / "dcsurv.service").read_text(encoding="utf-8"))
    started = options_of(shlex.split(unit["ExecStart"])[1:])
    assert f"proxy_pass http://{started['host']}:{started['port']};" in proxy
    assert started["allowed_host"] == re.findall(r"server_name (\S+);", proxy)


def instructions() -> list[tuple[str, str]]:
    lines = (DEPLOY / "Containerfile").read_text(encoding="utf-8").splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line and not line.startswith("#")]


def test_the_container_is_built_from_what_is_there_and_runs_without_rights() -> None:
    steps = instructions()
    for name, rest in steps:
        if name == "COPY" and not rest.startswith("--from="):
            assert all((ROOT / source).exists() for source in rest.split()[:-1]), rest
    installed = next(rest for name, rest in steps if "pip install" in rest)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert re.search(r"\.\[(\w+)\]", installed)[1] in project["optional-dependencies"]  # type: ignore[index]
    last = max(k for k, (name, _) in enumerate(steps) if name == "FROM")
    user = next(rest for name, rest in steps[last:] if name == "USER")
    assert user.isdecimal()
    assert int(user) > 0
    assert f"--uid {user}" in next(rest for name, rest in steps[last:] if "useradd" in rest)
    copied = {"README.md", "LICENSE", "src"}
    assert copied <= {
        one for name, rest in steps if name == "COPY" for one in rest.split()
    }  # what pyproject.toml names


def test_the_container_starts_and_is_found_healthy(tmp_path: Path) -> None:
    """Its command, run here: the model, the token and the port are ours."""
    steps = dict(instructions())
    words = [*json.loads(steps["ENTRYPOINT"]), *json.loads(steps["CMD"])]
    asked = options_of(words[1:])
    assert str(asked["port"]) == steps["EXPOSE"]
    health = json.loads(steps["HEALTHCHECK"].partition("CMD ")[2])
    X, y = load_metabric()
    (tmp_path / "models").mkdir()
    dcsurv.CoxPH(time_unit="days").fit(X, y).save(tmp_path / "models" / "cox.safetensors")
    (tmp_path / "token").write_text("0123456789abcdef0123456789abcdef")
    ours = {"/models": str(tmp_path / "models"), "/run/secrets/dcsurv-token": str(tmp_path / "token")}
    command = [sys.executable, "-c", "from dcsurv.cli import main; main()", *(ours.get(one, one) for one in words[1:])]
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            ready = re.search(r":(\d+)/ in a browser", service.stdout.readline())
            assert ready is not None
            check = [sys.executable, *(word.replace(steps["EXPOSE"], ready[1]) for word in health[1:])]
            assert subprocess.run(check, timeout=GUARD).returncode == 0
            service.send_signal(getattr(signal, steps["STOPSIGNAL"]))
            assert service.wait(timeout=GUARD) == 0
            assert subprocess.run(check, capture_output=True, timeout=GUARD).returncode != 0
        finally:
            service.kill()
