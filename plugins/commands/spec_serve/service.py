"""Services of the application for routes: from a prompt to an answer, the engine, and the server's configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from time import time
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends, Request
from starlette.responses import JSONResponse, Response

from spec_core import EncodedPrompt
from spec_serve.answer_size import answer_size
from spec_serve.engine import Engine
from spec_serve.generation_params import GenerationParams, encode_pictured, encode_prompt, has_pictures, size_of
from spec_serve.job import EventQueue, Job, wait_until_accepted
from spec_serve.metrics import Metrics
from spec_serve.pictures import PictureMemory
from spec_serve.server_config import ServerConfig
from spec_serve.shape import BODY_BYTES, SHORT_BODY
from spec_serve.stream import EventStream, JsonPieces, as_json, encode_pieces
from spec_serve.threads import Threads, write_in_thread

Result = TypeVar("Result")


class Json(JSONResponse):
    """JSON in ASCII: a text may hold half a surrogate pair."""

    def render(self, content: Any) -> bytes:
        return as_json(content).encode()


class Answer(Protocol):
    """An answer as its texts come: in one piece, or as server-sent events."""

    async def wait(self) -> None:
        """Wait until all texts have ended. Raises the error that ended one of them."""

    def whole(self) -> Any:
        """The answer in one piece, after ``wait``."""

    def chunks(self) -> AsyncIterator[str]: ...


class Service:
    """The way from a prompt to an answer, over one engine."""

    def __init__(self, engine: Engine, config: ServerConfig) -> None:
        self.engine = engine
        self.config = config
        self.metrics = Metrics(engine)
        self.threads = Threads()
        self.pictures = PictureMemory(config.limits.picture_mib << 20)
        self.since = int(time())

    @property
    def tokenizer(self) -> Any:
        return self.config.target.tokenizer

    async def encode(self, *prompts: Any) -> list[EncodedPrompt]:
        """Token ids of each prompt, and rows of its pictures. Raises ApiError."""
        if any(map(has_pictures, prompts)):
            return [await self._encode_pictured(prompt) for prompt in prompts]
        return await self.threads.run(sum(map(size_of, prompts)), self._encode, prompts)

    async def _encode_pictured(self, prompt: Any) -> EncodedPrompt:
        return await self.threads.read_pictures(encode_pictured, prompt, self.config, self.pictures)

    def _encode(self, prompts: Sequence[Any]) -> list[EncodedPrompt]:
        return [encode_prompt(prompt, self.config) for prompt in prompts]

    async def prepare(self, work: Callable[..., Result], *arguments: Any, size: int = 0) -> Result:
        """Do the work that turns a body into a request, in a thread if the body is not short. Raises ApiError.

        size: of the work, where it may be more than a short body shows.
        """
        read = BODY_BYTES.get()
        return await self.threads.run(max(size, read if read > SHORT_BODY else 0), work, *arguments)

    async def submit(
        self, params: GenerationParams, prompts: list[Any], n: int, name: str
    ) -> tuple[list[Job], EventQueue]:
        """Jobs that the engine has accepted: ``n`` for each prompt. Raises ApiError."""
        encoded = await self.encode(*prompts)
        if params.request.constraint is not None:
            await self.threads.compile(params.compile_constraint, self.config.target)
        queue = EventQueue()
        jobs = params.jobs(queue, encoded, n, name)
        self.engine.submit(jobs)
        try:
            await wait_until_accepted(queue, jobs)
        except BaseException:
            self.engine.cancel(jobs)
            raise
        return jobs, queue

    async def respond(self, answer: Answer, jobs: list[Job], stream: bool | None) -> Response:
        """The answer as a response; the jobs end with it, also where the client leaves before."""
        leave = partial(self.engine.cancel, jobs)
        if stream:
            return EventStream(answer.chunks(), leave)
        try:
            await answer.wait()
            return await write_in_thread(answer_size(jobs), respond_whole, answer)
        finally:
            leave()


def respond_whole(answer: Answer) -> Response:
    """The whole answer as a response. Slow for a long one: not for the event loop."""
    return JsonPieces(encode_pieces(answer.whole()))


async def get_service(request: Request) -> Service:  # FastAPI runs a dependency that is not async in a thread
    service: Service = request.app.state.service
    return service


async def get_engine(request: Request) -> Engine:
    return (await get_service(request)).engine


async def get_terms(request: Request) -> ServerConfig:
    return (await get_service(request)).config


ServiceOf = Annotated[Service, Depends(get_service)]
EngineOf = Annotated[Engine, Depends(get_engine)]
TermsOf = Annotated[ServerConfig, Depends(get_terms)]
