"""Tools, calls and results in the prompt, whatever form the chat template takes them in."""

# ruff: noqa: E501
from __future__ import annotations

from copy import copy

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_serve.conversation import ChatPrompt
from spec_serve.errors import ApiError
from spec_serve.schemas import CalledFunction, Function, Message, Tool, ToolCall
from spec_serve.template_forms import knows_tools

from spec_core import load

LOOP = "{{% for m in messages %}}{}{{{{ m.role }}}}: {{{{ m.content }}}}{}\n{{% endfor %}}{}"
CALLS = "{% for c in m.tool_calls or [] %}<C>{{ c.function.name }} {{ c.function.arguments BAR }}</C>{% endfor %}"
OBJECT, RAW = CALLS.replace("BAR", "| tojson"), CALLS.replace("BAR", "")
IN_MESSAGE = (
    "{% for m in messages %}{% if m.role == 'system' and 'tools' in m and m.tools is not none %}<|system|>{{ m.content }}"
    "<|tool|>{{ m.tools }}<|/tool|><|end|>{% else %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
)
LISTED = "{% if tools %}{{ tools | tojson }}{% endif %}"
TEMPLATES = {
    "variable": LOOP.format("", OBJECT, LISTED),
    "arguments-as-text": LOOP.format("", RAW, LISTED),
    "arguments-as-pairs": LOOP.format(
        "", "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}{% endfor %}", LISTED
    ),
    "in-message": IN_MESSAGE,
    "with-a-system-message": LOOP.format("{% if m.role == 'system' and tools %}{{ tools | tojson }}{% endif %}", OBJECT, ""),
    "with-the-last-user": LOOP.format("{% if loop.last and m.role == 'user' and tools %}{{ tools | tojson }}{% endif %}", OBJECT, ""),
    "the-word-alone": LOOP.format("", OBJECT, "{# tools #}"),
    "no-tools": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
    "no-tool-role": "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
    "no-system": "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
    "system-is-dropped": "{% for m in messages %}{% if m.role != 'system' %}{{ m.role }}: {{ m.content }}\n{% endif %}{% endfor %}",
}  # fmt: skip
TOOLS = [Tool(type="function", function=Function(name=name, description="Add 1.")) for name in ("f", "g")]
USER = Message(role="user", content="q")
CALL = Message(
    role="assistant", tool_calls=[ToolCall(id="c", function=CalledFunction(name="f", arguments='{"key": "val"}'))]
)
RESULT = Message(role="tool", tool_call_id="c", content="result")
ORDERS = {
    "user": [USER],
    "system": [Message(role="system", content="s"), USER],
    "called": [USER, CALL, RESULT],
    "system-called": [Message(role="system", content="s"), USER, CALL, RESULT],
    "asked-again": [USER, CALL, RESULT, Message(role="assistant", content="a"), Message(role="user", content="p")],
}


def prompt(template, messages, tools=TOOLS):
    tokenizer = copy(load("zoo:pico").tokenizer)
    tokenizer.chat_template = TEMPLATES.get(template, template)
    return ChatPrompt(list(messages), list(tools)).render(tokenizer)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_prompt_has_its_tools_calls_and_results(template, order):
    if template == "no-system" and "system" in order:
        pytest.skip("the template refuses the conversation itself")
    text = prompt(template, ORDERS[order])

    assert text.count("Add 1.") >= 2
    if CALL in ORDERS[order]:
        assert "key" in text and "val" in text and "result" in text
        assert "'key'" not in text and '\\"key' not in text


def test_the_form_of_the_template_is_used_where_it_has_one():
    assert "<tools>" not in prompt("variable", ORDERS["called"]) + prompt("in-message", ORDERS["called"])
    assert '<|tool|>[{"name": "f"' in prompt("in-message", ORDERS["user"])
    assert '<C>f {"key": "val"}</C>' in prompt("arguments-as-text", ORDERS["called"])
    assert '<C>f {"key": "val"}</C>' in prompt("variable", ORDERS["called"])
    assert "<tools>" in prompt("the-word-alone", ORDERS["user"])


def test_a_prompt_without_its_tools_is_refused():
    with pytest.raises(ApiError, match="writes no tools"):
        prompt("nothing of the conversation", ORDERS["user"])


def test_a_template_that_refuses_the_conversation_says_why():
    with pytest.raises(Exception, match="the chat template failed: no"):
        prompt("no-system", ORDERS["system"])


def test_a_long_conversation_is_looked_at_too():
    turns = [USER, CALL, RESULT, Message(role="assistant", content="a")] * 40
    assert prompt("with-a-system-message", [*turns, USER]).count("Add 1.") == 2


def test_a_template_without_tools_is_sent_as_it_is():
    assert prompt("no-tools", ORDERS["system"], tools=()) == "system: s\nuser: q\n"


@pytest.mark.parametrize(
    ("template", "known"), [("variable", True), ("in-message", True), ("the-word-alone", False), ("no-tools", False)]
)
def test_whether_a_template_knows_tools_is_found_by_rendering(template, known):
    tokenizer = copy(load("zoo:pico").tokenizer)
    tokenizer.chat_template = TEMPLATES[template]

    assert knows_tools(tokenizer) == known


def test_arguments_are_json_in_a_prompt():
    with pytest.raises(ApiError, match="not JSON"):
        bad = ToolCall(id="c", function=CalledFunction(name="f", arguments='{"a": NaN}'))
        prompt("variable", [USER, Message(role="assistant", tool_calls=[bad])])
