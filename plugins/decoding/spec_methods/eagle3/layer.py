"""The EAGLE-3 head: a block over pairs of a feature and the token after it (Li et al., 2503.01840, section 3).

A feature is a projection of several hidden states of the target, one such state as it is, or the head's own output
after a drafted token. Blocks after the first read the stream alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from spec_kernels.drafting import (
    PREFIX,
    Builder,
    Concat,
    Embed,
    ForwardBatch,
    Input,
    Linear,
    Model,
    Op,
    PairLayer,
    Pick,
    SequenceRows,
    Tap,
    block_shape,
    matrix_name,
    output_matrix,
    shared_weights,
    spread_logits,
    tokens_of,
)
from torch import Tensor

from spec_core.toolkit import HeadFile


class Layer(PairLayer):
    """Feature g = fc [h_low | h_middle | h_high]; draft step: y = block([norm(embedding) | norm(g)]),
    logits = head(norm(y)). After a drafted token, y is used in place of g."""

    def __init__(self, file: HeadFile, trunk: Any) -> None:
        """file: of the head. trunk: of the target, whose embedding and output matrix are used if the head has none of
        its own."""
        self.head, source = file.head, shared_weights(file.source, trunk)
        builder = Builder(block_shape(self.head), source)
        super().__init__(trunk.with_layers(Model(tuple(step(builder, self.head)), *file.rotation()), source), "x")
        if self.head.projected:
            self.projection = trunk.with_layers(Model(tuple(projection(builder, self.head))), source)
        self.ids = tokens_of(self.head, self.device)
        self.places = torch.arange(64, device=self.device)

    def features(self, states: Sequence[Tensor]) -> Tensor:
        """[R, D] of R positions; states: [R, Dt] for each of the sources."""
        if not self.head.projected:
            return states[0]
        rows = states[0].shape[0]
        inputs = {f"h{i}": state for i, state in enumerate(states)}
        if rows > self.places.numel():
            self.places = torch.arange(2 * rows, device=self.device)
        batch = ForwardBatch(
            None, self.places[:rows], [SequenceRows(None, 0, rows, 0)], inputs=inputs, taps=("feature",)
        )
        return self.projection.run(batch)["feature"]

    def logits(self, rows: Tensor) -> Tensor:
        """[n, V] over the target's tokens; tokens that the head cannot draft get -inf."""
        return spread_logits(rows, self.ids, self.head.vocab)


def projection(builder: Builder, head: Any) -> Iterator[Op]:
    """Operations from hidden states to a feature."""
    names = tuple(f"h{i}" for i in range(head.inputs))
    for i, name in enumerate(names):
        yield Input(name, head.target_width)
        if head.fc_norm:
            yield builder.norm(name, name, f"{PREFIX}input_norm.{i}.weight", head.target_width)
    yield Concat(names, "z")
    if head.norm_before_fc:
        yield builder.norm("z", "z", PREFIX + "input_norm.weight", head.inputs * head.target_width)
    yield builder.linear("z", "feature", PREFIX + "fc", (head.width, head.inputs * head.target_width))
    yield Tap("feature", "feature")


def step(builder: Builder, head: Any) -> Iterator[Op]:
    """Operations from pairs to states and logits. The residual stream begins with the feature, or with its norm.

    Pairs without an output need only their key and value: they stop after these.
    """
    first, normed = builder.at(PREFIX + "blk.0.", 0), "x" if head.norm_before_residual else "c"
    yield Input("x", head.width)
    yield Embed("e", builder.weight(matrix_name(builder, "token_embd.weight")))
    yield first.norm("e", "e", "attn_norm.weight")
    if head.norm_twice:
        yield first.norm("x", "t", "attn_norm.weight")
    yield first.norm("t" if head.norm_twice else "x", normed, "attn_norm_2.weight")
    yield Concat(("e", normed), "h")
    yield from _layer(first, head, head.layers == 1)
    plain = replace(builder.shape, reads=0)
    for i in range(1, head.layers):
        block = Builder(plain, builder.source, f"{PREFIX}blk.{i}.", i)
        yield block.norm("x", "h", "attn_norm.weight")
        yield from _layer(block, head, i == head.layers - 1)
    yield from output_ops(builder, head)


def _layer(builder: Builder, head: Any, last: bool) -> Iterator[Op]:
    """Attention of ``h`` and feed-forward, onto the residual stream. last: of the head."""
    yield from builder.attention(sinks=head.sinks)
    if last:
        yield Pick("x", "x", "final")
    yield builder.norm("x", "h", "ffn_norm.weight")
    yield from builder.mlp(head.ff, act=head.act)


def output_ops(builder: Builder, head: Any) -> Iterator[Op]:
    """The state that is fed back: the residual stream, or in some heads its norm."""
    yield builder.norm("x", "h", PREFIX + "output_norm.weight")
    yield Tap("h" if head.norm_output else "x", "final")
    yield Pick("h", "h", "logits")
    yield Linear("h", ("logits",), (output_matrix(builder, head.tied),), (None,))
    yield Tap("logits", "logits")
