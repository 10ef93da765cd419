"""From a grammar to a state per request: compiled once per tokenizer, and copied for every request."""

from __future__ import annotations

import json
from typing import Any
from weakref import WeakKeyDictionary

import attrs

from spec_core import Target, UsageError
from spec_grammar.matcher import GrammarMatcher
from spec_grammar.words import library, words_of

Grammars = list[dict[str, Any]]
"""Grammars as llguidance reads them: the first is that of the text, others have a name."""
LIMITS = {"max_grammar_size": 200_000, "initial_lexer_fuel": 1_000_000, "step_lexer_fuel": 200_000}
"""Of llguidance, for one grammar: symbols, and work of its lexer. A larger one is an error."""
REASON_MAX = 300
"""Characters of an error that are shown."""


@attrs.define(eq=False)
class Compiled:
    """What constraints share: ``start``. Subclasses give their grammars, which may depend on the tokenizer.

    what: names the constraint in messages.
    """

    _ready: WeakKeyDictionary[Any, Any] = attrs.field(factory=WeakKeyDictionary, init=False, repr=False)

    what = "the grammar"

    def grammars(self, target: Target) -> Grammars:
        raise NotImplementedError

    def start(self, target: Target) -> GrammarMatcher:
        """A state at the beginning of the text. Raises UsageError for a grammar that cannot be compiled."""
        ready = self._ready.get(target.tokenizer)
        if ready is None:
            self.check()
            ready = self._compile(target)
            self._ready[target.tokenizer] = ready
        return GrammarMatcher(ready.deep_copy(), words_of(target), target.info.vocab)

    def check(self) -> None:
        """Check limits before anything is compiled. Raises UsageError."""

    def _compile(self, target: Target) -> Any:
        llguidance = library()
        words = words_of(target)
        limits = llguidance.LLParserLimits(**LIMITS, verbose_errors=False)
        made = llguidance.LLMatcher(words, text_of(self.grammars(target)), log_level=0, limits=limits)
        if made.is_error():
            raise UsageError(f"{self.what} cannot be used: {reason(made.get_error())}", hint=self.advice)
        return made

    @property
    def advice(self) -> str:
        return "correct the grammar; docs/structured-output.md says what is supported"


def text_of(grammars: Grammars) -> str:
    return json.dumps({"grammars": grammars})


def reason(error: str) -> str:
    """The message of llguidance in one line, without its internal state."""
    said = " ".join(error.split("<state>")[0].split())
    return said if len(said) <= REASON_MAX else f"{said[: REASON_MAX - 3]}..."
