"""Draft layers in a row, the first for the first drafted token, the second for the second (2412.19437, section 2.2).

Row p of layer k, from 0, reads the state that layer k - 1 gave row p, the target's for layer 0, and the token k + 1
places after row p. So the last k rows of layer k read drafted tokens. They are exact once these places are committed:
until then every draft evaluates them again.
After the last layer a draft goes on with that layer's own states, as a single layer does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from spec_kernels.model.chain_memory import ChainMemory, DeeperMemory, LevelPairs
from spec_kernels.model.drafts import Drafted, DraftLimits, DraftNoise, Drafts, goes_on
from spec_kernels.model.pairs import PairLayer


@dataclass(frozen=True, eq=False)
class NoiseBehind:
    """The noise of a chain from its token ``count`` on: see ``spec_kernels.model.drafts.DraftNoise``."""

    noise: DraftNoise
    count: int

    @property
    def temperature(self) -> float:
        return self.noise.temperature

    @property
    def source(self) -> tuple[int, int, int]:
        seed, stream, domain = self.noise.source
        return seed, stream, domain + self.count * self.onward[1]

    @property
    def position(self) -> int:
        return self.noise.position + self.count * self.onward[0]

    @property
    def onward(self) -> tuple[int, int]:
        return self.noise.onward

    @property
    def chance(self) -> Callable[[float], float]:
        return self.noise.chance


@dataclass(frozen=True, eq=False)
class LimitsBehind:
    """What the limits of a chain leave for its next tokens: see ``spec_kernels.model.drafts.DraftLimits``."""

    depth: int
    p_min: float
    trust: float
    stops: Any
    chooser: Any
    noise: Any
    before: tuple[int, ...]
    width: int = 1
    rows: int = 0
    shared: str = "path"

    @property
    def nodes(self) -> int:
        return self.depth

    @classmethod
    def of(cls, limits: DraftLimits, tokens: list[int], survival: float, depth: int) -> LimitsBehind:
        """tokens: drafted before it. survival: probability that they are accepted."""
        p_min = limits.p_min / survival if survival else 0.0
        noise = None if limits.noise is None else NoiseBehind(limits.noise, len(tokens))
        before = (*limits.before, *tokens)
        return cls(depth, p_min, limits.trust, limits.stops, limits.chooser, noise, before)


@dataclass(eq=False)
class GrowingChain:
    """A chain of one sequence while it is drafted. pairs: of its next forward; None: it is finished."""

    pairs: LevelPairs | None
    limits: DraftLimits
    draft: Drafted = field(default_factory=lambda: Drafted([], None, []))
    rows: list[Tensor] = field(default_factory=list)
    survival: float = 1.0

    def rest(self, whole: bool) -> LimitsBehind:
        """Limits of the next call. whole: it drafts all that is left."""
        depth = self.limits.depth - len(self.draft.tokens) if whole else 1
        return LimitsBehind.of(self.limits, self.draft.tokens, self.survival, depth)

    def add(self, drafted: Drafted) -> None:
        """Tokens after the others."""
        self.draft.tokens.extend(drafted.tokens)
        self.draft.chances.extend(drafted.chances)
        self.rows += [] if drafted.rows is None else [drafted.rows]
        for chance in drafted.chances:
            self.survival *= chance * self.limits.trust

    def go_on(self, states: Tensor) -> None:
        """Prepare the next layer's forward, if a token of it is worthwhile. states: [n, D] of the pairs."""
        pairs = self.pairs
        assert pairs is not None
        on = goes_on(self.draft, self.survival, self.limits)
        self.pairs = pairs.memory.own(pairs.read + 1, self.draft.tokens[-1], states[-1:]) if on else None

    def result(self) -> Drafted:
        """The finished chain."""
        rows = torch.cat(self.rows) if self.rows else None
        return Drafted(self.draft.tokens, None, self.draft.chances, rows)


class PairChain:
    """Layers in a row, with the methods of ``spec_kernels.model.pairs.PairLayer``; drafts are chains."""

    def __init__(self, layers: Sequence[PairLayer]) -> None:
        """layers: two or more; every one reads the states of the one before."""
        self.layers, self.last = list(layers), len(layers) - 1

    def chooses(self, sampling: Any, tree: bool = False) -> bool:
        """Whether drafts in one call may be drawn with this sampling, and may branch."""
        return not tree and self.layers[0].chooses(sampling)

    def memory(self) -> ChainMemory:
        """The memory of a new sequence."""
        first, *others = (layer.memory() for layer in self.layers)
        return ChainMemory(first, [DeeperMemory(other.cache) for other in others])

    def forward(self, parts: Sequence[LevelPairs], last: bool = True) -> tuple[Tensor, Tensor]:
        """State [W, D] and logits [W, V] of the last pairs of all sequences; last=False: of none."""
        if not last:
            raise NotImplementedError("pairs are caught up with by catch_up")
        states, logits = [torch.empty(0)] * len(parts), [torch.empty(0)] * len(parts)
        for level, at in _by_level(parts):
            some = [parts[i] for i in at]
            every, rows = self.layers[level].outputs(some)
            for i, own, row in zip(at, _states_of_chains(some, every), rows.split(1), strict=True):
                states[i], logits[i] = own[-1:], row
        return torch.cat(states), torch.cat(logits)

    def states(self, parts: Sequence[LevelPairs]) -> Tensor:
        """State [n, D] of the last pair of every sequence, without logits."""
        states = [torch.empty(0)] * len(parts)
        for level, at in _by_level(parts):
            some = [parts[i] for i in at]
            every = self.layers[level].states(some, every=True)
            for i, own in zip(at, _states_of_chains(some, every), strict=True):
                states[i] = own[-1:]
        return torch.cat(states)

    def catch_up(self, memory: ChainMemory, count: int) -> tuple[int, int]:
        """Evaluate ``count`` pairs at every layer where more of them wait; returns the numbers of forwards and rows."""
        forwards = 0
        for level, layer in enumerate(self.layers):
            if memory.waiting_at(level) <= count:
                continue
            pairs = memory.exact_pairs(level, count) if level else memory.pairs(count)
            if level == self.last:
                layer.forward([pairs], last=False)
            else:
                memory.learn(pairs, layer.states([pairs], every=True))
            forwards += 1
        return forwards, forwards * count

    def draft(self, parts: Sequence[LevelPairs], limits: Sequence[DraftLimits], keep: bool = False) -> Drafts:
        """A chain after the last pair of every sequence: a call for each layer, of the last one for all that is left.

        keep: the rows [n, V] that tokens were chosen from.
        """
        chains = [GrowingChain(*both) for both in zip(parts, limits, strict=True)]
        forwards = rows = 0
        while growing := [chain for chain in chains if chain.pairs is not None]:
            for level, at in _by_level([chain.pairs for chain in growing if chain.pairs is not None]):
                more, read = self._extend(level, [growing[i] for i in at], keep)
                forwards, rows = forwards + more, rows + read
        return Drafts([chain.result() for chain in chains], forwards, rows)

    def _extend(self, level: int, chains: Sequence[GrowingChain], keep: bool) -> tuple[int, int]:
        """Extend chains of one layer by a call of it; returns the numbers of forwards and rows."""
        whole, parts = level == self.last, [chain.pairs for chain in chains if chain.pairs is not None]
        limits = [chain.rest(whole) for chain in chains]
        drafts = self.layers[level].draft(parts, limits, keep, every=not whole)
        for chain, part in zip(chains, drafts.found, strict=True):
            chain.add(part)
        if whole:
            for chain in chains:
                chain.pairs = None
        else:
            assert drafts.states is not None
            for chain, states in zip(chains, _states_of_chains(parts, drafts.states), strict=True):
                chain.go_on(states)
        return drafts.forwards, drafts.rows


def _by_level(parts: Iterable[LevelPairs]) -> Iterator[tuple[int, list[int]]]:
    """(layer, indices of its parts) of every layer that has some, the first layer first."""
    levels: dict[int, list[int]] = {}
    for i, part in enumerate(parts):
        levels.setdefault(part.level, []).append(i)
    yield from sorted(levels.items())


def _states_of_chains(parts: Sequence[LevelPairs], states: Tensor) -> Iterator[Tensor]:
    """The states [n, D] of every sequence's pairs, once its memory has them."""
    for part, own in zip(parts, states.split([len(part.tokens) for part in parts]), strict=True):
        part.memory.learn(part, own)
        yield own
