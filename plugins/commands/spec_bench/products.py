"""Products of the native forward: a model of one operation, with one matrix of random codes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from time import perf_counter, process_time

import attrs
import torch
from spec_kernels import native
from spec_kernels.model.batch import ForwardBatch, SequenceRows
from spec_kernels.model.ops import Input, Linear, Model, Tap, Weight
from spec_kernels.native.executor import Native, Options
from spec_kernels.ops.dequant import TYPES as BLOCKS
from torch import Tensor

from spec_core.errors import UsageError

FLOATS = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}
K = 2048
SIZES = {"cached": 1 << 20, "streamed": 96 << 20}
"""Bytes of a matrix that stays in a core's own cache, and of one that is read from memory."""
PART = 256
"""Number of random rows; a matrix repeats them."""


@attrs.frozen
class Product:
    """Times of a product with ``rows`` rows. seconds: the fastest call, with quantising them and returning the results.

    median: of all calls. cpu_seconds: median of the processor time of this process in a call, all threads.
    """

    type: str
    activations: str
    size: str
    rows: int
    seconds: float
    median: float
    cpu_seconds: float
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
        raise NotImplementedError("every weight type in this list has a native form")

    def blocks(self, name: str) -> Tensor:
        return self.data


def random_rows(type: str) -> Tensor:
    """uint8 [PART, bytes of a row]. All bytes are below 0x3c, so every float16 scale is finite and below 1."""
    draw = torch.Generator().manual_seed(0)
    if type in FLOATS:
        return torch.randn(PART, K, generator=draw).to(FLOATS[type]).view(torch.uint8)
    return torch.randint(0, 0x3C, (PART, BLOCKS[type].row_bytes(K)), dtype=torch.uint8, generator=draw)


def types(names: Sequence[str]) -> list[str]:
    """The named types, or all. Raises UsageError for a type without a native form."""
    for name in names:
        if name not in native.TYPES:
            raise UsageError(f"no native product of type {name}", hint=f"types: {', '.join(native.TYPES)}")
    return list(names) or list(native.TYPES)


def activations(type: str) -> list[str]:
    """Activation formats of a product with this weight type; float weights take float activations only."""
    return ["float32"] if type in FLOATS else list(native.ACTIVATIONS)


def measure_products(
    type: str, rows: Sequence[int], repeats: int, sizes: Sequence[str], isa: str | None
) -> list[Product]:
    """Measure every number of rows with every activation format of the type."""
    products = []
    for size in sizes:
        source = RandomMatrix(type, SIZES[size])
        n = len(source.data)
        weight = Weight("matrix", n, K)
        model = Model((Input("x", K), Linear("x", ("y",), (weight,), (None,)), Tap("y", "product")))
        for bits in activations(type):
            executor = Native(model, source, Options(bits if bits in native.ACTIVATIONS else "int15", isa=isa))
            for r in rows:
                times = time_forward(executor, r, repeats)
                products.append(Product(type, bits, size, r, *times, executor.arena.memory.nbytes, r * n * K))
    return products


def time_forward(native: Native, rows: int, repeats: int) -> tuple[float, float, float]:
    """Seconds of the fastest of ``repeats`` calls, their median, and the median of their processor time.

    A warm-up call before them is not counted.
    """
    x = torch.randn(rows, K, generator=torch.Generator().manual_seed(0))
    inputs = {native.inputs[0]: x}
    batch = ForwardBatch(None, torch.arange(rows), [SequenceRows(None, 0, rows, 0)], inputs=inputs, taps=("product",))
    wall, cpu = zip(*[_call(native, batch) for _ in range(repeats + 1)][1:], strict=True)
    return min(wall), statistics.median(wall), statistics.median(cpu)


def _call(native: Native, batch: ForwardBatch) -> tuple[float, float]:
    """Seconds and processor seconds."""
    began, cpu_began = perf_counter(), process_time()
    native.run(batch)
    return perf_counter() - began, process_time() - cpu_began
