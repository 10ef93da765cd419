"""Attention in tiles of a fixed number of rows and positions: a row's result does not depend on its neighbours."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from spec_kernels.model.shapes import HeadShape
from spec_kernels.model.tiles import TILE
from spec_kernels.ops.rowwise import rowwise

PLACES = 64
"""Cache positions per product of scores and values."""


def attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    start: int,
    shape: HeadShape,
    last: int | None = None,
    sinks: Tensor | None = None,
    anchor: int | None = None,
    first: int = 0,
    seen: Tensor | None = None,
) -> Tensor:
    """softmax(q kᵀ · scale) v of rows at positions ``start`` and up, each over the positions up to its own.

    q: [n, H, D]    keys: [K, T, D]    values: [K, T, Dv]    sinks: float32 [H], one more score of each head, without a
    value    last: every row attends to positions up to this one instead; a window still ends at its own position
    anchor: the position at which all windows end instead
    first: the position of the first key, a multiple of PLACES; no row attends to earlier ones
    seen: bool [n, T], the positions of each row that it attends to; None: all
    returns [n, H, Dv]
    """
    rest = shape, last, sinks, anchor, first
    tiles = [
        _tile(q[i : i + TILE], keys, values, start + i, *rest, None if seen is None else seen[i : i + TILE])
        for i in range(0, len(q), TILE)
    ]
    return torch.cat(tiles) if tiles else q.new_empty(0, q.shape[1], values.shape[-1])


def _tile(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    start: int,
    shape: HeadShape,
    last: int | None,
    sinks: Tensor | None,
    anchor: int | None,
    first: int,
    seen: Tensor | None,
) -> Tensor:
    """Attention of TILE rows or fewer, PLACES scores at a time; a column of ones after the values gives the sums."""
    n, (heads, total, dim) = len(q), values.shape
    end = min(first + total, (start + n if last is None else last + 1))
    queries = F.pad(q, (0, 0, 0, 0, 0, TILE - n)).unflatten(1, (heads, -1)).permute(1, 0, 2, 3).flatten(1, 2).float()
    own = torch.arange(start, start + TILE, device=q.device).repeat_interleave(shape.group)[:, None]  # [TILE · G, 1]
    most_seen = own if last is None else torch.full_like(own, last)
    ends = own if anchor is None else anchor
    if seen is not None:
        seen = F.pad(seen, (0, PLACES, 0, TILE - n), value=True).repeat_interleave(shape.group, 0)
    scores = []
    for i in range(first, end, PLACES):
        piece = _piece(keys, i - first, end - first)
        places = torch.arange(i, i + PLACES, device=q.device)
        before = (places <= ends - shape.window) & (places >= shape.lead) if shape.window else False
        hidden = (places > most_seen) | before
        if seen is not None:
            hidden = hidden | ~seen[:, i - first : i - first + PLACES]
        scores.append(cap_scores(torch.bmm(queries, piece.mT) * shape.scale, shape.cap).masked_fill(hidden, -torch.inf))
    peak = torch.stack([s.amax(-1) for s in scores]).amax(0)[..., None]
    sink = None if sinks is None else sinks.view(heads, 1, -1).expand(-1, TILE, -1).reshape(heads, -1, 1)
    peak = peak if sink is None else torch.maximum(peak, sink)
    result = torch.zeros(heads, len(own), dim + 1, device=q.device)
    for i, s in zip(range(first, end, PLACES), scores, strict=True):
        piece = F.pad(_piece(values, i - first, end - first), (0, 1), value=1.0)
        result = result + torch.bmm(rowwise(torch.exp_, s - peak), piece)
    sums = result[..., dim:] if sink is None else result[..., dim:] + rowwise(torch.exp_, sink - peak)
    out = result[..., :dim] / sums
    return out.unflatten(1, (TILE, -1)).permute(1, 0, 2, 3).flatten(1, 2)[:n].to(q.dtype)


def cap_scores(scores: Tensor, cap: float) -> Tensor:
    """cap · tanh(score / cap); a cap of 0 changes nothing."""
    return rowwise(torch.tanh_, scores / cap) * cap if cap else scores


def _piece(rows: Tensor, begin: int, end: int) -> Tensor:
    """float32 [K, PLACES, D] from position ``begin`` on; zeros from ``end`` on, whatever is stored there."""
    piece = rows[:, begin : min(begin + PLACES, end)].float()
    return F.pad(piece, (0, 0, 0, PLACES - piece.shape[1]))
