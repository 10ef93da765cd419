"""Turns a grammar into a state per request: compiled once per tokenizer, and copied for every request."""

from __future__ import annotations

import json
from typing import Any
from weakref import WeakKeyDictionary

import attrs

from spec_core import Target, UsageError
from spec_grammar.grammar_limits import check_references
from spec_grammar.matcher import GrammarMatcher
from spec_grammar.reason import reason
from spec_grammar.recent import RECENT
from spec_grammar.trial import try_grammar
from spec_grammar.words import library, words_of

Grammars = list[dict[str, Any]]
"""Grammars as llguidance reads them: the first is that of the text, others have a name."""
LIMITS = {
    "max_grammar_size": 200_000,
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 200_000,
    "step_max_items": 10_000,
    "verbose_errors": False,
}
"""Limits of llguidance for one grammar: symbols, work of its lexer, and items of its parser for one mask."""
SECONDS_KEPT_MAX = 0.1
"""A grammar that took longer to compile may be large, and is not kept for later requests."""


@attrs.define(eq=False)
class Compiled:
    """Base class of constraints, with ``start``. Subclasses give their grammars, which may depend on the tokenizer.

    what: names the constraint in messages.
    """

    _ready: WeakKeyDictionary[Any, Any] = attrs.field(factory=WeakKeyDictionary, init=False, repr=False)

    what = "the grammar"

    def grammars(self, target: Target) -> Grammars:
        raise NotImplementedError

    def start(self, target: Target) -> GrammarMatcher:
        """A state at the beginning of the text. Raises UsageError for a grammar that cannot be compiled."""
        words = words_of(target)
        ready = self._ready.get(target.tokenizer)
        if ready is None:
            self.check()
            ready = self._ready[target.tokenizer] = self._compile(target, words)
        return GrammarMatcher(ready.deep_copy(), words, target.info.vocab)

    def check(self) -> None:
        """Check limits before anything is compiled. Raises UsageError."""

    def _compile(self, target: Target, words: Any) -> Any:
        """Compile in a process of its own first, unless the same grammar was compiled before."""
        grammars = self.grammars(target)
        text = text_of(grammars)
        if (ready := RECENT.get(target.tokenizer, text)) is not None:
            return ready
        check_references(self.what, grammars)
        trial = try_grammar(target, text, LIMITS)
        if trial.error:
            raise UsageError(f"{self.what} cannot be used: {reason(trial.error)}", hint=self.advice)
        llguidance = library()
        limits = llguidance.LLParserLimits(**LIMITS)
        ready = llguidance.LLMatcher(words, text, log_level=0, limits=limits)
        if ready.is_error():
            raise UsageError(f"{self.what} cannot be used: {reason(ready.get_error())}", hint=self.advice)
        if trial.seconds < SECONDS_KEPT_MAX:
            RECENT.add(target.tokenizer, text, ready)
        return ready

    @property
    def advice(self) -> str:
        return "correct the grammar; docs/structured-output.md says what is supported"


def text_of(grammars: Grammars) -> str:
    return json.dumps({"grammars": grammars}, allow_nan=False)
