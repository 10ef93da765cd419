"""``/v1/responses`` with the ``openai`` client, without special code."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("openai", reason="needs the openai client")

import openai

from spec_core import Run, load
from tests.support.scripted import script_target
from tests.support.served import serving

PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"type": "function", "name": "add", "parameters": PARAMETERS}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def calling():
    with serving(script_target(f"I add.\n{CALL}")) as server:
        yield openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def alone(messages, **keywords):
    with Run(load("zoo:pico")) as run:
        return run.generate(messages, **keywords).result


def test_an_answer_has_the_text_of_a_run_alone(client):
    asked = {"temperature": 0.8, "top_p": 0.9}
    body = {"instructions": "Be brief.", "input": "def add(a, b):", "max_output_tokens": 12, **asked}
    answer = client.responses.create(model="zoo:pico", extra_body={"seed": 5}, **body)
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "def add(a, b):"}]
    result = alone(talk, max_tokens=12, seed=5, **asked)

    assert answer.output_text == result.text
    assert answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens"
    assert answer.usage.input_tokens == result.prompt_tokens and answer.usage.output_tokens == 12
    assert answer.model_extra["metrics"]["speculative_decoding"]["num_spec_tokens"] > 0


def test_items_are_a_conversation(client):
    items = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
         "content": [{"type": "output_text", "text": "y", "annotations": []}]},
        {"role": "user", "content": "z"},
    ]  # fmt: skip
    answer = client.responses.create(model="zoo:pico", input=items, max_output_tokens=6)
    talk = [("system", "Be brief."), ("user", "x"), ("assistant", "y"), ("user", "z")]

    assert answer.output_text == alone([{"role": r, "content": c} for r, c in talk], max_tokens=6).text


def test_a_stream_has_the_events_of_the_api_in_order(client):
    events = list(client.responses.create(model="zoo:pico", input="def add(a, b):", max_output_tokens=8, stream=True))
    kinds = [event.type.removeprefix("response.") for event in events]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")

    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    assert set(kinds[4:-4]) == {"output_text.delta"}
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert text == events[-4].text == events[-1].response.output_text
    assert events[-1].response.usage.output_tokens == 8


def test_the_helper_for_streams_puts_the_answer_together(calling):
    with calling.responses.stream(model="pico", input="Add 1.", max_output_tokens=60) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")

    assert stream.get_final_response().output_text == text == f"I add.\n{CALL}"


def test_a_call_is_an_item_and_its_output_is_another(calling):
    answer = calling.responses.create(model="pico", input="Add 1.", tools=[TOOL], max_output_tokens=60)
    message, call = answer.output
    again = [{"role": "user", "content": "Add 1."}, *(item.model_dump(exclude_none=True) for item in answer.output)]
    again.append({"type": "function_call_output", "call_id": call.call_id, "output": "2"})

    assert answer.status == "completed" and message.content[0].text == "I add."
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "add", {"a": 1})
    assert (
        calling.responses.create(model="pico", input=again, tools=[TOOL], max_output_tokens=60).output[1].name == "add"
    )


def test_a_streamed_call_has_events_of_its_own(calling):
    asked = {"model": "pico", "input": "Add 1.", "tools": [TOOL], "max_output_tokens": 60}
    events = list(calling.responses.create(**asked, stream=True))
    done = [event for event in events if event.type == "response.function_call_arguments.done"]

    assert [json.loads(event.arguments) for event in done] == [{"a": 1}]
    assert [item.type for item in events[-1].response.output] == ["message", "function_call"]


WRONG = {
    "no-input": ({}, "input"),
    "no-items": ({"input": []}, "input"),
    "an-item-without-content": ({"input": [{"role": "user"}]}, "needs content"),
    "an-output-without-a-call": ({"input": [{"type": "function_call_output", "output": "x"}]}, "needs call_id"),
    "an-image": ({"input": [{"role": "user", "content": [{"type": "input_image", "text": "x"}]}]}, "needs image_url"),
    "what-is-stored": ({"input": "x", "previous_response_id": "resp_1"}, "not supported"),
    "another-tool": (
        {"input": "x", "tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}},
        "web_search",
    ),
    "a-name": ({"input": "x", "tools": [{"type": "function", "name": "a b"}]}, "name"),
    "unknown": ({"input": "x", "max_tokens": 5}, "max_output_tokens"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_body_is_refused(name, server):
    body, message = WRONG[name]
    answer = server.post("/v1/responses", body)

    assert answer.status_code == 400, answer.text
    assert message in answer.json()["error"]["message"]
