"""Repacks blocks of a file as matrices in a form that kernels read, and back to floats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from spec_kernels.gpu.forms import FLOATS, SCALES, Form
from spec_kernels.ops.dequant import TYPES
from spec_kernels.ops.dequant.bits import fields, five_bits, halves, pairs, scales_and_mins, six_bits
from spec_kernels.ops.dequant.reference import FP4

RUN = 64
"""Weights whose nibbles lie together."""
INTEGERS: dict[str, Callable[[Tensor], Tensor]] = {
    "Q8_0": lambda b: b[:, 2:] ^ 128,
    "Q4_0": lambda b: halves(b[:, 2:]),
    "Q4_1": lambda b: halves(b[:, 4:]),
    "Q5_0": lambda b: five_bits(b[:, 6:], b[:, 2:6]),
    "Q5_1": lambda b: five_bits(b[:, 8:], b[:, 4:8]),
    "Q4_K": lambda b: pairs(b[:, 16:]),
    "Q5_K": lambda b: pairs(b[:, 48:]) | (fields(b[:, 16:48], 1) << 4),
    "Q6_K": lambda b: six_bits(b[:, :128], b[:, 128:192]),
    "MXFP4": lambda b: halves(b[:, 1:]),
}
"""Blocks of a file, uint8 [blocks, bytes] -> their integers in order, uint8."""


class MatrixTensors(NamedTuple):
    """Tensors of a matrix as kernels read them, see ``forms``; numbers are integers, or floats [n, k]."""

    numbers: Tensor
    high: Tensor | None = None
    scales: Tensor | None = None
    tops: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix [n, k]. dtype: of rows that are multiplied with it."""

    form: Form
    n: int
    k: int
    dtype: torch.dtype
    memory: MatrixTensors

    @staticmethod
    def of(values: Tensor) -> Matrix:
        """A matrix of floats."""
        n, k = values.shape
        return Matrix(FLOATS, n, k, values.dtype, MatrixTensors(values))

    @staticmethod
    def empty(form: Form, n: int, k: int, dtype: torch.dtype, device: torch.device) -> Matrix:
        """A matrix of any content."""
        if not form.blocks:
            return Matrix.of(torch.empty(n, k, dtype=dtype, device=device))
        room = lambda *shape, dtype=torch.uint8: torch.empty(shape, dtype=dtype, device=device)
        runs, (scale, top) = -(-k // RUN), SCALES[form.scales]
        memory = MatrixTensors(
            room(n, 32 * runs if form.nibbles else k),
            room(n, 8 * form.bits * runs) if form.bits else None,
            room(k // form.each, n, dtype=scale),
            None if top is None else room(k // 256, n, dtype=top),
        )
        return Matrix(form, n, k, dtype, memory)

    def write(self, first: int, rows: Tensor) -> None:
        """Fill rows from ``first`` on. rows: floats [r, k], or blocks of a file, uint8 [r, bytes]."""
        end = first + len(rows)
        memory = repack(rows, self.form) if self.form.blocks else MatrixTensors(rows)
        for to, piece, scale in zip(self.memory, memory, (False, False, True, True), strict=True):
            if to is not None:
                (to[:, first:end] if scale else to[first:end]).copy_(piece)


def repack(data: Tensor, form: Form) -> MatrixTensors:
    """Repack blocks of a file, uint8 [r, bytes of a row], exactly."""
    blocks = data.reshape(-1, TYPES[form.type].bytes)
    numbers = INTEGERS[form.type](blocks).reshape(len(data), -1)
    by_block = lambda values, dtype: values.contiguous().view(dtype).view(len(data), -1).T
    scale, top = SCALES[form.scales]
    if form.scales == "bytes":
        scales = by_block(torch.stack(scales_and_mins(blocks[:, 4:16]), -1), scale)
    elif form.scales == "signed":
        scales = by_block(blocks[:, 192:208], scale)
    else:
        scales = by_block(blocks[:, : scale.itemsize], scale)
    at = 208 if form.scales == "signed" else 0
    tops = None if top is None else by_block(blocks[:, at : at + top.itemsize], top)
    if not form.nibbles:
        return MatrixTensors(numbers, None, scales, tops)
    low, high = _pack(numbers, form.bits)
    return MatrixTensors(low, high, scales, tops)


def _pack(numbers: Tensor, bits: int) -> tuple[Tensor, Tensor | None]:
    """uint8 [r, k] -> nibbles and high bits."""
    padded = torch.nn.functional.pad(numbers, (0, -numbers.shape[1] % RUN))
    runs = padded.view(len(padded), -1, 2, 32)
    low = ((runs[:, :, 0] & 15) | (runs[:, :, 1] << 4)).flatten(1)
    if not bits:
        return low, None
    places = (runs >> 4).view(*runs.shape[:3], 4 // bits, 8 * bits)
    return low, (places << _shifts(bits, places.device)).sum((2, 3), dtype=torch.uint8).flatten(1)


def _shifts(bits: int, device: torch.device) -> Tensor:
    """Places of high bits in their byte: [half, group, 1]."""
    half, group = torch.arange(2, device=device), torch.arange(4 // bits, device=device)
    return (half[:, None, None] * 4 + group[:, None] * bits).to(torch.uint8)


def naive_weights(matrix: Matrix) -> Tensor:
    """float32 [n, k]: the twin of ``blocks.read_halves`` in torch."""
    form, memory = matrix.form, matrix.memory
    if not form.blocks:
        return memory.numbers.float()
    numbers = _naive_integers(matrix).float() - form.offset
    if form.type == "MXFP4":
        numbers = torch.tensor(FP4, dtype=torch.float32, device=numbers.device)[numbers.long()]
    scale, minimum = _naive_scales(matrix)
    spread = lambda m: m.T.repeat_interleave(form.each, 1)
    product = spread(scale) * numbers
    return product if minimum is None else product - spread(minimum)


def _naive_integers(matrix: Matrix) -> Tensor:
    form, memory = matrix.form, matrix.memory
    if not form.nibbles:
        return memory.numbers
    runs = memory.numbers.view(matrix.n, -1, 1, 32)
    numbers = torch.cat([runs & 15, runs >> 4], 2)
    if form.bits:
        bytes_ = memory.high.view(matrix.n, -1, 1, 1, 8 * form.bits)
        high = (bytes_ >> _shifts(form.bits, bytes_.device)) & ((1 << form.bits) - 1)
        numbers = numbers | high.reshape(numbers.shape) << 4
    return numbers.flatten(1)[:, : matrix.k]


def _naive_scales(matrix: Matrix) -> tuple[Tensor, Tensor | None]:
    """float32 [k / each, n]: scales, and minimums."""
    form, scales, tops = matrix.form, matrix.memory.scales, matrix.memory.tops
    both = lambda m, dtype: m.view(dtype).view(*m.shape, 2).float().unbind(-1)
    if form.scales == "halves":
        scale, minimum = both(scales, torch.float16)
        return scale, -minimum
    if form.scales == "exponent":
        return torch.exp2(scales.double() - 128).float(), None
    if tops is None:
        return scales.float(), None
    tops = tops.repeat_interleave(256 // form.each, 0)
    if form.scales == "signed":
        return tops.float() * scales.float(), None
    pairs = zip(both(tops, torch.float16), both(scales, torch.uint8), strict=True)
    scale, minimum = (top * scale for top, scale in pairs)
    return scale, minimum
