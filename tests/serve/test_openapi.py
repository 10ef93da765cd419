"""Answers are what the OpenAPI description says; ``tests/campaigns/openapi.py`` sends thousands of requests."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("schemathesis", reason="needs the extra test")

from tests.support.openapi import describe_server

CHAT = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
TRACED = {"speculative": {"trace": True}}
BODIES = {
    "/v1/completions": [
        {"prompt": "x = ", "max_tokens": 4},
        {"prompt": ["x", "y"], "max_tokens": 4, "echo": True, "logprobs": 1, **TRACED},
        {"prompt": "x", "max_tokens": 4, "stream": True},
        {"prompt": []},
    ],
    "/v1/chat/completions": [
        CHAT,
        {**CHAT, "logprobs": True, "top_logprobs": 2, "n": 2, "verbose": True, **TRACED},
        {**CHAT, "tools": [TOOL], "tool_choice": "required", "max_tokens": 100},
        {**CHAT, "stream": True},
        {**CHAT, "colour": 1},
    ],
    "/v1/chat/completions/input_tokens": [CHAT],
    "/v1/responses": [
        {"input": "x", "max_output_tokens": 4},
        {"input": "x", "max_output_tokens": 4, "top_logprobs": 1, "stream": True},
    ],
    "/v1/messages": [CHAT, {**CHAT, "stream": True}, {**CHAT, "colour": 1}],
    "/v1/messages/count_tokens": [CHAT],
    "/completion": [
        {"prompt": "x", "n_predict": 4, "n_probs": 1},
        {"prompt": ["x", "y"], "n_predict": 4},
        {"prompt": "x", "n_predict": 4, "response_fields": ["content"]},
        {"prompt": "x", "n_predict": 4, "stream": True},
    ],
    "/infill": [{"input_prefix": "x", "input_suffix": "y"}],
    "/tokenize": [{"content": "x = 1"}, {"content": "\u2603", "with_pieces": True}],
    "/detokenize": [{"tokens": [5, 6]}, {"tokens": [-1]}],
    "/apply-template": [{"messages": CHAT["messages"]}],
}
READ = ("/v1/models", "/slots", "/props", "/metrics", "/health", "/")


@pytest.fixture(scope="module")
def api():
    with describe_server("zoo:pico") as api:
        yield api


@pytest.fixture
def failures(api):
    api.failures.clear()
    return api.failures


def case_of(api, path, body=None):
    [operation] = [operation for operation in api.operations if operation.path == path]
    more = {} if body is None else {"body": body, "media_type": "application/json"}
    return operation.Case(**more)


@pytest.mark.parametrize("path", BODIES)
def test_an_answer_is_what_the_description_says(path, api, failures):
    for body in BODIES[path]:
        api.send(case_of(api, path, body))

    assert failures == []


@pytest.mark.parametrize("path", READ)
def test_so_is_what_is_read(path, api, failures):
    assert api.send(case_of(api, path)).status_code == 200
    assert failures == []


def test_another_answer_is_a_failure(api, failures):
    other = api.send(case_of(api, "/props"))
    api.check(case_of(api, "/v1/models"), other)

    assert len(failures) == 1


@pytest.mark.parametrize("status", [422, 599])
def test_another_status_is_a_failure(status, api, failures):
    answer = api.send(case_of(api, "/v1/models"))
    answer.status_code = status
    api.check(case_of(api, "/v1/models"), answer)

    assert len(failures) == 1


def test_no_generated_request_is_a_failure(api, failures):
    api.statuses.clear()
    api.send_generated(60, 1)

    assert failures == []
    assert api.statuses[200] > 10 and api.statuses[400] > 10


def test_every_operation_that_needs_the_key_says_so(api):
    for operation in api.operations:
        raw = operation.definition.raw
        answer = api.served.client.request(operation.method, api.served.url + operation.path.format(name="x"))
        assert (answer.status_code == 401) == ("security" in raw) == ("401" in raw["responses"]), operation.path


def test_operations_have_names_and_no_status_that_is_never_sent(api):
    raws = [operation.definition.raw for operation in api.operations]

    assert len({raw["operationId"] for raw in raws}) == len(raws)
    assert all(raw["operationId"].isidentifier() and raw["tags"] for raw in raws)
    assert [raw["operationId"] for raw in raws if "422" in raw["responses"]] == []
