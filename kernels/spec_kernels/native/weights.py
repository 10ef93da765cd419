"""Weights as the native program reads them: blocks of the file, repacked in tiles, in one allocation.

They are stored in the reading order of a forward, so that hardware prefetching loads the right data.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spec_kernels.model.ops import GLU, Clusters, Embed, HeadLinear, Linear, Mixture, Model, Weight
from spec_kernels.model.source import TensorSource, bytes_of
from spec_kernels.native import TYPES, module, mxfp4

FLOATS = frozenset({"F16", "BF16", "F32"})
TILE = 16
LARGE_PAGE = 2 << 20
PART_MIN, PART_MAX = 1 << 18, 8 << 20
"""Bytes of the stored rows that a thread repacks at once."""
THREADS_MAX = 8
"""Threads that repack: each holds pages of a file, and memory sets the pace."""


@dataclass(frozen=True, eq=False)
class Tiles:
    """``count`` matrices [n, k] in tiles, from ``offset`` on in an arena. stored: the type in the file."""

    arena: Tensor
    offset: int
    type: str
    n: int
    k: int
    count: int
    stored: str

    @property
    def address(self) -> int:
        return self.arena.data_ptr() + self.offset

    @property
    def handle(self) -> tuple[int, int, int, int]:
        """The matrix as passed to the extension, the first of several."""
        return TYPES.index(self.type), self.n, self.k, self.address

    @property
    def nbytes(self) -> int:
        """Bytes of one matrix."""
        return -(-self.n // TILE) * module().tile_bytes(TYPES.index(self.type), self.k)

    @property
    def floats(self) -> bool:
        """Whether rows are multiplied as floats, not quantised."""
        return self.type in FLOATS


@dataclass(frozen=True, eq=False)
class TilePlan:
    """A place in the arena: one weight, or gate and up in alternating tiles."""

    weights: tuple[Weight, ...]
    type: str
    stored: str

    @property
    def key(self) -> Any:
        return tuple(w.key for w in self.weights)

    @property
    def n(self) -> int:
        """Rows of a matrix; a pair's are padded to whole tiles."""
        first = self.weights[0].n
        return first if len(self.weights) == 1 else paired_rows(first)

    @property
    def step(self) -> int:
        """Bytes from one tile of a weight to its next."""
        return len(self.weights) * module().tile_bytes(TYPES.index(self.type), self.weights[0].k)

    @property
    def matrix_bytes(self) -> int:
        return self.step * -(-self.weights[0].n // TILE)


def planned_type(stored: str) -> str:
    """The type in which matrices are kept, as far as their stored type decides it."""
    if stored == "MXFP4":
        return "Q5_0"
    return stored if stored in TYPES else "F32"


def paired_rows(n: int) -> int:
    """Rows of gate and up in alternating tiles, n of each."""
    return 2 * TILE * -(-n // TILE)


def check_stored(weight: Weight, shape: tuple[int, ...] | None) -> None:
    """Raise ValueError if a stored tensor has too few rows, or rows of another width."""
    if not shape or shape[-1] != weight.k:
        raise ValueError(f"{weight.name!r} is stored as {shape}, rows of {weight.k} are needed")
    rows, rest = divmod(math.prod(shape[:-1]), weight.count)
    low, last = (0, weight.n - 1) if weight.rows is None else (int(weight.rows.min()), int(weight.rows.max()))
    if rest or low < 0 or last >= rows or (weight.rows is not None and len(weight.rows) != weight.n):
        stored = f"{weight.name!r} is stored as {shape}"
        raise ValueError(f"{stored}, {weight.count} matrices with rows {low} to {last} are needed")


def room(size: int) -> Tensor:
    """uint8 [size], in large pages if the system has them: a forward reads all of it in order, and without large pages
    one row of a model of 600 MB spends an eighth to a quarter of its time on address translation."""
    if size < LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size, dtype=torch.uint8)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # not available on this system
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)


class Arena:
    """All weights of one model, its own and shared ones."""

    def __init__(
        self,
        model: Model,
        source: TensorSource,
        requantise: bool,
        lent: Mapping[Any, Tiles] | None = None,
        release: Callable[[Tensor], None] | None = None,
    ) -> None:
        """requantise: floats become Q8_0. lent: shared weights by key, not read again. release: called with stored
        rows that were copied. Threads repack weights, in the number of torch's.
        """
        self.source, self.requantise = source, requantise
        self.release = release or (lambda rows: None)
        self.tiles: dict[Any, Tiles] = dict(lent or {})
        plans = {w.key: w for w in self._tile_plans(model) if w.key not in self.tiles}
        self.memory = room(sum(w.matrix_bytes * w.weights[0].count for w in plans.values()))
        at, self._threads = 0, min(torch.get_num_threads(), THREADS_MAX)
        with ThreadPoolExecutor(self._threads, "repack") as self._pool:
            for plan in plans.values():
                first = plan.weights[0]
                tiles = Tiles(self.memory, at, plan.type, plan.n, first.k, first.count, plan.stored)
                for i, weight in enumerate(plan.weights):
                    self._fill(weight, tiles, plan, i)
                self.tiles[plan.key] = tiles
                at += plan.matrix_bytes * first.count
        del self._pool

    def __getitem__(self, weights: tuple[Weight, ...]) -> Tiles:
        """Tiles of a weight. Raises ValueError for other sizes: another model has read a weight of the same name."""
        tiles, first = self.tiles[tuple(w.key for w in weights)], weights[0]
        n = first.n if len(weights) == 1 else paired_rows(first.n)
        if (tiles.n, tiles.k, tiles.count) != (n, first.k, first.count):
            sizes = f"{tiles.count} of [{tiles.n}, {tiles.k}]"
            raise ValueError(f"{first.name!r} was read as {sizes}, {first.count} of [{n}, {first.k}] are needed")
        return tiles

    def is_paired(self, gate: Weight, up: Weight) -> bool:
        """Whether gate and up are in alternating tiles, which requires equal types."""
        return (gate.key, up.key) in self.tiles

    @property
    def converted_counts(self) -> dict[str, int]:
        """Conversions of weights that could not keep their stored blocks, as ``Q3_K as F32``, with counts."""
        counts: dict[str, int] = {}
        for tiles in self.tiles.values():
            if tiles.stored != tiles.type and tiles.stored not in FLOATS:
                both = f"{tiles.stored} as {tiles.type}"
                counts[both] = counts.get(both, 0) + 1
        return counts

    # planning

    def _tile_plans(self, model: Model) -> Iterable[TilePlan]:
        """Plans in reading order; an embedding table that is not also the output matrix comes last."""
        for op, after in zip(model.ops, (*model.ops[1:], None), strict=True):
            if isinstance(op, Linear):
                pair = isinstance(after, GLU) and op.outs == (after.gate, after.up) and op.biases == (None, None)
                yield from self._together(op.weights) if pair else map(self._tile_plan, op.weights)
            elif isinstance(op, Mixture):
                yield from self._together(op.inputs, must=True)
                yield self._tile_plan(op.down)
            elif isinstance(op, Clusters | HeadLinear):
                yield self._tile_plan(op.weight)
        yield from (self._tile_plan(op.table) for op in model.ops if isinstance(op, Embed))

    def _together(self, weights: tuple[Weight, ...], must: bool = False) -> Iterable[TilePlan]:
        single = [self._tile_plan(w) for w in weights]
        types = {w.type for w in single}
        if len(types) == 1 or must:
            return [TilePlan(weights, types.pop() if len(types) == 1 else "F32", single[0].stored)]
        return single

    def _tile_plan(self, weight: Weight) -> TilePlan:
        stored = self.source.type(weight.name)
        return TilePlan((weight,), self._type(stored, weight), stored)

    def _type(self, stored: str, weight: Weight) -> str:
        if stored == "MXFP4" and mxfp4.is_exact(self.source.blocks(weight.name)):
            return "Q5_0"
        known = stored in TYPES and module().tile_bytes(TYPES.index(stored), weight.k) > 0
        small = self.requantise and weight.k % 32 == 0 and not weight.wide
        if small and (stored in FLOATS or not known):
            return "Q8_0"
        return stored if known else "F32"

    # reading

    def _fill(self, weight: Weight, tiles: Tiles, plan: TilePlan, part: int) -> None:
        """Repack every matrix of a weight as part ``part`` of its place."""
        check_stored(weight, self.source.shape(weight.name))
        first = tiles.address + part * plan.step // len(plan.weights)
        stored = self.source.type(weight.name)
        converted = stored == "MXFP4" and plan.type == "Q5_0"
        if stored != plan.type and not converted:
            self._fill_floats(weight, plan, first)
            return
        blocks = self.source.blocks(weight.name)
        order = None if weight.rows is None else weight.rows.to(torch.int32)
        rows = len(blocks) // weight.count
        for i in range(weight.count):
            matrix = blocks[i * rows : (i + 1) * rows]
            self._repack(
                mxfp4.as_q5_0(matrix) if converted else matrix, order, weight, plan, first + i * plan.matrix_bytes
            )

    def _repack(self, rows: Tensor, order: Tensor | None, weight: Weight, plan: TilePlan, to: int) -> None:
        """Repack the rows of a matrix in parts, each released when it was copied; in another order, all at the end."""
        kind, stride, first_row = TYPES.index(plan.type), rows.stride(0), rows.data_ptr()
        part_bytes = min(max(weight.n * stride // self._threads, PART_MIN), PART_MAX)
        step = TILE * max(1, part_bytes // (TILE * stride))

        def repack_part(first: int) -> None:
            count = min(step, weight.n - first)
            tiles, skipped = to + first // TILE * plan.step, first * stride if order is None else 0
            at = 0 if order is None else order[first:].data_ptr()
            module().repack(kind, first_row + skipped, stride, at, count, weight.k, tiles, plan.step)
            if order is None:
                self.release(rows[first : first + count])

        parts = range(0, weight.n, step)
        for _ in self._pool.map(repack_part, parts) if len(parts) > 1 else map(repack_part, parts):
            pass
        if order is not None:
            self.release(rows)

    def _fill_floats(self, weight: Weight, plan: TilePlan, first: int) -> None:
        """Fill through float32: a type without a native form, or one that is requantised."""
        stored = self.source.load(weight.name).float().reshape(weight.count, -1, weight.k)
        for i, matrix in enumerate(stored):
            chosen = (matrix if weight.rows is None else matrix[weight.rows]).contiguous()
            to = first + i * plan.matrix_bytes
            if plan.type == "Q8_0":
                module().requantise(chosen.data_ptr(), weight.n, weight.k, to, plan.step)
            else:
                self._repack(bytes_of(chosen), None, weight, plan, to)
