"""The state of a grammar in one text: ``spec_core.Matcher`` by llguidance's LLMatcher."""

from __future__ import annotations

from collections.abc import Sequence
from time import thread_time
from typing import Any

import numpy as np

from spec_core.errors import NoTokenAllowed
from spec_grammar.reason import SIMPLER, panics_as_errors, reason

WORD = 32
MASK_SECONDS = 0.1
"""Time of a processor that one mask may take."""
EXCESS_SECONDS = 0.5
"""Time that the masks of one text may take beyond that, together: other texts wait for them."""
MARKS_MAX = 4
"""Copies of a state that are kept to go back to."""
ROWS_MAX = 64
"""Masks that are kept."""


class GrammarMatcher:
    """The masks of a text and of drafts after it.

    An LLMatcher that was rolled back may allow other tokens than before, so none is: going back is a shorter length,
    and where another token follows there, a copy of an earlier state consumes the tokens up to it. A state is therefore
    always the result of its tokens alone.
    """

    def __init__(self, state: Any, words: Any, vocab: int) -> None:
        """state: an LLMatcher at the beginning of the text. words: the LLTokenizer. vocab: the target's logits."""
        self.words = words
        self.vocab = vocab
        self._state = state
        self._path: list[int] = []  # what the state has consumed
        self._length = 0  # of the text: it is the beginning of the path
        self._marks = [(0, state.deep_copy())]  # ascending lengths, and states after them that no one advances
        self._rows: dict[int, np.ndarray] = {}  # masks after beginnings of the path
        self._excess = 0.0

    @property
    def complete(self) -> bool:
        """Whether no token may follow."""
        return self._length == len(self._path) and bool(self._state.is_stopped())

    def advance(self, token: int) -> bool:
        """Append a token if it is allowed. Raises NoTokenAllowed where the grammar has become too complex."""
        if self._length < len(self._path) and self._path[self._length] == token:
            self._length += 1
            return True
        state = self._current_state()
        with panics_as_errors():
            taken = state.try_consume_tokens([token]) == 1
        _check(state)
        if taken:
            self._path.append(token)
            self._length += 1
        return taken

    def rollback(self, count: int) -> None:
        """Undo the last ``count`` tokens."""
        if count > self._length:
            raise ValueError(f"{count} tokens cannot be undone: the text has {self._length}")
        self._length -= count

    def masks(self, drafted: Sequence[int]) -> np.ndarray:
        """[n, ceil(V / 32)] uint32: the tokens that may follow the text, and those after each allowed drafted token."""
        rows = [self._mask()]
        try:
            for token in drafted:
                if not self.advance(token):
                    break
                rows.append(self._mask())
        finally:
            self.rollback(len(rows) - 1)
        return np.stack(rows)

    def forced_tokens(self, count_max: int) -> list[int]:
        """Tokens, at most ``count_max``, of the bytes that the grammar leaves no choice about, as the tokenizer
        writes them.
        """
        with panics_as_errors():
            follow = self._current_state().deep_copy().compute_ff_bytes()
            return self.words.tokenize_bytes(follow)[:count_max] if follow else []

    def _current_state(self) -> Any:
        """The state after the text."""
        if self._length < len(self._path):
            while self._marks[-1][0] > self._length:
                self._marks.pop()
            at, state = self._marks[-1]
            state = state.deep_copy()
            if at < self._length:
                state.consume_tokens(self._path[at : self._length])
                self._marks.append((self._length, state.deep_copy()))
                del self._marks[1 : 1 + len(self._marks) - MARKS_MAX]
            _check(state)
            self._state = state
            del self._path[self._length :]
            self._rows = {length: row for length, row in self._rows.items() if length <= self._length}
        return self._state

    def _mask(self) -> np.ndarray:
        """[ceil(V / 32)] uint32, not to be changed: a drafter and the verification ask for the same ones."""
        if self._length not in self._rows:
            while len(self._rows) >= ROWS_MAX:
                del self._rows[min(self._rows)]
            self._rows[self._length] = self._compute_mask()
        return self._rows[self._length]

    def _compute_mask(self) -> np.ndarray:
        """Compute a mask outside of the interpreter's lock."""
        state = self._current_state()
        row = np.zeros(-(-self.vocab // WORD), np.int32)
        begun = thread_time()
        with panics_as_errors():
            state.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        _check(state)
        self._charge(thread_time() - begun)
        return row.view(np.uint32)

    def _charge(self, seconds: float) -> None:
        """Raise NoTokenAllowed for a grammar whose masks take too long, since all texts wait for them."""
        self._excess += max(0.0, seconds - MASK_SECONDS)
        if self._excess > EXCESS_SECONDS:
            raise NoTokenAllowed(
                f"the grammar is too ambiguous: its masks took {self._excess:.1f} s more than {MASK_SECONDS} s each",
                hint=SIMPLER,
            )


def _check(state: Any) -> None:
    """Raise NoTokenAllowed where the grammar has become too complex."""
    if state.is_error():
        raise NoTokenAllowed(f"the grammar became too complex: {reason(state.get_error())}", hint=SIMPLER)
