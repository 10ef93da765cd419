"""Files for containers, Prometheus, Grafana and systemd: read, and compared with what the server has. None is run."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("yaml", reason="needs PyYAML")

import yaml
from spec_serve.command import serve
from spec_serve.settings import ServeSettings

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
    there |= {"spec:method_switched_off"}  # only where a method failed
    dashboard = json.loads(read("grafana/spec.json"))
    asked = {name for p in dashboard["panels"] for t in p["targets"] for name in re.findall(r"spec:\w+", t["expr"])}

    assert asked - there == set()
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
    mounted = [v.split(":")[0] for s in compose["services"].values() for v in s.get("volumes", ())]
    assert [name for name in mounted if not (DEPLOY / name).is_file()] == []


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
