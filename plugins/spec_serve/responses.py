"""``/v1/responses`` for texts: its body as a conversation, and its answer, whole and as events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from time import time
from typing import Any

import attrs

from spec_serve import fields, report, tokens
from spec_serve.asked import Terms
from spec_serve.calls import Call, CallReader
from spec_serve.errors import ApiError, refused
from spec_serve.formats import ResponseFormat
from spec_serve.job import Done, Failed, Job, Outlet, Progress, messages
from spec_serve.report import Finished
from spec_serve.stream import as_json

STATUS = {"length": "incomplete", "deadline": "incomplete", "cancelled": "cancelled"}
WHY = {"length": "max_output_tokens", "deadline": "deadline"}


# from its body to a conversation


def as_chat(body: fields.Responses) -> fields.Chat:
    """The same request as a chat. Raises ApiError for an item that lacks a field."""
    items = [fields.Item(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    said = [fields.Message(role="system", content=body.instructions)] if body.instructions else []
    shared = {name: getattr(body, name) for name in fields.Generate.model_fields}
    return fields.Chat(
        **shared,
        messages=[*said, *(_message(at, item) for at, item in enumerate(items))],
        max_completion_tokens=body.max_output_tokens,
        logprobs=True if body.top_logprobs else None,
        top_logprobs=body.top_logprobs or None,
        tools=[_tool(tool) for tool in body.tools or ()],
        tool_choice=_choice(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls,
        response_format=_format(body.text),
    )


def _format(text: fields.Text | None) -> ResponseFormat | None:
    if text is None or text.format is None:
        return None
    return ResponseFormat(type=text.format.type, schema=text.format.schema_)


def _tool(tool: fields.FlatTool) -> fields.Tool:
    given = tool.model_dump(exclude={"type"}, exclude_none=True)
    return fields.Tool(type="function", function=fields.Function(**given))


def _choice(choice: Any) -> Any:
    if not isinstance(choice, fields.FlatChoice):
        return choice
    return fields.ToolChoice(type="function", function=fields.Named(name=choice.name))


def _message(at: int, item: fields.Item) -> fields.Message:
    needs = {"message": ("role", "content"), "function_call": ("call_id", "name", "arguments")}
    for name in needs.get(item.type, ("call_id", "output")):
        if getattr(item, name) is None:
            raise ApiError(400, f"an item of type {item.type!r} needs {name}", f"input[{at}].{name}")
    if item.type == "message":
        return fields.Message(role=item.role or "", content=_text(item.content))
    if item.type == "function_call_output":
        return fields.Message(role="tool", content=_text(item.output), tool_call_id=item.call_id)
    function = fields.CalledFunction(name=item.name or "", arguments=item.arguments or "")
    return fields.Message(role="assistant", tool_calls=[fields.ToolCall(id=item.call_id or "", function=function)])


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


# its answer


@attrs.define(eq=False)
class Answer:
    """An answer as its text comes. name: the part of its ids that is its own."""

    terms: Terms
    body: fields.Responses
    job: Job
    outlet: Outlet
    name: str
    tools: list[fields.Tool]
    created: int = attrs.field(factory=lambda: int(time()))
    output: list[dict[str, Any]] = attrs.field(factory=list)
    said: str = ""
    numbers: int = 0
    reader: CallReader = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.reader = CallReader.of(self.tools, self.body.parallel_tool_calls is False)

    async def whole(self) -> dict[str, Any]:
        """In one piece. Raises the error that ended the text."""
        async for _, message in messages(self.outlet, 1):
            if isinstance(message, Failed):
                raise refused(message.error) from message.error
            if isinstance(message, Done):
                finished = Finished(self.job, message.result)
        for part in (self._read(finished.result.text), self._ended()):
            list(self._events(*part))
        list(self._closed())
        return self._response(finished)

    def _read(self, text: str) -> tuple[str, list[Call]]:
        return self.reader.put(text) if self.tools else (text, [])

    def _ended(self) -> tuple[str, list[Call]]:
        return self.reader.end() if self.tools else ("", [])

    async def chunks(self) -> AsyncIterator[str]:
        """Server-sent events with the names of the API."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._response(None))
        async for _, message in messages(self.outlet, 1):
            if isinstance(message, Failed):
                error = refused(message.error).body["error"]
                yield self._event(
                    "response.failed", response={**self._response(None), "status": "failed", "error": error}
                )
            elif isinstance(message, Progress):
                for line in self._events(*self._read("".join(e.text for e in message.events))):
                    yield line
            elif isinstance(message, Done):
                for line in [*self._events(*self._ended()), *self._closed()]:
                    yield line
                whole = self._response(Finished(self.job, message.result))
                kind = "incomplete" if whole["status"] == "incomplete" else "completed"
                yield self._event(f"response.{kind}", response=whole)

    def _event(self, kind: str, **more: Any) -> str:
        self.numbers += 1
        return f"event: {kind}\ndata: {as_json({'type': kind, 'sequence_number': self.numbers - 1, **more})}\n\n"

    def _events(self, said: str, calls: list[Call]) -> list[str]:
        """Events of what was said and called; the items are added to the output."""
        lines = self._spoken(said) if said else []
        for call in calls:
            lines += self._closed() + self._called(call)
        return lines

    # a message

    @property
    def _at(self) -> dict[str, Any]:
        return {"item_id": self.output[-1]["id"], "output_index": len(self.output) - 1, "content_index": 0}

    @property
    def _open(self) -> bool:
        return bool(self.output) and self.output[-1].get("status") == "in_progress"

    def _spoken(self, said: str) -> list[str]:
        lines = [] if self._open else self._opened()
        self.said += said
        return [*lines, self._event("response.output_text.delta", **self._at, delta=said, logprobs=[])]

    def _opened(self) -> list[str]:
        self.said = ""
        item = {"id": f"msg_{self.name}{len(self.output)}", "type": "message", "status": "in_progress"}
        self.output.append({**item, "role": "assistant", "content": []})
        added = self._event("response.output_item.added", output_index=len(self.output) - 1, item=self.output[-1])
        return [added, self._event("response.content_part.added", **self._at, part=_part(""))]

    def _closed(self) -> list[str]:
        """The end of a message that is open."""
        if not self._open:
            return []
        at, item = self._at, self.output[-1]
        item |= {"status": "completed", "content": [_part(self.said, self._logprobs())]}
        return [
            self._event("response.output_text.done", **at, text=self.said, logprobs=[]),
            self._event("response.content_part.done", **at, part=item["content"][0]),
            self._event("response.output_item.done", output_index=at["output_index"], item=item),
        ]

    def _logprobs(self) -> list[Any]:
        """Of all tokens so far, where they were asked for."""
        tokenizer = self.terms.target.tokenizer
        assert tokenizer is not None
        found = tokens.chat_logprobs([e for step in self.job.steps for e in step.events], tokenizer)
        return found["content"] if found else []

    # a call

    def _called(self, call: Call) -> list[str]:
        item = {"id": f"fc_{self.name}{len(self.output)}", "type": "function_call", "status": "in_progress"}
        item |= {"call_id": call.id, "name": call.name, "arguments": ""}
        at = {"item_id": item["id"], "output_index": len(self.output)}
        self.output.append({**item, "status": "completed", "arguments": call.arguments})
        return [
            self._event("response.output_item.added", output_index=at["output_index"], item=item),
            self._event("response.function_call_arguments.delta", **at, delta=call.arguments),
            self._event("response.function_call_arguments.done", **at, name=call.name, arguments=call.arguments),
            self._event("response.output_item.done", output_index=at["output_index"], item=self.output[-1]),
        ]

    # the whole

    def _response(self, finished: Finished | None) -> dict[str, Any]:
        body, sampling = self.body, self.job.request.sampling
        reason = finished.reason if finished else ""
        head = {
            "id": f"resp_{self.name}",
            "object": "response",
            "created_at": self.created,
            "status": STATUS.get(reason, "completed") if finished else "in_progress",
            "error": None,
            "incomplete_details": {"reason": WHY[reason]} if reason in WHY else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": self.terms.model,
            "output": self.output,
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "store": False,
            "temperature": sampling.temperature,
            "text": {"format": _format_of(body.text)},
            "tool_choice": _dumped(body.tool_choice) or "auto",
            "tools": [tool.model_dump() for tool in body.tools or ()],
            "top_p": sampling.top_p,
            "truncation": "disabled",
            "usage": None,
        }
        return head if finished is None else head | self._numbers(finished)

    def _numbers(self, finished: Finished) -> dict[str, Any]:
        usage = report.usage([finished])
        return {
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": usage["prompt_tokens_details"],
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
            **report.extras([finished], self.terms.run),
        }


def _part(text: str, logprobs: list[Any] | None = None) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs or []}


def _format_of(text: fields.Text | None) -> dict[str, Any]:
    if text is None or text.format is None:
        return {"type": "text"}
    return text.format.model_dump(by_alias=True, exclude_none=True)


def _dumped(value: Any) -> Any:
    return value.model_dump() if isinstance(value, fields.FlatChoice) else value
