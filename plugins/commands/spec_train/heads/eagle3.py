"""EAGLE-3 (Li et al., 2503.01840) for training: one block over pairs of a feature and the token after it.

Shapes: P pairs, R rows that are trained, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs
import torch
from torch import Tensor

from spec_train.heads.module import HeadModule, KeysValues, group_rows, split_pair

PREFIX = "blk.0."


@attrs.frozen
class PairRange:
    """The pairs of one text among several texts' pairs: ``rows`` of them from ``first`` on are attended to, and pairs
    from ``skip`` on are trained."""

    first: int
    rows: int
    skip: int = 0

    def trained_pairs(self, device: torch.device) -> Tensor:
        """[R] indices of the pairs that are trained."""
        return torch.arange(self.first + self.skip, self.first + self.rows, device=device)


class Eagle3(HeadModule):
    """Differentiable, and unrolled as it drafts (training-time test, section 3.2)."""

    def unroll(self, embedded: Tensor, fused: Tensor, depth: int, texts: Sequence[PairRange] = ()) -> list[Tensor]:
        """Outputs before the final norm, one [R, D] for each of ``depth`` steps.

        embedded: [P, D], row p the embedding of token p + 1. fused: [P, D], row p the feature of position p.
        texts: the pairs of each of several texts; empty: all pairs are one text, and all of them are trained. A text
        has depth - 1 more pairs than rows.
        Row p of step j attends to the true pairs up to p, then to its own outputs with the tokens p + 2 ... p + 1 + j;
        it predicts token p + 2 + j.
        """
        texts = texts or [PairRange(0, len(embedded) - depth + 1)]
        rows = torch.cat([t.trained_pairs(embedded.device) for t in texts])
        e = self.norm(f"{PREFIX}attn_norm", embedded)
        c = self.norm(f"{PREFIX}attn_norm_2", fused)
        context = self.keys(PREFIX, torch.cat([e, c], -1), torch.arange(len(e), device=e.device))
        g, drafted, outputs = fused[rows], [], []
        for j in range(depth):
            c = self.norm(f"{PREFIX}attn_norm_2", g)
            q, pair = self.queries_keys(PREFIX, torch.cat([e[rows + j], c], -1), rows + j)
            drafted += [pair] if j else []
            y = self._rest(c if self.shape.norm_before_residual else g, attend_pairs(q, context, drafted, texts))
            outputs.append(y)
            g = self.norm("output_norm", y) if self.shape.norm_output else y
        return outputs

    def hidden_rows(self, y: Tensor) -> Tensor:
        """The input of the output matrix."""
        return self.norm("output_norm", y)

    def _rest(self, residual: Tensor, o: Tensor) -> Tensor:
        """The block after attention."""
        r = residual + self.linear(f"{PREFIX}attn_output", o.transpose(0, 1).flatten(1))
        return r + self.mlp(PREFIX, self.norm(f"{PREFIX}ffn_norm", r))


def attend_pairs(q: Tensor, context: KeysValues, drafted: Sequence[KeysValues], texts: Sequence[PairRange]) -> Tensor:
    """[h, R, d]: a row attends to the pairs of its text up to its own, and to its own row of every unrolled step."""
    pairs = [*(b.first - a.first for a, b in pairwise(texts)), context[0].shape[1] - texts[-1].first]
    rows = [t.rows - t.skip for t in texts]
    q = q * q.shape[-1] ** -0.5
    parts = zip(
        q.split(rows, 1), split_pair(context, pairs), *(split_pair(pair, rows) for pair in drafted), strict=True
    )
    return torch.cat([_attend_text(t, *part) for t, part in zip(texts, parts, strict=True)], 1)


def _attend_text(pair_range: PairRange, q: Tensor, context: KeysValues, *drafted: KeysValues) -> Tensor:
    """[h, R, d] of one text."""
    rows, group = q.shape[1], len(q) // len(context[0])
    keys, values = (x[:, : pair_range.rows] for x in context)
    future = torch.ones(rows, pair_range.rows, dtype=torch.bool, device=q.device).triu(1 + pair_range.skip)
    queries = group_rows(q, keys)  # [g, h / g x R, d]
    scores = [(queries @ keys.mT).masked_fill(future.repeat(group, 1), float("-inf"))]
    scores += [(queries * k.repeat(1, group, 1)).sum(-1, keepdim=True) for k, _ in drafted]
    weights = torch.cat(scores, -1).softmax(-1)
    out = weights[..., : pair_range.rows] @ values
    for i, (_, v) in enumerate(drafted):
        out = out + weights[..., pair_range.rows + i, None] * v.repeat(1, group, 1)
    return out.view(q.shape)
