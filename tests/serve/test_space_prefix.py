"""The server with a model whose vocabulary writes a space before a whole text."""

from __future__ import annotations

from copy import copy
from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_serve import infill, llama
from spec_serve.infill import Infill

from tests.support.served import serving
from tests.support.space_prefix import model

PROMPT = "The capital of France is"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["New York", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def mistral():
    with serving(model("mistral", "tokenizer.model"), ["forced", "ngram"]) as server:
        yield server


def space() -> int:
    """The token of a space, as a completion begins with it."""
    return model("mistral", "tokenizer.model").tokenizer.encode_part(" of")[0]


def test_tokens_offsets_and_text_agree(mistral):
    body = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0, "logprobs": 1, "logit_bias": {str(space()): 20}}
    choice = mistral.post("/v1/completions", {**body}).json()["choices"][0]
    logprobs = choice["logprobs"]

    assert choice["text"].startswith(" ")
    assert "".join(logprobs["tokens"]) == choice["text"]
    for at, token in zip(logprobs["text_offset"], logprobs["tokens"], strict=True):
        assert choice["text"][at - logprobs["text_offset"][0] :].startswith(token)


def test_a_stop_text_that_begins_with_the_first_space_is_found(mistral):
    body = {"prompt": PROMPT, "n_predict": 8, "temperature": 0, "logit_bias": [[space(), 20]]}
    text = mistral.post("/completion", body).json()["content"]
    completion = mistral.post("/completion", {**body, "stop": [text[:3]]}).json()

    assert text.startswith(" ")
    assert (completion["content"], completion["stop_type"], completion["stopping_word"]) == ("", "word", text[:3])


def test_a_schema_a_grammar_and_a_choice_are_answered(mistral):
    asked = {"prompt": PROMPT, "n_predict": 60, "temperature": 1, "seed": 1}
    for form in ({"json_schema": SCHEMA}, {"grammar": 'root ::= "New York" [0-9]'}):
        answer = mistral.post("/completion", {**asked, **form})
        assert (answer.status_code == 200 and "New" in answer.text) or "Rome" in answer.text
    chat = {"messages": [{"role": "user", "content": "a"}], "prompt": PROMPT, "max_tokens": 60}
    chat["response_format"] = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
    answer = mistral.post("/v1/chat/completions", chat)
    assert answer.status_code in (200, 400) and "Traceback" not in answer.text


def test_texts_of_logit_bias_and_later_texts_of_a_mixed_prompt_are_parts():
    tokenizer = model("mistral", "tokenizer.model").tokenizer
    part = tokenizer.encode_part

    assert list(llama.bias([["city", -1.0]], tokenizer)) == list(dict.fromkeys(part("city")))
    config = SimpleNamespace(
        target=SimpleNamespace(tokenizer=tokenizer), limits=SimpleNamespace(prompt_max=0), context=512
    )
    assert llama.ids_of(["a b", 5, "c d"], config) == [*tokenizer.encode("a b"), 5, *part("c d")]
    assert llama.ids_of([1, "c d"], config) == [1, *tokenizer.encode("c d", bos=False)]


def test_only_the_text_before_a_gap_begins_as_a_whole_text():
    tokenizer = copy(model("mistral", "tokenizer.model").tokenizer)
    marks = {"<PRE>": 500, "<SUF>": 501, "<MID>": 502}
    encode = tokenizer.encode
    tokenizer.encode = lambda text, *, special=False, bos=True: (
        [marks[text]] if special and text in marks else encode(text, special=special, bos=bos)
    )
    ids = infill.prompt_of(Infill(input_prefix="a b", input_suffix="c d", prompt="e"), tokenizer)
    part = tokenizer.encode_part

    assert ids == [1, 500, *encode("a b", bos=False), 501, *part("c d"), 502, *part("e")]
