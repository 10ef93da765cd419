"""Bodies of OpenAI's ``/v1/responses``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Discriminator, Field
from pydantic import Tag as PartTag

from spec_serve.formats import Format
from spec_serve.left_out import LeftOut, or_left_out
from spec_serve.schemas import NAME, Count, Generate, NamedTool, is_no_function
from spec_serve.strict_model import ANY, Body, ListOf


class ItemPart(Body):
    """A part of the content of an item of ``/v1/responses``, or of a tool's output."""

    where: ClassVar[str] = "a part of an item's content"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "annotations": (None, []), "logprobs": (ANY,), "detail": (ANY,), "file_id": (None,),
    }  # fmt: skip

    type: Literal["input_text", "output_text", "text", "reasoning_text", "summary_text", "refusal", "input_image"]
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None


class Item(Body):
    """A message, a call of a function, its output, or what was thought before one of them."""

    where: ClassVar[str] = "an item of the input"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "id": (ANY,), "status": (ANY,), "summary": (ANY,), "encrypted_content": (ANY,), "phase": (ANY,),
        "internal_chat_message_metadata_passthrough": (ANY,), "metadata": (ANY,), "success": (ANY,), "caller": (ANY,),
        "created_by": (ANY,), "agent": (ANY,),
    }  # fmt: skip

    type: Literal[
        "message", "function_call", "function_call_output", "reasoning", "custom_tool_call", "custom_tool_call_output",
        "local_shell_call", "local_shell_call_output",
    ] = "message"  # fmt: skip
    role: str | None = None
    content: str | ListOf[ItemPart] | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None
    action: dict[str, Any] | None = None
    output: str | ListOf[ItemPart] | None = None


ITEMS_LEFT_OUT = frozenset(
    "web_search_call image_generation_call file_search_call code_interpreter_call computer_call computer_call_output "
    "tool_search_call tool_search_output mcp_list_tools mcp_call mcp_approval_request mcp_approval_response "
    "shell_call shell_call_output apply_patch_call apply_patch_call_output ghost_snapshot additional_tools".split()
)
"""Items that report what tools of OpenAI's own servers did."""
if TYPE_CHECKING:
    AnyItem: TypeAlias = Any
else:
    AnyItem = or_left_out(Item, ITEMS_LEFT_OUT.__contains__)


class FlatTool(Body):
    """A function as ``/v1/responses`` writes it."""

    where: ClassVar[str] = "a tool"

    type: Literal["function"]
    name: Annotated[str, Field(pattern=NAME)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


if TYPE_CHECKING:
    FunctionTool: TypeAlias = Any
else:
    FunctionTool = or_left_out(FlatTool, is_no_function)


class Namespace(Body):
    """Functions with a name of their own for all of them, as agents offer an MCP server's."""

    where: ClassVar[str] = "a namespace of tools"

    type: Literal["namespace"]
    name: Annotated[str, Field(pattern=NAME)]
    description: str | None = None
    tools: ListOf[FunctionTool]


def _tool_tag(tool: Any) -> str:
    if isinstance(tool, (LeftOut, Namespace)):
        return "[left out]" if isinstance(tool, LeftOut) else "[namespace]"
    name = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    if name == "namespace":
        return "[namespace]"
    return "[left out]" if isinstance(name, str) and name != "function" else "[function]"


AnyFlatTool = Annotated[
    Annotated[FlatTool, PartTag("[function]")]
    | Annotated[Namespace, PartTag("[namespace]")]
    | Annotated[LeftOut, PartTag("[left out]")],
    Discriminator(_tool_tag),
]
"""A function, a namespace of them, or a tool that is left out."""


class FlatChoice(Body):
    where: ClassVar[str] = "tool_choice"

    type: str
    name: str | None = None
    namespace: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: ListOf[NamedTool] | None = None


class TextOptions(Body):
    where: ClassVar[str] = "text"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"verbosity": (ANY,)}

    format: Format | None = None


class Reasoning(Body):
    where: ClassVar[str] = "reasoning"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "summary": (ANY,), "generate_summary": (ANY,), "context": (ANY,), "mode": (ANY,),
    }  # fmt: skip

    effort: str | None = None


class Responses(Generate):
    """``/v1/responses``, for texts."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "background": (None, False), "conversation": (None,), "max_tool_calls": (ANY,),
        "previous_response_id": (None,), "prompt": (None,), "store": (ANY,), "verbosity": (ANY,),
        "truncation": (None, "disabled", "auto"), "service_tier": (ANY,), "prompt_cache_key": (ANY,),
        "prompt_cache_retention": (ANY,), "prompt_cache_options": (ANY,), "safety_identifier": (ANY,),
        "id_slot": (ANY,), "stream_options": (ANY,), "client_metadata": (ANY,), "context_management": (ANY,),
    }  # fmt: skip

    input: str | ListOf[AnyItem]
    include: list[str] | None = Field(default=None, description="Log-probabilities; other parts are never there.")
    instructions: str | None = None
    max_output_tokens: Count | None = None
    metadata: dict[str, str] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    text: TextOptions | None = None
    tools: ListOf[AnyFlatTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | FlatChoice | None = None
    top_logprobs: Count | None = None
    user: str | None = Field(default=None, description="Accepted; it changes nothing.")
