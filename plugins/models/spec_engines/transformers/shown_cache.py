"""Keys and values of transformers' cache, for drafters that attend to the target's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import torch
from spec_kernels.layer_executor import StandaloneExecutor
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.ops import Input, Model, Op, Store
from spec_kernels.model.shapes import HeadShape
from torch import Tensor

from spec_core.toolkit import CachedHeads
from spec_engines.transformers.cache_rows import CopiedRows, has_rows


@attrs.define(eq=False)
class ShownCache:
    """See ``spec_core.contract.target_parts.CacheReader``: the heads are as in this project's description.

    described: its reader, of a target with metadata only. executor: of further layers. filler: writes rows
    to caches of such layers, once there is a drafter.
    """

    described: Any
    executor: StandaloneExecutor
    filler: Any = None

    @property
    def shapes(self) -> Sequence[HeadShape]:
        """Shapes of all layers that store rows."""
        return tuple(self.described.shapes)

    def heads(self, block: int) -> CachedHeads | None:
        """The heads of attention in a block."""
        heads: CachedHeads | None = self.described.heads(block)
        return heads

    def layer(self, block: int) -> int:
        """The number of the layer that a block reads, among the ones that store rows."""
        return int(self.described.layer(block))

    def rows(self, seq: Any, count: int) -> ShownRows:
        """The first ``count`` rows of a sequence."""
        return ShownRows(self, seq.slot.state, count)

    def fill(self, state: Any, count: int) -> Any:
        """Copy what is missing of the first ``count`` rows; returns the memory."""
        copied: CopiedRows = state.copied
        if self.filler is None:
            self.filler = self.executor.with_layers(Model(tuple(self._stores())), self.executor.source)
        if copied.memory is None:
            copied.memory = self.filler.cache(count)
        copied.memory.reserve(count)
        if copied.count < count:
            self.filler.run(self._batch(state, copied, count))
            copied.count = count
        return copied.memory

    def _batch(self, state: Any, copied: CopiedRows, count: int) -> ForwardBatch:
        places = torch.arange(copied.count, count, device=self.executor.device)
        inputs = {}
        for number, layer in enumerate(filter(has_rows, state.cache.layers)):
            for part, rows in (("k", layer.keys), ("v", layer.values)):
                inputs[f"{part}{number}"] = rows[0, :, copied.count : count].transpose(0, 1).flatten(1)
        sequence = SequenceRows(copied.memory, 0, count - copied.count, copied.count)
        return ForwardBatch(None, places, [sequence], inputs=inputs, taps=())

    def _stores(self) -> Sequence[Op]:
        operations: list[Op] = []
        for number, shape in enumerate(self.shapes):
            width = shape.kv_heads * shape.dim
            operations += [Input(f"k{number}", width), Input(f"v{number}", width)]
            operations.append(Store(f"k{number}", f"v{number}", shape, number))
        return operations


@attrs.frozen(eq=False)
class ShownRows:
    """The first ``count`` rows of a sequence. state: of its slot."""

    reader: ShownCache
    state: Any
    count: int

    @property
    def memory(self) -> Any:
        """The rows in the form that further layers read; copied when they are first asked for."""
        return self.reader.fill(self.state, self.count)

    def read(self, block: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """Keys and values [K, count - start, D] that a block attends to."""
        layer = list(filter(has_rows, self.state.cache.layers))[self.reader.layer(block)]
        return layer.keys[0, :, start : self.count], layer.values[0, :, start : self.count]
