"""No request holds the event loop: every kind of body of the campaign, of any size, and every large answer.

The time is that of the loop's thread on a processor: a busy machine does not change it much.
"""

from __future__ import annotations

import random

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from tests.support import attacks
from tests.support.loop_monitor import loop_monitor
from tests.support.served import serving, slowly

SECONDS = {1_000_000: 0.1, 4_190_000: 0.25}
"""Longest time in which one callback may hold the loop, by the bytes of a body."""
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def watched_server():
    """A server, and the monitor of its loop."""
    with (
        serving("zoo:pico", ["ngram", "prediction"], max_sequences=4) as server,
        loop_monitor(server.thread) as longest,
    ):
        server.post("/v1/completions", {"prompt": "a", "max_tokens": 1})  # what is made at the first request
        yield server, longest


def send_within(watched_server, path, data, limit):
    """The status of an answer, after the check that nothing held the loop for longer than the limit."""
    server, longest = watched_server
    longest.reset()
    answer = server.client.post(server.url + path, content=data, headers=JSON, timeout=120)
    assert answer.status_code < 500, answer.text
    assert longest.seconds < limit, longest
    return answer.status_code


TOKENIZED = ("pieces", "a text to tokenize")
"""Kinds of bodies whose text is tokenized as a whole, which takes a thread seconds."""
CASES = [(name, size) for name in attacks.SIZED for size in SECONDS if size <= 1_000_000 or name not in TOKENIZED]


@pytest.mark.repeats(27)
@pytest.mark.parametrize(("name", "size"), CASES)
def test_a_body_of_any_kind_does_not_hold_the_loop(watched_server, name, size):
    path, data = attacks.SIZED[name](size)
    assert len(data) <= size

    send_within(watched_server, path, data, SECONDS[size])


@pytest.mark.repeats(8)
@pytest.mark.parametrize("name", attacks.BODIES)
def test_a_body_of_the_campaign_does_not_hold_the_loop(watched_server, name):
    path, body = attacks.BODIES[name](random.Random(1))
    server, longest = watched_server
    longest.reset()
    answer = server.post(path, body, timeout=120)

    assert answer.status_code < 500 and longest.seconds < 0.25, longest


@pytest.mark.repeats(4)
@pytest.mark.parametrize("name", [name for name in attacks.ANSWERS if not name.startswith("calls")])
def test_a_large_answer_does_not_hold_the_loop(watched_server, name):
    path, body = attacks.ANSWERS[name](random.Random(1))
    server, longest = watched_server
    for stream in (False, True):
        longest.reset()
        answer = server.post(path, {**body, "stream": stream}, timeout=120)
        assert answer.status_code < 500 and longest.seconds < 0.1, longest


@pytest.mark.parametrize("path", ["/openapi.json", "/v1/models", "/props", "/slots", "/metrics", "/", "/health"])
def test_a_page_does_not_hold_the_loop(watched_server, path):
    server, longest = watched_server
    longest.reset()

    assert server.get(path).status_code == 200 and longest.seconds < 0.1, longest


def test_slots_with_large_requests_do_not_hold_the_loop():
    body = {"prompt": "a", "max_tokens": 1_900, "stream": True, "ignore_eos": True, "speculative": {"n_max": 0}}
    body["logit_bias"] = dict.fromkeys(map(str, range(3_000)), 0)
    with serving("zoo:pico") as server, loop_monitor(server.thread) as longest, slowly(server):
        running_request = server.client.stream("POST", f"{server.url}/v1/completions", json=body)
        with running_request as running:
            lines = running.iter_lines()  # kept: its end would end the request
            next(line for line in lines if line)
            longest.reset()
            slots = server.get("/slots").json()

    listed = [len(slot["params"]["logit_bias"]) for slot in slots if slot["is_processing"]]
    assert max(listed, default=0) > 2_000
    assert longest.seconds < 0.1, longest


# how large an answer may be


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/completions", {"prompt": "a", "max_tokens": 1_000, "logprobs": 20, "n": 16}, "logprobs"),
        ("/v1/completions", {"prompt": ["a"] * 16, "max_tokens": 1_000, "logprobs": 20}, "logprobs"),
        ("/completion", {"prompt": ["a"] * 16, "max_tokens": 1_000, "n_probs": 20}, "n_probs"),
        ("/v1/completions", {"prompt": [5] * 2_000, "max_tokens": 1, "logprobs": 20, "n": 16, "echo": True}, "echo"),
        (
            "/v1/chat/completions",
            {"messages": [attacks.MESSAGE], "max_tokens": 1_000, "logprobs": True, "top_logprobs": 20, "n": 16},
            "top_logprobs",
        ),
    ],
)
def test_too_many_log_probabilities_are_refused_by_the_field(watched_server, path, body, field):
    answer = watched_server[0].post(path, body)

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    assert "log-probabilities" in answer.json()["error"]["message"]


def test_a_text_whose_length_was_left_out_ends_where_its_log_probabilities_do():
    body = {"messages": [attacks.MESSAGE], "logprobs": True, "top_logprobs": 3, "n": 2, "ignore_eos": True}
    with serving("zoo:pico", limits={"logprobs_total": 80}) as server:
        choices = server.post("/v1/chat/completions", body).json()["choices"]

    assert [len(choice["logprobs"]["content"]) for choice in choices] == [10, 10]
    assert {choice["finish_reason"] for choice in choices} == {"length"}


def test_a_long_answer_is_that_of_its_parts(watched_server):
    """Written in pieces, whole and as events."""
    server, _ = watched_server
    body = {"prompt": "abc", "max_tokens": 900, "logprobs": 20, "ignore_eos": True, "temperature": 0, "echo": True}
    answer = server.post("/v1/completions", body)
    whole = answer.json()["choices"][0]
    events = [e["choices"][0] for e in server.events("/v1/completions", body) if e != "[DONE]" and e["choices"]]

    assert int(answer.headers["content-length"]) == len(answer.content) > 1 << 18
    assert "".join(event["text"] for event in events) == whole["text"]
    assert [t for e in events if e["logprobs"] for t in e["logprobs"]["tokens"]] == whole["logprobs"]["tokens"]


# what is refused, and how


@pytest.mark.parametrize("bias", [-1e308, -3.5e38, False])
@pytest.mark.parametrize("rest", [0, 1])
def test_a_ban_of_every_token_is_refused_by_the_field(watched_server, bias, rest):
    server, _ = watched_server
    eog = set(server.engine.run.target.info.eog)
    tokens = [t for t in range(3_072) if not (rest and t in eog)]
    body = {"prompt": "a", "max_tokens": 3, "ignore_eos": bool(rest)}
    answers = [server.post("/completion", {**body, "logit_bias": [[t, bias] for t in tokens]})]
    if bias is not False:
        answers.append(server.post("/v1/completions", {**body, "logit_bias": dict.fromkeys(tokens, bias)}))

    for answer in answers:
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "logit_bias"), answer.text


@pytest.mark.parametrize("bias", [1e308, 3.5e38])
def test_a_bias_beyond_the_range_of_a_logit_is_refused(watched_server, bias):
    answer = watched_server[0].post("/v1/completions", {"prompt": "a", "max_tokens": 3, "logit_bias": {"5": bias}})

    assert answer.status_code == 400 and "logit bias" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/completions", {"prompt": "a", "max_tokens": 1, "n": 3}, "n"),
        ("/v1/completions", {"prompt": ["a", "b", "c"], "max_tokens": 1}, "n"),
        ("/completion", {"prompt": ["a", "b", "c"], "max_tokens": 1}, "prompt"),
        ("/v1/chat/completions", {"messages": [attacks.MESSAGE], "max_tokens": 1, "n": 3}, "n"),
    ],
)
def test_what_can_never_fit_is_not_asked_to_come_again(path, body, field):
    with serving("zoo:pico", limits={"queue": 1}, max_sequences=1) as server:
        answer = server.post(path, body)

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    assert "retry-after" not in answer.headers


@pytest.mark.parametrize("count", [10, 74, 128])
def test_a_prompt_with_ends_of_texts_takes_one_place(watched_server, count):
    server, _ = watched_server
    end = min(server.engine.run.target.info.eog)
    prompt = [5, end] * count
    answer = server.post(
        "/v1/completions", {"prompt": prompt, "max_tokens": 1, "echo": True, "logprobs": 1}, timeout=120
    )

    assert answer.status_code == 200, answer.text
    assert len(answer.json()["choices"][0]["logprobs"]["tokens"]) >= len(prompt)


def test_a_prompt_with_too_many_ends_of_texts_is_refused_by_the_field(watched_server):
    server, _ = watched_server
    end = min(server.engine.run.target.info.eog)
    answer = server.post("/v1/completions", {"prompt": [5, end] * 300, "max_tokens": 1, "echo": True, "logprobs": 1})

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "echo")


@pytest.mark.parametrize("form", ["text", "list"])
def test_names_of_methods_have_a_count(watched_server, form):
    names = ["ngram"] * 65
    body = {"prompt": "a", "max_tokens": 1, "speculative": {"method": ",".join(names) if form == "text" else names}}
    answer = watched_server[0].post("/v1/completions", body)

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "speculative.method")


def test_texts_with_a_bias_have_a_count(watched_server):
    body = {"prompt": "a", "max_tokens": 1, "logit_bias": [[f"text {i}", 1] for i in range(257)]}
    answer = watched_server[0].post("/completion", body)

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "logit_bias")
