"""The C of products through ctypes."""

from __future__ import annotations

import ctypes
import os
import weakref
from pathlib import Path

import attrs
import numpy as np
import torch
from spec_kernels.ops.dequant import TYPES as BLOCKS

from tests.native.compiled import SOURCES, compile_library

FILES = ["dispatch", "product_generic", "repack", "dequantise"]
TYPES = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "F16", "BF16", "F32"]
"""Names in the order of enum spec_type."""
FLOATS = ["F16", "BF16", "F32"]
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q5_0": [0], "Q6_K": [208]} | dict.fromkeys(
    ["Q4_1", "Q5_1", "Q4_K", "Q5_K"], [0, 2]
)
"""Offsets of the float16 scales of a block."""
SETS = ["avx512vnni", "avx512", "avxvnni", "avx2", "i8mm", "neon", "generic"]
SIZE, INT, POINTER = ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p


def portable() -> Path:
    """A library of products in plain C alone."""
    sources, more = [SOURCES / "matmul" / f"{name}.c" for name in FILES], os.environ.get("SPEC_NATIVE_FLAGS")
    if more:
        return compile_library("portable_sanitized", ["-DSPEC_PORTABLE", *more.split()], sources)
    return compile_library("portable", ["-DSPEC_PORTABLE", "-O1"], sources)


def aligned_bytes(size: int) -> np.ndarray:
    """uint8 [size] at an address that 64 divides.

    It ends where its memory ends, so that a sanitiser sees every step beyond.
    """
    libc, address = ctypes.CDLL(None), POINTER()
    if libc.posix_memalign(ctypes.byref(address), SIZE(64), SIZE(max(size, 1))):
        raise MemoryError(f"no {size} bytes")
    memory = (ctypes.c_uint8 * size).from_address(address.value)
    weakref.finalize(memory, libc.free, POINTER(address.value))
    return np.frombuffer(memory, np.uint8)


class Weight(ctypes.Structure):
    """struct spec_weight."""

    _fields_ = [("type", ctypes.c_int32), ("n", ctypes.c_int32), ("k", ctypes.c_int32), ("tiles", ctypes.c_int32)]
    _fields_ += [("tile_bytes", SIZE), ("data", POINTER)]


class Table(ctypes.Structure):
    """struct spec_product_table."""

    _fields_ = [
        ("isa", ctypes.c_char_p),
        ("rows_bytes", ctypes.CFUNCTYPE(SIZE, INT, INT, INT)),
        ("quantise", ctypes.CFUNCTYPE(None, POINTER, SIZE, INT, INT, INT, POINTER)),
        ("gather", ctypes.CFUNCTYPE(None, POINTER, INT, INT, INT, POINTER, INT, POINTER)),
        ("product", ctypes.CFUNCTYPE(None, ctypes.POINTER(Weight), INT, INT, POINTER, INT, INT, POINTER)),
    ]


@attrs.frozen(eq=False)
class QRows:
    """Quantised rows."""

    data: np.ndarray
    rows: int
    k: int
    bits: int


@attrs.frozen(eq=False)
class Matrix:
    """A repacked matrix [n, k] and the memory that it lies in."""

    weight: Weight
    tiles: np.ndarray


class Library:
    def __init__(self, path: Path) -> None:
        self.c = ctypes.CDLL(str(path))
        self.c.spec_products.restype = ctypes.POINTER(Table)
        for name in ("spec_tile_bytes", "spec_row_bytes"):
            getattr(self.c, name).restype = SIZE
        self.c.spec_repack.argtypes = [INT, POINTER, SIZE, POINTER, INT, INT, POINTER]
        self.c.spec_requantise_q8_0.argtypes = [POINTER, SIZE, POINTER, INT, INT, POINTER]
        self.c.spec_row.argtypes = [ctypes.POINTER(Weight), INT, POINTER]

    def products(self, isa: str | None = None) -> Products | None:
        table = self.c.spec_products(isa and isa.encode())
        return Products(table.contents) if table else None

    def every(self) -> list[Products]:
        """Products of every instruction set that this machine has, the best first."""
        return [product for isa in SETS if (product := self.products(isa))]

    def tile_bytes(self, type: str, k: int) -> int:
        return self.c.spec_tile_bytes(TYPES.index(type), k)

    def empty(self, type: str, n: int, k: int) -> Matrix:
        """A matrix without initialised bytes."""
        size, tiles = self.tile_bytes(type, k), -(-n // 16)
        data = aligned_bytes(size * tiles)
        data[:] = 0xA5
        return Matrix(Weight(TYPES.index(type), n, k, tiles, size, data.ctypes.data), data)

    def repack(self, type: str, data: torch.Tensor, k: int, order: list[int] | None = None) -> Matrix:
        """data: uint8 [rows, row_bytes] as a file has it."""
        rows = data.contiguous().numpy()
        chosen = None if order is None else np.array(order, np.int32)
        matrix = self.empty(type, len(rows if chosen is None else chosen), k)
        where = None if chosen is None else chosen.ctypes.data
        arguments = rows.ctypes.data, rows.shape[1], where, matrix.weight.n, k, matrix.tiles.ctypes.data
        assert self.c.spec_repack(TYPES.index(type), *arguments) == 0
        return matrix

    def requantise(self, rows: np.ndarray) -> Matrix:
        n, k = rows.shape
        matrix = self.empty("Q8_0", n, k)
        assert self.c.spec_requantise_q8_0(rows.ctypes.data, k, None, n, k, matrix.tiles.ctypes.data) == 0
        return matrix

    def rows(self, matrix: Matrix) -> np.ndarray:
        """float32 [n, k], row by row as an embedding is read."""
        out = np.full((matrix.weight.n, matrix.weight.k), np.nan, np.float32)
        for i, row in enumerate(out):
            self.c.spec_row(ctypes.byref(matrix.weight), i, row.ctypes.data)
        return out


@attrs.frozen(eq=False)
class Products:
    """One instruction set."""

    table: Table

    @property
    def isa(self) -> str:
        return self.table.isa.decode()

    def quantise(self, x: np.ndarray, bits: int) -> QRows:
        """x: float32 [rows, k], rows any number of floats apart."""
        rows, k = x.shape
        qrows = aligned_bytes(self.table.rows_bytes(k, bits, rows))
        self.table.quantise(x.ctypes.data, x.strides[0] // 4, rows, k, bits, qrows.ctypes.data)
        return QRows(qrows, rows, k, bits)

    def gather(self, qrows: QRows, which: list[int]) -> QRows:
        chosen = np.array(which, np.int32)
        out = aligned_bytes(self.table.rows_bytes(qrows.k, qrows.bits, len(which)))
        sizes = qrows.rows, qrows.k, qrows.bits
        self.table.gather(qrows.data.ctypes.data, *sizes, chosen.ctypes.data, len(which), out.ctypes.data)
        return QRows(out, len(which), qrows.k, qrows.bits)

    def tiles(self, matrix: Matrix, qrows: QRows, first: int, count: int) -> np.ndarray:
        """float32 [count, rows, 16] of some tiles."""
        y = np.full((count, qrows.rows, 16), 7e7, np.float32)
        weight = ctypes.byref(matrix.weight)
        self.table.product(weight, first, count, qrows.data.ctypes.data, qrows.bits, qrows.rows, y.ctypes.data)
        return y

    def product(self, matrix: Matrix, x: np.ndarray, bits: int) -> np.ndarray:
        """float32 [rows, n]."""
        return self.of_planes(matrix, self.quantise(x, bits))

    def of_planes(self, matrix: Matrix, qrows: QRows) -> np.ndarray:
        y = self.tiles(matrix, qrows, 0, matrix.weight.tiles)
        return np.ascontiguousarray(y.transpose(1, 0, 2)).reshape(qrows.rows, -1)[:, : matrix.weight.n]


def widths(type: str) -> list[int]:
    """Bits of the activations that this type is multiplied with."""
    return [32] if type in FLOATS else [8, 15]


def example(type: str, n: int, k: int, seed: int = 0) -> torch.Tensor:
    """uint8 [n, row_bytes]: random codes, and scales like those of a model."""
    draw = torch.Generator().manual_seed(seed)
    if type in FLOATS:
        dtype = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32}[type]
        return (torch.randn(n, k, generator=draw) / 8).to(dtype).view(torch.uint8)
    data = torch.randint(0, 256, (n, BLOCKS[type].row_bytes(k)), dtype=torch.uint8, generator=draw)
    blocks = data.view(n, -1, BLOCKS[type].bytes)
    for at in HALVES[type]:
        scales = torch.rand(blocks.shape[:2], generator=draw).half() / 100
        blocks[..., at : at + 2] = scales[..., None].view(torch.uint8)
    return data
