"""Products in tiles of one fixed number of rows.

A BLAS chooses the order of a sum by the shape of the product, and the choice differs between processors, libraries and
numbers of threads. Here every product of a few rows has the same shape, however many rows a forward has: a row's
result does not depend on the rest of the batch. ``torch.mm`` and ``torch.bmm`` are the only products that forwards
call.
"""

from __future__ import annotations

import torch
from torch import Tensor

TILE = 4
"""Rows of a product; even and at least 4, as odd and smaller sizes take other code paths in some BLAS libraries.
benchmarks/results/exactness.json has the cost of 1, 2, 4 and 8."""
WIDE = 64
"""Prompt rows that are computed together if this was found to give the same bits as tiles."""

_equal: dict[tuple, bool] = {}


def whole_tiles(rows: int) -> int:
    """The smallest multiple of TILE that is at least ``rows``."""
    return -(-rows // TILE) * TILE


def pad_rows(rows: Tensor) -> Tensor:
    """[R, ...] -> [whole(R), ...]: padded with copies of the last row."""
    missing = -len(rows) % TILE
    if not missing or not len(rows):
        return rows
    return torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])])


def product(x: Tensor, weight: Tensor, out: Tensor | None = None) -> Tensor:
    """x [R, in] times weight [in, out] -> [R, out]; a row has the same bits for every R and every place among them.

    On other devices it is one product of all rows, without this guarantee.
    """
    if x.is_cuda or len(x) == TILE:
        return torch.mm(x, weight, out=out)
    rows = len(x)
    if out is None:
        out = x.new_empty(rows, weight.shape[1])
    done = 0
    if rows >= WIDE and wide_is_equal(weight, x.dtype):
        done = _in_steps(x, weight, out, 0, WIDE)
    done = _in_steps(x, weight, out, done, TILE)
    if done < rows:
        out[done:] = torch.mm(pad_rows(x[done:]), weight)[: rows - done]
    return out


def _in_steps(x: Tensor, weight: Tensor, out: Tensor, done: int, step: int) -> int:
    """Compute all products of ``step`` rows that fit, from row ``done`` on; returns the first remaining row."""
    for i in range(done, len(x) - step + 1, step):
        torch.mm(x[i : i + step], weight, out=out[i : i + step])
        done = i + step
    return done


def wide_is_equal(weight: Tensor, dtype: torch.dtype) -> bool:
    """Whether WIDE rows at once get the bits of tiles from a weight of this shape; measured per number of threads."""
    key = (*weight.shape, *weight.stride(), dtype, torch.get_num_threads())
    if key not in _equal:
        _equal[key] = _sums_are_equal(weight, dtype)
    return _equal[key]


def _sums_are_equal(weight: Tensor, dtype: torch.dtype) -> bool:
    x = torch.randn(WIDE, weight.shape[0], generator=torch.Generator().manual_seed(0)).to(dtype)
    tiles = x.new_empty(WIDE, weight.shape[1])
    _in_steps(x, weight, tiles, 0, TILE)
    return torch.equal(tiles, torch.mm(x, weight))


def forget_measurements() -> None:
    """Forget what was measured: for tests that change the product."""
    _equal.clear()


def in_use() -> str:
    """Whether batched rows keep their bits here, for ``spec env``: measured with one common shape."""
    weight = torch.randn(576, 1536, generator=torch.Generator().manual_seed(0))
    x = torch.randn(TILE, 576, generator=torch.Generator().manual_seed(1))
    moved = all(torch.equal(product(x.roll(i, 0), weight), product(x, weight).roll(i, 0)) for i in range(1, TILE))
    wide = "equal" if wide_is_equal(weight, x.dtype) else "different order of sums, not used"
    verdict = "yes" if moved else "no, a row's bits depend on its place in a tile"
    products = f"products in tiles of {TILE} rows ({WIDE} rows at once: {wide})"
    return f"{verdict}: {products}; each model is tested when it is loaded"
