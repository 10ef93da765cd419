"""The NextN layer: one block that reads the target's hidden state and the token after it, and predicts the next.

DeepSeek-V3 (2412.19437, section 2.2); tensor names as in GGUF.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Attend, Concat, Embed, Input, Op, Pick, Weight

OWN = {
    "token_embd.weight": "nextn.embed_tokens.weight",
    "output.weight": "nextn.shared_head_head.weight",
    "output_norm.weight": "nextn.shared_head_norm.weight",
}
"""Tensors of the trunk, and what a layer may have in their place."""


def trunk_weights(names: Collection[str]) -> frozenset[str]:
    """Names of the trunk's tensors that a layer with these tensors uses because it has none of its own."""
    return frozenset(
        name for name, own in OWN.items() if name not in names and not any(tensor.endswith(own) for tensor in names)
    )


def nextn(b: Builder, block: Iterable[Op], vocab: int, scale: float = 1.0, centred: bool = False) -> Iterator[Op]:
    """y = block(eh_proj [norm(embedding of x_(p+1)) | norm(h_p)]), ĥ = norm(y), logits = head(ĥ).

    b: builder of the layer's block. block: the operations of that block. The layer's own matrices are used if it has
    them, else the trunk's. scale: of the logits. centred: the last norm, see ``Norm``.
    """
    trunk, width = Builder(b.shape, b.source), b.shape.width
    yield Input("hidden", width)
    yield Embed("e", _own(b, trunk, "nextn.embed_tokens.weight", ("token_embd.weight",), vocab))
    yield b.norm("e", "e", "nextn.enorm.weight")
    yield b.norm("hidden", "hidden", "nextn.hnorm.weight")
    yield Concat(("e", "hidden"), "z")
    yield b.linear("z", "x", "nextn.eh_proj", (width, 2 * width))
    yield from _pick_rows(block)
    head = _own(b, trunk, "nextn.shared_head_head.weight", ("output.weight", "token_embd.weight"), vocab)
    has_norm = b.has("nextn.shared_head_norm.weight")
    end, norm = (b, "nextn.shared_head_norm.weight") if has_norm else (trunk, "output_norm.weight")
    yield from end.logits_ops(norm, head, scale=scale, centred=centred)


def _own(b: Builder, builder: Builder, name: str, others: tuple[str, ...], vocab: int) -> Weight:
    """The layer's own matrix [V, D], or the first of the trunk's that exists."""
    if b.has(name):
        return b.matrix(name, (vocab, b.shape.width))
    return Weight(next((other for other in others if builder.has(other)), others[-1]), vocab, b.shape.width)


def _pick_rows(block: Iterable[Op]) -> Iterator[Op]:
    """Rows that are not requested need only their keys and values: the others are picked once attention is added."""
    attended = False
    for op in block:
        yield op
        attended = attended or isinstance(op, Attend)
        if attended and "x" in (getattr(op, "out", None), *getattr(op, "outs", ())):
            yield Pick("x", "x", "final")
            attended = False
