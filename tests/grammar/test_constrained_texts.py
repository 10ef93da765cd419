"""Texts under schemas and grammars: those of plain constrained decoding with every method, and valid."""

from __future__ import annotations

import re

import pytest
from constrained import PERSON, PROMPT, model, plain, requests, valid
from spec_grammar import Gbnf, JsonSchema, Lark, Regex, StructuralTags, Tag

from spec_core import Request, Run, Sampling, UsageError
from spec_core.contract.matcher import allows_token
from spec_core.sampling.choose import unpack_mask
from spec_core.testing import Oracle
from spec_core.toolkit import allowed_mask
from tests.support.small_models import tiny_gguf

METHODS = {
    "forced": ["forced"],
    "ngram": ["ngram"],
    "extended": ["ngram++forced"],
    "extends": ["forced++ngram"],
    "suffix-trees": ["suffix"],
    "recycling": ["recycling"],
    "draft-model": None,
}


def methods(name: str) -> list:
    """A draft model with other weights and the same tokens."""
    chosen = METHODS[name]
    return chosen if chosen is not None else [("draft-model", {"file": str(tiny_gguf(1, context=256)), "p_min": 0.0})]


@pytest.mark.parametrize("kind", ["dense", "hybrid"])
@pytest.mark.parametrize("name", METHODS)
def test_the_text_is_that_of_plain_constrained_decoding(name, kind):
    """Greedy and sampled, seed by seed, in a batch beside free text."""
    asked = [*requests(), Request(PROMPT, max_tokens=20, seed=9, name="free")]
    run = Run(model(kind), methods(name))

    results = [g.result for g in run.generate(asked)]

    assert [(r.tokens, r.finish_reason) for r in results] == plain(model(kind), asked)
    assert run.stats.switched_off == {}
    done = [r for r in results[:4] if r.finish_reason == "complete"]
    assert done and all(valid(r.text, PERSON) for r in done)


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal", "k-seq", "point-mass"])
def test_texts_under_every_rule_are_valid(rule):
    """The drafter masks its rows before it draws, or ngram drafts what is forbidden."""
    sampled = [r for r in requests(8, constraint=JsonSchema(PERSON, compact=True)) if r.sampling.temperature]
    for drafting in ("draft-model", "ngram", "forced"):
        run = Run(model(), methods(drafting), rule=rule)
        results = [g.result for g in run.generate(sampled)]
        done = [r for r in results if r.finish_reason == "complete"]
        assert len(done) >= 2 and all(valid(r.text, PERSON) for r in done)


def test_a_draft_model_under_a_mask_drafts_only_what_is_allowed():
    """At temperature 0 every drafted token is allowed after the tokens before it, as long as the text goes on."""
    eog, allowed_or_not = model().info.eog, []

    def look(step):
        for part in step.parts:
            for row, token in enumerate(part.draft.ids if part.draft else ()):
                if unpack_mask(part.masks[row], model().info.vocab).nonzero().flatten().tolist() != sorted(eog):
                    allowed_or_not.append(allows_token(part.masks[row], token))

    run = Run(model(), methods("draft-model"))
    run.observe(look)
    for generation in run.generate(requests(2, constraint=JsonSchema(PERSON, compact=True))):
        generation.result

    assert len(allowed_or_not) > 10 and all(allowed_or_not)


# grammars


GRAMMARS = {
    "regex": (Regex(r"[a-f]{3}/\d{1,3}(foo|bar)"), r"[a-f]{3}/\d{1,3}(foo|bar)"),
    "lark": (Lark('start: "x" ("yes"|"no") N\nN: /[0-9]{4}/'), r"x(yes|no)\d{4}"),
    "gbnf": (
        Gbnf('root ::= "<" item ("," item){2} ">"  # three\nitem ::= [a-c_] [^a-z\\n"]\n'),
        r'<([a-c_][^a-z\n"](,|>)){3}',
    ),
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_text_matches_its_grammar_as_a_whole(name):
    constraint, pattern = GRAMMARS[name]
    for seed in range(3):
        asked = Request(PROMPT, max_tokens=60, seed=seed, constraint=constraint, sampling=Sampling(temperature=1.0))
        result = Run(model()).generate(asked).result
        assert result.finish_reason in ("complete", "stop")
        assert re.fullmatch(pattern, result.text)


def test_one_constraint_serves_many_requests_and_targets():
    constraint = JsonSchema(PERSON, compact=True)
    for kind in ("dense", "hybrid"):
        asked = requests(2, constraint=constraint)
        results = [g.result for g in Run(model(kind)).generate(asked)]
        assert [(r.tokens, r.finish_reason) for r in results] == plain(model(kind), asked)


# free text with calls in it


CALLS = StructuralTags(
    "<call>", [Tag("<call>f=", JsonSchema(PERSON, compact=True), "</call>"), Tag("<call>g=", Regex("[0-9]{2}"), "!")]
)


def ids(text: str) -> list[int]:
    return model().tokenizer.encode(text, bos=False)


def legal(text: str) -> bool:
    matcher = CALLS.start(model())
    return all(matcher.advance(token) for token in ids(text))


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("no call at all", True),
        ("some text <cal", True),
        ("then <call>g=12! and more", True),
        ("then <call>g=12!<call>g=99!", True),
        ("then <call>h", False),
        ("then <call>g=1!", False),
        ('<call>f={"name": "a", "age": 5, "kind": "beta"}</call> end', True),
        ('<call>f={"name": "a", "age": "5"', False),
    ],
)
def test_after_the_trigger_a_tag_must_follow(text, good):
    assert legal(text) is good


def test_the_switch_to_the_grammar_is_found_at_every_draft_position():
    """The trigger begins, ends and continues at every place of a draft; forbidden calls are cut where plain is."""
    right = "to do <call>g=41! or <call>f"
    matcher = CALLS.start(model())
    tokens = ids(right)
    for at in range(len(tokens)):
        rows = matcher.masks(tokens[at:])
        single = []
        other = CALLS.start(model())
        for token in tokens[:at]:
            other.advance(token)
        for token in tokens[at:]:
            single.append(other.masks(())[0])
            assert other.advance(token)
        assert len(rows) == len(tokens) - at + 1
        assert all((a == b).all() for a, b in zip(rows, single, strict=False))
        assert matcher.advance(tokens[at])


@pytest.mark.parametrize("longest", [1, 2, 3, 5, 8, 16])
def test_a_call_in_a_draft_is_held_to_its_grammar(longest):
    """The model is made to write a call (a bias); a draft that goes on with a wrong one is cut, wherever it begins."""
    expected = ids("ab <call>g=")
    bias = dict.fromkeys(expected, 30.0)
    asked = Request(
        PROMPT, max_tokens=40, name="a", constraint=CALLS, sampling=Sampling(temperature=0.7, logit_bias=bias)
    )
    [(tokens, reason)] = plain(model(), [asked])
    wrong = ids("ab <call>h=zz!") * 8
    for text in (tokens, wrong, [*tokens[:3], *wrong]):
        known = {"a": [*ids(PROMPT), *text, *([5] * 60)]}
        run = Run(model(), [Oracle(known, lambda i, seq: True, length=longest)])
        result = run.generate(asked).result
        assert (result.tokens, result.finish_reason) == (tokens, reason)


def test_required_calls_have_no_text_around_them():
    must = StructuralTags("<call>", CALLS.tags, count_min=1, several=False)
    for seed in range(3):
        result = Run(model()).generate(PROMPT, max_tokens=90, seed=seed, temperature=0.8, constraint=must).result
        if result.finish_reason == "complete":
            assert re.fullmatch(r"<call>(f=\{.*\}</call>|g=\d\d!)", result.text)
        else:
            assert result.text.startswith("<call>")


# what is refused


DEEP: dict = {}
for _ in range(100):
    DEEP = {"properties": {"a": DEEP}}

REFUSED = {
    "not-json": (JsonSchema("{"), "is not JSON"),
    "a-list": (JsonSchema("[]"), "the JSON schema is list"),
    "not-a-value": (JsonSchema({"a": object()}), "is not JSON"),
    "unknown-type": (JsonSchema({"type": "foo"}), "cannot be used: .*foo"),
    "not": (JsonSchema({"not": {"type": "string"}}), "cannot be used: .*not"),
    "remote": (JsonSchema({"$ref": "http://localhost:1/x"}), "cannot be used: "),
    "file": (JsonSchema({"$ref": "file:///etc/passwd"}), "cannot be used: "),
    "impossible": (JsonSchema(False), "cannot be used: "),
    "deep": (JsonSchema(DEEP), "nested more than 64 levels"),
    "very-deep": (JsonSchema('{"items":' * 5000 + "1" + "}" * 5000), "nested too deeply"),
    "large": (JsonSchema({"description": "x" * 300_000}), "the limit is 262144"),
    "surrogate": (Regex("\ud800"), "half a surrogate"),
    "look-ahead": (Regex("(?=a)"), "the regular expression cannot be used"),
    "lark": (Lark("start: foo"), "the grammar cannot be used: .*foo"),
    "gbnf-root": (Gbnf('x ::= "a"'), "no rule 'root'"),
    "gbnf-name": (Gbnf('root ::= "a"\n  item'), "line 2 .*no rule 'item'"),
    "gbnf-twice": (Gbnf('root ::= "a"\nroot ::= "b"'), "line 2 .*defined twice"),
    "gbnf-text": (Gbnf('root ::= "a'), "line 1 .*cannot be read"),
    "gbnf-token": (Gbnf("root ::= <[12]>"), "model tokens .*not supported"),
    "gbnf-escape": (Gbnf('root ::= "\\q"'), "escape .*not known"),
    "gbnf-set": (Gbnf("root ::= []"), "set of characters is empty"),
    "gbnf-many": (Gbnf('root ::= "a"{99999}'), "repetition of more than"),
    "tags-trigger": (StructuralTags("<t>", [Tag("x", Regex("a"))]), "does not begin with the trigger"),
    "tags-none": (StructuralTags("<t>", []), "at least one tag"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused_plainly(name):
    constraint, message = REFUSED[name]
    run = Run(model())

    with pytest.raises(UsageError, match=message) as caught:
        run.submit(PROMPT, constraint=constraint)

    assert caught.value.hint and len(caught.value.reason) < 500 and "\n" not in caught.value.reason
    assert not run.busy


HOSTILE = {
    "long-string": {"type": "string", "minLength": 10**8},
    "many-items": {"type": "array", "items": {"type": "integer"}, "minItems": 10**7},
    "powers": {"type": "string", "pattern": "^((((a{1,99}){1,99}){1,99}){1,99})$"},
    "choices": {"type": "string", "pattern": "^(a|aa|aaa)*(b|bb)*(a|b|ab)*c{1000}$"},
    "cycle": {"$ref": "#"},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_ends_quickly_and_alone(name):
    """Refused, or a few tokens of its text, or an error of its own sequence; the other text is not changed."""
    run = Run(model())
    good = Request(PROMPT, max_tokens=8, name="good")
    [(tokens, _)] = plain(model(), [good])
    other = run.submit(good)
    try:
        bad = run.submit(PROMPT, max_tokens=6, constraint=JsonSchema(HOSTILE[name]))
    except UsageError:
        bad = None
    for _ in run:
        pass

    assert run.take(other).tokens == tokens
    assert bad is None or run.results[bad].finish_reason in ("length", "error")


def test_masks_cover_the_rows_of_the_model():
    """A model may have more logits than tokens; those have no bit."""
    matcher = Regex("a+").start(model())
    row = matcher.masks(())

    assert row.shape == (1, -(-model().info.vocab // 32))
    assert allows_token(row[0], ids("a")[0]) and not allows_token(row[0], ids("b")[0])
    assert allowed_mask(type("S", (), {"matcher": matcher})(), ids("a")).any()
