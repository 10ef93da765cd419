"""Shared parts of draft heads' descriptions: their tensors and the target's, sizes of a block, their vocabulary.

A head's tensors keep the names of the head reader, after a prefix that the target's do not have.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spec_kernels.model.build import Builder
from spec_kernels.model.executor import LayerExecutor
from spec_kernels.model.ops import Weight
from spec_kernels.model.shapes import BlockShape, HeadShape
from spec_kernels.model.source import Prefixed, TensorSource, has_tensor

PREFIX = "head."


def shared_weights(source: TensorSource, executor: LayerExecutor) -> Prefixed:
    """Tensors of a head, and of the target's ``executor`` by their own names."""
    return Prefixed(source, PREFIX, executor.source)


def target_weights(source: TensorSource, tied: bool = False) -> frozenset[str]:
    """Names of the target's matrices that a head uses because it has none of its own. Reads no values.

    tied: its own embedding is its output matrix.
    """
    names = ("token_embd.weight",) if tied else ("token_embd.weight", "output.weight")
    return frozenset(name for name in names if not has_tensor(source, name))


def block_shape(head: Any, window: int = 0, layer: int = 0) -> BlockShape:
    """The shape of a head's block, from its description."""
    turning = head.rotary or head.head
    heads = HeadShape(head.heads_of(layer), head.kv_heads, head.head, turning, head.scale or head.head**-0.5, window)
    return BlockShape(head.width, heads, head.eps, reads=head.width * (2 if head.kind == "eagle3" else 1))


def matrix_name(builder: Builder, name: str) -> str:
    """The head's own matrix if it has one, else the target's."""
    return PREFIX + name if has_tensor(builder.source, PREFIX + name) else name


def output_matrix(builder: Builder, tied: bool = False) -> Weight:
    """The output matrix: the head's own, the target's, or the target's embedding if these are tied.

    tied: the head's own embedding is its output matrix.
    """
    if tied:
        return builder.weight(PREFIX + "token_embd.weight")
    name = matrix_name(builder, "output.weight")
    return builder.weight(name if has_tensor(builder.source, name) else "token_embd.weight")


def tokens_of(head: Any, device: Any) -> Tensor | None:
    """int64 [Vd], the target's token of every row of logits; None if rows are the target's tokens."""
    return None if head.d2t is None else head.d2t.to(device)


def spread_logits(rows: Tensor, tokens: Tensor | None, vocab: int) -> Tensor:
    """Logits as [n, vocab] over the target's tokens; -inf for tokens that the head cannot draft."""
    if tokens is None:
        return rows
    return rows.new_full((len(rows), vocab), -torch.inf).index_copy_(1, tokens, rows)
