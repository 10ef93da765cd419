"""What the routers of all APIs have in common: the key, refusals, and what a route gets of the application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from time import time
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Request
from fastapi.security import APIKeyHeader, HTTPBearer
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from spec_serve.asked import Ask, encode_prompt, size_of
from spec_serve.engine import Engine
from spec_serve.job import Job, Outlet, wait_until_accepted
from spec_serve.metrics import Metrics
from spec_serve.shape import CheckedRoute
from spec_serve.stream import EventStream, as_json
from spec_serve.terms import Terms
from spec_serve.threads import Threads

KEY = [Depends(HTTPBearer(auto_error=False)), Depends(APIKeyHeader(name="x-api-key", auto_error=False))]
"""The key in the description. Guard checks it: FastAPI reads a body before it asks a dependency."""


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    """A refusal."""

    error: ErrorDetail


class TypedErrorAnswer(ErrorAnswer):
    """A refusal as Anthropic's API writes it."""

    type: str


STATUSES = {
    400: "The body is wrong, or asks for what this server cannot do.",
    401: "The API key is missing or wrong.",
    403: "The host, or the origin of the page, is not allowed.",
    404: "There is no such model.",
    408: "The body came too slowly.",
    413: "The body is too long.",
    429: "Too many texts wait; try again later.",
    500: "The text could not be generated.",
    503: "The server shuts down, has stopped, or has too much to read.",
}
READS = (400, 408, 413, 503)
"""Statuses of routes that read a body."""
GENERATES = (*READS, 404, 429, 500)
"""Statuses of routes that generate texts."""

EVENT = {
    "type": "object",
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["data"],
}
"""A server-sent event, as OpenAPI 3.2 describes one."""


def refusals(*statuses: int, model: type[BaseModel] = ErrorAnswer) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route that refuses with these statuses."""
    return {status: {"model": model, "description": STATUSES[status]} for status in statuses}


def generates(model: type[BaseModel] = ErrorAnswer) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route that generates: whole or as events, or a refusal."""
    return {200: {"content": {"text/event-stream": {"itemSchema": EVENT}}}, **refusals(*GENERATES, model=model)}


def api_router(tag: str, model: type[BaseModel] = ErrorAnswer) -> APIRouter:
    """A router whose routes need the key, check the shape of bodies, and stop when the client leaves."""
    responses = refusals(401, 403, model=model)
    return APIRouter(route_class=CheckedRoute, tags=[tag], dependencies=KEY, responses=responses)


class Json(JSONResponse):
    """In ASCII: a text may hold half a surrogate pair."""

    def render(self, content: Any) -> bytes:
        return as_json(content).encode()


class Answer(Protocol):
    """An answer as its texts come: in one piece, or as server-sent events."""

    async def whole(self) -> Any: ...

    def chunks(self) -> AsyncIterator[str]: ...


class Service:
    """The way from a prompt to an answer, over one engine."""

    def __init__(self, engine: Engine, terms: Terms) -> None:
        self.engine = engine
        self.terms = terms
        self.metrics = Metrics(engine)
        self.threads = Threads()
        self.since = int(time())

    @property
    def tokenizer(self) -> Any:
        return self.terms.target.tokenizer

    async def encode(self, prompt: Any) -> list[int]:
        """Token ids of a prompt. Raises ApiError."""
        return await self.threads.run(size_of(prompt), encode_prompt, prompt, self.terms)

    async def submit(self, ask: Ask, prompts: list[Any], n: int, name: str) -> tuple[list[Job], Outlet]:
        """Jobs that the engine has accepted: ``n`` for each prompt. Raises ApiError."""
        ids = [await self.encode(prompt) for prompt in prompts]
        if ask.request.constraint is not None:
            await self.threads.compile(ask.compile_constraint, self.terms.target)
        outlet = Outlet()
        jobs = ask.jobs(outlet, ids, n, name)
        self.engine.submit(jobs)
        try:
            await wait_until_accepted(outlet, jobs)
        except BaseException:
            self.engine.cancel(jobs)
            raise
        return jobs, outlet

    async def respond(self, answer: Answer, jobs: list[Job], stream: bool | None) -> Response:
        """The answer as a response; the jobs end with it, also where the client leaves before."""
        leave = partial(self.engine.cancel, jobs)
        if stream:
            return EventStream(answer.chunks(), leave)
        try:
            return Json(await answer.whole())
        finally:
            leave()


async def get_service(request: Request) -> Service:  # FastAPI runs a dependency that is not async in a thread
    service: Service = request.app.state.service
    return service


async def get_engine(request: Request) -> Engine:
    return (await get_service(request)).engine


async def get_terms(request: Request) -> Terms:
    return (await get_service(request)).terms


ServiceOf = Annotated[Service, Depends(get_service)]
EngineOf = Annotated[Engine, Depends(get_engine)]
TermsOf = Annotated[Terms, Depends(get_terms)]
