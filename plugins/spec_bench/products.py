"""Products of the native forward: one matrix of a type, with random codes, as a model of one operation."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import attrs
import torch
from spec_kernels import native
from spec_kernels.model.batch import Batch, SequenceRows
from spec_kernels.model.ops import Input, Linear, Model, Tap, Weight
from spec_kernels.native.executor import Native, Options
from spec_kernels.ops.dequant import TYPES as BLOCKS
from torch import Tensor

from spec_core.errors import UsageError

FLOATS = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}
K = 2048
SIZES = {"cached": 1 << 20, "streamed": 96 << 20}
"""Bytes of a matrix: one that stays in a core's own cache, one that is read from memory."""
PART = 256
"""Rows of random blocks; a matrix is the same ones again and again."""


@attrs.frozen
class Product:
    """seconds: of a call with so many rows, the best, quantising them and handing over the results included."""

    type: str
    activations: str
    size: str
    rows: int
    seconds: float
    bytes: int
    multiplications: int


class RandomMatrix:
    """A source with one matrix [n, K] of a type."""

    def __init__(self, type: str, size: int) -> None:
        self.kind = type
        part = random_rows(type)
        self.data = part.repeat(max(1, size // part.numel()), 1)

    def shape(self, name: str) -> tuple[int, ...] | None:
        return len(self.data), K

    def type(self, name: str) -> str:
        return self.kind

    def load(self, name: str) -> Tensor:
        raise NotImplementedError("every type here has a native form")

    def blocks(self, name: str) -> Tensor:
        return self.data


def random_rows(type: str) -> Tensor:
    """uint8 [PART, bytes of a row]. Bytes below 0x3c make every float16 scale among them a number below 1."""
    draw = torch.Generator().manual_seed(0)
    if type in FLOATS:
        return torch.randn(PART, K, generator=draw).to(FLOATS[type]).view(torch.uint8)
    return torch.randint(0, 0x3C, (PART, BLOCKS[type].row_bytes(K)), dtype=torch.uint8, generator=draw)


def types(wanted: Sequence[str]) -> list[str]:
    """All types, or those. Raises UsageError for one that has no native form."""
    for name in wanted:
        if name not in native.TYPES:
            raise UsageError(f"no native product of type {name}", hint=f"types: {', '.join(native.TYPES)}")
    return list(wanted) or list(native.TYPES)


def activations(type: str) -> list[str]:
    """What rows are made of for a product with this type; floats meet floats as they are."""
    return ["float32"] if type in FLOATS else list(native.ACTIVATIONS)


def measure(type: str, rows: Sequence[int], repeats: int, sizes: Sequence[str], isa: str | None) -> list[Product]:
    """Every number of rows, with every kind of activations that the type has."""
    found = []
    for size in sizes:
        source = RandomMatrix(type, SIZES[size])
        n = len(source.data)
        weight = Weight("matrix", n, K)
        model = Model((Input("x", K), Linear("x", ("y",), (weight,), (None,)), Tap("y", "product")))
        for bits in activations(type):
            given = native.ACTIVATIONS if bits in native.ACTIVATIONS else None
            executor = Native(model, source, Options(bits if given else "int15", isa=isa))
            for r in rows:
                seconds = best(executor, r, repeats)
                found.append(Product(type, bits, size, r, seconds, executor.arena.memory.nbytes, r * n * K))
    return found


def best(executor: Native, rows: int, repeats: int) -> float:
    """Seconds of the fastest of so many calls."""
    x = torch.randn(rows, K, generator=torch.Generator().manual_seed(0))
    inputs = {executor.inputs[0]: x}
    batch = Batch(None, torch.arange(rows), [SequenceRows(None, 0, rows, 0)], inputs=inputs, taps=("product",))
    least = float("inf")
    for _ in range(repeats + 1):
        began = perf_counter()
        executor.run(batch)
        least = min(least, perf_counter() - began)
    return least
