"""From tensors by name to blocks: fused where one product serves several matrices, packed for few rows.

Names and values are those of GGUF (norm weights as they multiply, ``ssm_a`` negative).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from spec_kernels.nn.attention import SelfAttention
from spec_kernels.nn.decoder import Block
from spec_kernels.nn.delta import GatedDeltaNet, padded
from spec_kernels.nn.heads import HeadShape
from spec_kernels.nn.linear import Linear, pack
from spec_kernels.nn.mlp import GatedMLP
from spec_kernels.nn.moe import MoE, Route, SharedExpert
from spec_kernels.nn.norm import RMSNorm
from spec_kernels.nn.states import DeltaShape
from spec_kernels.ops.moe import route, route_sigmoid
from spec_kernels.ops.rope import interleaved


@dataclass(frozen=True)
class Experts:
    """How experts are chosen. sigmoid: by sigmoid scores with a bias, else softmax. groups: see ``route_sigmoid``."""

    count: int
    used: int
    normalise: bool = True
    scale: float = 1.0
    sigmoid: bool = False
    groups: int = 1
    groups_used: int = 1


@dataclass(frozen=True, eq=False)
class BlockShape:
    """What the blocks of a model are, beyond the shapes of their tensors.

    head: width of an attention head, of which ``turned`` dimensions rotate. neighbours: rows of q and k are stored so
    that neighbouring dimensions rotate together, else halves of a head. gated: ``attn_q`` holds, per head, queries and
    then a gate. feed_norm: name of the norm before the feed-forward layer.
    """

    width: int
    heads: int
    kv_heads: int
    head: int
    turned: int
    eps: float
    neighbours: bool = False
    gated: bool = False
    feed_norm: str = "ffn_norm"
    experts: Experts | None = None
    delta: DeltaShape | None = None


class BlockBuilder:
    """Reads each tensor once, in the dtype and on the device the model runs in."""

    def __init__(
        self,
        shape: BlockShape,
        find: Callable[[str], Tensor | None],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """find: the tensor of a name, None where there is none."""
        self.shape, self.find, self.dtype, self.device = shape, find, dtype, device
        self.heads = HeadShape(shape.heads, shape.kv_heads, shape.head, shape.head, shape.head**-0.5)
        self.order = interleaved(shape.head, shape.turned)

    def maybe(self, name: str, dtype: torch.dtype | None = None) -> Tensor | None:
        found = self.find(name)
        return None if found is None else found.to(dtype=dtype or self.dtype, device=self.device)

    def read(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """Raises KeyError where there is no such tensor."""
        found = self.maybe(name, dtype)
        if found is None:
            raise KeyError(name)
        return found

    def norm(self, name: str) -> RMSNorm:
        return RMSNorm(self.read(name), self.shape.eps)

    def block(self, prefix: str, layer: int) -> Block:
        """The block whose tensors begin with ``prefix``; layer: which layer of the cache or the pool is its own."""
        recurrent = self.find(prefix + "ssm_a") is not None
        dense = self.find(prefix + "ffn_gate_inp.weight") is None
        return Block(
            mixer_norm=self.norm(prefix + "attn_norm.weight"),
            mixer=self.delta(prefix, layer) if recurrent else self.attention(prefix, layer),
            feed_norm=self.norm(f"{prefix}{self.shape.feed_norm}.weight"),
            feed=self.mlp(prefix) if dense else self.moe(prefix),
        )

    def attention(self, prefix: str, layer: int) -> SelfAttention:
        gate = self.gate(prefix) if self.shape.gated else None
        return SelfAttention(
            shape=self.heads,
            qkv=Linear.packed(pack(self.parts(prefix, "weight")), self.bias(prefix)),
            out=Linear(self.read(prefix + "attn_output.weight"), self.maybe(prefix + "attn_output.bias")),
            norm=self.qk_norm(prefix),
            layer=layer,
            gate=gate,
        )

    def gate(self, prefix: str) -> Linear:
        s = self.shape
        both = self.read(prefix + "attn_q.weight").view(s.heads, 2, s.head, -1)
        return Linear(both[:, 1].reshape(s.heads * s.head, -1))

    def bias(self, prefix: str) -> Tensor | None:
        has = any(self.find(f"{prefix}{name}.bias") is not None for name in ("attn_q", "attn_qkv"))
        return torch.cat(self.parts(prefix, "bias")) if has else None

    def parts(self, prefix: str, kind: str) -> list[Tensor]:
        """Rows of q, k and v; dimensions of q and k heads as neighbouring pairs."""
        q, k, v = (self.part(prefix, name, kind) for name in ("attn_q", "attn_k", "attn_v"))
        return [self.paired(q, self.shape.heads), self.paired(k, self.shape.kv_heads), v]

    def part(self, prefix: str, name: str, kind: str) -> Tensor:
        """One of q, k, v, from its own tensor or from a fused one; queries without their gate."""
        s = self.shape
        q, kv = s.heads * s.head, s.kv_heads * s.head
        whole = self.maybe(f"{prefix}attn_qkv.{kind}")
        if whole is None:
            own = self.read(f"{prefix}{name}.{kind}")
            gated = s.gated and name == "attn_q"
            return own.view(s.heads, 2, s.head, -1)[:, 0].reshape(q, -1) if gated else own
        begin = {"attn_q": 0, "attn_k": q, "attn_v": q + kv}[name]
        return whole[begin : begin + (q if name == "attn_q" else kv)]

    def paired(self, rows: Tensor, heads: int) -> Tensor:
        """Rows [heads * head, ...] whose pairs are halves of a head, unless they are neighbours already."""
        if self.shape.neighbours:
            return rows
        return rows.view(heads, self.shape.head, *rows.shape[1:])[:, self.order].reshape(rows.shape)

    def qk_norm(self, prefix: str) -> RMSNorm | None:
        """One weight per head, q heads first."""
        if self.find(prefix + "attn_q_norm.weight") is None:
            return None
        s = self.shape
        q, k = (self.read(f"{prefix}attn_{name}_norm.weight")[self.order] for name in "qk")
        return RMSNorm(torch.cat([q.expand(s.heads, -1), k.expand(s.kv_heads, -1)]), s.eps)

    def delta(self, prefix: str, layer: int) -> GatedDeltaNet:
        beta, alpha = self.rates(prefix)
        wide = partial(self.read, dtype=torch.float32)
        inputs = [self.read(f"{prefix}{name}.weight") for name in ("attn_qkv", "attn_gate")]
        return GatedDeltaNet(
            shape=self.shape.delta,
            project=Linear.packed(pack([*inputs, padded(beta), padded(alpha)])),
            conv=wide(prefix + "ssm_conv1d.weight").T.contiguous(),
            rate=padded(wide(prefix + "ssm_a")),
            dt=padded(wide(prefix + "ssm_dt.bias")),
            norm=self.norm(prefix + "ssm_norm.weight"),
            out=Linear(self.read(prefix + "ssm_out.weight")),
            layer=layer,
        )

    def rates(self, prefix: str) -> tuple[Tensor, Tensor]:
        """Projections [Hv, D] of beta and alpha; qwen3next has both in one, interleaved by key head."""
        both = self.maybe(prefix + "ssm_ba.weight")
        if both is None:
            return self.read(prefix + "ssm_beta.weight"), self.read(prefix + "ssm_alpha.weight")
        grouped = both.view(self.shape.delta.key_heads, 2, -1, both.shape[1])
        return grouped[:, 0].flatten(0, 1), grouped[:, 1].flatten(0, 1)

    def gate_up(self, prefix: str, suffix: str = "") -> Linear:
        return Linear.packed(pack([self.read(f"{prefix}ffn_{name}{suffix}.weight") for name in ("gate", "up")]))

    def mlp(self, prefix: str) -> GatedMLP:
        return GatedMLP(self.gate_up(prefix), Linear(self.read(prefix + "ffn_down.weight")))

    def moe(self, prefix: str) -> MoE:
        gate_up = self.maybe(prefix + "ffn_gate_up_exps.weight")
        if gate_up is None:
            gate_up = torch.cat([self.read(f"{prefix}ffn_{name}_exps.weight") for name in ("gate", "up")], dim=1)
        return MoE(
            router=self.read(prefix + "ffn_gate_inp.weight", torch.float32).T.contiguous(),
            route=self.route(prefix),
            gate_up=gate_up.transpose(1, 2).contiguous(),
            down=self.read(prefix + "ffn_down_exps.weight").transpose(1, 2).contiguous(),
            shared=self.shared(prefix),
        )

    def route(self, prefix: str) -> Route:
        e = self.shape.experts
        if not e.sigmoid:
            return partial(route, top=e.used, normalise=e.normalise, scale=e.scale)
        bias = self.maybe(prefix + "exp_probs_b.bias", torch.float32)
        return partial(
            route_sigmoid,
            bias=torch.zeros(e.count, device=self.device) if bias is None else bias,
            top=e.used,
            normalise=e.normalise,
            scale=e.scale,
            groups=e.groups,
            groups_used=e.groups_used,
        )

    def shared(self, prefix: str) -> SharedExpert | None:
        if self.find(prefix + "ffn_down_shexp.weight") is None:
            return None
        weight = self.maybe(prefix + "ffn_gate_inp_shexp.weight")
        down = Linear(self.read(prefix + "ffn_down_shexp.weight"))
        return SharedExpert(self.gate_up(prefix, "_shexp"), down, None if weight is None else weight.flatten())
