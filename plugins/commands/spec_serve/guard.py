"""Checks of every request before its route: its host and origin, the key, and the limits of its body."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response

from spec_serve.errors import ApiError
from spec_serve.keys import Keys
from spec_serve.logs import REFUSALS
from spec_serve.origins import Origins
from spec_serve.page import PATHS
from spec_serve.request_info import HEADER, REQUEST_INFO, request_info
from spec_serve.stream import as_json

HEALTH = ("/health", "/v1/health")
OPEN = (*HEALTH, *PATHS)
"""Paths that need no key: whether the server lives, and the page, which asks for it."""

DIGITS_MAX = 18
"""Digits of a number that a header may have."""


def answer(error: ApiError, path: str = "") -> Response:
    """A refusal as a response, and a line of the log. path: of the request."""
    REFUSALS.note(error, path)
    body = {"type": "error", **error.body} if path.startswith("/v1/messages") else error.body
    return Response(as_json(body), error.status, error.headers, media_type="application/json")


def add_request_id(send: Any, name: str) -> Any:
    """Add the id of a request to the headers of its answer."""

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (HEADER.encode(), name.encode())]}
        await send(message)

    return sending


def _check_readable(headers: Headers) -> None:
    """Raise ApiError for a header with an address that cannot be read."""
    for name, address in (("host", f"//{headers.get('host', '')}"), ("origin", headers.get("origin", ""))):
        try:
            urlsplit(address).port  # noqa: B018  # the port is read when it is asked for
        except ValueError as error:
            problem = f"the header {name.title()} cannot be read: {error}"
            raise ApiError(400, problem, name.title(), "invalid_header") from error


class Guard:
    """An ASGI application before another one."""

    def __init__(
        self,
        app: Callable[..., Any],
        keys: Keys,
        body_bytes: int,
        body_seconds: float = 60.0,
        origins: Origins | None = None,
    ) -> None:
        """origins: checked for every path but that of health; None where others check them."""
        self.app = app
        self.keys = keys
        self.body_bytes = body_bytes
        self.body_seconds = body_seconds
        self.origins = origins

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, info = Headers(scope=scope), request_info(scope)
        REQUEST_INFO.set(info)
        send = add_request_id(send, info.request_id)
        try:
            self.check(scope["path"], headers)
        except ApiError as error:
            await answer(error, scope["path"])(scope, receive, send)
            return
        await self.app(scope, self._limit_body(receive), send)

    def check(self, path: str, headers: Headers) -> None:
        """Raise ApiError for a page of a stranger, a wrong key, or a body that says that it is too long."""
        _check_readable(headers)
        if self.origins is not None and path not in HEALTH:
            self.origins.check(headers)
        self._check_key(path, headers)
        self._check_length(headers.get("content-length"))

    def _check_key(self, path: str, headers: Headers) -> None:
        if not self.keys or path in OPEN:
            return
        kind, _, key = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            key = headers.get("x-api-key", "")
        if not self.keys.has(key.strip().encode("latin-1")):
            problem = "the API key is missing or wrong; send it as Authorization: Bearer KEY"
            raise ApiError(401, problem, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})

    def _check_length(self, length: str | None) -> None:
        if length is None or not length.isdecimal():
            return
        digits = length.lstrip("0")
        if len(digits) > DIGITS_MAX or int(digits or "0") > self.body_bytes:
            raise self.too_long()

    def too_long(self) -> ApiError:
        return ApiError(413, f"the body has more than {self.body_bytes} bytes", code="body_too_large")

    def _limit_body(self, receive: Any) -> Any:
        """The body as it comes, refused where it becomes too long, or comes too slowly."""
        read, whole = 0, False
        ends_at = asyncio.get_running_loop().time() + self.body_seconds

        async def counting() -> Any:
            nonlocal read, whole
            if whole:  # what follows is the end of the connection
                return await receive()
            try:
                async with asyncio.timeout_at(ends_at):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"the body did not arrive within {self.body_seconds:g} seconds") from None
            read += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if read > self.body_bytes:  # of other exceptions FastAPI makes a 400 when it reads a body
                raise HTTPException(413, self.too_long().message)
            return message

        return counting
