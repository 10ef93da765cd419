"""Reasoning, content and calls of a model, read from the form of its family, however the text is divided."""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import pairwise

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_serve.harmony import CALL, MARKS, RETURN
from spec_serve.parts import AnswerPart
from spec_serve.reading import Reads
from spec_serve.schemas import Function, Tool

from spec_core import load
from tests.support.marked import Marked, speaking
from tests.support.served import serving

TOOLS = [Tool(type="function", function=Function(name=name)) for name in ("add", "now")]
THINKING = "{% for m in messages %}{{ m.content }}{% endfor %}<think></think>"
CHANNELS = (
    "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}{# <|channel|> #}"
)
ANALYSIS = "<|channel|>analysis<|message|>We add.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>four<|return|>"
CALLED = '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1}<|call|>'
CALLED_FIRST = " to=functions.now<|channel|>commentary json<|message|>{}<|call|>"
PREAMBLE = "<|channel|>commentary<|message|>I will add.<|end|><|start|>assistant"

GEMMA = "{% for m in messages %}{{ m.content }}{% endfor %}"
GEMMA_MARKS = ("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>', "<turn|>")
GEMMA_CALL = 'call:add{a:1,b:<|"|>x<|"|>}<tool_call|>'
GEMMA_CALLS = [("add", {"a": 1, "b": "x"})]
GEMMA_THOUGHT = "<|channel>thought\nOne and one.\n<channel|>"

WRITTEN = {
    # a text, what it thinks, what it says, what it calls
    "analysis-and-final": (CHANNELS, ANALYSIS + FINAL, "We add.", "four", []),
    "final-alone": (CHANNELS, FINAL, "", "four", []),
    "call": (CHANNELS, ANALYSIS + CALLED, "We add.", "", [("add", {"a": 1})]),
    "recipient-first": (CHANNELS, ANALYSIS + CALLED_FIRST, "We add.", "", [("now", {})]),
    "preamble": (CHANNELS, ANALYSIS + PREAMBLE + CALLED, "We add.", "I will add.", [("add", {"a": 1})]),
    "two-analyses": (CHANNELS, ANALYSIS * 2 + FINAL, "We add.\nWe add.", "four", []),
    "no-end": (CHANNELS, "<|channel|>final<|message|>four", "", "four", []),
    "another-tool": (CHANNELS, CALLED.replace("add", "sub"), "", '{"a": 1}', []),
    "no-json": (CHANNELS, CALLED.replace("}", ""), "", '{"a": 1', []),
    "no-channels": (CHANNELS, "just text", "", "just text", []),
    "cut-in-thinking": (CHANNELS, "<|channel|>analysis<|message|>We a", "We a", "", []),
    "think": (THINKING, "<think>\nWe add.\n</think>\n\nfour", "We add.", "four", []),
    "think-and-call": (THINKING, '<think>x</think>\n<tool_call>{"name": "now"}</tool_call>', "x", "", [("now", {})]),
    "think-is-not-closed": (THINKING, "<think>\nWe ad", "We ad", "", []),
    "tag-later": (THINKING, "four <think>x</think>", "", "four <think>x</think>", []),
    "a-beginning-of-a-tag": (THINKING, "<thin", "", "<thin", []),
    "gemma4": (GEMMA, f"{GEMMA_THOUGHT}Two<turn|>", "One and one.", "Two", []),
    "gemma4-call": (GEMMA, f"{GEMMA_THOUGHT}<|tool_call>{GEMMA_CALL}", "One and one.", "", GEMMA_CALLS),
    "gemma4-call-without-opening": (GEMMA, GEMMA_THOUGHT + GEMMA_CALL, "One and one.", "", GEMMA_CALLS),
    "gemma4-no-thought": (GEMMA, "Two", "", "Two", []),
    "gemma4-cut-thought": (GEMMA, "<|channel>thought\nOne", "One", "", []),
    "no-template": ("plain", "<think>x</think>y", "", "<think>x</think>y", []),
}  # fmt: skip


@attrs.frozen
class Prompted:
    request: object


@attrs.frozen
class Given:
    prompt: list[int]
    constraint: object = None


@attrs.frozen
class Event:
    """A token as a reader sees it."""

    token: int
    text: str


@lru_cache
def words(template):
    return Marked(load("zoo:pico").tokenizer, MARKS if template != GEMMA else GEMMA_MARKS, template)


def events_of(text, tokenizer, held=0):
    """A text as tokens. held: characters that are shown this many tokens later, as before a possible stop text."""
    ids, stream = tokenizer.encode(text, special=True, bos=False), tokenizer.stream()
    texts, held = [stream.put(token) for token in ids], min(held, len(ids))
    late = ["".join(texts[max(0, i - held) : i - held + 1]) if i >= held else "" for i in range(len(ids))]
    late[-1:] = [late[-1] + "".join(texts[len(ids) - held :])] if held and ids else late[-1:]
    return [Event(token, text) for token, text in zip(ids, late, strict=True)]


def read(template, text, cuts=(), held=0, prompt="x<|start|>assistant", **reads):
    tokenizer = words(template)
    job = Prompted(Given(tokenizer.encode(prompt, special=True, bos=False)))
    reader = Reads(TOOLS, **reads).reader(job, tokenizer)
    events = events_of(text, tokenizer, held)
    ends = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    parts = [part for a, b in pairwise(ends) for part in reader.put(events[a:b])] + reader.end()
    join = lambda kind: "".join(p.text for p in parts if isinstance(p, AnswerPart) and p.kind == kind)
    calls = [part for part in parts if not isinstance(part, AnswerPart)]
    assert calls == reader.calls
    return join("reasoning"), join("content"), [(c.name, json.loads(c.arguments)) for c in calls]


@pytest.mark.parametrize("name", WRITTEN)
def test_thinking_answer_and_calls_are_told_apart(name):
    template, text, *expected = WRITTEN[name]

    assert read(template, text) == tuple(expected)
    assert read(template, text, cuts=range(1000)) == tuple(expected)


@settings(deadline=None)
@given(st.sampled_from(sorted(WRITTEN)), st.lists(st.integers(0, 60), max_size=5), st.integers(0, 4))
def test_neither_the_division_nor_text_that_is_held_back_changes_anything(name, cuts, held):
    template, text, *expected = WRITTEN[name]

    assert read(template, text, cuts, held) == tuple(expected)


def test_a_prompt_that_opens_the_thinking_begins_within_it():
    assert read(THINKING, "We add.</think>four", prompt="x<think>\n") == ("We add.", "four", [])


def test_a_prompt_that_ends_within_a_message_begins_within_it():
    assert read(CHANNELS, "ur", prompt="<|start|>assistant<|channel|>final<|message|>fo") == ("", "ur", [])


def test_formats_say_where_thinking_goes():
    think, channels = WRITTEN["think"][1], ANALYSIS + FINAL
    spelled = "<|channel|>analysis<|message|>We add.<|end|>four"

    assert read(THINKING, think, format="none") == ("", think, [])
    assert read(THINKING, think, format="deepseek-legacy") == ("We add.", think, [])
    assert read(CHANNELS, channels, format="none") == ("", spelled, [])
    assert read(CHANNELS, channels, format="deepseek-legacy") == ("We add.", spelled, [])


# over HTTP


@pytest.fixture(scope="module")
def channels():
    with serving(speaking(ANALYSIS + FINAL, MARKS, CHANNELS, [CALL, RETURN])) as server:
        yield server


@pytest.fixture(scope="module")
def calling():
    with serving(speaking(ANALYSIS + CALLED, MARKS, CHANNELS, [CALL, RETURN])) as server:
        yield server


BODY = {"messages": [{"role": "user", "content": "2 + 2"}], "max_tokens": 60}
ADD = {"type": "function", "function": {"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}}}}


def test_a_chat_has_its_thinking_beside_the_answer(channels):
    (choice,) = channels.post("/v1/chat/completions", BODY).json()["choices"]

    assert choice["message"]["reasoning_content"] == "We add." and choice["message"]["content"] == "four"
    assert choice["finish_reason"] == "stop"


def test_a_streamed_chat_has_it_in_deltas_none_of_them_empty(channels):
    chunks = channels.events("/v1/chat/completions", BODY)[:-1]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]

    assert "".join(d.get("reasoning_content") or "" for d in deltas) == "We add."
    assert "".join(d.get("content") or "" for d in deltas) == "four"
    assert all(deltas[:-1])


def test_a_call_in_a_channel_is_a_tool_call(calling):
    (choice,) = calling.post("/v1/chat/completions", {**BODY, "tools": [ADD]}).json()["choices"]
    chunks = calling.events("/v1/chat/completions", {**BODY, "tools": [ADD]})[:-1]
    streamed = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]

    for call in (*choice["message"]["tool_calls"], *streamed):
        assert call["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert choice["finish_reason"] == "tool_calls" == chunks[-1]["choices"][0]["finish_reason"]
    assert choice["message"]["content"] is None and choice["message"]["reasoning_content"] == "We add."


def test_responses_have_an_item_for_the_thinking(calling):
    body = {"input": "2 + 2", "max_output_tokens": 60, "tools": [{"type": "function", **ADD["function"]}]}
    items = calling.post("/v1/responses", body).json()["output"]
    kinds = [event["type"] for event in calling.events("/v1/responses", body)]

    assert [item["type"] for item in items] == ["reasoning", "function_call"]
    assert items[0]["content"] == [{"type": "reasoning_text", "text": "We add."}]
    assert "response.reasoning_text.delta" in kinds and "response.reasoning_text.done" in kinds


def test_the_format_is_a_field_of_a_chat_and_a_setting_of_the_server(channels):
    raw = channels.post("/v1/chat/completions", {**BODY, "reasoning_format": "none"}).json()["choices"][0]["message"]

    assert raw["content"].endswith("We add.<|end|>four") and "reasoning_content" not in raw
    with serving(
        speaking(ANALYSIS + FINAL, MARKS, CHANNELS, [CALL, RETURN]), limits={"reasoning_format": "none"}
    ) as server:
        assert server.post("/v1/chat/completions", BODY).json()["choices"][0]["message"] == raw


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "add"}}])
def test_a_call_that_is_demanded_is_made_in_its_channel(calling, choice):
    body = {**BODY, "tools": [ADD], "tool_choice": choice}
    message = calling.post("/v1/chat/completions", body).json()["choices"][0]["message"]

    assert [call["function"]["name"] for call in message["tool_calls"]] == ["add"]
    assert message["reasoning_content"] == "We add." and not message["content"]


def test_a_schema_binds_the_final_channel_alone(channels):
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": [1, 2]}}}
    (choice,) = channels.post("/v1/chat/completions", {**BODY, "response_format": schema}).json()["choices"]

    assert choice["message"]["reasoning_content"] == "We add." and json.loads(choice["message"]["content"]) in (1, 2)
