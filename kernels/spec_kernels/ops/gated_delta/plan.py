"""In which launches a lineage is computed, and where each piece of work finds and leaves its state."""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from spec_kernels.ops.lineage import Lineage

PIECE = 16
"""Rows of a run that are computed together."""
HELD = -1
"""The state before a piece is the one after the piece before it."""

Work = tuple[int, int]
"""First row, number of rows."""


@dataclass(frozen=True, eq=False)
class Launch:
    """Pieces that are computed side by side for all sequences, one after the other within each.

    runs: whether pieces are parts of runs; else each is one row.
    table: int64 [n, 5]: first row · rows · state before · state kept · state laid aside. ``before`` is a stored state,
        or ``HELD``, or -2 - i for the one laid aside as i; the last two are -1 where nothing is written.
    begins: int64 [sequences + 1], the first piece of each
    """

    runs: bool
    table: Tensor
    begins: Tensor

    @property
    def sequences(self) -> int:
        return len(self.begins) - 1


@dataclass(frozen=True, eq=False)
class Plan:
    """Launches in order; between them and within trees, ``asides`` states need memory of their own."""

    launches: list[Launch]
    asides: int


@functools.lru_cache(maxsize=8)
def plan(lineage: Lineage, device: torch.device) -> Plan:
    """Made once per forward, for all layers."""
    stages: dict[int, list[list[Work]]] = defaultdict(list)
    for first, end in lineage.ends():
        for stage, work in enumerate(_stages(dict(lineage.chunks), first, end)):
            if work:
                stages[stage].append(work)
    planned = [stages[stage] for stage in sorted(stages)]
    asides = _asides(lineage, planned)
    launches = [_launch(lineage, stage % 2 == 1, stages[stage], asides, device) for stage in sorted(stages)]
    return Plan(launches, len(asides))


def _stages(runs: dict[int, int], row: int, end: int) -> list[list[Work]]:
    """Work of one sequence, by turns rows alone and pieces of runs, for they are launched apart."""
    stages: list[list[Work]] = [[]]
    while row < end:
        count = runs.get(row, 0)
        if (count > 0) != (len(stages) % 2 == 0):
            stages.append([])
        stages[-1] += [(r, min(PIECE, row + count - r)) for r in range(row, row + count, PIECE)] or [(row, 1)]
        row += max(count, 1)
    return stages


def _held(lineage: Lineage, work: list[Work]) -> list[bool]:
    """For each piece, whether it continues the one before it."""
    lasts = [None, *(first + n - 1 for first, n in work[:-1])]
    return [lineage.parents[first] == last for (first, _), last in zip(work, lasts, strict=True)]


def _asides(lineage: Lineage, planned: list[list[list[Work]]]) -> dict[int, int]:
    """Rows whose state is neither kept nor only held, and where it is laid aside."""
    works = [work for stage in planned for work in stage]
    wanted = {lineage.parents[w[0]] for work in works for w, h in zip(work, _held(lineage, work), strict=True) if not h}
    rows = sorted(row for row in wanted if row >= 0 and lineage.keep[row] < 0)
    return {row: i for i, row in enumerate(rows)}


def _launch(
    lineage: Lineage, runs: bool, works: list[list[Work]], asides: dict[int, int], device: torch.device
) -> Launch:
    table, begins = [], [0]
    for work in works:
        for (first, n), held in zip(work, _held(lineage, work), strict=True):
            last = first + n - 1
            before = HELD if held else _before(lineage, first, asides)
            table.append([first, n, before, lineage.keep[last], asides.get(last, -1)])
        begins.append(len(table))
    return Launch(runs, *(torch.tensor(m, dtype=torch.int64).to(device) for m in (table, begins)))


def _before(lineage: Lineage, row: int, asides: dict[int, int]) -> int:
    parent = lineage.parents[row]
    if parent < 0:
        return lineage.source[row]
    return lineage.keep[parent] if lineage.keep[parent] >= 0 else -2 - asides[parent]
