"""The application: the routers of its APIs, and what every request passes before them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.errors import ServerErrorMiddleware

from spec_serve import infill, llama, llama_slots, llama_tokens, messages, openai, operation, page, responses
from spec_serve.engine import Engine
from spec_serve.guard import Guard
from spec_serve.keys import keys_of
from spec_serve.lenient import Lenient
from spec_serve.origins import origins_of, split_names
from spec_serve.refusals import HANDLERS, refusal_answer
from spec_serve.request_info import HEADER
from spec_serve.server_config import ServerConfig
from spec_serve.service import Service

ROUTERS = (
    openai.router,
    responses.router,
    messages.router,
    llama.router,
    infill.router,
    llama_tokens.router,
    llama_slots.router,
    operation.router,
    operation.open_router,
    page.router,
)


class Application(FastAPI):
    """An application that answers a body that does not fit with 400."""

    def openapi(self) -> dict[str, Any]:
        """The description without the 422 that FastAPI adds to every route with a body."""
        if self.openapi_schema is None:
            schema = super().openapi()
            for path in schema["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            for name in ("HTTPValidationError", "ValidationError"):
                schema["components"]["schemas"].pop(name, None)
            self.openapi_schema = schema
        return self.openapi_schema


def _operation_id(route: APIRoute) -> str:
    return route.name


def create_app(engine: Engine, config: ServerConfig, proxied: bool = False) -> FastAPI:
    """The application. The engine is started and closed with it.

    ``proxied``: another server calls it, so that hosts and origins of requests are not its own to check.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        await run_in_threadpool(engine.close)

    app = Application(
        title="spec serve",
        version=version("spec-core"),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        exception_handlers=HANDLERS,
        generate_unique_id_function=_operation_id,
        separate_input_output_schemas=False,  # a field with a default may be absent from an answer too
    )
    app.state.service = Service(engine, config)
    for router in ROUTERS:
        app.include_router(router)
    _add_middlewares(app, config, proxied)
    app.openapi()  # made now: it takes a tenth of a second
    return app


def _add_middlewares(app: FastAPI, config: ServerConfig, proxied: bool) -> None:
    """Add middlewares, inner ones first: refusals of the guard have headers of CORS, failures also the request's id."""
    limits = config.limits
    app.add_middleware(ServerErrorMiddleware, handler=refusal_answer)
    if limits.lenient:
        app.add_middleware(Lenient)
    app.add_middleware(
        Guard,
        keys=keys_of(limits),
        body_bytes=limits.body_bytes,
        body_seconds=limits.body_seconds,
        origins=None if proxied else origins_of(limits),
    )
    if allowed := split_names(limits.allowed_origin):
        app.add_middleware(
            CORSMiddleware, allow_origins=allowed, allow_methods=["*"], allow_headers=["*"], expose_headers=[HEADER]
        )
