"""The process: uvicorn, and what SIGTERM does."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn

from spec_core import UsageError
from spec_core.errors import error_message
from spec_serve.acceptor import Acceptor
from spec_serve.connections import Connections, connections_max, counts_addresses
from spec_serve.engine import Engine
from spec_serve.keys import keys_of
from spec_serve.protocol import LimitedProtocol, protocol_class
from spec_serve.settings import ServeSettings

log = logging.getLogger("spec_serve")
GRACE_SECONDS = 5
"""Seconds for cancelled requests to send their last event."""


class Server(uvicorn.Server):
    """Ends in order: no new requests, running ones finish, and after ``shutdown_seconds`` they are cancelled."""

    def __init__(self, app: Any, engine: Engine, settings: ServeSettings) -> None:
        self.limits = settings
        self.engine = engine
        self.seconds = settings.shutdown_seconds
        self.ends_at = 0.0
        self.open_connections = Connections(connections_max(settings), counts_addresses(settings))
        super().__init__(_uvicorn_config(app, settings, self.open_connections))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The first signal ends in order, a second one at once; having ended, the exit code is 0."""
        if threading.current_thread() is not threading.main_thread():
            yield  # signals are the main thread's
            return
        before = {sig: signal.signal(sig, self._on_signal) for sig in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then accept connections, in place of asyncio's servers."""
        await super().startup(sockets=[])
        acceptor = Acceptor(self.open_connections, self._make_protocol, self.config.ssl, _opening_seconds(self.limits))
        for listener in sockets or ():
            acceptor.start(listener)
        self.servers = [acceptor]  # type: ignore[list-item]  # closed and waited for alike

    def _make_protocol(self) -> LimitedProtocol:
        state = self.lifespan.state
        make: Any = self.config.http_protocol_class
        protocol: LimitedProtocol = make(config=self.config, server_state=self.server_state, app_state=state)
        return protocol

    def _on_signal(self, sig: int, frame: Any) -> None:
        name = signal.Signals(sig).name
        if self.engine.draining:
            log.info("%s again: all texts are cancelled", name)
            self.engine.cancel_all()
            self.should_exit = True
            return
        self.engine.draining, self.ends_at = True, time.monotonic() + self.seconds
        log.info("%s: %d texts have %g seconds to finish", name, len(self.engine.open), self.seconds)

    async def on_tick(self, counter: int) -> bool:
        """Exit when the last text has ended, or its time: until then ``/health`` says that the server shuts down."""
        if self.engine.draining and (not self.engine.open or time.monotonic() > self.ends_at):
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.engine.draining = True
        left = max(0.0, self.ends_at - time.monotonic()) if self.ends_at else self.seconds
        timer = asyncio.get_running_loop().call_later(left, self.engine.cancel_all)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()
            log.info("stopped")


def listening_socket(settings: ServeSettings) -> socket.socket:
    """A socket bound to the address. Raises UsageError where it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound_socket = socket.socket(family, kind, protocol)
        bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound_socket.bind(address)
    except (OSError, OverflowError) as error:
        raise _listen_error(settings, error) from error
    return bound_socket


def start_listening(listener: socket.socket, settings: ServeSettings) -> str:
    """Let clients connect; returns the URL. Raises UsageError where another program was faster."""
    try:
        listener.listen()
    except OSError as error:
        raise _listen_error(settings, error) from error
    host, port = listener.getsockname()[:2]
    scheme = "https" if settings.ssl_cert_file else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def warn_of_everyone(listener: socket.socket, settings: ServeSettings) -> None:
    """Log a warning where other machines reach the server and it has no key."""
    local = ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback
    if not local and not keys_of(settings):
        log.warning("everyone who reaches %s can use this server: it has no key (--api-key-file)", settings.host)


def _listen_error(settings: ServeSettings, error: Exception) -> UsageError:
    return UsageError(
        f"cannot listen at {settings.host}:{settings.port}: {error_message(error)}",
        hint="another program may have the port: give another one with --port, or 0 for a free one",
    )


def _opening_seconds(settings: ServeSettings) -> float:
    """Seconds from ``accept`` to the end of a handshake, or to the first byte without encryption."""
    return settings.handshake_seconds if settings.ssl_cert_file else settings.head_seconds


def _uvicorn_config(app: Any, settings: ServeSettings, connections: Connections) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,  # its lines belong to the server's log
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=int(settings.shutdown_seconds) + GRACE_SECONDS,
        server_header=False,
        ssl_certfile=settings.ssl_cert_file,
        ssl_keyfile=settings.ssl_key_file,
        http=protocol_class(connections, settings.head_seconds),
        ws="none",
    )


def serve_app(app: Any, engine: Engine, settings: ServeSettings, listener: socket.socket) -> None:
    """Serve until a signal comes."""
    Server(app, engine, settings).run(sockets=[listener])
