"""The sizes and flags of a head that its forward depends on."""

from __future__ import annotations

from typing import Any

import attrs

from spec_train.options import Kind


@attrs.frozen
class Shape:
    """Fields have the names and meanings of a head's description (``load(FILE, weights=False).head``).

    sources: hidden states that are read: i is the input of block i, the number of blocks is the state after the final
    norm.
    """

    kind: Kind
    width: int
    target_width: int
    heads: int
    kv_heads: int
    head: int
    ff: int
    layers: int
    eps: float
    context: int
    rope_base: float
    vocab: int
    draft_vocab: int
    inputs: int
    own_embedding: bool = False
    own_output: bool = False
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    qk_norm: bool = False
    biases: bool = False
    fc_bias: bool = False
    output_bias: bool = False
    block: int = 0
    mask: int = -1
    markov: int = 0
    confidence: int = 0
    windows: tuple[int, ...] = ()
    causal: tuple[bool, ...] = ()
    sources: tuple[int, ...] = ()

    @classmethod
    def of(cls, head: Any, sources: tuple[int, ...] = ()) -> Shape:
        """The shape of a description, as read from a file."""
        fields = (f.name for f in attrs.fields(cls) if f.name != "sources")
        return cls(**{name: getattr(head, name) for name in fields}, sources=sources)

    @property
    def fills_blocks(self) -> bool:
        """Whether it fills blocks of masked tokens."""
        return self.kind != "eagle3"


GROUPED_MIN = 16
"""Min number of attention heads that share key heads; fewer have one key head each."""


def default_shape(kind: Kind, target: Any, layers: int, heads: int | None, ff: int | None, **more: Any) -> Shape:
    """Default sizes for a target (its TargetInfo): attention heads of 64 dimensions, of 128 in wide models; one key
    head for four heads if there are many; a feed-forward layer of 8/3 the width."""
    width = target.width
    head = min(width - width % 2, 64 if width < 2048 else 128)
    heads = heads or max(1, width // head)
    keys = min(n for n in range(1, heads + 1) if heads % n == 0 and 4 * n >= heads) if heads >= GROUPED_MIN else heads
    return Shape(
        kind=kind,
        width=width,
        target_width=width,
        heads=heads,
        kv_heads=keys,
        head=head,
        ff=ff or -(-8 * width // 96) * 32,
        layers=layers,
        eps=1e-6,
        context=target.context,
        rope_base=1_000_000.0,
        vocab=target.vocab,
        **more,
    )
