"""llama-server's ``/infill``: the prompt has the model's own tokens around the gap."""

from __future__ import annotations

from copy import copy

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from spec_serve.infill import FillTokens, Infill, prompt_of

from spec_core import Run, load
from tests.support.scripted import script_target
from tests.support.served import serving


class Marked:
    """pico's tokenizer with some of its tokens as marks."""

    def __init__(self, tokenizer, marks):
        self.inner, self.marks = copy(tokenizer), marks

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def encode(self, text, *, special=False, bos=True):
        if special and text in self.marks:
            return [self.marks[text]]
        return self.inner.encode(text, special=special, bos=bos)


MARKS = {"<|fim_prefix|>": 3000, "<|fim_suffix|>": 3001, "<|fim_middle|>": 3002}
FILES = {"<|repo_name|>": 3003, "<|file_sep|>": 3004}
BODY = {"input_prefix": "def f(x):\n    ", "input_suffix": "\n    return y\n"}


def tokenizer(marks):
    return Marked(load("zoo:pico").tokenizer, marks)


def test_the_marks_are_found_where_a_tokenizer_has_all_of_them():
    assert FillTokens.of(tokenizer(MARKS)) == FillTokens(3000, 3001, 3002)
    assert FillTokens.of(tokenizer(MARKS | FILES)) == FillTokens(3000, 3001, 3002, 3003, 3004)
    assert FillTokens.of(tokenizer({"<|fim_prefix|>": 3000})) is None
    assert FillTokens.of(load("zoo:pico").tokenizer) is None


def test_the_prompt_is_the_text_around_the_gap_and_other_files_before_it():
    words, extra = tokenizer(MARKS | FILES), [{"filename": "a.py", "text": "y = 1"}]
    text = lambda written: words.encode(written, bos=False)
    around = [3000, *text(BODY["input_prefix"]), 3001, *text(BODY["input_suffix"]), 3002]
    files = [3003, *text("myproject\n"), 3004, *text("a.py\ny = 1\n"), 3004, *text("filename\n")]

    assert prompt_of(Infill(**BODY), words) == around
    assert prompt_of(Infill(**BODY, prompt="y = "), words) == [*around, *text("y = ")]
    assert prompt_of(Infill.model_validate({**BODY, "input_extra": extra}), words) == [*files, *around]
    assert prompt_of(Infill.model_validate({**BODY, "input_extra": extra}), tokenizer(MARKS)) == [
        *text("y = 1\n"),
        *around,
    ]


def test_the_answer_is_the_text_of_a_run_alone_after_that_prompt():
    target = script_target("y = x")
    target.tokenizer = tokenizer(MARKS)
    with serving(target) as server:
        answer = server.post("/infill", {**BODY, "n_predict": 20}).json()
        events = server.events("/infill", {**BODY, "n_predict": 20})
    with Run(target) as run:
        result = run.generate(prompt_of(Infill(**BODY), target.tokenizer), max_tokens=20).result

    assert answer["content"] == result.text == "y = x" == "".join(event["content"] for event in events)
    assert answer["tokens_evaluated"] == result.prompt_tokens
