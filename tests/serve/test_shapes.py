"""Bodies whose work is in proportion to their number of parts, or to the length of a text, are refused by that."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_serve import shape
from spec_serve.lengths import TOKEN_BYTES_MIN, token_bytes_max
from starlette.exceptions import HTTPException

from spec_core import load
from tests.support.served import serving

MESSAGE = {"role": "user", "content": "a"}
TEXT = {"prompt": "a", "max_tokens": 1}
MANY = shape.ENTRIES_MAX + 1


@pytest.fixture(scope="module")
def server():
    with serving("zoo:pico", ["ngram"]) as server:
        yield server


BODIES = {
    "messages": ("/v1/chat/completions", {"messages": [MESSAGE] * MANY}, "messages has 16385 entries"),
    "parts": (
        "/v1/chat/completions",
        {"messages": [{**MESSAGE, "content": [{"type": "text", "text": "a"}] * 6_000}] * 4},
        "more than 20000 objects and lists",
    ),
    "tools": ("/v1/chat/completions", {"messages": [MESSAGE], "tools": [{}] * MANY}, "tools has 16385 entries"),
    "items": ("/v1/responses", {"input": [MESSAGE] * MANY}, "input has 16385 entries"),
    "lists": ("/v1/completions", {"prompt": [[1]] * 20_001}, "more than 20000 objects and lists"),
    "mixed": ("/v1/completions", {"prompt": [*[1] * 100_000, "a"]}, "prompt.0: Input should be a valid"),
    "fields": ("/v1/completions", {f"f{i}": 1 for i in range(100_001)}, "more than 100000 keys"),
    "long field": ("/v1/completions", {**TEXT, "x" * 5_000: 1}, "a key of more than 4096 characters"),
    "unknown": ("/v1/completions", {**TEXT, "x" * 4_000: 1}, "unknown field"),
    "stops": ("/v1/completions", {**TEXT, "stop": ["a"] * MANY}, "stop has 16385 entries"),
    "methods": ("/v1/completions", {**TEXT, "speculative": {"method": ["a"] * MANY}}, "method has 16385 entries"),
    "method": ("/v1/completions", {**TEXT, "speculative": {"method": "a" * 1_000_000}}, "this server has ngram"),
    "long bias": ("/completion", {"prompt": "a", "logit_bias": [["b" * 257, 1]]}, "more than 256 characters"),
    "mixed texts": ("/completion", {"prompt": ["a", 1] * 2_000}, "the prompt has 4000 tokens"),
    "text": ("/v1/completions", {"prompt": "a" * 600_000}, "at least 2343 tokens"),
    "llama text": ("/completion", {"prompt": "a" * 600_000}, "at least 2343 tokens"),
    "infill": ("/infill", {"input_prefix": "a" * 600_000, "input_suffix": ""}, "at least 2343 tokens"),
    "chat text": (
        "/v1/chat/completions",
        {"messages": [{**MESSAGE, "content": "a" * 600_000}]},
        "at least 2343 tokens",
    ),
    "ids": ("/v1/completions", {"prompt": [1] * 3_000}, "the prompt has 3000 tokens"),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_of_too_many_parts_is_refused(server, name):
    path, body, part = BODIES[name]
    answer = server.post(path, body)

    assert answer.status_code == 400 and part in answer.json()["error"]["message"]
    assert len(answer.content) < 1_000


def test_a_text_that_may_fit_is_tokenized_before_it_is_refused(server):
    """Its length alone does not show that it has too many tokens."""
    answer = server.post("/v1/completions", {"prompt": "a b " * 20_000})

    assert "the prompt has 4" in answer.json()["error"]["message"]


def test_long_lists_of_token_ids_are_no_parts(server):
    tokens = [5] * 100_000

    assert server.post("/detokenize", {"tokens": tokens}).json()["content"] == "&" * 100_000


def test_a_long_text_is_tokenized_as_its_parts_are(server):
    """It takes the call that lets other threads run; both give the same ids."""
    text = "a word, " * 5_000
    ids = server.post("/tokenize", {"content": text}).json()["tokens"]
    pieces = server.post("/tokenize", {"content": text, "with_pieces": True}).json()["tokens"]

    assert ids == load("zoo:pico").tokenizer.backend.encode(text, add_special_tokens=False).ids
    assert [piece["id"] for piece in pieces] == ids and "".join(piece["piece"] for piece in pieces) == text


def test_keys_are_counted_before_the_body_is_read(server):
    data = b'{"prompt": "a"' + b'"x":1,' * 100_001  # not JSON, which is not looked at

    json_type = {"Content-Type": "application/json"}
    answer = server.client.post(f"{server.url}/v1/completions", content=data, headers=json_type)

    assert "more than 100000 keys" in answer.json()["error"]["message"]


def test_json_in_a_text_has_no_keys(server):
    assert server.post("/tokenize", {"content": '{"a":0}' * 110_000}).status_code == 200


@pytest.mark.parametrize(
    "body", [[[]] * 20_001, {"a": [{}] * 20_001}, [{"a": [{}, {}]}] * 5_001], ids=["flat", "in", "deep"]
)
def test_parts_are_counted_at_every_depth(body):
    with pytest.raises(HTTPException):
        shape.check_shape(body)


def test_the_longest_token_is_at_least_that_of_control_tokens():
    assert token_bytes_max(load("zoo:pico").tokenizer) == TOKEN_BYTES_MIN
