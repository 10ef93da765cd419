"""The assistant's layers in a run: one pair of a state and a token, over the rows of the target's cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spec_kernels.drafting import ForwardBatch, PairLayer, Pairs, embedding, shared_weights
from torch import Tensor

from spec_core.toolkit import CachedRows, CacheReader


@dataclass(eq=False)
class LastPair:
    """What a draft begins with: the last token, and the target's state before it, hidden [1, D].

    count: evaluated rows of the sequence, whose last has that state. rows: their keys and values, set before a draft.
    tokens, embeds: the token, -1 where it was given as an embedding.
    """

    width: int
    count: int = 0
    tokens: list[int] = field(default_factory=list)
    hidden: Tensor | None = None
    embeds: Mapping[int, Tensor] = field(default_factory=dict)
    rows: CachedRows | None = None

    def take(self, start: int, tokens: Sequence[int], hidden: Tensor, embeds: Mapping[int, Tensor]) -> None:
        """Replace the pair by the last of the rows from position ``start`` on."""
        self.count, self.tokens, self.hidden = start + len(tokens), [tokens[-1]], hidden
        last = embeds.get(len(tokens) - 1)
        self.embeds = {} if last is None else {0: embedding(last, self.width)}

    def fork(self) -> LastPair:
        """The pair for another sequence with the same rows."""
        return LastPair(self.width, self.count, list(self.tokens), self.hidden, dict(self.embeds))

    @property
    def waiting(self) -> int:
        """Number of exact pairs that are not evaluated yet."""
        return len(self.tokens)

    @property
    def done(self) -> int:
        """Rows of its own in a cache: none."""
        return 0

    def room(self, rows: int) -> Any:
        """The target's cache, which has all rows already."""
        return self.rows.memory

    def pairs(self, n: int | None = None) -> Pairs:
        """The pair for a forward: its query stands in the place of the last row."""
        return Pairs(self.rows.memory, self.count - 1, list(self.tokens), self.hidden, self.embeds)

    def own(self, drafted: int, token: int, hidden: Tensor) -> Pairs:
        """A drafted token after the layers' own state, with the same rows and position."""
        return Pairs(self.rows.memory, self.count - 1, [token], hidden)


class Layer(PairLayer):
    """A draft step: token and state to a state of the target's width, and logits."""

    def __init__(self, file: Any, trunk: Any, reader: CacheReader, blocks: int, next_position: bool) -> None:
        """trunk: of the target, whose embedding it uses. next_position: queries are rotated as the last token, which
        has no row yet, not as the last row."""
        model = file.head.model(shared_weights(file.source, trunk), reader, blocks)
        super().__init__(trunk.with_layers(model, shared_weights(file.source, trunk)), "hidden")
        self.ids, self.vocab, self.ahead = file.head.order, file.head.config.vocab, int(next_position)
        self.width = file.head.target_width

    def memory(self) -> LastPair:
        """The memory of a new sequence."""
        return LastPair(self.width)

    def _batch(self, parts: Sequence[Pairs], last: bool, every: bool = False) -> ForwardBatch:
        batch = super()._batch(parts, last, every)
        return replace(batch, positions=batch.positions + self.ahead)
