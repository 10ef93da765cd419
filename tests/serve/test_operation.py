"""Limits, keys, deadlines, failures, and how a server ends."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from time import monotonic, sleep

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("httpx", reason="needs httpx")

import httpx
from spec_serve import command
from spec_serve.engine import Engine
from spec_serve.errors import ApiError
from spec_serve.job import Job
from spec_serve.settings import ServeSettings

from spec_core import Draft, Request, Run, UsageError, hookimpl, load
from spec_core.commands import construct_plugin
from tests.support.served import serving, slowly

LONG = {"prompt": "x", "max_tokens": 2000, "ignore_eos": True, "temperature": 0}
SHORT = {"prompt": "def add(a, b):\n", "max_tokens": 6, "temperature": 0}


def text(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"]


def alone(body):
    with Run(load("zoo:pico")) as run:
        return run.generate(body["prompt"], max_tokens=body["max_tokens"]).text


def test_a_full_queue_refuses_with_when_to_come_back():
    """One slot and one place to wait: the third text is refused, the first two are served."""
    with serving("zoo:pico", limits={"queue": 1}, max_sequences=1) as server, ThreadPoolExecutor(2) as pool:
        first = [pool.submit(server.post, "/v1/completions", {**LONG, "max_tokens": 400}) for _ in range(2)]
        wait_until(lambda: len(server.engine.open) == 2)
        refused = server.post("/v1/completions", SHORT)

        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) >= 1
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert [f.result().status_code for f in first] == [200, 200]
        assert text(server.post("/v1/completions", SHORT)) == alone(SHORT)


def wait_until(true, seconds=20):
    end = monotonic() + seconds
    while not true():
        assert monotonic() < end
        sleep(0.005)


def test_a_key_is_needed_where_there_is_one():
    with serving("zoo:pico", limits={"api_key": "kéy"}) as server:
        for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "kéy".encode()}, {"x-api-key": "k"}):
            refused = server.post("/v1/completions", SHORT, headers=headers)
            assert refused.status_code == 401 and refused.json()["error"]["code"] == "invalid_api_key"
        for path in ("/metrics", "/slots", "/props", "/v1/models"):
            assert server.get(path).status_code == 401
        assert server.get("/health").status_code == 200
        assert text(server.post("/v1/completions", SHORT, headers={"Authorization": "Bearer kéy".encode()}))


def test_a_long_body_is_refused_whether_or_not_it_says_its_length():
    with serving("zoo:pico", limits={"body_bytes": 1000}) as server:
        long = json.dumps({"prompt": "x" * 2000}).encode()
        json_type = {"Content-Type": "application/json"}
        for content in (long, iter([long[:600], long[600:]])):
            refused = server.post("/v1/completions", content=content, headers=json_type)
            assert refused.status_code == 413, refused.text
            assert "1000 bytes" in refused.json()["error"]["message"]


def test_a_prompt_longer_than_the_limit_is_refused():
    with serving("zoo:pico", limits={"prompt_max": 5}) as server:
        refused = server.post("/v1/completions", {**SHORT, "prompt": [5] * 6})

        assert refused.status_code == 400 and "at most 5" in refused.json()["error"]["message"]
        assert server.post("/v1/completions", {**SHORT, "prompt": [5] * 5}).status_code == 200


def test_a_priority_below_what_is_allowed_is_refused():
    """A user of a shared server cannot overtake the others."""
    with serving("zoo:pico", limits={"priority_min": 0}) as server:
        refused = server.post("/v1/completions", {**SHORT, "priority": -1})

        assert refused.status_code == 400 and "is below 0" in refused.json()["error"]["message"]
        assert server.post("/v1/completions", {**SHORT, "priority": 3}).status_code == 200
        assert server.post("/v1/completions", SHORT).status_code == 200


def test_a_deadline_ends_a_text_that_runs_and_one_that_waits():
    """What there is by then is the answer."""
    with serving("zoo:pico", max_sequences=1) as server, slowly(server), ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.post, "/v1/completions", {**LONG, "deadline_seconds": 0.4})
        wait_until(lambda: len(server.engine.open) == 1)
        waiting = server.post("/v1/completions", {**SHORT, "deadline_seconds": 0.05}).json()

        assert (waiting["choices"][0]["finish_reason"], waiting["choices"][0]["text"]) == ("deadline", "")
        ended = running.result().json()
        assert ended["choices"][0]["finish_reason"] == "deadline"
        assert 0 < ended["usage"]["completion_tokens"] < 2000
        whole = alone({**LONG, "max_tokens": ended["usage"]["completion_tokens"]})
        assert whole.startswith(ended["choices"][0]["text"])


def test_the_servers_own_limit_of_time_holds_for_all():
    with serving("zoo:pico", limits={"request_seconds": 0.2}) as server, slowly(server):
        assert server.post("/v1/completions", LONG).json()["choices"][0]["finish_reason"] == "deadline"
        assert server.post("/v1/completions", SHORT).json()["choices"][0]["finish_reason"] == "length"


def test_the_log_has_numbers_and_no_texts(caplog):
    body = {**SHORT, "prompt": "a_secret_name = 1", "max_tokens": 20}
    with caplog.at_level(logging.INFO, "spec_serve"), serving("zoo:pico") as server:
        answer = server.post("/v1/completions", body).json()
        server.post("/v1/completions", {**body, "stop": ["another_secret"]})

    lines = [record.getMessage() for record in caplog.records if record.name == "spec_serve"]
    assert [line.partition("=")[0] for line in lines] == ["request", "request", "stopped"]
    assert lines[0].startswith(f"request={answer['id']} text=0 finish=length ") and " tokens=20 " in lines[0]
    assert "secret" not in caplog.text and answer["choices"][0]["text"].strip() not in caplog.text


class Raising:
    """Drafts once, then fails."""

    def __init__(self):
        self.drafts = 0

    @hookimpl
    def draft(self, step):
        self.drafts += 1
        if self.drafts > 2:
            raise RuntimeError("a fault of this method")
        for seq, _ in step.undrafted:
            step.propose(seq, Draft([5]))


def test_a_method_that_raises_is_switched_off_and_no_text_is_lost():
    with serving("zoo:pico", [("raising", Raising())]) as server:
        answers = [server.post("/v1/completions", SHORT) for _ in range(2)]

        assert [text(answer) for answer in answers] == [alone(SHORT)] * 2
        assert "raising" in server.get("/props").json()["speculative"]["switched_off"]
        assert 'spec:method_switched_off{method="raising"} 1.0' in server.get("/metrics").text
        asked = server.post("/v1/completions", {**SHORT, "speculative": {"method": "raising"}})
        assert asked.status_code == 400 and "switched off" in asked.json()["error"]["message"]


def test_a_method_that_raises_fails_its_requests_where_that_is_asked_for():
    """Each with the name of the plugin and no traceback; the server goes on."""
    with serving("zoo:pico", [("raising", Raising())], on_error="raise") as server:
        failed = server.post("/v1/completions", SHORT)

        assert failed.status_code == 500
        assert "raising" in failed.json()["error"]["message"] and "Traceback" not in failed.text
        assert text(server.post("/v1/completions", {**SHORT, "speculative": {"n_max": 0}})) == alone(SHORT)


def test_a_forward_that_raises_ends_its_texts_and_no_others(monkeypatch):
    target = load("zoo:pico")
    forward, broken = type(target).forward, Event()

    def sometimes(self, batch, needs):
        if broken.is_set():
            raise RuntimeError("no memory")
        return forward(self, batch, needs)

    monkeypatch.setattr(type(target), "forward", sometimes)
    with serving(target) as server:
        broken.set()
        failed = server.post("/v1/completions", SHORT)
        with server.client.stream("POST", server.url + "/v1/completions", json={**SHORT, "stream": True}) as answer:
            events = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {")]
        broken.clear()

        assert failed.status_code == 500 and "RuntimeError" in failed.json()["error"]["message"]
        assert events[-1]["error"]["type"] == "server_error"
        assert text(server.post("/v1/completions", SHORT)) == alone(SHORT)
        assert server.get("/health").status_code == 200


def test_an_engine_that_has_stopped_says_so(monkeypatch):
    """Nobody waits for an answer that cannot come."""
    with serving("zoo:pico") as server, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.post, "/v1/completions", LONG)
        wait_until(lambda: server.engine.jobs)
        monkeypatch.setattr(server.engine, "_deliver", lambda: 1 / 0)

        assert waiting.result().status_code == 500
        wait_until(lambda: not server.engine.healthy)
        assert server.get("/health").status_code == 503
        assert server.post("/v1/completions", SHORT).status_code == 503


def test_an_engine_that_stops_while_a_request_comes_takes_none(monkeypatch):
    """A job that it never saw would be waited for without end."""

    class Orders:
        def put(self, order):
            engine.failed = RuntimeError("stopped")

    with Run(load("zoo:pico")) as run:
        engine = Engine(run, 1)
        monkeypatch.setattr(engine, "_commands", Orders())
        with pytest.raises(ApiError) as refused:
            engine.submit([Job(Request([5]), queue=None)])

    assert refused.value.status == 503 and not engine.open


def test_texts_that_run_at_the_end_are_finished(monkeypatch):
    """The server takes no more requests, and ends when running requests have ended."""
    with serving("zoo:pico") as server, ThreadPoolExecutor(1) as pool:
        body = {**LONG, "max_tokens": 300}
        running = pool.submit(server.post, "/v1/completions", body)
        wait_until(lambda: server.engine.jobs)
        server.server.should_exit = True
        answer = running.result().json()

    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 300


def test_texts_that_run_too_long_at_the_end_are_cancelled_with_what_they_have():
    with serving("zoo:pico", limits={"shutdown_seconds": 0.1}) as server, slowly(server), ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.events, "/v1/completions", LONG)
        wait_until(lambda: server.engine.counters.generated > 3)
        server.server.should_exit = True
        events = running.result()

    assert events[-1] == "[DONE]"
    assert events[-2]["choices"][0]["finish_reason"] == "cancelled"


@contextmanager
def program(folder, **environment):
    """``spec serve`` in a folder with settings: its process, and where it listens."""
    spec = [sys.executable, "-m", "spec_core", "serve", "--threads", "1"]
    process = subprocess.Popen(spec, cwd=folder, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True)
    try:
        lines = []
        while not (match := re.search(r"at (https?://\S+)", lines[-1] if lines else "")):
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        yield process, match[1]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_sigterm_ends_the_program_in_order(tmp_path):
    """The command itself: settings of a file, a streamed text, SIGTERM in the middle of it, exit code 0."""
    (tmp_path / "spec.toml").write_text('model = "zoo:pico"\nmethods = ["ngram"]\n[serve]\nport = 0\nalias = "tiny"\n')
    with program(tmp_path, SPEC_SERVE__SHUTDOWN_SECONDS="0.2") as (process, url):
        body = {**LONG, "model": "tiny", "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=30) as answer:
            lines = (line for line in answer.iter_lines() if line)
            next(lines)
            process.send_signal(signal.SIGTERM)
            last = list(lines)
        code, output = process.wait(timeout=30), process.stderr.read()

    assert code == 0, output
    assert last[-1] == "data: [DONE]"
    assert "Traceback" not in output


def test_an_address_that_cannot_be_had_is_refused(server):
    from spec_serve.server import listening_socket

    with pytest.raises(UsageError, match="cannot listen"):
        listening_socket(ServeSettings(port=int(server.url.rsplit(":", 1)[1])))
    with pytest.raises(UsageError, match="cannot listen"):
        listening_socket(ServeSettings(host="no.such.host.invalid"))


@pytest.mark.parametrize("settings", [{"prot": 1}, {"port": "x"}, {"port": 70_000}, {"queue": -1}, {"api_key": ""}])
def test_a_wrong_setting_is_refused(settings):
    with pytest.raises(UsageError):
        construct_plugin(ServeSettings, settings, "serve")


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(command, "NEEDED", ("fastapi", "no_such_package"))

    with pytest.raises(UsageError, match="needs no-such-package") as refused:
        command._check_installed()
    assert "spec-core[serve]" in refused.value.hint


def test_what_waits_starts_by_priority():
    """One slot: of two that wait, the lower number goes first, though it came later."""
    with serving("zoo:pico", max_sequences=1) as server, slowly(server), ThreadPoolExecutor(3) as pool:
        ended = []
        server.engine.finished.append(lambda job, result: ended.append(job.request.priority))

        def ask(**more):
            server.post("/v1/completions", {**SHORT, **more})

        running = pool.submit(ask, **{**LONG, "max_tokens": 600})
        wait_until(lambda: server.engine.run.running)
        asked = [running, pool.submit(ask, priority=1)]
        wait_until(lambda: len(server.engine.run.waiting) == 1)
        asked.append(pool.submit(ask, priority=-1))
        for future in asked:
            future.result()

    assert ended == [0, -1, 1]


@pytest.mark.parametrize(
    ("path", "body", "tokens"),
    [
        ("/v1/completions", {"prompt": "x"}, 16),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}, 7),
    ],
)
def test_a_text_has_the_servers_length_where_nobody_says(path, body, tokens):
    """16 tokens for a completion, unless the server was started with a length; for a chat the rest of the context."""
    more = {} if tokens == 16 else {"max_tokens": 7}
    with serving("zoo:pico", **more) as server:
        answer = server.post(path, {**body, "ignore_eos": True}).json()

    assert answer["usage"]["completion_tokens"] == tokens
