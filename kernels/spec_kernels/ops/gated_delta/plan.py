"""Plans the launches of a lineage, and the places where each piece of work reads and writes its state."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from spec_kernels.ops.lineage import Lineage

PIECE = 16
"""Rows of a run that are computed together."""
NOWHERE = -1
"""Instead of a place: no state is read, or none is written."""
Work = tuple[int, int]
"""First row, number of rows."""
Piece = tuple[int, int, int, int, int, int]
"""First row, rows, place of the state before, place that keeps the state after; the same two laid aside.

A piece without a state before it continues the piece before it.
"""


@dataclass(frozen=True, eq=False)
class Stage:
    """Pieces that are computed side by side for all sequences, one after the other within each.

    spans: first piece of each sequence that has any, and one after its last.
    """

    pieces: list[Piece]
    spans: list[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Plan:
    """Stages in order, by turns of rows alone and of pieces of runs; the first may be empty.

    Between them and within trees, ``asides`` states need memory of their own.
    """

    stages: list[Stage]
    asides: int


@functools.lru_cache(maxsize=8)
def plan(lineage: Lineage) -> Plan:
    """Plan of a lineage, made once per forward, for all layers."""
    works: list[list[list[Work]]] = []
    for first, end in lineage.ends():
        stages = _stages(dict(lineage.chunks), first, end)
        works += ([] for _ in range(len(stages) - len(works)))
        for stage, work in zip(works, stages, strict=False):
            stage += [work] if work else []
    asides = _asides(lineage, works)
    return Plan([_stage(lineage, stage, asides) for stage in works], len(asides))


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


def _continuations(lineage: Lineage, work: list[Work]) -> list[bool]:
    """Whether each piece continues the one before it."""
    lasts = [None, *(first + n - 1 for first, n in work[:-1])]
    return [lineage.parents[first] == last for (first, _), last in zip(work, lasts, strict=True)]


def _asides(lineage: Lineage, planned: list[list[list[Work]]]) -> dict[int, int]:
    """Rows whose state is neither kept nor only held, and where it is laid aside."""
    works = [work for stage in planned for work in stage]
    parents = {
        lineage.parents[w[0]]
        for work in works
        for w, h in zip(work, _continuations(lineage, work), strict=True)
        if not h
    }
    rows = sorted(row for row in parents if row >= 0 and lineage.keep[row] < 0)
    return {row: i for i, row in enumerate(rows)}


def _stage(lineage: Lineage, works: list[list[Work]], asides: dict[int, int]) -> Stage:
    pieces: list[Piece] = []
    spans = []
    for work in works:
        spans.append((len(pieces), len(pieces) + len(work)))
        for (first, n), held in zip(work, _continuations(lineage, work), strict=True):
            last = first + n - 1
            before, beside = (NOWHERE, NOWHERE) if held else _before(lineage, first, asides)
            pieces.append((first, n, before, lineage.keep[last], beside, asides.get(last, NOWHERE)))
    return Stage(pieces, spans)


def _before(lineage: Lineage, row: int, asides: dict[int, int]) -> tuple[int, int]:
    parent = lineage.parents[row]
    place = lineage.source[row] if parent < 0 else lineage.keep[parent]
    return (place, NOWHERE) if place >= 0 else (NOWHERE, asides[parent])
