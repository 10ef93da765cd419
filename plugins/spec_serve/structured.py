"""Structured output: from the fields of OpenAI, llama-server and vLLM to a constraint of the core."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spec_grammar import JsonSchema, Regex, StructuralTags, Tag, grammar

from spec_core import Constraint
from spec_serve.errors import ApiError
from spec_serve.tag_formats import structural_tag

FIELDS = ("response_format", "json_schema", "grammar", "structured_outputs")
ALIASES = {
    "guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar",
}  # fmt: skip
"""vLLM's older fields, and what they are called in ``structured_outputs``."""
OBJECT = {"type": "object"}


def constraint(body: Any) -> Constraint | None:
    """What a body asks for; None for free text. Raises ApiError for several constraints, UsageError for a wrong one.

    body: any body that generates; fields that it does not have count as left out.
    """
    asked = {name: value for name in (*FIELDS, *ALIASES) if (value := getattr(body, name, None)) not in (None, "")}
    found = {name: made for name, value in asked.items() if (made := _made(name, value)) is not None}
    if len(found) > 1:
        names = " and ".join(found)
        raise ApiError(400, f"{names} are both given; write one", next(reversed(found)))
    return next(iter(found.values()), None)


def _made(name: str, value: Any) -> Constraint | None:
    if name == "response_format":
        return _formatted(value)
    if name == "json_schema":
        return JsonSchema(value)
    if name == "grammar":
        return grammar(value)
    if name == "structured_outputs":
        return _structured({key: given for key, given in value.model_dump(by_alias=True).items() if given is not None})
    return KINDS[ALIASES[name]](value)


def _formatted(asked: Any) -> Constraint | None:
    """``response_format``, or ``text.format`` of ``/v1/responses``."""
    if asked.type == "text":
        return None
    if asked.type == "structural_tag":
        forms = {name: getattr(asked, name) for name in ("structures", "triggers", "format")}
        return structural_tag({name: form for name, form in forms.items() if form is not None})
    if asked.type == "json_object":
        return JsonSchema(OBJECT if asked.schema_ is None else asked.schema_)
    schema = asked.schema_ if asked.json_schema is None else asked.json_schema.schema_
    if schema is None:
        raise ApiError(400, "a format of type 'json_schema' needs a schema", "response_format")
    return JsonSchema(schema)


def _structured(given: Mapping[str, Any]) -> Constraint | None:
    if len(given) > 1:
        raise ApiError(400, f"structured_outputs has {' and '.join(given)}; write one", "structured_outputs")
    return next((KINDS[kind](value) for kind, value in given.items()), None)


def _choice(texts: Sequence[str]) -> Constraint:
    if not texts:
        raise ApiError(400, "a choice of no texts", "structured_outputs.choice")
    return Regex("|".join(_escaped(text) for text in texts))


def _escaped(text: str) -> str:
    """A text as an expression that matches it alone: every character that is no letter or digit as its number."""
    return "".join(c if c.isalnum() else f"\\x{{{ord(c):x}}}" for c in text)


KINDS: Mapping[str, Callable[[Any], Constraint | None]] = {
    "json": JsonSchema,
    "regex": Regex,
    "choice": _choice,
    "grammar": grammar,
    "json_object": lambda wanted: JsonSchema(OBJECT) if wanted else None,
    "structural_tag": structural_tag,
}
"""Fields of vLLM's ``structured_outputs``."""


def tools_constraint(
    tools: Sequence[Mapping[str, Any]], choice: str | Mapping[str, Any], begin: str, end: str, parallel: bool = True
) -> Constraint | None:
    """The constraint of a text that may call functions; None where nothing is to be enforced.

    One call is ``begin``, an object ``{"name": ..., "arguments": {...}}``, ``end``; the arguments follow the schema of
    the function. ``auto`` is free text with such calls, if a tool is ``strict``; ``required`` and a named function are
    calls alone.

    :param tools: as in a body of OpenAI: ``{"type": "function", "function": {"name", "parameters", "strict"}}``.
    :param choice: ``none``, ``auto``, ``required``, or ``{"type": "function", "function": {"name": NAME}}``.
    :param parallel: more than one call may follow.

    Raises ApiError for a function that is not among the tools.
    """
    functions = {tool["function"]["name"]: tool["function"] for tool in tools}
    if isinstance(choice, Mapping):
        name = choice["function"]["name"]
        if name not in functions:
            raise ApiError(400, f"tool_choice names {name!r:.80}, which is none of the tools", "tool_choice")
        return _calls([functions[name]], begin, end, count_min=1, several=False)
    if choice == "required":
        if not functions:
            raise ApiError(400, "tool_choice is 'required', but there are no tools", "tool_choice")
        return _calls(list(functions.values()), begin, end, count_min=1, several=parallel)
    if choice == "none" or not any(function.get("strict") for function in functions.values()):
        return None
    return _calls(list(functions.values()), begin, end, count_min=0, several=parallel)


def _calls(
    functions: Sequence[Mapping[str, Any]], begin: str, end: str, count_min: int, several: bool
) -> StructuralTags:
    return StructuralTags(begin, [_tag(function, begin, end) for function in functions], count_min, several)


def _tag(function: Mapping[str, Any], begin: str, end: str) -> Tag:
    name = json.dumps(function["name"], ensure_ascii=False)
    schema = function.get("parameters") or OBJECT
    return Tag(f'{begin}{{"name": {name}, "arguments": ', JsonSchema(schema, compact=True), "}" + end)
