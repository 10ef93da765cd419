"""Anthropic's ``/v1/messages``, by its own client: texts, streams, tools and thinking."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("anthropic", reason="needs anthropic's client")

import anthropic
from spec_serve.harmony import CALL, MARKS, RETURN

from spec_core import Run, load
from tests.serve.test_reading import ANALYSIS, CALLED, CHANNELS, FINAL
from tests.support.marked import speaking
from tests.support.served import serving

MESSAGES = [{"role": "user", "content": "def add(a, b):"}]
ADD = {"name": "add", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
BODY = {"model": "any-name", "max_tokens": 60, "messages": MESSAGES}


def client_of(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def client(server):
    return client_of(server)


def serve_channels(text):
    return serving(speaking(text, MARKS, CHANNELS, [CALL, RETURN]))


@pytest.fixture(scope="module")
def thinking():
    with serve_channels(ANALYSIS + FINAL) as server:
        yield client_of(server)


@pytest.fixture(scope="module")
def calling():
    with serve_channels(ANALYSIS + CALLED) as server:
        yield client_of(server)


def test_a_text_is_that_of_a_run_alone_whole_and_streamed(client):
    body = {**BODY, "max_tokens": 12, "extra_body": {"seed": 3, "temperature": 0.8}}
    whole = client.messages.create(**body)
    with client.messages.stream(**body) as stream:
        streamed = "".join(stream.text_stream)
        final = stream.get_final_message()
    with Run(load("zoo:pico")) as run:
        alone = run.generate(MESSAGES, max_tokens=12, seed=3, temperature=0.8).result

    assert whole.content[0].text == alone.text == streamed == final.content[0].text
    assert whole.stop_reason == final.stop_reason == "max_tokens"
    assert whole.usage.output_tokens == final.usage.output_tokens == 12
    assert whole.usage.input_tokens + whole.usage.cache_read_input_tokens == alone.prompt_tokens


def test_a_system_text_blocks_and_the_count_of_tokens(client):
    blocks = [{"type": "text", "text": "def add(a, b):", "cache_control": {"type": "ephemeral"}}]
    plain = client.messages.count_tokens(model="x", messages=MESSAGES)
    blocked = client.messages.count_tokens(model="x", messages=[{"role": "user", "content": blocks}])
    count = client.messages.count_tokens(model="x", system="Be short.", messages=MESSAGES)

    assert plain.input_tokens == blocked.input_tokens < count.input_tokens
    assert plain.input_tokens == len(load("zoo:pico").tokenizer.encode_chat(MESSAGES))


def test_a_stop_sequence_is_named(client):
    text = client.messages.create(**BODY).content[0].text
    message = client.messages.create(**BODY, stop_sequences=["zzz", text[5:9]])

    assert message.stop_reason == "stop_sequence" and message.stop_sequence == text[5:9]
    assert message.content[0].text == text[: text.index(text[5:9])]


def test_thinking_is_a_block_before_the_text(thinking):
    answer = thinking.messages.create(**BODY, thinking={"type": "enabled", "budget_tokens": 1024})
    with thinking.messages.stream(**BODY) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_message()

    for message in (answer, streamed):
        assert [block.type for block in message.content] == ["thinking", "text"]
        assert message.content[0].thinking == "We add." and message.content[1].text == "four"
        assert message.stop_reason == "end_turn"
    assert {"thinking", "signature", "content_block_stop", "message_stop"} <= set(kinds)


def test_a_call_is_a_block_and_its_result_is_sent_back(calling):
    answer = calling.messages.create(**BODY, tools=[ADD])
    with calling.messages.stream(**BODY, tools=[ADD]) as stream:
        streamed = stream.get_final_message()

    for message in (answer, streamed):
        assert [block.type for block in message.content] == ["thinking", "tool_use"]
        assert (message.content[1].name, message.content[1].input) == ("add", {"a": 1})
        assert message.stop_reason == "tool_use"
    result = {"type": "tool_result", "tool_use_id": answer.content[1].id, "content": [{"type": "text", "text": "2"}]}
    turns = [*MESSAGES, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    assert calling.messages.create(**{**BODY, "messages": turns}, tools=[ADD]).stop_reason == "tool_use"


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "add"}])
def test_a_call_is_demanded(calling, choice):
    message = calling.messages.create(**BODY, tools=[ADD], tool_choice=choice)

    assert message.content[-1].name == "add" and message.stop_reason == "tool_use"


def test_a_format_binds_the_text(client):
    schema = {"type": "json_schema", "schema": {"enum": ["red", "green"]}}
    message = client.messages.create(**BODY, extra_body={"output_config": {"format": schema}})

    assert json.loads(message.content[0].text) in ("red", "green") and message.stop_reason == "end_turn"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "send its data as base64",
        ),
        ({"extra_body": {"max_tokes": 3}}, "unknown field"),
        ({"tools": [ADD], "tool_choice": {"type": "tool", "name": "sub"}}, "none of the tools"),
        ({"tools": [ADD], "tool_choice": {"type": "tool"}}, "needs a name"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "x"}]}]}, "needs id"),
        ({"extra_body": {"stop": "x"}, "stop_sequences": ["y"]}, "both given"),
    ],
)
def test_what_is_not_supported_is_an_error_that_the_client_knows(client, more, message):
    with pytest.raises(anthropic.BadRequestError, match=message) as caught:
        client.messages.create(**{**BODY, **more})

    assert caught.value.body["type"] == "error" and caught.value.body["error"]["type"] == "invalid_request_error"


def test_max_tokens_is_needed_and_the_key_may_be_in_its_header(server):
    answer = server.post("/v1/messages", {"model": "x", "messages": MESSAGES})
    assert answer.status_code == 400 and "max_tokens" in answer.json()["error"]["message"]

    with serving("zoo:pico", limits={"api_key": "secret"}) as keyed_server:
        keyed = anthropic.Anthropic(base_url=keyed_server.url, api_key="secret", max_retries=0)
        assert keyed.messages.create(**{**BODY, "max_tokens": 2}).usage.output_tokens == 2
        with pytest.raises(anthropic.AuthenticationError):
            client_of(keyed_server).messages.create(**BODY)
