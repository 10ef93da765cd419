"""The qwen35 architecture for training: gated delta nets with a full attention layer after each, and an MTP layer.

Shapes: B sequences, T tokens, D width, V vocabulary, Hk key heads and Hv value heads of d dimensions each, C a chunk.
Value heads are in tiled order: value head j uses key head j % Hk, as in GGUF files of qwen35.
"""

from __future__ import annotations

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tools.zoo.model import Norm, Shape, angles, rotate

CHUNK = 32


@attrs.frozen
class HybridShape(Shape):
    """Every ``interval``-th layer is full attention, the others are gated delta nets."""

    interval: int = 2
    key_heads: int = 2
    value_heads: int = 6
    state: int = 32
    kernel: int = 4

    @property
    def key_width(self) -> int:
        return self.key_heads * self.state

    @property
    def value_width(self) -> int:
        return self.value_heads * self.state

    @property
    def conv_width(self) -> int:
        return 2 * self.key_width + self.value_width

    def full(self, layer: int) -> bool:
        return (layer + 1) % self.interval == 0


HYBRID = HybridShape()


class Attention(nn.Module):
    """Attention with a gated output; for each head the projection has the queries first, then the gate."""

    def __init__(self, shape: HybridShape) -> None:
        super().__init__()
        self.shape = shape
        q, kv = shape.heads * shape.head, shape.kv_heads * shape.head
        self.q = nn.Linear(shape.width, 2 * q, bias=False)
        self.k = nn.Linear(shape.width, kv, bias=False)
        self.v = nn.Linear(shape.width, kv, bias=False)
        self.q_norm = Norm(shape.head, shape.eps)
        self.k_norm = Norm(shape.head, shape.eps)
        self.out = nn.Linear(q, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        s = self.shape
        q, gate = self.q(x).view(b, t, s.heads, 2 * s.head).chunk(2, -1)
        k, v = (m(x).view(b, t, s.kv_heads, s.head).transpose(1, 2) for m in (self.k, self.v))
        cos, sin = angles(s, t)
        q, k = rotate(self.q_norm(q.transpose(1, 2)), cos, sin), rotate(self.k_norm(k), cos, sin)
        k, v = (m.repeat_interleave(s.heads // s.kv_heads, dim=1) for m in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return self.out((y * gate.sigmoid()).reshape(b, t, -1))


class DeltaNet(nn.Module):
    """A gated delta net (Yang et al., 2412.06464) after a causal convolution of a few tokens."""

    def __init__(self, shape: HybridShape) -> None:
        super().__init__()
        self.shape = shape
        self.qkv = nn.Linear(shape.width, shape.conv_width, bias=False)
        self.z = nn.Linear(shape.width, shape.value_width, bias=False)
        self.beta = nn.Linear(shape.width, shape.value_heads, bias=False)
        self.alpha = nn.Linear(shape.width, shape.value_heads, bias=False)
        self.conv = nn.Parameter(torch.zeros(shape.conv_width, 1, shape.kernel))
        self.a_log = nn.Parameter(torch.linspace(-3.0, 1.0, shape.value_heads))
        self.dt = nn.Parameter(torch.zeros(shape.value_heads))
        self.norm = Norm(shape.state, shape.eps)
        self.out = nn.Linear(shape.value_width, shape.width, bias=False)
        nn.init.normal_(self.conv, std=0.2)
        self.conv.data[:, 0, -1] += 1.0

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        s = self.shape
        mixed = F.pad(self.qkv(x).transpose(1, 2), (s.kernel - 1, 0))
        mixed = F.silu(F.conv1d(mixed, self.conv, groups=s.conv_width)).transpose(1, 2)
        q, k, v = mixed.split([s.key_width, s.key_width, s.value_width], dim=-1)
        q, k = (self._unit(m.view(b, t, s.key_heads, s.state)) for m in (q, k))
        v = v.view(b, t, s.value_heads, s.state).transpose(1, 2)
        g = -self.a_log.exp() * F.softplus(self.alpha(x) + self.dt)
        y = delta_rule(q * s.state**-0.5, k, v, g.transpose(1, 2), self.beta(x).sigmoid().transpose(1, 2))
        y = self.norm(y.transpose(1, 2)) * F.silu(self.z(x).view(b, t, s.value_heads, s.state))
        return self.out(y.reshape(b, t, -1))

    def _unit(self, heads: Tensor) -> Tensor:
        """[B, T, Hk, d] -> unit vectors [B, Hv, T, d], each key head repeated for its value heads."""
        unit = heads * torch.rsqrt(heads.square().sum(-1, keepdim=True) + 1e-6)
        return unit.repeat(1, 1, self.shape.value_heads // self.shape.key_heads, 1).transpose(1, 2)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """The recurrence S_t = exp(g_t) S_(t-1) + k_t d_t', a chunk at a time.

    q, k, v: [B, H, T, d] with unit keys    g, beta: [B, H, T]    returns S_t' q_t [B, H, T, d]
    """
    t = q.shape[2]
    q, k, v, g, beta = (_chunks(m) for m in (q, k, v, g, beta))
    total = g.cumsum(-1)
    decay = (total[..., :, None] - total[..., None, :]).tril().exp().tril()  # [B, H, N, C, C]
    a = (beta[..., None] * (k @ k.mT) * decay).tril(-1)
    rhs = beta[..., None] * torch.cat([v, k * total[..., None].exp()], -1)
    u, w = torch.linalg.solve_triangular(a + torch.eye(CHUNK), rhs, upper=False, unitriangular=True).chunk(2, -1)
    inside = (q @ k.mT) * decay
    before = q * total[..., None].exp()
    left = k * (total[..., -1:] - total)[..., None].exp()
    end = total[..., -1:, None].exp()
    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    out = []
    for u_n, w_n, inside_n, before_n, left_n, end_n in zip(
        *(m.unbind(2) for m in (u, w, inside, before, left, end)), strict=True
    ):
        d = u_n - w_n @ state
        out.append(before_n @ state + inside_n @ d)
        state = end_n * state + left_n.mT @ d
    return torch.cat(out, 2)[:, :, :t]


def _chunks(m: Tensor) -> Tensor:
    """[B, H, T, ...] -> [B, H, N, C, ...]; the last chunk is padded with zeros, which do not change the state."""
    missing = -m.shape[2] % CHUNK
    pad = [0, 0] * (m.dim() - 3) + [0, missing]
    return F.pad(m, pad).unflatten(2, (-1, CHUNK))


class HybridBlock(nn.Module):
    def __init__(self, shape: HybridShape, full: bool) -> None:
        super().__init__()
        self.mixer_norm = Norm(shape.width, shape.eps)
        self.mixer = Attention(shape) if full else DeltaNet(shape)
        self.ffn_norm = Norm(shape.width, shape.eps)
        self.gate_up = nn.Linear(shape.width, 2 * shape.ff, bias=False)
        self.down = nn.Linear(shape.ff, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mixer(self.mixer_norm(x))
        gate, up = self.gate_up(self.ffn_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Hybrid(nn.Module):
    """tokens [B, T] -> hidden states after the final norm [B, T, D]; logits are their products with the embedding."""

    def __init__(self, shape: HybridShape = HYBRID) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocab, shape.width)
        self.blocks = nn.ModuleList(HybridBlock(shape, shape.full(i)) for i in range(shape.layers))
        self.norm = Norm(shape.width, shape.eps)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def loss(self, rows: Tensor) -> Tensor:
        """Mean nats per token of rows [B, T + 1]."""
        return nats(self(rows[:, :-1]), self.embed.weight, rows[:, 1:])


def nats(hidden: Tensor, head: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, head).flatten(0, 1), target.flatten())


class Mtp(nn.Module):
    """One block that reads the target's hidden state and the next token, and predicts the one after it."""

    def __init__(self, shape: HybridShape = HYBRID) -> None:
        super().__init__()
        self.enorm = Norm(shape.width, shape.eps)
        self.hnorm = Norm(shape.width, shape.eps)
        self.eh_proj = nn.Linear(2 * shape.width, shape.width, bias=False)
        self.block = HybridBlock(shape, full=True)
        self.norm = Norm(shape.width, shape.eps)

    def forward(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        """[B, T, D] of tokens p + 1, [B, T, D] of positions p -> hidden for the tokens p + 2"""
        pairs = torch.cat([self.enorm(embedded), self.hnorm(hidden)], -1)
        return self.norm(self.block(self.eh_proj(pairs)))


class MtpOnFrozen(nn.Module):
    """The MTP layer of a trained trunk, trained to continue from its own hidden states, ``DEPTH`` tokens ahead."""

    DEPTH = 3

    def __init__(self, trunk: Hybrid) -> None:
        super().__init__()
        self.trunk = trunk.requires_grad_(False)
        self.mtp = Mtp(trunk.shape)

    def loss(self, rows: Tensor) -> Tensor:
        """Mean loss over the depths; depth j predicts the token j + 1 after the one that it starts from."""
        hidden = self.trunk(rows[:, :-1])
        total = hidden.new_zeros(())
        for j in range(1, self.DEPTH + 1):
            hidden = self.mtp(self.trunk.embed(rows[:, j:-1]), hidden[:, : rows.shape[1] - 1 - j])
            total = total + nats(hidden, self.trunk.embed.weight, rows[:, j + 1 :])
        return total / self.DEPTH
