"""Tools in chats: what the model is told, and its calls in the answer, whole and streamed."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("openai", reason="needs the openai client")

import openai

from tests.support.scripted import script_target
from tests.support.served import serving

PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": PARAMETERS}}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
MESSAGES = [{"role": "user", "content": "Add 1."}]
TEMPLATE = (
    "{% if tools %}TOOLS {{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %} CALL {{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}"
    "{{ '\\n' }}{% endfor %}"
)


@pytest.fixture(scope="module")
def calling():
    with serving(script_target(f"I add.\n{CALL}"), ["ngram"]) as server:
        yield server


@pytest.fixture(scope="module")
def client(calling):
    return openai.OpenAI(base_url=f"{calling.url}/v1", api_key="none", max_retries=0)


def create(client, **more):
    return client.chat.completions.create(model="pico", messages=MESSAGES, max_tokens=60, tools=[TOOL], **more)


def test_a_call_is_found_in_the_text(client):
    (choice,) = create(client).choices
    (call,) = choice.message.tool_calls

    assert choice.message.content == "I add." and choice.finish_reason == "tool_calls"
    assert call.function.name == "add" and json.loads(call.function.arguments) == {"a": 1}
    assert call.id.startswith("call_") and call.type == "function"


def test_a_streamed_call_comes_complete_and_after_the_text(client):
    deltas = [chunk.choices[0] for chunk in create(client, stream=True)]
    calls = [call for choice in deltas for call in choice.delta.tool_calls or ()]

    assert "".join(c.delta.content or "" for c in deltas) == "I add."
    assert [(c.index, c.function.name, json.loads(c.function.arguments)) for c in calls] == [(0, "add", {"a": 1})]
    assert deltas[-1].finish_reason == "tool_calls"


def test_several_texts_have_calls_of_their_own(client):
    choices = create(client, n=2).choices

    assert [c.finish_reason for c in choices] == ["tool_calls", "tool_calls"]
    assert choices[0].message.tool_calls[0].id != choices[1].message.tool_calls[0].id


def test_a_call_that_is_cut_off_is_text(client):
    cut = client.chat.completions.create(model="pico", messages=MESSAGES, max_tokens=12, tools=[TOOL]).choices[0]

    assert cut.finish_reason == "length" and cut.message.tool_calls is None
    assert cut.message.content.startswith("I add.\n<tool_call>")


def test_without_tools_or_with_none_nothing_is_searched_for(client):
    plain = client.chat.completions.create(model="pico", messages=MESSAGES, max_tokens=60).choices[0]
    none = create(client, tool_choice="none").choices[0]

    for choice in (plain, none):
        assert CALL in choice.message.content and choice.finish_reason == "stop"


def test_a_conversation_goes_on_after_a_call(client):
    """The answer is sent back as it came, with the tool's result."""
    message = create(client).choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "2"}
    conversation = [*MESSAGES, message.model_dump(exclude_none=True), result]
    answer = client.chat.completions.create(model="pico", messages=conversation, max_tokens=60, tools=[TOOL])

    assert answer.choices[0].finish_reason == "tool_calls"


def template_text(server, **more):
    return server.post("/apply-template", {"messages": MESSAGES, **more}).json()["prompt"]


def test_a_template_without_tools_gets_them_as_a_system_message(calling):
    text = template_text(calling, tools=[TOOL])

    assert text.startswith("<|im_start|>system\n# Tools") and json.dumps(TOOL) in text
    assert template_text(calling).startswith("<|im_start|>user")
    own = calling.post("/apply-template", {"messages": [{"role": "system", "content": "Be brief."}], "tools": [TOOL]})
    assert own.json()["prompt"].startswith("<|im_start|>system\nBe brief.\n\n# Tools")


def test_a_template_with_tools_gets_them_as_they_are():
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    with serving(script_target("x", TEMPLATE)) as server:
        text = template_text(server, tools=[TOOL])
        talk = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "2"}]
        talked = server.post("/apply-template", {"messages": talk}).json()["prompt"]
        answer = server.post("/v1/chat/completions", {"messages": MESSAGES, "tools": [TOOL], "max_tokens": 4}).json()
        prompt = server.post("/tokenize", {"content": text}).json()["tokens"]

    assert text.rstrip() == f"TOOLS {json.dumps([TOOL])}\nuser: Add 1."
    assert talked.splitlines() == ['assistant:  CALL add {"a": 1}', "tool: 2"]
    assert answer["usage"]["prompt_tokens"] == len(prompt)


WRONG = {
    "a-choice-without-tools": ({"tool_choice": "auto"}, "without tools"),
    "two-of-one-name": ({"tools": [TOOL, TOOL]}, "two tools"),
    "a-kind": ({"tools": [{"type": "web_search"}]}, "function"),
    "a-name": ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "name"),
    "an-unknown-field": ({"tools": [{"type": "function", "function": {"name": "a", "schema": {}}}]}, "parameters"),
    "many": ({"tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(129)]}, "at most 128"),
    "a-user-who-calls": (
        {"messages": [{"role": "user", "tool_calls": [{"id": "c", "function": {"name": "a", "arguments": ""}}]}]},
        "only an assistant",
    ),
    "arguments": (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "a", "arguments": "{"}}]}]},
        "not JSON",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_tools_are_refused(name, calling):
    body, message = WRONG[name]
    answer = calling.post("/v1/chat/completions", {"messages": MESSAGES, **body})

    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
