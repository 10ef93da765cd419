"""Tool calls in a text, however it is divided into pieces."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from hypothesis import given
from hypothesis import strategies as st
from spec_serve.calls import CallReader

TOOLS = {"add": {"properties": {"a": {"type": "integer"}, "note": {"type": "string"}}}, "now": {}}
ADD = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
NOW = '<tool_call>{"name": "now"}</tool_call>'
INNER = "<parameter=a>\n12\n</parameter>\n<parameter=note>\n1 2\n</parameter>"
XML = f"<tool_call>\n<function=add>\n{INNER}\n</function>\n</tool_call>"
ODD = '<tool_call>{"name": "add", "arguments": 5}</tool_call>'

TEXTS = {
    "one": (ADD, "", [("add", {"a": 1})]),
    "after-text": (f"I add.\n\n{ADD}", "I add.", [("add", {"a": 1})]),
    "two": (f"{ADD}\n{NOW}", "", [("add", {"a": 1}), ("now", {})]),
    "text-between": (f"a {ADD}\n b c \n{NOW} d", "ab cd", [("add", {"a": 1}), ("now", {})]),
    "functions": (XML, "", [("add", {"a": 12, "note": "1 2"})]),
    "an-object": ('{"name": "add", "parameters": {"a": 2}}', "", [("add", {"a": 2})]),
    "no-closing": (ADD.removesuffix("</tool_call>"), "", [("add", {"a": 1})]),
    "no-tool": ('<tool_call>{"name": "sub"}</tool_call>', '<tool_call>{"name": "sub"}</tool_call>', []),
    "no-json": ("<tool_call>{</tool_call> x", "<tool_call>{</tool_call> x", []),
    "a-beginning": ("x <tool_", "x <tool_", []),
    "another-tag": ("x <tool_cat> y ", "x <tool_cat> y ", []),
    "an-object-that-is-none": ('{"a": 1} and more', '{"a": 1} and more', []),
    "no-arguments": (ODD, ODD, []),
    "empty": ("", "", []),
}  # fmt: skip


def read(pieces, single=False):
    reader, said, calls = CallReader(TOOLS, single), "", []
    for text, found in [*(reader.put(piece) for piece in pieces), reader.end()]:
        said, calls = said + text, calls + found
    assert calls == reader.calls
    return said, [(call.name, json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_and_its_calls_are_told_apart(name):
    text, said, calls = TEXTS[name]

    assert read([text]) == (said, calls)
    assert read(list(text)) == (said, calls)


@given(st.sampled_from(sorted(TEXTS)), st.lists(st.integers(0, 200), max_size=6))
def test_the_division_of_the_text_changes_nothing(name, cuts):
    text = TEXTS[name][0]
    ends = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]

    assert read([text[a:b] for a, b in pairwise(ends)]) == read([text])


@given(st.text("<tool_cal>{ \n}/x", max_size=40))
def test_a_text_without_calls_is_kept_whole(text):
    assert read(list(text)) == (text, [])


def test_where_one_call_is_allowed_others_are_left_out():
    assert read([f"{ADD}\n{NOW}"], single=True) == ("", [("add", {"a": 1})])


def test_text_is_told_as_soon_as_it_cannot_be_a_call():
    reader = CallReader(TOOLS)

    assert reader.put("Hello") == ("Hello", [])
    assert reader.put(" <") == ("", [])
    assert reader.put("b>") == (" <b>", [])
