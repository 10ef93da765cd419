"""The sparse index in plain torch: keys of pools, the best pools of a row, and the positions that it sees.

Every step has one size for all rows, so that a row has equal bits in every batch.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from spec_kernels.ops.rowwise import rowwise

PIECE = 64
"""Pools whose scores are computed together."""


def pool_keys(rows: Tensor, base: Tensor) -> Tensor:
    """Keys float32 [P, D] of the whole pools of neighbouring rows [T, 2 D], [k | s]; see ``SparseIndex``.

    base: float32 [pool, D]
    """
    pool, dim = base.shape
    whole = rows[: len(rows) // pool * pool].float().unflatten(0, (-1, pool))
    keys, scores = whole[..., :dim], whole[..., dim:] + base
    peak = scores.amax(1)
    total, weighed = torch.zeros_like(peak), torch.zeros_like(peak)
    for place in range(pool):
        weight = rowwise(torch.exp_, scores[:, place] - peak)
        total = total + weight
        weighed = weighed + weight * keys[:, place]
    return weighed / total


def best_pools(q: Tensor, weights: Tensor, keys: Tensor, used: int) -> Tensor:
    """Numbers int64 [used] of the pools that score highest, ascending, then -1.

    q: [H, D]    weights: [H]    keys: float32 [P, D]
    """
    best = torch.arange(len(keys), device=keys.device)
    if len(keys) > used:
        best = _scores(q.float(), weights.float(), keys).argsort(stable=True, descending=True)[:used].sort().values
    return F.pad(best, (0, used - len(best)), value=-1)


def _scores(q: Tensor, weights: Tensor, keys: Tensor) -> Tensor:
    """float32 [P]; NaN counts as the smallest."""
    pieces = []
    for i in range(0, len(keys), PIECE):
        piece = keys[i : i + PIECE]
        products = torch.mm(q, F.pad(piece, (0, 0, 0, PIECE - len(piece))).T).clamp(min=0)
        pieces.append(torch.mm(weights[None], products)[0, : len(piece)])
    return torch.cat(pieces).nan_to_num(-torch.inf, torch.inf, -torch.inf)


def seen_positions(pools: Tensor, ends: Tensor, pool: int, total: int) -> Tensor:
    """bool [n, total]: the positions that rows attend to, up to their own.

    pools: [n, used], rows of ``SparseIndex``    ends: int64 [n], the positions up to each row, its own included
    """
    count = total // pool + 1
    numbers = pools.long()
    opened = torch.zeros(len(pools), count + 1, dtype=torch.bool, device=pools.device)
    opened.scatter_(1, torch.where(numbers < 0, count, numbers), True)
    positions = torch.arange(total, device=pools.device)
    tail = positions >= (ends // pool * pool)[:, None]
    return opened[:, positions // pool] | tail
