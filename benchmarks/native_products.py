"""What the products of the native forward cost: GMAC/s and GB/s by type and number of rows, on one thread.

Two sizes: a matrix of about 1 MB that stays in the second cache, and one of 96 MB that is read from memory every time.
Times are processor time of the calling thread, the best of many, so that they mean something on a machine that does
other work as well. GB/s counts the bytes of the matrix.

    python benchmarks/native_products.py [--type Q8_0 ...] [--bits 15] [--isa avx2] [--k 2048] [--cached | --streamed]
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.kernels.products import TYPES, Library, Matrix, Products, example, widths
from tests.native.compiled import library as built

ROWS = [1, 2, 4, 8, 16, 32]
SIZES = {"cached": 1 << 20, "streamed": 96 << 20}
SECONDS = 0.15
"""For one figure, of wall clock."""


def matrix(library: Library, type: str, k: int, size: int) -> Matrix:
    """About ``size`` bytes of tiles: the same 16 rows again and again."""
    tiles = max(1, size // library.tile_bytes(type, k))
    made = library.empty(type, 16 * tiles, k)
    huge_pages(made.tiles)
    one = library.repack(type, example(type, 16, k), k).tiles
    made.tiles.reshape(tiles, -1)[:] = one
    return made


def huge_pages(data: np.ndarray) -> None:
    start = -(-data.ctypes.data // 4096) * 4096
    ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(data.nbytes // 4096 * 4096), 14)


def best(products: Products, made: Matrix, rows: int, bits: int) -> float:
    """Seconds of one product, qrows made before."""
    x = torch.randn(rows, made.weight.k, generator=torch.Generator().manual_seed(0)).numpy()
    qrows, y = products.quantise(x, bits), np.zeros((made.weight.tiles, rows, 16), np.float32)
    arguments = 0, made.weight.tiles, qrows.data.ctypes.data, bits, rows, y.ctypes.data
    call, weight = products.table.product, ctypes.byref(made.weight)
    least, end = float("inf"), time.monotonic() + SECONDS
    while time.monotonic() < end:
        start = time.thread_time_ns()
        call(weight, *arguments)
        least = min(least, (time.thread_time_ns() - start) * 1e-9)
    return least


def line(products: Products, made: Matrix, bits: int) -> str:
    seconds = [best(products, made, rows, bits) for rows in ROWS]
    macs = made.weight.n * made.weight.k
    rates = " ".join(f"{r * macs / s / 1e9:5.0f}" for r, s in zip(ROWS, seconds, strict=True))
    return f"{rates} | {made.tiles.nbytes / seconds[0] / 1e9:5.1f} | {seconds[0] * 1e6:7.0f} us" + "".join(
        f" {s / seconds[0]:5.2f}" for s in seconds[1:]
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--type", nargs="*", default=TYPES)
    parser.add_argument("--bits", nargs="*", type=int, default=[8, 15, 32])
    parser.add_argument("--isa")
    parser.add_argument("--k", type=int, default=2048)
    parser.add_argument("--cached", action="store_true")
    parser.add_argument("--streamed", action="store_true")
    return parser.parse_args()


def main() -> None:
    asked = parse()
    sizes = [s for s in SIZES if getattr(asked, s)] or list(SIZES)
    library = Library(built())
    products = library.products(asked.isa)
    for size in sizes:
        print(f"{products.isa}, {size}, k = {asked.k}: GMAC/s at rows {ROWS} | GB/s, time of 1 row | T(n) / T(1)")
        for type in asked.type:
            made = matrix(library, type, asked.k, SIZES[size])
            for bits in (b for b in widths(type) if b in asked.bits):
                print(f"{type:5s} {bits:2d} bits  {line(products, made, bits)}", flush=True)


if __name__ == "__main__":
    main()
