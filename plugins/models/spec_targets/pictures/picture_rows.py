"""What rows of pictures have besides their embeddings: positions on several axes, and rows that layers add to them."""

from __future__ import annotations

from collections.abc import Sequence as Items

import torch
from torch import Tensor

from spec_core import Batch, Sequence


def shift_of(seq: Sequence) -> int:
    """What is added to the number of a generated row to get its position."""
    encoded = seq.encoded
    if encoded is None or encoded.positions is None:
        return 0
    return int(encoded.positions.max()) + 1 - seq.prompt_len


def positions_of(batch: Batch, axes: Items[int]) -> Tensor:
    """[R], or [R, pairs] if a row has different positions on different axes. axes: of every pair that rotates."""
    shifts = [shift_of(part.seq) for part in batch.parts]
    counts = [len(part.pending) + part.branch_rows for part in batch.parts]
    moved = batch.positions + torch.tensor(shifts).repeat_interleave(torch.tensor(counts)).to(batch.positions)
    prompts = [part for part in batch.parts if _has_axes(part.seq) and part.start < part.seq.prompt_len]
    if not prompts:
        return moved
    each = moved[:, None].repeat(1, len(axes))
    for part in prompts:
        assert part.seq.encoded is not None and part.seq.encoded.positions is not None
        end = min(part.end, part.seq.prompt_len)
        rows = slice(part.row, part.row + end - part.start)
        each[rows] = part.seq.encoded.positions[list(axes), part.start : end].T.to(each)
    return each


def _has_axes(seq: Sequence) -> bool:
    return seq.encoded is not None and seq.encoded.positions is not None


def added_rows(batch: Batch) -> list[dict[int, Tensor]]:
    """{row of the batch: [D]} for each of the layers that add rows."""
    added: list[dict[int, Tensor]] = []
    for part in batch.parts:
        for index, rows in enumerate(part.seq.encoded.added if part.seq.encoded is not None else ()):
            added += [{} for _ in range(index + 1 - len(added))]
            inside = {at: row for at, row in rows.items() if part.start <= at < part.end}
            added[index] |= {part.row + at - part.start: row for at, row in inside.items()}
    return added
