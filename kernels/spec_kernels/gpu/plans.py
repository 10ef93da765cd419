"""What stays equal from step to step while texts and their numbers of rows stay: a step is then written by columns."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from spec_kernels.gpu.choice.draws import COUNTER
from spec_kernels.gpu.graphs import Bucket
from spec_kernels.gpu.layout import LAST, PLACE, POSITION, SEEN, TOKEN, Chunk
from spec_kernels.gpu.lowering import Program
from spec_kernels.gpu.tiles import PAGE, power_of_two
from spec_kernels.model.batch import ForwardBatch, SequenceRows

PLANS_MAX = 16
"""Plans that an executor keeps."""
LOWEST, HIGHEST, END, PIECES = 3, 4, 5, 7
"""Fields of a tile that depend on the length of its text."""


def plan_key(batch: ForwardBatch, height: int) -> Hashable | None:
    """The key of a step's plan; None where each step differs: trees, rows of pictures, states, and long chains.

    height: rows of a tile.
    """
    if batch.tokens is None or batch.given or batch.inputs or batch.recurrence is not None:
        return None
    if batch.positions.dim() > 1 or any(batch.added):
        return None
    if any(s.mutual or s.parents is not None or s.cache is None or s.rows > height for s in batch.sequences):
        return None
    requested = tuple(None if rows is None else tuple(rows) for rows in (batch.logits, batch.final))
    texts = () if batch.choices is None else batch.choices.texts
    drawn = tuple((text.row, len(text.depths), text.sampling.temperature, text.source) for text in texts)
    lines = tuple((s.cache.line, s.rows) for s in batch.sequences)
    return lines, pieces_of(batch.sequences), frozenset(batch.taps), requested, drawn


def pieces_of(sequences: Sequence[SequenceRows]) -> int:
    """Pieces of attention that a bucket of these texts has."""
    return max(4, power_of_two(max(s.end for s in sequences) // PAGE + 1))


@dataclass(eq=False)
class ChainPlan:
    """A bucket whose description holds chains of some texts, and its outputs.

    text: which of them each row belongs to. within: number of a row in its text. counts: rows of each.
    drawn: rows of logits from which a token is chosen. drawn_text: number of the choice of each. depths: of each.
    """

    bucket: Bucket[Program]
    outputs: dict[str, Tensor]
    text: np.ndarray
    within: np.ndarray
    counts: np.ndarray
    drawn: np.ndarray
    drawn_text: np.ndarray
    depths: np.ndarray

    @staticmethod
    def of(bucket: Bucket[Program], outputs: dict[str, Tensor], chunk: Chunk) -> ChainPlan:
        counts = np.array([s.rows for s in chunk.sequences])
        texts = chunk.choices or ()
        drawn = np.array([text.row + depth for text in texts for depth in range(len(text.depths))], np.int64)
        plan = ChainPlan(
            bucket,
            outputs,
            *_number_rows(counts),
            counts,
            drawn,
            *_number_rows(np.array([len(text.depths) for text in texts], np.int64)),
        )
        bucket.layout.plan = plan
        return plan

    @property
    def described(self) -> bool:
        """Whether the description still is of these texts."""
        return self.bucket.layout.plan is self

    def fill(self, starts: Sequence[int], tokens: np.ndarray, positions: np.ndarray, drawn: Sequence[int] = ()) -> None:
        """Write what depends on the lengths of texts, given by the places of their first rows.

        drawn: output position of the first token that is chosen for each text.
        """
        rows, tiles, draws = self.bucket.layout.begin_columns()
        rows, tiles, begins = rows[: len(self.text)], tiles[: len(starts)], np.array(starts)
        ends = begins + self.counts
        rows[:, TOKEN], rows[:, POSITION] = tokens, positions
        rows[:, PLACE] = rows[:, SEEN] = begins[self.text] + self.within
        rows[:, LAST] = ends[self.text] - 1
        tiles[:, LOWEST], tiles[:, HIGHEST], tiles[:, END] = begins, ends, ends
        tiles[:, PIECES] = ends // PAGE + 1
        if drawn:
            draws[self.drawn, COUNTER] = np.array(drawn)[self.drawn_text] + self.depths


def _number_rows(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The text of every row, and the number of the row in it. counts: rows of each text."""
    texts = np.repeat(np.arange(len(counts)), counts)
    return texts, np.arange(len(texts)) - np.repeat(counts.cumsum() - counts, counts)
