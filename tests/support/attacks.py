"""Requests of attackers, for campaigns: bodies that cost much, and connections without a request."""

from __future__ import annotations

import base64
import json
import random
import socket
import struct
import zlib
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
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def _calls(opening: str) -> Body:
    """A chat whose text is an opening of a call, many times."""
    regex = "(" + "".join(f"\\x{{{ord(c):x}}}" for c in opening) + "){90}"
    return {"messages": [MESSAGE], "tools": [TOOL], "guided_regex": regex, "max_tokens": 900, "stream": False}


LONG = {"prompt": "abc", "ignore_eos": True, "temperature": 1.0}
MANY = {**LONG, "logprobs": 20, "n": 16}
ANSWERS: dict[str, Callable[[random.Random], tuple[str, Body]]] = {
    "too many log-probabilities": lambda rng: (
        "/v1/completions",
        {**MANY, "max_tokens": 1_000},
    ),
    "log-probabilities": lambda rng: ("/v1/completions", {**MANY, "max_tokens": 300}),
    "log-probabilities of a chat": lambda rng: (
        "/v1/chat/completions",
        {"messages": [MESSAGE], "max_tokens": 190, "logprobs": True, "top_logprobs": 20, "n": 16, "ignore_eos": True},
    ),
    "probabilities": lambda rng: (
        "/completion",
        {**LONG, "max_tokens": 1_500, "n_probs": 20, "stream": rng.random() < 0.5},
    ),
    "log-probabilities of a response": lambda rng: (
        "/v1/responses",
        {
            "input": "a",
            "max_output_tokens": 1_500,
            "top_logprobs": 20,
            "ignore_eos": True,
            "stream": rng.random() < 0.5,
        },
    ),
    "echo": lambda rng: (
        "/v1/completions",
        {"prompt": [5, 6] * 500, "max_tokens": 1, "echo": True, "logprobs": 5, "n": 8, "stream": rng.random() < 0.5},
    ),
    "echo with ends": lambda rng: (
        "/v1/completions",
        {"prompt": [5, 0] * rng.randint(20, 300), "max_tokens": 1, "echo": True, "logprobs": 1},
    ),
    "echoed text": lambda rng: ("/v1/completions", {"prompt": "x" * 3_000, "max_tokens": 1, "echo": True, "n": 16}),
    "traces": lambda rng: ("/v1/completions", {**LONG, "max_tokens": 1_500, "speculative": {"trace": True}}),
    "prompts in an answer": lambda rng: (
        "/completion",
        {"prompt": ["a" * 2_000] * 16, "max_tokens": 1, "logit_bias": [[i, 1] for i in range(3_000)]},
    ),
    "tools in an answer": lambda rng: (
        "/v1/responses",
        {"input": "a", "max_output_tokens": 1, "metadata": {str(i): "b" * 200 for i in range(16_000)}, "stream": True},
    ),
    "calls of Mistral": lambda rng: ("/v1/chat/completions", _calls("[TOOL_CALLS][")),
    "calls of Hermes": lambda rng: ("/v1/chat/completions", _calls("<tool_call>{")),
}
"""Requests with large answers, or with answers that are read as calls."""


def _repeat(path: str, head: str, unit: str, tail: str) -> Callable[[int], tuple[str, bytes]]:
    """A body that has as many of a unit as fit in a number of bytes."""
    return lambda size: (path, (head + unit * ((size - len(head) - len(tail)) // len(unit)) + tail).encode())


COMPLETION, CHAT = '{"max_tokens":1,"prompt":', '{"max_tokens":1,"messages":[{"role":"user","content":"a"}],'
SIZED: dict[str, Callable[[int], tuple[str, bytes]]] = {
    "numbers": _repeat("/v1/completions", f"{COMPLETION}[1", ",1", "]}"),
    "fractions": _repeat("/v1/completions", f"{COMPLETION}[1.5", ",1.5", "]}"),
    "exponents": _repeat("/v1/completions", f"{COMPLETION}[1", ",1e9", "]}"),
    "constants": _repeat("/v1/completions", f"{COMPLETION}[null", ",null", "]}"),
    "one number and lists": _repeat("/v1/completions", f"{COMPLETION}[1", ",[1]", "]}"),
    "empty lists": _repeat("/v1/completions", f"{COMPLETION}[[]", ",[]", "]}"),
    "empty objects": _repeat("/v1/completions", f"{COMPLETION}[{{}}", ",{}", "]}"),
    "texts": _repeat("/v1/completions", f'{COMPLETION}["a"', ',"a"', "]}"),
    "empty texts": _repeat("/v1/completions", f'{COMPLETION}[""', ',""', "]}"),
    "numbers for llama-server": _repeat("/completion", f"{COMPLETION}[1", ",1", "]}"),
    "numbers and texts": _repeat("/completion", f"{COMPLETION}[1", ',1,"a"', "]}"),
    "numbers of 5 digits": _repeat("/completion", f"{COMPLETION}[1", ",10000", "]}"),
    "lists for llama-server": _repeat("/completion", f"{COMPLETION}[[1]", ",[1]", "]}"),
    "letters": _repeat("/v1/completions", f'{COMPLETION}"', "a ", '"}'),
    "escapes": _repeat("/v1/completions", f'{COMPLETION}"', "\\u00e9", '"}'),
    "quotes": _repeat("/v1/completions", f'{COMPLETION}"', '\\"', '"}'),
    "brackets in a text": _repeat("/v1/completions", f'{COMPLETION}"', "[{", '"}'),
    "brackets in quotes": _repeat("/v1/completions", f'{COMPLETION}"', '\\"[{,', '"}'),
    "damaged": _repeat("/v1/completions", f"{COMPLETION}[1", ",1", ",}"),
    "methods as a text": _repeat("/v1/completions", f'{COMPLETION}"a","speculative":{{"method":"', "ngram,", '"}}'),
    "fields as a text": _repeat("/completion", f'{COMPLETION}"a","response_fields":["', "a/", '"]}'),
    "choices": _repeat("/v1/completions", f'{COMPLETION}"a","guided_choice":["a"', ',"b"', "]}"),
    "a schema as a text": _repeat("/v1/completions", f'{COMPLETION}"a","json_schema":"[1', ",[]", ']"}'),
    "a schema": _repeat("/v1/completions", f'{COMPLETION}"a","json_schema":{{"enum":[1', ",1", "]}}"),
    "tags as a text": _repeat(
        "/v1/completions", f'{COMPLETION}"a","structured_outputs":{{"structural_tag":"[1', ",[]", ']"}}'
    ),
    "biases": _repeat("/completion", f'{COMPLETION}"a","logit_bias":[[1,1]', ",[2,1]", "]}"),
    "biased texts": _repeat("/completion", f'{COMPLETION}"a","logit_bias":[["a",1]', ',["b",1]', "]}"),
    "variables": _repeat("/v1/chat/completions", f'{CHAT}"chat_template_kwargs":{{"a":[1', ",1", "]}}"),
    "unknown": _repeat("/v1/chat/completions", f'{CHAT}"x":[1', ",1", "]}"),
    "messages": _repeat("/v1/chat/completions", f"{CHAT[:-2]}", ',{"role":"user","content":"a"}', "]}"),
    "turns": _repeat("/v1/messages", f"{CHAT[:-2]}", ',{"role":"user","content":"a"}', "]}"),
    "items": _repeat(
        "/v1/responses", '{"input":[{"role":"user","content":"a"}', ',{"role":"user","content":"a"}', "]}"
    ),
    "parts": _repeat(
        "/v1/chat/completions",
        '{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"a"}',
        ',{"type":"text","text":"a"}',
        "]}]}",
    ),
    "arguments": _repeat(
        "/v1/chat/completions",
        f'{CHAT[:-2]},{{"role":"assistant","content":"","tool_calls":[{{"id":"a","type":"function","function":'
        '{"name":"f","arguments":"[1',
        ",[]",
        ']"}}]},{"role":"user","content":"a"}]}',
    ),
    "ids to detokenize": _repeat("/detokenize", '{"tokens":[5', ",5", "]}"),
    "a text to tokenize": _repeat("/tokenize", '{"content":"', "a b ", '"}'),
    "pieces": _repeat("/tokenize", '{"with_pieces":true,"content":"', "a b ", '"}'),
    "files to fill in": _repeat(
        "/infill", '{"input_prefix":"a","input_suffix":"b","input_extra":[{"text":"a"}', ',{"text":"a"}', "]}"
    ),
    "one number": _repeat("/v1/completions", COMPLETION, "1", "}"),
    "one name again": _repeat("/v1/completions", '{"prompt":"a"', ',"prompt":"a"', "}"),
    "open lists": _repeat("/v1/completions", "", "[", ""),
}
"""{name: (path, body) of a number of bytes}."""


def picture_file(width: int, height: int) -> bytes:
    """A black PNG of 1 bit a pixel: few bytes, many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(bytes(1 + (width + 7) // 8) * height, 9)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def pictured_request(rng: random.Random) -> tuple[str, Body]:
    """Pictures of many pixels, or of odd shapes."""
    shapes = [
        (8_192, 4_096),
        (4_096, 4_096),
        (2_048, 1_024),
        (33_554_432, 1),
        (1, 100_000),
        (2_000, 2),
        (64, 64),
        (1, 1),
    ]
    width, height = rng.choice(shapes)
    urls = [
        f"data:image/png;base64,{base64.b64encode(picture_file(width, max(1, height - i))).decode()}"
        for i in range(rng.choice([1, 2, 8, 64]))
    ]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return "/v1/chat/completions", {
        "messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "a"}]}],
        "max_tokens": 1,
    }


HALVES = (
    b"",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
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


def burst(address: tuple[str, int], count: int) -> None:
    """Open connections without a byte, all at once, and leave after a moment."""
    held = []
    for _ in range(count):
        with suppress(OSError):
            held.append(socket.create_connection(address, timeout=2))
    sleep(0.25)
    for connection in held:
        connection.close()


def hold_halves(address: tuple[str, int], count: int, seconds: float, rng: random.Random) -> None:
    """Open connections with beginnings of requests, and keep them open."""
    held = []
    for _ in range(count):
        with suppress(OSError):
            held.append(socket.create_connection(address, timeout=2))
            held[-1].sendall(rng.choice(HALVES))  # the second is the beginning of a handshake of TLS
    sleep(seconds)
    for connection in held:
        connection.close()
