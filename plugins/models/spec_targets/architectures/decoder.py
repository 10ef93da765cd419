"""The operations of a whole model, from the description of its blocks."""

from __future__ import annotations

from collections.abc import Iterator

from spec_kernels.model.build import Builder
from spec_kernels.model.nextn import nextn
from spec_kernels.model.ops import Embed, Op, StreamSum, Tap
from spec_kernels.model.source import TensorSource

from spec_targets.architectures import family_of
from spec_targets.architectures.config import Config

DIVISORS = ("rope_freqs.weight", "blk.0.rope_freqs.weight")
"""Tensors that hold divisors of rotary frequencies, which are read with the metadata."""
FACTORS = ("rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that hold the divisors of longrope."""


def decoder(config: Config, source: TensorSource, interleaved: bool) -> tuple[Op, ...]:
    """Embedding, blocks with a tap before each and after the last, final norm, output matrix.

    interleaved: see ``Family``.
    """
    return tuple(_decoder(config, Builder(config.block(interleaved), source)))


def _decoder(c: Config, b: Builder) -> Iterator[Op]:
    for name in filter(b.has, DIVISORS + (FACTORS if c.scaling.kind == "longrope" else ())):
        b.declare(name, (c.rotary_dim // 2,))
    table = b.matrix("token_embd.weight", (c.vocab, c.width))
    yield Embed("x", table, c.embed_scale)
    yield from family_of(c.arch).before(b, c)
    for i in range(c.layers):
        yield from _entry(c, i)
        yield from _block(c, b, i)
    yield from _entry(c, c.layers)
    if c.streams is not None:
        yield StreamSum("x", None, "x", c.streams.count)
    head = b.matrix("output.weight", (c.vocab, c.width)) if b.has("output.weight") else table
    bias = b.vector("output.bias", c.vocab) if b.has("output.bias") else None
    yield from b.output_ops("output_norm.weight", head, bias, c.logit_cap, c.logit_scale)


def _entry(c: Config, i: int) -> Iterator[Op]:
    """The tap before block i, or after the last one. Of several streams, the hidden state is the mean."""
    if c.streams is None:
        yield Tap("x", f"hidden.{i}")
        return
    yield Tap("x", f"streams.{i}")
    yield StreamSum("x", None, "mean", c.streams.count)
    yield Tap("mean", f"hidden.{i}")


def nextn_layer(config: Config, source: TensorSource, interleaved: bool, depth: int = 0) -> tuple[Op, ...]:
    """A block after the trunk, which predicts further ahead. depth: how many such blocks are before it."""
    i = config.layers + depth
    b = Builder(config.block(interleaved), source).at(f"blk.{i}.", 0)
    block = family_of(config.arch).block(b, config, i)
    return tuple(nextn(b, block, config.vocab, config.logit_scale, centred=config.nextn_norms[0] == "layer"))


def _block(c: Config, b: Builder, i: int) -> Iterator[Op]:
    return family_of(c.arch).block(b.at(f"blk.{i}.", c.layer_of(i), c.heads_of(i)), c, i)
