"""Rows of the embedding table."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.blocks import read_weights
from spec_kernels.gpu.launch import launch_options, start_next, wait_for_previous
from spec_kernels.gpu.repack import Matrix

BLOCK = 1024
"""Columns of a program."""


def embed(tokens: Tensor, matrix: Matrix, out: Tensor, scale: float) -> None:
    """out = table[token] · scale; a token below 0 is read as 0.

    :param tokens: int32 [R], strided. :param table: [V, D]. :param out: float32 [P, D].
    """
    width = matrix.k
    block = max(64, min(BLOCK, triton.next_power_of_2(width)))
    _embed[len(tokens), triton.cdiv(width, block)](
        tokens, matrix.memory, out, tokens.stride(0), scale, matrix.n, width, matrix.form, block, **launch_options(4)
    )


@triton.jit
def _embed(
    tokens, memory, out, stride, scale, rows, WIDTH: tl.constexpr, FORM: tl.constexpr, BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    start_next(DEPENDENT)
    wait_for_previous(DEPENDENT)
    row, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK
    token = tl.maximum(tl.load(tokens + row * stride), 0).to(tl.int64)
    column = first + tl.arange(0, BLOCK)
    if FORM.blocks:
        value = read_weights(memory, column, token, WIDTH, rows, FORM)
    else:
        value = tl.load(memory.numbers + token * WIDTH + column, column < WIDTH, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + column, value * scale, column < WIDTH)
