"""The sparse index of latent attention (DeepSeek sparse attention) with pools of positions, as operations."""

from __future__ import annotations

from collections.abc import Iterator

from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Concat, Linear, Norm, Op, SparseIndex, Store
from spec_kernels.model.shapes import IndexShape, LatentShape


def sparse_index(b: Builder, shape: IndexShape, latent: LatentShape, layer: int) -> Iterator[Op]:
    """``pools``: the pools that attention of a row reads, from its latent of queries, ``queries``, and ``h``.

    layer: of the rows of the index in the cache.
    """
    width = b.shape.width
    keys, scores = (
        b.matrix(name, (shape.dim, width)) for name in ("indexer.attn_k.weight", "indexer_compressor_gate.weight")
    )
    weights = b.matrix("indexer.proj.weight", (shape.heads, width))
    yield Linear("h", ("index_k", "index_s", "index_w"), (keys, scores, weights), (None,) * 3)
    norm, bias = (b.vector(f"indexer.k_norm.{kind}", shape.dim) for kind in ("weight", "bias"))
    yield Norm("index_k", "index_k", norm, shape.eps, centred=True, bias=bias)
    yield Concat(("index_k", "index_s"), "index_row")
    yield Store("index_row", None, shape.stored, layer)
    queries = b.matrix("indexer.attn_q_b.weight", (shape.heads * shape.dim, latent.queries))
    yield Linear("queries", ("index_q",), (queries,), (None,))
    base = b.read("indexer_compressor_ape.weight", (shape.pool, shape.dim))
    yield SparseIndex("index_q", "index_w", "pools", shape, base, layer)
