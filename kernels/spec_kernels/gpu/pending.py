"""Values of a step whose computation waits for what reads them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeGuard

import torch
from torch import Tensor

from spec_kernels.gpu.sums import Norm, Parts


@dataclass(frozen=True, eq=False)
class Pending:
    """(base + inner(Σ parts + bias)) · scale, not computed yet. base: rows in memory, or None: then scale is 1."""

    parts: Parts
    base: Tensor | None = None
    inner: Norm | None = None
    scale: float = 1.0


@dataclass(frozen=True, eq=False)
class PendingHeads:
    """Heads of a product, before their norm and rotation, if any; one head may be a whole row.

    norm: of each head, or of the whole row if its weight is as long.
    """

    parts: Parts
    dim: int
    norm: Norm | None
    table: int | None = None


Value = Tensor | Pending | PendingHeads
"""Rows in memory, or what they are computed from."""


def reads_memory(value: Pending | PendingHeads, memory: Tensor) -> bool:
    """Whether a value that waits is computed from this memory."""
    base = value.base if isinstance(value, Pending) else None
    return _storage(memory) in {_storage(m) for m in (value.parts.memory, base) if m is not None}


def _storage(memory: Tensor) -> int:
    """A number of the memory that a tensor lies in."""
    return int(memory.untyped_storage()._cdata)


def are_neighbours(left: Parts, right: Parts) -> bool:
    """Whether the columns of ``right`` follow ``left``'s in one memory."""
    a, b = left.memory, right.memory
    return _storage(a) == _storage(b) and a.storage_offset() + a.shape[2] == b.storage_offset()


def is_alone(value: Value) -> TypeGuard[Pending]:
    """Whether a value is the result of a product to which nothing is added."""
    return isinstance(value, Pending) and value.base is None and value.inner is None


def as_heads(value: Value, dim: int) -> Value:
    """Heads of a product that neither a rotation nor, but for a norm of the whole row, a norm has read; any other value
    is itself.
    """
    if isinstance(value, PendingHeads) and value.dim == value.parts.memory.shape[2] and value.norm is not None:
        return replace(value, dim=dim)
    return PendingHeads(value.parts, dim, None) if is_alone(value) else value


def precedes(value: Value, pending: PendingHeads) -> TypeGuard[PendingHeads]:
    """Whether a value is the queries of the product that computed these keys."""
    return (
        isinstance(value, PendingHeads) and are_neighbours(value.parts, pending.parts) and value.table == pending.table
    )


def join_parts(parts: list[Parts]) -> Parts:
    """Neighbouring columns as one."""
    first, width = parts[0].memory, sum(p.memory.shape[2] for p in parts)
    memory = first.as_strided((*first.shape[:2], width), first.stride(), first.storage_offset())
    biases = [p.bias for p in parts]
    return Parts(memory, None if biases[0] is None else torch.cat(biases))
