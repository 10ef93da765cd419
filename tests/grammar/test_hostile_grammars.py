"""Grammars of strangers: long chains of references, and what takes too long, are refused; no process ends."""

from __future__ import annotations

import pytest
from spec_grammar import Gbnf, JsonSchema, Lark, Regex, StructuralTags, Tag
from spec_grammar.gbnf import lark_of
from spec_grammar.matcher import EXCESS_SECONDS, GrammarMatcher
from spec_grammar.reason import reason
from spec_grammar.references import lark_depth, schema_depth
from spec_grammar.trial import trial_process

from spec_core import UsageError, load
from spec_core.errors import NoTokenAllowed

TARGET = load("zoo:pico")


def chain(link, count=2_600):
    """A schema in which every definition refers to the next one."""
    definitions = {f"d{i}": link({"$ref": f"#/$defs/d{i + 1}"}) for i in range(count)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{count}": {"type": "integer"}}}


def rules(define, count=9_000):
    """A grammar in which every rule is the next one."""
    return "\n".join(
        [define("start", "r0"), *(define(f"r{i}", f"r{i + 1}") for i in range(count)), define(f"r{count}", '"a"')]
    )


CHAINS = {
    "properties": lambda: JsonSchema(chain(lambda r: {"type": "object", "properties": {"a": r}})),
    "bare": lambda: JsonSchema(chain(lambda r: r, 6_000)),
    "anyOf": lambda: JsonSchema(chain(lambda r: {"anyOf": [r]})),
    "allOf": lambda: JsonSchema(chain(lambda r: {"allOf": [r]})),
    "items": lambda: JsonSchema(chain(lambda r: {"items": r})),
    "ids": lambda: JsonSchema(
        {"$ref": "u:0", "$defs": {str(i): {"$id": f"u:{i}", "$ref": f"u:{i + 1}"} for i in range(4_000)}}
    ),
    "anchors": lambda: JsonSchema(
        {"$ref": "#0", "$defs": {str(i): {"$anchor": str(i), "$ref": f"#{i + 1}"} for i in range(4_000)}}
    ),
    "lark": lambda: Lark(rules("{}: {}".format)),
    "lark terminals": lambda: Lark(
        "start: R0\n" + "\n".join(f'R{i}: R{i + 1} "a"' for i in range(9_000)) + '\nR9000: "b"'
    ),
    "gbnf": lambda: Gbnf(rules("{} ::= {}".format).replace("start", "root")),
    "gbnf cycle": lambda: Gbnf(
        "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1}" for i in range(9_000)) + "\nr9000 ::= root"
    ),
}


@pytest.mark.parametrize("kind", CHAINS)
def test_a_long_chain_of_references_is_refused(kind):
    with pytest.raises(UsageError, match=r"chain of \d+ references"):
        CHAINS[kind]().start(TARGET)


@pytest.mark.parametrize("kind", CHAINS)
def test_a_long_chain_inside_a_tag_is_refused(kind):
    with pytest.raises(UsageError, match=r"chain of \d+ references"):
        StructuralTags("<t>", [Tag("<t>", CHAINS[kind](), "</t>")]).start(TARGET)


def test_without_the_bound_the_trial_ends_and_not_this_process(monkeypatch):
    """A chain that the bound does not see overflows the stack of another process."""
    monkeypatch.setattr("spec_grammar.grammar_limits.PATH_MAX", 1 << 30)

    with pytest.raises(UsageError, match="overflowed its stack"):
        CHAINS["lark"]().start(TARGET)

    assert JsonSchema({"type": "integer"}).start(TARGET).masks([]).any()


@pytest.mark.parametrize(
    "constraint",
    [JsonSchema({"type": "integer", "multipleOf": 99_999_989}), Regex("a?" * 40_000)],
    ids=["multipleOf", "regex"],
)
def test_what_takes_too_long_to_compile_is_refused(constraint):
    with pytest.raises(UsageError, match="too complex"):
        constraint.start(TARGET)


def test_a_grammar_that_was_compiled_is_not_tried_again():
    first = JsonSchema({"type": "object", "title": "tried once"})
    first.start(TARGET)
    starts = trial_process().starts
    trial_process().close()

    JsonSchema({"type": "object", "title": "tried once"}).start(TARGET)

    assert trial_process().starts == starts


def test_masks_that_take_too_long_end_the_text(monkeypatch):
    """Every text of a run waits for the masks of one."""
    matcher = JsonSchema({"type": "object"}).start(TARGET)
    clock = iter(range(100))
    monkeypatch.setattr("spec_grammar.matcher.thread_time", lambda: next(clock) * (EXCESS_SECONDS / 2 + 0.1 + 1e-3))

    matcher.masks([])
    assert matcher.advance(TARGET.tokenizer.encode("{", bos=False)[0])
    assert isinstance(matcher, GrammarMatcher)
    with pytest.raises(NoTokenAllowed, match="too ambiguous"):
        matcher.masks([])


def test_many_rules_of_gbnf_are_read_in_one_pass():
    """Terminals are found rule by rule, not by going through all rules for each."""
    text = lark_of(
        "root ::= "
        + " | ".join(f"r{i}" for i in range(5_000))
        + "\n"
        + "\n".join(f'r{i} ::= "a"' for i in range(5_000))
    )

    assert text.startswith("start: T0\nT0: T1 | T2")


@pytest.mark.parametrize(
    ("schema", "depth"),
    [
        (True, 1),
        ({"type": "object"}, 1),
        ({"$ref": "#"}, 1),
        ({"properties": {"a": {"type": "integer"}}}, 3),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {}}}, 4),
        ({"$ref": "#/%24defs/a~1b", "$defs": {"a/b": {}}}, 3),
        ({"$ref": "#/nowhere"}, 1),
        ({"allOf": [{"$ref": "#/allOf/1"}, {}]}, 4),
    ],
    ids=str,
)
def test_depth_of_a_schema_counts_references_and_nesting(schema, depth):
    assert schema_depth(schema) == depth


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("", 0),
        ('start: "a"', 1),
        ("start: a\na: b\nb: start", 3),
        ('start: "a: b" /b: c/ // b\nb: start', 1),
        ("start[lazy]: A\n?A.2: B\nB: /x/", 3),
        ('%ignore /b/\nstart: b\n  | c\nb: c\nc: "x"', 3),
    ],
    ids=str,
)
def test_depth_of_a_grammar_counts_rules_that_name_others(text, depth):
    assert lark_depth(text) == depth


@pytest.mark.parametrize(
    "schema",
    [{"maximum": 2**63}, {"minimum": -(2**63) - 1}, {"enum": [1, 2**70]}, {"items": {"const": {"a": [2**64]}}}],
    ids=str,
)
def test_whole_numbers_beyond_64_bits_are_refused(schema):
    """The library would cut them, and hold the text to another number."""
    with pytest.raises(UsageError, match="beyond 64 bits"):
        JsonSchema(schema).start(TARGET)


def test_the_largest_whole_numbers_are_kept():
    matcher = JsonSchema({"const": 2**63 - 1}).start(TARGET)

    assert all(matcher.advance(token) for token in TARGET.tokenizer.encode(str(2**63 - 1), bos=False))


def test_an_error_of_the_library_has_no_backtrace():
    text = "panicked at src/lib.rs\nstack backtrace:\n   0: 0x7f at /home/user/.cargo"

    assert reason(text) == "panicked at src/lib.rs"


def test_a_panic_of_the_library_is_an_error_of_its_text():
    class PanicException(BaseException):
        pass

    class Panics:
        def __getattr__(self, name):
            raise PanicException("index out of bounds\n   0: 0x7f /root/.cargo/registry")

        def deep_copy(self):
            return self

    matcher = GrammarMatcher(Panics(), None, 8)
    for call in (lambda: matcher.masks([]), lambda: matcher.advance(1), lambda: matcher.forced_tokens(1)):
        with pytest.raises(NoTokenAllowed, match=r"index out of bounds\n"):
            call()
