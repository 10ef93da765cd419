"""Connections without a whole request end, also where there are more than descriptors; health is answered meanwhile."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from contextlib import ExitStack, suppress

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_serve.connections import QuietErrors, connections_max
from spec_serve.settings import ServeSettings

from tests.support.served import serving

POST = (
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)
LIMITS = {"head_seconds": 0.4, "body_seconds": 0.4, "connections": 8}


@pytest.fixture(scope="module")
def server():
    with serving("zoo:pico", limits=LIMITS) as server:
        yield server


def connect(server):
    """A connection that has sent nothing."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    return connection


def read_to_end(connection):
    """Read all that the server sends until it closes the connection."""
    data = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(4096):
            data += part
    return data


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"])
def test_half_a_head_is_waited_for_in_vain(server, sent):
    with connect(server) as half:
        half.sendall(sent)
        begun = time.monotonic()
        assert read_to_end(half) == b""
        assert time.monotonic() - begun < 5


def test_a_head_that_comes_byte_by_byte_has_no_more_time(server):
    with connect(server) as slow:
        begun = time.monotonic()
        with suppress(OSError):
            for byte in b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 100:
                slow.sendall(bytes([byte]))
                time.sleep(0.05)
        assert time.monotonic() - begun < 4
        assert read_to_end(slow) == b""


def test_half_a_body_is_refused_in_time(server):
    head = POST % 90 + b"{"
    with connect(server) as half:
        half.sendall(head)
        half.settimeout(5)
        assert b" 408 " in half.recv(4096).split(b"\r\n")[0]


def test_health_is_answered_beside_more_half_heads_than_connections(server):
    """The oldest that wait for a request make room."""
    with ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(connect(server)).sendall(b"GET / HT")
        assert server.get("/health").status_code == 200


def test_connections_with_requests_are_not_dropped_for_new_ones(server):
    """All are busy: a new connection is told so."""
    body = b'{"prompt": "a", "max_tokens": 1500, "stream": true}'
    with ExitStack() as stack:
        busy = [stack.enter_context(connect(server)) for _ in range(LIMITS["connections"])]
        for connection in busy:
            connection.sendall(POST % len(body) + body)
        assert all(connection.recv(12) == b"HTTP/1.1 200" for connection in busy)
        with connect(server) as late:
            assert read_to_end(late).startswith(b"HTTP/1.1 503 ")


def test_a_kept_connection_is_used_again_and_then_waited_for(server):
    with connect(server) as kept:
        for _ in range(3):
            kept.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            kept.settimeout(5)
            answer = b""
            while not answer.endswith(b'{"status":"ok"}'):
                answer += kept.recv(4096)
        kept.sendall(b"GET /hea")
        assert read_to_end(kept) == b""


def test_the_limit_follows_the_descriptors(monkeypatch):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, 4096))
    assert connections_max(ServeSettings()) == 192
    assert connections_max(ServeSettings(connections=7)) == 7
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (10**6, 10**6))
    assert connections_max(ServeSettings()) == 1024


def test_a_lack_of_descriptors_is_one_line_of_the_log(caplog):
    loop, handler = asyncio.new_event_loop(), QuietErrors()
    with caplog.at_level(logging.ERROR):
        for _ in range(50):
            handler(loop, {"message": "socket.accept() out of system resource", "exception": OSError(24, "too many")})
        handler(loop, {"message": "another error"})
    loop.close()

    assert len(caplog.records) == 2
    assert "no connection can be accepted" in caplog.text and "another error" in caplog.text
