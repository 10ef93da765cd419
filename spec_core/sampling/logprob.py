"""Log-probabilities of the chosen token and of the best ones."""

from __future__ import annotations

import attrs
import torch
from torch import Tensor


@attrs.frozen
class Logprob:
    """log p of the chosen token under the target's own row, and the best tokens with theirs."""

    value: float
    top: tuple[tuple[int, float], ...] = ()


def logprob(row: Tensor, token: int, best: int) -> Logprob:
    """Exact, from the verifying row, before temperature and penalties. row: [V]."""
    log_p = torch.log_softmax(row.double(), -1)
    values, ids = log_p.topk(min(best, len(log_p)))
    return Logprob(float(log_p[token]), tuple(zip(ids.tolist(), values.tolist(), strict=True)))
