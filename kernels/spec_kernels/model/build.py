"""From the shape of a model's blocks and its tensor names to its list of operations.

Names and values are those of GGUF. This file alone selects rows of stored matrices: queries without their
gate, and dimensions of a head in the order in which its halves rotate together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from spec_kernels.model.ops import (
    Attend,
    Delta,
    Embed,
    Gate,
    Linear,
    Mixture,
    Model,
    Norm,
    Op,
    Pick,
    Rotate,
    Store,
    SwiGLU,
    Tap,
    Weight,
)
from spec_kernels.model.shapes import BlockShape
from spec_kernels.model.source import Source, has


class Builder:
    """Makes the operations of blocks. The residual stream is the value ``x``; ``h`` is the stream after a norm."""

    def __init__(self, shape: BlockShape, source: Source) -> None:
        self.shape, self.source = shape, source

    def decoder(self, blocks: int, frequencies: Tensor | None, rope_scale: float = 1.0) -> Model:
        """Embedding, ``blocks`` blocks with a tap before each and after the last, final norm, output matrix."""
        table = self.weight("token_embd.weight")
        head = self.weight("output.weight") if has(self.source, "output.weight") else table
        ops: list[Op] = [Embed("x", table)]
        attending = recurring = 0
        for i in range(blocks):
            recurs = has(self.source, f"blk.{i}.ssm_a")
            ops += [Tap("x", f"hidden.{i}"), *self.block(f"blk.{i}.", recurring if recurs else attending)]
            recurring, attending = recurring + recurs, attending + (not recurs)
        ops.append(Tap("x", f"hidden.{blocks}"))
        ops += self.ending("output_norm.weight", head, self.vector("output.bias"))
        return Model(tuple(ops), frequencies, rope_scale)

    def ending(self, norm: str, head: Weight, bias: Tensor | None = None) -> Iterator[Op]:
        """From the stream to the state after the last norm and to logits, for the requested rows."""
        yield Pick("x", "x", "final")
        yield from self.closing(norm, head, bias)

    def closing(self, norm: str, head: Weight, bias: Tensor | None = None) -> Iterator[Op]:
        """The same if only requested rows are left."""
        yield self.norm("x", "h", norm)
        yield Tap("h", "final")
        yield Pick("h", "h", "logits")
        yield Linear("h", ("logits",), (head,), (bias,))
        yield Tap("logits", "logits")

    def block(self, prefix: str, layer: int, between: Iterable[Op] = ()) -> Iterator[Op]:
        """The block whose tensors begin with ``prefix``; layer: its layer in the cache or the pool.

        between: operations after attention. In a model of one block, unrequested rows need only
        their keys and values, so there it picks the requested rows.
        """
        recurrent, dense = has(self.source, prefix + "ssm_a"), not has(self.source, prefix + "ffn_gate_inp.weight")
        yield self.norm("x", "h", prefix + "attn_norm.weight")
        yield from self.delta(prefix, layer) if recurrent else self.attention(prefix, layer)
        yield from between
        yield self.norm("x", "h", f"{prefix}{self.shape.feed_norm}.weight")
        yield from self.mlp(prefix) if dense else self.mixture(prefix)

    # attention

    def attention(self, prefix: str, layer: int, causal: bool = True) -> Iterator[Op]:
        """x + out(attention(rope(norm(q)), rope(norm(k)), v) · sigmoid(gate))"""
        shape = self.shape.heads
        yield self.projection(prefix)
        if has(self.source, prefix + "attn_q_norm.weight"):
            yield self.head_norm("q", prefix + "attn_q_norm.weight")
            yield self.head_norm("k", prefix + "attn_k_norm.weight")
        yield Rotate("q", shape)
        yield Rotate("k", shape)
        yield Store("k", "v", shape, layer)
        yield Attend("q", "a", shape, layer, causal)
        if self.shape.gated:
            yield Gate("a", "gate", "a", "sigmoid")
        yield self.linear("a", "x", prefix + "attn_output", add="x")

    def projection(self, prefix: str) -> Linear:
        """q, k and v, and the gate of the heads if there is one."""
        names = ("q", "k", "v", "gate") if self.shape.gated else ("q", "k", "v")
        weights = tuple(self.part(prefix, name) for name in names)
        return Linear("h", names, weights, tuple(self.part_bias(prefix, name) for name in names))

    def part(self, prefix: str, name: str) -> Weight:
        """The matrix of one of q, k, v and gate, from its own tensor or a fused one."""
        tensor, rows = self._rows(prefix, name, "weight")
        return self.weight(tensor, rows)

    def part_bias(self, prefix: str, name: str) -> Tensor | None:
        tensor, rows = self._rows(prefix, name, "bias")
        bias = self.vector(tensor)
        return None if bias is None else bias[rows]

    def _rows(self, prefix: str, name: str, kind: str) -> tuple[str, Tensor]:
        """The tensor that holds a part, and the rows of the part."""
        s, gated = self.shape.heads, self.shape.gated
        order = self._pairs() if name in "qk" else torch.arange(s.dim)
        heads = s.heads if name in ("q", "gate") else s.kv_heads
        stride, skip = (2 * s.dim, s.dim * (name == "gate")) if gated and name in ("q", "gate") else (s.dim, 0)
        if has(self.source, f"{prefix}attn_qkv.{kind}"):
            begin, tensor = {"q": 0, "k": s.q_width, "v": s.q_width + s.kv_width}[name], f"{prefix}attn_qkv.{kind}"
        else:
            begin, tensor = 0, f"{prefix}attn_{'q' if name == 'gate' else name}.{kind}"
        firsts = begin + skip + stride * torch.arange(heads)
        return tensor, (firsts[:, None] + order).flatten()

    def _pairs(self) -> Tensor:
        """int64 [dim]: stored dimensions of a head in the order in which its halves rotate together."""
        s = self.shape.heads
        if not self.shape.interleaved:
            return torch.arange(s.dim)
        return torch.cat([torch.arange(s.rotary_dim).view(-1, 2).T.flatten(), torch.arange(s.rotary_dim, s.dim)])

    def head_norm(self, x: str, name: str) -> Norm:
        return Norm(x, x, self.read(name)[self._pairs()], self.shape.eps)

    # gated delta net

    def delta(self, prefix: str, layer: int) -> Iterator[Op]:
        """x + out(norm(delta(qkv)) · silu(z))"""
        outs = ("mix", "z", "beta", "alpha")
        yield Linear("h", outs, tuple(self._delta_inputs(prefix)), (None,) * 4)
        yield Delta(
            *("mix", "beta", "alpha", "o"),
            shape=self.shape.delta,
            conv=self.read(prefix + "ssm_conv1d.weight").T.contiguous(),
            rate=self.read(prefix + "ssm_a"),
            dt=self.read(prefix + "ssm_dt.bias"),
            layer=layer,
        )
        yield self.norm("o", "o", prefix + "ssm_norm.weight")
        yield Gate("o", "z", "o", "silu")
        yield self.linear("o", "x", prefix + "ssm_out", add="x")

    def _delta_inputs(self, prefix: str) -> Iterator[Weight]:
        yield self.weight(prefix + "attn_qkv.weight")
        yield self.weight(prefix + "attn_gate.weight")
        if not has(self.source, prefix + "ssm_ba.weight"):
            yield self.weight(prefix + "ssm_beta.weight")
            yield self.weight(prefix + "ssm_alpha.weight")
            return
        # qwen3next has both in one tensor, by key head: [beta | alpha] of the value heads of that key head.
        s = self.shape.delta
        grouped = torch.arange(2 * s.value_heads).view(s.key_heads, 2, -1)
        yield self.weight(prefix + "ssm_ba.weight", grouped[:, 0].flatten())
        yield self.weight(prefix + "ssm_ba.weight", grouped[:, 1].flatten())

    # feed-forward

    def mlp(self, prefix: str, suffix: str = "", gate: str | None = None) -> Iterator[Op]:
        """x + down(silu(gate h) · up h), times sigmoid(h · weight) if ``gate`` names a value for that."""
        names = (f"{prefix}ffn_{name}{suffix}.weight" for name in ("gate", "up"))
        yield Linear("h", ("up_gate", "up"), tuple(map(self.weight, names)), (None, None))
        yield SwiGLU("up_gate", "up", "f")
        if gate is not None:  # a factor of a whole row commutes with the product
            yield Gate("f", gate, "f", "sigmoid")
        yield self.linear("f", "x", f"{prefix}ffn_down{suffix}", add="x")

    def mixture(self, prefix: str) -> Iterator[Op]:
        """The chosen experts, and the shared expert if there is one."""
        router = Weight(prefix + "ffn_gate_inp.weight", *self._matrix(prefix + "ffn_gate_inp.weight"), wide=True)
        shared = prefix + "ffn_gate_inp_shexp.weight"
        gated = has(self.source, shared)
        gates = (Weight(shared, 1, self.shape.width, wide=True),) if gated else ()
        yield Linear("h", ("scores", "share")[: 1 + gated], (router, *gates), (None,) * (1 + gated))
        gate, up = self._expert_inputs(prefix)
        bias = self.vector(prefix + "exp_probs_b.bias")
        down = self.weight(prefix + "ffn_down_exps.weight")
        yield Mixture("h", "scores", "x", "x", self.shape.experts, bias, gate, up, down)
        if has(self.source, prefix + "ffn_down_shexp.weight"):
            yield from self.mlp(prefix, "_shexp", "share" if gated else None)

    def _expert_inputs(self, prefix: str) -> tuple[Weight, Weight]:
        both = prefix + "ffn_gate_up_exps.weight"
        if not has(self.source, both):
            return self.weight(prefix + "ffn_gate_exps.weight"), self.weight(prefix + "ffn_up_exps.weight")
        rows = torch.arange(self._matrix(both)[0])
        gate, up = rows.chunk(2)
        return self.weight(both, gate), self.weight(both, up)

    # pieces

    def norm(self, x: str, out: str, name: str) -> Norm:
        return Norm(x, out, self.read(name), self.shape.eps)

    def linear(self, x: str, out: str, name: str, add: str | None = None) -> Linear:
        return Linear(x, (out,), (self.weight(name + ".weight"),), (self.vector(name + ".bias"),), add)

    def weight(self, name: str, rows: Tensor | None = None) -> Weight:
        """A stored matrix, or a stack of them. Raises KeyError if there is no such tensor."""
        n, k = self._matrix(name)
        shape = self.source.shape(name)
        if rows is not None and torch.equal(rows, torch.arange(n)):
            rows = None
        return Weight(name, n if rows is None else len(rows), k, rows, shape[0] if len(shape) == 3 else 1)

    def _matrix(self, name: str) -> tuple[int, int]:
        shape = self.source.shape(name)
        if shape is None:
            raise KeyError(name)
        return shape[-2], shape[-1]

    def read(self, name: str) -> Tensor:
        """A vector or other small tensor, float32."""
        return self.source.load(name).float()

    def vector(self, name: str) -> Tensor | None:
        return self.read(name) if has(self.source, name) else None
