"""Rows of the embedding table."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.launch import launch_options, start_next, wait_for_previous

BLOCK = 1024
"""Columns of a program."""


def embed(tokens: Tensor, table: Tensor, out: Tensor, scale: float) -> None:
    """out = table[token] · scale; a token below 0 is read as 0.

    :param tokens: int32 [R], strided. :param table: [V, D]. :param out: float32 [P, D].
    """
    width = table.shape[1]
    block = min(BLOCK, triton.next_power_of_2(width))
    _embed[len(tokens), triton.cdiv(width, block)](
        tokens, table, out, tokens.stride(0), scale, width, block, **launch_options(4)
    )


def naive_embed(tokens: Tensor, table: Tensor, out: Tensor, scale: float) -> None:
    """The twin of ``embed`` in torch."""
    out[: len(tokens)] = table[tokens.clamp_min(0).long()].float() * scale


@triton.jit
def _embed(
    tokens, table, out, stride, scale, WIDTH: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr
):  # fmt: skip
    start_next(DEPENDENT)
    wait_for_previous(DEPENDENT)
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.maximum(tl.load(tokens + row * stride), 0).to(tl.int64)
    value = tl.load(table + token * WIDTH + column, column < WIDTH, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + column, value * scale, column < WIDTH)
