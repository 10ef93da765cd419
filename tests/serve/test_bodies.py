"""Whatever a client sends, the answer is a text or a refusal that says what to change; never a 500."""

from __future__ import annotations

import json
import random

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_serve.shape import ENTRIES_MAX

CHAT = {"messages": [{"role": "user", "content": "x"}]}
TEXT = {"prompt": "x", "max_tokens": 2}
HALF = "\ud800"
UNKNOWN = "unknown_field"

WRONG = {
    "no-json": ("/v1/completions", "{", "not valid JSON"),
    "no-object": ("/v1/completions", "[]", "JSON object"),
    "a-number": ("/v1/completions", "1", "JSON object"),
    "empty": ("/v1/completions", "", None),
    "deep": ("/v1/completions", "[" * 100_000, None),
    "no-prompt": ("/v1/completions", {}, "prompt"),
    "no-messages": ("/v1/chat/completions", {"messages": []}, "messages"),
    "unknown-field": ("/v1/completions", {**TEXT, "max_tokes": 3}, "max_tokens"),
    "unknown-in-speculative": ("/v1/completions", {**TEXT, "speculative": {"n_mx": 3}}, "n_max"),
    "unknown-dotted": ("/completion", {"prompt": "x", "speculative.n_mx": 3}, "n_max"),
    "both-forms": ("/completion", {"prompt": "x", "speculative.n_max": 3, "speculative": {}}, "both given"),
    "unknown-method": ("/v1/completions", {**TEXT, "speculative": {"method": "nrgam"}}, "ngram"),
    "two-methods": ("/v1/completions", {**TEXT, "speculative": {"method": "ngram", "type": "ngram"}}, "both given"),
    "negative-length": ("/v1/completions", {**TEXT, "speculative": {"n_max": -1}}, "n_max"),
    "odd-probability": ("/v1/completions", {**TEXT, "speculative": {"p_min": 2}}, "confidence_min"),
    "temperature": ("/v1/completions", {**TEXT, "temperature": "hot"}, "temperature"),
    "schema-nan": ("/v1/completions", '{"prompt": "x", "json_schema": {"minimum": NaN}}', "json_schema"),
    "schema-infinite": ("/v1/completions", '{"prompt": "x", "json_schema": {"enum": [[1e999]]}}', "json_schema"),
    "variable-infinite": (
        "/v1/chat/completions",
        '{"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"a": [-Infinity]}}',
        "chat_template_kwargs",
    ),
    "tool-nan": (
        "/v1/responses",
        '{"input": "x", "tools": [{"type": "function", "name": "f", "parameters": {"default": NaN}}]}',
        "parameters",
    ),
    "temperature-nan": ("/v1/completions", '{"prompt": "x", "temperature": NaN}', "temperature"),
    "huge-number": ("/v1/completions", '{"prompt": "x", "seed": 1' + "0" * 5000 + "}", None),
    "top-p": ("/v1/completions", {**TEXT, "top_p": 0}, "top_p"),
    "bool": ("/v1/completions", {**TEXT, "n": True}, "n"),
    "n-zero": ("/v1/completions", {**TEXT, "n": 0}, "n"),
    "n-many": ("/v1/completions", {**TEXT, "n": 17}, "at most 16"),
    "prompts-many": ("/v1/completions", {**TEXT, "prompt": ["x"] * 17}, "at most 16"),
    "stops-many": ("/v1/completions", {**TEXT, "stop": ["x"] * 17}, "at most 16"),
    "stop-long": ("/v1/completions", {**TEXT, "stop": "x" * 257}, "256 characters"),
    "stop-empty": ("/v1/completions", {**TEXT, "stop": ""}, "empty stop"),
    "stop-half": ("/v1/completions", {**TEXT, "stop": HALF}, None),
    "prompt-half": ("/v1/completions", {"prompt": HALF}, None),
    "field-half": ("/v1/completions", {**TEXT, HALF: 1}, "unknown field"),
    "template-kwargs": ("/v1/chat/completions", {**CHAT, "chat_template_kwargs": {"tools": []}}, "cannot have 'tools'"),
    "messages": ("/v1/messages", {**CHAT, "max_tokens": 1, "system": 5}, "system"),
    "nested-prompts": ("/completion", {"prompt": [1, [2]]}, "mixes"),
    "prompt-empty": ("/v1/completions", {"prompt": []}, "prompt"),
    "prompt-ids": ("/v1/completions", {"prompt": [999_999]}, "vocabulary"),
    "prompt-negative": ("/v1/completions", {"prompt": [-1]}, "vocabulary"),
    "prompt-mixed": ("/v1/completions", {"prompt": [1, "x"]}, "prompt"),
    "prompt-long": ("/v1/completions", {"prompt": [5] * 5000}, "at most 2047"),
    "bias-key": ("/v1/completions", {**TEXT, "logit_bias": {"x": 1}}, "token ids"),
    "bias-token": ("/v1/completions", {**TEXT, "logit_bias": {"99999": 1}}, "logit bias"),
    "logprobs-many": ("/v1/completions", {**TEXT, "logprobs": 21}, "at most 20"),
    "top-without": ("/v1/chat/completions", {**CHAT, "top_logprobs": 2}, "logprobs"),
    "two-limits": ("/v1/chat/completions", {**CHAT, "max_tokens": 2, "max_completion_tokens": 3}, "differ"),
    "role": ("/v1/chat/completions", {"messages": [{"role": "robot", "content": "x"}]}, "not supported"),
    "image": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "image_url",
    ),
    "no-content": ("/v1/chat/completions", {"messages": [{"role": "user"}]}, "content"),
    "schema": ("/v1/chat/completions", {**CHAT, "response_format": {"type": "xml"}}, "response_format"),
    "tools": ("/v1/chat/completions", {**CHAT, "tools": [{}]}, "type"),
    "prediction": ("/v1/chat/completions", {**CHAT, "prediction": {"type": "content"}}, "content"),
    "no-prediction": (
        "/v1/chat/completions",
        {**CHAT, "prediction": {"type": "content", "content": "x"}},
        "--method prediction",
    ),
    "control": ("/v1/completions", {**TEXT, "speculative": {"control": "on"}}, "fixed"),
    "no-marks": ("/infill", {"input_prefix": "x", "input_suffix": "y"}, "no tokens"),
    "suffix": ("/v1/completions", {**TEXT, "suffix": "y"}, "not supported"),
    "priority": ("/v1/completions", {**TEXT, "priority": 1 << 40}, "priority"),
    "deadline": ("/v1/completions", {**TEXT, "deadline_seconds": 0}, "deadline_seconds"),
    "grammar": ("/completion", {"prompt": "x", "grammar": "root ::= x"}, "no rule 'x'"),
    "two-lengths": ("/completion", {"prompt": "x", "n_predict": 2, "max_tokens": 2}, "both given"),
    "llama-bias": ("/completion", {"prompt": "x", "logit_bias": [[5, True]]}, "[token, number]"),
    "detokenize": ("/detokenize", {"tokens": [999_999]}, "vocabulary"),
    "detokenize-text": ("/detokenize", {"tokens": "x"}, "tokens"),
    "tokenize-half": ("/tokenize", {"content": HALF}, None),
    "tokenize-long": ("/tokenize", {"content": "a" * 1_048_577}, "content"),
    "template": ("/apply-template", {"messages": "x"}, "messages"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_body_is_refused_with_what_to_change(name, server):
    path, body, message = WRONG[name]
    answer = post(server, path, body if isinstance(body, str) else json.dumps(body))
    error = answer.json()["error"]

    assert 400 <= answer.status_code < 500, answer.text
    assert {"message", "type", "param", "code"} <= set(error)
    assert message is None or message in error["message"], error["message"]


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({**CHAT, "colour": 1}, "colour", UNKNOWN),
        ({"messages": [{"role": "user", "content": "x", "colour": 1}]}, "messages.0.colour", UNKNOWN),
        ({"messages": [{"role": "user", "content": [{"type": "text", "x": 1}]}]}, "messages.0.content.0.x", UNKNOWN),
        ({"messages": [{"role": "user", "content": "x", "audio": 1}]}, "messages.0.audio", "not_supported"),
        ({**CHAT, "speculative": {"n_mx": 1}}, "speculative.n_mx", UNKNOWN),
        ({**CHAT, "speculative": {}, "speculative.n_max": 1}, "speculative.n_max", None),
        ({**CHAT, "stream_options": {"continuous_usage_stats": True}}, "stream_options.continuous_usage_stats", None),
    ],
)  # fmt: skip
def test_a_refused_field_has_its_whole_path(body, param, code, server):
    error = server.post("/v1/chat/completions", body).json()["error"]

    assert (error["param"], error["code"]) == (param, code)


def test_a_body_that_is_too_long_for_another_api_is_refused(server):
    """Its instructions are one message more than a chat may have."""
    items = [{"role": "user", "content": "x"}] * ENTRIES_MAX
    answer = server.post("/v1/responses", {"input": items, "instructions": "y"})

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "messages"


def test_a_failure_is_answered_with_the_id_of_its_request(server, monkeypatch):
    monkeypatch.setattr(server.engine, "submit", lambda jobs: 1 / 0)
    answer = server.post("/v1/completions", TEXT, headers={"X-Request-Id": "a-word", "Connection": "close"})

    assert answer.status_code == 500
    assert answer.headers["X-Request-Id"] == "a-word"
    assert "ZeroDivisionError" in answer.json()["error"]["message"]


def post(server, path, content):
    return server.post(path, content=content, headers={"Content-Type": "application/json"})


def test_a_body_that_calls_itself_no_json_is_refused(server):
    """A page of another origin can send such a body without being asked; JSON it cannot."""
    answer = server.post("/v1/completions", content='{"prompt": "x"}', headers={"Content-Type": "text/plain"})

    assert answer.status_code == 400
    assert "application/json" in answer.json()["error"]["message"]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("GET", "/v1/completions", 405)])
def test_a_wrong_path_or_method_is_refused_in_the_same_form(method, path, status, server):
    answer = server.client.request(method, server.url + path)

    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_no_random_body_is_a_failure(server):
    """500 bodies of known fields with values of every kind: a text, or a refusal."""
    rng = random.Random(4)
    statuses = []
    for path in (
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/completion",
        "/tokenize",
        "/detokenize",
        "/apply-template",
    ):
        fields = server.get("/openapi.json").json()["paths"][path]["post"]["requestBody"]["content"]
        name = fields["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
        known = list(server.get("/openapi.json").json()["components"]["schemas"][name]["properties"])
        for _ in range(80):
            body = {field: value(rng) for field in rng.sample(known, rng.randint(1, min(5, len(known))))}
            body |= {} if rng.random() < 0.2 else {"prompt": "x"} if "prompt" in known else {}
            body |= {"max_tokens": 2} if "max_tokens" in known else {}
            answer = post(server, path, json.dumps({**body, "stream": False} if "stream" in known else body))
            statuses += [(answer.status_code, path, body)] if answer.status_code >= 500 else []

    assert statuses == []


def value(rng):
    return rng.choice([
        None, True, False, 0, 1, -1, 3, 1 << 70, 0.5, -0.5, 1e308, "", "x", HALF, "5", [], [1], [[1]], ["x"], [None],
        {}, {"x": 1}, {"5": 1.5}, [{"role": "user", "content": "x"}], {"n_max": 1}, [{}],
    ])  # fmt: skip
