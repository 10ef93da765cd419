"""The gated delta rule for a run of tokens at once (Yang et al., 2412.06464, section 3.3)."""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 64
"""Rows of a run that are computed together."""
FINE = 16
"""Rows of a run that are computed together if the decay is per channel: the decays between all pairs of rows are then
a tensor of their own."""


def chunk(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, corrects: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, written values and the state after C tokens.

    q, k: [C, H, Dk]    v: [C, H, Dv]    g: [C, H] or [C, H, Dk]    beta: [C, H]    state: [H, Dk, Dv]
    corrects: False: d = beta v (Mamba-2)
    returns o [C, H, Dv], d [C, H, Dv], state [H, Dk, Dv]
    """
    if g.dim() == 2:
        return _chunk(q, k, v, g[..., None], beta, state, corrects)
    outs, written = [], []
    for i in range(0, len(q), FINE):
        part = slice(i, i + FINE)
        o, d, state = _chunk(q[part], k[part], v[part], g[part], beta[part], state)
        outs.append(o)
        written.append(d)
    return torch.cat(outs), torch.cat(written), state


def _chunk(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor, corrects: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """g: [C, H, 1 or Dk]. Exponents are differences of running sums, at most 0: they cannot overflow."""
    q, k, v, g, beta = (m.transpose(0, 1) for m in (q, k, v, g, beta))  # [H, C, ...]
    total = g.cumsum(1)
    kk, qk = _products(k, k, total) if corrects else None, _products(q, k, total)
    before = total.exp()
    d = beta[..., None] * (v - (k * before) @ state if corrects else v)
    if corrects:
        system = (beta[..., None] * kk).tril(-1)
        d = torch.linalg.solve_triangular(system, d, upper=False, unitriangular=True)
    o = (q * before) @ state + qk @ d
    after = total[:, -1, :, None].exp() * state + (k * (total[:, -1:] - total).exp()).mT @ d
    return o.transpose(0, 1), d.transpose(0, 1), after


def _products(a: Tensor, b: Tensor, total: Tensor) -> Tensor:
    """[H, C, C]: a_i · b_j with the decay from j to i, for j <= i; 0 elsewhere."""
    if total.shape[-1] == 1:
        decay = (total - total.mT).tril().exp()
        return ((a @ b.mT) * decay).tril()
    later = torch.ones(a.shape[1], a.shape[1], dtype=torch.bool, device=a.device).triu(1)
    gap = (total[:, :, None] - total[:, None]).masked_fill(later[..., None], -torch.inf)
    return torch.einsum("hid,hjd,hijd->hij", a, b, gap.exp())
