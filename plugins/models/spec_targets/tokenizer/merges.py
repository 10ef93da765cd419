"""Merges of a vocabulary: the list of a file, or made from SentencePiece's scores; in C if the extension was built."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from spec_targets.formats.native import module

CHARACTERS_MAX = 256
"""Characters of a piece that merges make."""


class Merges(Sequence[tuple[str, str]]):
    """Left and right sides, made from their ids when they are read: a list of them takes 80 bytes each."""

    def __init__(self, tokens: list[str], lefts: Sequence[int], rights: Sequence[int]) -> None:
        self.tokens, self.lefts, self.rights = tokens, lefts, rights

    def __len__(self) -> int:
        return len(self.lefts)

    @overload
    def __getitem__(self, at: int) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[tuple[str, str]]: ...
    def __getitem__(self, at: int | slice) -> tuple[str, str] | Sequence[tuple[str, str]]:
        if isinstance(at, slice):
            return Merges(self.tokens, self.lefts[at], self.rights[at])
        return self.tokens[self.lefts[at]], self.tokens[self.rights[at]]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        text_of = self.tokens.__getitem__
        return zip(map(text_of, self.lefts), map(text_of, self.rights), strict=True)


def listed_merges(tokens: list[str], ids: Mapping[str, int], texts: Sequence[Any]) -> Merges:
    """Every merge whose sides and result are tokens. ids: first id of every text. texts: ``LEFT RIGHT``."""
    if module is not None:
        return _from_sides(tokens, module.listed_merges(tokens, texts, secrets.randbits(64)))
    pairs = [(ids[left], ids[right]) for left, right in map(_sides, texts) if _fits(left, right, ids)]
    return Merges(tokens, *_columns(pairs))


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
    tokens: list[str], ids: Mapping[str, int], scores: Sequence[float], merged: bytes, unknown: str
) -> Merges:
    """SentencePiece's merges, best first: splits of a piece into two pieces, by the piece's score.

    Among equal scores, which user-defined pieces have, the longer left side is first. In C, splits that never happen
    are left out. merged: a byte for each token, 0 if no merge makes it. unknown: text of the token for unknown
    characters.
    """
    if module is None:
        return all_scored_merges(tokens, ids, scores, merged)
    values = np.asarray(scores, dtype=np.float64)
    order = np.flatnonzero(np.frombuffer(merged, dtype=np.uint8))
    order = order[np.argsort(-values[order], kind="stable")]
    ranks = np.full(len(tokens), -1, dtype=np.int32)
    ranks[order] = [0, *np.cumsum(np.diff(values[order]) != 0)][: len(order)]
    ways = order.astype(np.int32).tobytes(), ranks.tobytes()
    return _from_sides(tokens, module.scored_merges(tokens, *ways, unknown, secrets.randbits(64)))


def all_scored_merges(tokens: list[str], ids: Mapping[str, int], scores: Sequence[float], merged: bytes) -> Merges:
    """All splits, in Python."""
    merges: list[tuple[float, str, str]] = []
    for piece, score, is_merged in zip(tokens, scores, merged, strict=True):
        if is_merged and len(piece) <= CHARACTERS_MAX:
            splits = [(-score, piece[:n], piece[n:]) for n in range(1, len(piece))]
            merges += [split for split in splits if split[1] in ids and split[2] in ids]
    merges.sort(key=lambda split: (split[0], -len(split[1]), -len(split[2])))
    return Merges(tokens, *_columns([(ids[left], ids[right]) for _, left, right in merges]))


def _columns(pairs: list[tuple[int, int]]) -> tuple[array[int], array[int]]:
    """Ids of the left sides, and of the right sides."""
    return array("i", [left for left, _ in pairs]), array("i", [right for _, right in pairs])


def _from_sides(tokens: list[str], sides: tuple[bytes, bytes]) -> Merges:
    """Merges from the extension's ids, int32."""
    return Merges(tokens, *(array("i", ids) for ids in sides))
