"""The state of a grammar in one text: ``spec_core.Matcher`` by llguidance's LLMatcher."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import attrs
import numpy as np

from spec_grammar.words import library

WORD = 32


@attrs.define(eq=False)
class GrammarMatcher:
    """The masks of a text and of drafts after it. words: the LLTokenizer. vocab: number of logits of the target."""

    state: Any
    words: Any
    vocab: int

    @property
    def complete(self) -> bool:
        """Whether no token may follow."""
        return self.state.is_stopped()

    def advance(self, token: int) -> bool:
        """Append a token if it is allowed. Raises RuntimeError where the grammar has become too complex."""
        taken = self.state.try_consume_tokens([token]) == 1
        self._check()
        return taken

    def rollback(self, count: int) -> None:
        """Undo the last ``count`` tokens."""
        if not self.state.rollback(count):
            self._check()

    def masks(self, drafted: Sequence[int]) -> np.ndarray:
        """[n, ceil(V / 32)] uint32: the tokens that may follow the text, and those after each allowed drafted token.

        All in one call of llguidance, outside of the interpreter's lock.
        """
        allowed = list(drafted[: self.state.validate_tokens(list(drafted))]) if drafted else []
        rows = np.zeros((1 + len(allowed), -(-self.vocab // WORD)), np.int32)
        place = rows.ctypes.data, rows.shape[1] * rows.itemsize
        if allowed:
            executor().unsafe_compute_mask_ptr_with_draft_token([(self.state, 0, allowed)], *place, len(rows))
        else:
            self.state.unsafe_compute_mask_ptr(*place)
        self._check()
        return rows.view(np.uint32)

    def forced(self, count_max: int) -> list[int]:
        """Up to ``count_max`` tokens of the bytes that the grammar leaves no choice about, as the tokenizer
        writes them.
        """
        follow = self.state.compute_ff_bytes()
        return self.words.tokenize_bytes(follow)[:count_max] if follow else []

    def _check(self) -> None:
        if self.state.is_error():
            raise RuntimeError(self.state.get_error().split("<state>")[0].strip())


@cache
def executor() -> Any:
    """One thread: drafts are short, and the cores belong to the model."""
    return library().LLExecutor(num_threads=1)
