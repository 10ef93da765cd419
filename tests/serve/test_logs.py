"""The log as JSON, the id of a request, and spans: each has the numbers of a text and nothing of its words."""

from __future__ import annotations

import json
import logging

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_serve.logs import JsonLines

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


@pytest.mark.parametrize("given", ["", "two words", "x" * 129, "ä"])
def test_an_id_that_is_no_short_word_is_replaced(given, server):
    ids = [server.get("/health", headers={"X-Request-Id": given.encode()}).headers["x-request-id"] for _ in range(2)]

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


def test_a_text_is_a_span(server):
    pytest.importorskip("opentelemetry.sdk", reason="needs the extra traces")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from spec_serve.tracing import Tracing

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing("pico", provider)
    server.engine.finished.append(tracing)
    try:
        answer = server.post("/v1/completions", BODY).json()
    finally:
        server.engine.finished.remove(tracing)
    (span,) = exporter.get_finished_spans()

    assert span.attributes["gen_ai.response.id"] == answer["id"]
    assert span.attributes["gen_ai.usage.output_tokens"] == 5
    assert span.start_time < span.events[0].timestamp < span.end_time
    assert "secret" not in span.to_json()
