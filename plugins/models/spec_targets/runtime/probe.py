"""Whether a row gets equal bits in every batch. Native kernels guarantee it; the reference is tested when loaded.

Its products use tiles of one size, so it should hold; but the effect of a row's place in a tile, and of torch's
operations between the products, must be measured. One block of each kind is tested, and the output matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.executor import Executor
from spec_kernels.model.ops import Attend, Embed, Model, Op, RecurrentOp, SparseIndex, Store, Tap
from spec_kernels.model.recurrence import Lines, Recurrence
from spec_kernels.model.tiles import TILE
from torch import Tensor

CONTEXT = 120
"""Rows before the tested one."""
BEFORE = 3
"""Rows before the tested one that share its forward."""
DRAFTS = 2 * TILE + 1
"""Rows after the tested one: they begin a new tile of the cache."""


def explain_inexact(executor: Executor, device: torch.device, dtype: torch.dtype, context: int) -> str | None:
    """Why rows depend on their batch; None if their bits are equal in every one. context: positions of the model."""
    if executor.exact:
        return None
    if device.type != "cpu" or dtype != torch.float32:
        return f"on {device} in {str(dtype).removeprefix('torch.')} sums are ordered by the shape of a product"
    if min(CONTEXT, context - DRAFTS - 1) <= BEFORE:
        return f"not tested, its context has {context} positions only"
    probe = Probe(executor, min(CONTEXT, context - DRAFTS - 1), one_of_each(executor.model))
    for batch, rows in probe.rows_in_batches():
        if not torch.equal(rows, probe.alone.expand_as(rows)):
            difference = (rows - probe.alone).abs().max()
            threads = torch.get_num_threads()
            return f"a row {batch} differs by {difference:.1g} from the same row alone ({threads} threads)"
    return None


def blocks_of(model: Model) -> list[list[Op]]:
    """Operations before the first block, of each block, and after the last; a tap begins each."""
    parts: list[list[Op]] = [[]]
    for op in model.ops:
        if isinstance(op, Tap) and op.name.startswith("hidden."):
            parts.append([])
        parts[-1].append(op)
    return parts


def one_of_each(model: Model) -> list[int]:
    """The first block of each kind, and the blocks whose keys and values, or whose index, they read."""
    blocks = blocks_of(model)[1:-1]
    kinds = [tuple(type(op) for op in block) + _windows(block) for block in blocks]
    firsts = set({kind: i for i, kind in reversed(list(enumerate(kinds)))}.values())
    owners = {op.layer: i for i, block in enumerate(blocks) for op in block if isinstance(op, Store)}
    read = {owners[op.layer] for i in firsts for op in blocks[i] if isinstance(op, Attend)}
    indexed = [i for i, block in enumerate(blocks) if any(isinstance(op, SparseIndex) for op in block)]
    chosen = {max(i for i in indexed if i <= reader) for reader in firsts if _reads_pools(blocks[reader])}
    return sorted(firsts | read | chosen)


def _reads_pools(block: list[Op]) -> bool:
    """Whether attention reads the pools that an index has chosen."""
    return any(isinstance(op, Attend) and op.pools is not None for op in block)


def _number_layers(ops: Iterable[Op]) -> Iterator[Op]:
    """Operations with their layers of caches and their layers of states counted from 0."""
    caches: dict[int, int] = {}
    states: dict[int, int] = {}
    for op in ops:
        match op:
            case Store() | Attend() | SparseIndex():
                yield replace(op, layer=caches.setdefault(op.layer, len(caches)))
            case _ if isinstance(op, RecurrentOp):
                yield replace(op, layer=states.setdefault(op.layer, len(states)))
            case _:
                yield op


def _windows(block: list[Op]) -> tuple[Any, ...]:
    """Whether attention has a window."""
    return tuple(bool(op.shape.window) for op in block if isinstance(op, Attend))


def part_of(executor: Executor, chosen: Sequence[int]) -> Any:
    """Model with the chosen blocks alone; their layers of caches and states are renumbered."""
    first, *blocks, last = blocks_of(executor.model)
    ops = [*first, *_number_layers(op for i in chosen for op in blocks[i]), *last]
    return executor.with_layers(replace(executor.model, ops=tuple(ops)), executor.source)


class Probe:
    """A text of random tokens over some blocks, and its row ``context``."""

    def __init__(self, executor: Executor, context: int, chosen: Sequence[int]) -> None:
        self.executor, self.part, self.context = executor, part_of(executor, chosen), context
        self.pool = executor.states()
        numbers = torch.Generator().manual_seed(0)
        (vocabulary,) = {op.table.n for op in executor.model.ops if isinstance(op, Embed)}
        self.tokens = torch.randint(vocabulary, (context + 1 + DRAFTS,), generator=numbers)
        self.cache, self.place = self._room()
        start = context - BEFORE
        self._forward([(self.cache, self.place, 0, start, 0)])
        self.before = self._state(self.place)
        self._forward([(self.cache, self.place, start, BEFORE, 0)])
        self.here = self._state(self.place)

    @cached_property
    def alone(self) -> Tensor:
        """Logits [1, V] of the row in its own forward."""
        return self.one_row()

    def one_row(self) -> Tensor:
        """A forward of this row only."""
        return self._logits([0])

    def rows_in_batches(self) -> list[tuple[str, Tensor]]:
        """One row in several batches: description, and logits [rows, V]; every row must equal ``alone``."""
        rows = [
            ("in another place of a tile", self._logits([0] * TILE)),
            ("before drafts", self._logits([DRAFTS])[:1]),
            ("with other sequences", self._logits([0, DRAFTS, 0])[[0, 1, DRAFTS + 2]]),
            ("in one forward with the rows before it", self._together()[-1:]),
        ]
        if self.pool is None:  # recurrent states of blocks of prompt positions are computed together
            rows.append(("after a prompt in pieces", self._after_pieces()))
        return rows

    def _logits(self, drafts: list[int]) -> Tensor:
        """[rows, V] of sequences that all continue the text at ``context``, each with this many drafts."""
        places = [self._copy_state(self.here) for _ in drafts]
        cache = self.cache  # all of them write the same values there
        logits = self._forward([(cache, p, self.context, 1, n) for p, n in zip(places, drafts, strict=True)])
        self._give(places)
        return logits

    def _together(self) -> Tensor:
        place = self._copy_state(self.before)
        logits = self._forward([(self.cache, place, self.context - BEFORE, BEFORE + 1, 0)])
        self._give([place])
        return logits

    def _after_pieces(self) -> Tensor:
        cache, _ = self._room()
        step = TILE - 3
        for start in range(0, self.context, step):
            self._forward([(cache, -1, start, min(step, self.context - start), 0)])
        return self._forward([(cache, -1, self.context, 1, 0)])

    def _forward(self, parts: list[tuple[Any, int, int, int, int]]) -> Tensor:
        """Logits [R, V]; parts: cache, state, first position, pending rows, drafts."""
        positions: list[int] = []
        sequences, lines = [], Lines()
        for cache, place, start, pending, drafts in parts:
            sequences.append(SequenceRows(cache, len(positions), pending + drafts, start))
            positions += range(start, start + pending + drafts)
            lines.add(place, start, pending, range(-1, drafts - 1), [], 0)
        at = torch.tensor(positions)
        recurrence = None if self.pool is None else Recurrence(self.pool, lines.lineage(), None, [])
        return self.part.run(ForwardBatch(self.tokens[at], at, sequences, recurrence=recurrence))["logits"]

    def _room(self) -> tuple[Any, int]:
        cache = self.part.cache(self.context + 1 + DRAFTS)
        if cache is not None:
            cache.reserve(self.context + 1 + DRAFTS)
        return cache, -1 if self.pool is None else self.pool.take()[0]

    def _state(self, place: int) -> tuple[Tensor, Tensor] | None:
        return None if self.pool is None else self.pool.copy(place)

    def _copy_state(self, state: tuple[Tensor, Tensor] | None) -> int:
        if self.pool is None:
            return -1
        (place,) = self.pool.take()
        self.pool.put(place, state)
        return place

    def _give(self, places: list[int]) -> None:
        if self.pool is not None:
            self.pool.give(places)
