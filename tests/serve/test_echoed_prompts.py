"""``echo`` with ``logprobs``: log-probabilities of a prompt, as tools for evaluations ask for them."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_core import Run, load
from tests.support.served import serving

TEXT = "def add(a, b):\n    return a"
BODY = {"prompt": TEXT, "max_tokens": 4, "temperature": 0, "logprobs": 2, "echo": True}


@pytest.fixture(scope="module", params=[[], ["forced", "ngram"]], ids=["plain", "forced"])
def server(request):
    with serving("zoo:pico", request.param) as server:
        yield server


def expected_rows(ids):
    """The whole row that chose each token after the first, one prompt at a time."""
    target, rows = load("zoo:pico"), []
    for at in range(1, len(ids)):
        with Run(target) as run:
            ((row,),) = [run.generate(ids[:at], max_tokens=1, logprobs=target.info.vocab).result.logprobs]
        rows.append(dict(row.top))
    return rows


def choice(server, **more):
    return server.post("/v1/completions", {**BODY, **more}).json()["choices"][0]


def test_a_prompt_has_the_log_probabilities_of_the_models_own_rows(server):
    ids = load("zoo:pico").tokenizer.encode(TEXT)
    echoed, rows = choice(server), expected_rows(ids)
    logprobs = echoed["logprobs"]

    assert echoed["text"].startswith(TEXT) and len(logprobs["tokens"]) == len(ids) + 4
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert logprobs["token_logprobs"][1 : len(ids)] == pytest.approx(
        [row[token] for row, token in zip(rows, ids[1:], strict=True)]
    )
    for row, top in zip(rows, logprobs["top_logprobs"][1 : len(ids)], strict=True):
        assert max(top.values()) == pytest.approx(max(row.values()))
    assert "".join(logprobs["tokens"]) == echoed["text"]
    places = zip(logprobs["text_offset"], logprobs["tokens"], strict=True)
    assert all(echoed["text"][at:].startswith(token) for at, token in places)


def test_the_text_after_the_prompt_is_that_without_echo(server):
    plain = server.post("/v1/completions", {**BODY, "echo": False, "temperature": 1.0, "seed": 5}).json()["choices"][0]
    echoed = choice(server, temperature=1.0, seed=5)

    assert echoed["text"] == TEXT + plain["text"]
    assert echoed["logprobs"]["token_logprobs"][-4:] == pytest.approx(plain["logprobs"]["token_logprobs"])


def test_nothing_is_generated_where_no_token_is_asked_for(server):
    echoed = choice(server, max_tokens=0)

    assert echoed["text"] == TEXT and len(echoed["logprobs"]["tokens"]) == len(load("zoo:pico").tokenizer.encode(TEXT))


def test_several_prompts_of_ids_and_without_log_probabilities(server):
    ids = load("zoo:pico").tokenizer.encode(TEXT)
    choices = server.post("/v1/completions", {**BODY, "prompt": [ids, ids[:3]]}).json()["choices"]
    bare = choice(server, logprobs=None)

    assert choices[0]["text"] == choice(server)["text"] and len(choices[1]["logprobs"]["tokens"]) == 7
    assert bare["text"] == choices[0]["text"] and bare["logprobs"] is None


def test_a_token_that_ends_a_text_may_be_in_a_prompt(server):
    target = load("zoo:pico")
    ids = [*target.tokenizer.encode("x = 1"), min(target.info.eog), *target.tokenizer.encode("y")]
    echoed, rows = choice(server, prompt=ids), expected_rows(ids)

    assert echoed["logprobs"]["token_logprobs"][1 : len(ids)] == pytest.approx(
        [row[token] for row, token in zip(rows, ids[1:], strict=True)]
    )


def test_a_stream_begins_with_the_prompt(server):
    chunks = [event["choices"][0] for event in server.events("/v1/completions", BODY)[:-1]]
    whole = choice(server)

    assert "".join(chunk["text"] for chunk in chunks) == whole["text"]
    logprobs = [chunk["logprobs"] for chunk in chunks if chunk["logprobs"]]
    assert [at for part in logprobs for at in part["text_offset"]] == whole["logprobs"]["text_offset"]
