"""Fields of bodies that say what a text must be, by the names of OpenAI, llama-server and vLLM."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from spec_serve.strict_model import Body


class NamedSchema(Body):
    """``response_format.json_schema`` of OpenAI's API. A schema is always enforced, strict or not."""

    where: ClassVar[str] = "response_format.json_schema"

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    """Required form of the text: free, a JSON object, JSON of a schema, or free text with tags (tag_formats.py)."""

    where: ClassVar[str] = "response_format"

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: NamedSchema | None = None
    structures: list[Any] | None = Field(default=None, description="Tags; with `triggers`, for `structural_tag`.")
    triggers: list[Any] | None = None
    format: dict[str, Any] | None = Field(default=None, description="The other form of `structural_tag`.")
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema", description="llama-server's place.")


class StructuredOutputs(Body):
    """vLLM's: exactly one of these.

    choice: the text is one of them. grammar: in Lark's notation or GBNF. structural_tag: JSON (tag_formats.py).
    disable_any_whitespace: with one that is JSON, which then has no white space but a space after ``,`` and ``:``.
    """

    where: ClassVar[str] = "structured_outputs"

    json_: dict[str, Any] | bool | str | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | dict[str, Any] | None = None
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None


class Format(Body):
    """``response_format``, with its schema on the same level."""

    where: ClassVar[str] = "text.format"

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    strict: bool | None = None
