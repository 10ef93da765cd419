"""Replicas of the server in Ray Serve, whose router sends a prompt to the replica that has its beginning.

Ray Serve listens, starts replicas on the machines of a cluster, watches them and routes; nothing of that is here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import attrs
from prometheus_client.core import Metric
from ray import serve
from ray.exceptions import RayError
from ray.serve.config import RequestRouterConfig
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle
from spec_commands import common
from spec_serve import logs
from spec_serve.app import create_app
from spec_serve.command import NAME, adapt_settings, limits_of, prepare_engine, run_of, without_own
from spec_serve.engine import RETRY_SECONDS
from spec_serve.errors import ApiError
from spec_serve.guard import Guard, answer
from spec_serve.keys import keys_of
from spec_serve.metrics import CONTENT_TYPE, Metrics, Together
from spec_serve.routed_prompt import beginning_of_prompt
from spec_serve.server import GRACE_SECONDS
from spec_serve.settings import ServeSettings
from starlette.requests import Request
from starlette.responses import Response

from spec_core.commands import DEFAULT, Settings
from spec_core.errors import UsageError

ROUTER = "ray.llm._internal.serve.routing_policies.prefix_aware.prefix_aware_router.PrefixCacheAffinityRouter"
"""Ray's router by prefix. ``ray.serve.llm`` exports it, but cannot be imported without vLLM or SGLang."""
ONE_SERVER = ("host", "port", "prompt_cache")
"""Settings of a server that listens itself, alone on its machine."""
SCOPE = ("type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "root_path", "query_string", "headers")
"""Fields of a connection that a replica needs."""
MANY = 10_000
"""Requests that the ingress passes on at once: replicas limit their number."""


@attrs.frozen
class RoutedRequest:
    """A request on its way to a replica. scope: of ASGI. prompt: what Ray's router compares, never empty."""

    scope: dict[str, Any]
    body: bytes
    prompt: str


def request_of(scope: Mapping[str, Any], body: bytes) -> RoutedRequest:
    """The request of a connection whose body was read."""
    fields = {name: scope[name] for name in SCOPE if name in scope}
    return RoutedRequest(fields, body, beginning_of_prompt(body) or str(scope["path"]))


class Replica:
    """One server. Raises UsageError, Refused."""

    def __init__(self, settings: Settings, serve_settings: ServeSettings) -> None:
        logs.begin_logging(as_json=serve_settings.log == "json")
        self.engine, config = prepare_engine(*run_of(settings, serve_settings), serve_settings)
        self.app = create_app(self.engine, config, proxied=True)
        self.counts = Metrics(self.engine)
        self.engine.start()

    async def __call__(self, request: RoutedRequest) -> AsyncIterator[dict[str, Any]]:
        """The ASGI messages of an answer. A client that leaves cancels this call."""
        messages: asyncio.Queue[Any] = asyncio.Queue()
        task = asyncio.create_task(self._answer(request, messages))
        try:
            while (message := await messages.get()) is not None:
                yield message
            await task
        finally:
            task.cancel()

    async def _answer(self, request: RoutedRequest, messages: asyncio.Queue[Any]) -> None:
        body = [{"type": "http.request", "body": request.body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            return body.pop() if body else await asyncio.Future()

        try:
            await self.app(request.scope, receive, messages.put)
        finally:
            messages.put_nowait(None)

    def metrics(self) -> list[Metric]:
        """Metrics of this replica, under its name."""
        return self.counts.of(serve.get_replica_context().replica_id.unique_id)

    def check_health(self) -> None:
        """Check health for Ray, which replaces a replica that raises."""
        if not self.engine.healthy:
            raise RuntimeError("the engine has stopped")

    def __del__(self) -> None:
        """Close the replica; Ray calls this when running requests have ended, or their time has."""
        self.engine.close()


class Ingress:
    """Passes requests to replicas, and their answers back. limits: of the replicas."""

    def __init__(self, replicas: DeploymentHandle, settings: ServeSettings) -> None:
        self.replicas = replicas.options(stream=True)
        self.guard = Guard(self, keys_of(settings), settings.body_bytes)

    async def __call__(self, request: Request) -> Response:
        try:
            self.guard.check(request.scope["path"], request.headers)
            body = await self._body(request)
        except ApiError as error:
            return answer(error)
        if request.scope["path"] == "/metrics":
            return await self._metrics()
        return Passed(self.replicas.remote(request_of(request.scope, body)))

    async def _body(self, request: Request) -> bytes:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > self.guard.body_bytes:
                raise self.guard.too_long()
        return bytes(body)

    async def _metrics(self) -> Response:
        """Metrics of all living replicas: a single one's would go up and down."""
        servers = await self.replicas.broadcast("metrics").results_async(return_exceptions=True)
        living = [counts for counts in servers if not isinstance(counts, RayError)]
        return Response(Together(living).text(), media_type=CONTENT_TYPE)


class Passed(Response):
    """The answer of a replica, as it comes. messages: of ASGI, an asynchronous iterator."""

    def __init__(self, messages: Any) -> None:
        super().__init__()
        self.messages = messages

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        begun = False
        try:
            async for message in self.messages:
                begun = True
                await send(message)
        except (BackPressureError, RayError) as error:
            if begun:
                raise  # the client sees that the answer is cut
            await answer(_lost_replica_error(error))(scope, receive, send)


def _lost_replica_error(error: Exception) -> ApiError:
    headers = {"Retry-After": RETRY_SECONDS}
    if isinstance(error, BackPressureError):
        return ApiError(429, "every replica is busy; try again later", code="busy", headers=headers)
    return ApiError(503, "the replica was lost before it answered; send the request again", None, "lost", headers)


def app(args: dict[str, Any]) -> serve.Application:
    """Build the application: ``serve run spec_serve.ray:app model=zoo:pico methods=ngram replicas=2``.

    args: settings of ``spec serve``, ``config`` for a file of them, and ``replicas``, the number of servers.
    Raises UsageError.
    """
    flags = dict(args)
    replicas = _count(flags.pop("replicas", 1))
    settings = common.settings_of(flags)
    _check_shared(settings)
    limits = limits_of(settings)
    settings = adapt_settings(without_own(settings))
    server: Any = serve.deployment(Replica, **_options(settings, limits, replicas))
    ingress: Any = serve.deployment(Ingress, max_ongoing_requests=MANY, ray_actor_options={"num_cpus": 0})
    return ingress.bind(server.bind(settings, limits), limits)


def _count(replicas: Any) -> int:
    if not str(replicas).isdecimal() or int(str(replicas)[:9]) < 1:
        raise UsageError(f"replicas={replicas!r:.60}: it must be a whole number, at least 1", hint="write replicas=2")
    return int(replicas)


def _check_shared(settings: Settings) -> None:
    for name in ONE_SERVER:
        setting = settings.table.get(f"{NAME}.{name}")
        if setting is not None and setting.origin != DEFAULT:
            raise UsageError(
                f"{NAME}.{name} is a setting of one server, and Ray Serve starts several",
                hint="leave it out; Ray Serve's http_options say where it listens",
            )


def _options(settings: Settings, serve_settings: ServeSettings, replicas: int) -> dict[str, Any]:
    """Options of the deployment: a replica has requests for its slots and its queue; a second queue waits for one."""
    slots = settings["max_sequences"]
    routing: dict[str, Any] = {
        "request_router_class": ROUTER,
        "request_router_kwargs": {"imbalanced_threshold": slots, "do_eviction": True},
    }
    return {
        "num_replicas": replicas,
        "max_ongoing_requests": slots + serve_settings.queue,
        "max_queued_requests": max(1, serve_settings.queue),
        "graceful_shutdown_timeout_s": serve_settings.shutdown_seconds + GRACE_SECONDS,
        "request_router_config": RequestRouterConfig(**routing),
    }
