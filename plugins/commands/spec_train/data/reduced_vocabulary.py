"""Token counts of the data: which tokens a head can draft, and which one stands for an unknown token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spec_core.errors import UsageError
from spec_train.data.samples import TextSample

DRAFT_VOCAB_MIN = 8192
"""Min tokens that can be drafted by default, of a vocabulary that is at least twice as large."""


def count_tokens(texts: Sequence[TextSample], vocab: int) -> np.ndarray:
    """[vocab] how often each token occurs."""
    counts = np.zeros(vocab, dtype=np.int64)
    for text in texts:
        counts += np.bincount(text.tokens, minlength=vocab)[:vocab]
    return counts


def default_draft_vocab(vocab: int) -> int:
    """Default number of tokens that a head can draft: a quarter of a large vocabulary, as in published heads."""
    return vocab if vocab < 2 * DRAFT_VOCAB_MIN else max(DRAFT_VOCAB_MIN, vocab // 4)


def most_frequent(answers: np.ndarray, all_texts: np.ndarray, count: int) -> tuple[np.ndarray, float]:
    """Ids, ascending, of the ``count`` most frequent tokens, and their share of all tokens. Both inputs are counts
    [vocab]; counts in answers go first, counts in all texts decide between tokens that no answer has."""
    chosen = np.sort(np.lexsort((-all_texts, -answers))[:count])
    counts = answers if answers.any() else all_texts
    return chosen, float(counts[chosen].sum() / max(1, counts.sum()))


def unused_token(counts: np.ndarray) -> int:
    """The last token that no text has. Raises UsageError if all tokens occur."""
    unused = np.flatnonzero(counts == 0)
    if not len(unused):
        raise UsageError("every token occurs in the texts", hint="choose the mask token with --mask ID")
    return int(unused[-1])
