"""What stays equal from step to step while texts and their numbers of rows stay: a step is then written by columns."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from spec_kernels.gpu.graphs import Bucket
from spec_kernels.gpu.layout import LAST, PAGE, PLACE, POSITION, SEEN, TOKEN, Chunk, power_of_two
from spec_kernels.gpu.lowering import Program
from spec_kernels.model.batch import ForwardBatch, SequenceRows

PLANS_MAX = 16
"""Plans that an executor keeps."""
LOWEST, HIGHEST, END, PIECES = 3, 4, 5, 7
"""Fields of a tile that depend on the length of its text."""


def plan_key(batch: ForwardBatch, height: int) -> Hashable | None:
    """The key of a step's plan; None where each step differs: trees, embeddings, states, and long chains.

    height: rows of a tile.
    """
    if batch.tokens is None or batch.given or batch.inputs or batch.recurrence is not None:
        return None
    if any(s.parents is not None or s.cache is None or s.rows > height for s in batch.sequences):
        return None
    requested = tuple(None if rows is None else tuple(rows) for rows in (batch.logits, batch.final))
    lines = tuple((s.cache.line, s.rows) for s in batch.sequences)
    return lines, pieces_of(batch.sequences), frozenset(batch.taps), requested


def pieces_of(sequences: Sequence[SequenceRows]) -> int:
    """Pieces of attention that a bucket of these texts has."""
    return max(4, power_of_two(max(s.end for s in sequences) // PAGE + 1))


@dataclass(eq=False)
class ChainPlan:
    """A bucket whose description holds chains of some texts, and its outputs.

    text: which of them each row belongs to. within: number of a row in its text. counts: rows of each.
    """

    bucket: Bucket[Program]
    outputs: dict[str, Tensor]
    text: np.ndarray
    within: np.ndarray
    counts: np.ndarray

    @staticmethod
    def of(bucket: Bucket[Program], outputs: dict[str, Tensor], chunk: Chunk) -> ChainPlan:
        counts = np.array([s.rows for s in chunk.sequences])
        within = np.concatenate([np.arange(count) for count in counts])
        plan = ChainPlan(bucket, outputs, np.repeat(np.arange(len(counts)), counts), within, counts)
        bucket.layout.plan = plan
        return plan

    @property
    def described(self) -> bool:
        """Whether the description still is of these texts."""
        return self.bucket.layout.plan is self

    def fill(self, starts: Sequence[int], tokens: np.ndarray, positions: np.ndarray) -> None:
        """Write what depends on the lengths of texts, given by the places of their first rows."""
        rows, tiles = self.bucket.layout.begin_columns()
        rows, tiles, begins = rows[: len(self.text)], tiles[: len(starts)], np.array(starts)
        ends = begins + self.counts
        rows[:, TOKEN], rows[:, POSITION] = tokens, positions
        rows[:, PLACE] = rows[:, SEEN] = begins[self.text] + self.within
        rows[:, LAST] = ends[self.text] - 1
        tiles[:, LOWEST], tiles[:, HIGHEST], tiles[:, END] = begins, ends, ends
        tiles[:, PIECES] = ends // PAGE + 1
