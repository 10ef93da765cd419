"""Elementwise functions that give a row the same bits in every batch.

Torch computes most of a tensor with vector instructions and the remainder one by one, and the two round differently
(silu, sigmoid, softplus and complex products do). The remainder depends on the size of the tensor, and on where it
is split between threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

UNSPLIT = 1 << 15
"""Numbers up to which torch does not split the work between threads (its grain size)."""
LANES = 64
"""Rows in multiples of this leave no remainder, for any vector length."""


def rowwise(op: Callable[..., Any], *rows: Tensor) -> Tensor:
    """Run ``op``, which overwrites its first argument, on tensors [R, ...] that have R in common; returns the first."""
    step = _together(rows[0])
    if step >= len(rows[0]):
        op(*rows)
    else:
        for parts in zip(*(m.split(step) for m in rows), strict=True):
            op(*parts)
    return rows[0]


def _together(rows: Tensor) -> int:
    """Number of rows that one call may process."""
    if rows.is_cuda or not len(rows):
        return len(rows)
    width = rows.numel() // len(rows)
    return 1 if width % LANES else max(1, UNSPLIT // width)
