"""Kernels that apply masks, biases and penalties to copies of rows. Rows without any are not copied."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.choice.description import CHANGE_FIELDS, COPY_FIELDS
from spec_kernels.gpu.launch import launch_options, start_next, wait_for_previous

TILE = 2048
"""Tokens that one program copies."""
CHANGES = 128
"""Changed logits of one program."""


def adjust_rows(logits: Tensor, copies: Tensor, rows: Tensor, changes: Tensor, masks: Tensor) -> None:
    """Write an adjusted copy of A rows; kernels on the current stream.

    logits: [R, V] float32, bfloat16 or float16    copies: [at least A, V] float32, written
    rows: [A, 2] int32: the row, and its mask or -1    masks: [M, ceil(V / 32)] int32, bits of tokens that stay
    changes: [C, 8] int32: bias, factor of repetition, penalty (float64), copy, token
    """
    vocab, words = logits.shape[1], masks.shape[1]
    options: dict[str, Any] = launch_options(4, fuse=False)
    _copy_rows[(triton.cdiv(vocab, TILE), len(rows))](
        logits, copies, rows, masks, logits.stride(0), vocab, words, COPY_FIELDS, TILE, **options
    )
    if len(changes):
        _change_logits[(triton.cdiv(len(changes), CHANGES),)](
            copies, changes, len(changes), vocab, CHANGE_FIELDS, CHANGES, **options
        )


@triton.jit
def _copy_rows(
    logits, copies, rows, masks, stride, V, WORDS, FIELDS: tl.constexpr, TILE: tl.constexpr, DEPENDENT: tl.constexpr
):
    """Copy a tile of a row; the logits of tokens that its mask excludes become -inf."""
    start_next(DEPENDENT)
    token, copy = tl.program_id(0) * TILE + tl.arange(0, TILE), tl.program_id(1).to(tl.int64)
    row, mask = tl.load(rows + copy * FIELDS).to(tl.int64), tl.load(rows + copy * FIELDS + 1).to(tl.int64)
    words = tl.load(masks + mask * WORDS + (token >> 5), (mask >= 0) & (token < V), other=-1)
    allowed = ((words >> (token & 31)) & 1) == 1
    wait_for_previous(DEPENDENT)
    value = tl.load(logits + row * stride + token, token < V, other=0.0).to(tl.float32)
    tl.store(copies + copy * V + token, tl.where(allowed, value, float("-inf")), token < V)


@triton.jit
def _change_logits(copies, changes, C, V, FIELDS: tl.constexpr, CHANGES: tl.constexpr, DEPENDENT: tl.constexpr):
    """Add biases, then apply repetition, then subtract penalties; in float64, each rounded to float32."""
    start_next(DEPENDENT)
    change = tl.program_id(0) * CHANGES + tl.arange(0, CHANGES)
    exists = change < C
    terms = changes.to(tl.pointer_type(tl.float64)) + change * (FIELDS // 2)
    bias = tl.load(terms, exists, other=0.0)
    repetition = tl.load(terms + 1, exists, other=1.0)
    penalty = tl.load(terms + 2, exists, other=0.0)
    copy = tl.load(changes + change * FIELDS + 6, exists, other=0).to(tl.int64)
    token = tl.load(changes + change * FIELDS + 7, exists, other=0)
    place = copies + copy * V + token
    exists = exists & (token >= 0) & (token < V)
    wait_for_previous(DEPENDENT)
    value = (tl.load(place, exists, other=0.0).to(tl.float64) + bias).to(tl.float32).to(tl.float64)
    value = tl.where(value > 0, value / repetition, value * repetition).to(tl.float32)
    tl.store(place, (value.to(tl.float64) - penalty).to(tl.float32), exists)
