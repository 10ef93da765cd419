"""Answers of ``/v1/completions`` and ``/v1/chat/completions``, whole and in chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from time import time
from typing import Any

import attrs

from spec_core import Emitted, Run, Tokenizer
from spec_serve import report, tokens
from spec_serve.calls import Call
from spec_serve.echo import Echo
from spec_serve.errors import api_error_of
from spec_serve.job import Accepted, Done, Failed, Job, Outlet, Progress, Prompted, messages
from spec_serve.parts import Part, Places
from spec_serve.reading import Reader, Reads
from spec_serve.report import Finished
from spec_serve.stream import event


@attrs.define(eq=False)
class Answer:
    """An answer as its texts come.

    chat: of the chat endpoint. name: its id. usage: a last chunk with the numbers was asked for.
    counting: so were, in every chunk, the tokens of its text so far. reads: how the text of a chat becomes an answer.
    echoes: prompts with which texts begin. timed: every chunk has timings. verbose: the prompt as text, if the answer
    has it.
    """

    run: Run
    jobs: list[Job]
    outlet: Outlet
    name: str
    model: str
    chat: bool
    usage: bool = False
    counting: bool = False
    reads: Reads = Reads()
    echoes: list[Echo] = attrs.field(factory=list)
    fingerprint: str = ""
    timed: bool = False
    verbose: str | None = None
    created: int = attrs.field(factory=lambda: int(time()))
    done: list[Finished] = attrs.field(factory=list)
    written: Counter[Job] = attrs.field(factory=Counter)
    readers: dict[Job, Reader] = attrs.field(factory=dict)
    places: dict[Job, Places] = attrs.field(factory=dict)

    @property
    def tokenizer(self) -> Tokenizer:
        assert self.run.target.tokenizer is not None
        return self.run.target.tokenizer

    async def whole(self) -> dict[str, Any]:
        """The answer in one piece. Raises the error that ended one of its texts."""
        self.done = await report.wait_for_all(self.outlet, len(self.jobs))
        choices = [self._choice(finished) for finished in self.done]
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._head(kind), "choices": choices, "usage": report.usage(self.done), **self._extras()}

    def _choice(self, finished: Finished) -> dict[str, Any]:
        job, events = finished.job, [event for step in finished.job.steps for event in step.events]
        content = (
            {"message": self._message(job, events)}
            if self.chat
            else {"text": self._echo_text(job) + finished.result.text}
        )
        logprobs = self._with_echo(job, self._logprobs(job, events))
        choice = {"index": job.index, **content, "logprobs": logprobs, "finish_reason": self._reason(finished)}
        return choice | ({"speculative": [self._trace(step) for step in job.steps]} if job.trace else {})

    def _message(self, job: Job, events: list[Emitted]) -> dict[str, Any]:
        reader = self._reader(job)
        parts = [*reader.put(events), *reader.end()]
        content, thought = join_text(parts, "content"), join_text(parts, "reasoning")
        message = {"role": "assistant", "content": content or (None if reader.calls else ""), "refusal": None}
        message |= {"reasoning_content": thought} if thought else {}
        return message | ({"tool_calls": [call.as_json() for call in reader.calls]} if reader.calls else {})

    def _echo_text(self, job: Job) -> str:
        return self.echoes[job.prompt].text if self.echoes else ""

    def _with_echo(self, job: Job, logprobs: dict[str, Any] | None) -> dict[str, Any] | None:
        """Log-probabilities that begin with those of the prompt, where it is part of the text."""
        if not self.echoes or job.request.sampling.logprobs is None:
            return logprobs
        echoed = tokens.echo_logprobs(self.echoes[job.prompt], self.tokenizer)
        return {name: [*first, *(logprobs or {}).get(name, ())] for name, first in echoed.items()}

    def _reader(self, job: Job) -> Reader:
        if job not in self.readers:
            self.readers[job] = self.reads.reader(job, self.tokenizer)
        return self.readers[job]

    def _reason(self, finished: Finished) -> str:
        reader = self.readers.get(finished.job)
        return "tool_calls" if reader is not None and reader.calls and finished.reason == "stop" else finished.reason

    def _trace(self, step: Progress) -> dict[str, Any]:
        return tokens.trace(step.events, step.drafted, self.tokenizer)

    async def chunks(self) -> AsyncIterator[str]:
        """Server-sent events: the texts as they come, the numbers in the last."""
        for job in self.jobs if self.chat else ():
            yield event(self._chunk(job, {"role": "assistant", "content": None}))
        for job in self.jobs if self.echoes else ():
            yield event(self._chunk(job, self._echo_text(job), logprobs=self._with_echo(job, None)))
        async for job, message in messages(self.outlet, len(self.jobs)):
            if isinstance(message, Failed):
                yield event(api_error_of(message.error).body)
                return
            if isinstance(message, Prompted):
                empty: Any = {} if self.chat else ""
                yield event(self._chunk(job, empty, **report.progress_of(message, self.timed)))
            elif isinstance(message, Progress):
                if (chunk := self._progress(job, message)) is not None:
                    yield event(chunk)
            elif isinstance(message, Done):
                self.done.append(finished := Finished(job, message.result))
                if self.chat and (delta := self._delta(job, self._reader(job).end())):
                    yield event(self._chunk(job, delta))
                reason = self._reason(finished)
                yield event(self._chunk(job, {} if self.chat else "", reason=reason, **self._last()))
        if self.usage:
            yield event({**self._head(self._kind), "choices": [], "usage": report.usage(self.done), **self._extras()})
        yield event("[DONE]")

    def _last(self) -> dict[str, Any]:
        """Numbers beside the last choice, where no chunk of their own was asked for."""
        return {} if self.usage or len(self.done) < len(self.jobs) else self._extras()

    def _progress(self, job: Job, message: Progress) -> dict[str, Any] | None:
        """What a step adds; None where it adds nothing yet."""
        self.written[job] += len(message.events)
        if self.chat:
            delta: Any = self._delta(job, self._reader(job).put(message.events))
        else:
            delta = "".join(e.text for e in message.events)
        logprobs = self._logprobs(job, message.events)
        if not (delta or logprobs or job.trace or self.counting):
            return None
        timed: dict[str, Any] = {"timings": report.timings_so_far(job, self.written[job])} if self.timed else {}
        chunk = self._chunk(job, delta, logprobs=logprobs) | timed
        if job.trace:
            chunk["choices"][0]["speculative"] = self._trace(message)
        return chunk

    def _delta(self, job: Job, parts: list[Part | Call]) -> dict[str, Any]:
        calls = [part for part in parts if isinstance(part, Call)]
        first = len(self._reader(job).calls) - len(calls)
        listed = [{"index": first + i, **call.as_json()} for i, call in enumerate(calls)]
        thought, content = join_text(parts, "reasoning"), join_text(parts, "content")
        delta: dict[str, Any] = {"reasoning_content": thought} if thought else {}
        delta |= {"content": content} if content else {}
        return delta | ({"tool_calls": listed} if listed else {})

    def _logprobs(self, job: Job, events: list[Emitted]) -> dict[str, Any] | None:
        if self.chat:
            return tokens.chat_logprobs(events, self.tokenizer)
        places = self.places.setdefault(job, Places.of(job, self.tokenizer, len(self._echo_text(job))))
        return tokens.completion_logprobs(events, places, self.tokenizer)

    @property
    def _kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _chunk(
        self, job: Job, content: Any, logprobs: dict[str, Any] | None = None, reason: str | None = None, **more: Any
    ) -> dict[str, Any]:
        choice = {"index": job.index, "delta" if self.chat else "text": content}
        choice |= {"logprobs": logprobs, "finish_reason": reason}
        usage = {"usage": self._so_far(job)} if self.usage else {}
        return {**self._head(self._kind), "choices": [choice], **usage, **more}

    def _so_far(self, job: Job) -> dict[str, int] | None:
        return report.usage_of(len(job.request.prompt), self.written[job]) if self.counting else None

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.name,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }

    def _extras(self) -> dict[str, Any]:
        verbose = {} if self.verbose is None else {"__verbose": {"prompt": self.verbose}}
        return {**report.extras(self.done, self.run), **verbose}


def join_text(parts: Iterable[Part | Call], kind: str) -> str:
    """The text of all parts of a kind."""
    return "".join(part.text for part in parts if isinstance(part, Part) and part.kind == kind)


async def wait_until_accepted(outlet: Outlet, jobs: list[Job]) -> None:
    """Wait until the engine has accepted all of them; raises the error with which it refused one."""
    for _ in jobs:
        _, message = await outlet.queue.get()
        if isinstance(message, Failed):
            raise api_error_of(message.error) from message.error
        assert isinstance(message, Accepted)
