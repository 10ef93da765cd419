"""Conversations for the chat template: messages as templates expect them, with tools or without."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from spec_core import Tokenizer
from spec_serve.errors import ApiError
from spec_serve.fields import Message, Tool, ToolCall

ROLES = ("system", "user", "assistant", "tool")
WRITTEN = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{}\n</tools>\n\n"
    "For each function call, return a json object with function name and arguments within <tool_call></tool_call> "
    'XML tags:\n<tool_call>\n{{"name": <function-name>, "arguments": <args-json-object>}}\n</tool_call>'
)
"""The system message with tools, as Hermes models read it, where the template has no place for them."""


def knows_tools(tokenizer: Tokenizer) -> bool:
    """Whether the model's template has a place for tools."""
    return "tools" in (tokenizer.chat_template or "")


def conversation(messages: Sequence[Message], tools: Sequence[Tool], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Messages for the chat template. Raises ApiError for what is no text.

    Templates read what was thought as ``reasoning_content`` (Qwen, GLM) or ``thinking`` (gpt-oss).
    """
    found = [_message(at, message) for at, message in enumerate(messages)]
    if knows_tools(tokenizer):
        return found
    found = [_without_tools(message) for message in found]
    return _told(found, described(tools)) if tools else found


def described(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Tools as templates print them."""
    return [tool.model_dump(exclude_none=True) for tool in tools]


def _message(at: int, message: Message) -> dict[str, Any]:
    role = "system" if message.role == "developer" else message.role
    if role not in ROLES:
        raise ApiError(400, f"role {message.role!r:.40} is not supported", f"messages[{at}].role", "not_supported")
    if message.tool_calls and role != "assistant":
        raise ApiError(400, "only an assistant's message has tool_calls", f"messages[{at}].tool_calls")
    made: dict[str, Any] = {"role": role, "content": _content(at, message)}
    if message.tool_calls:
        made["tool_calls"] = [_call(at, call) for call in message.tool_calls]
    if message.reasoning_content:
        made |= {"reasoning_content": message.reasoning_content, "thinking": message.reasoning_content}
    return made | {n: v for n in ("name", "tool_call_id") if (v := getattr(message, n))}


def _call(at: int, call: ToolCall) -> dict[str, Any]:
    """Templates print the arguments themselves, so they are given as an object."""
    try:
        arguments = json.loads(call.function.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise ApiError(
            400, f"the arguments of a tool call are not JSON: {error}", f"messages[{at}].tool_calls"
        ) from error
    return {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": arguments}}


def _content(at: int, message: Message) -> str:
    if message.content is None:
        if not message.tool_calls:
            raise ApiError(400, f"messages[{at}] has no content", f"messages[{at}].content")
        return ""
    if isinstance(message.content, str):
        return message.content
    for part in message.content:
        if part.type != "text" or part.text is None:
            where = f"messages[{at}].content"
            raise ApiError(400, f"a part of type {part.type!r:.40} is not supported, only text", where, "not_supported")
    return "".join(part.text or "" for part in message.content)


def _without_tools(message: dict[str, Any]) -> dict[str, Any]:
    """Calls and their results as text, for a template that knows no tools."""
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
    calls = message.pop("tool_calls", [])
    written = [f"<tool_call>\n{json.dumps(call['function'], ensure_ascii=False)}\n</tool_call>" for call in calls]
    return {**message, "content": "\n".join([*([message["content"]] if message["content"] else []), *written])}


def _told(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With the tools in the system message."""
    text = WRITTEN.format("\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
    if messages[0]["role"] == "system":
        first, *rest = messages
        return [{**first, "content": f"{first['content']}\n\n{text}"}, *rest]
    return [{"role": "system", "content": text}, *messages]
