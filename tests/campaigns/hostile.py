"""Does a server under attack answer its users? Attackers beside well-behaved clients, for a number of minutes.

``python tests/campaigns/hostile.py [-m MODEL] [--tls] [--minutes 30] [--seed 1] [--clients 6] [--attackers 2]
[--halves 150] [--burst 400]``

The server is a process of its own, with a limit of 256 descriptors. Each client sends requests whose texts must be
those of a run alone; attackers send bodies that cost much, in every form and size, ask for large answers, for answers
that are read as calls, and for pictures, hold connections without a request or with half a handshake, open many at
once, and leave in the middle of texts. ``/health`` is asked all the time. The last line is JSON; the exit code is 1
where the server ends, a client's text is wrong or its connection is reset, an answer has a status of 500, the memory
exceeds the plan by more than 300 MiB, or one in a hundred answers of ``/health`` took more than 250 ms. The last two
are figures of an otherwise idle machine.

A model that reads pictures, such as a directory of Qwen3-VL, gets pictures; others refuse them.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic, sleep
from typing import Any

import attrs
import httpx

sys.path.insert(0, str(Path(__file__).parents[2]))

from spec_core import UsageError, load
from tests.support import attacks
from tests.support.served import Asked, alone, answers, requests

METHODS = ["ngram", "draft-model", "suffix"]
WITHOUT_DRAFT_MODEL = ["ngram", "suffix"]
MODEL = "zoo:pico"
POOL = 200
"""Number of users' requests; each is sent many times."""
BESIDE_MIB = 300
"""MiB of a process that the plan does not count: Python, torch and libraries."""
HEALTH_MS = 250
"""Milliseconds in which 99 of 100 answers about health must come."""


POLL = """
import sys, time, httpx
with httpx.Client(timeout=60, verify=False) as client:
    while True:
        begun = time.perf_counter()
        try:
            client.get(sys.argv[1] + "/health").raise_for_status()
            print(time.perf_counter() - begun, flush=True)
        except httpx.HTTPError as error:
            print(type(error).__name__, flush=True)
        time.sleep(0.05)
"""
"""A process of its own, so that it does not wait for the clients of this one."""


class Campaign:
    """The server and what was seen of it. The texts of its users are computed before it starts."""

    def __init__(self, model: str, tls: bool, minutes: float, seed: int) -> None:
        self.seed = seed
        target, methods = load(model), METHODS if model.startswith("zoo:") else WITHOUT_DRAFT_MODEL
        self.asked: list[Asked] = []
        self.expected: list[tuple[str, str]] = []
        for one in requests(seed, 2 * POOL, methods):
            with suppress(UsageError):  # a prompt that is too long for the model
                self.expected.append(alone(target, one))
                self.asked.append(attrs.evolve(one, wait=0.0))
        self.asked, self.expected = self.asked[:POOL], self.expected[:POOL]
        self.health: list[float] = []
        self.statuses: Counter[str] = Counter()
        self.failed: list[str] = []
        self.texts = 0
        self.peak = 0
        flags = [part for name in methods for part in ("--method", name)]
        command = [sys.executable, "-m", "spec_core", "serve", "-m", model, *flags, "--port", "0"]
        command += certificate_flags() if tls else []
        self.server = subprocess.Popen(
            ["bash", "-c", 'ulimit -n 256; exec "$@"', "bash", *command], stderr=subprocess.PIPE, text=True
        )
        self.log: list[str] = []
        assert self.server.stderr is not None
        for line in self.server.stderr:
            self.log.append(line)
            if match := re.search(r" at (https?://\S+)", line):
                self.url = match[1]
                break
        threading.Thread(target=self._read_log, daemon=True).start()
        self.ends = monotonic() + 60 * minutes
        self.plan = next(int(line.split()[0].replace(",", "")) for line in self.log if line.endswith(" together\n"))

    def _read_log(self) -> None:
        assert self.server.stderr is not None
        self.log.extend(self.server.stderr)

    @property
    def going_on(self) -> bool:
        return monotonic() < self.ends and self.server.poll() is None

    def watch(self) -> None:
        """Ask for health, and measure memory."""
        with subprocess.Popen([sys.executable, "-c", POLL, self.url], stdout=subprocess.PIPE, text=True) as poll:
            assert poll.stdout is not None
            for line in poll.stdout:
                if not self.going_on:
                    break
                if line[0].isdecimal():
                    self.health.append(float(line))
                else:
                    self.statuses[f"health: {line.strip()}"] += 1
                status = Path(f"/proc/{self.server.pid}/status").read_text()
                self.peak = max(self.peak, *(int(kb) >> 10 for kb in re.findall(r"VmRSS:\s+(\d+)", status)))
            poll.kill()

    def behave(self, client: int) -> None:
        """Ask for texts, and compare them with those of a run alone."""
        rng = random.Random(f"{self.seed} {client}")
        while self.going_on:
            at = rng.randrange(len(self.asked))
            try:
                (got,) = answers(self.url, [self.asked[at]], 1)
            except Exception as error:
                self.failed.append(f"client {client}: {type(error).__name__}: {error}"[:300])
                continue
            text, finish = self.expected[at]
            whole = got.finish is not None or self.asked[at].cut is None
            if (got.text, got.finish) != (text, finish) if whole else not text.startswith(got.text):
                self.failed.append(f"{self.asked[at].body} gave {got}, alone {text!r} ({finish})")
            self.texts += 1

    def attack(self, attacker: int) -> None:
        """Send hostile requests, one after the other; leave some of them."""
        rng = random.Random(1_000 * self.seed + attacker)
        with httpx.Client(timeout=120, verify=False) as client:
            while self.going_on:
                name, path, data = hostile_request(rng)
                seconds = rng.choice([120, 120, 0.05])
                try:
                    headers = {"Content-Type": "application/json"}
                    answer = client.post(self.url + path, content=data, headers=headers, timeout=seconds)
                    status = answer.status_code
                    if status >= 500:
                        self.failed.append(f"{name}: {status}")
                    self.statuses[str(status)] += 1
                except httpx.HTTPError as error:
                    self.statuses[type(error).__name__] += 1

    def hold(self, count: int) -> None:
        """Keep connections without a request open."""
        rng = random.Random(self.seed)
        while self.going_on:
            attacks.hold_halves(self.address, count, rng.uniform(1, 20), rng)

    def burst(self, count: int) -> None:
        """Open many connections at once, now and then."""
        rng = random.Random(self.seed + 1)
        while self.going_on:
            attacks.burst(self.address, count)
            sleep(rng.uniform(0, 5))

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.url.partition("://")[2].split(":")
        return host, int(port)

    def result(self) -> dict[str, Any]:
        alive = self.server.poll() is None
        self.server.terminate()
        code = self.server.wait(timeout=120)
        health = sorted(self.health)
        return {
            "alive": alive,
            "exit_code": code,
            "texts": self.texts,
            "failed": self.failed[:20],
            "failures": len(self.failed),
            "answers_to_attackers": dict(self.statuses),
            "health_asked": len(health),
            "health_p50_ms": round(1_000 * health[len(health) // 2], 1),
            "health_p99_ms": round(1_000 * health[int(len(health) * 0.99)], 1),
            "health_max_ms": round(1_000 * health[-1], 1),
            "memory_peak_mib": self.peak,
            "memory_plan_mib": self.plan,
            "log_lines": len(self.log),
        }


def hostile_request(rng: random.Random) -> tuple[str, str, bytes]:
    """(kind, path, body)."""
    kind = rng.choice(["body", "body", "sized", "answer", "pictures", "salt", "salt", "salt"])
    if kind == "sized":
        name = rng.choice(list(attacks.SIZED))
        return name, *attacks.SIZED[name](rng.choice([10_000, 100_000, 1_000_000, 4_190_000]))
    makers = {"body": attacks.BODIES, "answer": attacks.ANSWERS}.get(kind, {})
    single = {"pictures": attacks.pictured_request, "salt": attacks.salted_request}
    name = rng.choice(list(makers)) if makers else kind
    path, body = (makers[name] if makers else single[kind])(rng)
    return name, path, json.dumps(body).encode()


def certificate_flags() -> list[str]:
    """Flags of a server with a certificate of its own, made by openssl."""
    folder = Path(mkdtemp())
    files = [str(folder / name) for name in ("certificate.pem", "key.pem")]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return ["--ssl-cert-file", files[0], "--ssl-key-file", files[1]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", default=MODEL)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--attackers", type=int, default=2)
    parser.add_argument("--halves", type=int, default=150)
    parser.add_argument("--burst", type=int, default=400)
    args = parser.parse_args()
    campaign = Campaign(args.model, args.tls, args.minutes, args.seed)
    jobs = [threading.Thread(target=campaign.watch), threading.Thread(target=campaign.hold, args=[args.halves])]
    jobs += [threading.Thread(target=campaign.behave, args=[i]) for i in range(args.clients)]
    jobs += [threading.Thread(target=campaign.attack, args=[i]) for i in range(args.attackers)]
    jobs += [threading.Thread(target=campaign.burst, args=[args.burst])] if args.burst else []
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    summary = campaign.result()
    print(json.dumps(summary))
    within = summary["memory_peak_mib"] <= summary["memory_plan_mib"] + BESIDE_MIB
    within &= summary["health_p99_ms"] <= HEALTH_MS
    sys.exit(not (summary["alive"] and not summary["failures"] and within))


if __name__ == "__main__":
    main()
