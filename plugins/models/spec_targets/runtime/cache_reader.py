"""Keys and values of a target's sequences, for drafters that attend to them."""

from __future__ import annotations

from typing import Any

import attrs
from spec_kernels.model.shapes import HeadShape
from torch import Tensor

from spec_core import Sequence
from spec_targets.architectures.config import Config


@attrs.frozen(eq=False)
class CachedRows:
    """The first ``count`` rows of a sequence. memory: the executor's cache."""

    memory: Any
    count: int
    config: Config

    def read(self, block: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """Keys and values [K, count - start, D] that a block attends to; float32 copies of natively stored ones.

        Raises ValueError for rows that a block with a window has given back.
        """
        keys, values = self.memory.read(self.config.layer_of(block), self.count, start)
        return keys, values


@attrs.frozen(eq=False)
class CacheReader:
    """The cache of a decoder: its description says which layer a block reads."""

    config: Config

    @property
    def shapes(self) -> tuple[HeadShape, ...]:
        """Shapes of all layers of the cache."""
        return self.config.cached

    def heads(self, block: int) -> HeadShape | None:
        """The heads of attention in a block; None for a recurrent one."""
        return None if block in self.config.recurrent else self.config.heads_of(block)

    def layer(self, block: int) -> int:
        """The layer of the cache that a block reads."""
        return self.config.layer_of(block)

    def rows(self, seq: Sequence, count: int) -> CachedRows:
        """The first ``count`` rows of a sequence."""
        return CachedRows(seq.slot.state.cache, count, self.config)
