"""Seconds of load with clients that behave badly: no wrong text, no slot lost, every refusal a clear one."""

from __future__ import annotations

import json
import random
import socket
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_core import load
from tests.support.served import answers, requests, serving, wrong

SECONDS = 3
METHODS = ["ngram", "draft-model"]
BODY = json.dumps({"prompt": "x", "max_tokens": 400, "ignore_eos": True, "stream": True}).encode()
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def connected(served):
    host, port = served.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=5)


def vanishes(served, rng):
    """Sends a request and closes at once, or resets the connection."""
    with connected(served) as client:
        client.sendall(HEAD % len(BODY) + BODY)
        if rng.random() < 0.5:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def half_open(served, rng):
    """Promises a body and sends a part of it."""
    with connected(served) as client:
        client.sendall(HEAD % len(BODY) + BODY[: rng.randrange(len(BODY))])
        sleep(0.05)


def reads_slowly(served, rng):
    """Reads a little of a stream now and then, and leaves."""
    with connected(served) as client:
        client.sendall(HEAD % len(BODY) + BODY)
        for _ in range(5):
            client.recv(64)
            sleep(0.02)


def sends_garbage(served, rng):
    with connected(served) as client:
        client.sendall(rng.randbytes(200) + b"\r\n\r\n")
        answer = client.recv(200)
        assert not answer or b" 400 " in answer


def sends_too_much(served, rng):
    answer = served.post("/v1/completions", content=b" " * 200_000, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


def test_clients_that_behave_badly_harm_nobody():
    """The texts of others are those of a run alone, and at the end nothing runs, waits or is kept."""
    target, end = load("zoo:pico"), monotonic() + SECONDS
    many = requests(11, 30, METHODS)
    with serving(target, METHODS, {"body_bytes": 100_000, "queue": 400}, max_sequences=3) as served:

        def behaves_badly(number):
            rng = random.Random(number)
            kinds = [vanishes, half_open, reads_slowly, sends_garbage, sends_too_much]
            done = 0
            while monotonic() < end:
                rng.choice(kinds)(served, rng)
                done += 1
            return done

        with ThreadPoolExecutor(4) as pool:
            bad = [pool.submit(behaves_badly, number) for number in range(3)]
            got = answers(served.url, many, 4)
            assert all(future.result() for future in bad)
        until = monotonic() + 20
        while served.engine.open and monotonic() < until:
            sleep(0.01)

        assert wrong(target, many, got) == []
        assert not served.engine.open and not served.engine.jobs
        assert not served.engine.run.running and not served.engine.run.results
        assert served.get("/health").status_code == 200
