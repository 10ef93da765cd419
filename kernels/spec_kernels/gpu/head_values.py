"""Heads of a layer: what a program computes of queries, keys and values between their product and attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from spec_kernels.gpu.heads import Heads, Rotary, measure_rows, store_heads
from spec_kernels.gpu.pending import PendingHeads, are_neighbours, as_heads, join_parts, precedes
from spec_kernels.gpu.rows import combine_rows
from spec_kernels.gpu.sums import Norm, Parts, add_parts
from spec_kernels.gpu.values import Values
from spec_kernels.model import ops


class HeadValues(Values):
    """Values of a program, and launches that rotate and store heads."""

    def rotate(self, op: ops.Rotate, after: Any) -> None:
        self._values[op.x] = replace(self._read_heads(op.x, op.shape.dim), table=op.shape.table)

    def store(self, op: ops.Store, after: Any) -> None:
        """Keys and values, and the queries that the same product has computed before them."""
        if op.v is None:
            latents = as_heads(self._values.pop(op.k), op.shape.dim)
            assert isinstance(latents, PendingHeads), "they are joined as parts of a product"
            self._heads(latents.parts, None, latents, None, None, op.layer)
            return
        keys, values = (self._read_heads(name, op.shape.dim) for name in (op.k, op.v))
        del self._values[op.k], self._values[op.v]
        shared = keys.parts is values.parts
        if not shared and not are_neighbours(keys.parts, values.parts):
            keys, values = self._join_heads(keys, values)
        waiting = [(name, as_heads(value, op.shape.dim)) for name, value in self._values.items()]
        name, q = next(((name, value) for name, value in waiting if precedes(value, keys)), ("", None))
        out = None
        if q is not None:
            out = self._values[name] = self._rows_of(f"{name} heads", q.parts.memory.shape[2], self.of.dtype)
        parts = join_parts([*([] if q is None else [q.parts]), keys.parts, *([] if shared else [values.parts])])
        self._heads(parts, q, keys, values.norm, out, op.layer, shared)

    def _read_heads(self, name: str, dim: int) -> PendingHeads:
        """Heads of a product; rows in memory are as the result of one."""
        value = as_heads(self._values[name], dim)
        if isinstance(value, PendingHeads) and value.dim == dim:
            return value
        return PendingHeads(Parts(self._convert(name, torch.float32)[None]), dim, None)

    def _join_heads(self, pending: PendingHeads, values: PendingHeads) -> tuple[PendingHeads, PendingHeads]:
        """The same heads, side by side in one memory."""
        width = pending.parts.memory.shape[2]
        pair = Parts(self._room("joined heads", 1, self._padded, 2 * width))
        parts = pair.columns(0, width), pair.columns(width, width)
        for heads, to in zip((pending, values), parts, strict=True):
            rows = self._rows_of("heads to join", width, torch.float32)
            self._add("sum", add_parts, self._rows, heads.parts, None, total=rows)
            self._add("join", combine_rows, "copy", to.memory[0, : self._rows], rows)
        return replace(pending, parts=parts[0]), replace(values, parts=parts[1])

    def _heads(
        self,
        parts: Parts,
        q: PendingHeads | None,
        keys: PendingHeads | None,
        value_norm: Norm | None,
        out: Tensor | None,
        layer: int,
        shared: bool = False,
    ) -> None:
        some = keys or q
        none = Rotary(*2 * (torch.zeros(1, 0, device=self.of.device),))
        heads = Heads(
            parts, 0 if q is None else q.parts.memory.shape[2] // q.dim, keys is not None, some.dim,
            None if q is None else q.norm, None if keys is None else keys.norm, value_norm,
            none if some.table is None else self.of.rotary[some.table], out, self.of.pool, layer, shared,
        )  # fmt: skip
        roots = [None if value is None else self._roots(name, value) for name, value in (("q", q), ("k", keys))]
        positions = self.layout.positions if self.layout.size.pairs else None
        heads = replace(heads, q_roots=roots[0], k_roots=roots[1], positions=positions)
        self._add("heads", store_heads, self.layout.rows, heads)

    def _roots(self, name: str, heads: PendingHeads) -> Tensor | None:
        """Of a norm over all heads of a row: the roots by which rows are divided; None for norms of each head."""
        if heads.norm is None or len(heads.norm.weight) == heads.dim:
            return None
        roots = self._room(("roots", name), self._padded)
        self._add("roots", measure_rows, heads.parts, heads.norm.eps, roots[: self._rows])
        return roots

    def _settle_heads(self, name: str, dim: int) -> Tensor:
        """Heads of this width, normalised and rotated."""
        heads = as_heads(self._values[name], dim)
        if isinstance(heads, PendingHeads):
            out = self._rows_of(f"{name} heads", heads.parts.memory.shape[2], self.of.dtype)
            self._heads(heads.parts, heads, None, None, out, 0)
            self._values[name] = out
        return self._convert(name, self.of.dtype)
