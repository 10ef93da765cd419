"""Answers of ``/v1/completions`` and ``/v1/chat/completions``, whole and in chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from time import time
from typing import Any

import attrs

from spec_core import Emitted, Run, Tokenizer
from spec_serve import report, tokens
from spec_serve.calls import Call, CallReader
from spec_serve.errors import refused
from spec_serve.fields import Tool
from spec_serve.job import Accepted, Done, Failed, Job, Outlet, Progress, messages
from spec_serve.report import Finished
from spec_serve.stream import event


@attrs.define(eq=False)
class Answer:
    """An answer as its texts come.

    chat: of the chat endpoint. name: its id. usage: a last chunk with the numbers was asked for.
    counting: so were, in every chunk, the tokens of its text so far.
    tools: what the model may call; without any its text is not searched for calls. single: no more than one call.
    """

    run: Run
    jobs: list[Job]
    outlet: Outlet
    name: str
    model: str
    chat: bool
    usage: bool = False
    counting: bool = False
    tools: list[Tool] = attrs.field(factory=list)
    single: bool = False
    created: int = attrs.field(factory=lambda: int(time()))
    done: list[Finished] = attrs.field(factory=list)
    texts: dict[Job, str] = attrs.field(factory=dict)
    written: Counter[Job] = attrs.field(factory=Counter)
    readers: dict[Job, CallReader] = attrs.field(factory=dict)

    @property
    def tokenizer(self) -> Tokenizer:
        assert self.run.target.tokenizer is not None
        return self.run.target.tokenizer

    async def whole(self) -> dict[str, Any]:
        """The answer in one piece. Raises the error that ended one of its texts."""
        async for job, message in messages(self.outlet, len(self.jobs)):
            if isinstance(message, Failed):
                raise refused(message.error) from message.error
            if isinstance(message, Done):
                self.done.append(Finished(job, message.result))
        self.done.sort(key=lambda f: f.job.index)
        choices = [self._choice(finished) for finished in self.done]
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._head(kind), "choices": choices, "usage": report.usage(self.done), **self._extras()}

    def _choice(self, finished: Finished) -> dict[str, Any]:
        text, job = finished.result.text, finished.job
        said = {"message": self._message(job, text)} if self.chat else {"text": text}
        logprobs = self._logprobs([event for step in job.steps for event in step.events], 0)
        choice = {"index": job.index, **said, "logprobs": logprobs, "finish_reason": self._reason(finished)}
        return choice | ({"speculative": [self._trace(step) for step in job.steps]} if job.trace else {})

    def _message(self, job: Job, text: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        if not self.tools:
            return message
        (said, calls), (last, late) = self._reader(job).put(text), self._reader(job).end()
        if not (found := calls + late):
            return message
        return {**message, "content": said + last or None, "tool_calls": [call.as_json() for call in found]}

    def _reader(self, job: Job) -> CallReader:
        return self.readers.setdefault(job, CallReader.of(self.tools, self.single))

    def _reason(self, finished: Finished) -> str:
        reader = self.readers.get(finished.job)
        return "tool_calls" if reader is not None and reader.calls and finished.reason == "stop" else finished.reason

    def _trace(self, step: Progress) -> dict[str, Any]:
        return tokens.trace(step.events, step.drafted, self.tokenizer)

    async def chunks(self) -> AsyncIterator[str]:
        """Server-sent events: the texts as they come, the numbers in the last."""
        for job in self.jobs if self.chat else ():
            yield event(self._chunk(job, {"role": "assistant", "content": ""}))
        async for job, message in messages(self.outlet, len(self.jobs)):
            if isinstance(message, Failed):
                yield event(refused(message.error).body)
                return
            if isinstance(message, Progress):
                yield event(self._progress(job, message))
            elif isinstance(message, Done):
                self.done.append(finished := Finished(job, message.result))
                for delta in self._rest(job):
                    yield event(self._chunk(job, delta))
                reason = self._reason(finished)
                yield event(self._chunk(job, {} if self.chat else "", reason=reason, **self._last()))
        if self.usage:
            yield event({**self._head(self._kind), "choices": [], "usage": report.usage(self.done), **self._extras()})
        yield event("[DONE]")

    def _last(self) -> dict[str, Any]:
        """Numbers beside the last choice, where no chunk of their own was asked for."""
        return {} if self.usage or len(self.done) < len(self.jobs) else self._extras()

    def _progress(self, job: Job, message: Progress) -> dict[str, Any]:
        text = "".join(e.text for e in message.events)
        before = self.texts.get(job, "")
        self.texts[job] = before + text
        self.written[job] += len(message.events)
        chunk = self._chunk(job, self._delta(job, text), logprobs=self._logprobs(message.events, len(before)))
        if job.trace:
            chunk["choices"][0]["speculative"] = self._trace(message)
        return chunk

    def _delta(self, job: Job, text: str) -> Any:
        """What a step adds: its text, or with tools what of it is said for certain, and calls that are complete."""
        if not self.chat:
            return text
        return self._as_delta(job, *self._reader(job).put(text)) if self.tools else {"content": text}

    def _rest(self, job: Job) -> list[Any]:
        """What was held back until the end."""
        if not self.tools:
            return []
        said, calls = self._reader(job).end()
        return [self._as_delta(job, said, calls)] if said or calls else []

    def _as_delta(self, job: Job, said: str, calls: list[Call]) -> dict[str, Any]:
        delta: dict[str, Any] = {"content": said} if said or not calls else {}
        first = len(self._reader(job).calls) - len(calls)
        listed = [{"index": first + i, **call.as_json()} for i, call in enumerate(calls)]
        return delta | ({"tool_calls": listed} if listed else {})

    def _logprobs(self, events: list[Emitted], offset: int) -> dict[str, Any] | None:
        if self.chat:
            return tokens.chat_logprobs(events, self.tokenizer)
        return tokens.completion_logprobs(events, offset, self.tokenizer)

    @property
    def _kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _chunk(
        self, job: Job, said: Any, logprobs: dict[str, Any] | None = None, reason: str | None = None, **more: Any
    ) -> dict[str, Any]:
        choice = {"index": job.index, "delta" if self.chat else "text": said}
        choice |= {"logprobs": logprobs, "finish_reason": reason}
        usage = {"usage": self._so_far(job)} if self.usage else {}
        return {**self._head(self._kind), "choices": [choice], **usage, **more}

    def _so_far(self, job: Job) -> dict[str, int] | None:
        return report.counted(len(job.request.prompt), self.written[job]) if self.counting else None

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.name, "object": kind, "created": self.created, "model": self.model}

    def _extras(self) -> dict[str, Any]:
        return report.extras(self.done, self.run)


async def accepted(outlet: Outlet, jobs: list[Job]) -> None:
    """Wait until the engine has accepted all of them; raises the error with which it refused one."""
    for _ in jobs:
        _, message = await outlet.queue.get()
        if isinstance(message, Failed):
            raise refused(message.error) from message.error
        assert isinstance(message, Accepted)
