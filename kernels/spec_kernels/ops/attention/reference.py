"""softmax(q kᵀ · scale) v, with grouped heads and an explicit mask."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def attention(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float) -> Tensor:
    """Attention of R query rows over T cached rows, computed in float32.

    q: [R, H, Dk]    k: [T, K, Dk]    v: [T, K, Dv]    visible: bool [R, T], at least one per row
    returns [R, H, Dv]; query head h reads key head h // (H / K)
    """
    group = q.shape[1] // k.shape[1]
    k, v = (m.float().repeat_interleave(group, dim=1) for m in (k, v))
    scores = torch.einsum("rhd,thd->hrt", q.float(), k) * scale
    weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    return torch.einsum("hrt,thd->rhd", weights, v).to(q.dtype)


def causal_mask(rows: int, total: int) -> Tensor:
    """bool [rows, total]: the last ``rows`` of ``total`` positions, each seeing itself and what was before."""
    return torch.ones(rows, total, dtype=torch.bool).tril(total - rows)


def ancestor_mask(parents: Sequence[int]) -> Tensor:
    """bool [n, n]: node i sees itself and its ancestors. A parent of -1 is outside; parents come before children."""
    mask = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] |= mask[parent]
    return mask
