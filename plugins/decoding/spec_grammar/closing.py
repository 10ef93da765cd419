"""Objects of a schema are closed where it names properties and says nothing about others.

Where an object is described by several schemas, as with ``allOf``, it is the whole that is closed, and no part: keys
that one part does not name may be named by another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from spec_core import UsageError
from spec_grammar.references import Document

SAYS = ("additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames", "dependentSchemas")
"""Keywords that say something about keys that are not named."""
PARTS = ("allOf", "anyOf", "oneOf")
NOTES = {
    "title", "description", "default", "examples", "example", "$comment", "$schema", "$id", "$anchor", "$defs",
    "definitions", "deprecated", "readOnly", "writeOnly", "x-guidance",
}  # fmt: skip
"""Keywords that do not describe an object."""
INSIDE = ("items", "additionalProperties", "additionalItems", "contains", "unevaluatedItems", "contentSchema")
"""Keywords whose values are schemas of other values."""
OWN = ("$id", "$anchor", "$dynamicAnchor", "$defs", "definitions", "$schema")
"""Keywords of a definition that its closed copy does not have."""
CLOSED = "closed:"
"""Beginning of the names of closed copies."""
WORK_MAX = 200_000
"""Parts and keys that are looked at."""


@attrs.define
class ObjectKeys:
    """Keys that an object's schemas name.

    stands: one of them has ``properties``. closed: none of them says anything about other keys.
    """

    keys: dict[str, None] = attrs.field(factory=dict)
    stands: bool = False
    closed: bool = True
    count_min: int = 0

    def add(self, schema: Mapping[str, Any]) -> None:
        properties, required, count = (schema.get(key) for key in ("properties", "required", "minProperties"))
        self.stands = self.stands or isinstance(properties, Mapping)
        self.keys |= dict.fromkeys(properties if isinstance(properties, Mapping) else ())
        names = required if isinstance(required, list) else []
        self.keys |= {name: None for name in names if isinstance(name, str)}
        self.closed = self.closed and not any(key in schema for key in SAYS)
        self.count_min = max(self.count_min, count if isinstance(count, int) else 0)

    @property
    def is_closed(self) -> bool:
        return self.stands and self.closed and self.count_min <= len(self.keys)


def close_objects(schema: Any) -> Any:
    """The schema with its objects closed. Raises UsageError for one whose parts name too many keys together."""
    if not isinstance(schema, Mapping):
        return schema
    closing = Closing(Document(schema))
    closed = closing.close(schema)
    copies = closing.close_copies()
    return {**closed, "$defs": {**(closed.get("$defs") or {}), **copies}} if copies else closed


@attrs.define
class Closing:
    """Closes the objects of one document. copies: names of closed copies of definitions, by reference."""

    document: Document
    copies: dict[str, str] = attrs.field(factory=dict)
    work: int = 0

    def close_copies(self) -> dict[str, Any]:
        """Closed copies of the definitions that are referred to, directly or by another one."""
        closed: dict[str, Any] = {}
        while len(closed) < len(self.copies):
            for reference, name in list(self.copies.items())[len(closed) :]:
                target = self.document.resolve(reference)
                closed[name] = self.close({key: value for key, value in target.items() if key not in OWN})
        return closed

    def close(self, schema: Any) -> Any:
        """A schema that stands for a whole value."""
        if not isinstance(schema, Mapping):
            return schema
        if isinstance(reference := schema.get("$ref"), str) and set(schema) <= NOTES | {"$ref"}:
            return {**schema, "$ref": self._close_definition(reference)}
        inner = {key: self._close_inside(key, value) for key, value in schema.items()}
        if (key := self._alternatives(schema)) is not None:
            return {**inner, key: [self.close(one) for one in schema[key]]}
        object_keys = self._name_keys(schema)
        if not object_keys.is_closed:
            return inner
        properties = {**dict.fromkeys(object_keys.keys, True), **(inner.get("properties") or {})}
        return {**inner, "properties": properties, "additionalProperties": False}

    def _close_definition(self, reference: str) -> str:
        """The reference to a closed copy of a definition; the reference itself where there is none."""
        if self.document.has_inner_ids or not isinstance(self.document.resolve(reference), Mapping):
            return reference
        name = self.copies.setdefault(reference, f"{CLOSED}{len(self.copies)}")
        return f"#/$defs/{name}"

    def _close_inside(self, key: str, value: Any) -> Any:
        """The value of a keyword: schemas of other values are closed, parts of this one have their insides closed."""
        if key in ("properties", "patternProperties") and isinstance(value, Mapping):
            return {name: self.close(one) for name, one in value.items()}
        if key in INSIDE:
            return [self.close(one) for one in value] if isinstance(value, list) else self.close(value)
        if key == "prefixItems" and isinstance(value, list):
            return [self.close(one) for one in value]
        if key in PARTS and isinstance(value, list):
            return [self._close_part(one) for one in value]
        return value

    def _close_part(self, schema: Any) -> Any:
        """A part of a value's description: it is left open, and what is inside of it is closed."""
        if not isinstance(schema, Mapping):
            return schema
        return {key: self._close_inside(key, value) for key, value in schema.items()}

    def _alternatives(self, schema: Mapping[str, Any]) -> str | None:
        """The keyword of alternatives that describe the value alone, so that each of them is a whole.

        With ``oneOf`` a text that fits two of them is wrong, so closing must not be what tells them apart.
        """
        described = set(schema) - NOTES
        if described == {"anyOf"} and isinstance(schema["anyOf"], list):
            return "anyOf"
        if described == {"oneOf"} and isinstance(schema["oneOf"], list) and self._are_told_apart(schema["oneOf"]):
            return "oneOf"
        return None

    def _are_told_apart(self, options: list[Any]) -> bool:
        """Whether at most one alternative is an object, or a required key has another constant in each of them."""
        objects = [one for one in map(self._follow, options) if not _is_no_object(one)]
        if len(objects) < 2:
            return True
        keys = [set(_constants(one)) for one in objects]
        return any(
            len({repr(_constants(one)[key]) for one in objects}) == len(objects) for key in set.intersection(*keys)
        )

    def _follow(self, schema: Any) -> Any:
        for _ in range(16):
            if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
                break
            schema = self.document.resolve(schema["$ref"])
        return schema

    def _name_keys(self, schema: Mapping[str, Any]) -> ObjectKeys:
        """Keys that a schema and its parts name. Not recursive: parts may refer to one another in a long chain."""
        object_keys, waiting, seen = ObjectKeys(), [schema], set()
        while waiting:  # depth first: the order of keys is the order in which they are written
            part = waiting.pop()
            if isinstance(part, Mapping) and id(part) not in seen:
                seen.add(id(part))
                object_keys.add(part)
                waiting += reversed(list(self._parts(part)))
        self.work += len(seen) + len(object_keys.keys)
        if self.work > WORK_MAX:
            raise UsageError("the JSON schema has parts that name too many keys together", hint="simplify the schema")
        return object_keys

    def _parts(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        if isinstance(schema.get("$ref"), str):
            yield self.document.resolve(schema["$ref"])
        for key in PARTS:
            yield from schema[key] if isinstance(schema.get(key), list) else ()
        yield from (schema[key] for key in ("then", "else", "if") if key in schema)


def _is_no_object(schema: Any) -> bool:
    """Whether no value of a schema is an object."""
    if not isinstance(schema, Mapping):
        return schema is False
    types = schema.get("type")
    types = [types] if isinstance(types, str) else types
    constants = schema.get("enum") if "enum" in schema else [schema["const"]] if "const" in schema else None
    by_type = isinstance(types, list) and "object" not in types
    by_value = isinstance(constants, list) and not any(isinstance(one, Mapping) for one in constants)
    return by_type or by_value


def _constants(schema: Any) -> dict[str, Any]:
    """Constants of required keys."""
    if not isinstance(schema, Mapping):
        return {}
    properties, constants = schema.get("properties"), {}
    for name in schema.get("required") or ():
        one = properties.get(name) if isinstance(properties, Mapping) and isinstance(name, str) else None
        if isinstance(one, Mapping) and "const" in one:
            constants[name] = one["const"]
        elif isinstance(one, Mapping) and isinstance(one.get("enum"), list) and len(one["enum"]) == 1:
            constants[name] = one["enum"][0]
    return constants
