"""The log as JSON, the id of a request, and spans: each has the numbers of a text and nothing of its words."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

import httpx
from spec_serve.logs import JsonLines, JsonStream
from spec_serve.request_info import request_info

BODY = {"prompt": "a secret prompt", "max_tokens": 5, "temperature": 0}


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "spec_serve")
    return lambda: [JsonLines().format(record) for record in caplog.records if record.name == "spec_serve"]


def test_a_text_is_a_line_with_its_numbers_and_the_id_of_its_request(server, lines):
    answer = server.post("/v1/completions", BODY, headers={"X-Request-Id": "mine-7"})
    (line,) = lines()
    entry = json.loads(line)

    assert answer.headers["x-request-id"] == entry["request_id"] == "mine-7"
    assert (entry["request"], entry["tokens"], entry["level"]) == (answer.json()["id"], 5, "INFO")
    assert "secret" not in line


@pytest.mark.parametrize("request_id", ["", "two words", "x" * 129, "ä"])
def test_an_id_that_is_no_short_word_is_replaced(request_id, server):
    ids = [
        server.get("/health", headers={"X-Request-Id": request_id.encode()}).headers["x-request-id"] for _ in range(2)
    ]

    assert len(ids[0]) == 32 and len(set(ids)) == 2
    assert server.post("/v1/completions", {}).headers["x-request-id"]  # a refusal has one too


def test_a_failure_is_one_line_with_its_traceback():
    try:
        raise ValueError("no")
    except ValueError:
        import sys

        record = logging.LogRecord("spec_serve", logging.ERROR, "", 0, "failed %s", ("x",), sys.exc_info())
    entry = json.loads(JsonLines().format(record))

    assert entry["message"] == "failed x" and "ValueError: no" in entry["traceback"]


def test_a_line_has_route_client_and_time_to_the_first_token(server, lines):
    server.post("/v1/completions", BODY)
    server.post("/v1/chat/completions", {"messages": 3})
    text, refused = map(json.loads, lines())

    assert (text["route"], text["client"]) == ("/v1/completions", "127.0.0.1")
    assert 0 < text["first_token_seconds"] <= text["seconds"]
    assert (refused["path"], refused["status"], refused["client"]) == ("/v1/chat/completions", 400, "127.0.0.1")


@pytest.mark.parametrize("client", [None, (), ("nobody finish=stop", 1), ("", 0), 7])
def test_a_client_that_is_no_address_is_empty(client):
    scope = {"type": "http", "headers": [], "path": "/", "client": client}
    assert request_info(scope).client == ""
    assert request_info({**scope, "client": ("::1", 5)}).client == "::1"


def test_what_anything_writes_to_standard_error_is_json(capsys):
    """Notes, warnings, errors, progress that is overwritten, and parts of lines."""
    stream = JsonStream(sys.stderr)
    for text in ("memory plan:\n  5 MiB\n", "error: no\n", "warning: odd\n", "par", "t\n", "1%\r2%\n", "\n", "\x07é\n"):
        stream.write(text)
    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]

    assert [entry["message"] for entry in entries] == [
        "memory plan:\n  5 MiB", "error: no", "warning: odd", "part", "2%", "\x07é",
    ]  # fmt: skip
    assert [entry["level"] for entry in entries] == ["INFO", "ERROR", "WARNING", "INFO", "INFO", "INFO"]


PLACES = {
    "option": (["-o", "serve.log=json"], {}, ""),
    "environment": ([], {"SPEC_SERVE__LOG": "json"}, ""),
    "file": ([], {}, '[serve]\nlog = "json"\n'),
}


@pytest.mark.repeats(1)
@pytest.mark.parametrize(("options", "environment", "file"), PLACES.values(), ids=PLACES)
def test_every_line_of_a_server_is_json_from_the_first_one_on(tmp_path, options, environment, file):
    """The settings file, a warning, the memory plan, the prompt cache, an invalid request to uvicorn, and the end."""
    (tmp_path / "spec.toml").write_text(f'model = "zoo:pico"\nmethods = ["ngram"]\n{file}')
    command = [sys.executable, "-W", "always", "-m", "spec_core", "serve", "--port", "0", "--prompt-cache", "cache"]
    environment = {**os.environ, "SPEC_SERV__PORT": "1", **environment}
    process = subprocess.Popen([*command, *options], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        lines = []
        while not (match := re.search(r"at http://127.0.0.1:(\d+)", lines[-1] if lines else "")):
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        with socket.create_connection(("127.0.0.1", int(match[1]))) as client:
            client.sendall(b"NONSENSE\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 400")
        httpx.post(f"http://127.0.0.1:{match[1]}/v1/completions", json=BODY, timeout=30)
        process.send_signal(signal.SIGTERM)
        lines += process.stderr.read().splitlines()
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    messages = [json.loads(line)["message"] for line in lines]
    for part in ("SPEC_SERV__PORT", "spec.toml", "memory plan", "serving", "Invalid HTTP request", "tokens=5",
                 "prompt cache: 1 prefixes"):  # fmt: skip
        assert any(part in message for message in messages), (part, messages)


def test_an_error_of_the_start_is_json_too(tmp_path):
    (tmp_path / "spec.toml").write_text('model = "zoo:pico"\n[serve]\nlog = "json"\nport = 70000\n')
    command = [sys.executable, "-m", "spec_core", "serve"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 2
    entries = [json.loads(line) for line in ended.stderr.splitlines()]
    assert entries[-1]["level"] == "ERROR" and "port" in entries[-1]["message"]


def test_failures_are_counted_from_0(server):
    """A series that begins with its first failure has no increase that Prometheus could see."""
    text = server.get("/metrics").text

    for reason in ("stop", "complete", "length", "cancelled", "deadline", "error"):
        assert f'spec:requests_total{{finish_reason="{reason}"}}' in text
    for method in ("ngram", "draft-model"):
        assert f'spec:method_switched_off{{method="{method}"}} 0.0' in text
        for name in ("drafts", "draft_tokens", "accepted_tokens"):
            assert f'spec:spec_decode_num_{name}_total{{method="{method}"}}' in text
        assert f'spec:spec_decode_num_accepted_tokens_per_pos_total{{method="{method}",position="0"}}' in text


TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
CHAT = {"messages": [{"role": "user", "content": "a secret prompt"}], "max_tokens": 5, "temperature": 0}


@pytest.fixture
def spans(server):
    pytest.importorskip("opentelemetry.sdk", reason="needs the extra traces")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from spec_serve.tracing import Tracing

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing("pico", provider)
    server.engine.finished.append(tracing)
    server.engine.failures.append(tracing.fail)
    yield exporter.get_finished_spans
    server.engine.finished.remove(tracing)
    server.engine.failures.remove(tracing.fail)


def test_a_text_is_a_span(server, spans):
    answer = server.post("/v1/completions", BODY).json()
    (span,) = spans()

    assert span.name == "text_completion pico" and span.kind.name == "SERVER" and span.parent is None
    expected = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "spec-core",
        "gen_ai.request.model": "pico",
        "gen_ai.response.model": "pico",
        "gen_ai.request.max_tokens": 5,
        "gen_ai.request.temperature": 0.0,
        "gen_ai.response.id": answer["id"],
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": answer["usage"]["prompt_tokens"],
        "gen_ai.usage.output_tokens": 5,
        "http.route": "/v1/completions",
        "client.address": "127.0.0.1",
    }
    assert {name: span.attributes[name] for name in expected} == expected
    assert span.start_time < span.events[0].timestamp < span.end_time
    assert "secret" not in span.to_json()


ROUTES = {
    "/v1/completions": (BODY, "text_completion"),
    "/completion": ({"prompt": "a", "n_predict": 3}, "text_completion"),
    "/v1/chat/completions": (CHAT, "chat"),
    "/v1/messages": (CHAT, "chat"),
    "/v1/responses": ({"input": "a", "max_output_tokens": 3}, "chat"),
}


@pytest.mark.parametrize("path", ROUTES)
def test_a_span_continues_the_trace_of_its_request(server, spans, path):
    body, operation = ROUTES[path]
    server.post(path, body, headers={"traceparent": PARENT, "tracestate": "a=1"})
    (span,) = spans()

    assert f"{span.context.trace_id:032x}" == TRACE and f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    assert span.parent.is_remote and span.context.trace_state.get("a") == "1"
    assert span.attributes["gen_ai.operation.name"] == operation and span.name == f"{operation} pico"


MALFORMED = [
    "",
    "x",
    PARENT[:-1],
    PARENT.upper(),
    f"ff{PARENT[2:]}",
    f"{PARENT}-",
    f"00-{'0' * 32}-b7ad6b7169203331-01",
    f"00-{TRACE}-{'0' * 16}-01",
    "00-" + "a" * 4000,
    f"{PARENT},{PARENT}",
    "\xff",
]


@pytest.mark.parametrize("header", MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_trace_is_ignored(server, spans, header):
    assert server.post("/v1/completions", BODY, headers={"traceparent": header.encode("latin-1")}).status_code == 200
    (span,) = spans()

    assert span.parent is None and f"{span.context.trace_id:032x}" != TRACE


def test_two_headers_of_a_trace_are_none(server, spans):
    other = f"00-{'1' * 32}-{'2' * 16}-01"
    headers = [("traceparent", PARENT), ("traceparent", other)]
    server.client.post(server.url + "/v1/completions", json=BODY, headers=headers)

    assert spans()[0].parent is None


def test_a_trace_that_is_not_sampled_is_not_exported(server, spans):
    server.post("/v1/completions", BODY, headers={"traceparent": PARENT[:-2] + "00"})

    assert spans() == ()


def test_a_failed_text_is_a_span_with_its_error(server, spans, monkeypatch):
    def fails(target, batch, needs):
        raise RuntimeError("the forward failed")

    monkeypatch.setattr(type(server.engine.run.target), "forward", fails)
    assert server.post("/v1/chat/completions", CHAT, headers={"traceparent": PARENT}).status_code == 500
    (span,) = spans()

    assert span.status.status_code.name == "ERROR" and span.attributes["error.type"] == "RuntimeError"
    assert f"{span.context.trace_id:032x}" == TRACE
