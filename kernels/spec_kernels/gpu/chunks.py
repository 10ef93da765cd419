"""Cuts a batch into chunks of rows that one program has room for. A row's bits do not depend on its chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spec_kernels.gpu.layout import Chunk, Size, places_among
from spec_kernels.gpu.recurrence import STAGES, StateSize, cut_lineage, uncut_rows
from spec_kernels.gpu.support import ROWS_MAX, SUMS_BYTES
from spec_kernels.gpu.tiles import PAGE, power_of_two
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.shapes import HeadShape
from spec_kernels.ops.device_function import INTERPRETED
from spec_kernels.ops.gated_delta.plan import plan
from spec_kernels.ops.lineage import Lineage

ASIDES_MIN = 16
"""Recurrent states that a bucket of trees or runs has room for: trees of other shapes need few other buckets."""


def rows_max(pieces: int, shapes: Sequence[HeadShape]) -> int:
    """Max rows of a chunk whose texts have ``pieces`` pieces. shapes: of all layers with a cache."""
    if not shapes:
        return ROWS_MAX
    rows = SUMS_BYTES // (pieces * max(heads.heads * (heads.dim + 2) for heads in shapes) * 4)
    return max(16, min(ROWS_MAX, 1 << rows.bit_length() - 1 if rows else 0))


def cut_chunks(batch: ForwardBatch, most: int, whole: bool = False) -> Iterator[Chunk]:
    """Chunks of up to ``most`` rows. Drafts of a tree stay together, so a chunk with a large tree is larger.

    With recurrent layers all drafts do. whole: all rows of a sequence do. Rows that attend in both directions do, and
    no others are in their chunk.
    """
    lineage = None if batch.recurrence is None else batch.recurrence.lineage
    sequences: list[SequenceRows] = []
    first = rows = 0
    for s in batch.sequences:
        if s.held:
            raise ValueError("an executor on a device holds no rows of trees")
        at = 0
        while at < s.rows:
            fits = not sequences or sequences[0].mutual == s.mutual
            count = _next_rows(s, at, most - rows, lineage, whole) if fits else 0
            if count == 0:
                if rows:
                    yield _chunk(batch, first, rows, sequences)
                first, rows, sequences = first + rows, 0, []
                count = _next_rows(s, at, most, lineage, whole) or s.rows - at
            parents = s.parents if at + count == s.rows and not s.mutual else None
            sequences.append(SequenceRows(s.cache, rows, count, s.start + at, parents, s.mutual))
            at, rows = at + count, rows + count
    if rows:
        yield _chunk(batch, first, rows, sequences)


def _next_rows(s: SequenceRows, at: int, room: int, lineage: Lineage | None, whole: bool) -> int:
    """Rows of a sequence from ``at`` on that fit, 0: none."""
    if s.rows - at <= room or whole or s.mutual:
        return s.rows - at if s.rows - at <= room else 0
    chain = s.rows if s.parents is None else s.pending
    count = max(0, min(room, chain - at))
    return count if lineage is None else uncut_rows(lineage, s.first + at, count)


def _chunk(batch: ForwardBatch, first: int, rows: int, sequences: list[SequenceRows]) -> Chunk:
    inside = lambda numbers: (
        None if numbers is None else [row - first for row in numbers if first <= row < first + rows]
    )
    states = batch.recurrence
    lineage = None if states is None else cut_lineage(states.lineage, first, first + rows)
    recorded = [] if states is None else inside(states.recorded)
    return Chunk(first, rows, sequences, inside(batch.final), inside(batch.logits), lineage, recorded)


def size_of(chunk: Chunk, tiles: int, pairs: int = 0, added: bool = False) -> Size:
    """The smallest bucket with room for a chunk. tiles: that it needs. pairs, added: see ``Size``."""
    end = max(s.end for s in chunk.sequences)
    rows = bucket_rows(chunk.rows)
    final = _count(chunk.final, chunk.rows, rows)
    among_final = places_among(chunk.final, chunk.logits)
    have = chunk.rows if chunk.final is None else len(chunk.final)
    logits = _count(among_final, have, rows)
    tree = any(s.parents is not None for s in chunk.sequences)
    pieces = max(4, power_of_two(end // PAGE + 1))
    states = None if chunk.lineage is None else _state_size(chunk.lineage, bool(chunk.recorded))
    mutual, chooses = chunk.sequences[0].mutual, chunk.choices is not None
    return Size(rows, power_of_two(tiles), pieces, final, logits, tree, states, chooses, pairs, added, mutual)


def _state_size(lineage: Lineage, recorded: bool) -> StateSize:
    whole = plan(lineage)
    if len(whole.stages) > STAGES:
        raise ValueError(f"rows alone and runs are {len(whole.stages)} stages, {STAGES} is the max: join the runs")
    runs = len(whole.stages[1].pieces) if len(whole.stages) > 1 else 0
    some = lambda count, least: power_of_two(max(count, least)) if count else 0
    return StateSize(power_of_two(len(lineage.begins)), some(runs, 1), some(whole.asides, ASIDES_MIN), recorded)


def bucket_rows(rows: int) -> int:
    """Rows of the smallest bucket that has room for these."""
    if INTERPRETED:
        return rows  # nothing is captured
    return power_of_two(rows) if rows <= 64 else -(-rows // 64) * 64


def _count(rows: Sequence[int] | None, have: int, most: int) -> int:
    """Rows of a heading; -1: all of them in order."""
    if rows is None or list(rows) == list(range(have)):
        return -1
    return min(most, bucket_rows(len(rows))) if rows else 0
