"""A call of a function, and what may be its arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, NoReturn
from uuid import uuid4

import attrs

from spec_serve.calls.text import NoCall

Tools = Mapping[str, Mapping[str, Any]]
"""JSON schemas of the parameters, by function."""
DEPTH_MAX = 200
"""Most levels of nested arguments: an answer is written, and read by clients, with recursion."""
SPELLED = {"True": True, "False": False, "None": None}
"""Values as Python writes them, which templates print into earlier calls."""


@attrs.frozen
class Call:
    """A call of a tool. arguments: JSON."""

    name: str
    arguments: str
    id: str = attrs.field(factory=lambda: f"call_{uuid4().hex[:24]}")

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


def create_call(name: str, arguments: Mapping[str, Any], tools: Tools) -> Call:
    """The call of one of the tools. Raises NoCall for another function, and for arguments that JSON cannot write."""
    if name not in tools or is_deep(arguments):
        raise NoCall
    try:
        return Call(name, json.dumps(arguments, ensure_ascii=False, allow_nan=False))
    except ValueError:
        raise NoCall from None


def is_deep(value: Any) -> bool:
    """Whether a value has more levels than a call may have."""
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [inner for outer in level for inner in _inner_values(outer)]
        if not level:
            return False
    return True


def _inner_values(value: Any) -> Iterator[Any]:
    held = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    yield from (inner for inner in held if isinstance(inner, (Mapping, list)))


def parse_json(text: str) -> Any:
    """The value of a JSON text, strictly: no NaN, no Infinity, no number too large. Raises ValueError."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=parse_float)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if is_deep(value):
        raise ValueError("it is nested too deeply")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def parse_float(text: str) -> float:
    """The number. Raises ValueError for one that becomes infinite."""
    if not isfinite(value := float(text)):
        raise ValueError(f"the number {text:.40} is too large")
    return value


def call_of_object(value: Any, tools: Tools) -> Call:
    """The call ``{"name": ..., "arguments": {...}}``, also with ``parameters``, or in ``function``. Raises NoCall."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise NoCall
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):  # as in OpenAI's API
        try:
            arguments = parse_json(arguments or "{}")
        except ValueError:
            raise NoCall from None
    if not isinstance(arguments, dict):
        raise NoCall
    return create_call(value["name"], arguments, tools)


def properties_of(name: str, tools: Tools) -> Mapping[str, Any]:
    """Schemas of the parameters. Raises NoCall for a function that is not among the tools."""
    if name not in tools:
        raise NoCall
    properties = tools[name].get("properties")
    return properties if isinstance(properties, Mapping) else {}


def types_of(schema: Any) -> set[str]:
    """Types that a schema names, also in its alternatives."""
    if not isinstance(schema, Mapping):
        return set()
    named = schema.get("type")
    types = {named} if isinstance(named, str) else {one for one in named or () if isinstance(one, str)}
    options = [one for key in ("anyOf", "oneOf") for one in (schema.get(key) or ()) if isinstance(one, Mapping)]
    inner = [types_of({key: value for key, value in one.items() if key == "type"}) for one in options]
    constants = [*(schema.get("enum") or ()), *([schema["const"]] if "const" in schema else [])]
    texts = {"string"} if constants and not types and all(isinstance(one, str) for one in constants) else set()
    return types.union(*inner, texts)


def value_of_text(text: str, schema: Any) -> Any:
    """The value that a parameter's text stands for: the text, unless its schema says otherwise and it is JSON."""
    types = types_of(schema)
    if "string" in types and not ("null" in types and text == "null"):
        return text
    if text in SPELLED and types & {"boolean", "null"}:
        return SPELLED[text]
    try:
        return parse_json(text)
    except ValueError:
        return text
