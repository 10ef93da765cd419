"""Headers of strangers: one that cannot be read is refused with 400; files of keys are read whole or not at all."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_serve.keys import BYTES_MAX, keys_of
from spec_serve.settings import ServeSettings

from spec_core import UsageError
from tests.support.served import serving

MALFORMED = [
    b"Origin: http://[", b"Origin: http://[::1", b"Origin: http://a:99999", b"Host: [", b"Host: a:b",
    b"Host: localhost:99999999", b"Host: [a]",
]  # fmt: skip
"""Headers that the standard library cannot read."""
STRANGE = [
    b"Content-Length: " + b"9" * 5_000, b"Content-Length: 1_0", b"Content-Type: application/json; charset=\xff",
    b"Content-Type: \xff\xfe/;;", b"Authorization: \xff\xfe", b"X-Api-Key: \xff", b"X-Request-Id: \xff",
    b"Accept: \xff", b"Cookie: \xff=;;", b"Expect: \xff", b"Transfer-Encoding: \xff", b"Traceparent: \xff",
    b"Access-Control-Request-Method: \xff", b"Upgrade: \xff", b"Host: xn--\xff", b"Host: ", b"Host: [::1%zz]",
    b"Origin: null", b"Origin: \xff", b"Origin: http://\xe2\x84\x80.example", b"Origin: //[v1.a]", b"Range: zz",
]  # fmt: skip
SERVERS = {"open": {}, "key": {"api_key": "k"}, "origins": {"allowed_origin": "*"}}


@pytest.fixture(scope="module", params=SERVERS)
def server(request):
    with serving("zoo:pico", limits=SERVERS[request.param]) as server:
        yield server


def answer(server, header: bytes, path: bytes) -> bytes:
    """The head of the answer to a request with this header."""
    own = {b"Host": b"localhost", b"Content-Type": b"application/json", b"Content-Length": b"29"}
    lines = [name + b": " + value for name, value in own.items() if not header.startswith(name)]
    head = b"\r\n".join([b"POST " + path + b" HTTP/1.1", *lines, b"Authorization: Bearer k", header])
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=10) as connection:
        connection.sendall(head + b'\r\nConnection: close\r\n\r\n{"prompt":"a","max_tokens":1}')
        data = b""
        with suppress(ConnectionResetError):
            while part := connection.recv(1 << 16):
                data += part
    return data


@pytest.mark.parametrize("header", MALFORMED)
@pytest.mark.parametrize("path", [b"/v1/completions", b"/nothing", b"/v1/messages"])
def test_a_header_that_cannot_be_read_is_refused(server, header, path):
    head, _, body = answer(server, header, path).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 400 ") and b"x-request-id: " in head.lower(), head
    assert b"cannot be read" in body and header.partition(b":")[0] in body


@pytest.mark.parametrize("header", STRANGE)
@pytest.mark.parametrize("path", [b"/v1/completions", b"/nothing"])
def test_no_header_makes_a_failure(server, header, path):
    head = answer(server, header, path)

    assert head[9:10] in (b"2", b"4"), head[:300]


# files of keys


def keys(path):
    return keys_of(ServeSettings(api_key_file=str(path)))


@pytest.mark.parametrize("size", [BYTES_MAX + 1, 3 * BYTES_MAX])
def test_a_file_of_keys_that_is_too_long_is_refused(tmp_path, size):
    """Its end would be a part of a key, which is a key then."""
    path = tmp_path / "keys"
    path.write_bytes(b"secretkey_long_one\n" * (size // 19 + 1))

    with pytest.raises(UsageError, match="more than 1048576 bytes"):
        keys(path)


def test_a_device_without_an_end_is_no_file_of_keys():
    with pytest.raises(UsageError, match="more than 1048576 bytes"):
        keys("/dev/zero")


@pytest.mark.parametrize("mark", ["utf-8-sig", "utf-8"])
def test_a_byte_order_mark_is_not_part_of_a_key(tmp_path, mark):
    path = tmp_path / "keys"
    path.write_bytes("one\r\n# two\r\n\r\nthree".encode(mark))

    assert keys(path).keys == (b"one", b"three")


@pytest.mark.parametrize("kind", ["utf-16", "utf-16-le", "utf-32"])
def test_a_file_of_keys_of_another_encoding_is_refused(tmp_path, kind):
    path = tmp_path / "keys"
    path.write_bytes("one\ntwo\n".encode(kind))

    with pytest.raises(UsageError, match="is not UTF-8 text"):
        keys(path)
