"""Bodies of Anthropic's ``/v1/messages``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from spec_serve.schemas import NAME, Count, Generate
from spec_serve.strict_model import ANY, Body, ListOf

MARKED: Mapping[str, tuple[Any, ...]] = {"cache_control": (ANY,)}
"""Prompts are cached without being marked."""


class Block(Body):
    """A part of a message; which fields it needs is said by its type."""

    where: ClassVar[str] = "a content block"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **MARKED, "citations": (ANY,), "signature": (ANY,), "title": (ANY,), "context": (ANY,), "data": (ANY,),
        "caller": (ANY,),
    }  # fmt: skip

    type: str
    text: str | None = None
    source: dict[str, Any] | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | ListOf[Block] | None = None
    is_error: bool | None = None


class Turn(Body):
    where: ClassVar[str] = "a message"

    role: Literal["user", "assistant", "system"]
    content: str | ListOf[Block]


class MessageTool(Body):
    where: ClassVar[str] = "a tool"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **MARKED, "defer_loading": (None, False), "eager_input_streaming": (ANY,), "input_examples": (ANY,),
        "allowed_callers": (None, ["direct"]),
    }  # fmt: skip

    type: Literal["custom"] | None = None
    name: Annotated[str, Field(pattern=NAME)]
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class MessageChoice(Body):
    where: ClassVar[str] = "tool_choice"

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Body):
    where: ClassVar[str] = "thinking"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"budget_tokens": (ANY,), "display": (ANY,)}

    type: Literal["enabled", "disabled", "adaptive"]


class OutputFormat(Body):
    where: ClassVar[str] = "output_config.format"

    type: Literal["json_schema"]
    schema_: dict[str, Any] | bool = Field(alias="schema")


class OutputConfig(Body):
    where: ClassVar[str] = "output_config"

    effort: str | None = None
    format: OutputFormat | None = None


class Messages(Generate):
    """``/v1/messages``."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **MARKED, "metadata": (ANY,), "service_tier": (None, "auto", "standard_only"), "container": (None,),
        "mcp_servers": (None, []), "context_management": (None,), "inference_geo": (ANY,),
    }  # fmt: skip

    messages: Annotated[ListOf[Turn], Field(min_length=1)]
    max_tokens: Count | None = None
    system: str | ListOf[Block] | None = None
    stop_sequences: list[str] | None = None
    tools: ListOf[MessageTool] | None = None
    tool_choice: MessageChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    chat_template_kwargs: dict[str, Any] | None = None
