"""The NextN layer: one block that reads the target's hidden state and the token after it, and predicts the next.

DeepSeek-V3 (2412.19437, section 2.2); names of tensors as GGUF has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch
from spec_kernels.model.batch import Batch, Stretch
from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Concat, Embed, Input, Model, Op
from spec_kernels.model.source import Only, Source, has
from torch import Tensor

FIRST_ROWS = 512


@attrs.frozen(eq=False)
class Pairs:
    """n pairs of one sequence for a forward: the tokens at positions ``start`` + 1 and up, and the hidden states before
    them, [n, D]. embeds: {index: [D]} of tokens that were given as embeddings (-1)."""

    cache: Any
    start: int
    tokens: list[int]
    hidden: Tensor
    embeds: Mapping[int, Tensor] = attrs.field(factory=dict)


class Layer:
    """Draft step: y = block(eh_proj [norm(embedding of x_(p+1)) | norm(h_p)]), ĥ = norm(y), logits = head(ĥ).

    h is the target's hidden state after its final norm; ĥ takes its place after a token that the layer drafted.
    """

    def __init__(self, facts: Mapping[str, Any], trunk: Any) -> None:
        """facts: ``shape``, ``block`` and ``source`` of ``info.extras["nextn"]``. trunk: the target's executor, which
        lends its embedding and output matrix where the layer has none of its own."""
        source = Only(facts["source"].source, facts["source"].names, trunk.source)
        ops = tuple(operations(Builder(facts["shape"], source), f"blk.{facts['block']}."))
        self.executor = trunk.another(Model(ops, trunk.model.turns, trunk.model.magnitude), source)
        self.device = getattr(trunk, "device", "cpu")

    def cache(self) -> Any:
        return self.executor.cache(FIRST_ROWS)

    def forward(self, parts: Sequence[Pairs], last: bool = True) -> tuple[Tensor, Tensor]:
        """ĥ [B, D] and logits [B, V] of the last pair of each of B sequences, in one pass; last: False for none."""
        found = self.executor.run(self._batch(parts, last))
        return found["final"], found["logits"]

    def draft(self, pairs: Pairs, most: int, least: float, estimate: float, stops: Sequence[int]) -> Any:
        """A greedy draft of one sequence in one call, each token after the layer's own state: tokens and chances."""
        return self.executor.draft(self._batch([pairs], True), most, least, estimate, stops, "final")

    def _batch(self, parts: Sequence[Pairs], last: bool) -> Batch:
        tokens = [t for p in parts for t in p.tokens]
        positions = [at for p in parts for at in range(p.start, p.start + len(p.tokens))]
        both = torch.tensor([tokens, positions], device=self.device)
        stretches, given, ends, first = [], {}, [], 0
        for p in parts:
            stretches.append(Stretch(p.cache, first, len(p.tokens), p.start))
            given |= {first + i: embedding for i, embedding in p.embeds.items()}
            first += len(p.tokens)
            ends.append(first - 1)
        hidden = parts[0].hidden if len(parts) == 1 else torch.cat([p.hidden for p in parts])
        wanted = ends if last else []
        return Batch(
            *(both[0], both[1], stretches, given, {"hidden": hidden}),
            logits=wanted,
            final=wanted,
            taps=("logits", "final"),
        )


def operations(builder: Builder, prefix: str) -> Iterator[Op]:
    """The layer's own matrices where it has them, else those of the trunk."""
    source: Source = builder.source

    def own(name: str, else_: str) -> str:
        return prefix + name if has(source, prefix + name) else else_

    head = own("nextn.shared_head_head.weight", "output.weight")
    table = own("nextn.embed_tokens.weight", "token_embd.weight")
    yield Input("hidden", builder.shape.width)
    yield Embed("e", builder.weight(table))
    yield builder.norm("e", "e", prefix + "nextn.enorm.weight")
    yield builder.norm("hidden", "hidden", prefix + "nextn.hnorm.weight")
    yield Concat(("e", "hidden"), "z")
    yield builder.linear("z", "x", prefix + "nextn.eh_proj")
    yield from builder.block(prefix, 0)
    norm = own("nextn.shared_head_norm.weight", "output_norm.weight")
    yield from builder.ending(norm, builder.weight(head if has(source, head) else "token_embd.weight"))
