"""Readers of the toy targets' keys and values: one head of the stream's width in block 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from torch import Tensor


@attrs.frozen
class ToyHeads:
    """Attention heads of a toy target."""

    dim: int
    kv_heads: int = 1
    window: int = 0


@attrs.frozen(eq=False)
class ToyRows:
    """The first ``count`` rows of a sequence. memory: of its slot. show: keys and values [count, D] in it."""

    memory: Any
    count: int
    show: Callable[[Any, int], tuple[Tensor, Tensor]]

    def read(self, block: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """Keys and values [1, count - start, D]."""
        keys, values = self.show(self.memory, self.count)
        return keys[None, start:], values[None, start:]


@attrs.frozen(eq=False)
class ToyReader:
    """The reader of a toy target. memory_of: of a sequence."""

    width: int
    memory_of: Callable[[Any], Any]
    show: Callable[[Any, int], tuple[Tensor, Tensor]]

    @property
    def shapes(self) -> Sequence[ToyHeads]:
        return [ToyHeads(self.width)]

    def heads(self, block: int) -> ToyHeads | None:
        return ToyHeads(self.width) if block == 0 else None

    def layer(self, block: int) -> int:
        return 0

    def rows(self, seq: Any, count: int) -> ToyRows:
        return ToyRows(self.memory_of(seq), count, self.show)
