"""Accepts connections: each counts from here on, and a handshake of TLS begins with the first byte of a client."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from errno import EMFILE, ENFILE, ENOBUFS, ENOMEM
from typing import Any

import attrs

from spec_serve.connections import Connection, Connections
from spec_serve.protocol import LimitedProtocol

log = logging.getLogger("spec_serve")
BACKLOG = 2048
"""Connections that the system keeps until they are accepted."""
SHORTAGES = (EMFILE, ENFILE, ENOBUFS, ENOMEM)
PAUSE_SECONDS = 0.5
"""Pause after a lack of descriptors."""
QUIET_SECONDS = 60.0
"""Between two lines of the log about a lack of descriptors."""
FAREWELL_SECONDS = 5.0
"""Seconds in which a client must answer the end of TLS."""
FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


@attrs.define(eq=False)
class Acceptor:
    """Accepts the connections of one server, in place of a server of asyncio.

    make_protocol: makes the protocol of a connection. encryption: of HTTPS, None is HTTP. seconds: from ``accept`` to
    the first byte of HTTP, or to the end of the handshake.
    """

    connections: Connections
    make_protocol: Callable[[], LimitedProtocol]
    encryption: ssl.SSLContext | None
    seconds: float
    _accepting: list[asyncio.Task[None]] = attrs.field(factory=list, init=False)
    openings: set[Opening] = attrs.field(factory=set, init=False)
    _warned: float = attrs.field(default=float("-inf"), init=False)

    def start(self, listener: socket.socket) -> None:
        """Accept connections from now on."""
        listener.setblocking(False)
        listener.listen(BACKLOG)
        self._accepting.append(asyncio.ensure_future(self._accept(listener)))

    def close(self) -> None:
        """Accept no more, and end connections that are not open yet."""
        for task in self._accepting:
            task.cancel()
        for opening in list(self.openings):
            opening.close()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._accepting, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listener)
            except OSError as error:  # others are of a client that has left
                if error.errno in SHORTAGES:
                    await self._endure_shortage(error)
                continue
            await self._admit(accepted, str(address[0]) if isinstance(address, tuple) else "")
            await asyncio.sleep(0)  # a burst of connections does not stop the others

    async def _endure_shortage(self, error: OSError) -> None:
        """Wait for a descriptor. A line of the log says so now and then, not for every connection."""
        now = asyncio.get_running_loop().time()
        if now - self._warned > QUIET_SECONDS:
            self._warned = now
            log.error("no connection can be accepted: %s; lower -o serve.connections", error)
        if not self.connections.make_room():
            await asyncio.sleep(PAUSE_SECONDS)

    async def _admit(self, accepted: socket.socket, address: str) -> None:
        """Open a connection, if there is room or another one makes room."""
        opening = Opening(self, accepted, address)
        while self.connections.is_full and not self.connections.make_room():
            seconds = self.connections.seconds_to_room(opening.connection)
            if seconds is None:
                opening.refuse()
                return
            await asyncio.sleep(max(seconds, 0.01))
        opening.wait_for_byte()


@attrs.define(eq=False)
class Opening:
    """A connection before it has a protocol: without a byte, or in a handshake."""

    acceptor: Acceptor
    socket: socket.socket
    address: str
    connection: Connection = attrs.field(init=False)
    _timer: asyncio.TimerHandle = attrs.field(init=False)
    _task: asyncio.Task[None] | None = attrs.field(default=None, init=False)
    _ends_at: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.connection = Connection(self.socket.fileno(), self.address, self.close)
        self.acceptor.connections.add(self.connection)
        self.acceptor.openings.add(self)
        self._ends_at = loop.time() + self.acceptor.seconds
        self._timer = loop.call_at(self._ends_at, self.close)

    def wait_for_byte(self) -> None:
        """Go on when the client has sent something."""
        if self.socket.fileno() < 0:  # it was closed for another one
            return
        try:
            asyncio.get_running_loop().add_reader(self.socket, self._begin)
        except NotImplementedError:  # Windows' own loop
            self._begin()

    def close(self) -> None:
        """End the connection, whatever it waits for."""
        if self._task is not None:
            self._task.cancel()
            return
        if self.socket.fileno() >= 0:
            self._stop_waiting()
        self._forget()
        self.socket.close()

    def refuse(self) -> None:
        """Tell the client that there is no room, where it can read that."""
        if self.acceptor.encryption is None:
            with suppress(OSError):
                self.socket.send(FULL)
                self.socket.shutdown(socket.SHUT_WR)
                self.socket.recv(1 << 16)  # unread bytes would make a reset of the end
        self.close()

    def _begin(self) -> None:
        """The first byte is there."""
        self._stop_waiting()
        self.acceptor.connections.move(self.connection, "handshake")
        self._task = asyncio.ensure_future(self._open())

    def _stop_waiting(self) -> None:
        with suppress(NotImplementedError):
            asyncio.get_running_loop().remove_reader(self.socket)

    async def _open(self) -> None:
        loop, encryption = asyncio.get_running_loop(), self.acceptor.encryption
        left = max(0.01, self._ends_at - loop.time())
        seconds = {"ssl_handshake_timeout": left, "ssl_shutdown_timeout": FAREWELL_SECONDS} if encryption else {}
        try:
            await loop.connect_accepted_socket(self._make_protocol, self.socket, ssl=encryption, **seconds)
        except (OSError, asyncio.CancelledError):  # ssl's own errors are some
            self.acceptor.connections.remove(self.connection)
            self.socket.close()
        finally:
            self._forget(keep=True)

    def _make_protocol(self) -> Any:
        protocol = self.acceptor.make_protocol()
        protocol.connection = self.connection
        return protocol

    def _forget(self, keep: bool = False) -> None:
        """End the waiting. keep: the connection goes on."""
        self._timer.cancel()
        self.acceptor.openings.discard(self)
        if not keep:
            self.acceptor.connections.remove(self.connection)
