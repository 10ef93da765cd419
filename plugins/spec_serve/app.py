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

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response

from spec_core import SpecError
from spec_core.errors import shown
from spec_serve import asked, fields, infill, llama, openai, responses
from spec_serve.asked import Ask, Terms
from spec_serve.engine import Engine
from spec_serve.errors import ApiError, refused
from spec_serve.guard import Guard, answer
from spec_serve.job import Job, Outlet
from spec_serve.lengths import check_text
from spec_serve.metrics import CONTENT_TYPE, Metrics
from spec_serve.shape import CheckedRoute
from spec_serve.stream import EventStream, as_json, whole

log = logging.getLogger("spec_serve")
STATUS = {404: "no such path; /openapi.json lists them", 405: "another method than this path takes"}


SLICE = 10_000
"""Tokens of an answer that are written at once."""
COMPILING_MAX = 4
"""Grammars that are compiled at once."""


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
        self._compiling: CapacityLimiter | None = None

    # generating

    async def completions(self, request: Request, body: fields.Completion) -> Response:
        """Continue a text, token ids, or several of them."""
        terms = self.terms
        prompts = _prompts(body.prompt)
        n = asked.count(body, len(prompts), terms.limits)
        tokens = asked.max_tokens(body.max_tokens, terms, asked.SHORT)
        ask = asked.ask(body, terms, tokens, body.logprobs, asked.bias_of(body.logit_bias))
        return await self._openai(request, body, ask, prompts, n, chat=False)

    async def chat(self, request: Request, body: fields.Chat) -> Response:
        """Answer a conversation."""
        ask, talk, n = self._talk(body)
        reads = asked.reads_of(body, talk.tools, ask, self.terms)
        return await self._openai(request, body, ask, [talk], n, chat=True, reads=reads)

    def _talk(self, body: fields.Chat) -> tuple[Ask, asked.Talk, int]:
        """What a conversation asks for, and how many texts."""
        terms = self.terms
        limits = {body.max_tokens, body.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise ApiError(400, "max_tokens and max_completion_tokens differ; write one", "max_completion_tokens")
        if body.top_logprobs is not None and not body.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs = true", "top_logprobs")
        tools = asked.tools_of(body.tools, body.tool_choice, terms.limits)
        n = asked.count(body, 1, terms.limits)
        tokens = asked.max_tokens(next(iter(limits), None), terms, terms.context)
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        ask = asked.ask(body, terms, tokens, logprobs, asked.bias_of(body.logit_bias))
        prediction = asked.predicted(body.prediction, terms)
        ask = ask.calling(asked.calls_of(body, tools, ask, self._tokenizer))
        return ask.predicting(prediction), asked.Talk(body.messages, tools), n

    async def responses(self, request: Request, body: fields.Responses) -> Response:
        """Answer a conversation, in the form of OpenAI's newer API. Nothing is stored."""
        chat = responses.as_chat(body)
        ask, talk, _ = self._talk(chat)
        name = uuid4().hex
        jobs, outlet = await self._begun(ask, [talk], 1, f"resp_{name}")
        reader = asked.reads_of(chat, talk.tools, ask, self.terms).reader(jobs[0], self._tokenizer)
        made = responses.Answer(self.terms, body, jobs[0], outlet, name, reader)
        leave = lambda: self.engine.cancel(jobs)
        if body.stream:
            return EventStream(made.chunks(), leave)
        return await whole(request, _json(made.whole()), leave)

    async def _openai(
        self, request: Request, body: fields.OpenAI, ask: Ask, prompts: list[Any], n: int, chat: bool, **more: Any
    ) -> Response:
        name = f"{'chatcmpl' if chat else 'cmpl'}-{uuid4().hex}"
        jobs, outlet = await self._begun(ask, prompts, n, name)
        usage, counting = _counts(body.stream_options)
        made = openai.Answer(self.terms.run, jobs, outlet, name, self.terms.model, chat, usage, counting, **more)
        leave = lambda: self.engine.cancel(jobs)
        if body.stream:
            return EventStream(made.chunks(), leave)
        return await whole(request, _json(made.whole()), leave)

    async def _begun(self, ask: Ask, prompts: list[Any], n: int, name: str) -> tuple[list[Job], Outlet]:
        """Jobs that the engine has accepted."""
        ids = [await run_in_threadpool(asked.encode_prompt, prompt, self.terms) for prompt in prompts]
        if ask.request.constraint is not None:
            await self._compile(ask)
        outlet = Outlet()
        jobs = ask.jobs(outlet, ids, n, name)
        self.engine.submit(jobs)
        try:
            await openai.accepted(outlet, jobs)
        except BaseException:
            self.engine.cancel(jobs)
            raise
        return jobs, outlet

    async def _compile(self, ask: Ask) -> None:
        """Compile a constraint, a few at once: other work of threads must not wait for grammars of strangers."""
        if self._compiling is None:
            self._compiling = CapacityLimiter(COMPILING_MAX)
        await to_thread.run_sync(ask.compiled, self.terms.target, limiter=self._compiling)

    async def completion(self, request: Request, body: fields.LlamaCompletion) -> Response:
        """llama-server's completion."""
        return await self._completion(request, body, lambda: llama.prompt_of(body.prompt, self.terms))

    async def infill(self, request: Request, body: fields.Infill) -> Response:
        """llama-server's completion of a gap."""
        check_text(infill.whole_text(body), self.terms)
        return await self._completion(request, body, lambda: infill.prompt_of(body, self._tokenizer))

    async def _completion(
        self, request: Request, body: fields.LlamaCompletion, prompt_of: Callable[[], str | list[int]]
    ) -> Response:
        terms, tokenizer = self.terms, self._tokenizer
        if body.repeat_penalty is not None:
            if body.repetition_penalty is not None:
                raise ApiError(400, "repeat_penalty and repetition_penalty are both given; write one", "repeat_penalty")
            body.repetition_penalty = body.repeat_penalty
        if body.repeat_last_n not in (None, -1):
            raise ApiError(400, "repeat_last_n is not supported: penalties count the whole text", "repeat_last_n")
        body.seed = None if body.seed == -1 else body.seed
        tokens = asked.max_tokens(llama.limit(body), terms, terms.context)
        bias = await run_in_threadpool(llama.bias, body.logit_bias, tokenizer)
        ask = asked.ask(body, terms, tokens, body.n_probs or None, bias)
        prompt = await run_in_threadpool(prompt_of)
        (job,), outlet = await self._begun(ask, [prompt], 1, f"completion-{uuid4().hex}")
        made = llama.Answer(terms, job, outlet, body.prompt, bool(body.return_tokens))
        leave = lambda: self.engine.cancel([job])
        if body.stream:
            return EventStream(made.chunks(), leave)
        return await whole(request, _json(made.whole()), leave)

    # tokens

    @property
    def _tokenizer(self) -> Any:
        return self.terms.target.tokenizer

    async def tokenize(self, body: fields.Tokenize) -> Response:
        """Token ids of a text."""
        return await run_in_threadpool(self._tokenize, body)

    def _tokenize(self, body: fields.Tokenize) -> Response:
        ids = self._tokenizer.encode(body.content, special=body.parse_special, bos=body.add_special)
        texts = (self._described(ids[at : at + SLICE], body.with_pieces) for at in range(0, len(ids), SLICE))
        return Response(f'{{"tokens":[{",".join(texts)}]}}', media_type="application/json")

    def _described(self, ids: list[int], pieces: bool) -> str:
        """A part of a list in JSON: writing all of a long one at once would keep other threads from running."""
        return as_json([{"id": i, "piece": self._piece(i)} for i in ids] if pieces else ids)[1:-1]

    def _piece(self, token: int) -> str | list[int]:
        """A text, or bytes where they are no whole characters, as llama-server writes them."""
        data = self._tokenizer.token_bytes(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return list(data)

    async def detokenize(self, body: fields.Detokenize) -> Response:
        """Text of token ids."""
        return Json({"content": await run_in_threadpool(self._detokenize, body.tokens)})

    def _detokenize(self, tokens: list[int]) -> str:
        size = self._tokenizer.vocab_size
        if wrong := [t for t in tokens if not 0 <= t < size]:
            raise ApiError(400, f"token {shown(wrong[0])} is outside the vocabulary of {size}", "tokens")
        return str(self._tokenizer.decode(tokens))

    async def apply_template(self, body: fields.ApplyTemplate) -> Response:
        """Messages as the model's chat template writes them."""
        if getattr(self._tokenizer, "render", None) is None:
            raise ApiError(400, "the tokenizer of this model cannot write a conversation as text")
        talk = asked.Talk(body.messages, asked.tools_of(body.tools, None, self.terms.limits))
        return Json({"prompt": await run_in_threadpool(talk.rendered, self._tokenizer)})

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

    async def slots(self) -> Response:
        """What every slot does."""
        return Json(llama.slots(self.engine, self.terms))

    async def props(self) -> Response:
        """Settings with their origins."""
        return Json(llama.props(self.terms, version("spec-core")))

    async def counted(self) -> Response:
        """Counters for Prometheus."""
        return Response(self.metrics.text(), media_type=CONTENT_TYPE)

    async def page(self) -> Response:
        """A chat that shows drafts."""
        return HTMLResponse(files("spec_serve").joinpath("page.html").read_text("utf-8"), headers=PAGE)


PAGE = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'"
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


def create_app(engine: Engine, terms: Terms) -> Any:
    """The ASGI application. The engine is started and closed with it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        await run_in_threadpool(engine.close)

    app = FastAPI(title="spec serve", version=version("spec-core"), lifespan=lifespan, docs_url=None, redoc_url=None)
    app.router.route_class = CheckedRoute
    _add_routes(app, Served(engine, terms))
    _add_refusals(app)
    return Guard(app, terms.limits.api_key, terms.limits.body_bytes)


def _add_routes(app: FastAPI, served: Served) -> None:
    posts: dict[str, Callable[..., Any]] = {
        "/v1/completions": served.completions, "/v1/chat/completions": served.chat, "/v1/responses": served.responses,
        "/completion": served.completion, "/completions": served.completion, "/infill": served.infill,
        "/tokenize": served.tokenize, "/detokenize": served.detokenize, "/apply-template": served.apply_template,
    }  # fmt: skip
    gets: dict[str, Callable[..., Any]] = {
        "/health": served.health, "/v1/health": served.health, "/v1/models": served.models, "/models": served.models,
        "/v1/models/{name:path}": served.model, "/slots": served.slots, "/props": served.props,
        "/metrics": served.counted, "/": served.page,
    }  # fmt: skip
    for method, paths in (("POST", posts), ("GET", gets)):
        for path, handler in paths.items():
            app.add_api_route(path, handler, methods=[method], response_class=Json, response_model=None)


def _add_refusals(app: FastAPI) -> None:
    async def api_error(_: Request, error: Any) -> Response:
        return answer(error)

    async def spec_error(_: Request, error: Any) -> Response:
        return answer(refused(error))

    async def invalid(_: Request, error: Any) -> Response:
        return answer(_invalid(error))

    async def http_error(_: Request, error: Any) -> Response:
        return answer(ApiError(error.status_code, STATUS.get(error.status_code, str(error.detail))))

    async def unexpected(_: Request, error: Exception) -> Response:
        return answer(refused(error))

    app.add_exception_handler(ApiError, api_error)
    app.add_exception_handler(SpecError, spec_error)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, unexpected)


def _invalid(error: RequestValidationError) -> ApiError:
    """The innermost field that does not fit, with all that would."""
    first = max(error.errors(), key=lambda e: len(_place(e).split(".")))
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is not valid JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    if not (place := _place(first)):
        return ApiError(400, "the body must be a JSON object, with Content-Type: application/json")
    wanted = dict.fromkeys(e["msg"] for e in error.errors() if _place(e) == place)
    return ApiError(400, f"{place}: {', or '.join(wanted)}", place, "invalid_value")


def _place(error: Any) -> str:
    """The field, without the names that pydantic gives to alternatives of its type."""
    types = ("str", "int", "float", "bool")
    return ".".join(str(part) for part in error["loc"][1:] if not (part in types or "[" in str(part)))
