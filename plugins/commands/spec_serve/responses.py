"""OpenAI's ``/v1/responses`` for texts: its route, its body as a chat, and its answer, whole and as events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from time import time
from types import MappingProxyType
from typing import Any, Literal
from uuid import uuid4

import attrs
from pydantic import BaseModel
from starlette.responses import Response

from spec_serve import generation_params, report, response_fields, token_logprobs
from spec_serve.answer_size import answer_size
from spec_serve.errors import api_error_of
from spec_serve.job import Done, EventQueue, Failed, Job, Progress, Prompted, job_messages
from spec_serve.left_out import LeftOut
from spec_serve.parts import AnswerPart
from spec_serve.reading import Reader
from spec_serve.report import Finished
from spec_serve.response_items import Offered, as_chat, offered_tools, report_tools
from spec_serve.routes import api_router, generation_responses
from spec_serve.server_config import ServerConfig
from spec_serve.service import ServiceOf
from spec_serve.stream import as_json
from spec_serve.threads import write_in_thread
from spec_serve.tool_calls import Call

router = api_router("OpenAI")
EMPTY: Mapping[str, Any] = MappingProxyType({})
STATUS = {"length": "incomplete", "deadline": "incomplete", "cancelled": "cancelled"}
WHY = {"length": "max_output_tokens", "deadline": "deadline"}


class ResponseUsage(BaseModel):
    input_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens: int
    output_tokens_details: dict[str, int]
    total_tokens: int


class ResponseAnswer(report.Extras):
    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete", "cancelled"]
    error: None
    incomplete_details: dict[str, str] | None
    model: str
    output: list[dict[str, Any]]
    usage: ResponseUsage


@router.post("/v1/responses", response_model=ResponseAnswer, responses=generation_responses())
@router.post("/responses", include_in_schema=False)
async def create_response(body: response_fields.Responses, service: ServiceOf) -> Response:
    """Answer a conversation, in the form of OpenAI's newer API. Nothing is stored."""
    chat = await service.prepare(as_chat, body)
    report_tools(body)
    ask, chat_prompt, _ = await service.prepare(generation_params.ask_chat, chat, service.config)
    name = uuid4().hex
    jobs, queue = await service.submit(ask, [chat_prompt], 1, f"resp_{name}")
    reader = generation_params.reads_of(chat, chat_prompt.tools, ask, service.config).reader(jobs[0], service.tokenizer)
    return await service.respond(ResponseReply(service.config, body, jobs[0], queue, name, reader), jobs, body.stream)


# its answer


@attrs.frozen
class Kind:
    """A kind of item with text. item: its type; part: that of its content. prefix: of its id. fields: its others."""

    item: str
    part: str
    prefix: str
    fields: dict[str, Any]
    logprobs: bool = False

    def content_part(self, text: str, logprobs: list[Any]) -> dict[str, Any]:
        """A part of its content."""
        return {"type": self.part, "text": text, **({"annotations": [], "logprobs": logprobs} if self.logprobs else {})}


KINDS = {
    "content": Kind("message", "output_text", "msg", {"role": "assistant"}, logprobs=True),
    "reasoning": Kind("reasoning", "reasoning_text", "rs", {"summary": []}),
}
"""Kinds of items by the kind of a part."""


@attrs.define(eq=False)
class ResponseReply:
    """An answer as its text comes. name: the part of its ids that is its own. reader: makes its items of the text."""

    config: ServerConfig
    body: response_fields.Responses
    job: Job
    queue: EventQueue
    name: str
    reader: Reader
    created: int = attrs.field(factory=lambda: int(time()))
    output: list[dict[str, Any]] = attrs.field(factory=list)
    said: str = ""
    numbers: int = 0
    written: int = 0
    _finished: Finished | None = None
    tools: Offered = attrs.field(default=attrs.Factory(lambda self: offered_tools(self.body), takes_self=True))

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
        self._close_item()
        return self._response(finished)

    async def chunks(self) -> AsyncIterator[str]:
        """Server-sent events with the names of the API."""
        for kind in ("response.created", "response.in_progress"):
            yield await write_in_thread(self._size, self._state_event, kind)
        async for _, message in job_messages(self.queue, 1):
            if isinstance(message, Failed):
                error = api_error_of(message.error).body["error"]
                yield self._event(
                    "response.failed", response={**self._response(None), "status": "failed", "error": error}
                )
            elif isinstance(message, Prompted):
                more = report.progress_of(message, bool(self.body.timings_per_token))
                yield await write_in_thread(self._size, self._state_event, "response.in_progress", more)
            elif isinstance(message, Progress):
                self.written += len(message.events)
                for line in await self._progress_events(self.reader.put(message.events)):
                    yield line
            elif isinstance(message, Done):
                for line in await write_in_thread(self._size, self._last_events, Finished(self.job, message.result)):
                    yield line

    @property
    def _size(self) -> int:
        """Size of an event with all that was said, and with the tools of the request."""
        return answer_size([self.job])

    async def _progress_events(self, parts: list[AnswerPart | Call]) -> list[str]:
        """Events of a step; the end of an item has all log-probabilities so far."""
        ends = self._open and any(isinstance(part, Call) or KINDS[part.kind].item != self._kind for part in parts)
        return await write_in_thread(self._size if ends else 0, self._events, parts)

    @property
    def _kind(self) -> str:
        """Type of the last item."""
        return str(self.output[-1]["type"]) if self.output else ""

    def _state_event(self, kind: str, more: Mapping[str, Any] = EMPTY) -> str:
        """The event with the answer as it is now."""
        return self._event(kind, response=self._response(None), **more)

    def _last_events(self, finished: Finished) -> list[str]:
        """Events of the end of the text, with the whole answer."""
        lines = [*self._events(self.reader.end()), *self._close_item()]
        whole = self._response(finished)
        kind = "incomplete" if whole["status"] == "incomplete" else "completed"
        timed = {"timings": whole["timings"]} if self.body.timings_per_token else {}
        return [*lines, self._event(f"response.{kind}", response=whole, **timed)]

    def _event(self, kind: str, **more: Any) -> str:
        self.numbers += 1
        return f"event: {kind}\ndata: {as_json({'type': kind, 'sequence_number': self.numbers - 1, **more})}\n\n"

    def _events(self, parts: list[AnswerPart | Call]) -> list[str]:
        """Events of what was thought, said and called; the items are added to the output."""
        lines = []
        for part in parts:
            lines += self._close_item() + self._write_call(part) if isinstance(part, Call) else self._write_part(part)
        return lines

    # a message

    @property
    def _at(self) -> dict[str, Any]:
        return {"item_id": self.output[-1]["id"], "output_index": len(self.output) - 1, "content_index": 0}

    @property
    def _open(self) -> bool:
        return bool(self.output) and self.output[-1].get("status") == "in_progress"

    def _write_part(self, part: AnswerPart) -> list[str]:
        kind = KINDS[part.kind]
        lines = (
            [] if self._open and self.output[-1]["type"] == kind.item else [*self._close_item(), *self._open_item(kind)]
        )
        self.said += part.text
        more: dict[str, Any] = {"logprobs": []} if kind.logprobs else {}
        if self.body.timings_per_token and self.job.streamed:
            more["timings"] = report.timings_so_far(self.job, self.written)
        return [*lines, self._event(f"response.{kind.part}.delta", **self._at, delta=part.text, **more)]

    def _open_item(self, kind: Kind) -> list[str]:
        self.said = ""
        item = {"id": f"{kind.prefix}_{self.name}{len(self.output)}", "type": kind.item, "status": "in_progress"}
        self.output.append({**item, **kind.fields, "content": []})
        added = self._event("response.output_item.added", output_index=len(self.output) - 1, item=self.output[-1])
        return [added, self._event("response.content_part.added", **self._at, part=kind.content_part("", []))]

    def _close_item(self) -> list[str]:
        """The end of an item that is open."""
        if not self._open:
            return []
        at, item = self._at, self.output[-1]
        kind = next(kind for kind in KINDS.values() if kind.item == item["type"])
        item |= {"status": "completed", "content": [kind.content_part(self.said, self._logprobs())]}
        more: dict[str, Any] = {"logprobs": []} if kind.logprobs else {}
        return [
            self._event(f"response.{kind.part}.done", **at, text=self.said, **more),
            self._event("response.content_part.done", **at, part=item["content"][0]),
            self._event("response.output_item.done", output_index=at["output_index"], item=item),
        ]

    def _logprobs(self) -> list[Any]:
        """Log-probabilities of all tokens so far, if they were asked for."""
        tokenizer = self.config.target.tokenizer
        assert tokenizer is not None
        logprobs = token_logprobs.chat_logprobs([e for step in self.job.steps for e in step.events], tokenizer)
        return logprobs["content"] if logprobs else []

    # a call

    def _write_call(self, call: Call) -> list[str]:
        item = {"id": f"fc_{self.name}{len(self.output)}", "type": "function_call", "status": "in_progress"}
        tool, space = self.tools.get(call.name, (None, None))
        name = tool.name if tool is not None else call.name
        item |= {"call_id": call.id, "name": name, **({"namespace": space} if space else {}), "arguments": ""}
        at = {"item_id": item["id"], "output_index": len(self.output)}
        self.output.append({**item, "status": "completed", "arguments": call.arguments})
        return [
            self._event("response.output_item.added", output_index=at["output_index"], item=item),
            self._event("response.function_call_arguments.delta", **at, delta=call.arguments),
            self._event("response.function_call_arguments.done", **at, name=name, arguments=call.arguments),
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
            "model": self.config.model,
            "output": self.output,
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "store": False,
            "temperature": sampling.temperature,
            "text": {"format": _format_of(body.text)},
            "tool_choice": _dump(body.tool_choice) or "auto",
            "tools": [tool.model_dump() for tool in body.tools or () if not isinstance(tool, LeftOut)],
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
            **report.extras([finished], self.config.run),
        }


def _format_of(text: response_fields.TextOptions | None) -> dict[str, Any]:
    if text is None or text.format is None:
        return {"type": "text"}
    return text.format.model_dump(by_alias=True, exclude_none=True)


def _dump(value: Any) -> Any:
    return value.model_dump(exclude_none=True) if isinstance(value, response_fields.FlatChoice) else value
