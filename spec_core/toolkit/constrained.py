"""Tokens that a request's constraint allows after drafted tokens. For drafters.

A constraint that raises ends its own sequence here too: it is no failure of the drafter that asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Tokens
from contextlib import contextmanager

import numpy as np

from spec_core.contract.constraint import fail_sequence
from spec_core.contract.fields import field_of
from spec_core.contract.matcher import Matcher
from spec_core.contract.sequence import Sequence
from spec_core.errors import FOREIGN, as_exception


def allowed_mask(seq: Sequence, drafted: Tokens[int] = ()) -> np.ndarray | None:
    """[ceil(V / 32)] uint32: the tokens that may follow the committed text and ``drafted``, token ``id`` as bit
    ``id % 32`` of word ``id // 32``; none where ``drafted`` is not allowed or completes the text.

    None for a sequence without a constraint: all tokens may follow.
    """
    matcher: Matcher | None = field_of(seq, "matcher")
    if matcher is None:
        return None
    try:
        with _after(matcher, drafted) as there:
            mask = matcher.masks(())[0]
            return mask.copy() if there else np.zeros_like(mask)
    except FOREIGN as error:
        fail_sequence(seq, as_exception(error))
        return None


def forced_tokens(seq: Sequence, drafted: Tokens[int], count_max: int) -> list[int]:
    """Tokens, at most ``count_max``, that the constraint leaves no choice about, after committed text and ``drafted``.

    Another tokenization of the same text may be allowed, so they are probable, not certain. Empty without a constraint.
    """
    matcher: Matcher | None = field_of(seq, "matcher")
    if matcher is None or count_max < 1:
        return []
    try:
        with _after(matcher, drafted) as there:
            return list(matcher.forced_tokens(count_max))[:count_max] if there else []
    except FOREIGN as error:
        fail_sequence(seq, as_exception(error))
        return []


@contextmanager
def _after(matcher: Matcher, drafted: Tokens[int]) -> Iterator[bool]:
    """The matcher after these tokens while the block runs; False where they are not allowed or complete the text."""
    taken = 0
    try:
        for token in drafted:
            if not matcher.advance(token):
                break
            taken += 1
        yield taken == len(drafted) and not matcher.complete
    finally:
        if taken:
            matcher.rollback(taken)
