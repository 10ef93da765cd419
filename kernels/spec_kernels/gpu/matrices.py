"""Weights on the device, in the type of the model, row by row as in the file; read once and shared by name.

They stream from the mapped file through two pieces of pinned memory: the host never holds a second copy of a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from spec_kernels.model.ops import Weight
from spec_kernels.model.source import TensorSource

STAGED_BYTES = 32 << 20
"""Bytes of a piece of pinned memory."""


class Matrices:
    """Matrices by the keys of their weights; those with one input may be stored one below the other."""

    def __init__(self, dtype: torch.dtype, device: torch.device, lent: Mapping[Any, Tensor] | None = None) -> None:
        """lent: matrices of another executor, which are not read again."""
        self.dtype, self.device = dtype, device
        self.tensors: dict[Any, Tensor] = dict(lent or {})
        self._staging: list[tuple[Tensor, Any]] = []

    def read(self, source: TensorSource, weights: tuple[Weight, ...]) -> None:
        """Read weights into one matrix [Σ count · n, k], unless it is there; ``wide`` ones are float32."""
        key = tuple(w.key for w in weights)
        if key in self.tensors:
            return
        dtype = torch.float32 if weights[0].wide else self.dtype
        matrix = torch.empty(_rows(weights), weights[0].k, dtype=dtype, device=self.device)
        first = 0
        for weight in weights:
            self._fill(matrix[first : first + _rows((weight,))], source, weight)
            first += _rows((weight,))
        self.tensors[key] = matrix

    def __getitem__(self, weights: tuple[Weight, ...]) -> Tensor:
        """The matrix of weights that were read. Raises ValueError for other sizes under the same names."""
        matrix = self.tensors[tuple(w.key for w in weights)]
        shape = _rows(weights), weights[0].k
        if tuple(matrix.shape) != shape:
            raise ValueError(f"{weights[0].name!r} was read as {list(matrix.shape)}, {list(shape)} is needed")
        return matrix

    def done(self) -> None:
        """Free the pinned memory."""
        if self._staging:
            torch.cuda.synchronize(self.device)
        self._staging = []

    def _fill(self, to: Tensor, source: TensorSource, weight: Weight) -> None:
        stored = source.load(weight.name).reshape(weight.count, -1, weight.k)
        for matrix, target in zip(stored, to.view(weight.count, weight.n, weight.k), strict=True):
            for begin, end in _pieces(weight.n, weight.k * to.itemsize):
                rows = matrix[begin:end] if weight.rows is None else matrix[weight.rows[begin:end]]
                self._move(target[begin:end], rows)

    def _move(self, to: Tensor, rows: Tensor) -> None:
        """Convert rows, and copy them to the device."""
        if self.device.type != "cuda" or rows.is_cuda:
            to.copy_(rows)
            return
        if len(self._staging) < 2:
            memory = torch.empty(max(STAGED_BYTES, to.nbytes), dtype=torch.uint8, pin_memory=True)
            self._staging.append((memory, torch.cuda.Event()))
        memory, copied = self._staging.pop(0)
        copied.synchronize()
        staged = memory[: to.nbytes].view(to.dtype).view(to.shape)
        staged.copy_(rows)
        to.copy_(staged, non_blocking=True)
        copied.record()
        self._staging.append((memory, copied))


def _rows(weights: tuple[Weight, ...]) -> int:
    """Rows of all matrices together."""
    return sum(w.count * w.n for w in weights)


def _pieces(rows: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """Spans of rows whose bytes fit in a piece of pinned memory."""
    step = max(1, STAGED_BYTES // row_bytes)
    for begin in range(0, rows, step):
        yield begin, min(begin + step, rows)
