"""Bodies of Anthropic's ``/v1/messages``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from spec_serve.left_out import or_left_out
from spec_serve.schemas import NAME, Count, Generate
from spec_serve.strict_model import ANY, Body, ListOf

MARKED: Mapping[str, tuple[Any, ...]] = {"cache_control": (ANY,)}
"""Prompts are cached without being marked."""


class Block(Body):
    """A part of a message; which fields it needs is said by its type."""

    where: ClassVar[str] = "a content block"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **MARKED, "citations": (ANY,), "signature": (ANY,), "title": (ANY,), "context": (ANY,), "data": (ANY,),
        "caller": (ANY,), "signature_delta": (ANY,),
    }  # fmt: skip

    type: str
    text: str | None = None
    source: dict[str, Any] | str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | ListOf[AnyBlock] | None = None
    is_error: bool | None = None


BLOCKS_LEFT_OUT = frozenset(
    "tool_reference server_tool_use mcp_tool_use container_upload redacted_thinking fallback".split()
)


def is_left_out_block(name: str) -> bool:
    """Whether a block of this type reports what Anthropic's own servers did."""
    return name in BLOCKS_LEFT_OUT or (name.endswith("_tool_result") and name != "tool_result")


if TYPE_CHECKING:
    AnyBlock: TypeAlias = Any
else:
    AnyBlock = or_left_out(Block, is_left_out_block)
Block.model_rebuild()


class Turn(Body):
    where: ClassVar[str] = "a message"

    role: Literal["user", "assistant", "system"]
    content: str | ListOf[AnyBlock]


class MessageTool(Body):
    where: ClassVar[str] = "a tool"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **MARKED, "defer_loading": (ANY,), "eager_input_streaming": (ANY,), "input_examples": (ANY,),
    }  # fmt: skip

    type: Literal["custom"] | None = None
    name: Annotated[str, Field(pattern=NAME)]
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    allowed_callers: list[str] | None = Field(default=None, description="Without `direct` the tool is left out.")


if TYPE_CHECKING:
    AnyMessageTool: TypeAlias = Any
else:
    AnyMessageTool = or_left_out(MessageTool, lambda name: name != "custom")
"""A tool with a schema, or one of Anthropic's own, which is left out."""


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
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"task_budget": (ANY,)}

    effort: str | None = None
    format: OutputFormat | None = None


class Messages(Generate):
    """``/v1/messages``."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **MARKED, "metadata": (ANY,), "service_tier": (ANY,), "container": (ANY,),
        "context_management": (ANY,), "inference_geo": (ANY,), "betas": (ANY,), "anthropic_beta": (ANY,),
        "anthropic_version": (ANY,), "speed": (ANY,), "diagnostics": (ANY,), "user_profile_id": (ANY,),
        "fallbacks": (ANY,),
    }  # fmt: skip

    messages: Annotated[ListOf[Turn], Field(min_length=1)]
    max_tokens: Count | None = None
    system: str | ListOf[AnyBlock] | None = None
    stop_sequences: list[str] | None = None
    tools: ListOf[AnyMessageTool] | None = None
    mcp_servers: list[Any] | None = Field(default=None, description="Left out: they cannot be reached from here.")
    tool_choice: MessageChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    chat_template_kwargs: dict[str, Any] | None = None
