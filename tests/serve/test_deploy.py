"""Files for containers, Prometheus, Grafana and systemd: read, and compared with what the server has. None is run."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("yaml", reason="needs PyYAML")

import yaml
from spec_serve import health
from spec_serve.command import serve
from spec_serve.settings import ServeSettings

from tests.serve.test_keys_and_shutdown import certificate
from tests.serve.test_operation import program

DEPLOY = Path(__file__).parents[2] / "deploy"
OPTIONS = {name for option in serve.params for name in option.opts}
ROOM = 5
"""Seconds for the last event of cancelled texts."""


def read(name):
    return (DEPLOY / name).read_text("utf-8")


def flags(words):
    return {word for word in words if word.startswith("-")}


def test_the_dashboard_asks_for_metrics_that_the_server_has(server):
    server.post("/v1/completions", {"prompt": "import os\nimport os\n", "max_tokens": 30})
    there = {line.partition("{")[0].split()[0] for line in server.get("/metrics").text.splitlines() if line[:1] != "#"}
    dashboard = json.loads(read("grafana/spec.json"))
    asked = {name for p in dashboard["panels"] for t in p["targets"] for name in re.findall(r"spec:\w+", t["expr"])}

    assert asked - there == set()
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]
    assert [target["expr"] for target in targets if not target.get("legendFormat")] == []
    assert {p["datasource"]["uid"] for p in dashboard["panels"]} == {
        source["uid"] for source in yaml.safe_load(read("grafana/datasource.yaml"))["datasources"]
    }


def test_the_containers_start_the_server_with_options_that_it_has():
    compose, (job,) = yaml.safe_load(read("compose.yaml")), yaml.safe_load(read("prometheus.yml"))["scrape_configs"]
    entry = json.loads(re.search(r"^ENTRYPOINT (.*)$", read("Dockerfile"), re.M)[1])
    command = json.loads(re.search(r"^CMD (.*)$", read("Dockerfile"), re.M)[1])

    assert entry[:2] == ["spec", "serve"]
    assert flags([*entry, *command, *compose["services"]["spec"]["command"]]) <= OPTIONS
    assert job["static_configs"][0]["targets"] == ["spec:8080"] and "spec" in compose["services"]
    mounted = {v.split(":")[0] for s in compose["services"].values() for v in s.get("volumes", ())}
    files = {name for name in mounted if name.startswith(".")}
    assert [name for name in files if not (DEPLOY / name).is_file()] == []
    assert mounted - files == set(compose["volumes"])  # what is kept over a restart
    for service, folder in (("prometheus", "/prometheus"), ("grafana", "/var/lib/grafana")):
        assert folder in [v.split(":")[1] for v in compose["services"][service]["volumes"]]


def test_the_image_has_hubs_and_traces_and_is_sent_its_sources_alone():
    """``.dockerignore`` names what is sent: enough for a wheel, and no environment, build or history."""
    assert re.search(r"\.whl\)\[([\w,]+)\]", read("Dockerfile"))[1].split(",") == ["serve", "hub", "traces"]
    lines = (DEPLOY.parent / ".dockerignore").read_text("utf-8").splitlines()
    lines = [line for line in lines if line[:1] not in ("", "#")]
    sent = {line[1:] for line in lines if line.startswith("!")}
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text("utf-8"))
    packages = {folder.partition("/")[0] for folder in project["tool"]["setuptools"]["packages"]["find"]["where"]}

    assert lines[0] == "*" and [name for name in sent if not (DEPLOY.parent / name).exists()] == []
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", "constraints.txt", "spec_core"} <= sent
    assert packages - {"."} <= sent and not {".venv", "build", ".git", "tests"} & sent


def test_the_unit_has_folders_to_write_and_runs_without_a_key():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(read("spec-serve.service"))
    service = unit["Service"]

    assert service["EnvironmentFile"].startswith("-")
    assert service["StateDirectory"] == service["CacheDirectory"] == "spec"
    for name in ("HF_HOME", "XDG_CACHE_HOME", "HOME"):
        assert re.search(rf"\b{name}=%[CS]/spec", service["Environment"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_reads_the_unit(tmp_path):
    program = tmp_path / "spec"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "spec-serve.service"
    unit.write_text(read("spec-serve.service").replace("/opt/spec/bin/spec", str(program)))
    ended = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")


HEALTH = [sys.executable, "-m", "spec_serve.health"]


@pytest.mark.repeats(1)
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "TLS"])
def test_the_health_check_asks_the_server_that_its_options_describe(tmp_path, encrypted):
    """Another port, from a flag or a file, with TLS or without; a server that is not there is not healthy."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lines = ['model = "zoo:pico"', "[serve]", f"port = {port}"]
    if encrypted:
        cert, key = certificate(tmp_path)
        lines += [f'ssl_cert_file = "{cert}"', f'ssl_key_file = "{key}"']
    (tmp_path / "spec.toml").write_text("\n".join(lines))
    asked = {"cwd": tmp_path, "capture_output": True, "check": False}
    ask = lambda *options: subprocess.run([*HEALTH, *options], **asked).returncode

    assert ask("--port", str(port)) == 1
    with program(tmp_path):
        assert ask("--host", "0.0.0.0") == ask("-m", "zoo:pico", "--method", "ngram") == 0
        assert ask("--port", "1") == ask("-o", "serve.nonsense=1") == 1


@pytest.mark.parametrize(
    ("command_line", "options"),
    [
        (["/usr/bin/python", "/usr/bin/spec", "serve", "--host", "0.0.0.0", "-m", "serve"],
         ["--host", "0.0.0.0", "-m", "serve"]),
        (["python", "-m", "spec_core", "serve"], []),
        (["/sbin/init"], []),
        ([], []),
    ],
)  # fmt: skip
def test_the_options_of_a_container_are_read(command_line, options):
    assert health.options_of(b"".join(word.encode() + b"\0" for word in command_line)) == options


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:8080/health"),
        ("::", "http://[::1]:8080/health"),
        ("::1", "http://[::1]:8080/health"),
        ("10.0.0.7", "http://10.0.0.7:8080/health"),
        ("localhost", "http://localhost:8080/health"),
    ],
)
def test_a_server_of_every_network_is_asked_at_this_machine(host, url):
    assert health.url_of(ServeSettings(host=host)) == url


def test_what_stops_the_server_leaves_it_its_time():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(read("spec-serve.service"))
    own = ServeSettings().shutdown_seconds + ROOM
    compose = yaml.safe_load(read("compose.yaml"))

    assert flags(shlex.split(unit["Service"]["ExecStart"])) <= OPTIONS
    assert int(unit["Service"]["TimeoutStopSec"]) > own
    assert int(compose["services"]["spec"]["stop_grace_period"].removesuffix("s")) > own


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml", "spec-serve.service", "ray.yaml"])
def test_a_file_says_that_it_is_not_run(name):
    assert "Not run by the tests." in read(name)
