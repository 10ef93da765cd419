"""Streaming and whole responses that are cancelled when the client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from fastapi.sse import EventSourceResponse
from starlette.responses import Response

from spec_serve.json_text import json_pieces

T = TypeVar("T")
PIECE = 1 << 18
"""Bytes that are sent at once."""
QUIET_SECONDS = 15.0
"""Seconds without an event after which a comment is sent, so that proxies keep the connection open."""


class ClientDisconnected(Exception):
    """The client has closed the connection."""


def event(value: Any) -> str:
    """One server-sent event."""
    return f"data: {value if isinstance(value, str) else as_json(value)}\n\n"


def as_json(value: Any) -> str:
    """Compact, in ASCII: a text may hold half a surrogate pair."""
    return "".join(json_pieces(value))


async def run_until_disconnect(receive: Callable[[], Awaitable[Any]], work: Coroutine[Any, Any, T]) -> T:
    """The result of the work. Raises ClientDisconnected where the client leaves before it is done."""
    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise ClientDisconnected
    finally:
        for task in (doing, leaving):
            task.cancel()
        await asyncio.gather(doing, leaving, return_exceptions=True)


async def _wait_for_disconnect(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(EventSourceResponse):
    """Server-sent events. leave: called at the end, also where the client did not wait for it.

    A StreamingResponse of a server with ASGI 2.4 sees that the client has left only when it sends the next event.
    """

    def __init__(self, events: AsyncIterator[str], leave: Callable[[], None]) -> None:
        super().__init__(with_keepalive(events), headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self.leave = leave

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await run_until_disconnect(receive, self.stream_response(send))
        except (ClientDisconnected, OSError):
            pass
        finally:
            self.leave()


async def with_keepalive(events: AsyncIterator[str]) -> AsyncIterator[str]:
    """The events, and comments while there are none."""
    following = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            await asyncio.wait({following}, timeout=QUIET_SECONDS)
            if not following.done():
                yield ": waiting\n\n"
                continue
            if (text := following.result()) is None:
                return
            for at in range(0, len(text), PIECE):  # a long event in pieces, each as the client takes them
                yield text[at : at + PIECE]
            following = asyncio.ensure_future(anext(events, None))
    finally:
        following.cancel()
        with suppress(BaseException):
            await following


class JsonPieces(Response):
    """JSON that is sent in pieces."""

    media_type = "application/json"

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__(headers={"content-length": str(sum(map(len, pieces)))})
        self.pieces = pieces

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def encode_pieces(value: Any) -> list[bytes]:
    """The JSON of a value in pieces that are sent one by one."""
    pieces, waiting, size = [], [], 0
    for text in json_pieces(value):
        waiting.append(text)
        size += len(text)
        if size >= PIECE:
            pieces.append("".join(waiting).encode())
            waiting, size = [], 0
    return [*pieces, "".join(waiting).encode()]
