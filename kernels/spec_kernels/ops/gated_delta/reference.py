"""The gated delta rule, token by token, with states that are read, kept, or passed on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from spec_kernels.ops.gated_delta.chunk import chunk
from spec_kernels.ops.lineage import Lineage

WHOLE = 64
"""Functions of many numbers are computed in multiples of this: a remainder takes another path through the vector
library, and a row's result must not depend on how many rows there are."""


def gated_delta(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, states: Tensor, lineage: Lineage, key_of: Tensor
) -> tuple[Tensor, Tensor]:
    """S = exp(g) S_before + k dᵀ with d = beta (v - (exp(g) S_before)ᵀ k), o = Sᵀ q (Yang et al., 2412.06464, eq. 10).

    q, k: float32 [R, Hk, Dk], unit vectors, q scaled    v: float32 [R, Hv, Dv]    beta: float32 [R, Hv]
    g: float32, at most 0: [R, Hv], or [R, Hv, Dk] for a decay per channel (KDA)
    states: float32 [N, Hv, Dk, Dv]; the ones that ``lineage`` keeps are overwritten with the state after their row
    key_of: int64 [Hv], the key head that serves each value head
    returns o, d: float32 [R, Hv, Dv]; a row's result depends on its ancestors only, bit for bit, except that rows of
        ``lineage.chunks`` are summed in another order than rows alone
    """
    return _Work(q.index_select(1, key_of), k.index_select(1, key_of), v, g, beta, states, lineage).all_rows()


def scan(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, states: Tensor, lineage: Lineage, key_of: Tensor
) -> tuple[Tensor, Tensor]:
    """S = exp(g) S_before + k dᵀ with d = beta v, o = Sᵀ q (Mamba-2; Dao and Gu, 2405.21060).

    The arguments and results are ``gated_delta``'s, but q and k have any length.
    """
    return _Work(q.index_select(1, key_of), k.index_select(1, key_of), v, g, beta, states, lineage, False).all_rows()


def replay_rows(
    states: Tensor, k: Tensor, d: Tensor, g: Tensor, key_of: Tensor, path: Sequence[int], source: int, target: int
) -> None:
    """Run recorded rows along a path: S = exp(g) S + k dᵀ from states[source] into states[target], in place if equal.

    k: float32 [n, Hk, Dk]    d: float32 [n, Hv, Dv]    g: float32 [n, Hv] or [n, Hv, Dk]    path: rows, in order
    The result is that of ``gated_delta`` for the same rows, bit for bit.
    """
    writes = _writes(k.index_select(1, key_of), d, decays(g))
    before, after = states[source], states[target]
    for row in path:
        _advance(before, *writes[row], after)
        before = after


def decays(g: Tensor) -> Tensor:
    """exp(g) as [R, Hv, 1] or [R, Hv, Dk]."""
    flat = g.flatten()
    whole = F.pad(flat, (0, -len(flat) % WHOLE)).exp_()[: len(flat)].view(g.shape)
    return whole[..., None] if g.dim() == 2 else whole


def _writes(k: Tensor, d: Tensor, decay: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Arguments of ``_advance`` for every row, as views. k: [R, Hv, Dk]    d: [R, Hv, Dv]    decay: [R, Hv, 1 or Dk]"""
    return list(zip(k[..., None].unbind(0), d[:, :, None].unbind(0), decay[..., None].unbind(0), strict=True))


def _advance(before: Tensor, k: Tensor, d: Tensor, decay: Tensor, out: Tensor) -> None:
    """before, out: [Hv, Dk, Dv]    k: [Hv, Dk, 1]    d: [Hv, 1, Dv]    decay: [Hv, 1 or Dk, 1]"""
    torch.mul(before, decay, out=out)
    out.addcmul_(k, d)


class _Work:
    """One pass: views of every row, and the states between rows, stored ones and those in scratch memory."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor,
        beta: Tensor,
        states: Tensor,
        lineage: Lineage,
        corrects: bool = True,
    ) -> None:
        """q, k: [R, Hv, Dk]. corrects: what the state recalls for k is subtracted from v."""
        self.inputs, self.corrects = (q, k, v, g, beta), corrects
        self.o, self.d = torch.empty_like(v), torch.empty_like(v)
        decay = decays(g)
        asked = torch.stack([k, q], 2) * decay[:, :, None]  # (exp(g) S)ᵀ k = Sᵀ (exp(g) k): decayed on this side
        own = (q * k).sum(-1, keepdim=True)
        self._rows = list(zip(*(m.unbind(0) for m in (asked, v, beta[..., None], own, self.o, self.d)), strict=True))
        self._writes = _writes(k, self.d, decay)
        self.states, self.lineage = states, lineage
        self._after: dict[int, Tensor] = {}

    def all_rows(self) -> tuple[Tensor, Tensor]:
        """Compute all rows: o and d."""
        runs, row = dict(self.lineage.chunks), 0
        while row < self.lineage.rows:
            self.run(row, runs[row]) if row in runs else self.step(row)
            row += runs.get(row, 1)
        return self.o, self.d

    def step(self, row: int) -> None:
        """One token; the state after it is computed where anyone will look at it."""
        before = self._before(row)
        asked, v, beta, own, o, d = self._rows[row]
        recalled, answer = torch.bmm(asked, before).unbind(1)
        torch.sub(v, recalled if self.corrects else 0, out=d).mul_(beta)
        torch.addcmul(answer, own, d, out=o)
        if self.lineage.keep[row] >= 0 or row in self.lineage.last_child:
            self._after[row] = self._place(row)
            _advance(before, *self._writes[row], self._after[row])

    def run(self, first: int, n: int) -> None:
        """n tokens that follow each other, together."""
        rows = slice(first, first + n)
        q, k, v, g, beta = (m[rows] for m in self.inputs)
        self.o[rows], self.d[rows], state = chunk(q, k, v, g, beta, self._before(first), self.corrects)
        keep = self.lineage.keep[first + n - 1]
        self._after[first + n - 1] = state if keep < 0 else self.states[keep].copy_(state)

    def _before(self, row: int) -> Tensor:
        parent = self.lineage.parents[row]
        return self._after[parent] if parent >= 0 else self.states[self.lineage.source[row]]

    def _place(self, row: int) -> Tensor:
        """Place of the state: its own if it is kept, the place of a parent without further use, or scratch memory."""
        lineage, keep, parent = self.lineage, self.lineage.keep[row], self.lineage.parents[row]
        free = parent >= 0 and lineage.last_child[parent] == row and lineage.keep[parent] < 0
        if keep >= 0:
            return self.states[keep]
        if free:
            return self._after[parent]
        return torch.empty_like(self.states[0])
