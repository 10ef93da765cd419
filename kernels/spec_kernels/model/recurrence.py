"""Data that the recurrent layers of one forward share: states, the parent of each row, and the trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from spec_kernels.model.shapes import DeltaShape
from spec_kernels.model.states import StatePlaces, StatePool
from spec_kernels.ops.gated_delta import CHUNK, replay_rows
from spec_kernels.ops.lineage import Lineage

Kind = Literal["states", "inputs"]


class RecurrentSlot:
    """A sequence's places in the pool: the state after its committed rows, and those for traced states."""

    __slots__ = ("_spare", "current", "pool")

    def __init__(self, places: StatePlaces) -> None:
        self.pool = places
        (self.current,) = places.take()
        places.clear(self.current)
        self._spare: list[int] = []

    def spare(self, count: int) -> list[int]:
        """Places for traced states; they stay with the slot, so that steps do not allocate."""
        if len(self._spare) < count:
            self._spare += self.pool.take(count - len(self._spare))
        return self._spare[:count]

    def pick(self, place: int) -> None:
        """Make a traced state the current one: the two places swap roles, nothing is copied."""
        self._spare[self._spare.index(place)] = self.current
        self.current = place

    def replay(self, trace: Trace, rows: Sequence[int]) -> None:
        """Advance the current state along these recorded draft rows, given by batch row, in order."""
        with self.pool.steady():
            trace.replay(self.pool, self.current, rows)

    def copy(self) -> tuple[Tensor, Tensor]:
        return self.pool.copy(self.current)

    def put(self, state: tuple[Tensor, Tensor] | None) -> None:
        """Set the state; None is the state before the first token."""
        if state is None:
            self.pool.clear(self.current)
        else:
            self.pool.put(self.current, state)

    def close(self) -> None:
        """Close without a lock: the garbage collector may call it."""
        self.pool.give([self.current, *self._spare])
        self._spare = []


@dataclass(frozen=True)
class Record:
    """The data to run draft rows of one layer again: convolution inputs x [n, C], and of the gated delta rule
    k [n, Hk, Dk], d [n, Hv, Dv] and g [n, Hv] or [n, Hv, Dk]."""

    x: Tensor
    rule: tuple[Tensor, ...]


class Recorded(Protocol):
    """Draft rows that can be run again, all layers together."""

    @property
    def nbytes(self) -> int: ...

    def replay(self, pool: Any, place: int, path: Sequence[int]) -> None:
        """Advance the state in ``place`` along these rows of the record, in order."""


class Records:
    """One ``Record`` per layer."""

    def __init__(self) -> None:
        self.layers: list[Record] = []

    @property
    def nbytes(self) -> int:
        return sum(m.nbytes for r in self.layers for m in (r.x, *r.rule))

    def replay(self, pool: StatePool, place: int, path: Sequence[int]) -> None:
        for layer, record in enumerate(self.layers):
            if isinstance(pool.shape, DeltaShape):
                (k, d, g), key_of = record.rule, pool.shape.key_of(pool.matrices.device)
                replay_rows(pool.matrices[layer], k, d, g, key_of, path, place, place)
            past = torch.cat([pool.windows[layer, place], record.x[path]])
            pool.windows[layer, place] = past[len(past) - pool.shape.kernel + 1 :]


@dataclass(eq=False)
class Trace:
    """The trace of a forward's draft rows.

    places: batch row -> place of its state in the pool (``states``)
    rows: batch row -> index among the recorded rows (``inputs``); recorded: these
    """

    kind: Kind
    places: Mapping[int, int] = field(default_factory=dict)
    rows: Mapping[int, int] = field(default_factory=dict)
    recorded: Recorded = field(default_factory=Records)

    @property
    def nbytes(self) -> int:
        """Bytes of the record; states are counted by the pool."""
        return self.recorded.nbytes

    def replay(self, places: StatePlaces, place: int, rows: Sequence[int]) -> None:
        """Replay the rows from the state in ``place``; call it within ``pool.steady``."""
        self.recorded.replay(places, place, [self.rows[row] for row in rows])


class Recurrence:
    """One forward: the pool, made by the executor, the lineage of its rows, and the trace that its layers fill.

    recorded: batch rows whose inputs are recorded.
    """

    __slots__ = ("lineage", "pool", "recorded", "trace")

    def __init__(self, pool: Any, lineage: Lineage, kind: Kind | None, drafts: Sequence[int]) -> None:
        """drafts: batch rows that are traced."""
        self.pool, self.lineage = pool, lineage
        self.trace = Trace(kind, *_where(kind, lineage, drafts)) if kind and drafts else None
        self.recorded = list(drafts) if kind == "inputs" else []

    def steady(self) -> AbstractContextManager[None]:
        """Lock that a forward holds: no other thread replaces the pool's tensors meanwhile."""
        return self.pool.steady()

    def record(self, x: Tensor, *rule: Tensor) -> None:
        """Record the draft rows of one layer, see ``Record``, if inputs are traced; layers come in order."""
        if self.recorded:
            assert isinstance(self.trace.recorded, Records)
            self.trace.recorded.layers.append(Record(x[self.recorded], tuple(m[self.recorded] for m in rule)))

    def record_as(self, recorded: Recorded) -> None:
        """Record all layers at once."""
        self.trace.recorded = recorded


def _where(kind: Kind, lineage: Lineage, drafts: Sequence[int]) -> tuple[dict[int, int], dict[int, int]]:
    if kind == "states":
        return {row: lineage.keep[row] for row in drafts}, {}
    return {}, {row: i for i, row in enumerate(drafts)}


class Lines:
    """Builds the lineage of a forward, one sequence at a time."""

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.source: list[int] = []
        self.keep: list[int] = []
        self.begins: list[int] = []
        self.chunks: list[tuple[int, int]] = []
        self.drafts: list[int] = []

    def add(
        self, place: int, start: int, pending: int, parents: Sequence[int], kept: Sequence[int], traced: int
    ) -> None:
        """Add the rows of one sequence: pending rows, the last with its state in ``place``, and drafts.

        start: position of the first pending row    parents: of the drafts, -1 is the last pending row
        kept: places of the first drafts' states    traced: how many drafts are traced
        """
        first = len(self.parents)
        spec = first + pending
        self.begins.append(first)
        self.parents += [-1, *range(first, spec - 1), *(spec - 1 if p < 0 else spec + p for p in parents)]
        self.source += [place] * (pending + len(parents))
        self.keep += [-1] * (pending - 1) + [place] + list(kept) + [-1] * (len(parents) - len(kept))
        self.chunks += _whole_chunks(first, start, pending)
        self.drafts += range(spec, spec + traced)

    def lineage(self) -> Lineage:
        return Lineage(self.parents, self.source, self.keep, self.begins, self.chunks)


def _whole_chunks(first: int, start: int, pending: int) -> list[tuple[int, int]]:
    """Runs between multiples of CHUNK positions, so that the same rows are computed together in any prompt chunking."""
    begin = -(-start // CHUNK) * CHUNK
    return [(first + p - start, CHUNK) for p in range(begin, start + pending - CHUNK + 1, CHUNK)]
