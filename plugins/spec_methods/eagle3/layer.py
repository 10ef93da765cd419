"""The EAGLE-3 head: one block over pairs of a feature and the token after it (Li et al., 2503.01840, section 3).

A feature is a projection of several hidden states of the target, or the block's own output where the head goes on from
its own word. Names of tensors as the reader of heads gives them, with a prefix that the target's do not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from spec_kernels.model.batch import Batch, Stretch
from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Concat, Embed, Input, Linear, Model, Op, Pick, Tap
from spec_kernels.model.pairs import PairLayer
from spec_kernels.model.shapes import BlockShape, HeadShape
from spec_kernels.model.source import Prefixed, has
from torch import Tensor

PREFIX = "head."


class Layer(PairLayer):
    """Feature g = fc [h_low | h_middle | h_high]; draft step: y = block([norm(embedding) | norm(g)]),
    logits = head(norm(y)). y takes the place of g where the head goes on."""

    def __init__(self, facts: Mapping[str, Any], sources: Sequence[int], final: int, trunk: Any) -> None:
        """facts: ``info.extras`` of the head's file. sources: hidden states that it reads, in order, number ``final``
        after the final norm. trunk: the target's executor, which lends its embedding and output matrix where the head
        has none of its own."""
        self.head, self.sources, self.final = facts["head"], tuple(sources), final
        source = Prefixed(facts["source"], PREFIX, trunk.source)
        builder = Builder(block_shape(self.head), source)
        super().__init__(trunk.another(Model(tuple(step(builder, self.head)), *facts["turning"]()), source), "x")
        self.projection = trunk.another(Model(tuple(projection(builder, self.head))), source)
        self.ids = None if self.head.d2t is None else self.head.d2t.to(self.device)

    def features(self, states: Sequence[Tensor]) -> Tensor:
        """[R, D] of R positions; states: [R, Dt] for each of the sources."""
        rows = len(states[0])
        inputs = {f"h{i}": state for i, state in enumerate(states)}
        positions = torch.arange(rows, device=self.device)
        batch = Batch(None, positions, [Stretch(None, 0, rows, 0)], inputs=inputs, taps=("feature",))
        return self.projection.run(batch)["feature"]

    def logits(self, rows: Tensor) -> Tensor:
        """[n, V] of the target's tokens; those that the head cannot draft have none."""
        if self.ids is None:
            return rows
        return rows.new_full((len(rows), self.head.vocab), -torch.inf).index_copy_(1, self.ids, rows)


def block_shape(head: Any) -> BlockShape:
    heads = HeadShape(head.heads, head.kv_heads, head.head, head.head, head.head**-0.5)
    return BlockShape(head.width, heads, head.eps)


def projection(builder: Builder, head: Any) -> Iterator[Op]:
    """Hidden states to a feature."""
    names = tuple(f"h{i}" for i in range(head.inputs))
    for i, name in enumerate(names):
        yield Input(name, head.target_width)
        if head.fc_norm:
            yield builder.norm(name, name, f"{PREFIX}input_norm.{i}.weight")
    yield Concat(names, "z")
    if head.norm_before_fc:
        yield builder.norm("z", "z", PREFIX + "input_norm.weight")
    yield builder.linear("z", "feature", PREFIX + "fc")
    yield Tap("feature", "feature")


def step(builder: Builder, head: Any) -> Iterator[Op]:
    """Pairs to states and logits. The residual stream begins with the feature, or with its norm."""
    prefix, normed = PREFIX + "blk.0.", "x" if head.norm_before_residual else "c"
    yield Input("x", head.width)
    yield Embed("e", builder.weight(own(builder, "token_embd.weight")))
    yield builder.norm("e", "e", prefix + "attn_norm.weight")
    yield builder.norm("x", normed, prefix + "attn_norm_2.weight")
    yield Concat(("e", normed), "h")
    yield from builder.attention(prefix, 0)
    yield builder.norm("x", "h", prefix + "ffn_norm.weight")
    yield from builder.mlp(prefix)
    yield from ending(builder, head)


def ending(builder: Builder, head: Any) -> Iterator[Op]:
    """What is fed back is the stream itself, in some heads its norm."""
    output = own(builder, "output.weight")
    yield Pick("x", "x", "final")
    yield builder.norm("x", "h", PREFIX + "output_norm.weight")
    yield Tap("h" if head.norm_output else "x", "final")
    yield Pick("h", "h", "logits")
    weight = builder.weight(output if has(builder.source, output) else "token_embd.weight")
    yield Linear("h", ("logits",), (weight,), (None,))
    yield Tap("logits", "logits")


def own(builder: Builder, name: str) -> str:
    """The head's own matrix where it has one, else the target's."""
    return PREFIX + name if has(builder.source, PREFIX + name) else name
