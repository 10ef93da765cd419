"""From tensors by name to a decoder: fused where one product serves several matrices, packed for few rows."""

from __future__ import annotations

from functools import partial

import torch
from spec_kernels.nn.attention import SelfAttention
from spec_kernels.nn.decoder import Block, Decoder
from spec_kernels.nn.heads import HeadShape
from spec_kernels.nn.linear import Linear, pack
from spec_kernels.nn.mlp import GatedMLP
from spec_kernels.nn.moe import MoE
from spec_kernels.nn.norm import RMSNorm
from spec_kernels.nn.rotary import RotaryTable
from spec_kernels.ops.moe import route
from spec_kernels.ops.rope import interleaved
from torch import Tensor

from spec_targets.runtime.config import ARCHS, Config
from spec_targets.runtime.weights import Weights


class Builder:
    """Reads each tensor once, in the dtype and on the device the model runs in."""

    def __init__(self, config: Config, weights: Weights, dtype: torch.dtype, device: torch.device) -> None:
        self.config, self.weights, self.dtype, self.device = config, weights, dtype, device
        c = config
        self.shape = HeadShape(c.heads, c.kv_heads, c.head, c.head, c.head**-0.5)
        self.order = interleaved(c.head, c.turned)

    def read(self, name: str) -> Tensor:
        return self.weights.load(name).to(dtype=self.dtype, device=self.device)

    def maybe(self, name: str) -> Tensor | None:
        return None if self.weights.shape(name) is None else self.read(name)

    def decoder(self, rotary: RotaryTable) -> Decoder:
        embed = self.read("token_embd.weight")
        head = self.maybe("output.weight")
        return Decoder(
            embedding=embed,
            blocks=[self.block(i) for i in range(self.config.layers)],
            norm=self.norm("output_norm.weight"),
            head=Linear(embed if head is None else head, self.maybe("output.bias")),
            rotary=rotary,
        )

    def norm(self, name: str) -> RMSNorm:
        return RMSNorm(self.read(name), self.config.eps)

    def block(self, i: int) -> Block:
        prefix = f"blk.{i}."
        return Block(
            mixer_norm=self.norm(prefix + "attn_norm.weight"),
            mixer=self.attention(i, prefix),
            feed_norm=self.norm(prefix + "ffn_norm.weight"),
            feed=self.moe(prefix) if self.config.experts else self.mlp(prefix),
        )

    def attention(self, i: int, prefix: str) -> SelfAttention:
        return SelfAttention(
            shape=self.shape,
            qkv=Linear.packed(pack(self.parts(prefix, "weight")), self.bias(prefix)),
            out=Linear(self.read(prefix + "attn_output.weight"), self.maybe(prefix + "attn_output.bias")),
            norm=self.qk_norm(prefix) if ARCHS[self.config.arch].qk_norm else None,
            layer=i,
        )

    def bias(self, prefix: str) -> Tensor | None:
        has = any(self.weights.shape(f"{prefix}{name}.bias") is not None for name in ("attn_q", "attn_qkv"))
        return torch.cat(self.parts(prefix, "bias")) if has else None

    def parts(self, prefix: str, kind: str) -> list[Tensor]:
        """Rows of q, k and v; dimensions of q and k heads as neighbouring pairs."""
        q, k, v = (self.part(prefix, name, kind) for name in ("attn_q", "attn_k", "attn_v"))
        return [self.paired(q, self.config.heads), self.paired(k, self.config.kv_heads), v]

    def part(self, prefix: str, name: str, kind: str) -> Tensor:
        """One of q, k, v, from its own tensor or from a fused one."""
        whole = self.maybe(f"{prefix}attn_qkv.{kind}")
        if whole is None:
            return self.read(f"{prefix}{name}.{kind}")
        q, kv = self.config.heads * self.config.head, self.config.kv_heads * self.config.head
        begin = {"attn_q": 0, "attn_k": q, "attn_v": q + kv}[name]
        return whole[begin : begin + (q if name == "attn_q" else kv)]

    def paired(self, rows: Tensor, heads: int) -> Tensor:
        """Rows [heads * head, ...] whose pairs are halves of a head, unless the file has neighbours already."""
        if self.weights.neighbours:
            return rows
        return rows.view(heads, self.config.head, *rows.shape[1:])[:, self.order].reshape(rows.shape)

    def qk_norm(self, prefix: str) -> RMSNorm:
        """One weight per head, q heads first."""
        c = self.config
        q, k = (self.read(f"{prefix}attn_{name}_norm.weight")[self.order] for name in "qk")
        return RMSNorm(torch.cat([q.expand(c.heads, -1), k.expand(c.kv_heads, -1)]), c.eps)

    def mlp(self, prefix: str) -> GatedMLP:
        gate_up = pack([self.read(prefix + "ffn_gate.weight"), self.read(prefix + "ffn_up.weight")])
        return GatedMLP(Linear.packed(gate_up), Linear(self.read(prefix + "ffn_down.weight")))

    def moe(self, prefix: str) -> MoE:
        gate_up = self.maybe(prefix + "ffn_gate_up_exps.weight")
        if gate_up is None:
            both = [self.read(prefix + "ffn_gate_exps.weight"), self.read(prefix + "ffn_up_exps.weight")]
            gate_up = torch.cat(both, dim=1)
        router = self.weights.load(prefix + "ffn_gate_inp.weight").float().to(self.device)
        return MoE(
            router=router.T.contiguous(),
            route=partial(route, top=self.config.experts_used, normalise=self.config.normalise),
            gate_up=gate_up.transpose(1, 2).contiguous(),
            down=self.read(prefix + "ffn_down_exps.weight").transpose(1, 2).contiguous(),
        )
