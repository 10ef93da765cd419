"""The qwen3 architecture for training: pre-norm blocks, per-head norms on q and k, SwiGLU, a tied head.

Shapes: B sequences, T tokens, H heads, D width, V vocabulary.
"""

from __future__ import annotations

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional as F


@attrs.frozen
class Shape:
    """Sizes of a model; every row length is a multiple of 32, the block of Q8_0."""

    vocab: int = 3072
    width: int = 192
    layers: int = 10
    heads: int = 3
    kv_heads: int = 1
    head: int = 64
    ff: int = 512
    rope_base: float = 1_000_000.0
    eps: float = 1e-6
    context: int = 2048


SHAPES = {"pico": Shape(), "pico-draft": Shape(width=128, layers=2, heads=2, ff=384)}


class Norm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def angles(shape: Shape, length: int) -> tuple[Tensor, Tensor]:
    """cos and sin [T, head]; dimension i is paired with dimension i + head / 2."""
    inverse = shape.rope_base ** (-torch.arange(0, shape.head, 2).float() / shape.head)
    angle = torch.arange(length).float()[:, None] * inverse
    return torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        q, kv = shape.heads * shape.head, shape.kv_heads * shape.head
        self.attn_norm = Norm(shape.width, shape.eps)
        self.qkv = nn.Linear(shape.width, q + 2 * kv, bias=False)
        self.q_norm = Norm(shape.head, shape.eps)
        self.k_norm = Norm(shape.head, shape.eps)
        self.out = nn.Linear(q, shape.width, bias=False)
        self.ffn_norm = Norm(shape.width, shape.eps)
        self.gate_up = nn.Linear(shape.width, 2 * shape.ff, bias=False)
        self.down = nn.Linear(shape.ff, shape.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attend(self.attn_norm(x), cos, sin)
        gate, up = self.gate_up(self.ffn_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)

    def attend(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, _ = x.shape
        s = self.shape
        heads = self.qkv(x).view(b, t, s.heads + 2 * s.kv_heads, s.head).transpose(1, 2)
        q, k, v = heads.split([s.heads, s.kv_heads, s.kv_heads], dim=1)  # [B, H, T, head]
        q, k = rotate(self.q_norm(q), cos, sin), rotate(self.k_norm(k), cos, sin)
        group = s.heads // s.kv_heads
        k, v = (m.repeat_interleave(group, dim=1) for m in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, -1))


class Model(nn.Module):
    """tokens [B, T] -> logits [B, T, V]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocab, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.width, shape.eps)
        self._start()

    def _start(self) -> None:
        """Set small random weights; matrices that write to the residual stream start smaller in deeper models."""
        for name, p in self.named_parameters():
            if p.dim() == 2:
                std = 0.02 if "embed" in name else p.shape[1] ** -0.5 * 0.7
                if name.endswith(("out.weight", "down.weight")):
                    std /= (2 * self.shape.layers) ** 0.5
                nn.init.normal_(p, std=std)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        cos, sin = angles(self.shape, tokens.shape[1])
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.linear(self.norm(x), self.embed.weight)

    def loss(self, rows: Tensor) -> Tensor:
        """Mean nats per token of rows [B, T + 1]."""
        logits = self(rows[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


class Distilled(nn.Module):
    """A student that learns the distribution of a frozen teacher (Hinton et al., 1503.02531).

    A draft model is better the more often it agrees with its target.
    """

    def __init__(self, teacher: Model, student: Model) -> None:
        super().__init__()
        self.teacher = teacher.requires_grad_(False)
        self.student = student

    def loss(self, rows: Tensor) -> Tensor:
        """Mean KL(teacher | student) in nats per token of rows [B, T + 1]."""
        teacher_logs = self.teacher(rows[:, :-1]).flatten(0, 1).log_softmax(-1)
        student_logs = self.student(rows[:, :-1]).flatten(0, 1).log_softmax(-1)
        return F.kl_div(student_logs, teacher_logs, log_target=True, reduction="batchmean")
