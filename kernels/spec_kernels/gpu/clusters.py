"""Columns of the clusters that score highest in a row: all others become -inf.

The best clusters of every tile are found side by side, then the lowest that is chosen among all of these.
Among equal scores the first cluster counts, and a score that is no number is the lowest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from spec_kernels.gpu.launch import launch_options, start_next, wait_for_previous
from spec_kernels.ops.device_function import device_function

TILE = 2048
"""Clusters, or candidates, of a program."""
COLUMNS = 1024
"""Columns of a program."""


@dataclass(frozen=True, eq=False)
class BestClusters:
    """The best clusters of rows. used: of a row.

    values, places: float32 and int32 [R, T, used], of each of T tiles of TILE clusters. last_value, last_place: float32
    and int32 [R], the score and the number of the lowest cluster that is chosen.
    """

    used: int
    values: Tensor
    places: Tensor
    last_value: Tensor
    last_place: Tensor

    @staticmethod
    def empty(rows: int, clusters: int, used: int, device: torch.device) -> BestClusters:
        """Memory of any content."""
        shape = rows, triton.cdiv(clusters, TILE), used
        floats = lambda *size: torch.zeros(size, device=device)
        whole = lambda *size: torch.zeros(size, dtype=torch.int32, device=device)
        return BestClusters(used, floats(*shape), whole(*shape), floats(rows), whole(rows))


def find_best_clusters(scores: Tensor, best: BestClusters) -> None:
    """Fill ``best``. scores: [R, C], may be strided."""
    rows, tiles, used = best.values.shape
    _find_best[rows, tiles](
        scores, best.values, best.places, scores.stride(0), scores.shape[1], used, tiles, TILE, **launch_options(8)
    )
    _find_last[rows, 1](
        best.values, best.places, best.last_value, best.last_place, used, tiles,
        max(16, triton.next_power_of_2(tiles * used)), **launch_options(4),
    )  # fmt: skip


def mask_clusters(values: Tensor, scores: Tensor, best: BestClusters, out: Tensor) -> None:
    """out = values in the columns of chosen clusters, else -inf.

    values, out: float32 [R, n]. scores: [R, C], cluster c has n / C columns. best: see ``find_best_clusters``.
    """
    rows, n = out.shape
    block = min(COLUMNS, triton.next_power_of_2(n))
    _mask_clusters[rows, triton.cdiv(n, block)](
        values, scores, best.last_value, best.last_place, out, values.stride(0), scores.stride(0), out.stride(0), n,
        n // scores.shape[1], block, **launch_options(4),
    )  # fmt: skip


@device_function
def _score(number):
    """float32, -inf for a score that is no number."""
    number = number.to(tl.float32)
    return tl.where(number == number, number, float("-inf"))


@device_function
def _take_best(score, place, left):
    """The best score that is left, and the first place that has it."""
    best = tl.max(tl.where(left, score, float("-inf")), 0)
    return best, tl.min(tl.where(left & (score == best), place, 2147483647), 0)


@triton.jit
def _find_best(
    scores, values, places, stride, count, USED: tl.constexpr, TILES: tl.constexpr, TILE: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """The USED best clusters of a tile in order; places of none are 2147483647."""
    start_next(DEPENDENT)
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = tile * TILE + tl.arange(0, TILE)
    wait_for_previous(DEPENDENT)
    left = place < count
    score = _score(tl.load(scores + row * stride + place, left, other=0.0))
    for rank in range(USED):
        best, where = _take_best(score, place, left)
        to = (row * TILES + tile) * USED + rank
        tl.store(values + to, best)
        tl.store(places + to, where)
        left = left & (place != where)


@triton.jit
def _find_last(
    values, places, last_value, last_place, USED: tl.constexpr, TILES: tl.constexpr, BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """The USED-th best candidate of a row."""
    start_next(DEPENDENT)
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    wait_for_previous(DEPENDENT)
    real = at < TILES * USED
    score = tl.load(values + row * TILES * USED + at, real, other=float("-inf"))
    place = tl.load(places + row * TILES * USED + at, real, other=2147483647)
    left = place != 2147483647
    best, where = _take_best(score, place, left)
    for _ in range(1, USED):
        left = left & (place != where)
        best, where = _take_best(score, place, left)
    tl.store(last_value + row, best)
    tl.store(last_place + row, where)


@triton.jit
def _mask_clusters(
    values, scores, last_value, last_place, out, stride, scores_stride, out_stride, count, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    start_next(DEPENDENT)
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    wait_for_previous(DEPENDENT)
    real, cluster = column < count, column // WIDTH
    score = _score(tl.load(scores + row * scores_stride + cluster, real, other=0.0))
    value, place = tl.load(last_value + row), tl.load(last_place + row)
    chosen = (score > value) | ((score == value) & (cluster <= place))
    number = tl.load(values + row * stride + column, real & chosen, other=float("-inf"))
    tl.store(out + row * out_stride + column, number, real)
