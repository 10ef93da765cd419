"""The NextN layer: one block that reads the target's hidden state and the token after it, and predicts the next.

DeepSeek-V3 (2412.19437, section 2.2); tensor names as in GGUF.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Concat, Embed, Input, Model, Op, Pick
from spec_kernels.model.pairs import PairLayer
from spec_kernels.model.source import Only, Source, has


class Layer(PairLayer):
    """Draft step: y = block(eh_proj [norm(embedding of x_(p+1)) | norm(h_p)]), ĥ = norm(y), logits = head(ĥ).

    h is the target's hidden state after its final norm; after a drafted token, ĥ is used in its place.
    """

    def __init__(self, facts: Mapping[str, Any], trunk: Any) -> None:
        """facts: ``shape``, ``block``, ``source`` and ``turning`` of ``info.extras["nextn"]``. trunk: of the target,
        whose embedding and output matrix are used if the layer has none of its own."""
        source = Only(facts["source"].source, facts["source"].names, trunk.source)
        ops = tuple(operations(Builder(facts["shape"], source), f"blk.{facts['block']}."))
        model = Model(ops, *facts["turning"]())
        super().__init__(trunk.another(model, source), "hidden")


def operations(builder: Builder, prefix: str) -> Iterator[Op]:
    """The layer's own matrices if it has them, else those of the trunk."""
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
    yield from builder.block(prefix, 0, (Pick("x", "x", "final"),))
    norm = own("nextn.shared_head_norm.weight", "output_norm.weight")
    yield from builder.closing(norm, builder.weight(head if has(source, head) else "token_embd.weight"))
