"""JSON schemas of the files of a comparison, made from the data classes; ``results.schema.json`` is one of them.

A schema accepts names that it does not know: a later version of the same major number may add fields.
"""

from __future__ import annotations

import json
import types
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import attrs

from spec_compare.records.aliases import TIMINGS, VLLM
from spec_compare.records.described import help_of
from spec_compare.records.header import FORMAT, VERSION, Header, Session
from spec_compare.records.record import Lap, Record

FILE = Path(__file__).with_name("results.schema.json")
DIALECT = "https://json-schema.org/draft/2020-12/schema"
PLAIN_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
KINDS = {"header": Header, "session": Session, "record": Record}
"""The class of each kind of line of ``results.jsonl``."""
LAP_PROMPTS = "ids of the prompts that ran together"
LAP_TEXTS = "number of records of the lap: one per prompt and turn"


def results() -> dict[str, Any]:
    """The schema of a line of ``results.jsonl``."""
    return {
        "$schema": DIALECT,
        "title": f"A line of results.jsonl, {FORMAT}, version {VERSION[0]}",
        "oneOf": [line(kind) for kind in KINDS],
    }


def line(kind: str) -> dict[str, Any]:
    """The schema of one kind of line."""
    schema = of_class(KINDS[kind])
    schema["properties"] = {"kind": {"const": kind, "description": f"`{kind}`"}, **schema["properties"]}
    if kind == "record":
        schema["properties"]["lap"] = {**lap(), "description": "values of all texts that ran together"}
        schema["properties"]["vllm"] = _figures(VLLM, "figures under the names of vLLM's per-request metrics")
        schema["properties"]["timings"] = _figures(TIMINGS, "figures under the names of llama.cpp's timings")
    schema["required"] = sorted(schema["properties"])
    return schema


def lap() -> dict[str, Any]:
    """The schema of a record's ``lap``."""
    schema = of_class(Lap)
    schema["properties"]["prompts"] = {"type": "array", "items": {"type": "string"}, "description": LAP_PROMPTS}
    schema["properties"]["texts"] = {"type": "integer", "description": LAP_TEXTS}
    schema["required"] = sorted(schema["properties"])
    return schema


def _figures(names: dict[str, str], description: str) -> dict[str, Any]:
    """Figures that are a number, a list of numbers, or null if undefined."""
    value = {"anyOf": [{"type": "number"}, {"type": "null"}, {"type": "array", "items": {"type": "integer"}}]}
    properties = {name: {**value, "description": help} for name, help in names.items()}
    return {"type": "object", "properties": properties, "required": sorted(names), "description": description}


@cache
def stored_fields(cls: type) -> tuple[attrs.Attribute, ...]:
    """The fields of a class that are written to a file, with their types."""
    return tuple(f for f in attrs.fields(attrs.resolve_types(cls)) if "help" in f.metadata)


def of_class(cls: type) -> dict[str, Any]:
    """The schema of an object; every field is required."""
    properties = {f.name: {**of_type(f.type), "description": help_of(f)} for f in stored_fields(cls)}
    return {"type": "object", "properties": properties, "required": sorted(properties)}


def of_type(kind: Any) -> dict[str, Any]:
    """The schema of a value of this type."""
    if kind in PLAIN_TYPES:
        return {"type": PLAIN_TYPES[kind]}
    if get_origin(kind) in (Union, types.UnionType):
        return {"anyOf": [of_type(one) for one in get_args(kind)]}
    if kind is type(None):
        return {"type": "null"}
    if get_origin(kind) is list:
        return {"type": "array", "items": of_type(get_args(kind)[0])}
    if get_origin(kind) is dict:
        return {"type": "object", "additionalProperties": of_type(get_args(kind)[1])}
    return of_class(kind) if attrs.has(kind) else {}


def text(schema: dict[str, Any]) -> str:
    """The schema as it is written to a file."""
    return json.dumps(schema, indent=1) + "\n"
