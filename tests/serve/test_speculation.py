"""Drafting for a request: asked per request, visible in its answer, without a change to its text."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from tests.support.served import serving

BODY = {"prompt": "def add(a, b):\n", "max_tokens": 40, "temperature": 0}


def ask(server, **speculative):
    return server.post("/v1/completions", {**BODY, "speculative": speculative}).json()


def block(answer):
    return answer["metrics"]["speculative_decoding"]


def test_n_max_0_drafts_nothing_and_says_so(server):
    """Zeros are there: that drafting is off can be seen."""
    drafts = dict(server.engine.run.stats.forwards)
    answer = ask(server, n_max=0)

    assert (answer["timings"]["draft_n"], answer["timings"]["draft_n_accepted"]) == (0, 0)
    assert block(answer) == {
        "mean_acceptance_length": 1.0, "draft_acceptance_rate": 0.0, "acceptance_histogram": [0], "num_spec_steps": 0,
        "num_accepted_draft_tokens": 0, "num_draft_tokens": 0, "num_spec_tokens": 0,
    }  # fmt: skip
    after = server.engine.run.stats.forwards
    assert {n: c - drafts.get(n, 0) for n, c in after.items() if c != drafts.get(n, 0)}.keys() == {"target"}


def test_the_text_is_the_same_however_it_is_drafted(server):
    texts = {
        ask(server, **how)["choices"][0]["text"]
        for how in (
            {},
            {"n_max": 0},
            {"n_max": 2},
            {"method": "none"},
            {"method": ["ngram"]},
            {"n_min": 3, "p_min": 0.5},
        )
    }

    assert len(texts) == 1


def test_the_numbers_of_an_answer_agree_with_each_other(server):
    answer = ask(server)
    spec, timings = block(answer), answer["timings"]
    histogram = spec["acceptance_histogram"]

    assert spec["num_accepted_draft_tokens"] == timings["draft_n_accepted"] > 0
    assert spec["num_draft_tokens"] == timings["draft_n"] > 0
    assert sum(histogram) == spec["num_spec_steps"]
    assert sum(i * n for i, n in enumerate(histogram)) == spec["num_accepted_draft_tokens"]
    assert len(histogram) == spec["num_spec_tokens"] + 1 == 17
    assert spec["mean_acceptance_length"] == 1 + spec["num_accepted_draft_tokens"] / spec["num_spec_steps"]
    assert all(isinstance(spec[name], int) for name in spec if name.startswith("num_"))


def test_drafts_are_no_longer_than_asked(server):
    spec = block(ask(server, n_max=2))

    assert spec["num_spec_tokens"] == 2 and len(spec["acceptance_histogram"]) == 3
    assert 0 < spec["num_draft_tokens"] <= 2 * spec["num_spec_steps"]


def test_only_the_methods_that_were_asked_for_draft(server):
    traced = ask(server, method="ngram", trace=True)["choices"][0]["speculative"]

    assert {tuple(step["drafted_by"]) for step in traced} == {("ngram",), ()}


@pytest.mark.parametrize("form", [
    {"speculative": {"type": "draft-simple"}}, {"speculative.type": "draft-simple"},
    {"speculative": {"method": "draft_model"}}, {"speculative": {"method": "DRAFT-MODEL"}},
])  # fmt: skip
def test_names_of_other_programs_mean_the_same_method(form, server):
    body = {**BODY, **form}
    body.setdefault("speculative.trace", True) if "speculative" not in body else body["speculative"].update(trace=True)
    traced = server.post("/v1/completions", body).json()["choices"][0]["speculative"]

    assert {tuple(step["drafted_by"]) for step in traced} == {("draft-model",), ()}


def test_short_and_unsure_drafts_are_dropped(server):
    """n_min longer than any draft that may be: none is verified; p_min 1 leaves the draft model nothing."""
    assert block(ask(server, n_max=3, n_min=4))["num_spec_steps"] == 0
    assert block(ask(server, method="draft-model", p_min=1.0))["num_draft_tokens"] == 0
    assert block(ask(server, method="draft-model"))["num_draft_tokens"] > 0


def test_a_stream_has_the_numbers_on_its_last_chunk_with_and_without_usage(server):
    for options in ({}, {"stream_options": {"include_usage": True}}):
        events = server.events("/v1/completions", {**BODY, **options})
        *others, last, end = events

        assert end == "[DONE]"
        assert block(last)["num_spec_steps"] > 0 and last["timings"]["predicted_n"] == 40
        assert not any("metrics" in event for event in others)
        assert (last.get("usage") is not None) == bool(options)


def test_a_trace_has_every_token_with_its_source_and_what_was_rejected(server):
    """Streamed and whole alike."""
    asked = {**BODY, "speculative": {"trace": True}}
    whole = server.post("/v1/completions", asked).json()
    steps = whole["choices"][0]["speculative"]
    streamed = [e["choices"][0]["speculative"] for e in server.events("/v1/completions", asked)[:-1]
                if "speculative" in e["choices"][0]]  # fmt: skip

    assert "".join(token["text"] for step in steps for token in step["tokens"]) == whole["choices"][0]["text"]
    drafted = sum(step["draft_n"] for step in steps)
    rejected = sum(len(step["rejected"]) for step in steps)
    assert drafted == whole["timings"]["draft_n"]
    assert drafted - rejected == whole["timings"]["draft_n_accepted"]
    assert {t["source"] for step in steps for t in step["tokens"]} <= {None, "ngram", "draft-model"}
    assert streamed == steps


def test_a_second_turn_says_how_much_of_its_prompt_was_cached(server):
    prompt = "class Stack:\n    def __init__(self):\n" * 4
    body = {"prompt": prompt, "max_tokens": 4, "temperature": 0}
    server.post("/v1/completions", body)
    again = server.post("/v1/completions", body).json()
    fresh = server.post("/v1/completions", {**body, "cache_prompt": False}).json()

    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached > again["usage"]["prompt_tokens"] // 2
    assert again["timings"]["cache_n"] == cached
    assert fresh["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert fresh["choices"] == again["choices"]


def test_a_prediction_is_a_draft_and_the_usage_counts_it():
    """A chat is asked again with its own answer, changed in the middle, as the prediction."""
    body = {"messages": [{"role": "user", "content": "def add(a, b):"}], "max_tokens": 60, "temperature": 0}
    with serving("zoo:pico", ["prediction"]) as server:
        plain = server.post("/v1/chat/completions", body).json()
        text = plain["choices"][0]["message"]["content"]
        parts = [{"type": "text", "text": text[:40]}, {"type": "text", "text": "#" + text[40:]}]
        answers = [
            server.post("/v1/chat/completions", {**body, "prediction": {"type": "content", "content": content}}).json()
            for content in (text, parts)
        ]
        last = server.events(
            "/v1/chat/completions",
            {**body, "prediction": {"type": "content", "content": text}, "stream_options": {"include_usage": True}},
        )[-2]

    assert "completion_tokens_details" not in plain["usage"] and plain["timings"]["draft_n"] == 0
    assert [a["choices"][0]["message"]["content"] for a in answers] == [text, text]
    same, changed = (answer["usage"]["completion_tokens_details"] for answer in answers)
    assert same["accepted_prediction_tokens"] > 45 and changed["accepted_prediction_tokens"] > 30
    assert same["rejected_prediction_tokens"] < changed["rejected_prediction_tokens"]
    assert last["usage"]["completion_tokens_details"] == same
    drafted = answers[0]["timings"]["draft_n"]
    assert drafted == same["accepted_prediction_tokens"] + same["rejected_prediction_tokens"]


def test_a_request_can_be_left_alone_by_the_controller():
    """Its drafts are as long as without a controller; n_min counts after the controller's own limit."""
    body = {**BODY, "max_tokens": 60, "speculative": {"method": "ngram"}}
    with serving("zoo:pico", ["ngram"]) as server:
        fixed = block(server.post("/v1/completions", body).json())
    with serving("zoo:pico", ["ngram"], control="auto") as server:
        free = server.post("/v1/completions", {**body, "speculative": {"method": "ngram", "control": "fixed"}}).json()
        settings = server.post("/completion", {"prompt": "x", "n_predict": 1, "speculative.control": "fixed"}).json()

    assert block(free) == fixed
    assert settings["generation_settings"]["speculative.control"] == "fixed"
