"""The state of a constraint in one text, and its masks at every row of a draft."""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from typing import Protocol

import numpy as np

from spec_core.contract.values import Draft

WORD = 32
"""Tokens per word of a mask."""


class Matcher(Protocol):
    """The state of a constraint after the output so far; the prompt is no part of it."""

    @property
    def complete(self) -> bool:
        """Whether the text is complete and no token may follow. Where it may end or go on, this is False."""

    def advance(self, token: int) -> bool:
        """Append a token. False if it is not allowed here; then nothing changes."""

    def rollback(self, count: int) -> None:
        """Undo the last ``count`` tokens."""

    def masks(self, drafted: Tokens[int]) -> np.ndarray:
        """[n, ceil(V / 32)] uint32, n = 1 + number of drafted tokens up to the first that is not allowed.

        Row i: the tokens that may follow the text and the first i drafted tokens; token ``id`` is bit ``id % 32`` of
        word ``id // 32``. Tokens of ``target.info.eog`` are set where the text may end. Nothing changes.
        """

    def forced_tokens(self, count_max: int) -> list[int]:
        """Tokens, at most ``count_max``, that probably follow: the constraint leaves no other text. Nothing changes."""


def words(vocab: int) -> int:
    """Number of words of a mask."""
    return -(-vocab // WORD)


def allows_token(mask: np.ndarray, token: int) -> bool:
    """Whether a mask [W] has the bit of this token."""
    return bool(int(mask[token // WORD]) >> token % WORD & 1)


def draft_masks(matcher: Matcher, draft: Draft | None, ends: frozenset[int], vocab: int) -> np.ndarray:
    """[1+K, W] uint32: the masks of committed text and of every draft token.

    Rows that nothing can reach are full, so that a rule finds a distribution there: those after a token that is not
    allowed, that ends the text (``ends``) or that completes it. Raises ValueError for masks of another shape.
    """
    rows = np.full((1 + (0 if draft is None else len(draft)), words(vocab)), 0xFFFFFFFF, np.uint32)
    if draft is None or draft.parents is None:
        ids = [] if draft is None else _until(draft.ids, ends)
        masks = matcher.masks(ids)
        rows[: len(_check_masks(masks, 1 + len(ids), vocab))] = masks
    else:
        _tree(matcher, draft, ends, rows, vocab)
    return rows


def _until(ids: Tokens[int], ends: frozenset[int]) -> list[int]:
    at = next((i for i, token in enumerate(ids) if token in ends), len(ids))
    return list(ids[:at])


def _tree(matcher: Matcher, draft: Draft, ends: frozenset[int], rows: np.ndarray, vocab: int) -> None:
    """Depth first, so that the matcher goes back by one token at a time. Equal siblings have rows of their own."""
    below: dict[int, list[int]] = {}
    for child, parent in enumerate(draft.parents or ()):
        below.setdefault(parent, []).append(child)

    def visit(node: int) -> None:
        rows[1 + node] = _check_masks(matcher.masks(()), 1, vocab)[0]
        for child in below.get(node, ()):
            if draft.ids[child] not in ends and matcher.advance(draft.ids[child]):
                if not matcher.complete:
                    visit(child)
                matcher.rollback(1)

    visit(-1)


def _check_masks(masks: np.ndarray, count_max: int, vocab: int) -> np.ndarray:
    shape = getattr(masks, "shape", None)
    if shape is None or len(shape) != 2 or not 1 <= shape[0] <= count_max or shape[1] != words(vocab):
        raise ValueError(f"masks of shape {shape}: needed are 1 to {count_max} rows of {words(vocab)} words")
    if masks.dtype != np.uint32:
        raise ValueError(f"masks of type {masks.dtype}: needed is uint32")
    return masks
