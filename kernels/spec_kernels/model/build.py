"""The pieces from which the operations of a model are put together.

Tensors have GGUF's names and values. This file alone selects rows of stored matrices: queries without their
gate, and dimensions of a head in the order in which its halves rotate together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from spec_kernels.model.ops import (
    GLU,
    Activation,
    Add,
    Attend,
    Concat,
    Delta,
    Gate,
    Gating,
    Linear,
    Mixture,
    Norm,
    Op,
    Pick,
    Rotate,
    Scale,
    ShortConv,
    SoftCap,
    Store,
    Tap,
    Weight,
)
from spec_kernels.model.shapes import BlockShape, ConvShape, DeltaShape, Experts, HeadShape
from spec_kernels.model.source import Shape, ShapeRecorder, TensorSource, has_tensor


class Builder:
    """Makes operations. The residual stream is the value ``x``; ``h`` is the stream after a norm.

    Tensors are read from ``source``, by names that follow ``prefix``. layer: the number of the block among those with
    the same kind of memory, a cache or recurrent states.
    """

    def __init__(self, shape: BlockShape, source: TensorSource, prefix: str = "", layer: int = 0) -> None:
        self.shape, self.source, self.prefix, self.layer = shape, source, prefix, layer

    def at(self, prefix: str, layer: int, heads: HeadShape | None = None) -> Builder:
        """A builder of one block. heads: of its attention, where they differ from the other blocks'."""
        shape = self.shape if heads is None else replace(self.shape, heads=heads)
        return Builder(shape, self.source, self.prefix + prefix, layer)

    # the end of a model

    def output_ops(
        self, norm: str, head: Weight, bias: Tensor | None = None, cap: float = 0.0, scale: float = 1.0
    ) -> Iterator[Op]:
        """Operations from the stream to the state after the last norm and to logits, for the requested rows.

        cap: of the logits, see ``SoftCap``; 0: none. scale: of the logits.
        """
        yield Pick("x", "x", "final")
        yield from self.logits_ops(norm, head, bias, cap, scale)

    def logits_ops(
        self,
        norm: str,
        head: Weight,
        bias: Tensor | None = None,
        cap: float = 0.0,
        scale: float = 1.0,
        centred: bool = False,
    ) -> Iterator[Op]:
        """Operations from the stream to logits, if only requested rows are left. centred: the norm, see ``Norm``."""
        yield replace(self.norm("x", "h", norm), centred=centred)
        yield Tap("h", "final")
        yield Pick("h", "h", "logits")
        yield Linear("h", ("logits",), (head,), (bias,))
        if scale != 1.0:
            yield Scale("logits", scale)
        if cap:
            yield SoftCap("logits", cap)
        yield Tap("logits", "logits")

    # attention

    def attention(
        self,
        norms: bool | None = None,
        biases: bool | None = None,
        gated: bool = False,
        causal: bool = True,
        sinks: bool = False,
        residual: bool = True,
        parts: Sequence[str] = ("k", "v"),
        value_norm: bool = False,
        query_table: int | None = None,
        own_gates: tuple[Gating, int] | None = None,
        anchored: bool = False,
        x: str = "h",
    ) -> Iterator[Op]:
        """x + out(attention(rope(norm(q)), rope(norm(k)), v) · f(gate)), without rope if no dimension rotates

        norms: q and k of each head have a norm. biases: q, k and v have biases. None: if the file has them.
        gated: ``attn_q`` holds, per head, queries and then a gate. sinks: heads have sinks, see ``Attend``.
        residual: False: the result is ``h``, and ``x`` stays. parts: without ``v`` values are the keys before their
        norm; without both the layer reads what an earlier one has stored. value_norm: values of each head are
        normalised. query_table: of the queries' rotation, where it differs from the keys'. own_gates: f, and rows of
        ``attn_gate``: one for each head, or for each number; without, f is sigmoid. anchored: see ``Attend``.
        x: the input, where it is not ``h``.
        """
        shape = self.shape.heads
        yield self.projection(("q", *parts, "gate") if gated else ("q", *parts), biases, gated, x)
        if own_gates is not None:
            yield self.linear(x, "gate", "attn_gate", (own_gates[1], self.shape.width))
        norms = self.has("attn_q_norm.weight", "attn_k_norm.weight") if norms is None else norms
        if norms:
            yield self.head_norm("q", "attn_q_norm.weight")
        yield from self.rotation("q", query_table)
        if parts:
            yield from self.store(norms, parts, value_norm)
        scores = self.vector("attn_sinks.weight", shape.heads) if sinks else None
        yield Attend("q", "a", shape, self.layer, causal, scores, anchored)
        if gated or own_gates is not None:
            yield Gate("a", "gate", "a", "sigmoid" if own_gates is None else own_gates[0])
        yield self.onto("a", "attn_output", (self.shape.width, shape.q_width), residual)

    def store(self, norms: bool, parts: Sequence[str] = ("k", "v"), value_norm: bool = False) -> Iterator[Op]:
        """Operations from projected keys and values to the cache, see ``attention``."""
        shape = self.shape.heads
        if "v" not in parts:
            yield Concat(("k",), "v")
        if value_norm:
            yield Norm("v", "v", torch.ones(shape.dim), self.shape.eps)
        if norms:
            yield self.head_norm("k", "attn_k_norm.weight")
        yield from self.rotation("k")
        yield Store("k", "v", shape, self.layer)

    def rotation(self, x: str, table: int | None = None) -> Iterator[Op]:
        """The rotation of heads, if they rotate. table: in place of the heads' own."""
        heads = self.shape.heads
        if heads.rotary_dim:
            yield Rotate(x, heads if table is None else replace(heads, table=table))

    def projection(
        self, names: tuple[str, ...], biases: bool | None = None, gated: bool = False, x: str = "h"
    ) -> Linear:
        """Some of q, k, v and gate, from x."""
        if biases is None:
            biases = self.has(*(f"attn_{name}.bias" for name in ("q", "k", "v", "qkv")))
        weights = tuple(self.part(name, gated) for name in names)
        return Linear(x, names, weights, tuple(self.part_bias(name, gated) if biases else None for name in names))

    def part(self, name: str, gated: bool = False) -> Weight:
        """The matrix of one of q, k, v and gate, from its own tensor or a fused one."""
        tensor, count = self._holder(name, "weight", gated)
        self.declare(tensor, (count, self.shape.reads or self.shape.width))
        return self.weight(tensor, self._rows(tensor, name, gated))

    def part_bias(self, name: str, gated: bool = False) -> Tensor:
        """The bias of one of them. Raises KeyError if there is none."""
        tensor, count = self._holder(name, "bias", gated)
        return self.vector(tensor, count)[self._rows(tensor, name, gated)]

    def _holder(self, name: str, kind: str, gated: bool) -> tuple[str, int]:
        """The tensor that holds a part, and its number of rows."""
        s, fused = self.shape.heads, f"attn_qkv.{kind}"
        if self.has(fused) and not gated:
            return fused, s.q_width + 2 * s.kv_width
        if name in ("q", "gate"):
            return f"attn_q.{kind}", s.q_width * (1 + gated)
        return f"attn_{name}.{kind}", s.kv_width

    def _rows(self, tensor: str, name: str, gated: bool) -> Tensor:
        """The rows of a part in its tensor."""
        s, queries = self.shape.heads, name in ("q", "gate")
        order = self._pairs() if name in "qk" else torch.arange(s.dim)
        stride, skip = (2 * s.dim, s.dim * (name == "gate")) if gated and queries else (s.dim, 0)
        begin = {"q": 0, "k": s.q_width, "v": s.q_width + s.kv_width}[name] if "qkv" in tensor else 0
        firsts = begin + skip + stride * torch.arange(s.heads if queries else s.kv_heads)
        return (firsts[:, None] + order).flatten()

    def _pairs(self) -> Tensor:
        """int64 [dim]: stored dimensions of a head in the order in which its halves rotate together."""
        s = self.shape.heads
        if not self.shape.interleaved:
            return torch.arange(s.dim)
        return torch.cat([torch.arange(s.rotary_dim).view(-1, 2).T.flatten(), torch.arange(s.rotary_dim, s.dim)])

    def head_norm(self, x: str, name: str) -> Norm:
        """The norm of each head of x, in place."""
        return Norm(x, x, self.vector(name, self.shape.heads.dim)[self._pairs()], self.shape.eps)

    # gated delta net

    def delta(self, shape: DeltaShape, apart: bool) -> Iterator[Op]:
        """x + out(norm(delta(qkv)) · silu(z))

        apart: beta and alpha are tensors of their own, not one tensor of both by key head.
        """
        yield Linear("h", ("mix", "z", "beta", "alpha"), tuple(self._delta_inputs(shape, apart)), (None,) * 4)
        yield Delta(
            *("mix", "beta", "alpha", "o"),
            shape=shape,
            conv=self.read("ssm_conv1d.weight", (shape.channels, shape.kernel)).T.contiguous(),
            rate=self.vector("ssm_a", shape.value_heads),
            dt=self.vector("ssm_dt.bias", shape.value_heads),
            layer=self.layer,
        )
        yield self.norm("o", "o", "ssm_norm.weight", shape.value_dim)
        yield Gate("o", "z", "o", "silu")
        yield self.linear("o", "x", "ssm_out", (self.shape.width, shape.value_width), add="x")

    def _delta_inputs(self, shape: DeltaShape, apart: bool) -> Iterator[Weight]:
        width = self.shape.width
        yield self.matrix("attn_qkv.weight", (shape.channels, width))
        yield self.matrix("attn_gate.weight", (shape.value_width, width))
        if apart:
            yield self.matrix("ssm_beta.weight", (shape.value_heads, width))
            yield self.matrix("ssm_alpha.weight", (shape.value_heads, width))
            return
        self.declare("ssm_ba.weight", (2 * shape.value_heads, width))
        grouped = torch.arange(2 * shape.value_heads).view(shape.key_heads, 2, -1)
        yield self.weight("ssm_ba.weight", grouped[:, 0].flatten())
        yield self.weight("ssm_ba.weight", grouped[:, 1].flatten())

    # short convolution

    def short_conv(self, shape: ConvShape, residual: bool = True) -> Iterator[Op]:
        """x + out(c · conv(b · v)), where one matrix has the rows of b, of c, and of v.

        residual: False: the result is ``h``, and ``x`` stays.
        """
        width, channels = self.shape.width, shape.channels
        self.declare("shortconv.in_proj.weight", (3 * channels, width))
        inputs = [self.weight("shortconv.in_proj.weight", rows) for rows in torch.arange(3 * channels).chunk(3)]
        yield Linear("h", ("b", "c", "v"), tuple(inputs), (None,) * 3)
        conv = self.read("shortconv.conv.weight", (channels, shape.kernel)).T.contiguous()
        yield ShortConv("b", "c", "v", "o", shape, conv, self.layer)
        yield self.onto("o", "shortconv.out_proj", (width, channels), residual)

    # feed-forward

    def mlp(
        self,
        ff: int,
        suffix: str = "",
        gate: str | None = None,
        act: Activation = "silu",
        fused: bool = False,
        residual: bool = True,
        x: str = "h",
        gated: bool = True,
        limit: float = 0.0,
    ) -> Iterator[Op]:
        """x + down(act(gate h) · up h), times sigmoid(h · weight) if ``gate`` names a value for that.

        fused: ``ffn_up`` holds the rows of gate and then of up. residual: False: the result is ``h``. x: the
        input, where it is not ``h``. gated: False: ``up`` takes the place of ``gate``. limit: see ``GLU``.
        """
        width = self.shape.width
        if fused:
            self.declare("ffn_up.weight", (2 * ff, width))
            weights = tuple(self.weight("ffn_up.weight", rows) for rows in torch.arange(2 * ff).chunk(2))
        else:
            names = ("gate", "up") if gated else ("up",)
            weights = tuple(self.matrix(f"ffn_{name}{suffix}.weight", (ff, width)) for name in names)
        yield Linear(x, ("up_gate", "up")[-len(weights) :], weights, (None,) * len(weights))
        yield GLU("up_gate" if gated else "up", "up", "f", act, limit)
        if gate is not None:  # a factor of a whole row commutes with the product
            yield Gate("f", gate, "f", "sigmoid")
        yield self.onto("f", f"ffn_down{suffix}", (width, ff), residual)

    def mixture(
        self,
        experts: Experts,
        ff: int,
        shared_ff: int = 0,
        shared_gate: bool = False,
        act: Activation = "silu",
        biases: bool = False,
        router: str = "h",
        residual: bool = True,
        gated: bool = True,
        latent: int = 0,
        limits: tuple[float, float] = (0.0, 0.0),
    ) -> Iterator[Op]:
        """x + the chosen experts of width ``ff``, and a shared expert of width ``shared_ff``, 0: none.

        shared_gate: the shared expert has a gate of width 1. biases: router and experts have biases. router: the value
        that the router reads. residual: False: the result is ``h``, and ``x`` stays. gated: False: no expert has a
        gate. latent: width of a projection that the chosen experts read, and whose sum is projected back; 0: none.
        limits: of the chosen experts and of the shared one, see ``GLU``.
        """
        routers = [self._wide("ffn_gate_inp.weight", experts.count)]
        if shared_gate:
            routers.append(self._wide("ffn_gate_inp_shexp.weight", 1))
        first = self.vector("ffn_gate_inp.bias", experts.count) if biases else None
        yield Linear(router, ("scores", "share")[: len(routers)], tuple(routers), (first, None)[: len(routers)])
        choice = experts.sigmoid and self.has("exp_probs_b.bias")
        bias = self.vector("exp_probs_b.bias", experts.count) if choice else None
        inner, width = latent or self.shape.width, self.shape.width
        gate, up = self._expert_inputs(experts.count, ff, inner, gated)
        down = self.matrix("ffn_down_exps.weight", (experts.count, inner, ff))
        added = self._expert_biases(experts.count, ff) if biases else None
        factors = self.vector("ffn_down_exps.scale", experts.count) if self.has("ffn_down_exps.scale") else None
        out, add = ("x", "x") if residual else ("sum" if shared_ff else "h", None)
        parts = experts, bias, gate, up, down, act, added, factors, limits[0]
        if latent:
            yield self.linear("h", "latent", "ffn_latent_down", (latent, width))
            yield Mixture("latent", "scores", "latent", None, *parts)
            yield self.linear("latent", out, "ffn_latent_up", (width, latent), add)
        else:
            yield Mixture("h", "scores", out, add, *parts)
        if shared_ff:
            by = "share" if shared_gate else None
            yield from self.mlp(shared_ff, "_shexp", by, act, residual=residual, gated=gated, limit=limits[1])
            if not residual:
                yield Add("sum", "h", "h")

    def _wide(self, name: str, n: int) -> Weight:
        """A small matrix that is multiplied in float32. That of one row may be stored as a vector."""
        flat = n == 1 and self.source.shape(self.prefix + name) == (self.shape.width,)
        self.declare(name, (self.shape.width,) if flat else (n, self.shape.width))
        return Weight(self.prefix + name, n, self.shape.width, wide=True)

    def _expert_inputs(self, count: int, ff: int, width: int, gated: bool) -> tuple[Weight | None, Weight]:
        both = "ffn_gate_up_exps.weight"
        if not gated:
            return None, self.matrix("ffn_up_exps.weight", (count, ff, width))
        if self.has(both):
            self.declare(both, (count, 2 * ff, width))
            gate, up = (self.weight(both, rows) for rows in torch.arange(2 * ff).chunk(2))
        else:
            gate, up = (self.matrix(f"ffn_{name}_exps.weight", (count, ff, width)) for name in ("gate", "up"))
        return gate, up

    def _expert_biases(self, count: int, ff: int) -> tuple[Tensor, Tensor, Tensor]:
        gate, up = (self.read(f"ffn_{name}_exps.bias", (count, ff)) for name in ("gate", "up"))
        return gate, up, self.read("ffn_down_exps.bias", (count, self.shape.width))

    # pieces

    def has(self, *names: str) -> bool:
        """Whether the file has one of these tensors."""
        return any(has_tensor(self.source, self.prefix + name) for name in names)

    def declare(self, name: str, shape: Shape) -> None:
        """Note the shape that a tensor must have, where a recorder reads the description."""
        if isinstance(self.source, ShapeRecorder):
            self.source.require(self.prefix + name, shape)

    def norm(self, x: str, out: str, name: str, width: int = 0) -> Norm:
        """width: of the pieces of x that are normalised; 0: whole rows of the stream."""
        return Norm(x, out, self.vector(name, width or self.shape.width), self.shape.eps)

    def linear(self, x: str, out: str, name: str, shape: Shape, add: str | None = None) -> Linear:
        """A product, with the bias that the file may have."""
        bias = self.vector(f"{name}.bias", shape[0]) if self.has(f"{name}.bias") else None
        return Linear(x, (out,), (self.matrix(f"{name}.weight", shape),), (bias,), add)

    def onto(self, x: str, name: str, shape: Shape, residual: bool) -> Linear:
        """The last product of a layer: added to the stream, or ``h``."""
        return self.linear(x, "x", name, shape, add="x") if residual else self.linear(x, "h", name, shape)

    def matrix(self, name: str, shape: Shape) -> Weight:
        """A matrix [n, k] that must have this shape, or a stack [count, n, k]."""
        self.declare(name, shape)
        return self.weight(name)

    def weight(self, name: str, rows: Tensor | None = None) -> Weight:
        """A stored matrix, or a stack of them. Raises KeyError if there is no such tensor."""
        shape = self.source.shape(self.prefix + name)
        if shape is None:
            raise KeyError(self.prefix + name)
        n, k = shape[-2:]
        if rows is not None and torch.equal(rows, torch.arange(n)):
            rows = None
        return Weight(self.prefix + name, n if rows is None else len(rows), k, rows, shape[0] if len(shape) == 3 else 1)

    def vector(self, name: str, size: int) -> Tensor:
        """float32 [size]"""
        return self.read(name, (size,))

    def read_squeezed(self, name: str, shape: Shape) -> Tensor:
        """A small tensor, float32, which a file may store with more dimensions of 1."""
        stored = self.source.shape(self.prefix + name)
        alike = stored is not None and [n for n in stored if n != 1] == [n for n in shape if n != 1]
        return self.read(name, stored if stored is not None and alike else shape).reshape(shape)

    def read(self, name: str, shape: Shape) -> Tensor:
        """A small tensor, float32."""
        self.declare(name, shape)
        return self.source.load(self.prefix + name).float()
