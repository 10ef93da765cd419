"""OpenAI's completions, chats and models: routes, and answers, whole and in chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from time import time
from typing import Any, Literal
from uuid import uuid4

import attrs
from pydantic import BaseModel
from starlette.responses import Response

from spec_core import Emitted, Run, Tokenizer
from spec_serve import echo, generation_params, report, schemas, token_logprobs
from spec_serve.answer_size import token_size
from spec_serve.conversation import ChatPrompt
from spec_serve.echo import Echo
from spec_serve.errors import ApiError, api_error_of
from spec_serve.generation_params import GenerationParams
from spec_serve.job import Done, EventQueue, Failed, Job, Progress, Prompted, job_messages
from spec_serve.parts import AnswerPart, Places
from spec_serve.reading import Reader, Reads
from spec_serve.report import Finished
from spec_serve.routes import READS, api_router, generation_responses, refusals
from spec_serve.server_config import ServerConfig
from spec_serve.service import Json, Service, ServiceOf
from spec_serve.stream import event
from spec_serve.threads import write_in_thread
from spec_serve.tool_calls import Call

router = api_router("OpenAI")


class ChatMessage(BaseModel):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str | None = None
    tool_calls: list[schemas.ToolCall] | None = None


class Choice(BaseModel):
    """speculative: step by step, where the request traced its drafts."""

    index: int
    finish_reason: str
    logprobs: dict[str, Any] | None
    speculative: list[dict[str, Any]] | None = None


class ChatChoice(Choice):
    message: ChatMessage


class TextChoice(Choice):
    text: str


class Completed(report.Extras):
    id: str
    created: int
    model: str
    system_fingerprint: str
    usage: report.Usage


class ChatCompletion(Completed):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class TextCompletion(Completed):
    object: Literal["text_completion"]
    choices: list[TextChoice]


@router.post("/v1/completions", response_model=TextCompletion, responses=generation_responses())
async def create_completion(body: schemas.Completion, service: ServiceOf) -> Response:
    """Continue a text, token ids, or several of them."""
    prompts, ask, n = await service.prepare(_ask_completion, body, service.config)
    echoes = await echo.read_echoes(service, ask, prompts, n) if body.echo else []
    return await _complete(service, body, ask, prompts, n, chat=False, echoes=echoes)


def _ask_completion(body: schemas.Completion, config: ServerConfig) -> tuple[list[Any], GenerationParams, int]:
    """The prompts, the parameters of their texts, and the number of texts of each. Raises ApiError."""
    prompts = _prompts(body.prompt)
    n = generation_params.count_choices(body, len(prompts), config.limits)
    tokens_max = generation_params.max_tokens(generation_params.length(body), config, generation_params.SHORT)
    bias = generation_params.bias_of(body.logit_bias)
    ask = generation_params.generation_params(body, config, tokens_max, body.logprobs, bias)
    return (
        prompts,
        ask.limit_logprobs(n * len(prompts), generation_params.length(body) is not None, "logprobs", config),
        n,
    )


@router.post("/v1/chat/completions", response_model=ChatCompletion, responses=generation_responses())
@router.post("/chat/completions", include_in_schema=False)
async def create_chat_completion(body: schemas.Chat, service: ServiceOf) -> Response:
    """Answer a conversation."""
    config = service.config
    ask, chat_prompt, n = await service.prepare(generation_params.ask_chat, body, config)
    reads = generation_params.reads_of(body, chat_prompt.tools, ask, config)
    prompt = None
    if body.verbose or (config.limits.verbose and body.verbose is None):
        prompt = await service.threads.run(chat_prompt.size, chat_prompt.render, service.tokenizer)
    return await _complete(service, body, ask, [chat_prompt], n, chat=True, reads=reads, verbose=prompt)


async def _complete(
    service: Service,
    body: schemas.OpenAI,
    params: GenerationParams,
    prompts: list[Any],
    n: int,
    chat: bool,
    **more: Any,
) -> Response:
    name = f"{'chatcmpl' if chat else 'cmpl'}-{uuid4().hex}"
    jobs, queue = await service.submit(params, prompts, n, name)
    options, config = body.stream_options, service.config
    answer = CompletionAnswer(
        config.run,
        jobs,
        queue,
        name,
        config.model,
        chat,
        usage=bool(options and options.include_usage),
        counting=bool(options and options.continuous_usage_stats),
        fingerprint=config.fingerprint,
        timed=bool(body.timings_per_token),
        **more,
    )
    return await service.respond(answer, jobs, body.stream)


def _prompts(prompt: Any) -> list[Any]:
    """One text or list of ids, or several."""
    if isinstance(prompt, str) or (prompt and isinstance(prompt[0], int)):
        return [prompt]
    if not prompt:
        raise ApiError(400, "the prompt is an empty list", "prompt")
    return list(prompt)


class InputTokens(BaseModel):
    object: Literal["response.input_tokens"]
    input_tokens: int


@router.post("/v1/chat/completions/input_tokens", response_model=InputTokens, responses=refusals(*READS))
@router.post("/chat/completions/input_tokens", include_in_schema=False)
async def count_chat_tokens(body: schemas.Chat, service: ServiceOf) -> Response:
    """Number of tokens of a conversation's prompt."""
    tools = generation_params.tools_of(body.tools, body.tool_choice, service.config.limits)
    chat_prompt = ChatPrompt(body.messages, tools, body, service.config.template_defaults)
    [prompt] = await service.encode(chat_prompt)
    return Json({"object": "response.input_tokens", "input_tokens": len(prompt.tokens)})


class Model(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    meta: dict[str, Any] | None = None


class Models(BaseModel):
    object: Literal["list"]
    data: list[Model]


@router.get("/v1/models", response_model=Models)
@router.get("/models", include_in_schema=False)
async def list_models(service: ServiceOf) -> Response:
    """The one model of this server."""
    info = service.config.target.info
    meta = {"n_vocab": info.vocab, "n_ctx": info.context, "n_embd": info.width, "architecture": info.family}
    return Json({"object": "list", "data": [{**_describe_model(service), "meta": meta}]})


@router.get("/v1/models/{name:path}", response_model=Model, responses=refusals(404))
async def retrieve_model(name: str, service: ServiceOf) -> Response:
    """The model, by its name."""
    if name != service.config.model:
        raise ApiError(404, f"the model {name!r:.80} does not exist", "model", "model_not_found")
    return Json(_describe_model(service))


def _describe_model(service: Service) -> dict[str, Any]:
    return {"id": service.config.model, "object": "model", "created": service.since, "owned_by": "spec-core"}


@attrs.define(eq=False)
class CompletionAnswer:
    """An answer as its texts come.

    chat: of the chat endpoint. name: its id. usage: a last chunk with the numbers was asked for.
    counting: so were, in every chunk, the tokens of its text so far. reads: how the text of a chat becomes an answer.
    echoes: prompts with which texts begin. timed: every chunk has timings. verbose: the prompt as text, if the answer
    has it.
    """

    run: Run
    jobs: list[Job]
    queue: EventQueue
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

    async def wait(self) -> None:
        """Wait for all texts. Raises the error that ended one of them."""
        self.done = await report.wait_for_all(self.queue, len(self.jobs))

    def whole(self) -> dict[str, Any]:
        """The answer in one piece."""
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
        """Log-probabilities that begin with the prompt's, where it is part of the text."""
        if not self.echoes or job.request.sampling.logprobs is None:
            return logprobs
        echoed = token_logprobs.echo_logprobs(self.echoes[job.prompt], self.tokenizer)
        return {name: [*first, *(logprobs or {}).get(name, ())] for name, first in echoed.items()}

    def _reader(self, job: Job) -> Reader:
        if job not in self.readers:
            self.readers[job] = self.reads.reader(job, self.tokenizer)
        return self.readers[job]

    def _reason(self, finished: Finished) -> str:
        reader = self.readers.get(finished.job)
        return "tool_calls" if reader is not None and reader.calls and finished.reason == "stop" else finished.reason

    def _trace(self, progress: Progress) -> dict[str, Any]:
        return token_logprobs.trace(progress.events, progress.drafted, self.tokenizer)

    async def chunks(self) -> AsyncIterator[str]:
        """Server-sent events: the texts as they come, the numbers in the last."""
        for job in self.jobs if self.chat else ():
            yield event(self._chunk(job, {"role": "assistant", "content": None}))
        for job in self.jobs if self.echoes else ():
            size = len(self._echo_text(job)) + len(job.request.prompt) * token_size(job)
            yield await write_in_thread(size, self._echo_event, job)
        async for job, message in job_messages(self.queue, len(self.jobs)):
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

    def _echo_event(self, job: Job) -> str:
        """The prompt as the beginning of a text."""
        return event(self._chunk(job, self._echo_text(job), logprobs=self._with_echo(job, None)))

    def _last(self) -> dict[str, Any]:
        """Numbers in the last choice's chunk, where no chunk of their own was asked for."""
        return {} if self.usage or len(self.done) < len(self.jobs) else self._extras()

    def _progress(self, job: Job, progress: Progress) -> dict[str, Any] | None:
        """Chunk that a step adds; None if it adds nothing yet."""
        self.written[job] += len(progress.events)
        if self.chat:
            delta: Any = self._delta(job, self._reader(job).put(progress.events))
        else:
            delta = "".join(e.text for e in progress.events)
        logprobs = self._logprobs(job, progress.events)
        if not (delta or logprobs or job.trace or self.counting):
            return None
        timed: dict[str, Any] = {"timings": report.timings_so_far(job, self.written[job])} if self.timed else {}
        chunk = self._chunk(job, delta, logprobs=logprobs) | timed
        if job.trace:
            chunk["choices"][0]["speculative"] = self._trace(progress)
        return chunk

    def _delta(self, job: Job, parts: list[AnswerPart | Call]) -> dict[str, Any]:
        calls = [part for part in parts if isinstance(part, Call)]
        first = len(self._reader(job).calls) - len(calls)
        listed = [{"index": first + i, **call.as_json()} for i, call in enumerate(calls)]
        thought, content = join_text(parts, "reasoning"), join_text(parts, "content")
        delta: dict[str, Any] = {"reasoning_content": thought} if thought else {}
        delta |= {"content": content} if content else {}
        return delta | ({"tool_calls": listed} if listed else {})

    def _logprobs(self, job: Job, events: list[Emitted]) -> dict[str, Any] | None:
        if self.chat:
            return token_logprobs.chat_logprobs(events, self.tokenizer)
        places = self.places.setdefault(job, Places.of(job, self.tokenizer, len(self._echo_text(job))))
        return token_logprobs.completion_logprobs(events, places, self.tokenizer)

    @property
    def _kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _chunk(
        self, job: Job, content: Any, logprobs: dict[str, Any] | None = None, reason: str | None = None, **more: Any
    ) -> dict[str, Any]:
        choice = {"index": job.index, "delta" if self.chat else "text": content}
        choice |= {"logprobs": logprobs, "finish_reason": reason}
        usage = {"usage": self._usage_so_far(job)} if self.usage else {}
        return {**self._head(self._kind), "choices": [choice], **usage, **more}

    def _usage_so_far(self, job: Job) -> dict[str, int] | None:
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


def join_text(parts: Iterable[AnswerPart | Call], kind: str) -> str:
    """The text of all parts of a kind."""
    return "".join(part.text for part in parts if isinstance(part, AnswerPart) and part.kind == kind)
