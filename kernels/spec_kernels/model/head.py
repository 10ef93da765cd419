"""What descriptions of draft heads share: their tensors beside the target's, sizes of a block, words of their own.

A head's tensors have the names that the reader of heads gives them, after a prefix that the target's do not have.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spec_kernels.model.build import Builder
from spec_kernels.model.shapes import BlockShape, HeadShape
from spec_kernels.model.source import Prefixed, Source, has

PREFIX = "head."


def lent(source: Source, trunk: Any) -> Prefixed:
    """Tensors of a head, and those of the target's executor ``trunk`` under their own names."""
    return Prefixed(source, PREFIX, trunk.source)


def block_shape(head: Any, window: int = 0) -> BlockShape:
    """Of the blocks of a head, from its description."""
    heads = HeadShape(head.heads, head.kv_heads, head.head, head.head, head.head**-0.5, window)
    return BlockShape(head.width, heads, head.eps)


def own(builder: Builder, name: str) -> str:
    """The head's own matrix where it has one, else the target's."""
    return PREFIX + name if has(builder.source, PREFIX + name) else name


def output(builder: Builder) -> Any:
    """The matrix of the logits: the head's own, the target's, or the target's embedding where that serves both."""
    name = own(builder, "output.weight")
    return builder.weight(name if has(builder.source, name) else "token_embd.weight")


def tokens_of(head: Any, device: Any) -> Tensor | None:
    """int64 [Vd], the target's token of every row of logits; None where rows are the target's tokens."""
    return None if head.d2t is None else head.d2t.to(device)


def spread(rows: Tensor, tokens: Tensor | None, vocab: int) -> Tensor:
    """Rows of logits as [n, vocab] of the target's tokens; those that the head cannot draft have none."""
    if tokens is None:
        return rows
    return rows.new_full((len(rows), vocab), -torch.inf).index_copy_(1, tokens, rows)
