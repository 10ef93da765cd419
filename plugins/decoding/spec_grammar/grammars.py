"""Constraints by one grammar: a JSON schema, a regular expression, a grammar in Lark's or llama.cpp's notation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from spec_core import Target, UsageError
from spec_grammar.closing import close_objects
from spec_grammar.compiled import Compiled, Grammars
from spec_grammar.gbnf import lark_of
from spec_grammar.grammar_limits import check_depth, check_numbers, check_size
from spec_grammar.schema_numbers import check_constants, narrow_bounds
from spec_grammar.schema_walk import map_schemas

SPACES_MAX = 8
SPACED = {"whitespace_flexible": True, "whitespace_pattern": rf"[ \t\n\r]{{1,{SPACES_MAX}}}"}
"""A model that only adds white space would do so up to the limit of its text."""
COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@attrs.define(eq=False)
class JsonSchema(Compiled):
    """JSON that matches a schema (draft 2020-12, as far as llguidance supports it; other keywords are refused).

    schema: the schema as a dict, or as JSON text; True is any JSON value. compact: the only whitespace is one space
    after ``,`` and ``:``, as ``json.dumps`` writes it; otherwise the model may add up to 8 characters of whitespace
    between any two parts. open_objects: an object whose schema names properties and says nothing about others may have
    others, as the specification has it; otherwise it has none.
    """

    schema: Mapping[str, Any] | str | bool
    compact: bool = False
    open_objects: bool = False

    what = "the JSON schema"

    @property
    def advice(self) -> str:
        return "change the schema; docs/structured-output.md lists what is supported"

    def check(self) -> None:
        source = self.schema
        text = source if isinstance(source, str) else _dump(source)
        check_size(self.what, text)
        schema = _load(text) if isinstance(source, str) else source
        if not isinstance(schema, (Mapping, bool)):
            raise UsageError(
                f"{self.what} is {type(schema).__name__}", hint='give an object such as {"type": "object"}, or true'
            )
        check_depth(self.what, schema)
        check_numbers(self.what, schema)

    def grammars(self, target: Target) -> Grammars:
        return [{"json_schema": self._with_options(json.loads(_text(self.schema)))}]

    def _with_options(self, schema: Any) -> Any:
        if schema is True or schema is False:
            schema = {} if schema else {"not": {}}
        schema = map_schemas(schema, _prepare)
        schema = schema if self.open_objects else close_objects(schema)
        return {"x-guidance": SPACED, **schema, **({"x-guidance": COMPACT} if self.compact else {})}


IDLE = {"uniqueItems": False}
"""Keywords with values that demand nothing, which llguidance refuses as it refuses the others."""
FORMATS = (
    "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown",
)  # fmt: skip
"""Formats of texts that are enforced; others are annotations, as the specification has it."""


def without_idle(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without keywords that demand nothing."""
    idle = {key for key, value in IDLE.items() if schema.get(key) is value}
    if "format" in schema and schema["format"] not in FORMATS:
        idle.add("format")
    return {key: value for key, value in schema.items() if key not in idle} if idle else schema


def _prepare(schema: dict[str, Any]) -> dict[str, Any]:
    return narrow_bounds(check_constants(without_idle(schema)))


def _text(schema: Any) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema, allow_nan=False)


def _dump(schema: Any) -> str:
    try:
        return json.dumps(schema, allow_nan=False)
    except RecursionError as error:
        raise UsageError("the JSON schema is nested too deeply", hint="give a flatter one") from error
    except (TypeError, ValueError) as error:
        raise UsageError(f"the JSON schema is not JSON: {error}", hint="give a dict of JSON values") from error


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise UsageError("the JSON schema is nested too deeply", hint="give a flatter one") from error
    except ValueError as error:
        raise UsageError(f"the JSON schema is not JSON: {error}", hint="check quotes, commas and brackets") from error


@attrs.define(eq=False)
class Regex(Compiled):
    """A text that matches a regular expression as a whole (Rust's syntax, without look-around and back references)."""

    pattern: str

    what = "the regular expression"

    @property
    def advice(self) -> str:
        return "correct the expression; look-around and back references are not supported"

    def check(self) -> None:
        check_size(self.what, self.pattern)

    def grammars(self, target: Target) -> Grammars:
        return [{"lark_grammar": f"start: /{_slashes(self.pattern)}/"}]


def _slashes(pattern: str) -> str:
    """The pattern for a place between slashes: a slash that is not escaped ends it there, and so would a line end."""
    output, escaped = [], False
    for c in pattern:
        output.append({"/": "/" if escaped else "\\/", "\n": "n" if escaped else "\\n"}.get(c, c))
        escaped = c == "\\" and not escaped
    return "".join(output)


@attrs.define(eq=False)
class Lark(Compiled):
    """A text of a context-free grammar in llguidance's variant of Lark's notation, which begins with ``start:``."""

    text: str

    def check(self) -> None:
        check_size(self.what, self.text)

    def grammars(self, target: Target) -> Grammars:
        return [{"lark_grammar": self.text}]


@attrs.define(eq=False)
class Gbnf(Compiled):
    """A text of a grammar in llama.cpp's notation, which begins with ``root ::=``."""

    text: str

    def check(self) -> None:
        check_size(self.what, self.text)

    def grammars(self, target: Target) -> Grammars:
        return [{"lark_grammar": lark_of(self.text)}]


def grammar(text: str) -> Lark | Gbnf:
    """The constraint of a grammar's text, by its notation: ``::=`` is GBNF."""
    return Gbnf(text) if "::=" in text else Lark(text)
