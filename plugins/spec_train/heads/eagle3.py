"""EAGLE-3 (Li et al., 2503.01840) for training: one block over pairs of a feature and the token after it.

Shapes: P pairs, R rows that are taught, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs
import torch
from torch import Tensor

from spec_train.weights import Pair, Weights, grouped

PREFIX = "blk.0."


@attrs.frozen
class Stretch:
    """Pairs of one text among those of several: ``rows`` of them from ``first`` are seen, from ``skip`` on taught."""

    first: int
    rows: int
    skip: int = 0

    def asked(self, device: torch.device) -> Tensor:
        """Numbers of the pairs that are taught."""
        return torch.arange(self.first + self.skip, self.first + self.rows, device=device)


class Eagle3(Weights):
    """Differentiable, and unrolled the way it drafts: the test it will meet, in training (section 3.2)."""

    def unroll(self, embedded: Tensor, fused: Tensor, depth: int, texts: Sequence[Stretch] = ()) -> list[Tensor]:
        """Outputs before the final norm, one [R, D] for each of ``depth`` steps.

        embedded: [P, D], row p the embedding of token p + 1. fused: [P, D], row p the feature of position p.
        texts: several texts after one another; without them all is one text, and all of it is taught. A text has
        depth - 1 pairs more than it has rows.
        Row p of step j has seen the true pairs up to p, then its own outputs with the tokens p + 2 ... p + 1 + j; it
        predicts token p + 2 + j.
        """
        texts = texts or [Stretch(0, len(embedded) - depth + 1)]
        asked = torch.cat([t.asked(embedded.device) for t in texts])
        e = self.norm(f"{PREFIX}attn_norm", embedded)
        c = self.norm(f"{PREFIX}attn_norm_2", fused)
        known = self.keys(PREFIX, torch.cat([e, c], -1), torch.arange(len(e), device=e.device))
        g, later, found = fused[asked], [], []
        for j in range(depth):
            c = self.norm(f"{PREFIX}attn_norm_2", g)
            q, pair = self.looked(PREFIX, torch.cat([e[asked + j], c], -1), asked + j)
            later += [pair] if j else []
            y = self._rest(c if self.shape.norm_before_residual else g, attended(q, known, later, texts))
            found.append(y)
            g = self.norm("output_norm", y) if self.shape.norm_output else y
        return found

    def hidden(self, y: Tensor) -> Tensor:
        """What the output matrix reads."""
        return self.norm("output_norm", y)

    def _rest(self, begun: Tensor, o: Tensor) -> Tensor:
        r = begun + self.linear(f"{PREFIX}attn_output", o.transpose(0, 1).flatten(1))
        return r + self.mlp(PREFIX, self.norm(f"{PREFIX}ffn_norm", r))


def attended(q: Tensor, known: Pair, later: Sequence[Pair], texts: Sequence[Stretch]) -> Tensor:
    """[h, R, d]: a row attends to the pairs of its text up to its own, and to its own row of every later step."""
    pairs = [*(b.first - a.first for a, b in pairwise(texts)), known[0].shape[1] - texts[-1].first]
    rows = [t.rows - t.skip for t in texts]
    q = q * q.shape[-1] ** -0.5
    parts = zip(q.split(rows, 1), split(known, pairs), *(split(pair, rows) for pair in later), strict=True)
    return torch.cat([_one(t, *part) for t, part in zip(texts, parts, strict=True)], 1)


def split(pair: Pair, sizes: Sequence[int]) -> list[Pair]:
    return list(zip(*(x.split(sizes, 1) for x in pair), strict=True))


def _one(text: Stretch, q: Tensor, known: Pair, *later: Pair) -> Tensor:
    """[h, R, d] of one text."""
    rows, group = q.shape[1], len(q) // len(known[0])
    keys, values = (x[:, : text.rows] for x in known)
    above = torch.ones(rows, text.rows, dtype=torch.bool, device=q.device).triu(1 + text.skip)
    asked = grouped(q, keys)  # [g, h / g x R, d]
    scores = [(asked @ keys.mT).masked_fill(above.repeat(group, 1), float("-inf"))]
    scores += [(asked * k.repeat(1, group, 1)).sum(-1, keepdim=True) for k, _ in later]
    weights = torch.cat(scores, -1).softmax(-1)
    out = weights[..., : text.rows] @ values
    for i, (_, v) in enumerate(later):
        out = out + weights[..., text.rows + i, None] * v.repeat(1, group, 1)
    return out.view(q.shape)
