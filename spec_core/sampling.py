"""From a target row to a token: what the user asked for, and the seeded choice.

Plain decoding and verification call the same function, so a method cannot change the law or, for a seed, the text.
Order: logit bias, penalties, temperature, top-k, top-p, min-p (the order of transformers and vLLM).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from spec_core.errors import TargetError, UsageError
from spec_core.given import real, whole
from spec_core.noise import DOMAIN_TOKEN, gumbel


def _check(low: float, high: float, *, open_low: bool = False) -> Any:
    def validate(instance: Any, attribute: attrs.Attribute, value: Any) -> None:
        mend = f"give a number {'above' if open_low else 'from'} {low} to {high}"
        if not isinstance(value, float):
            raise UsageError(f"{attribute.name} = {value!r} is no number", mend=mend)
        if not (low < value if open_low else low <= value) or value > high:
            raise UsageError(f"{attribute.name} = {value} is out of range", mend=mend)

    return validate


def _whole(instance: Any, attribute: attrs.Attribute, value: Any) -> None:
    if value is not None and (type(value) is not int or value < 0):
        raise UsageError(f"{attribute.name} = {value!r} is no count", mend="give a whole number, 0 or more")


def _number(default: float, low: float, high: float, *, open_low: bool = False) -> Any:
    """A field that takes every kind of number; what is none is refused by its name."""
    return attrs.field(default=default, converter=_as(real), validator=_check(low, high, open_low=open_low))


def _count(default: int | None) -> Any:
    return attrs.field(default=default, converter=_as(whole), validator=_whole)


def _as(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Convert what converts; the validator names the rest."""

    def convert(value: Any) -> Any:
        made = kind(value)
        return value if made is None else made

    return convert


@attrs.frozen
class Sampling:
    """How a token is chosen. Every default leaves the target's distribution as it is; temperature 0 is greedy.

    top_k: 0 is off. repetition_penalty divides positive and multiplies negative logits of every token in prompt and
    output (CTRL, 1909.05858); presence and frequency penalties count the output only (OpenAI).
    logit_bias: {token: added to its logit}. logprobs: None, or how many best tokens to report beside the chosen one.
    """

    temperature: float = _number(0.0, 0, 100)
    top_k: int = _count(0)
    top_p: float = _number(1.0, 0, 1, open_low=True)
    min_p: float = _number(0.0, 0, 1)
    repetition_penalty: float = _number(1.0, 0, 100, open_low=True)
    presence_penalty: float = _number(0.0, -100, 100)
    frequency_penalty: float = _number(0.0, -100, 100)
    logit_bias: Mapping[int, float] = attrs.field(factory=dict)
    logprobs: int | None = _count(None)

    @property
    def greedy(self) -> bool:
        """The choice is the argmax of the target's own row."""
        return self.temperature == 0 and not self.adjusts

    @property
    def truncates(self) -> bool:
        """Some tokens cannot be drawn at all."""
        return bool(self.top_k or self.top_p < 1 or self.min_p)

    @property
    def adjusts(self) -> bool:
        """Logits are changed before temperature, in a way that may depend on the history."""
        penalties = (self.repetition_penalty != 1.0, self.presence_penalty, self.frequency_penalty, self.logit_bias)
        return any(penalties)


def adjust(row: Tensor, sampling: Sampling, history: list[int], prompt: int) -> Tensor:
    """Bias and penalties. row [V]; history: all tokens before this choice, the drafted prefix included."""
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

    The order is by descending logit, then id, wherever something is cut, so no cut depends on the batch.
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
    if sampling.temperature == 0 or math.isinf(best[0]):  # what is infinitely better needs no chance
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
    if math.isnan(values[row]):
        raise TargetError("the target's logits are not numbers (NaN)", mend="load it with another --dtype")
    if values[row] == -math.inf:
        raise TargetError("every token is banned: no logit is above -inf", mend="leave a token without that bias")
    return ids[row]


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
