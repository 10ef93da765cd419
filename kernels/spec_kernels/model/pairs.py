"""A draft layer on pairs of a hidden state and the token after it, and its memory of a sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from spec_kernels.model.batch import ForwardBatch, SequenceRows, embedding, numbers
from spec_kernels.model.drafts import DraftLimits, DraftOptions, Drafts
from spec_kernels.model.ops import embedding_width

FIRST_ROWS = 64
"""Initial positions of a cache; it grows."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """n pairs of one sequence for a forward: the tokens at positions ``start`` + 1 and up, and the hidden states before
    them, [n, D].

    embeds: {index: [D]} of tokens that were given as embeddings (-1). parents: of pairs that form a tree, each an
    earlier index, -1 is the pair before them all; None means a chain. wanted: how many of the last ones have outputs.
    """

    cache: Any
    start: int
    tokens: list[int]
    hidden: Tensor
    embeds: Mapping[int, Tensor] = field(default_factory=dict)
    parents: tuple[int, ...] | None = None
    wanted: int = 1

    def positions(self) -> list[int]:
        """Positions of all pairs; nodes of one depth of a tree share a position."""
        if self.parents is None:
            return list(range(self.start, self.start + len(self.tokens)))
        positions: list[int] = []
        for parent in self.parents:
            positions.append(self.start if parent < 0 else positions[parent] + 1)
        return positions


@dataclass(eq=False)
class PairMemory:
    """The layer's memory of a sequence.

    cache: attention rows of its pairs, row p for (token p + 1, hidden state p); the first ``done`` are exact. None
    without attention.
    tokens, hidden: exact pairs after them that are not evaluated yet. embeds: {position: [D]} of tokens -1 in them.
    width: D, of the layer's embeddings.
    """

    cache: Any
    width: int
    done: int = 0
    tokens: list[int] = field(default_factory=list)
    hidden: list[Tensor] = field(default_factory=list)
    embeds: dict[int, Tensor] = field(default_factory=dict)

    def take(self, start: int, tokens: Sequence[int], hidden: Tensor, embeds: Mapping[int, Tensor]) -> None:
        """Add pairs from position ``start`` on; pairs at or after it are dropped. hidden: kept without a copy.

        embeds: zeros are used if the width differs from the layer's.
        """
        cut = start - self.done
        if cut < 0:
            self.done, cut = start, 0
        if cut < len(self.tokens):
            whole = torch.cat(self.hidden)[:cut]
            self.tokens, self.hidden = self.tokens[:cut], [whole]
        self.tokens += tokens
        self.hidden.append(hidden)
        if embeds:
            self.embeds |= {start + i: embedding(vector, self.width) for i, vector in embeds.items()}

    @property
    def waiting(self) -> int:
        """Number of exact pairs that are not evaluated yet."""
        return len(self.tokens)

    def fork(self) -> PairMemory:
        """Memory for another sequence with the same pairs. Hidden states never change, so they are shared."""
        waiting = list(self.tokens), list(self.hidden), dict(self.embeds)
        cache = None if self.cache is None else self.cache.copy()
        return PairMemory(cache, self.width, self.done, *waiting)

    def pairs(self, n: int | None = None) -> Pairs:
        """The first n waiting pairs for a forward, which count as evaluated from now on; the cache is enlarged."""
        hidden, tokens = _concatenate(self.hidden), self.tokens
        self.tokens, self.hidden = [], []
        if n is not None and n < len(tokens):
            self.tokens, self.hidden = tokens[n:], [hidden[n:]]
            hidden, tokens = hidden[:n], tokens[:n]
        embeds = {}
        if self.embeds:
            embeds = {i: self.embeds.pop(self.done + i) for i, token in enumerate(tokens) if token < 0}
        pairs = Pairs(self.room(self.done + len(tokens)), self.done, tokens, hidden, embeds)
        self.done += len(tokens)
        return pairs

    def own(self, drafted: int, token: int, hidden: Tensor) -> Pairs:
        """The pair after ``drafted`` - 1 others of the layer's output: the last drafted token, and hidden [1, D]."""
        start = self.done + drafted - 1
        return Pairs(self.room(start + 1), start, [token], hidden)

    def tree(self, tokens: list[int], parents: Sequence[int], hidden: Tensor, outputs: int) -> Pairs:
        """Pairs from the layer's own output after all exact ones, as a tree; hidden: [n, D] of each one's parent."""
        return Pairs(self.room(self.done + len(tokens)), self.done, tokens, hidden, {}, tuple(parents), outputs)

    def room(self, rows: int) -> Any:
        """The cache, with room for ``rows`` rows."""
        if self.cache is not None:
            self.cache.reserve(rows)
        return self.cache


def _concatenate(parts: Sequence[Tensor]) -> Tensor:
    """The concatenation; a single tensor is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts))


class PairLayer:
    """Runs a description whose only input is the hidden state; its tap ``final`` is fed back.

    ids: int64, the target's token of every row of logits; None: the row numbers.
    """

    ids: Tensor | None = None

    def __init__(self, executor: Any, name: str) -> None:
        """name: of the input."""
        self.executor, self.name = executor, name
        self.device = getattr(executor, "device", "cpu")

    def chooses(self, sampling: Any, tree: bool = False) -> bool:
        """Whether drafts in one call may be drawn with this sampling, and may branch."""
        return bool(self.executor.chooses(sampling, tree))

    def memory(self) -> Any:
        """The memory of a new sequence, with the methods of ``PairMemory``."""
        return PairMemory(self.executor.cache(FIRST_ROWS), embedding_width(self.executor.model))

    def forward(self, parts: Sequence[Pairs], last: bool = True) -> tuple[Tensor, Tensor]:
        """State [W, D] and logits [W, V] of the wanted pairs of all sequences, in one pass; last=False: of none."""
        outputs = self.executor.run(self._batch(parts, last))
        return outputs["final"], outputs["logits"]

    def states(self, parts: Sequence[Pairs], every: bool = False) -> Tensor:
        """State [n, D] of the last pair of every sequence, or of ``every`` pair, without logits."""
        return self.executor.run(replace(self._batch(parts, True, every), logits=[], taps=("final",)))["final"]

    def outputs(self, parts: Sequence[Pairs]) -> tuple[Tensor, Tensor]:
        """State [n, D] of every pair of all sequences, and logits [W, V] of the wanted ones, in one pass."""
        outputs = self.executor.run(self._batch(parts, True, every=True))
        return outputs["final"], outputs["logits"]

    def draft(
        self, parts: Sequence[Pairs], limits: Sequence[DraftLimits], keep: bool = False, every: bool = False
    ) -> Drafts:
        """Draft after each sequence's last pair in one call; each token reads the layer's own state.

        The caches have room for ``width`` x (``depth`` - 1) pairs more. keep: the rows [n, V] that tokens of chains
        were chosen from. every: with the states of all pairs, for drafts of depth 1.
        """
        options = DraftOptions("final", self.ids, keep)
        return self.executor.draft(self._batch(parts, True, every), limits, options)

    def catch_up(self, memory: Any, count: int) -> tuple[int, int]:
        """Evaluate the first ``count`` waiting pairs of a sequence; returns the numbers of forwards and rows."""
        self.forward([memory.pairs(count)], last=False)
        return 1, count

    def _batch(self, parts: Sequence[Pairs], last: bool, every: bool = False) -> ForwardBatch:
        """last: with outputs of the wanted pairs. every: with states of all of them."""
        tokens = numbers([t for p in parts for t in p.tokens], self.device)
        positions = numbers([at for p in parts for at in p.positions()], self.device)
        sequences, first = [], 0
        ends: list[int] = []
        embeds: dict[int, Tensor] = {}
        for p in parts:
            sequences.append(SequenceRows(p.cache, first, len(p.tokens), p.start, p.parents))
            if p.embeds:
                embeds |= {first + i: embedding for i, embedding in p.embeds.items()}
            first += len(p.tokens)
            ends += range(first - p.wanted, first)
        hidden = _concatenate([p.hidden for p in parts])
        output_rows = ends if last else []
        return ForwardBatch(
            *(tokens, positions, sequences, embeds, {self.name: hidden}),
            logits=output_rows,
            final=None if every else output_rows,
            taps=("logits", "final"),
        )
