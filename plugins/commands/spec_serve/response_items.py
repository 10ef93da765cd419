"""The body of ``/v1/responses`` as a chat: its items as messages, its tools as functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from spec_serve import response_fields, schemas
from spec_serve.errors import ApiError
from spec_serve.formats import ResponseFormat
from spec_serve.left_out import LeftOut, report_left_out, without_left_out

NEEDS: Mapping[str, tuple[str, ...]] = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "custom_tool_call": ("call_id", "name", "input"),
    "local_shell_call": ("call_id", "action"),
}
"""Fields that an item of this type must have; an output of a tool has ``call_id`` and ``output``."""
LOGPROBS = "message.output_text.logprobs"


def as_chat(body: response_fields.Responses) -> schemas.Chat:
    """The request as a chat. Raises ApiError for an item that lacks a field."""
    items = [response_fields.Item(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    items = without_left_out("input", items)
    messages = [schemas.Message(role="system", content=body.instructions)] if body.instructions else []
    messages += _messages(items)
    if not messages and body.max_output_tokens != 1:  # agents ask for one token to see whether the server is there
        raise ApiError(400, "input has no items, and there are no instructions: nothing can be answered", "input")
    shared = {name: getattr(body, name) for name in schemas.Generate.model_fields}
    logprobs = bool(body.top_logprobs) or LOGPROBS in (body.include or ())
    tools = offered_tools(body)
    return schemas.Chat(
        **shared,
        messages=messages or [schemas.Message(role="user", content="")],
        max_completion_tokens=body.max_output_tokens,
        logprobs=True if logprobs else None,
        top_logprobs=body.top_logprobs or None,
        tools=[_tool(tool, name) for name, (tool, _) in tools.items()],
        tool_choice=_choice(body.tool_choice, tools),
        parallel_tool_calls=body.parallel_tool_calls if tools else None,
        response_format=_format(body.text),
        reasoning_effort=body.reasoning.effort if body.reasoning else None,
        chat_template_kwargs=body.chat_template_kwargs,
    )


def _format(text: response_fields.TextOptions | None) -> ResponseFormat | None:
    if text is None or text.format is None:
        return None
    return ResponseFormat(type=text.format.type, schema=text.format.schema_)


# tools

Offered = dict[str, tuple[response_fields.FlatTool, str | None]]
"""Functions and their namespaces, by the name that the model calls."""


def offered_tools(body: response_fields.Responses) -> Offered:
    """The functions that the model may call. Raises ApiError for two of a name."""
    offered: Offered = {}
    for tool, space in _functions(body.tools or ()):
        name = called_name(tool.name, space)
        if name in offered:
            raise ApiError(400, f"two tools have the name {name!r}", "tools")
        offered[name] = tool, space
    return offered


def _functions(tools: Any) -> Iterator[tuple[response_fields.FlatTool, str | None]]:
    for tool in tools:
        if isinstance(tool, response_fields.Namespace):
            yield from ((one, tool.name) for one in tool.tools if not isinstance(one, LeftOut))
        elif not isinstance(tool, LeftOut):
            yield tool, None


def report_tools(body: response_fields.Responses) -> None:
    """Log the tools that are left out."""
    inner = (one for tool in body.tools or () if isinstance(tool, response_fields.Namespace) for one in tool.tools)
    report_left_out("tools", (tool for tool in (*(body.tools or ()), *inner) if isinstance(tool, LeftOut)))


def called_name(name: str, space: str | None) -> str:
    """The name of a function for the model: that of its namespace is before it."""
    if not space:
        return name
    return name if name.startswith(space) else f"{space.rstrip('_')}__{name}"


def _tool(tool: response_fields.FlatTool, name: str) -> schemas.Tool:
    values = tool.model_dump(exclude={"type", "name"}, exclude_none=True)
    return schemas.Tool(type="function", function=schemas.Function.model_construct(name=name, **values))


def _choice(choice: Any, tools: Offered) -> Any:
    """The choice of a chat. Raises ApiError for a tool that is not offered: another answer would be meant."""
    if not isinstance(choice, response_fields.FlatChoice):
        return None if choice == "auto" and not tools else choice
    if choice.type == "allowed_tools":
        listed = schemas.AllowedTools(mode=choice.mode or "auto", tools=choice.tools or [])
        return schemas.AllowedChoice(type="allowed_tools", allowed_tools=listed)
    if choice.type != "function" or choice.name is None:
        problem = f"tool_choice demands a tool of type {choice.type!r:.60}, which this server cannot offer"
        raise ApiError(400, problem, "tool_choice", "not_supported")
    name = called_name(choice.name, choice.namespace)
    return schemas.ToolChoice(type="function", function=schemas.NamedFunction(name=name))


# items


def _messages(items: list[response_fields.Item]) -> list[schemas.Message]:
    """Messages of the items; what was thought belongs to the assistant's message after it."""
    converted: list[schemas.Message] = []
    thought: str | None = None
    for at, item in enumerate(items):
        if item.type == "reasoning":
            thought = _text(item.content or "", f"input[{at}].content")
            continue
        message = _message(at, item)
        if thought and message.role == "assistant":
            message.reasoning_content, thought = thought, None
        last = converted[-1] if converted else None
        if message.tool_calls and last is not None and last.role == "assistant":
            last.tool_calls = [*(last.tool_calls or []), *message.tool_calls]  # calls of one turn
            last.reasoning_content = last.reasoning_content or message.reasoning_content
            continue
        converted.append(message)
    return converted


def _message(at: int, item: response_fields.Item) -> schemas.Message:
    for name in NEEDS.get(item.type, ("call_id", "output")):
        if getattr(item, name) is None:
            raise ApiError(400, f"an item of type {item.type!r} needs {name}", f"input[{at}].{name}")
    if item.type == "message":
        return schemas.Message(role=item.role or "", content=_parts(item.content, f"input[{at}].content"))
    if item.type.endswith("_output"):
        content = _text(item.output, f"input[{at}].output")
        return schemas.Message(role="tool", content=content, tool_call_id=item.call_id)
    function = schemas.CalledFunction(name=_name_of_call(item), arguments=_arguments(item))
    return schemas.Message(role="assistant", tool_calls=[schemas.ToolCall(id=item.call_id or "", function=function)])


def _name_of_call(item: response_fields.Item) -> str:
    return "local_shell" if item.type == "local_shell_call" else called_name(item.name or "", item.namespace)


def _arguments(item: response_fields.Item) -> str:
    """The arguments of a call; for tools without a schema an object of one text."""
    if item.type == "custom_tool_call":
        return json.dumps({"input": item.input}, ensure_ascii=False, allow_nan=False)
    if item.type == "local_shell_call":
        return json.dumps(item.action, ensure_ascii=False, allow_nan=False)
    return item.arguments or ""


def _parts(content: Any, where: str) -> Any:
    """Texts and pictures; one text, if there is no picture. Raises ApiError for a picture that is elsewhere."""
    if isinstance(content, str) or not any(part.type == "input_image" for part in content):
        return _text(content, where)
    parts = []
    for part in content:
        if part.type == "input_image" and part.image_url is None:
            raise ApiError(400, "a part of type input_image needs image_url", where)
        picture = part.type == "input_image"
        one = {"image_url": part.image_url} if picture else {"text": part.text or part.refusal or ""}
        parts.append(schemas.ContentPart(type="image_url" if picture else "text", **one))
    return parts


def _text(content: Any, where: str) -> str:
    """The text of parts. Raises ApiError for a picture, which has no place there."""
    if isinstance(content, str):
        return content
    if any(part.type == "input_image" for part in content):
        raise ApiError(400, "a picture is not supported here, only text", where, "not_supported")
    return "".join(part.text or part.refusal or "" for part in content)
