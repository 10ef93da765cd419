"""Fields that clients send, and what they ask for: names of models, templates, prefills, lists of prompts."""

from __future__ import annotations

import logging

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_core import Run, load
from tests.support.scripted import script_target
from tests.support.served import serving

MESSAGES = [{"role": "user", "content": "def add(a, b):"}]
CHAT = {"messages": MESSAGES, "max_tokens": 4}
BEGUN = [*MESSAGES, {"role": "assistant", "content": "    return"}]
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if enable_thinking is defined %}THINK {{ enable_thinking }}\n{% endif %}"
    "{% if reasoning_effort %}EFFORT {{ reasoning_effort }}\n{% endif %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
NEUTRAL = {
    "/v1/chat/completions": {
        **CHAT, "prompt_cache_key": "k", "metadata": {"a": "b"}, "verbosity": "low", "safety_identifier": "u",
        "id_slot": 0, "user": "u",
    },
    "/v1/responses": {
        "input": "x", "max_output_tokens": 2, "prompt_cache_key": "k", "metadata": {"a": "b"},
        "text": {"verbosity": "high"}, "truncation": "disabled", "include": [], "reasoning": {"effort": "low"},
        "store": True,
    },
    "/completion": {"prompt": "x", "n_predict": 2, "id_slot": 1, "response_fields": []},
}  # fmt: skip


def prompt(server, **body):
    return server.post("/apply-template", {"messages": MESSAGES, **body}).json()["prompt"]


@pytest.fixture(scope="module")
def template_server():
    with serving(script_target("four", TEMPLATE), limits={"strict_model": True}) as server:
        yield server


@pytest.mark.parametrize("path", NEUTRAL)
def test_what_changes_nothing_is_accepted(server, path):
    assert server.post(path, NEUTRAL[path]).status_code == 200, server.post(path, NEUTRAL[path]).text


def test_any_model_name_is_accepted_unless_the_server_is_strict(server, template_server):
    assert server.post("/v1/chat/completions", {**CHAT, "model": "gpt-4o"}).json()["model"] == "zoo:pico"
    refused = template_server.post("/v1/chat/completions", {**CHAT, "model": "gpt-4o"})

    assert refused.status_code == 404 and refused.json()["error"]["code"] == "model_not_found"


def test_chats_have_routes_without_a_version(server):
    paths = ("/chat/completions", "/v1/chat/completions")
    texts = [server.post(path, CHAT).json()["choices"][0]["message"]["content"] for path in paths]

    assert texts[0] == texts[1]
    assert server.post("/responses", {"input": "x", "max_output_tokens": 2}).status_code == 200
    count = server.post("/chat/completions/input_tokens", {"messages": MESSAGES}).json()["input_tokens"]
    assert count == len(load("zoo:pico").tokenizer.encode_chat(MESSAGES))


def test_the_fingerprint_is_that_of_the_server(server, template_server):
    bodies = [
        s.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).json() for s in (server, server, template_server)
    ]
    chunk = server.events("/v1/chat/completions", CHAT)[0]

    assert bodies[0]["system_fingerprint"] == bodies[1]["system_fingerprint"] == chunk["system_fingerprint"]
    assert bodies[0]["system_fingerprint"].startswith("b") and bodies[0] != bodies[2]


# the prompt of a conversation


def test_variables_of_the_template_are_given(template_server):
    assert "THINK" not in prompt(template_server) and "EFFORT" not in prompt(template_server)
    assert "THINK True" in prompt(template_server, chat_template_kwargs={"enable_thinking": True})
    assert "EFFORT high" in prompt(template_server, reasoning_effort="high")
    assert "THINK False" in prompt(template_server, reasoning_effort="none")
    assert prompt(template_server, add_generation_prompt=False).endswith("def add(a, b):\n")
    with serving(script_target("x", TEMPLATE), limits={"chat_template_kwargs": '{"enable_thinking": false}'}) as server:
        assert "THINK False" in prompt(server)
        assert "THINK True" in prompt(server, chat_template_kwargs={"enable_thinking": True})


@pytest.mark.parametrize("name", ["messages", "bos_token", "tools", "a b", "add_generation_prompt"])
def test_variables_that_are_not_free_are_refused(template_server, name):
    answer = template_server.post("/v1/chat/completions", {**CHAT, "chat_template_kwargs": {name: "x"}})

    assert answer.status_code == 400 and "chat_template_kwargs" in answer.json()["error"]["message"]


def test_a_last_message_of_the_assistant_is_continued(server):
    tokenizer = load("zoo:pico").tokenizer
    begun = tokenizer.render(MESSAGES, add_generation_prompt=True) + "    return"
    with Run(load("zoo:pico")) as run:
        text = run.generate(tokenizer.encode(begun, special=True, bos=False), max_tokens=4).result.text

    assert prompt(server, messages=BEGUN) == begun
    for more in ({}, {"continue_final_message": True, "add_generation_prompt": False}):
        answer = server.post("/v1/chat/completions", {**CHAT, "messages": BEGUN, **more}).json()
        assert answer["choices"][0]["message"]["content"] == text
    closed = prompt(server, messages=BEGUN, add_generation_prompt=True)
    assert closed == tokenizer.render(BEGUN, add_generation_prompt=True)


@pytest.mark.parametrize(
    "body",
    [
        {"messages": BEGUN, "continue_final_message": True, "add_generation_prompt": True},
        {"messages": MESSAGES, "continue_final_message": True},
        {"messages": [*BEGUN, {"role": "assistant", "content": "x"}]},
    ],
)
def test_what_cannot_be_continued_is_refused(server, body):
    assert server.post("/v1/chat/completions", {**CHAT, **body}).status_code == 400


def test_a_begun_answer_closes_the_thinking_that_its_prompt_opens():
    template = TEMPLATE + "{% if add_generation_prompt %}<think>\n{% endif %}"
    with serving(script_target(" four", template)) as server:
        begun = prompt(server, messages=BEGUN)
        answer = server.post("/v1/chat/completions", {**CHAT, "messages": BEGUN, "max_tokens": 20}).json()

    assert begun.endswith("<think>\n\n</think>\n\n    return")
    assert answer["choices"][0]["message"]["content"] == " four"


def test_an_answer_has_its_prompt_where_it_is_asked_for(server):
    answer = server.post("/v1/chat/completions", {**CHAT, "verbose": True}).json()

    assert answer["__verbose"]["prompt"] == load("zoo:pico").tokenizer.render(MESSAGES, add_generation_prompt=True)
    assert "__verbose" not in server.post("/v1/chat/completions", CHAT).json()


# llama-server's completion


def test_a_list_of_prompts_has_a_list_of_answers(server):
    body = {"n_predict": 4, "temperature": 0}
    single = [server.post("/completion", {**body, "prompt": text}).json()["content"] for text in ("x =", "def")]
    ids = load("zoo:pico").tokenizer.encode("def", special=True)
    several = server.post("/completion", {**body, "prompt": ["x =", {"prompt_string": "def"}, ids]}).json()
    events = server.events("/completion", {**body, "prompt": ["x =", "def"]})

    assert [answer["content"] for answer in several] == [single[0], single[1], single[1]]
    assert [answer["index"] for answer in several] == [0, 1, 2]
    for at, text in enumerate(single):
        assert "".join(event["content"] for event in events if event["index"] == at) == text
    assert server.post("/completion", {**body, "prompt": {"prompt_string": "x ="}}).json()["content"] == single[0]


def test_a_prompt_is_evaluated_where_no_token_is_asked_for(server):
    body = {"prompt": "a prompt that nobody else has, and that is long enough to be seen", "n_predict": 0}
    first, second = server.post("/completion", body).json(), server.post("/completion", body).json()

    assert first["content"] == "" and first["tokens_predicted"] == 0
    assert first["timings"]["cache_n"] == 0 and second["timings"]["cache_n"] == first["tokens_evaluated"] - 1


def test_an_answer_has_the_fields_that_were_asked_for(server):
    names = ["content", "generation_settings/n_predict", "timings", "nothing/else"]
    answer = server.post("/completion", {"prompt": "x", "n_predict": 3, "response_fields": names}).json()

    assert list(answer) == ["content", "generation_settings/n_predict", "timings"]
    assert answer["generation_settings/n_predict"] == 3


def test_numbers_are_never_null_and_ends_that_are_ignored_are_named(server):
    answer = server.post("/completion", {"prompt": "x", "n_predict": 1, "ignore_eos": True}).json()

    assert all(value is not None for value in answer["timings"].values())
    biases = answer["generation_settings"]["logit_bias"]
    assert biases == [{"token": token, "bias": None} for token in sorted(load("zoo:pico").tokenizer.eog)]
    assert server.get("/props").json()["default_generation_settings"]["params"]["seed"] == -1


def test_a_text_that_fills_the_context_is_truncated():
    with serving(load("zoo:pico", context=64)) as server:
        full = server.post("/completion", {"prompt": "x", "n_predict": -1, "ignore_eos": True}).json()
        short = server.post("/completion", {"prompt": "x", "n_predict": 4, "ignore_eos": True}).json()
        long = server.post("/completion", {"prompt": [5] * 100})

    assert full["truncated"] and not short["truncated"]
    error = long.json()["error"]
    assert error["type"] == "exceed_context_size_error" and error["n_prompt_tokens"] == 100 and error["n_ctx"] == 64


@pytest.mark.parametrize("path", ["/completion", "/v1/chat/completions", "/v1/responses"])
def test_a_stream_tells_how_much_of_the_prompt_is_evaluated(server, path):
    text = f"a long prompt for {path} " * 40
    prompt_field = {"prompt": text} if path == "/completion" else {"input": text}
    prompt_field = {"messages": [{"role": "user", "content": text}]} if "chat" in path else prompt_field
    limit = {"max_output_tokens" if "responses" in path else "max_tokens": 2}
    events = server.events(path, {**prompt_field, **limit, "return_progress": True, "timings_per_token": True})
    reports = [event for event in events if isinstance(event, dict) and "prompt_progress" in event]
    progress = [event["prompt_progress"] for event in reports]

    assert progress[0]["processed"] == progress[0]["cache"] and reports[0]["timings"]["prompt_ms"] == 0
    assert progress[-1]["processed"] == progress[-1]["total"] > 100
    assert [p["processed"] for p in progress] == sorted(p["processed"] for p in progress)
    assert any("timings" in event and event["timings"]["predicted_n"] for event in events if isinstance(event, dict))


def test_slots_say_where_none_is_free(server):
    assert server.get("/slots?fail_on_no_slot=1").status_code == 200


# a lenient server, a template by flag


def test_a_lenient_server_ignores_with_one_warning(caplog):
    with caplog.at_level(logging.WARNING, "spec_serve"), serving("zoo:pico", limits={"lenient": True}) as server:
        body = {**CHAT, "frequency_penalti": 1, "web_search_options": {}, "max_tokens": 2}
        answers = [server.post("/v1/chat/completions", body) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [200] * 3
    messages = [record.getMessage() for record in caplog.records if "ignored" in record.getMessage()]
    assert len(messages) == 2 and "frequency_penalti" in messages[0] and "web_search_options" in messages[1]


def test_an_unknown_field_is_refused_elsewhere(server):
    assert server.post("/v1/chat/completions", {**CHAT, "frequency_penalti": 1}).status_code == 400


def test_a_template_may_be_a_name_a_text_or_a_file(tmp_path):
    from spec_serve.settings import ServeSettings
    from spec_serve.templates import template_of

    from spec_core import UsageError

    (tmp_path / "t.jinja").write_text(TEMPLATE, "utf-8")
    assert template_of(ServeSettings()) is None
    assert template_of(ServeSettings(chat_template="{{ 1 }}")) == "{{ 1 }}"
    assert template_of(ServeSettings(chat_template_file=str(tmp_path / "t.jinja"))) == TEMPLATE
    tokenizer = load("zoo:pico").tokenizer
    tokenizer.chat_template = template_of(ServeSettings(chat_template="chatml"))
    assert tokenizer.render(MESSAGES) == ("<|im_start|>user\ndef add(a, b):<|im_end|>\n<|im_start|>assistant\n")
    for wrong in ({"chat_template_file": "no.jinja"}, {"chat_template": "a", "chat_template_file": "b"}):
        with pytest.raises(UsageError):
            template_of(ServeSettings(**wrong))
