"""From tensors by name to a decoder: fused where one product serves several matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from spec_kernels.nn.attention import Attention
from spec_kernels.nn.decoder import Block, Decoder, FeedForward
from spec_kernels.nn.mlp import Mlp, Moe
from spec_kernels.nn.norm import Norm
from spec_targets.runtime.config import ARCHS, Config
from spec_targets.runtime.weights import Weights


class Builder:
    """Reads each tensor once, in the dtype and on the device the model runs in."""

    def __init__(self, config: Config, weights: Weights, dtype: torch.dtype, device: torch.device) -> None:
        self.config, self.weights, self.dtype, self.device = config, weights, dtype, device

    def read(self, name: str) -> Tensor:
        return self.weights.load(name).to(dtype=self.dtype, device=self.device)

    def maybe(self, name: str) -> Tensor | None:
        return None if self.weights.shape(name) is None else self.read(name)

    def decoder(self) -> Decoder:
        embed = self.read("token_embd.weight")
        head = self.maybe("output.weight")
        return Decoder(
            embed=embed,
            blocks=tuple(self.block(i) for i in range(self.config.layers)),
            norm=self.norm("output_norm.weight"),
            head=embed if head is None else head,
            head_bias=self.maybe("output.bias"),
        )

    def norm(self, name: str) -> Norm:
        return Norm(self.read(name), self.config.eps)

    def block(self, i: int) -> Block:
        prefix = f"blk.{i}."
        return Block(
            attn_norm=self.norm(prefix + "attn_norm.weight"),
            attention=self.attention(i, prefix),
            ffn_norm=self.norm(prefix + "ffn_norm.weight"),
            ffn=self.moe(prefix) if self.config.experts else self.mlp(prefix),
        )

    def attention(self, i: int, prefix: str) -> Attention:
        c = self.config
        return Attention(
            layer=i,
            heads=c.heads,
            kv_heads=c.kv_heads,
            head=c.head,
            turned=c.turned,
            qkv=self.fused(prefix, "weight").t(),
            bias=self.fused(prefix, "bias") if self.has_bias(prefix) else None,
            qk_norm=self.qk_norm(prefix) if ARCHS[c.arch].qk_norm else None,
            out=self.read(prefix + "attn_output.weight").t(),
            out_bias=self.maybe(prefix + "attn_output.bias"),
        )

    def has_bias(self, prefix: str) -> bool:
        return any(self.weights.shape(f"{prefix}{name}.bias") is not None for name in ("attn_q", "attn_qkv"))

    def fused(self, prefix: str, kind: str) -> Tensor:
        """Rows of q, k and v in one tensor, [.., D] or [..]."""
        return torch.cat([self.part(prefix, name, kind) for name in ("attn_q", "attn_k", "attn_v")])

    def part(self, prefix: str, name: str, kind: str) -> Tensor:
        """One of q, k, v, from its own tensor or from a fused one, with rows in the order that halves rotate in."""
        c = self.config
        q, kv = c.heads * c.head, c.kv_heads * c.head
        whole = self.maybe(f"{prefix}attn_qkv.{kind}")
        begin = {"attn_q": 0, "attn_k": q, "attn_v": q + kv}[name]
        rows = q if name == "attn_q" else kv
        tensor = self.read(f"{prefix}{name}.{kind}") if whole is None else whole[begin : begin + rows]
        return self.weights.unpermuted(tensor, rows // c.head) if name != "attn_v" else tensor

    def qk_norm(self, prefix: str) -> Norm:
        """One weight per head, q heads first."""
        c = self.config
        q, k = self.read(prefix + "attn_q_norm.weight"), self.read(prefix + "attn_k_norm.weight")
        return Norm(torch.cat([q.expand(c.heads, -1), k.expand(c.kv_heads, -1)]), c.eps)

    def mlp(self, prefix: str) -> FeedForward:
        gate_up = torch.cat([self.read(prefix + "ffn_gate.weight"), self.read(prefix + "ffn_up.weight")])
        return Mlp(gate_up.t(), self.read(prefix + "ffn_down.weight").t())

    def moe(self, prefix: str) -> FeedForward:
        gate_up = self.maybe(prefix + "ffn_gate_up_exps.weight")
        if gate_up is None:
            both = [self.read(prefix + "ffn_gate_exps.weight"), self.read(prefix + "ffn_up_exps.weight")]
            gate_up = torch.cat(both, dim=1)
        router = self.weights.load(prefix + "ffn_gate_inp.weight").float().to(self.device)
        down = self.read(prefix + "ffn_down_exps.weight")
        return Moe(router, gate_up, down, self.config.experts_used, self.config.normalise)
