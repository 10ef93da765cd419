"""Log-probabilities of a completion: every token has a name of its own and its place in the text."""

from __future__ import annotations

import attrs
import pytest
from spec_serve import token_logprobs

pytest.importorskip("fastapi", reason="needs the extra serve")


from spec_core import load
from spec_core.commands import Logprob
from tests.support.scripted import script_target
from tests.support.served import serving

SCRIPT = "one two thr\u00e9e four\u4e2dfive six"
BODY = {"prompt": "x", "max_tokens": 40, "logprobs": 2}


@attrs.frozen
class Bytes:
    """A tokenizer that is asked for the bytes of tokens alone."""

    of: list[bytes]

    def token_bytes(self, token):
        return self.of[token]


def test_tokens_with_equal_texts_and_the_drawn_one_keep_their_own_entries():
    words = Bytes([b"a", b"a", b"\xe4", b"\xe5", b"", b"", b"b"])
    name, top = token_logprobs.name_logprobs(6, Logprob(-7.0, tuple((i, -1.0 - i) for i in range(6))), words)

    assert name == "b"
    assert top == {
        "a": -1.0, "token_id:1": -2.0, "bytes:\\xe4": -3.0, "bytes:\\xe5": -4.0, "token_id:4": -5.0,
        "token_id:5": -6.0, "b": -7.0,
    }  # fmt: skip
    assert token_logprobs.name_logprobs(1, Logprob(-2.0, ((0, -1.0), (1, -2.0))), words)[0] == "token_id:1"


@pytest.mark.parametrize("best", [0, 1, 3])
def test_the_drawn_token_is_among_the_best(server, best):
    body = {"prompt": "def f(", "max_tokens": 30, "temperature": 1.5, "seed": 1, "logprobs": best}
    logprobs = server.post("/v1/completions", body).json()["choices"][0]["logprobs"]

    for token, value, top in zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True):
        assert top[token] == value and best <= len(top) <= best + 1


@pytest.fixture(scope="module")
def speaking():
    with serving(script_target(SCRIPT)) as server:
        yield server


def expected_offsets():
    words = load("zoo:pico").tokenizer
    stream, at, offsets = words.stream(), 0, []
    for token in words.encode(SCRIPT, bos=False):
        offsets.append(at)
        at += len(stream.put(token))
    return offsets


@pytest.mark.parametrize("stop", [None, ["fourteen", "five sex", "\u4e2df_"]])
def test_offsets_are_places_in_the_text_also_while_a_stop_text_is_possible(speaking, stop):
    body = BODY | ({"stop": stop} if stop else {})
    whole = speaking.post("/v1/completions", body).json()["choices"][0]
    chunks = [e["choices"][0] for e in speaking.events("/v1/completions", body)[:-1]]
    streamed = [offset for chunk in chunks if chunk["logprobs"] for offset in chunk["logprobs"]["text_offset"]]

    assert whole["text"] == SCRIPT == "".join(chunk["text"] for chunk in chunks)
    assert whole["logprobs"]["text_offset"] == expected_offsets() == streamed
