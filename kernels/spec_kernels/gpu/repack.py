"""Repacks blocks of a file as matrices in a form that kernels read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from spec_kernels.gpu.forms import FLOATS, RUN, WORDS, Form
from spec_kernels.ops.dequant import TYPES
from spec_kernels.ops.dequant.bits import (
    fields,
    five_bits,
    half_floats,
    halves,
    numbers,
    pairs,
    scales_and_mins,
    six_bits,
)

INTEGERS: dict[str, Callable[[Tensor], Tensor]] = {
    "Q8_0": lambda b: b[:, 2:],
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
    """Tensors of a matrix as kernels read them, see ``forms``; numbers are words, or floats [n, k]."""

    numbers: Tensor
    high: Tensor | None = None
    scales: Tensor | None = None


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
        room = lambda *shape, dtype=torch.int16: torch.empty(shape, dtype=dtype, device=device)
        runs = -(-k // RUN)
        high = room(n, WORDS * -(-runs // form.runs_of_high)) if form.bits else None
        memory = MatrixTensors(room(n, form.words * runs), high, room(runs, n, form.scales, dtype=torch.int64))
        return Matrix(form, n, k, dtype, memory)

    def write(self, first: int, rows: Tensor) -> None:
        """Fill rows from ``first`` on. rows: floats [r, k], or blocks of a file, uint8 [r, bytes]."""
        end = first + len(rows)
        memory = repack(rows, self.form) if self.form.blocks else MatrixTensors(rows)
        for to, piece, scale in zip(self.memory, memory, (False, False, True), strict=True):
            if to is not None:
                (to[:, first:end] if scale else to[first:end]).copy_(piece)


def repack(data: Tensor, form: Form) -> MatrixTensors:
    """Repack blocks of a file, uint8 [r, bytes of a row]: integers exactly, scales that are products rounded once.

    Raises ValueError if such a scale is too large for float16.
    """
    blocks = data.reshape(-1, TYPES[form.type].bytes)
    integers = INTEGERS[form.type](blocks).reshape(len(data), -1)
    runs = torch.nn.functional.pad(integers, (0, -integers.shape[1] % RUN)).view(len(data), -1, RUN)
    scales = _pack_scales(_scales(blocks, form).reshape(len(data), -1), form)
    if form.kind == "bytes":
        return MatrixTensors(_join_columns(runs.view(len(data), -1, 2, WORDS), 8), None, scales)
    columns = runs.view(len(data), -1, 4, WORDS)
    low = _join_columns(columns & 15, 4)
    if not form.bits:
        return MatrixTensors(low, None, scales)
    padded = torch.nn.functional.pad(columns >> 4, (0, 0, 0, 0, 0, -columns.shape[1] % form.runs_of_high))
    groups = padded.reshape(len(data), -1, 4 * form.runs_of_high, WORDS)
    return MatrixTensors(low, _join_columns(groups, form.bits), scales)


def _join_columns(columns: Tensor, bits: int) -> Tensor:
    """uint8 [r, groups, count, WORDS] -> int16 [r, groups * WORDS], the first of a word's numbers lowest."""
    shifts = torch.arange(columns.shape[2], device=columns.device)[:, None] * bits
    return (columns.to(torch.int32) << shifts).sum(2, dtype=torch.int32).to(torch.int16).flatten(1)


def _scales(blocks: Tensor, form: Form) -> Tensor:
    """Scales of blocks of a file, a minimum after each: float16, of codes bfloat16."""
    if form.kind == "codes":
        return torch.exp2(blocks[:, 0].double() - 128).bfloat16()  # float64: the smallest are subnormal in float32
    if form.type in ("Q4_K", "Q5_K"):
        scales, mins = scales_and_mins(blocks[:, 4:16])
        products = torch.stack([half_floats(blocks[:, :2]) * scales, -half_floats(blocks[:, 2:4]) * mins], -1)
    elif form.type == "Q6_K":
        products = half_floats(blocks[:, 208:]) * numbers(blocks[:, 192:208], torch.int8)
    else:
        return blocks[:, : 4 if form.minimums else 2].contiguous().view(torch.float16)
    rounded = (products / form.unit).half()
    if bool((rounded.isinf() & products.isfinite()).any()):
        largest = products[products.isfinite()].abs().max()
        raise ValueError(
            f"scales of {form.type} reach {largest:.4g}, GPU kernels hold up to {65504 * form.unit:.4g}: "
            "run such a file with kernels=reference"
        )
    return rounded


def _pack_scales(scales: Tensor, form: Form) -> Tensor:
    """[r, of a row] of 16 bits -> int64 [runs, r, *]."""
    padded = torch.nn.functional.pad(scales, (0, -scales.shape[1] % (4 * form.scales)))
    return padded.contiguous().view(torch.int64).view(len(scales), -1, form.scales).transpose(0, 1)
