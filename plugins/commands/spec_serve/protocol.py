"""A connection of uvicorn with limits of time: for the head of a request, and for a client that reads nothing."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any, ClassVar

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from spec_serve.connections import Connection, Connections

UNREAD_SECONDS = 60.0
"""Time in which a client must take some of what was sent to it."""
Base: Any = AutoHTTPProtocol


class LimitedProtocol(Base):  # type: ignore[misc]
    """A connection of uvicorn. ``protocol_class`` makes the class of one server."""

    head_seconds: ClassVar[float]
    table: ClassVar[Connections]
    connection: Connection
    _head: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.connection.close = transport.abort
        self.table.move(self.connection, "head")
        self._await_head(0.0 if self.scheme == "https" else monotonic() - self.connection.opened)

    def connection_lost(self, exc: Exception | None) -> None:
        self.table.remove(self.connection)
        self._have_head()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_stage(heard=True)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_stage(heard=False)

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

    def _update_stage(self, heard: bool) -> None:
        """Note what is waited for now. heard: bytes came; of no request, they begin a head."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._have_head()
            self.table.move(self.connection, "body" if self.cycle.more_body else "busy")
        elif not self.transport.is_closing():
            self._await_head()
            self.table.move(self.connection, "head" if heard else "kept")

    def _await_head(self, waited: float = 0.0) -> None:
        """Close the connection if no request comes in time. More of its head gives no more time."""
        if self._head is None:
            self._head = self.loop.call_later(max(0.0, self.head_seconds - waited), self.transport.abort)

    def _have_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None


def protocol_class(connections: Connections, head_seconds: float) -> type[LimitedProtocol]:
    """The protocol of one server."""
    return type("ServerProtocol", (LimitedProtocol,), {"head_seconds": head_seconds, "table": connections})
