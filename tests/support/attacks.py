"""Requests of attackers, for campaigns: bodies that cost much, and connections without a request."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import sleep
from typing import Any

TEXT = {"prompt": "a", "max_tokens": 1}
MESSAGE = {"role": "user", "content": "a"}
Body = Mapping[str, Any]


def _chain(link: Callable[[Body], Body], count: int) -> Body:
    definitions = {f"d{i}": link({"$ref": f"#/$defs/d{i + 1}"}) for i in range(count)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{count}": {"type": "integer"}}}


def _rules(count: int) -> str:
    return "\n".join(["start: r0", *(f"r{i}: r{i + 1}" for i in range(count)), f'r{count}: "a"'])


BODIES: dict[str, Callable[[random.Random], tuple[str, Body]]] = {
    "chain of properties": lambda rng: (
        "/v1/completions",
        {**TEXT, "guided_json": _chain(lambda r: {"properties": {"a": r}}, rng.randint(700, 2_500))},
    ),
    "chain of references": lambda rng: ("/completion", {**TEXT, "json_schema": _chain(lambda r: r, 6_000)}),
    "chain of rules": lambda rng: ("/v1/completions", {**TEXT, "guided_grammar": _rules(rng.randint(1_500, 20_000))}),
    "multiple": lambda rng: (
        "/v1/completions",
        {**TEXT, "guided_json": {"type": "integer", "multipleOf": rng.randint(10**5, 10**9)}},
    ),
    "optional letters": lambda rng: ("/v1/completions", {**TEXT, "guided_regex": "a?" * rng.randint(900, 40_000)}),
    "ambiguous": lambda rng: (
        "/v1/completions",
        {**TEXT, "max_tokens": 60, "guided_grammar": 'start: e\ne: e e | e e e | "a" | "b" | " "'},
    ),
    "many alternatives": lambda rng: (
        "/v1/completions",
        {
            **TEXT,
            "max_tokens": 20,
            "guided_grammar": "start: e\ne: e e | " + " | ".join(f'"{i}" e' for i in range(1_500)),
        },
    ),
    "long text": lambda rng: ("/v1/completions", {**TEXT, "prompt": "a" * rng.randint(10**5, 4_000_000)}),
    "long tokenize": lambda rng: ("/tokenize", {"content": rng.choice([" ", "a", "ab "]) * 1_000_000}),
    "pieces": lambda rng: ("/tokenize", {"content": "a b c " * 100_000, "with_pieces": True}),
    "ids": lambda rng: ("/v1/completions", {**TEXT, "prompt": [1] * 1_300_000}),
    "lists": lambda rng: ("/v1/completions", {**TEXT, "prompt": [[1]] * 800_000}),
    "mixed": lambda rng: ("/v1/completions", {**TEXT, "prompt": [*[1] * 900_000, "a"]}),
    "messages": lambda rng: ("/v1/chat/completions", {"messages": [MESSAGE] * rng.randint(5_000, 100_000)}),
    "parts": lambda rng: (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 100_000}]},
    ),
    "tools": lambda rng: ("/v1/chat/completions", {"messages": [MESSAGE], "tools": [{"type": "function"}] * 60_000}),
    "biases": lambda rng: ("/completion", {**TEXT, "logit_bias": [[f"text {i}", 1] for i in range(100_000)]}),
    "fields": lambda rng: ("/v1/completions", {f"f{i}": 1 for i in range(250_000)}),
    "nested": lambda rng: ("/v1/completions", {**TEXT, "json_schema": json.loads('{"a":' * 90 + "1" + "}" * 90)}),
    "banned": lambda rng: ("/completion", {**TEXT, "logit_bias": [[i, False] for i in range(3_072)]}),
    "long salt": lambda rng: ("/v1/completions", {**TEXT, "cache_salt": rng.choice("abc") * 3_000_000}),
    "long stop": lambda rng: ("/v1/completions", {**TEXT, "stop": ["a" * 1_000] * 16}),
    "wrong types": lambda rng: (
        "/v1/chat/completions",
        {"messages": rng.choice([1, "a", None, {}, [1], [[]], [{"role": 1}]]), "n": rng.choice([0, -1, 1 << 70, 1.5])},
    ),
}
"""{name: (path, body) from random numbers}. Every one is answered with 200 or a 4xx status."""
HALVES = (
    b"",
    b"GET / HT",
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n",
    b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{",
)
"""Beginnings of requests."""


def salted_request(rng: random.Random) -> tuple[str, Body]:
    """One of many short requests that share nothing."""
    return "/v1/completions", {
        "prompt": [5, 6, 7],
        "max_tokens": 1,
        "cache_salt": f"{rng.random()}" * rng.choice([1, 9]),
    }


def hold_halves(address: tuple[str, int], count: int, seconds: float, rng: random.Random) -> None:
    """Open connections with beginnings of requests, and keep them open."""
    held = []
    for _ in range(count):
        with suppress(OSError):
            held.append(socket.create_connection(address, timeout=2))
            held[-1].sendall(rng.choice(HALVES))
    sleep(seconds)
    for connection in held:
        connection.close()
