"""What a schema means: objects that are closed, numbers that are exact, keywords that are annotations."""

# ruff: noqa: E501
from __future__ import annotations

import json
import random

import pytest

pytest.importorskip("jsonschema")
pytest.importorskip("llguidance", reason="needs the extra grammar")

import jsonschema
from spec_grammar import JsonSchema

from spec_core import Run, UsageError, load

TARGET = load("zoo:pico")
A = {"type": "object", "properties": {"a": {"type": "integer"}}}
B = {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}
NODE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}},
}
DATA = {"type": "object", "properties": {"a": {}}, "required": ["z"]}


def legal(schema, text, **options):
    matcher = JsonSchema(schema, **options).start(TARGET)
    return all(matcher.advance(token) for token in TARGET.tokenizer.encode(text, bos=False))


CLOSED = {
    # a schema, texts that it allows, beginnings that it does not
    "object": (A, ['{"a": 1}', "{}"], ['{"b', '{"a": 1, "b', '{"a": 1, "a']),
    "no-type": ({"properties": {"a": {}}}, ['{"a": 1}', "5"], ['{"b']),
    "required-name": ({**A, "required": ["z"]}, ['{"a": 1, "z": [2]}', '{"z": 1}'], ['{"y']),
    "no-properties": ({"type": "object", "properties": {}}, ["{}"], ['{"a']),
    "nested": ({"type": "object", "properties": {"o": A}}, ['{"o": {"a": 1}}'], ['{"o": {"b', '{"p']),
    "in-a-list": ({"type": "array", "items": A}, ['[{"a": 1}]'], ['[{"b']),
    "in-further-keys": ({"type": "object", "additionalProperties": A}, ['{"x": {"a": 1}}'], ['{"x": {"b']),
    "all-of": ({"allOf": [A, B]}, ['{"a": 1, "b": 2}'], ['{"c', '{"a": 1, "c']),
    "all-of-and-own": ({**A, "allOf": [B]}, ['{"a": 1, "b": 2}'], ['{"c']),
    "any-of-and-own": ({**A, "anyOf": [B, {"required": ["a"]}]}, ['{"a": 1, "b": 2}', '{"b": 2}'], ['{"c']),
    "any-of": ({"anyOf": [A, {"type": "null"}]}, ['{"a": 1}', "null"], ['{"b']),
    "reference": ({"$ref": "#/$defs/A", "$defs": {"A": A}}, ['{"a": 1}'], ['{"b']),
    "reference-in-all-of": ({"allOf": [{"$ref": "#/$defs/A"}, B], "$defs": {"A": A}}, ['{"a": 1, "b": 2}'], ['{"c']),
    "both-uses-of-a-definition": (
        {"type": "object", "properties": {"p": {"$ref": "#/$defs/A"}, "q": {"allOf": [{"$ref": "#/$defs/A"}, B]}}, "$defs": {"A": A}},
        ['{"p": {"a": 1}, "q": {"a": 1, "b": 2}}'],
        ['{"p": {"b', '{"q": {"c'],
    ),
    "recursive": ({"$ref": "#/$defs/N", "$defs": {"N": NODE}}, ['{"v": 1, "next": {"v": 2, "next": null}}'], ['{"next": {"w']),
    "root-reference": ({"type": "object", "properties": {"s": {"$ref": "#"}}}, ['{"s": {"s": {}}}'], ['{"s": {"t']),
    "one-of-null": ({"oneOf": [A, {"type": "null"}]}, ['{"a": 1}', "null"], ['{"b']),
    "open": ({**A, "additionalProperties": True}, ['{"a": 1, "b": 2}'], ['{"a": 1, "a": ', '{"a": 1, "b": 2, "a": ']),
    "open-by-schema": ({**A, "additionalProperties": {"type": "null"}}, ['{"a": 1, "b": null}'], ['{"b": 2']),
    "open-by-pattern": ({**A, "patternProperties": {"^x": {}}}, ['{"x1": 2}'], []),
    "open-part": ({"allOf": [{**A, "additionalProperties": True}, B]}, ['{"b": 2, "c": 3}'], []),
    "constant": ({"type": "object", "properties": {"c": {"const": DATA}}}, ['{"c": ' + json.dumps(DATA) + "}"], []),
    "enum": ({"enum": [DATA]}, [json.dumps(DATA)], []),
    "property-called-properties": (
        {"type": "object", "properties": {"properties": {"type": "integer"}}}, ['{"properties": 1}'], ['{"p2'],
    ),
    "free": ({"type": "object"}, ['{"x": 1}'], []),
}  # fmt: skip


@pytest.mark.parametrize("name", CLOSED)
def test_objects_are_closed_as_a_whole(name):
    schema, allowed, others = CLOSED[name]
    before = json.dumps(schema)

    for text in allowed:
        assert legal(schema, text), text
        jsonschema.validate(json.loads(text), schema)
    for text in others:
        assert not legal(schema, text), text
    assert json.dumps(schema) == before


def test_an_option_keeps_objects_open():
    assert legal(A, '{"b": 1}', open_objects=True) and not legal(A, '{"b": 1}')


BIG = 2**53
BOUNDS = [
    {"minimum": -(2**63), "maximum": 2**63 - 1},
    {"minimum": -(2**63)},
    {"maximum": 2**63 - 1},
    {"minimum": 2**62},
    {"maximum": -(2**62)},
    {"exclusiveMinimum": BIG},
    {"exclusiveMaximum": -BIG},
    {"exclusiveMinimum": -BIG - 3, "maximum": 5},
    {"exclusiveMaximum": 10**18, "minimum": 10**18 - 500},
    {"minimum": 0, "maximum": 9007199254740995},
    {"minimum": 9007199254740993, "maximum": 9007199254741003},
    {"minimum": 9223372036854770001, "maximum": 2**63 - 1},
    {"exclusiveMinimum": 7.5, "maximum": 2**60 + 1},
]


@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_texts_are_within_bounds_that_are_no_doubles(bounds, kind):
    schema = {"type": kind, **bounds}
    for seed in range(4):
        generation = Run(TARGET).generate("x", constraint=JsonSchema(schema), max_tokens=40, temperature=1.2, seed=seed)
        if generation.result.finish_reason != "length":
            jsonschema.validate(json.loads(generation.text, parse_float=float), schema)


def test_random_bounds_are_kept():
    chance = random.Random(7)
    for seed in range(30):
        low = chance.randrange(-(2**63), 2**63 - 10**6)
        schema = {"type": "integer", "minimum": low, "maximum": chance.randrange(low + 4096, 2**63)}
        text = Run(TARGET).generate("x", constraint=JsonSchema(schema), max_tokens=40, temperature=1.2, seed=seed).text
        assert schema["minimum"] <= int(text) <= schema["maximum"]


@pytest.mark.parametrize(
    "schema",
    [
        {"const": BIG + 1},
        {"enum": ["a", -BIG - 1]},
        {"const": {"id": [10**16 + 1]}},
        {"const": -(2**63)},
        {"type": "object", "properties": {"id": {"const": BIG + 3}}},
    ],
    ids=str,
)
def test_a_constant_that_would_be_rounded_is_refused_by_name(schema):
    with pytest.raises(UsageError, match=r"(const|enum) -?[0-9]+, which cannot be written exactly"):
        JsonSchema(schema).start(TARGET)


@pytest.mark.parametrize("value", [BIG, -BIG, BIG + 2, 2**60, 10**17, 2**63 - 1024, 2**63 - 1], ids=str)
def test_a_constant_beyond_2_to_the_53_is_exact(value):
    for schema in ({"const": value}, {"enum": ["x", value]}, {"const": [value]}):
        text = json.dumps([value] if schema.get("const") == [value] else value)
        assert legal(schema, text)


@pytest.mark.parametrize(
    "bounds",
    [{"minimum": BIG + 1, "maximum": BIG + 1}, {"exclusiveMinimum": BIG, "exclusiveMaximum": BIG + 2}],
    ids=str,
)
def test_bounds_without_a_number_that_is_exact_are_refused_by_name(bounds):
    with pytest.raises(UsageError, match="cannot be enforced exactly"):
        JsonSchema({"type": "integer", **bounds}).start(TARGET)


@pytest.mark.parametrize("format", ["slug", "int64", "phone", "iri", "regex", "json-pointer", "x", ""])
def test_a_format_that_is_not_known_is_an_annotation(format):
    assert legal({"type": "string", "format": format}, '"any text"')


def test_a_format_that_is_known_is_enforced():
    assert not legal({"type": "string", "format": "date"}, '"any')


def test_numbers_in_annotations_are_not_looked_at():
    assert legal({"type": "integer", "default": 2**70, "examples": [2**64], "maximum": 9}, "5")


def test_a_chain_of_definitions_takes_no_recursion():
    chain = {f"d{i}": {"type": "object", "properties": {"x": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(300)}
    chain["d300"] = A
    assert legal({"$ref": "#/$defs/d0", "$defs": chain}, '{"x": {"x": {}}}')


def test_parts_that_name_too_many_keys_together_are_refused():
    wide = {"type": "object", "properties": {f"k{i}": {} for i in range(3000)}}
    many = {f"p{i}": {"allOf": [{"$ref": "#/$defs/wide"}, A]} for i in range(500)}
    with pytest.raises(UsageError, match="too many keys together"):
        JsonSchema({"type": "object", "properties": many, "$defs": {"wide": wide}}).start(TARGET)
