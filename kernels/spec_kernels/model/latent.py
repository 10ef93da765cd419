"""Latent attention (MLA; DeepSeek-V2, 2405.04434) as operations: keys and values of heads are never expanded.

A head's key is [shared | K_h c] and its value V_h c, where c is the latent of the position. So its score is
q_shared · shared + (K_hᵀ q) · c, and the sum of its values V_h (Σ weight c): attention reads [shared | c] alone, one
key for all heads, whose last numbers are the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch

from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Attend, Concat, HeadLinear, Linear, Norm, Op, Rotate, Store
from spec_kernels.model.shapes import HeadShape, LatentShape


def latent_heads(heads: int, shape: LatentShape, rotary_dim: int = 0, scale: float = 0.0, table: int = 0) -> HeadShape:
    """The heads of attention over [shared | latent].

    rotary_dim: of ``shared`` numbers, all or none rotate. scale: of scores; 0: 1 / sqrt of the width of a head's key.
    """
    width = shape.shared + shape.rank
    return HeadShape(heads, 1, width, rotary_dim, scale or shape.key**-0.5, table=table, latent=shape.rank)


def latent_attention(
    b: Builder, shape: LatentShape, eps: float, index: Iterable[Op] = (), pool: int = 0, residual: bool = True
) -> Iterator[Op]:
    """x + out(attention over latents), where shared numbers rotate if the heads have a ``rotary_dim``.

    Heads of ``attn_q`` are [plain | shared], rows of ``attn_kv_a_mqa`` latent and then shared; ``attn_k_b`` are the
    matrices K_hᵀ and ``attn_v_b`` V_h. With a latent of queries, ``attn_q_a`` makes it and ``attn_q_b`` is in place of
    ``attn_q``. Neighbouring shared numbers rotate together, as files have them. eps: of the norms of latents.
    pool: positions of a pool, where attention reads the pools of the value ``pools`` alone; 0: it reads all. index:
    operations that write ``pools`` from ``queries`` and ``h``. residual: False: the result is ``h``, and ``x`` stays.
    """
    heads, width = b.shape.heads, b.shape.width
    yield from _projections(b, shape, eps)
    yield Norm("latent", "latent", b.vector("attn_kv_a_norm.weight", shape.rank), eps)
    yield Concat(("shared", "latent") if shape.shared else ("latent",), "key")
    if heads.rotary_dim:
        yield Rotate("q", replace(heads, dim=shape.key))
        yield Rotate("key", replace(heads, heads=1))
    keys = b.matrix("attn_k_b.weight", (heads.heads, shape.rank, shape.plain))
    yield HeadLinear("q", "query", keys, kept=shape.shared)
    yield Store("key", None, heads, b.layer)
    yield from index
    yield Attend("query", "sums", heads, b.layer, pools="pools" if pool else None, pool=pool)
    values = b.matrix("attn_v_b.weight", (heads.heads, shape.value, shape.rank))
    yield HeadLinear("sums", "a", values)
    yield b.onto("a", "attn_output", (width, heads.heads * shape.value), residual)


def _projections(b: Builder, shape: LatentShape, eps: float) -> Iterator[Op]:
    """``q``, heads of [shared | plain], ``shared`` and ``latent`` of the stream."""
    heads, width = b.shape.heads, b.shape.width
    b.declare("attn_kv_a_mqa.weight", (shape.rank + shape.shared, width))
    pairs = _pairs(shape.shared) if heads.rotary_dim else torch.arange(shape.shared)
    head = torch.cat([shape.plain + pairs, torch.arange(shape.plain)])
    rows = (shape.key * torch.arange(heads.heads)[:, None] + head).flatten()
    parts = {"shared": shape.rank + pairs, "latent": torch.arange(shape.rank)}
    names = [name for name, numbers in parts.items() if len(numbers)]
    both = [b.weight("attn_kv_a_mqa.weight", parts[name]) for name in names]
    if not shape.queries:
        b.declare("attn_q.weight", (heads.heads * shape.key, width))
        yield Linear("h", ("q", *names), (b.weight("attn_q.weight", rows), *both), (None,) * (1 + len(both)))
        return
    narrow = b.matrix("attn_q_a.weight", (shape.queries, width))
    yield Linear("h", ("queries", *names), (narrow, *both), (None,) * (1 + len(both)))
    yield Norm("queries", "queries", b.vector("attn_q_a_norm.weight", shape.queries), eps)
    b.declare("attn_q_b.weight", (heads.heads * shape.key, shape.queries))
    yield Linear("queries", ("q",), (b.weight("attn_q_b.weight", rows),), (None,))


def _pairs(count: int) -> torch.Tensor:
    """int64 [count]: the first members of all pairs of neighbours, then the second ones."""
    return torch.arange(count).view(-1, 2).T.flatten()
