"""The ``openai`` client, without special code."""

from __future__ import annotations

from itertools import pairwise

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("openai", reason="needs the openai client")

import openai

from spec_core import Request, Run, Sampling, load
from tests.support.served import slowly

MESSAGES = [{"role": "user", "content": "def add(a, b):"}]
PROMPT = "def add(a, b):\n"


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def alone():
    """Results of a run alone, by prompt and keywords."""
    target = load("zoo:pico")

    def result(prompt, **keywords):
        with Run(target) as run:
            return run.generate(prompt, **keywords).result

    return result


def test_a_chat_is_answered_with_the_text_of_a_run_alone(client, alone):
    asked = {"max_tokens": 12, "seed": 5, "temperature": 0.8}
    answer = client.chat.completions.create(model="zoo:pico", messages=MESSAGES, **asked)
    result = alone(MESSAGES, **asked)

    assert answer.choices[0].message.content == result.text
    assert answer.choices[0].finish_reason == result.finish_reason
    assert answer.usage.prompt_tokens == result.prompt_tokens
    assert answer.usage.completion_tokens == len(result.tokens)


def test_a_stream_has_the_text_in_parts_and_the_usage_in_the_last_chunk(client, alone):
    asked = {"max_tokens": 12, "seed": 5, "temperature": 0.8}
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(client.chat.completions.create(model="zoo:pico", messages=MESSAGES, **asked, **options))

    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == alone(MESSAGES, **asked).text
    assert [c.usage for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 12
    assert chunks[-2].choices[0].finish_reason == "length"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_every_chunk_can_count_the_tokens_so_far(path, server):
    """A chunk has the tokens of a step, more than one where a draft was accepted: their number is in its usage."""
    asked = {"messages": MESSAGES} if "chat" in path else {"prompt": "import os\nimport os\n"}
    counting = {"include_usage": True, "continuous_usage_stats": True}
    chunks = server.events(path, {**asked, "max_tokens": 12, "temperature": 0, "stream_options": counting})[:-1]
    usages = [chunk["usage"] for chunk in chunks]
    counts = [usage["completion_tokens"] for usage in usages]

    assert counts == sorted(counts) and counts[-2:] == [12, 12]
    assert any(after > before + 1 for before, after in pairwise(counts))
    assert {usage["total_tokens"] - usage["completion_tokens"] for usage in usages} == {usages[-1]["prompt_tokens"]}


def test_counts_in_every_chunk_need_the_usage(server):
    body = {"prompt": PROMPT, "stream": True, "stream_options": {"continuous_usage_stats": True}}
    answer = server.post("/v1/completions", body)

    assert answer.status_code == 400
    assert "continuous_usage_stats needs include_usage = true" in answer.json()["error"]["message"]


def test_parts_of_a_message_are_one_text_and_a_developer_is_the_system(client, alone):
    parts = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
    ]
    plain = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x"}]
    answer = client.chat.completions.create(model="zoo:pico", messages=parts, max_tokens=6)

    assert answer.choices[0].message.content == alone(plain, max_tokens=6).text


def test_log_probabilities_are_those_of_a_run_alone_with_and_without_drafts(client, alone):
    """Also of accepted drafts; streamed, they come with their tokens."""
    asked = {"max_tokens": 16, "temperature": 0, "seed": 1}
    more = {"logprobs": True, "top_logprobs": 3}
    expected = alone(MESSAGES, logprobs=3, **asked)
    answer = client.chat.completions.create(model="zoo:pico", messages=MESSAGES, **asked, **more)
    logprobs = answer.choices[0].logprobs.content
    streamed = client.chat.completions.create(model="zoo:pico", messages=MESSAGES, stream=True, **asked, **more)
    pieces = [c.choices[0].logprobs.content for c in streamed if c.choices and c.choices[0].logprobs]

    assert [p.logprob for p in logprobs] == pytest.approx([p.value for p in expected.logprobs])
    assert [p.logprob for piece in pieces for p in piece] == [p.logprob for p in logprobs]
    assert all(p.top_logprobs[0].logprob == pytest.approx(max(t.logprob for t in p.top_logprobs)) for p in logprobs)
    assert b"".join(bytes(p.bytes) for p in logprobs).decode() == answer.choices[0].message.content


def test_completions_have_log_probabilities_in_their_own_form(client, alone):
    answer = client.completions.create(model="zoo:pico", prompt=PROMPT, max_tokens=8, temperature=0, logprobs=2)
    logprobs, text = answer.choices[0].logprobs, answer.choices[0].text

    assert logprobs.token_logprobs == pytest.approx([p.value for p in alone(PROMPT, max_tokens=8, logprobs=2).logprobs])
    assert "".join(logprobs.tokens) == text
    assert [text[at:].startswith(token) for at, token in zip(logprobs.text_offset, logprobs.tokens, strict=True)] == [
        True
    ] * 8
    assert all(len(top) == 2 for top in logprobs.top_logprobs)


def test_several_texts_are_the_streams_of_one_seed(client, alone):
    """n texts of every prompt, in order: each is that of its own stream."""
    prompts, asked = [PROMPT, "import os\n"], {"max_tokens": 10, "seed": 9, "temperature": 1.0}
    answer = client.completions.create(model="zoo:pico", prompt=prompts, n=2, **asked)
    texts = [alone(Request(p, noise_stream=s), **asked).text for p in prompts for s in range(2)]

    assert [choice.text for choice in answer.choices] == texts
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert len(set(texts)) == 4
    assert answer.usage.completion_tokens == 40


def test_token_ids_are_a_prompt_too(client, alone):
    ids = [258, 361, 667]

    one = client.completions.create(model="zoo:pico", prompt=ids, max_tokens=5, temperature=0)
    two = client.completions.create(model="zoo:pico", prompt=[ids, ids[:2]], max_tokens=5, temperature=0)

    assert one.choices[0].text == two.choices[0].text == alone(ids, max_tokens=5).text


GREEDY, DRAWN = {"temperature": 0.0}, {"temperature": 1.0}
CHANGES = {
    "top_p": (DRAWN, 0.5),
    "top_k": (DRAWN, 3),
    "min_p": (DRAWN, 0.3),
    "presence_penalty": (GREEDY, 1.9),
    "frequency_penalty": (GREEDY, 1.9),
    "repetition_penalty": (GREEDY, 1.8),
    "logit_bias": (GREEDY, {"258": -100}),
    "stop": (GREEDY, ["e"]),
}


@pytest.mark.parametrize("field", CHANGES)
def test_what_changes_a_choice_is_applied(field, client, alone):
    """Every sampling field reaches the run: the text is that of a run alone with the same value."""
    base, value = CHANGES[field]
    base = {"max_tokens": 16, "seed": 3, **base}
    answer = client.completions.create(model="zoo:pico", prompt=PROMPT, **base, extra_body={field: value})
    changed = alone(
        PROMPT, **base, **{field: {int(k): v for k, v in value.items()} if field == "logit_bias" else value}
    )

    assert answer.choices[0].text == changed.text
    assert changed.text != alone(PROMPT, **base).text


def test_leaving_a_stream_ends_its_text(client, server):
    stream = client.chat.completions.create(model="zoo:pico", messages=MESSAGES, max_tokens=2000, stream=True,
                                            extra_body={"ignore_eos": True})  # fmt: skip
    next(iter(stream))
    stream.close()

    wait_until(lambda: not server.engine.open)
    assert not server.engine.run.running


def test_a_client_that_does_not_wait_for_its_answer_ends_its_text(client, server):
    before = server.engine.counters.requests["cancelled"]
    with slowly(server), pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.4).completions.create(
            model="zoo:pico", prompt="x", max_tokens=2000, extra_body={"ignore_eos": True, "speculative": {"n_max": 0}}
        )

    wait_until(lambda: not server.engine.open)
    assert server.engine.counters.requests["cancelled"] == before + 1


def wait_until(true, seconds=20):
    """Raises AssertionError where it does not become true in time."""
    from time import monotonic, sleep

    end = monotonic() + seconds
    while not true():
        assert monotonic() < end
        sleep(0.01)


def test_errors_are_those_that_the_client_knows(client):
    for error, asked in (
        (openai.BadRequestError, {"model": "zoo:pico", "prompt": "x", "temperature": -1}),
        (openai.BadRequestError, {"model": "zoo:pico", "prompt": "x", "extra_body": {"tempreature": 1}}),
    ):
        with pytest.raises(error) as caught:
            client.completions.create(**asked)
        assert caught.value.body["message"]
    with pytest.raises(openai.BadRequestError, match="audio is not supported"):
        audio = {"format": "wav", "voice": "alloy"}
        client.chat.completions.create(model="zoo:pico", messages=MESSAGES, audio=audio)


def test_the_model_is_listed(client):
    assert [model.id for model in client.models.list()] == ["zoo:pico"]
    assert client.models.retrieve("zoo:pico").id == "zoo:pico"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_a_request_without_a_seed_has_one_that_reproduces_it(server, alone):
    asked = {"prompt": PROMPT, "max_tokens": 12, "temperature": 1.0}
    first, second = (server.post("/v1/completions", asked).json() for _ in range(2))

    assert first["seed"] != second["seed"]
    assert float(first["seed"]) == first["seed"] < 1 << 53  # exact in a browser too
    assert (
        alone(PROMPT, max_tokens=12, sampling=Sampling(temperature=1.0), seed=first["seed"]).text
        == (first["choices"][0]["text"])
    )


@pytest.mark.parametrize(
    ("path", "prompt"),
    [
        ("/v1/completions", {"prompt": "def f(", "max_tokens": 9}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "def f("}], "max_tokens": 9}),
        ("/completion", {"prompt": "def f(", "n_predict": 9}),
    ],
)
def test_a_text_has_its_min_tokens(server, path, prompt):
    """The end is by far the most probable token; and llama-server's name of the repetition penalty is known."""
    (eog, *_) = sorted(server.engine.run.target.info.eog)
    body = {**prompt, "temperature": 0, "logit_bias": {str(eog): 100}}
    count = lambda more: _tokens_of(server.post(path, body | more).json())

    assert (count({}), count({"min_tokens": 4})) == (1, 5)
    refused = server.post(path, body | {"min_tokens": 10})
    assert refused.status_code == 400 and "max_tokens" in refused.json()["error"]["message"]
    one, other = ({**prompt, "temperature": 0, name: 1.3} for name in ("repeat_penalty", "repetition_penalty"))
    assert _text_of(server.post(path, one).json()) == _text_of(server.post(path, other).json())
    both = server.post(path, one | other).json()["error"]
    assert "both given" in both["message"]


def _tokens_of(answer):
    return answer["usage"]["completion_tokens"] if "usage" in answer else answer["tokens_predicted"]


def _text_of(answer):
    choice = answer["choices"][0] if "choices" in answer else answer
    return choice["message"]["content"] if "message" in choice else choice.get("text", choice.get("content"))
