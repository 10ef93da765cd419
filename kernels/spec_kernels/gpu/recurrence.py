"""The recurrent part of a step as integers: which row continues which, and where states are read and written.

States are given by offsets from the first place of their pool, see ``states``. The rest is planned as in
``ops.gated_delta.plan``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spec_kernels.gpu.delta_rule import Pieces
from spec_kernels.gpu.device import host_memory
from spec_kernels.gpu.windows import Links, kept_spans
from spec_kernels.ops.gated_delta.plan import PIECE, plan
from spec_kernels.ops.lineage import Lineage

STAGES = 3
"""Rows alone, runs, and rows alone after them."""


@dataclass(frozen=True)
class StateSize:
    """The recurrent part of a bucket.

    sequences: of the step. runs: pieces of runs, 0: no stage has any. asides: states that are laid aside. recorded:
    whether inputs of some rows are recorded.
    """

    sequences: int
    runs: int
    asides: int
    recorded: bool


class StateLayout:
    """The description of the recurrent part of a bucket, in pinned memory and on the device.

    size: of the bucket. stages: pieces of each. kept: spans of ``keep_windows``. recorded: rows whose inputs are
    recorded, in order.
    """

    def __init__(self, rows: int, size: StateSize, device: torch.device) -> None:
        self.size = size
        counts = [6 * rows, 2 * STAGES * size.sequences, 2 * size.sequences, 3 * rows, rows]
        self.host = host_memory(sum(counts), torch.int64, device)
        self.device = torch.zeros(sum(counts), dtype=torch.int64, device=device)
        self._pieces, self._spans, self._kept, self._links, self._recorded = _shape(self.host.split(counts), rows)
        table, spans, self.kept, links, self.recorded = _shape(self.device.split(counts), rows)
        self.stages = [Pieces(table, of_stage) for of_stage in spans]
        self.links = Links(*links)

    def fill(self, lineage: Lineage, recorded: Sequence[int], offsets: np.ndarray) -> None:
        """Describe a chunk. offsets: of the places of the pool."""
        self.host.zero_()
        pieces, spans, links = self._pieces.numpy(), self._spans.numpy(), self._links.numpy()
        stages, first = plan(lineage).stages, 0
        for number in (1, 0, 2):  # pieces of runs are the first of the table
            if number < len(stages) and stages[number].pieces:
                stage = stages[number]
                spans[number, : len(stage.spans)] = np.add(stage.spans, first)
                pieces[first : first + len(stage.pieces)] = stage.pieces
                first += len(stage.pieces)
        pieces[:first, 2:4] = offsets[pieces[:first, 2:4]]
        links[0], links[2] = -1, -1
        links[0, : lineage.rows] = lineage.parents
        links[1:, : lineage.rows] = offsets[[lineage.source, lineage.keep]]
        kept = kept_spans(lineage)
        self._kept.numpy()[: len(kept)] = kept
        self._recorded.numpy()[: len(recorded)] = recorded


def _shape(parts: Sequence[Tensor], rows: int) -> list[Tensor]:
    pieces, spans, kept, links, recorded = parts
    return [pieces.view(rows, 6), spans.view(STAGES, -1, 2), kept.view(-1, 2), links.view(3, rows), recorded]


def uncut_rows(lineage: Lineage, first: int, count: int) -> int:
    """Number of ``count`` rows from ``first`` on that a chunk may hold: it cuts neither a piece of a run nor drafts.

    Drafts follow the first row of a sequence whose state is kept.
    """
    parent, end = lineage.parents[first], first + count
    if parent >= 0 and lineage.keep[parent] >= 0:
        return 0
    for row in range(first, end):
        if lineage.keep[row] >= 0:
            return row + 1 - first
    for begin, n in lineage.chunks:
        if begin < end < begin + n:
            end -= (end - begin) % PIECE
    return end - first


def cut_lineage(lineage: Lineage, first: int, end: int) -> Lineage:
    """Some rows as a lineage of their own. A cut sequence keeps its state where it began."""
    if (first, end) == (0, lineage.rows):
        return lineage
    keep, last = lineage.keep[first:end], end - 1
    if end not in (*lineage.begins, lineage.rows) and keep[-1] < 0:
        keep[-1] = lineage.source[last]
    runs = [(max(begin, first), min(begin + n, end)) for begin, n in lineage.chunks]
    return Lineage(
        [max(-1, parent - first) for parent in lineage.parents[first:end]],
        lineage.source[first:end],
        keep,
        sorted({0, *(row - first for row in lineage.begins if first < row < end)}),
        [(begin - first, stop - begin) for begin, stop in runs if begin < stop],
    )
