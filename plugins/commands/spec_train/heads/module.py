"""Named weights of a head as a torch module, and the layers that both kinds of head have.

Shapes: T positions, R rows, h attention heads of d dimensions, g key heads, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spec_train.heads.shape import Shape

KeysValues = tuple[Tensor, Tensor]
"""Keys and values: [g, R, d] each."""


class HeadModule(nn.Module):
    """Parameters by the names of a head's file, as ``self["fc.weight"]``."""

    TABLES: ClassVar[frozenset[str]] = frozenset({"output.weight"})
    """Matrices that are trained by AdamW: a row is of one token."""
    TABLE_LR_SHARE: ClassVar[float] = 0.2
    """Factor of their learning rate: the output matrix is initialised as the target's."""
    theta: Tensor

    def __init__(self, shape: Shape, tensors: Mapping[str, Tensor], theta: Tensor, rope_scale: float = 1.0) -> None:
        """theta: rotary frequencies [d / 2], radians per position; rope_scale: factor of cos and sin."""
        super().__init__()
        self.shape, self.rope_scale = shape, rope_scale
        for name, tensor in tensors.items():
            self.register_parameter(name.replace(".", "/"), nn.Parameter(tensor.detach().float().clone()))
        self.register_buffer("theta", theta.float(), persistent=False)

    def __getitem__(self, name: str) -> Tensor:
        return self.get_parameter(name.replace(".", "/"))

    def tensors_by_name(self) -> dict[str, Tensor]:
        """HeadModule by the names of the file, float32 on the CPU."""
        return {name.replace("/", "."): p.detach().float().cpu() for name, p in self.named_parameters()}

    def is_table(self, parameter: str) -> bool:
        """Whether a parameter is one of ``TABLES``."""
        return parameter.replace("/", ".") in self.TABLES

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self[f"{name}.weight"], self._parameters.get(f"{name}.bias".replace(".", "/")))

    def linears(self, names: Sequence[str], x: Tensor) -> list[Tensor]:
        """Several linear maps of the same rows, as one matrix product."""
        matrices = [self[f"{name}.weight"] for name in names]
        biases = [self._parameters.get(f"{name}.bias".replace(".", "/")) for name in names]
        bias = None if biases[0] is None else torch.cat([b for b in biases if b is not None])
        return list(F.linear(x, torch.cat(matrices), bias).split([len(m) for m in matrices], -1))

    def norm(self, name: str, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), self[f"{name}.weight"], self.shape.eps)

    def mlp(self, prefix: str, x: Tensor) -> Tensor:
        gate, up = self.linears([f"{prefix}ffn_gate", f"{prefix}ffn_up"], x)
        return self.linear(f"{prefix}ffn_down", F.silu(gate) * up)

    def fuse(self, features: Tensor) -> Tensor:
        """[T, inputs x target width] -> [T, D]: the features of the target, projected to the width of the head."""
        s, features = self.shape, features.float()
        if s.norm_before_fc:
            features = self.norm("input_norm", features)
        if s.fc_norm:
            parts = features.split(s.target_width, -1)
            features = torch.cat([self.norm(f"input_norm.{i}", part) for i, part in enumerate(parts)], -1)
        c = self.linear("fc", features)
        return self.norm("hidden_norm", c) if s.fills_blocks else c

    def queries_keys(self, prefix: str, x: Tensor, positions: Tensor) -> tuple[Tensor, KeysValues]:
        """Rotated queries [h, R, d], and rotated keys and values [g, R, d], of the same rows."""
        q, k, v = self.linears([f"{prefix}attn_{name}" for name in "qkv"], x)
        return self._queries(prefix, q, positions), self._keys(prefix, k, v, positions)

    def keys(self, prefix: str, x: Tensor, positions: Tensor) -> KeysValues:
        """Rotated keys and values, both [g, R, d]."""
        k, v = self.linears([f"{prefix}attn_{name}" for name in "kv"], x)
        return self._keys(prefix, k, v, positions)

    def _queries(self, prefix: str, q: Tensor, positions: Tensor) -> Tensor:
        """[h, R, d], rotated."""
        q = q.unflatten(-1, (self.shape.heads, self.shape.head))
        return self.rotate(self._normalise(f"{prefix}attn_q_norm", q), positions)

    def _keys(self, prefix: str, k: Tensor, v: Tensor, positions: Tensor) -> KeysValues:
        k, v = (x.unflatten(-1, (self.shape.kv_heads, self.shape.head)) for x in (k, v))
        return self.rotate(self._normalise(f"{prefix}attn_k_norm", k), positions), v.transpose(-3, -2)

    def _normalise(self, name: str, x: Tensor) -> Tensor:
        return self.norm(name, x) if self.shape.qk_norm else x

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """[R, h, d] -> [h, R, d]: rotary embedding, dimension i paired with i + d / 2."""
        angle = positions[:, None] * self.theta
        cos, sin = angle.cos() * self.rope_scale, angle.sin() * self.rope_scale
        a, b = x.transpose(-3, -2).chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def rope_frequencies(shape: Shape) -> Tensor:
    """Rotary frequencies [d / 2], radians per position, without scaling."""
    return shape.rope_base ** (-torch.arange(0, shape.head, 2).float() / shape.head)


def group_rows(q: Tensor, keys: Tensor) -> Tensor:
    """[h, R, d] -> [g, h / g x R, d]: the rows of query heads that share a key head, head by head."""
    return q.reshape(len(keys), -1, q.shape[-1])


def split_pair(pair: KeysValues, sizes: Sequence[int]) -> list[KeysValues]:
    """Keys and values, by rows."""
    return list(zip(*(x.split(sizes, 1) for x in pair), strict=True))
