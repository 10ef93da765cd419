"""Calls that a grammar forces: in the form of each family, read back as calls that fit the schema."""

# ruff: noqa: E501
from __future__ import annotations

import json

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("jsonschema")

import jsonschema
from spec_serve import structured
from spec_serve.calls.families import FORMS, MEMBERS, PYTHON, TAGGED
from spec_serve.calls.writing import TAGGED as TAGGED_WRITING
from spec_serve.calls.writing import WRITINGS, arguments_schema
from spec_serve.tool_calls import CallReader

from spec_core import Run, load

WRITTEN = [form for form in FORMS if form is not PYTHON]
COLOUR = {"enum": ["red", "green"]}
SCHEMAS = {
    "plain": {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": 0, "maximum": 99},
            "colour": {"type": "string", **COLOUR},
            "note": {"type": "string"},
            "flag": {"type": "boolean"},
        },
        "required": ["count", "colour"],
    },
    "nested": {
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": {"type": "string", **COLOUR}, "maxItems": 3},
            "place": {"type": "object", "properties": {"x": {"type": "integer", "maximum": 9, "minimum": 0}, "name": COLOUR},
                      "required": ["x"], "additionalProperties": False},
        },
        "required": ["place"],
    },
    "referring": {
        "type": "object",
        "$defs": {"colour": COLOUR},
        "properties": {"colour": {"$ref": "#/$defs/colour"}, "other": {"anyOf": [{"$ref": "#/$defs/colour"}, {"type": "null"}]}},
        "required": ["colour"],
    },
    "odd-text": {"type": "object", "properties": {"code": {"type": "string", "pattern": "^[A-Z]{3}$"}}, "required": ["code"]},
    "none": None,
    "odd-name": {"type": "object", "properties": {"a b": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["a b"]},
}  # fmt: skip


@pytest.fixture(scope="module")
def run():
    return Run(load("zoo:pico"))


def tool(name, schema, strict=False):
    return {"type": "function", "function": {"name": name, "parameters": schema, "strict": strict}}


@pytest.mark.repeats(33)
@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("form", WRITTEN, ids=lambda form: form.name)
def test_a_forced_call_has_the_form_of_the_family_and_fits_the_schema(run, form, kind):
    schema = SCHEMAS[kind]
    tools = [tool("add", schema), tool("sub", schema)]
    complete = 0
    for seed in range(6):
        constraint = structured.tools_constraint(tools, "required", parallel=False, form=form)
        generation = run.generate("x", constraint=constraint, max_tokens=240, temperature=1.0, seed=seed)
        if generation.result.finish_reason == "length":
            continue
        complete += 1
        reader = CallReader({"add": schema or {}, "sub": schema or {}}, form=form)
        message = [part for part in [*reader.put(generation.text), *reader.end()] if isinstance(part, str)]
        (call,) = reader.calls

        assert not "".join(message).strip(), generation.text
        jsonschema.validate(
            json.loads(call.arguments), {**(schema or {"type": "object"}), "additionalProperties": False}
        )
        writing = WRITINGS[form] if WRITINGS[form].suits(arguments_schema(tools[0]["function"])) else TAGGED_WRITING
        assert generation.text.startswith((writing.before or writing.trigger).rstrip())
    assert complete


@pytest.mark.repeats(6)
@pytest.mark.parametrize("form", WRITTEN, ids=lambda form: form.name)
def test_several_forced_calls_are_read(run, form):
    tools = [tool("add", {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}, strict=True)]
    counts = []
    for seed in range(8):
        constraint = structured.tools_constraint(tools, "required", form=form)
        generation = run.generate("x", constraint=constraint, max_tokens=160, temperature=1.5, seed=seed)
        reader = CallReader({"add": {}}, form=form)
        reader.put(generation.text)
        reader.end()
        counts.append(len(reader.calls))
        if generation.result.finish_reason != "length":
            assert generation.text.count("add") == len(reader.calls), generation.text
    assert max(counts) > 0


def legal(constraint, text):
    target = load("zoo:pico")
    matcher = constraint.start(target)
    return all(matcher.advance(token) for token in target.tokenizer.encode(text, bos=False))


@pytest.mark.parametrize("form", WRITTEN, ids=lambda form: form.name)
def test_a_strict_tool_binds_calls_in_free_text(form):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    constraint = structured.tools_constraint([tool("f", schema, strict=True)], "auto", form=form)
    text = form.example.replace("</arg_value></tool", "</arg_value>\n</tool").replace(", g()", "")

    assert legal(constraint, "I think so.")
    assert legal(constraint, text), text
    assert not legal(constraint, text.replace("1", "true"))


def test_every_member_has_a_form_that_a_grammar_writes():
    for member in MEMBERS:
        assert member.calls in WRITINGS or member.calls.name == "harmony"
    assert TAGGED in WRITINGS
