"""Connections without a whole request end, also where there are more than descriptors; health is answered meanwhile."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import ExitStack, suppress

import httpx
import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_serve.acceptor import Acceptor
from spec_serve.connections import Connection, Connections, connections_max, counts_addresses
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
    host, port = server.url.partition("://")[2].split(":")
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
        assert httpx.get(f"{server.url}/health").status_code == 200


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


def test_a_lack_of_descriptors_is_one_line_of_the_log(caplog, monkeypatch):
    monkeypatch.setattr("spec_serve.acceptor.PAUSE_SECONDS", 0.0)

    async def endure():
        acceptor = Acceptor(Connections(8), None, None, 1.0)
        for _ in range(50):
            await acceptor._endure_shortage(OSError(24, "too many"))

    with caplog.at_level(logging.ERROR):
        asyncio.run(endure())

    assert len(caplog.records) == 1 and "no connection can be accepted" in caplog.text


# which connection makes room


class Sockets:
    """Connections of a table, with real sockets; ``open`` makes one that was heard some seconds ago."""

    def __init__(self, count_max, by_address=True):
        self.table, self.closed, self.clients = Connections(count_max, by_address), [], {}

    def open(self, name, address="a", stage="silent", seconds=9.0):
        own, self.clients[name] = socket.socketpair()
        connection = Connection(own.fileno(), address, lambda: (self.closed.append(name), own.close()))
        self.table.add(connection)
        self.table.move(connection, stage)
        connection.heard -= seconds
        return connection


def test_connections_without_a_byte_go_first_and_the_oldest_of_them():
    sockets = Sockets(1)
    for name, stage in (("head", "head"), ("old", "silent"), ("new", "silent"), ("handshake", "handshake")):
        sockets.open(name, stage=stage)
    while sockets.table.make_room():
        pass

    assert sockets.closed == ["old", "new", "handshake", "head"]


@pytest.mark.parametrize("stage", ["kept", "busy"])
def test_a_connection_that_is_kept_alive_or_answered_is_not_closed(stage):
    sockets = Sockets(1)
    sockets.open("kept", stage=stage, seconds=999.0)

    assert not sockets.table.make_room()


@pytest.mark.parametrize("stage", ["silent", "handshake", "head", "body"])
def test_a_connection_whose_bytes_lie_in_the_socket_is_not_closed(stage):
    sockets = Sockets(1)
    sockets.open("sends", stage=stage)
    sockets.clients["sends"].send(b"GET /")
    assert not sockets.table.make_room()
    sockets.open("waits", stage=stage)

    assert sockets.table.make_room() and sockets.closed == ["waits"]


@pytest.mark.parametrize("stage", ["silent", "handshake", "head", "body"])
def test_a_connection_has_a_short_grace(stage):
    sockets = Sockets(1)
    sockets.open("new", stage=stage, seconds=0.0)

    assert not sockets.table.make_room()


@pytest.mark.parametrize(("by_address", "closed"), [(True, "many 1"), (False, "few")])
def test_those_of_the_address_with_most_connections_go_first_without_a_proxy(by_address, closed):
    sockets = Sockets(1, by_address)
    sockets.open("few", "b")
    for number in range(1, 4):
        sockets.open(f"many {number}", "a")
    sockets.table.make_room()

    assert sockets.closed == [closed]


def test_a_proxy_is_declared_by_a_setting_or_by_uvicorns_variable(monkeypatch):
    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    assert counts_addresses(ServeSettings()) and not counts_addresses(ServeSettings(proxy=True))
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "10.0.0.1")
    assert not counts_addresses(ServeSettings())


def test_a_table_forgets_connections_and_addresses_that_have_ended():
    sockets = Sockets(8)
    for connection in [sockets.open(name) for name in "abc"]:
        sockets.table.remove(connection)
        sockets.table.move(connection, "head")

    assert len(sockets.table) == 0 and not sockets.table.addresses


def test_kept_clients_go_on_beside_bursts_of_connections_without_a_byte(server):
    """Four bursts of ten times as many as there are places; new clients get in, and a kept one is not closed."""
    answers = []
    with httpx.Client() as kept, ExitStack() as stack:
        for _ in range(4):
            for _ in range(80):
                stack.enter_context(connect(server))
            answers.append(kept.get(f"{server.url}/health").status_code)
            answers.append(httpx.get(f"{server.url}/health", timeout=20).status_code)

    assert answers == [200] * 8


# encryption


@pytest.fixture(scope="module")
def encrypted_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    certificate, key = make_certificate(folder)
    with serving("zoo:pico", limits={**LIMITS, "handshake_seconds": 2.0, **certificate_of(certificate, key)}) as server:
        yield server


def make_certificate(folder):
    """A certificate for this machine, made by openssl."""
    files = [str(folder / name) for name in ("certificate.pem", "key.pem")]
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on this machine")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


def certificate_of(certificate, key):
    return {"ssl_cert_file": certificate, "ssl_key_file": key}


def test_health_is_answered_over_tls(encrypted_server):
    assert encrypted_server.url.startswith("https://") and encrypted_server.get("/health").status_code == 200


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"GET / HTTP/1.1\r\n\r\n"])
def test_a_handshake_that_does_not_end_is_waited_for_in_vain(encrypted_server, sent):
    with connect(encrypted_server) as half:
        half.sendall(sent)
        begun = time.monotonic()
        read_to_end(half)
        assert time.monotonic() - begun < 8


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"])
def test_handshakes_count_as_connections(encrypted_server, sent):
    """The server was deaf for a minute: connections counted after their handshake."""
    with ExitStack() as stack:
        for _ in range(60):
            half = stack.enter_context(connect(encrypted_server))
            with suppress(OSError):
                half.sendall(sent)
        begun = time.monotonic()
        with httpx.Client(verify=False, timeout=20) as client:
            assert client.get(f"{encrypted_server.url}/health").status_code == 200
        assert time.monotonic() - begun < 15
        assert len(encrypted_server.server.open_connections) <= LIMITS["connections"] + 1


def test_a_client_that_speaks_after_its_handshake_has_time(encrypted_server):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(connect(encrypted_server)) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        assert read_to_end(client)


def test_a_server_ends_with_connections_that_wait_for_a_byte():
    with serving("zoo:pico", limits={"head_seconds": 30.0}) as server, ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(connect(server))
        time.sleep(0.1)
        begun = time.monotonic()
    assert time.monotonic() - begun < 10
