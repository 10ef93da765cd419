"""A target that notes what a plugin reads of its keys and values, and whether it changes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch

from spec_core.contract.batch import Batch, TargetOutput
from spec_core.contract.target_parts import CachedHeads, CachedRows, CacheReader, cache_reader
from spec_core.contract.values import Needs
from spec_core.contract.verified_step import RollbackStep
from spec_core.hookspecs import hookimpl
from spec_core.testing.conformance.probes import Watched


@attrs.define(eq=False)
class ShowsItsCache(Watched):
    """Wraps a target. blocks: read by the plugin; beyond: sentences on rows that were not evaluated; changed: blocks
    whose committed rows are not the last forward's."""

    after: Callable[[Batch, TargetOutput], None] = attrs.field(default=lambda batch, output: None)
    blocks: set[int] = attrs.field(factory=set)
    beyond: list[str] = attrs.field(factory=list)
    changed: set[int] = attrs.field(factory=set)
    cache_reader: NotingReader | None = attrs.field(init=False)
    reader: Any = attrs.field(init=False)
    _committed: dict[Any, tuple[int, dict[int, Any]]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        reader = cache_reader(self.inner)
        self.reader, self.cache_reader = reader, None if reader is None else NotingReader(reader, self)

    def forward(self, batch: Batch, needs: Needs) -> TargetOutput:
        for part in batch.parts:
            count, before = self._committed.pop(part.seq, (0, {}))
            count = min(count, part.start)
            for block, rows in before.items():
                now = self._read(part.seq, block, count)
                if any(not torch.equal(a[:, :count], b) for a, b in zip(rows, now, strict=True)):
                    self.changed.add(block)
        return super().forward(batch, needs)

    @hookimpl
    def rollback(self, step: RollbackStep) -> None:
        super().rollback(step)
        for part in step.parts:
            blocks = [i for i in range(self.inner.info.layers) if self.reader.heads(i) is not None]
            self._committed[part.seq] = part.end, {i: self._read(part.seq, i, part.end) for i in blocks}

    def _read(self, seq: Any, block: int, count: int) -> tuple[torch.Tensor, ...]:
        return tuple(rows.clone() for rows in self.reader.rows(seq, count).read(block))


@attrs.define(eq=False)
class NotingReader:
    """Notes what is read."""

    inner: CacheReader
    notes: ShowsItsCache

    @property
    def shapes(self) -> Sequence[CachedHeads]:
        return self.inner.shapes

    def heads(self, block: int) -> CachedHeads | None:
        return self.inner.heads(block)

    def layer(self, block: int) -> int:
        self.notes.blocks.add(block)
        return self.inner.layer(block)

    def rows(self, seq: Any, count: int) -> CachedRows:
        if count > seq.evaluated:
            self.notes.beyond.append(f"{count} rows were read of a sequence with {seq.evaluated} evaluated ones")
        return NotedRows(self.inner.rows(seq, count), self.notes)


@attrs.define(eq=False)
class NotedRows:
    """Rows of one sequence. Notes the blocks that are read."""

    inner: CachedRows
    notes: ShowsItsCache

    @property
    def memory(self) -> Any:
        return self.inner.memory

    @property
    def count(self) -> int:
        return self.inner.count

    def read(self, block: int, start: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        self.notes.blocks.add(block)
        return self.inner.read(block, start)
