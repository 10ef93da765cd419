"""Structured output: from the fields of OpenAI, llama-server and vLLM to a constraint of the core."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
from spec_grammar import Channels, JsonSchema, Regex, StructuralTags, grammar
from spec_grammar.compiled import Compiled

from spec_core import Constraint
from spec_serve.calls.families import TAGGED, CallForm
from spec_serve.calls.writing import arguments_schema, call_tags
from spec_serve.errors import ApiError
from spec_serve.formats import StructuredOutputs
from spec_serve.tag_formats import structural_tag

FIELDS = ("response_format", "json_schema", "grammar", "structured_outputs")
ALIASES = {
    "guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar",
}  # fmt: skip
"""vLLM's older fields, and what they are called in ``structured_outputs``."""
OBJECT = {"type": "object"}


@attrs.frozen
class JsonStyle:
    """How JSON of a schema is written. compact, open_objects: as in JsonSchema."""

    compact: bool = False
    open_objects: bool = False

    def json(self, schema: Any) -> JsonSchema:
        """The constraint of a schema."""
        return JsonSchema(schema, self.compact, self.open_objects)


def constraint(body: Any) -> Constraint | None:
    """Constraint of a body; None for free text. Raises ApiError for several constraints, UsageError for a wrong one.

    body: any body that generates; fields that it does not have count as left out.
    """
    asked = {name: value for name in (*FIELDS, *ALIASES) if (value := getattr(body, name, None)) not in (None, "")}
    style = JsonStyle(bool(getattr(body, "compact", None)), bool(getattr(body, "open_objects", None)))
    constraints = {name: each for name, value in asked.items() if (each := _create(name, value, style)) is not None}
    if len(constraints) > 1:
        names = " and ".join(constraints)
        raise ApiError(400, f"{names} are both given; write one", next(reversed(constraints)))
    return next(iter(constraints.values()), None)


def _create(name: str, value: Any, style: JsonStyle) -> Constraint | None:
    if name == "response_format":
        return _from_response_format(value, style)
    if name == "json_schema":
        return style.json(value)
    if name == "grammar":
        return grammar(value)
    if name == "structured_outputs":
        return _from_structured_outputs(value, style)
    return _kind(ALIASES[name], value, style)


def _from_response_format(asked: Any, style: JsonStyle) -> Constraint | None:
    """``response_format``, or ``text.format`` of ``/v1/responses``."""
    if asked.type == "text":
        return None
    if asked.type == "structural_tag":
        forms = {name: getattr(asked, name) for name in ("structures", "triggers", "format")}
        return structural_tag({name: form for name, form in forms.items() if form is not None})
    if asked.type == "json_object":
        return style.json(OBJECT if asked.schema_ is None else asked.schema_)
    schema = asked.schema_ if asked.json_schema is None else asked.json_schema.schema_
    if schema is None:
        raise ApiError(400, "a format of type 'json_schema' needs a schema", "response_format")
    return style.json(schema)


def _from_structured_outputs(outputs: StructuredOutputs, style: JsonStyle) -> Constraint | None:
    fields = {key: value for key, value in outputs.model_dump(by_alias=True).items() if value is not None}
    style = attrs.evolve(style, compact=style.compact or bool(fields.pop("disable_any_whitespace", False)))
    if (closed := fields.pop("disable_additional_properties", None)) is not None:
        style = attrs.evolve(style, open_objects=not closed)
    if len(fields) > 1:
        raise ApiError(400, f"structured_outputs has {' and '.join(fields)}; write one", "structured_outputs")
    return next((_kind(kind, value, style) for kind, value in fields.items()), None)


def _kind(kind: str, value: Any, style: JsonStyle) -> Constraint | None:
    """Constraint of a field of vLLM's ``structured_outputs``."""
    if kind == "json":
        return style.json(value)
    if kind == "json_object":
        return style.json(OBJECT) if value else None
    return KINDS[kind](value)


def _choice(texts: Sequence[str]) -> Constraint:
    if not texts:
        raise ApiError(400, "a choice of no texts", "structured_outputs.choice")
    return Regex("|".join(_escape(text) for text in texts))


def _escape(text: str) -> str:
    """A text as an expression that matches it alone: every character that is no letter or digit as its number."""
    return "".join(c if c.isalnum() else f"\\x{{{ord(c):x}}}" for c in text)


KINDS: Mapping[str, Callable[[Any], Constraint]] = {
    "regex": Regex,
    "choice": _choice,
    "grammar": grammar,
    "structural_tag": structural_tag,
}
"""Fields of ``structured_outputs`` that are not JSON."""


def tools_constraint(
    tools: Sequence[Mapping[str, Any]],
    choice: str | Mapping[str, Any],
    channels: bool = False,
    parallel: bool = True,
    constraint: Constraint | None = None,
    form: CallForm = TAGGED,
) -> Constraint | None:
    """The constraint of a text that may call functions; None where nothing is to be enforced.

    A call has the form of the model's family, or is a message to the function where the model writes in channels; the
    arguments follow the schema of the function.
    ``auto`` is free text with such calls, if a tool is ``strict``; ``required`` and a named function are calls alone.

    :param tools: as in a body of OpenAI: ``{"type": "function", "function": {"name", "parameters", "strict"}}``.
    :param choice: ``none``, ``auto``, ``required``, or ``{"type": "function", "function": {"name": NAME}}``.
    :param parallel: more than one call may follow.
    :param answer: the constraint of a text that is no call.

    Raises ApiError for a function that is not among the tools, and for an answer where calls are demanded.
    """
    functions = {tool["function"]["name"]: tool["function"] for tool in tools}
    demanded = _demanded_functions(functions, choice)
    if demanded is not None and constraint is not None:
        raise ApiError(400, "calls are demanded and the text is constrained otherwise; write one", "tool_choice")
    if choice == "none" or not functions:
        return Channels({}, _compile(constraint)) if channels and constraint is not None else constraint
    if constraint is None and demanded is None and not any(function.get("strict") for function in functions.values()):
        return None
    callable_functions = functions if demanded is None else demanded
    if channels:
        calls = {name: arguments_of(function) for name, function in callable_functions.items()}
        return Channels(calls, _compile(constraint), demanded is not None)
    several = parallel and not isinstance(choice, Mapping)
    return call_tags(list(callable_functions.values()), form, several, demanded is not None, _compile(constraint))


def _demanded_functions(functions: Mapping[str, Any], choice: str | Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The functions to call, if the model must call one of them; else None."""
    if isinstance(choice, Mapping):
        name = choice["function"]["name"]
        if name not in functions:
            raise ApiError(400, f"tool_choice names {name!r:.80}, which is none of the tools", "tool_choice")
        return {name: functions[name]}
    if choice != "required":
        return None
    if not functions:
        raise ApiError(400, "tool_choice is 'required', but there are no tools", "tool_choice")
    return functions


def _compile(constraint: Constraint | None) -> Compiled | None:
    """An answer's constraint as a part of another one. Raises ApiError for tags, which have parts themselves."""
    if constraint is None:
        return None
    if isinstance(constraint, StructuralTags):
        raise ApiError(400, "a structural_tag cannot be combined with tools or channels; leave one out", "tools")
    assert isinstance(constraint, Compiled)
    return constraint


def arguments_of(function: Mapping[str, Any]) -> JsonSchema:
    """JSON of the arguments; a function whose schema names no parameters has none."""
    return JsonSchema(arguments_schema(function), compact=True)


def is_all_answer(constraint: Constraint | None) -> bool:
    """Whether a text of this constraint has no thinking before the answer."""
    free = isinstance(constraint, Channels) or (isinstance(constraint, StructuralTags) and not constraint.count_min)
    return constraint is not None and not free
