"""Replicas behind Ray Serve, on a cluster of this machine alone."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("ray.serve", reason="needs the extra ray")
pytest.importorskip("prometheus_client", reason="needs the extra serve")

import httpx
import ray
from prometheus_client.parser import text_string_to_metric_families
from ray import serve
from spec_ray.serving import request_of
from spec_serve.ray import app

from spec_core import Run, UsageError, load

KEY = {"Authorization": "Bearer secret"}
DEPLOY = Path(__file__).parents[2] / "deploy"
NAMES = ("alpha", "beta", "gamma", "delta")


@pytest.fixture(scope="module")
def client():
    """Of two replicas."""
    port = free_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(num_cpus=4, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False)
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        options = {"model": "zoo:pico", "methods": "ngram", "threads": 1, "max_sequences": 2, "replicas": 2}
        serve.run(app({**options, "serve": {"api_key": "secret", "queue": 1}}), name="spec", route_prefix="/")
        yield httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=KEY, timeout=60)
        serve.shutdown()
        ray.shutdown()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def counter_by_replica(client, name):
    """{replica: sum} of a metric."""
    sums = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            if sample.name == name:
                replica = sample.labels["replica"]
                sums[replica] = sums.get(replica, 0) + sample.value
    return sums


def chat(name, turn):
    text = "".join(f"{name} {i} is {name}. " for i in range(12 + turn))
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0.8, "seed": turn}


@pytest.mark.slow
def test_a_conversation_returns_to_the_replica_that_has_its_beginning(client):
    """All cached but the last words, though other conversations came between; and both replicas have some."""
    for turn in range(2):
        for name in NAMES:
            answer = client.post("/v1/chat/completions", json=chat(name, turn)).json()
            usage = answer["usage"]
            if turn:
                assert usage["prompt_tokens_details"]["cached_tokens"] > 0.7 * usage["prompt_tokens"], name

    assert len(counter_by_replica(client, "spec:requests_total")) == 2


@pytest.mark.slow
def test_texts_are_those_of_a_run_alone(client):
    with Run(load("zoo:pico")) as run:
        for turn, name in enumerate(NAMES):
            body = chat(name, turn)
            result = run.generate(body["messages"], max_tokens=8, seed=turn, temperature=0.8).result
            answer = client.post("/v1/chat/completions", json=body).json()
            assert answer["choices"][0]["message"]["content"] == result.text


@pytest.mark.slow
def test_a_stream_comes_in_parts_and_ends(client):
    body = {"prompt": "import os\n", "max_tokens": 8, "temperature": 0, "stream": True}
    with client.stream("POST", "/v1/completions", json=body) as answer:
        lines = [line for line in answer.iter_lines() if line]

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert len(lines) > 3 and lines[-1] == "data: [DONE]" and '"finish_reason":"length"' in lines[-2]


@pytest.mark.slow
def test_refusals_of_replicas_and_of_the_ingress_look_the_same(client):
    unknown = client.post("/v1/completions", json={"prompt": "a", "nonsense": 1})
    long = client.post("/v1/completions", content=b"x" * 5_000_000)
    keyless = [client.get(path, headers={"Authorization": ""}) for path in ("/v1/models", "/metrics")]

    assert unknown.status_code == 400 and "nonsense" in unknown.json()["error"]["message"]
    assert long.status_code == 413 and long.json()["error"]["code"] == "body_too_large"
    assert [(a.status_code, a.json()["error"]["code"]) for a in keyless] == [(401, "invalid_api_key")] * 2


@pytest.mark.slow
def test_a_client_that_leaves_ends_its_text(client):
    body = {"prompt": "x =", "max_tokens": 1900, "ignore_eos": True, "stream": True}
    with ExitStack() as streams:
        for _ in range(4):
            answer = streams.enter_context(client.stream("POST", "/v1/completions", json=body))
            assert next(answer.iter_lines()).startswith("data: {")
    end = monotonic() + 20
    while sum(counter_by_replica(client, "spec:requests_running").values()) and monotonic() < end:
        sleep(0.05)

    text = client.get("/metrics").text
    assert 'finish_reason="cancelled"' in text and not sum(counter_by_replica(client, "spec:requests_running").values())


@pytest.mark.slow
def test_more_requests_than_replicas_and_queues_hold_are_refused(client):
    """Each replica has three, and one waits for them: of twelve at once some are refused, and none is lost."""
    body = {"prompt": "x =", "max_tokens": 600, "ignore_eos": True, "temperature": 0, "speculative.n_max": 0}
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: client.post("/v1/completions", json=body), range(12)))
    refused = [answer for answer in answers if answer.status_code != 200]

    assert 0 < len(refused) < 12
    assert {(r.status_code, r.headers["retry-after"], r.json()["error"]["code"]) for r in refused} == {
        (429, "1", "busy")
    }
    assert len({a.json()["choices"][0]["text"] for a in answers if a.status_code == 200}) == 1


@pytest.mark.slow
def test_a_request_of_a_replica_that_dies_can_be_sent_again(client):
    """It is refused with 503, or with 429 where it only waited and there is no room for it elsewhere."""
    body = {"prompt": "x =", "max_tokens": 1900, "ignore_eos": True, "cache_prompt": False, "speculative.n_max": 0}
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(client.post, "/v1/completions", json=body) for _ in range(4)]
        end, running = monotonic() + 20, {}
        while not sum(running.values()) and monotonic() < end:
            running = counter_by_replica(client, "spec:requests_running")
        busiest = max(running, key=running.get)
        ray.kill(ray.get_actor(f"SERVE_REPLICA::spec#Replica#{busiest}", namespace="serve"))
        answers = [one.result() for one in waiting]
    refused = [answer for answer in answers if answer.status_code != 200]
    codes = {(answer.status_code, answer.json()["error"]["code"]) for answer in refused}

    assert (503, "lost") in codes <= {(503, "lost"), (429, "busy")}
    assert all(answer.headers["retry-after"] == "1" for answer in refused)
    for name in NAMES:
        while (again := client.post("/v1/chat/completions", json=chat(name, 3))).status_code != 200:
            assert again.status_code in (429, 503) and monotonic() < end + 60, again.text


def test_a_request_without_a_prompt_is_routed_by_its_path():
    assert request_of({"type": "http", "path": "/health", "app": object()}, b"").prompt == "/health"


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(UsageError, match="replicas='many': it must be a whole number, at least 1"):
        app({"model": "zoo:pico", "replicas": "many"})
    with pytest.raises(UsageError, match=r"serve\.prompt_cache is a setting of one server"):
        app({"model": "zoo:pico", "serve": {"prompt_cache": "prompts.cache"}})


def test_the_file_for_a_cluster_is_one_that_ray_reads():
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    from ray.serve.schema import ServeDeploySchema

    (application,) = ServeDeploySchema(**yaml.safe_load((DEPLOY / "ray.yaml").read_text("utf-8"))).applications
    built = app(application.args)

    assert application.import_path == "spec_serve.ray:app" and built is not None
    assert {d.name for d in application.deployments} == {"Replica"}
