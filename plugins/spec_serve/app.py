"""The application: which path leads where, and how refusals look."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from importlib.resources import files
from time import time
from typing import Any
from uuid import uuid4

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse, JSONResponse, Response

from spec_core.errors import quote
from spec_serve import asked, echo, fields, infill, llama, llama_fields, messages, openai, responses
from spec_serve.asked import Ask
from spec_serve.conversation import Talk
from spec_serve.engine import Engine
from spec_serve.errors import ApiError
from spec_serve.guard import HEADER, Guard
from spec_serve.job import Job, Outlet
from spec_serve.keys import keys_of
from spec_serve.lengths import check_text
from spec_serve.lenient import Lenient
from spec_serve.message_fields import Messages
from spec_serve.metrics import CONTENT_TYPE, Metrics
from spec_serve.origins import origins_of, split
from spec_serve.refusals import add_refusals
from spec_serve.shape import CheckedRoute
from spec_serve.stream import EventStream, as_json, whole
from spec_serve.terms import Terms
from spec_serve.threads import Threads

log = logging.getLogger("spec_serve")
STARTED = "Process-Start-Time-Unix"
"""A header of ``/metrics``, as llama-server has it."""


SLICE = 10_000
"""Tokens of an answer that are written at once."""


class Json(JSONResponse):
    """In ASCII: a text may hold half a surrogate pair."""

    def render(self, content: Any) -> bytes:
        return as_json(content).encode()


class Served:
    """Handlers over one engine."""

    def __init__(self, engine: Engine, terms: Terms) -> None:
        self.engine = engine
        self.terms = terms
        self.metrics = Metrics(engine)
        self.since = int(time())
        self.threads = Threads()

    # generating

    async def completions(self, body: fields.Completion) -> Response:
        """Continue a text, token ids, or several of them."""
        terms = self.terms
        prompts = _prompts(body.prompt)
        n = asked.count(body, len(prompts), terms.limits)
        tokens = asked.max_tokens(asked.length(body), terms, asked.SHORT)
        ask = asked.ask(body, terms, tokens, body.logprobs, asked.bias_of(body.logit_bias))
        echoes = await self._echoes(ask, prompts) if body.echo else []
        return await self._openai(body, ask, prompts, n, chat=False, echoes=echoes)

    async def _echoes(self, ask: Ask, prompts: list[Any]) -> list[echo.Echo]:
        """The prompts as parts of their answers, with log-probabilities where those of the text were asked for."""
        echoes_of_prompts, best = [], ask.request.sampling.logprobs
        for prompt in prompts:
            ids = await self._ids(prompt)
            text = prompt if isinstance(prompt, str) else self._tokenizer.decode(ids)
            jobs = [] if best is None else echo.jobs(ids, best, ask.request, ask.deadline, self.terms)
            try:
                if jobs:
                    self.engine.submit(jobs)
                echoes_of_prompts.append(echo.Echo(text, ids, await echo.scores(jobs)))
            finally:
                self.engine.cancel(jobs)
        return echoes_of_prompts

    async def chat(self, body: fields.Chat) -> Response:
        """Answer a conversation."""
        ask, talk, n = self._talk(body)
        reads = asked.reads_of(body, talk.tools, ask, self.terms)
        prompt = None
        if body.verbose or (self.terms.limits.verbose and body.verbose is None):
            prompt = await self.threads.run(talk.size, talk.render, self._tokenizer)
        return await self._openai(body, ask, [talk], n, chat=True, reads=reads, verbose=prompt)

    def _talk(self, body: fields.Chat) -> tuple[Ask, Talk, int]:
        """What a conversation asks for, and how many texts."""
        terms = self.terms
        limits = {asked.length(body), body.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise ApiError(400, "max_tokens and max_completion_tokens differ; write one", "max_completion_tokens")
        if body.top_logprobs is not None and not body.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs = true", "top_logprobs")
        tools = asked.tools_of(body.tools, body.tool_choice, terms.limits)
        n = asked.count(body, 1, terms.limits)
        tokens = asked.max_tokens(next(iter(limits), None), terms, terms.context)
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        ask = asked.ask(body, terms, tokens, logprobs, asked.bias_of(body.logit_bias))
        prediction = asked.predicted_text(body.prediction, terms)
        ask = ask.calling(asked.calls_of(body, tools, ask, self._tokenizer))
        return ask.predicting(prediction), Talk(body.messages, tools, body, terms.template_defaults), n

    async def count(self, body: fields.Chat) -> Response:
        """How many tokens the prompt of a conversation has."""
        tools = asked.tools_of(body.tools, body.tool_choice, self.terms.limits)
        talk = Talk(body.messages, tools, body, self.terms.template_defaults)
        return Json({"object": "response.input_tokens", "input_tokens": len(await self._ids(talk))})

    async def responses(self, body: fields.Responses) -> Response:
        """Answer a conversation, in the form of OpenAI's newer API. Nothing is stored."""
        chat = responses.as_chat(body)
        ask, talk, _ = self._talk(chat)
        name = uuid4().hex
        jobs, outlet = await self._submit(ask, [talk], 1, f"resp_{name}")
        reader = asked.reads_of(chat, talk.tools, ask, self.terms).reader(jobs[0], self._tokenizer)
        answer = responses.Answer(self.terms, body, jobs[0], outlet, name, reader)
        leave = lambda: self.engine.cancel(jobs)
        if body.stream:
            return EventStream(answer.chunks(), leave)
        return await whole(_json(answer.whole()), leave)

    async def messages(self, body: Messages) -> Response:
        """Answer a conversation, in the form of Anthropic's API."""
        if body.max_tokens is None:
            raise ApiError(400, "max_tokens is missing", "max_tokens")
        chat = messages.as_chat(body)
        ask, talk, _ = self._talk(chat)
        name = f"msg_{uuid4().hex}"
        jobs, outlet = await self._submit(ask, [talk], 1, name)
        reader = asked.reads_of(chat, talk.tools, ask, self.terms).reader(jobs[0], self._tokenizer)
        answer = messages.Answer(self.terms, jobs[0], outlet, name, reader)
        leave = lambda: self.engine.cancel(jobs)
        if body.stream:
            return EventStream(answer.chunks(), leave)
        return await whole(_json(answer.whole()), leave)

    async def count_message(self, body: Messages) -> Response:
        """How many tokens the prompt of a message has."""
        chat = messages.as_chat(body)
        tools = asked.tools_of(chat.tools, chat.tool_choice, self.terms.limits)
        talk = Talk(chat.messages, tools, chat, self.terms.template_defaults)
        return Json({"input_tokens": len(await self._ids(talk))})

    async def _openai(
        self, body: fields.OpenAI, ask: Ask, prompts: list[Any], n: int, chat: bool, **more: Any
    ) -> Response:
        name = f"{'chatcmpl' if chat else 'cmpl'}-{uuid4().hex}"
        jobs, outlet = await self._submit(ask, prompts, n, name)
        usage, counting = _counts(body.stream_options)
        more |= {"fingerprint": self.terms.fingerprint, "timed": bool(body.timings_per_token)}
        answer = openai.Answer(self.terms.run, jobs, outlet, name, self.terms.model, chat, usage, counting, **more)
        leave = lambda: self.engine.cancel(jobs)
        if body.stream:
            return EventStream(answer.chunks(), leave)
        return await whole(_json(answer.whole()), leave)

    async def _submit(self, ask: Ask, prompts: list[Any], n: int, name: str) -> tuple[list[Job], Outlet]:
        """Jobs that the engine has accepted."""
        ids = [await self._ids(prompt) for prompt in prompts]
        if ask.request.constraint is not None:
            await self.threads.compile(ask.compile_constraint, self.terms.target)
        outlet = Outlet()
        jobs = ask.jobs(outlet, ids, n, name)
        self.engine.submit(jobs)
        try:
            await openai.wait_until_accepted(outlet, jobs)
        except BaseException:
            self.engine.cancel(jobs)
            raise
        return jobs, outlet

    async def _ids(self, prompt: Any) -> list[int]:
        return await self.threads.run(asked.size_of(prompt), asked.encode_prompt, prompt, self.terms)

    async def completion(self, body: llama_fields.LlamaCompletion) -> Response:
        """llama-server's completion, of one prompt or several."""
        given, several = llama.prompts_of(body.prompt)
        if len(given) > self.terms.limits.n_max:
            raise ApiError(400, f"{len(given)} prompts, at most {self.terms.limits.n_max} are allowed", "prompt")
        prompts = [await self.threads.run(asked.size_of(one), llama.ids_of, one, self.terms) for one in given]
        return await self._completion(body, list(zip(given, prompts, strict=True)), several)

    async def infill(self, body: llama_fields.Infill) -> Response:
        """llama-server's completion of a gap."""
        text = check_text(infill.whole_text(body), self.terms)
        prompt = await self.threads.run(len(text), infill.prompt_of, body, self._tokenizer)
        return await self._completion(body, [(body.prompt, prompt)], False)

    async def _completion(
        self, body: llama_fields.LlamaCompletion, prompts: list[tuple[Any, Any]], several: bool
    ) -> Response:
        terms = self.terms
        ask = await run_in_threadpool(llama.ask_of, body, terms)
        answers: list[llama.Answer] = []
        leave = lambda: self.engine.cancel([one.job for one in answers])
        try:
            for written, prompt in prompts:
                (job,), outlet = await self._submit(ask, [prompt], 1, f"completion-{uuid4().hex}")
                answers.append(llama.Answer(terms, job, outlet, written, llama.Told.of(body), len(answers)))
        except BaseException:
            leave()
            raise
        if body.stream:
            return EventStream(llama.chunks(answers), leave)
        return await whole(_json(llama.whole(answers, several)), leave)

    # tokens

    @property
    def _tokenizer(self) -> Any:
        return self.terms.target.tokenizer

    async def tokenize(self, body: llama_fields.Tokenize) -> Response:
        """Token ids of a text."""
        return await self.threads.run(len(body.content), self._tokenize, body)

    def _tokenize(self, body: llama_fields.Tokenize) -> Response:
        ids = self._tokenizer.encode(body.content, special=body.parse_special, bos=body.add_special)
        texts = (self._describe_tokens(ids[at : at + SLICE], body.with_pieces) for at in range(0, len(ids), SLICE))
        return Response(f'{{"tokens":[{",".join(texts)}]}}', media_type="application/json")

    def _describe_tokens(self, ids: list[int], pieces: bool) -> str:
        """A part of a list in JSON: writing all of a long one at once would keep other threads from running."""
        return as_json([{"id": i, "piece": self._piece(i)} for i in ids] if pieces else ids)[1:-1]

    def _piece(self, token: int) -> str | list[int]:
        """A text, or bytes where they are no whole characters, as llama-server writes them."""
        data = self._tokenizer.token_bytes(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return list(data)

    async def detokenize(self, body: llama_fields.Detokenize) -> Response:
        """Text of token ids."""
        return Json({"content": await self.threads.run(len(body.tokens), self._detokenize, body.tokens)})

    def _detokenize(self, tokens: list[int]) -> str:
        size = self._tokenizer.vocab_size
        if wrong := [t for t in tokens if not 0 <= t < size]:
            raise ApiError(400, f"token {quote(wrong[0])} is outside the vocabulary of {size}", "tokens")
        return str(self._tokenizer.decode(tokens))

    async def apply_template(self, body: llama_fields.ApplyTemplate) -> Response:
        """Messages as the model's chat template writes them."""
        tools = asked.tools_of(body.tools, None, self.terms.limits)
        talk = Talk(body.messages, tools, body, self.terms.template_defaults)
        return Json({"prompt": await self.threads.run(talk.size, talk.render, self._tokenizer)})

    # about the server

    async def health(self) -> Response:
        """200 where texts are generated, 503 otherwise."""
        if not self.engine.healthy:
            return Json({"status": "error", "error": {"message": "the engine has stopped"}}, 503)
        if self.engine.draining:
            return Json({"status": "shutting down"}, 503)
        return Json({"status": "ok"})

    async def models(self) -> Response:
        """The one model of this server."""
        info = self.terms.target.info
        meta = {"n_vocab": info.vocab, "n_ctx": info.context, "n_embd": info.width, "architecture": info.family}
        entry = {
            "id": self.terms.model,
            "object": "model",
            "created": self.since,
            "owned_by": "spec-core",
            "meta": meta,
        }
        return Json({"object": "list", "data": [entry]})

    async def model(self, name: str) -> Response:
        """The model, by its name."""
        if name != self.terms.model:
            raise ApiError(404, f"the model {name!r:.80} does not exist", "model", "model_not_found")
        return Json({"id": name, "object": "model", "created": self.since, "owned_by": "spec-core"})

    async def slots(self, fail_on_no_slot: str = "") -> Response:
        """What every slot does. fail_on_no_slot: 503 where all of them are busy."""
        slots_now = llama.slots(self.engine, self.terms)
        if fail_on_no_slot and all(slot["is_processing"] for slot in slots_now):
            raise ApiError(503, "no slot is free", code="unavailable")
        return Json(slots_now)

    async def props(self) -> Response:
        """Settings with their origins."""
        return Json(llama.props(self.terms, version("spec-core")))

    async def read_metrics(self) -> Response:
        """Counters for Prometheus."""
        return Response(self.metrics.text(), headers={STARTED: str(self.since)}, media_type=CONTENT_TYPE)

    async def page(self) -> Response:
        """A chat that shows drafts."""
        return HTMLResponse(files("spec_serve").joinpath("page.html").read_text("utf-8"), headers=PAGE)


PAGE = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; connect-src 'self'"
}
"""Nothing is loaded from anywhere but the page itself."""


async def _json(work: Any) -> Response:
    return Json(await work)


def _counts(options: fields.StreamOptions | None) -> tuple[bool, bool]:
    """Whether the last chunk has the usage, and whether all the others count too."""
    return bool(options and options.include_usage), bool(options and options.continuous_usage_stats)


def _prompts(given: Any) -> list[Any]:
    """One text or list of ids, or several."""
    if isinstance(given, str) or (given and isinstance(given[0], int)):
        return [given]
    if not given:
        raise ApiError(400, "the prompt is an empty list", "prompt")
    return list(given)


def create_app(engine: Engine, terms: Terms, behind: bool = False) -> Any:
    """The ASGI application. The engine is started and closed with it.

    behind: another server calls it, so that hosts and origins of requests are not its own to check.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        await run_in_threadpool(engine.close)

    app = FastAPI(title="spec serve", version=version("spec-core"), lifespan=lifespan, docs_url=None, redoc_url=None)
    app.router.route_class = CheckedRoute
    _add_routes(app, Served(engine, terms))
    add_refusals(app)
    wrapped = Lenient(app) if terms.limits.lenient else app
    limits = terms.limits
    origins = None if behind else origins_of(limits)
    guarded = Guard(wrapped, keys_of(limits), limits.body_bytes, limits.body_seconds, origins)
    if not (allowed := split(limits.allowed_origin)):
        return guarded
    return CORSMiddleware(guarded, allowed, allow_methods=["*"], allow_headers=["*"], expose_headers=[HEADER])


def _add_routes(app: FastAPI, served: Served) -> None:
    posts: dict[str, Callable[..., Any]] = {
        "/v1/completions": served.completions, "/v1/chat/completions": served.chat, "/chat/completions": served.chat,
        "/v1/responses": served.responses, "/responses": served.responses, "/v1/infill": served.infill,
        "/v1/messages": served.messages, "/v1/messages/count_tokens": served.count_message,
        "/v1/chat/completions/input_tokens": served.count, "/chat/completions/input_tokens": served.count,
        "/completion": served.completion, "/completions": served.completion, "/infill": served.infill,
        "/tokenize": served.tokenize, "/detokenize": served.detokenize, "/apply-template": served.apply_template,
    }  # fmt: skip
    gets: dict[str, Callable[..., Any]] = {
        "/health": served.health, "/v1/health": served.health, "/v1/models": served.models, "/models": served.models,
        "/v1/models/{name:path}": served.model, "/slots": served.slots, "/props": served.props,
        "/metrics": served.read_metrics, "/": served.page,
    }  # fmt: skip
    for method, paths in (("POST", posts), ("GET", gets)):
        for path, handler in paths.items():
            app.add_api_route(path, handler, methods=[method], response_class=Json, response_model=None)
