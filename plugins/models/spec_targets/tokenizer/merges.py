"""Merges of a vocabulary: the list of a file, or made from SentencePiece's scores; in C if the extension was built."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spec_targets.native import module

CHARACTERS_MAX = 256
"""Characters of a piece that merges make."""
Merges = list[tuple[str, str]]


def listed_merges(tokens: list[str], ids: Mapping[str, int], texts: Sequence[Any]) -> Merges:
    """Left and right sides of every merge whose sides and result are tokens, as the texts in ``tokens``: 50,000 copies
    would take five megabytes. ids: first id of every text. texts: ``LEFT RIGHT``."""
    if module is not None:
        return module.listed_merges(tokens, texts, secrets.randbits(64))
    return [(tokens[ids[left]], tokens[ids[right]]) for left, right in map(_sides, texts) if _fits(left, right, ids)]


def is_merge(text: Any, ids: Mapping[str, int]) -> bool:
    """Whether a text is a merge of two tokens to a third."""
    return _fits(*_sides(text), ids)


def _sides(text: Any) -> tuple[str, str]:
    """Left and right side of a merge, empty if there is no space; the left side may itself begin with a space."""
    at = text.find(" ", 1) if isinstance(text, str) else -1
    return (text[:at], text[at + 1 :]) if at > 0 else ("", "")


def _fits(left: str, right: str, ids: Mapping[str, int]) -> bool:
    return left != "" and left in ids and right in ids and left + right in ids


def scored_merges(
    tokens: list[str], ids: Mapping[str, int], scores: Sequence[float], merged: Sequence[bool], unknown: str
) -> Merges:
    """SentencePiece's merges, best first: splits of a piece into two pieces, by the piece's score.

    Among equal scores, which user-defined pieces have, the longer left side is first. In C, splits that never happen
    are left out. merged: whether merges make the piece. unknown: text of the token for unknown characters.
    """
    if module is None:
        return all_scored_merges(tokens, ids, scores, merged)
    values = np.asarray(scores, dtype=np.float64)
    order = np.flatnonzero(merged)
    order = order[np.argsort(-values[order], kind="stable")]
    ranks = np.full(len(tokens), -1, dtype=np.int32)
    ranks[order] = [0, *np.cumsum(np.diff(values[order]) != 0)][: len(order)]
    return module.scored_merges(
        tokens, order.astype(np.int32).tobytes(), ranks.tobytes(), unknown, secrets.randbits(64)
    )


def all_scored_merges(
    tokens: list[str], ids: Mapping[str, int], scores: Sequence[float], merged: Sequence[bool]
) -> Merges:
    """All splits, in Python."""
    merges: list[tuple[float, tuple[str, str]]] = []
    for piece, score, is_merged in zip(tokens, scores, merged, strict=True):
        if is_merged and len(piece) <= CHARACTERS_MAX:
            splits = [(piece[:n], piece[n:]) for n in range(1, len(piece))]
            merges += [(-score, pair) for pair in splits if pair[0] in ids and pair[1] in ids]
    merges.sort(key=lambda entry: (entry[0], -len(entry[1][0]), -len(entry[1][1])))
    return [pair for _, pair in merges]
