"""Tool calls in a text, however it is divided into pieces."""

from __future__ import annotations

import json
from itertools import pairwise
from time import perf_counter

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from hypothesis import given
from hypothesis import strategies as st
from spec_serve.tool_calls import CallReader

TOOLS = {"add": {"properties": {"a": {"type": "integer"}, "note": {"type": "string"}}}, "now": {}}
ADD = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
NOW = '<tool_call>{"name": "now"}</tool_call>'
INNER = "<parameter=a>\n12\n</parameter>\n<parameter=note>\n1 2\n</parameter>"
XML = f"<tool_call>\n<function=add>\n{INNER}\n</function>\n</tool_call>"
ODD = '<tool_call>{"name": "add", "arguments": 5}</tool_call>'

NOTE = '<tool_call>\n{"name": "add", "arguments": {"note": "a </tool_call> b } \\" ]"}}\n</tool_call>'
BARE = f"<function=add>\n{INNER}\n</function>"
TAGS = "<function=add><parameter=note>\n</parameter> x </function> y\n</parameter></function>"
PAIRS = (
    "<arg_key>a</arg_key>\n<arg_value>12</arg_value>\n<arg_key>note</arg_key>\n<arg_value>1 </arg_value> 2</arg_value>"
)
GLM = f"<tool_call>add\n{PAIRS}\n</tool_call>"

TEXTS = {
    "one": (ADD, "", [("add", {"a": 1})]),
    "after-text": (f"I add.\n\n{ADD}", "I add.", [("add", {"a": 1})]),
    "two": (f"{ADD}\n{NOW}", "", [("add", {"a": 1}), ("now", {})]),
    "text-between": (f"a {ADD}\n b c \n{NOW} d", "ab cd", [("add", {"a": 1}), ("now", {})]),
    "functions": (XML, "", [("add", {"a": 12, "note": "1 2"})]),
    "an-object": ('{"name": "add", "parameters": {"a": 2}}', "", [("add", {"a": 2})]),
    "no-closing": (ADD.removesuffix("</tool_call>"), "", [("add", {"a": 1})]),
    "closing-cut": (ADD[:-4], "", [("add", {"a": 1})]),
    "closing-in-an-argument": (NOTE, "", [("add", {"note": "a </tool_call> b } \" ]"})]),
    "stray-opening": (f"a <tool_call> b {ADD}", "a <tool_call> b", [("add", {"a": 1})]),
    "stray-object": (f"<tool_call>{{ {ADD}", "<tool_call>{", [("add", {"a": 1})]),
    "bare-function": (f"I add. {BARE} done", "I add.done", [("add", {"a": 12, "note": "1 2"})]),
    "bare-function-with-tags": (TAGS, "", [("add", {"note": "</parameter> x </function> y"})]),
    "function-without-parameters": ("<function=now>\n</function>", "", [("now", {})]),
    "another-function": ("<function=sub></function>", "<function=sub></function>", []),
    "keys": (GLM, "", [("add", {"a": 12, "note": "1 </arg_value> 2"})]),
    "keys-without-any": ("<tool_call>now\n</tool_call>x", "x", [("now", {})]),
    "keys-of-another": ("<tool_call>sub\n</tool_call>", "<tool_call>sub\n</tool_call>", []),
    "list": ('[TOOL_CALLS][{"name": "now", "arguments": {}}, {"name": "add", "arguments": {"a": 1}}]', "",
             [("now", {}), ("add", {"a": 1})]),
    "phi": ('<|tool_call|>[{"name": "now", "arguments": {}}]<|/tool_call|>', "", [("now", {})]),
    "an-object-of-another-kind": ('{"answer": "name"} {"name": "now"}', '{"answer": "name"} {"name": "now"}', []),
    "no-tool": ('<tool_call>{"name": "sub"}</tool_call>', '<tool_call>{"name": "sub"}</tool_call>', []),
    "no-json": ("<tool_call>{</tool_call> x", "<tool_call>{</tool_call> x", []),
    "a-beginning": ("x <tool_", "x <tool_", []),
    "another-tag": ("x <tool_cat> y ", "x <tool_cat> y ", []),
    "an-object-that-is-none": ('{"a": 1} and more', '{"a": 1} and more', []),
    "no-arguments": (ODD, ODD, []),
    "empty": ("", "", []),
}  # fmt: skip


def read(pieces, single=False):
    reader = CallReader(TOOLS, single)
    parts = [part for piece in pieces for part in reader.put(piece)] + reader.end()
    calls = [part for part in parts if not isinstance(part, str)]
    assert calls == reader.calls
    text = "".join(part for part in parts if isinstance(part, str))
    return text, [(call.name, json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_and_its_calls_are_told_apart(name):
    text, content, calls = TEXTS[name]

    assert read([text]) == (content, calls)
    assert read(list(text)) == (content, calls)


@given(st.sampled_from(sorted(TEXTS)), st.lists(st.integers(0, 200), max_size=6))
def test_the_division_of_the_text_changes_nothing(name, cuts):
    text = TEXTS[name][0]
    ends = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]

    assert read([text[a:b] for a, b in pairwise(ends)]) == read([text])


@given(st.text("<tool_cal>{ \n}/x", max_size=40))
def test_a_text_without_calls_is_kept_whole(text):
    assert read(list(text)) == (text, [])


def test_text_of_a_long_call_is_not_read_again_with_every_piece():
    note = "x" * 40_000
    for text in (NOTE.replace("a </", f"{note}</"), BARE.replace("1 2", note), GLM.replace("1 </", f"{note}</")):
        reader = CallReader(TOOLS)
        began = perf_counter()
        (call,) = [part for c in text for part in reader.put(c)]

        assert note in call.arguments and perf_counter() - began < 20


def test_where_one_call_is_allowed_others_are_left_out():
    assert read([f"{ADD}\n{NOW}"], single=True) == ("", [("add", {"a": 1})])


def test_text_is_told_as_soon_as_it_cannot_be_a_call():
    reader = CallReader(TOOLS)

    assert reader.put("Hello") == ["Hello"]
    assert reader.put(" <") == []
    assert reader.put("b>") == [" <b>"]
