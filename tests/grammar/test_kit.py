"""Every kind of grammar keeps the promises of constraints, on texts that are rich in brackets, commas and line ends."""

from __future__ import annotations

import pytest
from spec_grammar import Gbnf, JsonSchema, Lark, Regex, StructuralTags, Tag

from spec_core import load
from spec_core.testing import ConstraintConformance

TARGET = load("zoo:pico")
JOINED = tuple(
    i
    for i in range(TARGET.tokenizer.vocab_size)
    if (text := TARGET.tokenizer.token_bytes(i)) and text[0] in b'{}[]",:' and set(text[1:]) == {10}
)
"""A bracket, comma or quote that is joined with line ends in one token."""
NESTED = ('{"a":', '{"b":', '"c"', ',"d":', '[["e"', ',{"f":', "1", "}]]", "}", ',"g":', '["h"', "]}")
"""JSON in parts that are encoded alone, so that tokens end where parts of the grammar do."""
ARITHMETIC = 'root ::= term ([ \\n]* "+" [ \\n]* term)*\nterm ::= [a-z]+ | "(" root ")"'
MADE = {
    "object": lambda: JsonSchema({"type": "object"}),
    "any": lambda: JsonSchema(True),
    "array": lambda: JsonSchema({"type": "array", "items": {"type": "object"}}),
    "compact": lambda: JsonSchema({"type": "object"}, compact=True),
    "regex": lambda: Regex(r'(\[("[a-z]*",?\s*)*\]\n?)+'),
    "lark": lambda: Lark('start: "{" pair ("," pair)* "}"\npair: /"[a-z]*"/ ":" (start | /\\[[ \\n,]*\\]/)'),
    "gbnf": lambda: Gbnf(ARITHMETIC),
    "tags": lambda: StructuralTags("<t>", [Tag("<t>", JsonSchema({"type": "object"}), "</t>")], count_min=1),
}


@pytest.mark.parametrize("kind", MADE)
class TestGrammars(ConstraintConformance):
    structural = JOINED
    places = 200

    @pytest.fixture(autouse=True)
    def _kind(self, kind):
        self.kind = kind

    def make(self):
        return MADE[self.kind]()

    def target(self):
        return TARGET

    def documents(self):
        nested = {"object", "any"}
        text = [token for part in NESTED for token in TARGET.tokenizer.encode(part, bos=False)]
        return [text] if self.kind in nested else []

    def prompts(self):
        return [[5, 6, 7]]


def test_a_draft_that_ends_two_levels_leaves_no_trace():
    """A comma or bracket that is joined with a line end in one token, two levels deep."""
    looked, plain = (JsonSchema({"type": "object"}).start(TARGET) for _ in range(2))
    for token in TARGET.tokenizer.encode('{"a":{"b":"c"', bos=False):
        assert looked.advance(token) and plain.advance(token)

    assert looked.advance(340)
    looked.masks([])
    looked.rollback(1)

    assert looked.advance(2623) and plain.advance(2623)
    assert (looked.masks([]) == plain.masks([])).all()
