"""Routes about the server: whether it lives, and what it counts."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from spec_serve.metrics import CONTENT_TYPE
from spec_serve.routes import api_router
from spec_serve.service import EngineOf, Json, ServiceOf
from spec_serve.shape import CheckedRoute

STARTED = "Process-Start-Time-Unix"
"""A header of ``/metrics``, as llama-server has it."""
open_router = APIRouter(route_class=CheckedRoute, tags=["server"])
"""Routes that need no key."""
router = api_router("server")


class Health(BaseModel):
    status: Literal["ok", "shutting down", "error"]


@open_router.get("/health", response_model=Health, responses={503: {"model": Health}})
@open_router.get("/v1/health", include_in_schema=False)
async def get_health(engine: EngineOf) -> Response:
    """200 where texts are generated, 503 otherwise."""
    if not engine.healthy:
        return Json({"status": "error", "error": {"message": "the engine has stopped"}}, 503)
    if engine.draining:
        return Json({"status": "shutting down"}, 503)
    return Json({"status": "ok"})


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def read_metrics(service: ServiceOf) -> Response:
    """Counters for Prometheus."""
    return Response(service.metrics.text(), headers={STARTED: str(service.since)}, media_type=CONTENT_TYPE)
