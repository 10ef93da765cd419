"""Connections with limits of their number and of time: for the head of a request, and for a client that reads nothing.

A connection without a whole request costs a descriptor, and a process has few: without limits some hundred of them make
a server deaf.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from spec_serve.settings import ServeSettings

log = logging.getLogger("spec_serve")
DESCRIPTORS_KEPT = 64
"""Descriptors for all but connections: files, the log, processes of grammars and templates."""
CONNECTIONS_MAX = 1024
UNREAD_SECONDS = 60.0
"""Time in which a client must take some of what was sent to it."""
QUIET_SECONDS = 60.0
"""Between two lines of the log about a lack of descriptors."""
FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
Base: Any = AutoHTTPProtocol


def connections_max(limits: ServeSettings) -> int:
    """The setting, or what the process has descriptors for."""
    if limits.connections:
        return limits.connections
    try:
        import resource

        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except ImportError:  # no such limit on this system
        return CONNECTIONS_MAX
    return max(1, min(CONNECTIONS_MAX, descriptors - DESCRIPTORS_KEPT))


class LimitedProtocol(Base):  # type: ignore[misc]
    """A connection of uvicorn. ``protocol_class`` makes the class of one server."""

    head_seconds: ClassVar[float]
    count_max: ClassVar[int]
    waiting: ClassVar[dict[LimitedProtocol, asyncio.TimerHandle]]
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.count_max and not self._drop_oldest():
            transport.write(FULL)
            transport.close()
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_head()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_waiting()

    def pause_writing(self) -> None:
        """The client reads more slowly than the answer comes."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _update_waiting(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._have_head()
        elif not self.transport.is_closing():
            self._await_head()

    def _await_head(self) -> None:
        """Close the connection if no request comes in time. More of its head gives no more time."""
        if self not in self.waiting:
            self.waiting[self] = self.loop.call_later(self.head_seconds, self.transport.abort)

    def _have_head(self) -> None:
        if (timer := self.waiting.pop(self, None)) is not None:
            timer.cancel()

    def _drop_oldest(self) -> bool:
        """Close the connection that has waited longest for a request; False if none waits."""
        oldest = next(iter(self.waiting), None)
        if oldest is None:
            return False
        oldest._have_head()
        oldest.transport.abort()
        return True


def protocol_class(limits: ServeSettings) -> type[LimitedProtocol]:
    """The protocol of one server."""
    own = {"head_seconds": limits.head_seconds, "count_max": connections_max(limits), "waiting": {}}
    return type("ServerProtocol", (LimitedProtocol,), own)


class QuietErrors:
    """Handles errors of an event loop: a lack of descriptors is one line of the log now and then, not one a second."""

    def __init__(self) -> None:
        self.last = float("-inf")

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "out of system resource" not in str(context.get("message")):
            loop.default_exception_handler(context)
        elif loop.time() - self.last > QUIET_SECONDS:
            self.last = loop.time()
            log.error("no connection can be accepted: %s; lower -o serve.connections", context.get("exception"))
