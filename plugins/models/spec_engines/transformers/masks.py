"""The mask of rows that a model cannot derive itself: of a padded batch, and of drafts that branch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from spec_core import Part


def branches(part: Part) -> bool:
    return part.draft is not None and part.draft.parents is not None


def mask(parts: Sequence[Part], count: int, dtype: torch.dtype, device: str) -> Tensor:
    """[B, 1, count, width], 0 where a row of a part attends: to committed rows before it and to its ancestors."""
    starts = torch.tensor([part.start for part in parts])
    width = max(part.end + part.drafted for part in parts)
    seen = torch.arange(width) <= (starts[:, None] + torch.arange(count))[..., None]  # [B, count, width]
    for one, part in zip(seen, parts, strict=True):
        if branches(part):
            _follow(one, part)
    return additive_mask(seen, dtype, device)


def additive_mask(seen: Tensor, dtype: torch.dtype, device: str) -> Tensor:
    """[B, 1, n, width] of [B, n, width]: 0 where a row attends, else the lowest number."""
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)[:, None].to(device)


def _follow(seen: Tensor, part: Part) -> None:
    """Let draft rows see their ancestors only. seen: [count, width]."""
    pending = len(part.pending)
    seen[pending : pending + part.drafted, part.end :] = False
    for j in range(part.drafted):
        seen[pending + j, [part.end + i for i in part.draft.ancestry(j)]] = True
