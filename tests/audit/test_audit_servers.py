"""Servers that misbehave: a plain error, within bounds."""

from __future__ import annotations

import json
from itertools import repeat
from time import monotonic

import httpx
import pytest
from spec_commands.http_client import TRIES, check_url
from spec_commands.servers.answers import read_answer
from spec_commands.servers.counters import parse_counters

from spec_core.errors import UsageError
from tests.support.audits import client_of
from tests.support.stand_in import listen

PATH = "/v1/completions"


def reply(status=200, kind="application/json", parts=(b"{}",), **headers):
    """A handler that always answers the same."""
    names = {"content-type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return lambda request: httpx.Response(status, headers=names, content=iter(parts))


STREAM = "text/event-stream"
HOSTILE = {
    "endless body": (reply(parts=repeat(b"x" * 65536)), "more than 16 MiB"),
    "endless stream": (reply(kind=STREAM, parts=repeat(b'data: {"choices": []}\n\n' * 100)), "more than 100000 events"),
    "endless line": (reply(kind=STREAM, parts=repeat(b"data: " + b"x" * 65536)), "more than 16 MiB"),
    "stream without JSON": (reply(kind=STREAM, parts=[b"data: hello\n\n"]), "no JSON"),
    "page": (reply(kind="text/html", parts=[b"<html>"]), "without JSON"),
    "deep JSON": (reply(parts=[b"[" * 100_000]), "without JSON"),
    "half JSON": (reply(parts=[b'{"choices": [']), "without JSON"),
    "redirect": (reply(302, location="http://elsewhere/"), "redirects to 'http://elsewhere/'"),
    "429 for ever": (reply(429, retry_after="999999999"), f"answered 429 to {TRIES} tries"),
    "503 for ever": (reply(503, retry_after="Mon, 01 Jan 2035 00:00:00 GMT"), "answered 503"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_server_gets_a_plain_error(case):
    handle, words = HOSTILE[case]

    with pytest.raises(UsageError, match=words):
        client_of(handle).post(PATH, {})


FORMS = [
    [], 3, "text", [None], {}, {"choices": None}, {"choices": []}, {"choices": [3]}, {"choices": [{"text": 3}]},
    {"choices": [{"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": ["x"]}}]},
    {"choices": [{"text": "a", "logprobs": {"tokens": ["a", "b"], "token_logprobs": [1.0]}}]},
    {"choices": [{"index": "x", "text": "a"}]},
    {"choices": [{"index": float("inf"), "text": "a"}]}, {"choices": [{"message": {"content": ["a"]}}]},
    {"choices": [{"text": "a"}], "usage": [1]}, {"choices": [{"text": "a"}], "timings": 3},
]  # fmt: skip


@pytest.mark.parametrize("body", FORMS, ids=json.dumps)
def test_json_of_another_form_is_a_plain_error(body):
    with pytest.raises(UsageError, match="JSON without choices"):
        read_answer(client_of(reply(parts=[json.dumps(body).encode()])).post(PATH, {}), "http://toy")


def test_odd_counts_are_no_counts():
    body = {
        "choices": [{"text": "a"}],
        "usage": {"completion_tokens": -1, "prompt_tokens": "3"},
        "timings": {"draft_n": 1.5, "draft_n_accepted": True},
    }
    answer = read_answer(client_of(reply(parts=[json.dumps(body).encode()])).post(PATH, {}), "http://toy")

    assert (answer.completion_tokens, answer.prompt_tokens, answer.drafted) == (None, None, None)


def test_a_server_that_drips_is_left_after_the_timeout():
    def drip(path, body):
        return 200, "application/json", slowly()

    def slowly():
        from time import sleep

        while True:
            sleep(0.05)
            yield b" "

    from spec_commands.http_client import Client

    with listen(drip) as url:
        began = monotonic()
        with pytest.raises(UsageError, match="did not finish an answer in 1 s"):
            Client(url, None, 1.0).post(PATH, {})
    assert monotonic() - began < 10


def test_a_server_that_is_not_there_gets_a_plain_error():
    from spec_commands.http_client import Client

    with pytest.raises(UsageError, match="does not answer"):
        Client("http://127.0.0.1:9", None, 2.0).get("/v1/models")


def test_a_busy_server_is_asked_again():
    answers = iter([reply(429, retry_after="0"), reply(503), reply(parts=[b'{"a": 1}'])])

    assert client_of(lambda request: next(answers)(request)).post(PATH, {}).body == {"a": 1}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8080",
        "ftp://host",
        "http://",
        "http://a:b@host",
        "http://host?key=1",
        "http://host#x",
        "http://[",
        "\0",
    ],
)
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(UsageError) as error:
        check_url(url)
    assert "a:b" not in str(error.value) and "key=1" not in str(error.value)


@pytest.mark.parametrize("url", ["http://host:1/v1", "http://host:1/v1/", "http://host:1/", "http://host:1"])
def test_the_path_of_the_api_is_optional(url):
    assert check_url(url) == "http://host:1"


METRICS = """
# TYPE {0}:spec_decode_num_drafts_total counter
{0}:spec_decode_num_drafts_total{{model_name="a b",engine="0"}} 4.0
{0}:spec_decode_num_draft_tokens_total{{model_name="a b",engine="0"}} 16.0
{0}:spec_decode_num_accepted_tokens_total{{model_name="a b",engine="0"}} 1e1
{0}:spec_decode_num_accepted_tokens_total{{model_name="c",engine="1"}} 2.0
{0}:spec_decode_num_accepted_tokens_created{{model_name="c",engine="1"}} 1.7e9
{0}:spec_decode_num_accepted_tokens_per_pos_total{{position="0"}} 9.0
"""


@pytest.mark.parametrize("source", ["vllm", "spec", "llamacpp"])
def test_counters_of_drafts_are_summed_over_labels(source):
    counters = parse_counters(METRICS.format(source))

    assert counters.source == source
    assert counters.values == {"drafts": 4.0, "drafted": 16.0, "accepted": 12.0}


def test_other_metrics_have_no_counters_of_drafts():
    assert parse_counters("process_cpu_seconds_total 3.0\nvllm:x NaN") is None
    assert parse_counters("sglang:spec_accept_length 2.5").length == 2.5
