"""Element by element: out = f(x, y), of rows that may be selected, cut into columns, or of another type.

One kernel serves sums, gates, caps, conversions, joined rows, selected rows and outputs.
"""

from __future__ import annotations

from typing import Literal, get_args

import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.launch import launch_options, start_next, wait_for_previous
from spec_kernels.ops.device_function import device_function

Function = Literal[
    "copy", "add", "sigmoid", "silu", "cap", "silu_glu", "gelu_glu", "clamped_glu", "relu_glu", "softplus"
]
FUNCTIONS: tuple[Function, ...] = get_args(Function)
BLOCK = 1024
"""Columns of a program."""


def combine_rows(
    function: Function,
    out: Tensor,
    x: Tensor,
    y: Tensor | None = None,
    index: Tensor | None = None,
    scale: float = 1.0,
) -> None:
    """out = f(x, y) for every row of ``out``.

    copy: x · scale; add: x + y; sigmoid, silu, softplus: x · f(y); cap: scale · tanh(x / scale); *_glu: see
    ``Activation``, x is the gate and y is up.

    :param out: [R, W], rows may be strided. :param x: [*, W], float. :param y: [*, W], or [*, G]: one number for each
        of G equal parts of a row.
    :param index: int32 [R], which row of x each row of out is made from; None: its own.
    """
    rows, width = out.shape
    other = x if y is None else y
    part = 1 if y is None else width // y.shape[1]  # columns that share a number of y
    block = min(BLOCK, triton.next_power_of_2(width))
    _combine_rows[rows, triton.cdiv(width, block)](
        out, x, other, out if index is None else index, out.stride(0), x.stride(0), other.stride(0), scale,
        width, part, FUNCTIONS.index(function), index is not None, block, **launch_options(4),
    )  # fmt: skip


@device_function
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@device_function
def tanh(x):
    """1 - 2 / (exp(2 x) + 1), without an overflow at either end."""
    return 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0)


@device_function
def softplus(x):
    """max(x, 0) + log(1 + exp(-|x|)), without an overflow."""
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@device_function
def activate(gate, up, FUNCTION: tl.constexpr):
    """A gated unit by its number in ``FUNCTIONS``."""
    if FUNCTION == 5:
        result = gate * sigmoid(gate) * up
    elif FUNCTION == 6:
        result = 0.5 * gate * (1.0 + tanh(0.7978845608028654 * (gate + 0.044715 * gate * gate * gate))) * up
    elif FUNCTION == 8:
        result = tl.maximum(gate, 0.0) * up
    else:
        low = tl.minimum(gate, 7.0)
        result = low * sigmoid(1.702 * low) * (tl.minimum(tl.maximum(up, -7.0), 7.0) + 1.0)
    return result


@triton.jit
def _combine_rows(
    out, x, y, index, out_stride, x_stride, y_stride, scale, WIDTH: tl.constexpr, PART: tl.constexpr,
    FUNCTION: tl.constexpr, INDEXED: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    start_next(DEPENDENT)
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    wait_for_previous(DEPENDENT)
    source = row
    if INDEXED:
        source = tl.load(index + row).to(tl.int64)
    real = column < WIDTH
    a = tl.load(x + source * x_stride + column, real, other=0.0).to(tl.float32)
    if FUNCTION == 0:
        value = a * scale
    elif FUNCTION == 4:
        value = tanh(a / scale) * scale
    else:
        b = tl.load(y + row * y_stride + column // PART, real, other=0.0).to(tl.float32)
        if FUNCTION == 1:
            value = a + b
        elif FUNCTION == 2:
            value = a * sigmoid(b)
        elif FUNCTION == 3:
            value = a * b * sigmoid(b)
        elif FUNCTION == 9:
            value = a * softplus(b)
        else:
            value = activate(a, b, FUNCTION)
    tl.store(out + row * out_stride + column, value.to(out.dtype.element_ty), real)
