"""Named weights of a head as a torch module, and what both kinds of head do with them.

Shapes: T positions, R rows, h attention heads of d dimensions, g key heads, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spec_train.shape import Shape

Pair = tuple[Tensor, Tensor]
"""Keys and values."""


class Weights(nn.Module):
    """Parameters under the names that a head's file has (see ``spec_targets.heads``), by ``self["fc.weight"]``."""

    theta: Tensor

    def __init__(self, shape: Shape, tensors: Mapping[str, Tensor], theta: Tensor, magnitude: float = 1.0) -> None:
        """theta: radians per position [d / 2]; magnitude: factor of cos and sin."""
        super().__init__()
        self.shape, self.magnitude = shape, magnitude
        for name, tensor in tensors.items():
            self.register_parameter(name.replace(".", "/"), nn.Parameter(tensor.detach().float().clone()))
        self.register_buffer("theta", theta.float(), persistent=False)

    def __getitem__(self, name: str) -> Tensor:
        return self.get_parameter(name.replace(".", "/"))

    def named(self) -> dict[str, Tensor]:
        """Weights by the names of the file, float32 on the CPU."""
        return {name.replace("/", "."): p.detach().float().cpu() for name, p in self.named_parameters()}

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self[f"{name}.weight"], self._parameters.get(f"{name}.bias".replace(".", "/")))

    def together(self, names: Sequence[str], x: Tensor) -> list[Tensor]:
        """Several linear maps of the same rows, in one product."""
        matrices = [self[f"{name}.weight"] for name in names]
        biases = [self._parameters.get(f"{name}.bias".replace(".", "/")) for name in names]
        bias = None if biases[0] is None else torch.cat([b for b in biases if b is not None])
        return list(F.linear(x, torch.cat(matrices), bias).split([len(m) for m in matrices], -1))

    def norm(self, name: str, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), self[f"{name}.weight"], self.shape.eps)

    def mlp(self, prefix: str, x: Tensor) -> Tensor:
        gate, up = self.together([f"{prefix}ffn_gate", f"{prefix}ffn_up"], x)
        return self.linear(f"{prefix}ffn_down", F.silu(gate) * up)

    def fused(self, features: Tensor) -> Tensor:
        """[T, inputs x target width] -> [T, D]: what is read of the target, in the head's own width."""
        s, features = self.shape, features.float()
        if s.norm_before_fc:
            features = self.norm("input_norm", features)
        if s.fc_norm:
            parts = features.split(s.target_width, -1)
            features = torch.cat([self.norm(f"input_norm.{i}", part) for i, part in enumerate(parts)], -1)
        c = self.linear("fc", features)
        return self.norm("hidden_norm", c) if s.kind == "dflash" else c

    def looked(self, prefix: str, x: Tensor, positions: Tensor) -> tuple[Tensor, Pair]:
        """Queries, and keys and values, of the same rows: as ``queries`` and ``keys`` give them."""
        q, k, v = self.together([f"{prefix}attn_{name}" for name in "qkv"], x)
        return self._queries(prefix, q, positions), self._keys(prefix, k, v, positions)

    def keys(self, prefix: str, x: Tensor, positions: Tensor) -> Pair:
        """Keys, turned, and values: both [g, R, d], for g key heads"""
        k, v = self.together([f"{prefix}attn_{name}" for name in "kv"], x)
        return self._keys(prefix, k, v, positions)

    def _queries(self, prefix: str, q: Tensor, positions: Tensor) -> Tensor:
        """[h, R, d], turned"""
        q = q.unflatten(-1, (self.shape.heads, self.shape.head))
        return self.turned(self._normed(f"{prefix}attn_q_norm", q), positions)

    def _keys(self, prefix: str, k: Tensor, v: Tensor, positions: Tensor) -> Pair:
        k, v = (x.unflatten(-1, (self.shape.kv_heads, self.shape.head)) for x in (k, v))
        return self.turned(self._normed(f"{prefix}attn_k_norm", k), positions), v.transpose(-3, -2)

    def _normed(self, name: str, x: Tensor) -> Tensor:
        return self.norm(name, x) if self.shape.qk_norm else x

    def turned(self, x: Tensor, positions: Tensor) -> Tensor:
        """[R, h, d] -> [h, R, d], dimension i turned together with i + d / 2"""
        angle = positions[:, None] * self.theta
        cos, sin = angle.cos() * self.magnitude, angle.sin() * self.magnitude
        a, b = x.transpose(-3, -2).chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def radians(shape: Shape) -> Tensor:
    """Radians per position [d / 2] of a head without scaling."""
    return shape.rope_base ** (-torch.arange(0, shape.head, 2).float() / shape.head)


def grouped(q: Tensor, keys: Tensor) -> Tensor:
    """[h, R, d] -> [g, h / g x R, d]: the rows of query heads that share a key head, one head after the other."""
    return q.reshape(len(keys), -1, q.shape[-1])
