"""Anthropic's ``/v1/messages``: its routes, its body as a chat, and its answer, whole and as events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Literal
from uuid import uuid4

import attrs
from pydantic import BaseModel
from starlette.responses import Response

from spec_serve import generation_params, report, schemas
from spec_serve.conversation import ChatPrompt
from spec_serve.errors import ApiError, api_error_of
from spec_serve.formats import ResponseFormat
from spec_serve.job import Done, EventQueue, Failed, Job, Progress, job_messages
from spec_serve.left_out import LeftOut, without_left_out
from spec_serve.message_fields import Block, MessageChoice, Messages, MessageTool, Turn
from spec_serve.parts import AnswerPart
from spec_serve.reading import Reader
from spec_serve.report import Finished
from spec_serve.routes import READS, TypedErrorAnswer, api_router, generation_responses, refusals
from spec_serve.server_config import ServerConfig
from spec_serve.service import Json, ServiceOf
from spec_serve.stream import as_json
from spec_serve.tool_calls import Call

router = api_router("Anthropic", TypedErrorAnswer)
REASONS = {"length": "max_tokens", "deadline": "max_tokens", "cancelled": "max_tokens"}
CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class MessageAnswer(BaseModel):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: str
    stop_sequence: str | None
    usage: dict[str, int]


@router.post("/v1/messages", response_model=MessageAnswer, responses=generation_responses(TypedErrorAnswer))
async def create_message(body: Messages, service: ServiceOf) -> Response:
    """Answer a conversation, in the form of Anthropic's API."""
    if body.max_tokens is None:
        raise ApiError(400, "max_tokens is missing", "max_tokens")
    chat = await service.prepare(as_chat, body)
    ask, chat_prompt, _ = await service.prepare(generation_params.ask_chat, chat, service.config)
    name = f"msg_{uuid4().hex}"
    jobs, queue = await service.submit(ask, [chat_prompt], 1, name)
    reader = generation_params.reads_of(chat, chat_prompt.tools, ask, service.config).reader(jobs[0], service.tokenizer)
    return await service.respond(MessageReply(service.config, jobs[0], queue, name, reader), jobs, body.stream)


class MessageTokens(BaseModel):
    input_tokens: int


@router.post(
    "/v1/messages/count_tokens", response_model=MessageTokens, responses=refusals(*READS, model=TypedErrorAnswer)
)
async def count_message_tokens(body: Messages, service: ServiceOf) -> Response:
    """Number of tokens of a message's prompt."""
    chat = await service.prepare(as_chat, body)
    tools = generation_params.tools_of(chat.tools, chat.tool_choice, service.config.limits)
    chat_prompt = ChatPrompt(chat.messages, tools, chat, service.config.template_defaults)
    [prompt] = await service.encode(chat_prompt)
    return Json({"input_tokens": len(prompt.tokens)})


# from its body to a chat


def as_chat(body: Messages) -> schemas.Chat:
    """The request as a chat. Raises ApiError for fields that a chat cannot have."""
    shared = {name: getattr(body, name) for name in schemas.Generate.model_fields}
    if body.stop_sequences is not None:
        if body.stop is not None:
            raise ApiError(400, "stop and stop_sequences are both given; write one", "stop_sequences")
        shared["stop"] = body.stop_sequences
    written = body.system if isinstance(body.system, str) else _text(without_left_out("system", body.system), "system")
    system = [schemas.Message(role="system", content=written)] if written else []
    choice, tools = body.tool_choice, [_tool(tool) for tool in _offered_tools(body)]
    return schemas.Chat(
        **shared,
        messages=[*system, *(message for at, turn in enumerate(body.messages) for message in _chat_messages(at, turn))],
        max_tokens=body.max_tokens,
        tools=tools,
        tool_choice=_choice(choice, tools) if choice is not None else None,
        parallel_tool_calls=not choice.disable_parallel_tool_use if choice is not None and tools else None,
        response_format=_format(body),
        reasoning_effort=body.output_config.effort if body.output_config else None,
        chat_template_kwargs=_variables(body),
    )


def _variables(body: Messages) -> dict[str, Any] | None:
    if body.thinking is None or body.thinking.type == "adaptive":
        return body.chat_template_kwargs
    return {"enable_thinking": body.thinking.type == "enabled", **(body.chat_template_kwargs or {})}


def _format(body: Messages) -> ResponseFormat | None:
    format = body.output_config.format if body.output_config else None
    if format is not None and body.output_format is not None:
        raise ApiError(400, "output_format and output_config.format are both given; write one", "output_format")
    format = format or body.output_format
    return None if format is None else ResponseFormat(type="json_schema", schema=format.schema_)


def _offered_tools(body: Messages) -> list[MessageTool]:
    """The tools that have a schema and may be called directly; others are logged."""
    direct = [tool if _is_direct(tool) else LeftOut(type=f"{tool.name} (for code alone)") for tool in body.tools or ()]
    servers = [LeftOut(type="mcp_servers")] if body.mcp_servers else []
    return without_left_out("tools", [*direct, *servers])


def _is_direct(tool: Any) -> bool:
    return isinstance(tool, LeftOut) or tool.allowed_callers is None or "direct" in tool.allowed_callers


def _tool(tool: MessageTool) -> schemas.Tool:
    function = schemas.Function(
        name=tool.name, description=tool.description, parameters=tool.input_schema, strict=tool.strict
    )
    return schemas.Tool(type="function", function=function)


def _choice(choice: MessageChoice, tools: list[schemas.Tool]) -> Any:
    if choice.type != "tool":
        return None if choice.type == "auto" and not tools else CHOICES[choice.type]
    if choice.name is None:
        raise ApiError(400, "a tool_choice of type 'tool' needs a name", "tool_choice.name")
    return schemas.ToolChoice(type="function", function=schemas.NamedFunction(name=choice.name))


def _chat_messages(at: int, turn: Turn) -> list[schemas.Message]:
    """A message as in a chat: results of tools are messages of their own."""
    where = f"messages[{at}].content"
    if isinstance(turn.content, str):
        return [schemas.Message(role=turn.role, content=turn.content)]
    blocks = without_left_out(where, turn.content)
    if turn.role == "assistant":
        return [_assistant_message(blocks, where)]
    converted: list[schemas.Message] = []
    parts: list[Block] = []
    for block in blocks:
        if block.type != "tool_result":
            parts.append(block)
            continue
        converted += [schemas.Message(role=turn.role, content=_parts(parts, where))] if parts else []
        parts = []
        content = (
            block.content if isinstance(block.content, str) else _text(without_left_out(where, block.content), where)
        )
        converted.append(
            schemas.Message(role="tool", content=content, tool_call_id=_require(block, "tool_use_id", where))
        )
    return (
        [*converted, schemas.Message(role=turn.role, content=_parts(parts, where))]
        if parts or not converted
        else converted
    )


def _assistant_message(blocks: list[Block], where: str) -> schemas.Message:
    """An assistant's message, with what it thought and called."""
    kinds = ("thinking", "redacted_thinking", "tool_use")
    calls = [
        schemas.ToolCall(
            id=_require(block, "id", where),
            function=schemas.CalledFunction(
                name=_require(block, "name", where), arguments=json.dumps(block.input or {}, allow_nan=False)
            ),
        )
        for block in blocks
        if block.type == "tool_use"
    ]
    return schemas.Message(
        role="assistant",
        content=_text([block for block in blocks if block.type not in kinds], where),
        tool_calls=calls or None,
        reasoning_content="".join(block.thinking or "" for block in blocks if block.type == "thinking") or None,
    )


def _require(block: Block, name: str, where: str) -> str:
    value = getattr(block, name)
    if value is None:
        raise ApiError(400, f"a block of type {block.type!r:.40} needs {name}", where)
    return str(value)


def _parts(blocks: list[Block], where: str) -> str | list[schemas.ContentPart]:
    """Texts and pictures of a user; one text, if there is no picture."""
    if not any(block.type == "image" for block in blocks):
        return _text(blocks, where)
    return [
        schemas.ContentPart(type="image_url", image_url=_picture(block, where))
        if block.type == "image"
        else schemas.ContentPart(type="text", text=_text([block], where))
        for block in blocks
    ]


def _picture(block: Block, where: str) -> str:
    """The picture of a block as a ``data:`` URL. Raises ApiError for one that is elsewhere."""
    source = block.source if isinstance(block.source, dict) else {}
    if source.get("type") != "base64":
        problem = f"a picture has a source of type {source.get('type')!r:.40}: send its data as base64"
        raise ApiError(400, problem, where, "not_supported")
    return f"data:{source.get('media_type')};base64,{source.get('data')}"


def _as_text(block: Block) -> Block:
    """Blocks whose content is text as such a block: a document or a result of a search in text, a summary."""
    source = block.source if isinstance(block.source, dict) else {}
    if block.type == "document" and source.get("type") == "text" and isinstance(source.get("data"), str):
        return Block(type="text", text=source["data"])
    if block.type in ("compaction", "search_result"):
        content = block.content or ""
        inner = content if isinstance(content, str) else "\n".join(getattr(one, "text", None) or "" for one in content)
        return Block(type="text", text=inner)
    return block


def _text(content: str | list[Block], where: str) -> str:
    if isinstance(content, str):
        return content
    content = [_as_text(block) for block in content]
    for block in content:
        if block.type in ("image", "document"):
            problem = f"{block.type} input is not supported, only text"
            raise ApiError(400, problem, where, "not_supported")
        if block.type != "text" or block.text is None:
            raise ApiError(400, f"a block of type {block.type!r:.40} is not supported here", where, "not_supported")
    return "".join(block.text or "" for block in content)


# its answer


@attrs.define(eq=False)
class MessageReply:
    """An answer as its text comes: blocks of what was thought, said and called."""

    config: ServerConfig
    job: Job
    queue: EventQueue
    name: str
    reader: Reader
    blocks: list[dict[str, Any]] = attrs.field(factory=list)
    _open: bool = False
    _finished: Finished | None = None

    async def wait(self) -> None:
        """Wait for the text. Raises the error that ended it."""
        [self._finished] = await report.wait_for_all(self.queue, 1)

    def whole(self) -> dict[str, Any]:
        """The answer in one piece."""
        finished = self._finished
        assert finished is not None
        for step in self.job.steps:
            self._events(self.reader.put(step.events))
        self._events(self.reader.end())
        reason, word = self._stop_reason(finished)
        return {
            **self._head(),
            "content": self.blocks,
            "stop_reason": reason,
            "stop_sequence": word,
            "usage": usage(finished),
        }

    async def chunks(self) -> AsyncIterator[str]:
        """Server-sent events with the names of the API."""
        start = {"input_tokens": len(self.job.request.prompt), "output_tokens": 0}
        empty = {**self._head(), "content": [], "stop_reason": None, "stop_sequence": None, "usage": start}
        yield _event("message_start", message=empty)
        async for _, message in job_messages(self.queue, 1):
            if isinstance(message, Failed):
                yield _event("error", error=api_error_of(message.error).body["error"])
                return
            if isinstance(message, Progress):
                for line in self._events(self.reader.put(message.events)):
                    yield line
            elif isinstance(message, Done):
                for line in [*self._events(self.reader.end()), *self._close_block()]:
                    yield line
                finished = Finished(self.job, message.result)
                reason, word = self._stop_reason(finished)
                delta = {"stop_reason": reason, "stop_sequence": word}
                yield _event("message_delta", delta=delta, usage=usage(finished))
        yield _event("message_stop")

    def _head(self) -> dict[str, Any]:
        return {"id": self.name, "type": "message", "role": "assistant", "model": self.config.model}

    def _stop_reason(self, finished: Finished) -> tuple[str, str | None]:
        if self.reader.calls and finished.reason == "stop":
            return "tool_use", None
        if finished.reason != "stop":
            return REASONS.get(finished.reason, "end_turn"), None
        assert self.config.target.tokenizer is not None
        word = report.stop_text(finished, self.config.target.tokenizer)
        return ("end_turn", None) if word is None else ("stop_sequence", word)

    def _events(self, parts: list[AnswerPart | Call]) -> list[str]:
        """Events of what was thought, said and called; the blocks are added to the content."""
        lines = []
        for part in parts:
            lines += self._write_call(part) if isinstance(part, Call) else self._write_part(part)
        return lines

    def _write_part(self, part: AnswerPart) -> list[str]:
        kind = "thinking" if part.kind == "reasoning" else "text"
        lines = []
        if not self._open or self.blocks[-1]["type"] != kind:
            more = {"signature": ""} if kind == "thinking" else {}
            lines = [*self._close_block(), self._start_block({"type": kind, kind: "", **more})]
        self.blocks[-1][kind] += part.text
        return [*lines, self._delta(**{"type": f"{kind}_delta", kind: part.text})]

    def _write_call(self, call: Call) -> list[str]:
        block = {"type": "tool_use", "id": call.id.replace("call_", "toolu_"), "name": call.name, "input": {}}
        lines = [*self._close_block(), self._start_block(block)]
        lines += [self._delta(type="input_json_delta", partial_json=call.arguments)]
        self.blocks[-1] = {**block, "input": json.loads(call.arguments)}
        return [*lines, *self._close_block()]

    def _start_block(self, block: dict[str, Any]) -> str:
        self.blocks.append(block)
        self._open = True
        return _event("content_block_start", index=len(self.blocks) - 1, content_block=dict(block))

    def _delta(self, **delta: Any) -> str:
        return _event("content_block_delta", index=len(self.blocks) - 1, delta=delta)

    def _close_block(self) -> list[str]:
        """The end of a block that is open."""
        if not self._open:
            return []
        self._open = False
        thought = self.blocks[-1]["type"] == "thinking"
        signed = [self._delta(type="signature_delta", signature="")] if thought else []
        return [*signed, _event("content_block_stop", index=len(self.blocks) - 1)]


def usage(finished: Finished) -> dict[str, int]:
    """Tokens by Anthropic's names: tokens from the cache do not count as input."""
    result = finished.result
    return {
        "input_tokens": result.prompt_tokens - result.reused,
        "cache_read_input_tokens": result.reused,
        "cache_creation_input_tokens": 0,
        "output_tokens": len(result.tokens),
    }


def _event(kind: str, **more: Any) -> str:
    return f"event: {kind}\ndata: {as_json({'type': kind, **more})}\n\n"
