"""Messages between rows of a block (DSpine): after each layer a row reads what the row before expects to predict.

A row's feature is a vector of the length of a token's code; the first row's is the code of the last committed token. A
message is made of the feature of the row before, gated by both features, and added in proportion to the stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from spec_kernels.model.build import Builder
from spec_kernels.model.head import PREFIX
from spec_kernels.model.ops import Add, AddRelative, BlockConv, Concat, Embed, Gate, Input, Norm, Op

FIRST, LATER = "first", "later"
"""Inputs of width 1: 1 in the first rows of blocks and 0 in the others, and the reverse."""
TINY = 1e-24
"""Added to the square of a feature's length, which is divided by."""


def first_rows(firsts: Sequence[int], rows: int, device: Any) -> dict[str, Tensor]:
    """The inputs of a batch of ``rows``, in which blocks begin at ``firsts``."""
    first = torch.zeros(rows, 1, device=device)
    first[list(firsts)] = 1.0
    return {FIRST: first, LATER: 1.0 - first}


def code_ops(whole: Builder, head: Any) -> Iterator[Op]:
    """Operations from tokens to their codes, of first rows alone. whole: a builder without a block."""
    yield from (Input(FIRST, 1), Input(LATER, 1))
    yield embed_codes(whole, head, "code", replaceable=False)
    yield Gate("code", FIRST, "code", "identity")


def embed_codes(whole: Builder, head: Any, out: str, replaceable: bool = True) -> Embed:
    """The codes of tokens, times the square root of their number of dimensions."""
    codes = whole.matrix(PREFIX + "transfer_codes.weight", (head.vocab, head.transfer))
    return Embed(out, codes, head.transfer**0.5, replaceable)


def pass_ops(builder: Builder, whole: Builder, head: Any) -> Iterator[Op]:
    """Operations that add to the stream ``x`` of each row the message of the row before; the first row has none."""
    yield from feature_ops(builder, head, "x")
    yield Concat(("feature",), "passed")
    yield Gate("passed", LATER, "passed", "identity")
    yield Add("passed", "code", "passed")
    yield BlockConv("passed", None, "before", torch.tensor([[0.0], [1.0]]).expand(2, head.transfer).contiguous())
    yield from message_ops(builder, whole, head, "x", "before")


def feature_ops(builder: Builder, head: Any, x: str) -> Iterator[Op]:
    """Operations from a stream to its feature."""
    yield builder.linear(x, "read", "transfer_read", (head.transfer, head.width))
    yield Norm("read", "feature", torch.ones(head.transfer), TINY / head.transfer)


def message_ops(builder: Builder, whole: Builder, head: Any, x: str, before: str) -> Iterator[Op]:
    """Operations that add to a stream the message of the feature ``before``."""
    size = (head.message, head.transfer)
    yield whole.linear("feature", "open", PREFIX + "transfer_gate", size)
    yield whole.linear(before, "open", PREFIX + "transfer_gate_before", size, add="open")
    yield whole.linear(before, "message", PREFIX + "transfer_message", size)
    yield Gate("message", "open", "message", "sigmoid")
    yield builder.linear("message", "written", "transfer_write", (head.width, head.message))
    yield AddRelative(x, "written")
