"""Weights on the device, row by row as in the file: blocks of the file, or floats of the model's type; read once.

They stream from the mapped file through two pieces of pinned memory: the host never holds a second copy of a model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from spec_kernels.gpu.forms import FLOATS, FORMS, Form
from spec_kernels.gpu.repack import Matrix
from spec_kernels.model.ops import Weight
from spec_kernels.model.source import TensorSource

STAGED_BYTES = 32 << 20
"""Bytes of a piece of pinned memory."""


class Matrices:
    """Matrices by the keys of their weights; those with one input are stored one below the other, if of one type."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self.conversions: Counter[str] = Counter()  # of quantised weights without a form, as "Q3_K as bfloat16"
        self._matrices: dict[Any, tuple[Matrix, ...]] = {}
        self._staging: list[tuple[Tensor, Any]] = []

    def lend(self) -> Matrices:
        """Share the matrices with another model, whose own weights stay its own: heads have equal names."""
        borrower = Matrices(self.dtype, self.device)
        borrower._matrices.update(self._matrices)
        return borrower

    @property
    def types(self) -> list[str]:
        """Types that are kept in blocks."""
        return sorted({m.form.type for some in self._matrices.values() for m in some if m.form.blocks})

    def read(self, source: TensorSource, weights: tuple[Weight, ...], floats: bool = False) -> None:
        """Read weights of one input, unless they are there. A stack of matrices is one of all their rows.

        floats: no matrix stays in blocks.
        """
        key = tuple(w.key for w in weights)
        if key in self._matrices:
            return
        matrices = []
        for (form, dtype), group in groupby(weights, lambda w: self._kind(source, w, floats)):
            members = list(group)
            matrix = Matrix.empty(form, sum(w.count * w.n for w in members), weights[0].k, dtype, self.device)
            first = 0
            for weight in members:
                self._fill(matrix, first, source, weight)
                first += weight.count * weight.n
            matrices.append(matrix)
        self._matrices[key] = tuple(matrices)

    def _kind(self, source: TensorSource, weight: Weight, floats: bool) -> tuple[Form, torch.dtype]:
        """The form of a weight, and the type of rows that it is multiplied with."""
        if weight.wide:
            return FLOATS, torch.float32
        return FLOATS if floats else FORMS.get(source.type(weight.name), FLOATS), self.dtype

    def __getitem__(self, weights: tuple[Weight, ...]) -> tuple[Matrix, ...]:
        """The matrices of weights that were read: neighbouring ones of one type together.

        Raises ValueError for other sizes under the same names.
        """
        matrices = self._matrices[tuple(w.key for w in weights)]
        shape, needed = [sum(m.n for m in matrices), matrices[0].k], [sum(w.count * w.n for w in weights), weights[0].k]
        if shape != needed:
            raise ValueError(f"{weights[0].name!r} was read as {shape}, {needed} is needed")
        return matrices

    def free_staging(self) -> None:
        """Free the pinned memory."""
        if self._staging:
            torch.cuda.synchronize(self.device)
        self._staging = []

    def _fill(self, matrix: Matrix, first: int, source: TensorSource, weight: Weight) -> None:
        if matrix.form.blocks:
            stored = source.blocks(weight.name)
        else:
            stored = source.load(weight.name).reshape(-1, weight.k)
            if (stored_type := source.type(weight.name)) not in ("F32", "F16", "BF16"):
                self.conversions[f"{stored_type} as {str(matrix.dtype).removeprefix('torch.')}"] += 1
        order = _order(weight, len(stored))
        dtype = stored.dtype if matrix.form.blocks else matrix.dtype
        for begin, end in _pieces(weight.count * weight.n, stored.shape[1] * dtype.itemsize):
            rows = stored[begin:end] if order is None else stored[order[begin:end]]
            matrix.write(first + begin, self._move(rows, dtype))

    def _move(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """Rows on the device, in another type."""
        if self.device.type != "cuda" or rows.is_cuda:
            return rows.to(dtype)
        size = math.prod(rows.shape) * dtype.itemsize
        if len(self._staging) < 2:
            memory = torch.empty(max(STAGED_BYTES, size), dtype=torch.uint8, pin_memory=True)
            self._staging.append((memory, torch.cuda.Event()))
        memory, copied = self._staging.pop(0)
        copied.synchronize()
        staged = memory[:size].view(dtype).view(rows.shape)
        staged.copy_(rows)
        moved = staged.to(self.device, non_blocking=True)
        copied.record()
        self._staging.append((memory, copied))
        return moved


def _order(weight: Weight, rows: int) -> Tensor | None:
    """Indices of the stored rows that make up a weight; None: all in stored order."""
    if weight.rows is None:
        return None
    return (torch.arange(weight.count)[:, None] * (rows // weight.count) + weight.rows).flatten()


def _pieces(rows: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """Spans of rows whose bytes fit in a piece of pinned memory."""
    step = max(1, STAGED_BYTES // row_bytes)
    for begin in range(0, rows, step):
        yield begin, min(begin + step, rows)
