"""Streaming and whole responses that are cancelled when the client disconnects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from fastapi.sse import EventSourceResponse

T = TypeVar("T")
QUIET_SECONDS = 15.0
"""Seconds without an event after which a comment is sent, so that proxies keep the connection open."""


class ClientDisconnected(Exception):
    """The client has closed the connection."""


def event(value: Any) -> str:
    """One server-sent event."""
    return f"data: {value if isinstance(value, str) else as_json(value)}\n\n"


def as_json(value: Any) -> str:
    """Compact, in ASCII: a text may hold half a surrogate pair."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


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
            yield text
            following = asyncio.ensure_future(anext(events, None))
    finally:
        following.cancel()
        with suppress(BaseException):
            await following
