"""Constraints on models whose vocabulary writes a space before a whole text: a fragment has none."""

from __future__ import annotations

import json
import re

import pytest
from constrained import valid
from spec_grammar import Gbnf, JsonSchema, Lark, Regex, StructuralTags, Tag
from spec_grammar.words import words_of

from spec_core import Run, Sampling
from tests.support.space_prefix import FAMILIES, FORMS, model

MODELS = [(family, form) for family in FAMILIES for form in FORMS]
CALL = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "New York"]}, "days": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
CALLED = JsonSchema(CALL, compact=True)
CONSTRAINTS = {
    "schema": (CALLED, lambda text: valid(text, CALL)),
    "choice": (JsonSchema({"enum": ["yes", "no", "a b"]}), lambda text: json.loads(text) in ("yes", "no", "a b")),
    "regex": (Regex("[a-c]{3} [0-9]{2}"), re.compile("[a-c]{3} [0-9]{2}").fullmatch),
    "leading-space": (Regex(" (Paris|Rome)"), re.compile(" (Paris|Rome)").fullmatch),
    "lark": (Lark('start: "hello world" N\nN: /[0-9]{4}/'), re.compile(r"hello world\d{4}").fullmatch),
    "gbnf": (Gbnf('root ::= "x y" [0-9]{2}'), re.compile(r"x y\d\d").fullmatch),
    "tag": (
        StructuralTags("<call>", [Tag("<call>f=", CALLED, "</call>")], count_min=1, several=False),
        lambda text: text.startswith("<call>f=") and valid(text[8:].removesuffix("</call>"), CALL),
    ),
    "control-tag": (
        StructuralTags("<s>", [Tag("<s>f ", CALLED, "")], count_min=1, several=False),
        lambda text: text.startswith("f {"),
    ),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("family, form", MODELS)
def test_a_constrained_text_is_valid_and_that_of_plain_decoding(family, form, name):
    constraint, right = CONSTRAINTS[name]
    target = model(family, form)
    asked = {"constraint": constraint, "max_tokens": 120, "seed": 5, "sampling": Sampling(temperature=1.0)}
    texts = []
    for methods in ([], ["forced"], ["ngram", "forced"]):
        with Run(target, methods) as run:
            result = run.generate("The answer is", **asked).result
            assert run.stats.switched_off == {}
        texts.append((result.tokens, result.text))
        assert result.finish_reason in ("complete", "stop") and right(result.text), result.text

    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize("family, form", MODELS)
def test_forced_tokens_are_accepted_where_they_are_drafted(family, form):
    target = model(family, form)
    matcher = CALLED.start(target)
    ids = matcher.forced_tokens(32)

    assert b"".join(map(target.tokenizer.token_bytes, ids)) == b'{"city": "'
    assert all(map(matcher.advance, ids))


def test_forced_tokens_of_a_vocabulary_that_composes_characters_have_the_grammars_bytes():
    """A tokenizer with NFC writes other bytes for a decomposed character; its longest tokens are used."""
    from spec_core import load
    from tests.support.golden import golden

    target = load(golden("qwen3") / "hf", dtype="float32", device="cpu")
    text = "cafe\u0301 e\u0301"
    with Run(target, ["forced"]) as run:
        result = run.generate("x", constraint=JsonSchema({"const": text}, compact=True), max_tokens=60).result

    assert target.tokenizer.decode(target.tokenizer.encode(text)) != text
    assert json.loads(result.text) == text and result.finish_reason == "complete"
    assert words_of(target).tokenize_str(text)
