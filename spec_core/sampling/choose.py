"""From a target row to a token: what the user asked for, and the seeded choice.

Plain decoding and verification call the same function, so a method changes neither the distribution nor, for a
seed, the text.
Order: logit bias, penalties, temperature, top-k, top-p, min-p (the order of transformers and vLLM).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from spec_core.errors import TargetError
from spec_core.sampling.noise import DOMAIN_TOKEN, gumbel
from spec_core.sampling.parameters import LOWEST, Sampling


def adjust(row: Tensor, sampling: Sampling, history: list[int], prompt: int) -> Tensor:
    """The row after bias and penalties. row: [V] logits.

    history: all tokens before this choice, the drafted prefix included. prompt: how many of them are the prompt.
    """
    if not sampling.adjusts:
        return row
    row = row.clone()
    if sampling.logit_bias:
        ids = torch.tensor(list(sampling.logit_bias), device=row.device)
        row[ids] += torch.tensor(list(sampling.logit_bias.values()), dtype=row.dtype, device=row.device)
    if sampling.repetition_penalty != 1.0:
        _penalise_repetition(row, sampling.repetition_penalty, history)
    if sampling.presence_penalty or sampling.frequency_penalty:
        ids, counts = _counted(history[prompt:], row.device)
        row[ids] -= sampling.presence_penalty + sampling.frequency_penalty * counts.to(row.dtype)
    return row


def _counted(tokens: list[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Distinct ids and how often each occurs; rows given as embeddings (-1) are no tokens."""
    ids = torch.tensor([t for t in tokens if t >= 0], dtype=torch.int64, device=device)
    return torch.unique(ids, return_counts=True)


def _penalise_repetition(row: Tensor, penalty: float, history: list[int]) -> None:
    ids, _ = _counted(history, row.device)
    values = row[ids]
    row[ids] = torch.where(values > 0, values / penalty, values * penalty)


def support(row: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Token ids [n] that may be drawn and their z = logits / temperature [n], float64, unnormalised log p.

    For a temperature above 0. The order is by descending logit, then id, wherever something is cut, so no cut depends
    on the batch.
    """
    if not sampling.truncates:
        return torch.arange(len(row), device=row.device), _scaled(row, sampling.temperature)
    ids = _largest(row, sampling.top_k or len(row))
    z = _scaled(row[ids], sampling.temperature)
    keep = len(ids)
    if sampling.top_p < 1:
        p = torch.softmax(z, -1)
        keep = int((p.cumsum(-1) - p < sampling.top_p).sum())
    if sampling.min_p:
        keep = min(keep, int((z[:keep] >= z[0] + math.log(sampling.min_p)).sum()))
    return ids[:keep], z[:keep]


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    """The best is 0, so that no temperature, however small, makes two of them infinite."""
    logits = logits.double()
    return (logits - logits.max()).div_(temperature)


def _largest(row: Tensor, k: int) -> Tensor:
    """Ids of the k largest logits, ordered by (-logit, id)."""
    if k < len(row):
        threshold = row.topk(k).values[-1]
        ids = (row >= threshold).nonzero()[:, 0]
    else:
        ids = torch.arange(len(row), device=row.device)
    order = torch.sort(row[ids], descending=True, stable=True).indices
    return ids[order][:k]


def choose(
    row: Tensor,
    sampling: Sampling,
    seed: int,
    t: int,
    stream: int = 0,
    domain: int = DOMAIN_TOKEN,
    noise: Tensor | None = None,
) -> int:
    """The token at output position t: argmax of z + g over the support; temperature 0: argmax. Ties: lowest id.

    row: [V], already adjusted. noise: [V] float64 if it was made before; else only the support is evaluated.
    """
    ids, best = largest(row[None])
    greedy = number(ids, best)
    if sampling.temperature == 0 or math.isinf(best[0]):  # infinitely better than the rest: no noise changes the choice
        return greedy
    if not sampling.truncates:
        g = gumbel(seed, t, len(row), stream, domain) if noise is None else noise
        return largest((_scaled(row, sampling.temperature) + g.to(row.device))[None])[0][0]
    left, z = support(row, sampling)
    g = gumbel(seed, t, left, stream, domain) if noise is None else noise[left.cpu()]
    score = z + g.to(z.device)
    return int(left[score == score.max()].min())


def largest(rows: Tensor) -> tuple[list[int], list[float]]:
    """Where the largest of each row is, the first of equals, and its value; NaN counts as largest. rows: [n, V]."""
    if rows.is_cpu and rows.dtype in (torch.float32, torch.float64):
        values = rows.detach().numpy()  # its argmax is twenty times as fast as torch's on a CPU
        ids = values.argmax(-1)
        return ids.tolist(), values[np.arange(len(ids)), ids].tolist()
    best, at = rows.max(-1)
    both = torch.stack([at.double(), best.double()]).tolist()
    return [int(i) for i in both[0]], both[1]


def number(ids: list[int], values: list[float], row: int = 0) -> int:
    """The id of one row of ``largest``. Raises TargetError where its value is no number, or no token is left."""
    if values[row] > LOWEST:  # NaN is not
        return ids[row]
    if math.isnan(values[row]):
        raise TargetError("the target's logits are not numbers (NaN)", hint="load it with another --dtype")
    raise TargetError("every token is banned: no logit is above -inf", hint="leave a token without that bias")


def scores(
    row: Tensor, sampling: Sampling, seed: int, t: int, stream: int = 0, noise: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Token ids [n] of the support and their z + g [n] float64; at temperature 0 all ids and their logits."""
    if sampling.temperature == 0:
        return torch.arange(len(row), device=row.device), row.double()
    ids, z = support(row, sampling)
    g = gumbel(seed, t, ids, stream) if noise is None else noise[ids.cpu()] if sampling.truncates else noise
    return ids, z + g.to(z.device)


def gap(row: Tensor, sampling: Sampling, seed: int, t: int, stream: int = 0) -> float:
    """Distance of the two best scores of ``choose``: how near the choice was to going the other way."""
    _, score = scores(row, sampling, seed, t, stream)
    best = score.topk(min(2, len(score))).values
    return float(best[0] - best[-1]) if len(best) > 1 else math.inf
