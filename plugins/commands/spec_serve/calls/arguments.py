"""Grammars of arguments that are no JSON object: text between tags, Python's keywords, Gemma's notation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
from spec_grammar import JsonSchema
from spec_grammar.compiled import Compiled, Grammars
from spec_grammar.tags import literal

from spec_core import Target
from spec_serve.calls.call import types_of
from spec_serve.calls.forms import GEMMA_QUOTE

NOTES = {
    "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
    "$comment", "nullable",
}  # fmt: skip
"""Keywords that change nothing about a value."""
OBJECT = {"type", "properties", "required", "additionalProperties", "$schema", "$defs", "definitions", *NOTES}
"""Keywords of a schema whose properties can be written one by one."""
FREE = "/(?s:.*)/"


def is_plain(schema: Any) -> bool:
    """Whether a schema is an object of named properties, and demands nothing else of it."""
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties"), Mapping):
        return False
    properties, required = schema["properties"], schema.get("required") or []
    return bool(properties) and set(schema) <= OBJECT and set(required) <= set(properties) and _is_object(schema)


def _is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type", "object") == "object" and schema.get("additionalProperties") in (None, True, False)


def is_plain_text(schema: Any) -> bool:
    """Whether a value is any text, or one of some texts."""
    allowed = {"type", "enum", "const", *NOTES}
    return isinstance(schema, Mapping) and "string" in types_of(schema) and set(schema) <= allowed


def has_odd_text(schema: Any) -> bool:
    """Whether a property is a text with demands that only JSON's grammar enforces."""
    return any("string" in types_of(one) and not is_plain_text(one) for one in schema["properties"].values())


@attrs.define
class Rules:
    """Rules in Lark's notation that are being written, and the JSON grammars that they name."""

    target: Target
    name: str
    root: Mapping[str, Any]
    lines: list[str] = attrs.field(factory=list)
    inner: Grammars = attrs.field(factory=list)

    def literal(self, text: str) -> str:
        return literal(text, self.target)

    def add(self, body: str, lazy: bool = False) -> str:
        """Add a rule; its name."""
        name = f"{self.name}_{len(self.lines)}"
        self.lines.append(f"{name}{'[lazy]' if lazy else ''}: {body}")
        return name

    def json(self, schema: Any) -> str:
        """JSON of a schema, with the definitions of the whole."""
        shared = {key: self.root[key] for key in ("$defs", "definitions") if key in self.root}
        whole = {**shared, **schema} if isinstance(schema, Mapping) else schema
        [grammar] = JsonSchema(whole, compact=True).grammars(self.target)
        name = f"{self.name}_json_{len(self.inner)}"
        self.inner.append({"name": name, **grammar})
        return f"@{name}"

    def texts(self, schema: Mapping[str, Any]) -> list[str] | None:
        """The texts that an ``enum`` or ``const`` allows; None where any is."""
        if "const" in schema:
            return [_spell(schema["const"])]
        return [_spell(one) for one in schema["enum"]] if "enum" in schema else None

    def until(self, closing: str) -> str:
        """Any text, and its first closing."""
        written = self.literal(closing)
        if "<[" in written:
            return self.add(f"/(?s:.*)/ {written}")
        return self.add(f"{FREE} {written}", lazy=True)

    def row(self, schema: Mapping[str, Any], write: Callable[[str, Any], str], comma: str) -> str:
        """Properties in their order with commas between them; optional ones may be left out."""
        properties, required = schema["properties"], set(schema.get("required") or ())
        first, later = self.add('""'), self.add('""')
        for name, value in reversed(properties.items()):
            one = write(name, value)
            skip = [] if name in required else [first]
            begun = [] if name in required else [later]
            first, later = (
                self.add(" | ".join([f"{one} {later}", *skip])),
                self.add(" | ".join([f"{self.literal(comma)} {one} {later}", *begun])),
            )
        return first


def _spell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)


@attrs.define(eq=False)
class Arguments(Compiled):
    """The arguments of a function. name: of its rules. schema: an object of named properties."""

    name: str
    schema: Mapping[str, Any]

    what = "the arguments of a tool"

    def check(self) -> None:
        JsonSchema(self.schema).check()

    def write(self, rules: Rules) -> str:
        """The rule of all arguments."""
        raise NotImplementedError

    def grammars(self, target: Target) -> Grammars:
        rules = Rules(target, self.name, self.schema)
        start = self.write(rules)
        return [{"lark_grammar": "\n".join([f"start: {start}", *rules.lines])}, *rules.inner]


@attrs.define(eq=False)
class TaggedArguments(Arguments):
    """A text between tags for each argument. opening: with ``{}`` for the name."""

    opening: str
    closing: str
    after: str

    def write(self, rules: Rules) -> str:
        return rules.row(self.schema, lambda name, schema: self._one(rules, name, schema), "")

    def _one(self, rules: Rules, name: str, schema: Any) -> str:
        opening, after = rules.literal(self.opening.replace("{}", name)), rules.literal(self.after)
        if "string" not in types_of(schema):
            return f"{opening} {rules.json(schema)} {rules.literal(self.closing)} {after}"
        texts = rules.texts(schema)
        if texts is None:
            return f"{opening} {rules.until(self.closing)} {after}"
        options = " | ".join(rules.literal(text) or '""' for text in texts)
        return f"{opening} ({options}) {rules.literal(self.closing)} {after}"


@attrs.define(eq=False)
class PythonArguments(Arguments):
    """Keywords with values in JSON, which Python's notation has too."""

    def write(self, rules: Rules) -> str:
        write = lambda name, schema: f"{rules.literal(f'{name}=')} {rules.json(schema)}"
        return rules.row(self.schema, write, ", ")


@attrs.define(eq=False)
class GemmaArguments(Arguments):
    """Gemma's notation. quote: around texts."""

    quote: str = GEMMA_QUOTE

    def write(self, rules: Rules) -> str:
        return self._row(rules, self.schema, quoted=False)

    def _row(self, rules: Rules, schema: Mapping[str, Any], quoted: bool) -> str:
        key = lambda name: f"{self.quote}{name}{self.quote}:" if quoted else f"{name}:"
        write = lambda name, value: f"{rules.literal(key(name))} {self._value(rules, value)}"
        return rules.row(schema, write, ",")

    def _value(self, rules: Rules, schema: Any) -> str:
        if is_plain_text(schema) and types_of(schema) == {"string"}:
            return self._text(rules, schema)
        if is_plain(schema) and schema.get("type") == "object":
            return f'"{{" {self._row(rules, schema, quoted=True)} "}}"'
        items = schema.get("items") if isinstance(schema, Mapping) else None
        if isinstance(items, Mapping) and schema.get("type") == "array" and set(schema) <= {"type", "items", *NOTES}:
            one = rules.add(self._value(rules, items))
            return f'"[" ({one} ("," {one})*)? "]"'
        return rules.json(schema)

    def _text(self, rules: Rules, schema: Mapping[str, Any]) -> str:
        quote, texts = rules.literal(self.quote), rules.texts(schema)
        if texts is None:
            return f"{quote} {rules.until(self.quote)}"
        return f"({' | '.join(rules.literal(f'{self.quote}{text}{self.quote}') for text in texts)})"


def names_of(schema: Mapping[str, Any]) -> Iterator[str]:
    """Names of the properties of a schema and of its plain objects."""
    for name, one in schema["properties"].items():
        yield name
        if is_plain(one):
            yield from names_of(one)
