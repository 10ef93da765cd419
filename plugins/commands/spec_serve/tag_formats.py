"""``structural_tag`` of vLLM and SGLang: free text in which a trigger begins a tag whose content has a grammar.

Both forms are read: ``structures`` with ``triggers``, and ``format`` of type ``triggered_tags``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError
from spec_grammar import JsonSchema, Regex, StructuralTags, Tag, grammar
from spec_grammar.compiled import Compiled

from spec_serve.errors import ApiError
from spec_serve.shape import LIMITS
from spec_serve.strict_model import Body

FIELD = "structural_tag"


class Structure(Body):
    """A tag of the first form: ``begin``, JSON of ``schema``, ``end``."""

    where: ClassVar[str] = "structural_tag.structures"

    begin: str
    schema_: dict[str, Any] | bool | str | None = Field(default=None, alias="schema")
    end: str


class Content(Body):
    """Content of a tag of the second form."""

    where: ClassVar[str] = "structural_tag.format.tags.content"

    type: Literal["json_schema", "regex", "grammar"]
    json_schema: dict[str, Any] | bool | None = None
    pattern: str | None = None
    grammar: str | None = None


class FormatTag(Body):
    """A tag of the second form."""

    where: ClassVar[str] = "structural_tag.format.tags"

    type: Literal["tag"] = "tag"
    begin: str
    content: Content
    end: str


class TriggeredTags(Body):
    """The second form; other types of format are refused."""

    where: ClassVar[str] = "structural_tag.format"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"at_least_one": (False,), "stop_after_first": (False,)}

    type: Literal["triggered_tags"]
    triggers: list[str]
    tags: list[FormatTag]


class StructuralTag(Body):
    """Exactly one of the two forms. triggers: of the first, one text with which every ``begin`` starts."""

    where: ClassVar[str] = FIELD

    type: Literal["structural_tag"] = "structural_tag"
    structures: list[Structure] | None = None
    triggers: list[str] | None = None
    format: TriggeredTags | None = None

    def constraint(self) -> StructuralTags:
        """Raise ApiError for no form, both, or another number of triggers than one."""
        if (self.structures is None) == (self.format is None):
            raise ApiError(400, f"{FIELD} needs either 'structures' with 'triggers', or 'format'", FIELD)
        if self.format is not None:
            tags = [Tag(tag.begin, _content(tag.content), tag.end) for tag in self.format.tags]
            return StructuralTags(_only(self.format.triggers), tags)
        assert self.structures is not None
        tags = [Tag(one.begin, JsonSchema(_any(one.schema_), compact=True), one.end) for one in self.structures]
        return StructuralTags(_only(self.triggers or []), tags)


def _load_json(text: str) -> Any:
    """The value of a JSON text. Raises ApiError for one of too many parts, JSONDecodeError."""
    try:
        LIMITS.check(text.encode(errors="surrogatepass"))
    except ValueError as error:
        raise ApiError(400, f"{FIELD} has {error}", FIELD) from None
    try:
        return json.loads(text)
    except RecursionError:
        raise ApiError(400, f"{FIELD} is nested too deeply", FIELD) from None


def structural_tag(source: str | Mapping[str, Any]) -> StructuralTags:
    """Structural tags of a JSON text or an object. Raises ApiError where it is neither form."""
    try:
        tag = _load_json(source) if isinstance(source, str) else source
        return StructuralTag.model_validate(tag).constraint()
    except json.JSONDecodeError as error:
        raise ApiError(400, f"{FIELD} is no JSON: {error}", FIELD) from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, (FIELD, *first["loc"])))
        raise ApiError(400, f"{place}: {first['msg']}", FIELD) from None


def _only(triggers: list[str]) -> str:
    if len(triggers) != 1:
        raise ApiError(400, f"{FIELD} has {len(triggers)} triggers; write one with which every begin starts", FIELD)
    return triggers[0]


def _any(schema: Any) -> Any:
    return True if schema is None else schema


KINDS: Mapping[str, tuple[str, Callable[[Any], Compiled]]] = {
    "json_schema": ("json_schema", lambda schema: JsonSchema(schema, compact=True)),
    "regex": ("pattern", Regex),
    "grammar": ("grammar", grammar),
}
"""Types of content: the field that has it, and what it becomes."""


def _content(content: Content) -> Compiled:
    field, create = KINDS[content.type]
    value = getattr(content, field)
    if value is None:
        raise ApiError(400, f"a content of type {content.type!r} needs {field!r}", FIELD)
    return create(value)
