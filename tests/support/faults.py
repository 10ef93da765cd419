"""Load with faults against a server in this process: bad clients beside good ones, and parts that fail."""

from __future__ import annotations

import json
import random
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import attrs
import httpx

from spec_core import Compat, Draft, Run, hookimpl, load
from tests.support.served import Served, requests, serving

BODY = json.dumps({"prompt": "x", "max_tokens": 400, "ignore_eos": True, "stream": True}).encode()
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
METHODS = ["ngram", "draft-model"]
GOOD, BAD = 3, 3
STEPS = 400
"""Steps after which the method ``late`` raises."""


class Late:
    """A method that drafts nonsense, and raises for the first time after many steps."""

    def __init__(self) -> None:
        self.steps = 0

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts={"deterministic"}, forwards=lambda k: 0)

    @hookimpl
    def draft(self, step: Any) -> None:
        self.steps += 1
        if self.steps > STEPS:
            raise RuntimeError("a method fails")
        for seq, _ in step.undrafted:
            step.propose(seq, Draft([5]))


def connect(served: Served) -> socket.socket:
    host, port = served.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=5)


def vanishes(served: Served, rng: random.Random) -> None:
    """Sends a request and closes at once, or resets the connection."""
    with connect(served) as client:
        client.sendall(HEAD % len(BODY) + BODY)
        if rng.random() < 0.5:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def half_open(served: Served, rng: random.Random) -> None:
    """Promises a body and sends a part of it."""
    with connect(served) as client:
        client.sendall(HEAD % len(BODY) + BODY[: rng.randrange(len(BODY))])
        sleep(0.05)


def reads_slowly(served: Served, rng: random.Random) -> None:
    """Reads a little of a stream now and then, and leaves."""
    with connect(served) as client:
        client.sendall(HEAD % len(BODY) + BODY)
        for _ in range(5):
            client.recv(64)
            sleep(0.02)


def sends_garbage(served: Served, rng: random.Random) -> None:
    with connect(served) as client:
        client.sendall(rng.randbytes(200) + b"\r\n\r\n")
        answer = client.recv(200)
        assert not answer or b" 400 " in answer


def sends_too_much(served: Served, rng: random.Random) -> None:
    answer = httpx.post(
        served.url + "/v1/completions", content=b" " * 200_000, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 413


def sends_nonsense(served: Served, rng: random.Random) -> None:
    body = rng.choice([{"prompt": []}, {"prompt": "x", "n": 0}, {"prompt": "x", "temperature": "hot"}, [], 5])
    answer = httpx.post(served.url + "/v1/completions", json=body)
    assert 400 <= answer.status_code < 500, answer.text


KINDS = [vanishes, half_open, reads_slowly, sends_garbage, sends_too_much, sends_nonsense]


def resident() -> int:
    """Bytes of this process in memory; 0 where the system does not say."""
    try:
        return 4096 * int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0


@attrs.define
class Load:
    """seconds: of load. fault_every: seconds between two forwards that raise, 0 is none."""

    model: str
    seconds: float
    seed: int = 1
    fault_every: float = 5.0
    wrong: list[str] = attrs.field(factory=list)
    counts: dict[str, int] = attrs.field(factory=lambda: {"texts": 0, "failed": 0, "bad": 0, "faults": 0})
    early: int = 0
    late: int = 0

    def run(self) -> dict[str, Any]:
        target = load(self.model)
        limits = {"body_bytes": 100_000, "queue": 400, "shutdown_seconds": 5.0}
        with serving(target, [*METHODS, ("late", Late())], limits, max_sequences=4, cache_tokens=1000) as served:
            end = monotonic() + self.seconds
            with ThreadPoolExecutor(GOOD + BAD + 2) as pool:
                work = [pool.submit(self._good, served, target, end, self.seed * 100 + i) for i in range(GOOD)]
                work += [pool.submit(self._bad, served, end, self.seed * 100 + i) for i in range(BAD)]
                work += [pool.submit(self._faults, served, end), pool.submit(self._watch, end)]
                for one in work:
                    one.result()
            self._idle(served)
            self._end(served)
        return {"model": self.model, "seconds": self.seconds, **self.counts, **self._memory(), "wrong": self.wrong}

    def _good(self, served: Served, target: Any, end: float, seed: int) -> None:
        """Whole requests, one after the other, each compared with a run alone."""
        with httpx.Client(timeout=120) as client:
            while monotonic() < end:
                seed += 1000
                (asked,) = requests(seed, 1, METHODS)
                answer = client.post(served.url + "/v1/completions", json=asked.body)
                if answer.status_code == 500 and "RuntimeError" in answer.text and self.counts["faults"]:
                    self.counts["failed"] += 1
                    continue
                with Run(target) as alone:
                    right = alone.generate(asked.request).result.text
                text = answer.json()["choices"][0]["text"] if answer.status_code == 200 else answer.text
                if text != right:
                    self.wrong.append(f"{asked.body}: {text!r}, alone {right!r}")
                self.counts["texts"] += 1

    def _bad(self, served: Served, end: float, seed: int) -> None:
        rng = random.Random(seed)
        while monotonic() < end:
            kind = rng.choice(KINDS)
            try:
                kind(served, rng)
            except AssertionError as error:
                self.wrong.append(f"{kind.__name__}: {error}")
            except OSError:
                pass  # a connection that the server closed
            self.counts["bad"] += 1

    def _faults(self, served: Served, end: float) -> None:
        """Now and then one forward of the server's run raises: it has a target of its own, the runs alone another."""
        failing = served.engine.run.target = Failing(served.engine.run.target)
        while self.fault_every and monotonic() < end - self.fault_every:
            sleep(self.fault_every)
            self.counts["faults"] += 1
            failing.due = True

    def _watch(self, end: float) -> None:
        """Memory after a fifth of the time, and at the end."""
        sleep(max(0.0, 0.2 * (end - monotonic())))
        self.early = resident()
        sleep(max(0.0, end - monotonic()))
        self.late = resident()

    def _memory(self) -> dict[str, float]:
        grown = self.late / self.early - 1 if self.early else 0.0
        if self.seconds >= 600 and grown > 0.05:
            self.wrong.append(f"memory grew by {100 * grown:.1f} %")
        return {"mib": self.late >> 20, "grown": round(grown, 4)}

    def _idle(self, served: Served) -> None:
        until = monotonic() + 20
        while served.engine.open and monotonic() < until:
            sleep(0.01)
        run = served.engine.run
        if served.engine.open or served.engine.jobs or run.running or run.results:
            self.wrong.append("a slot is still taken")
        if served.get("/health").status_code != 200:
            self.wrong.append("the server is not healthy")

    def _end(self, served: Served) -> None:
        """A signal while a text runs: it ends, and what it has is delivered."""
        with served.client.stream("POST", served.url + "/v1/completions", content=BODY,
                                  headers={"Content-Type": "application/json"}) as answer:  # fmt: skip
            lines = answer.iter_lines()
            next(lines)
            served.server.should_exit = True
            rest = [line for line in lines if line]
        if rest[-1] != "data: [DONE]":
            self.wrong.append(f"after the signal the stream ended with {rest[-1]!r}")


class Failing:
    """A target whose next forward raises if it is due."""

    def __init__(self, target: Any) -> None:
        self._target, self.due = target, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def forward(self, batch: Any, needs: Any) -> Any:
        if self.due:
            self.due = False
            raise RuntimeError("a forward fails")
        return self._target.forward(batch, needs)
