"""Shared by the routers of all APIs: the key, and the description of refusals and streams."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from fastapi.security import APIKeyHeader, HTTPBearer
from pydantic import BaseModel

from spec_serve.shape import CheckedRoute

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


def generation_responses(model: type[BaseModel] = ErrorAnswer) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route that generates: whole or as events, or a refusal."""
    return {200: {"content": {"text/event-stream": {"itemSchema": EVENT}}}, **refusals(*GENERATES, model=model)}


def api_router(tag: str, model: type[BaseModel] = ErrorAnswer) -> APIRouter:
    """A router whose routes need the key, check the shape of bodies, and stop when the client leaves."""
    responses = refusals(401, 403, model=model)
    return APIRouter(route_class=CheckedRoute, tags=[tag], dependencies=KEY, responses=responses)
