"""The values of a program: rows in memory, or what they are computed from, and the launches that compute them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from spec_kernels.gpu import products
from spec_kernels.gpu.heads import Rotary
from spec_kernels.gpu.layout import Layout
from spec_kernels.gpu.matrices import Matrices
from spec_kernels.gpu.pending import Pending, PendingHeads, Value, reads_memory
from spec_kernels.gpu.pool import Pool
from spec_kernels.gpu.rows import combine_rows
from spec_kernels.gpu.states import StateChunks
from spec_kernels.gpu.sums import Norm, add_parts
from spec_kernels.model import ops
from spec_kernels.model.ops import Model

Launch = Callable[[], None]


@dataclass(frozen=True, eq=False)
class Facilities:
    """Resources that all programs of an executor share.

    vectors: small tensors of the description, on the device. scratch: memory that is written and read within a step:
    steps of all threads follow one another in one stream.
    """

    model: Model
    matrices: Matrices
    pool: Pool | None
    states: StateChunks | None
    rotary: list[Rotary]
    vectors: dict[int, Tensor]
    dtype: torch.dtype
    device: torch.device
    scratch: dict[Any, Tensor] = field(default_factory=dict)

    def borrow(self, key: Any, *shape: int) -> Tensor:
        """float32 of this shape, of any content. Programs of larger steps get other memory than those before."""
        count = math.prod(shape)
        if key not in self.scratch or self.scratch[key].numel() < count:
            self.scratch[key] = torch.zeros(count, device=self.device)
        return self.scratch[key][:count].view(shape)


class Values:
    """Values by name, memory by key, and launches in order."""

    def __init__(self, facilities: Facilities, layout: Layout) -> None:
        self.of, self.layout = facilities, layout
        self.launches: list[tuple[str, Launch]] = []
        self._silent = False  # after a heading without rows nothing is computed
        self._rows = layout.size.rows
        self._padded = products.padded_rows(self._rows)
        self._values: dict[str, Value] = {}
        self._memory: dict[Any, Tensor] = {}

    def _add(self, name: str, launch: Callable[..., None], *arguments: Any, **keywords: Any) -> None:
        if not self._silent:
            self.launches.append((name, partial(launch, *arguments, **keywords)))

    def _room(self, key: Any, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Memory that is about to be written: what waits for its old content is computed before."""
        key = key, shape, dtype
        if key not in self._memory:
            self._memory[key] = torch.zeros(shape, dtype=dtype, device=self.of.device)
        memory = self._memory[key]
        for name, value in list(self._values.items()):
            if not isinstance(value, Tensor) and reads_memory(value, memory):
                self._settle(name)
        return memory

    def _parts(self, outs: tuple[str, ...], *shape: int) -> Tensor:
        """Memory for the result of a product; that of logits is an output, which the next step must not touch."""
        key = ("parts", outs), shape, torch.float32
        if key not in self._memory and "logits" not in outs:
            self._memory[key] = self.of.borrow(outs, *shape)
        return self._room(("parts", outs), *shape)

    def _rows_of(self, name: str, width: int, dtype: torch.dtype) -> Tensor:
        return self._room(name, self._padded, width, dtype=dtype)

    def _vector(self, vector: Tensor) -> Tensor:
        """float32 on the device."""
        if id(vector) not in self.of.vectors:
            self.of.vectors[id(vector)] = vector.float().to(self.of.device).contiguous()
        return self.of.vectors[id(vector)]

    def _norm(self, op: ops.Norm) -> Norm:
        return Norm(self._vector(op.weight), op.eps, op.groups)

    def _settle(self, name: str) -> Tensor:
        """The rows of a value, computed now if they wait."""
        value = self._values[name]
        if isinstance(value, PendingHeads):
            if value.table is not None:
                raise NotImplementedError(f"rotated heads {name!r} are read by something else than attention")
            width = value.parts.memory.shape[2]
            self._values[name] = value.parts.memory[0]  # so that making room does not settle it again
            self._values[name] = rows = self._rows_of(f"{name} normed", width, self.of.dtype)
            self._add("sum, norm", add_parts, self._rows, value.parts, None, outer=value.norm, out=rows)
            return rows
        if isinstance(value, Pending):
            memory, parts = value.parts.memory, value.parts
            if len(memory) == 1 and parts.bias is None and value.base is None and value.inner is None:
                rows = memory[0]
            else:
                self._values[name] = memory[0]  # so that making room does not settle it again
                rows = self._rows_of(f"{name} settled" if value.base is None else name, memory.shape[2], torch.float32)
                how = {"inner": value.inner, "total": rows, "scale": value.scale}
                self._add("sum", add_parts, self._rows, parts, value.base, **how)
            self._values[name] = value = rows
        return value

    def _convert(self, name: str, dtype: torch.dtype) -> Tensor:
        """The rows of a value in the type of a matrix."""
        rows = self._settle(name)
        if rows.dtype == dtype:
            return rows
        typed = self._rows_of(f"{name} typed", rows.shape[1], dtype)
        self._add("convert", combine_rows, "copy", typed[: self._rows], rows)
        return typed

    def _width(self, name: str) -> int:
        value = self._values[name]
        return value.shape[1] if isinstance(value, Tensor) else value.parts.memory.shape[2]
