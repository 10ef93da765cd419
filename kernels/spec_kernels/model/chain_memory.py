"""What draft layers in a row remember of a sequence: see ``pair_chain``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from spec_kernels.model.batch import embedding
from spec_kernels.model.pairs import PairMemory, Pairs


class StateRows:
    """States [n, D] of the first rows of a sequence; rows are added at the end and cut from there."""

    def __init__(self, memory: Tensor | None = None, count: int = 0) -> None:
        self.memory, self.count = memory, count

    def add(self, rows: Tensor) -> None:
        """Copy rows after the others."""
        end = self.count + len(rows)
        if self.memory is None or end > len(self.memory):
            grown = rows.new_empty(2 * end, rows.shape[1])
            if self.memory is not None:
                grown[: self.count] = self.memory[: self.count]
            self.memory = grown
        self.memory[self.count : end] = rows
        self.count = end

    def cut(self, count: int) -> None:
        """Drop the rows from ``count`` on."""
        self.count = min(self.count, max(count, 0))

    def part(self, start: int, end: int) -> Tensor:
        """Rows [start, end)."""
        assert self.memory is not None
        return self.memory[start : min(end, self.count)]

    def fork(self) -> StateRows:
        """A copy for another sequence."""
        return StateRows(None if self.memory is None else self.memory[: self.count].clone(), self.count)


@dataclass(eq=False)
class DeeperMemory:
    """A deeper layer's memory of a sequence.

    cache: attention rows, the first ``done`` exact. states: what the layer before gave these rows and more, exact.
    """

    cache: Any
    done: int = 0
    states: StateRows = field(default_factory=StateRows)

    def room(self, rows: int) -> Any:
        """The cache, with room for ``rows`` rows."""
        if self.cache is not None:
            self.cache.reserve(rows)
        return self.cache

    def fork(self) -> DeeperMemory:
        """Memory for another sequence with the same rows."""
        return DeeperMemory(None if self.cache is None else self.cache.copy(), self.done, self.states.fork())


@dataclass(frozen=True, eq=False, kw_only=True)
class LevelPairs(Pairs):
    """Pairs of one layer. level: which. memory: of the sequence. exact: how many read committed tokens only.

    read: how many drafted tokens the draft has read with them.
    """

    memory: ChainMemory
    level: int
    exact: int
    read: int = 0


@dataclass(eq=False)
class ChainMemory:
    """The memory that layers in a row have of a sequence.

    text: tokens of all pairs, -1 where one was given as an embedding in ``embeds``. drafted: tokens of the draft.
    rest: states of the rows after the exact ones, from the last layer that was evaluated.
    """

    first: PairMemory
    deeper: list[DeeperMemory]
    text: list[int] = field(default_factory=list)
    embeds: dict[int, Tensor] = field(default_factory=dict)
    drafted: list[int] = field(default_factory=list)
    rest: Tensor | None = None

    @property
    def tokens(self) -> list[int]:
        """Tokens of the first layer's waiting pairs."""
        return self.first.tokens

    @property
    def done(self) -> int:
        """Evaluated rows of the first layer."""
        return self.first.done

    @property
    def waiting(self) -> int:
        """Number of exact pairs that wait at the layer where most do."""
        return max(self.waiting_at(level) for level in range(1 + len(self.deeper)))

    def waiting_at(self, level: int) -> int:
        """Number of exact pairs that a layer has not evaluated."""
        if level == 0:
            return self.first.waiting
        memory = self.deeper[level - 1]
        return max(min(memory.states.count, len(self.text) - level) - memory.done, 0)

    def take(self, start: int, tokens: Sequence[int], hidden: Tensor, embeds: Mapping[int, Tensor]) -> None:
        """Add pairs from position ``start`` on; pairs at or after it are dropped, as are rows that read them."""
        self.first.take(start, tokens, hidden, embeds)
        self.text[start:] = tokens
        kept = {at: vector for at, vector in self.embeds.items() if at < start}
        self.embeds = kept | {start + i: embedding(vector, self.first.width) for i, vector in embeds.items()}
        for level, memory in enumerate(self.deeper, 1):
            memory.done = min(memory.done, max(start - level, 0))
            memory.states.cut(start - level + 1)

    def pairs(self, n: int | None = None) -> LevelPairs:
        """The first n waiting pairs of the first layer, which count as evaluated from now on."""
        pairs = self.first.pairs(n)
        self.drafted = []
        return self._level(0, pairs.cache, pairs.start, pairs.tokens, pairs.hidden, exact=len(pairs.tokens))

    def exact_pairs(self, level: int, n: int) -> LevelPairs:
        """The first n waiting exact pairs of a deeper layer, which count as evaluated from now on."""
        memory = self.deeper[level - 1]
        start, end = memory.done, min(memory.done + n, memory.states.count, len(self.text) - level)
        memory.done = end
        tokens = self.text[start + level : end + level]
        return self._level(level, memory.room(end), start, tokens, memory.states.part(start, end), exact=end - start)

    def own(self, drafted: int, token: int, hidden: Tensor) -> LevelPairs:
        """The pairs after ``drafted`` drafted tokens, whose last is ``token``: all that the next layer lacks.

        hidden: [1, D] the last layer's state of the row before, which only that layer itself reads.
        """
        self.drafted[drafted - 1 :] = [token]
        if drafted > len(self.deeper):
            return self._behind_all(drafted, token, hidden)
        memory, rows = self.deeper[drafted - 1], len(self.text)
        start, exact = memory.done, max(rows - drafted, memory.done)
        states = memory.states.part(start, rows)
        rest = states[:0] if self.rest is None else self.rest
        tokens = [*self.text[start + drafted :], *self.drafted[max(start + drafted - rows, 0) :]]
        memory.done = exact
        hidden = torch.cat([states, rest]) if len(rest) else states
        return self._level(drafted, memory.room(rows), start, tokens, hidden, exact=exact - start, read=drafted)

    def room(self, rows: int) -> Any:
        """Room for ``rows`` rows in every cache; returns the first."""
        for memory in self.deeper:
            memory.room(rows)
        return self.first.room(rows)

    def learn(self, pairs: LevelPairs, states: Tensor) -> None:
        """Keep what a layer gave its pairs, for the next layer. states: [n, D]"""
        if pairs.level < len(self.deeper):
            self.deeper[pairs.level].states.add(states[: pairs.exact])
            self.rest = states[pairs.exact :].clone()

    def fork(self) -> ChainMemory:
        """Memory for another sequence with the same pairs."""
        deeper = [memory.fork() for memory in self.deeper]
        return ChainMemory(self.first.fork(), deeper, [*self.text], dict(self.embeds))

    def _behind_all(self, drafted: int, token: int, hidden: Tensor) -> LevelPairs:
        level = len(self.deeper)
        start = len(self.text) - 1 + drafted - level
        return self._level(level, self.deeper[-1].room(start + 1), start, [token], hidden, exact=0, read=drafted)

    def _level(
        self, level: int, cache: Any, start: int, tokens: list[int], hidden: Tensor, exact: int, read: int = 0
    ) -> LevelPairs:
        embeds = {i: self.embeds[start + level + i] for i, token in enumerate(tokens) if token < 0}
        return LevelPairs(cache, start, tokens, hidden, embeds, memory=self, level=level, exact=exact, read=read)
