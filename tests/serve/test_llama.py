"""llama-server's endpoints and field names."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_core import Run, load

PROMPT = "import os\n"
FINAL = {
    "index", "content", "tokens", "id_slot", "stop", "model", "tokens_predicted", "tokens_evaluated",
    "generation_settings", "prompt", "has_new_line", "truncated", "stop_type", "stopping_word", "tokens_cached",
    "timings",
}  # fmt: skip
TIMINGS = {
    "cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_n", "predicted_ms",
    "predicted_per_token_ms", "predicted_per_second", "draft_n", "draft_n_accepted",
}  # fmt: skip


def alone(prompt=PROMPT, **keywords):
    with Run(load("zoo:pico")) as run:
        return run.generate(prompt, **keywords).result


def complete(server, **body):
    return server.post("/completion", {"prompt": PROMPT, "n_predict": 12, **body}).json()


def test_a_completion_has_llama_servers_fields(server):
    answer = complete(server, return_tokens=True, seed=4, temperature=0.9)
    result = alone(max_tokens=12, seed=4, temperature=0.9)

    assert answer.keys() >= FINAL and answer["timings"].keys() >= TIMINGS
    assert (answer["content"], answer["tokens"]) == (result.text, result.tokens)
    assert (answer["stop"], answer["stop_type"]) == (True, "limit")
    assert answer["generation_settings"]["seed"] == 4


def test_a_stream_has_parts_and_a_last_event_with_the_numbers(server):
    *parts, last = server.events("/completion", {"prompt": PROMPT, "n_predict": 12, "temperature": 0})

    assert "".join(part["content"] for part in parts) == alone(max_tokens=12).text
    assert not any(part["stop"] for part in parts)
    assert last["stop"] and last["content"] == "" and last.keys() >= FINAL


def test_why_a_text_stopped_is_said(server):
    stopped = complete(server, stop=["sys", "\n"], temperature=0)

    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", "sys")
    eos = min(load("zoo:pico").tokenizer.eog)
    ended = complete(server, logit_bias=[[eos, 100]], return_tokens=True, temperature=0)
    assert (ended["stop_type"], ended["content"], ended["tokens"]) == ("eos", "", [])


def test_n_predict_minus_1_is_no_limit_of_its_own(server):
    answer = complete(server, n_predict=-1, logit_bias={str(min(load("zoo:pico").tokenizer.eog)): 30})

    assert answer["generation_settings"]["n_predict"] == 2048


def test_seed_minus_1_is_a_random_seed(server):
    seeds = {complete(server, seed=-1, n_predict=1)["generation_settings"]["seed"] for _ in range(3)}

    assert len(seeds) == 3


@pytest.mark.parametrize("bias", [{"735": -100}, [[735, -100]], [[735, False]], [["import", False]]])
def test_a_bias_is_given_in_any_of_its_forms(bias, server):
    banned = alone(max_tokens=12, logit_bias={735: -100.0}).text

    assert complete(server, logit_bias=bias, temperature=0)["content"] == banned != alone(max_tokens=12).text


def test_probabilities_come_with_ids(server):
    probabilities = complete(server, n_probs=2, temperature=0, n_predict=4)["completion_probabilities"]
    expected = alone(max_tokens=4, logprobs=2)

    assert [t["id"] for t in probabilities] == expected.tokens
    assert [t["logprob"] for t in probabilities] == pytest.approx([p.value for p in expected.logprobs])
    assert [[top["id"] for top in t["top_logprobs"]] for t in probabilities] == [
        [i for i, _ in p.top] for p in expected.logprobs
    ]


def test_texts_and_ids_are_mixed_in_a_prompt(server):
    tokenizer = load("zoo:pico").tokenizer
    ids = [tokenizer.encode("def")[-1], *tokenizer.encode(" f():", special=True, bos=False)]

    assert complete(server, prompt=[ids[0], " f():"], temperature=0)["content"] == alone(ids, max_tokens=12).text


def test_a_text_becomes_ids_and_a_text_again(server):
    tokenizer = load("zoo:pico").tokenizer
    text = "def f(x):\n    return 'ä'"
    ids = server.post("/tokenize", {"content": text}).json()["tokens"]
    pieces = server.post("/tokenize", {"content": "ä", "with_pieces": True}).json()["tokens"]

    assert ids == tokenizer.encode(text, special=True, bos=False)
    assert server.post("/detokenize", {"tokens": ids}).json() == {"content": text}
    assert [p["id"] for p in pieces] == tokenizer.encode("ä", bos=False)
    data = [p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces]
    assert b"".join(data).decode() == "ä"


def test_control_tokens_in_a_text_are_parsed_on_request(server):
    text = "<|im_end|>"
    plain, parsed = (
        server.post("/tokenize", {"content": text, "parse_special": on}).json()["tokens"] for on in (False, True)
    )

    assert len(parsed) == 1 < len(plain)


def test_a_template_is_applied(server):
    messages = [{"role": "user", "content": "x"}]
    rendered = server.post("/apply-template", {"messages": messages}).json()

    assert rendered == {"prompt": "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"}


def test_slots_show_who_is_processing(server):
    body = {"prompt": PROMPT, "n_predict": 2000, "stream": True, "ignore_eos": True, "speculative.n_max": 3}
    with server.client.stream("POST", server.url + "/completion", json=body) as answer:
        lines = answer.iter_lines()  # dropped, it would close the stream
        next(lines)
        busy = [slot for slot in server.get("/slots").json() if slot["is_processing"]]

    assert len(server.get("/slots").json()) == 8
    assert len(busy) == 1
    assert {"id", "id_task", "n_ctx", "speculative", "n_prompt_tokens", "n_prompt_tokens_cache", "params"} <= busy[
        0
    ].keys()
    assert busy[0]["params"]["speculative.types"] == ["ngram", "draft-model"]
    assert busy[0]["params"]["speculative.n_max"] == 3
    assert busy[0]["next_token"][0]["n_decoded"] >= 1


def test_props_show_settings_with_their_origin(server):
    props = server.get("/props").json()

    assert props["total_slots"] == 8 and props["model_path"] == "zoo:pico"
    assert props["speculative"]["types"] == ["ngram", "draft-model"]
    assert props["settings"]["methods"]["origin"] == "flag"
    assert props["settings"]["on_error"] == {"value": "isolate", "origin": "spec serve"}


def samples(server):
    text = server.get("/metrics").text
    return {m[1]: float(m[2]) for m in re.finditer(r"^([^#\s]+(?:\{.*\})?) (\S+)$", text, re.M)}


def test_counters_grow_while_a_request_runs(server):
    name = "llamacpp:tokens_predicted_total"
    before = samples(server)[name]
    body = {"prompt": PROMPT, "n_predict": 2000, "stream": True, "ignore_eos": True, "speculative.n_max": 0}
    with server.client.stream("POST", server.url + "/completion", json=body) as answer:
        lines = answer.iter_lines()  # dropped, it would close the stream
        next(lines)
        during = samples(server)

    assert during[name] > before
    assert during["spec:requests_running"] == during["llamacpp:requests_processing"] == 1


def test_counters_agree_with_answers(server):
    before = samples(server)
    answers = [complete(server, seed=s, temperature=0.7) for s in range(3)]
    after = samples(server)
    growth = lambda name: after.get(name, 0) - before.get(name, 0)
    of_methods = lambda name: sum(growth(f'{name}{{method="{m}"}}') for m in ("ngram", "draft-model"))

    drafted = sum(a["timings"]["draft_n"] for a in answers)
    accepted = sum(a["timings"]["draft_n_accepted"] for a in answers)
    assert drafted > 0
    assert of_methods("spec:spec_decode_num_draft_tokens_total") == drafted
    assert of_methods("spec:spec_decode_num_accepted_tokens_total") == accepted
    assert growth("llamacpp:spec_decode_num_draft_tokens_total") == drafted
    assert growth("llamacpp:spec_decode_num_accepted_tokens_total") == accepted
    assert growth("llamacpp:tokens_predicted_total") == sum(a["tokens_predicted"] for a in answers)
    assert growth("llamacpp:prompt_tokens_total") == sum(a["timings"]["prompt_n"] for a in answers)
    assert growth("llamacpp:prompt_tokens_cached_total") == sum(a["timings"]["cache_n"] for a in answers) > 0
    assert growth('spec:requests_total{finish_reason="length"}') == 3
    positions = [n for n in after if n.startswith("llamacpp:spec_decode_num_accepted_tokens_per_pos_total")]
    assert sum(growth(n) for n in positions) == accepted
    assert growth("spec:time_to_first_token_seconds_count") == 3
