"""A gated delta net layer (Yang et al., 2412.06464; as Qwen3-Next has it)."""

from __future__ import annotations

import torch
from torch import Tensor

from spec_kernels.nn.forward import Forward
from spec_kernels.nn.linear import Linear
from spec_kernels.nn.mlp import silu_
from spec_kernels.nn.norm import RMSNorm
from spec_kernels.nn.states import DeltaShape
from spec_kernels.nn.tiles import padded as padded_rows
from spec_kernels.ops.causal_conv import causal_conv
from spec_kernels.ops.gated_delta import gated_delta
from spec_kernels.ops.rowwise import rowwise

COLUMNS = 64
"""beta and the decay are computed in rows of a multiple of this, for the reason given at ``ops.gated_delta.WHOLE``."""


class GatedDeltaNet:
    """x + out(norm(delta(silu(conv(qkv)))) · silu(z)).

    project: D -> channels of q, k, v; z; beta; alpha, the last two padded to COLUMNS (``padded``)
    conv: float32 [W, C], the current input's weight last    rate, dt: float32 [Hv padded]; log decay is
    rate · softplus(alpha + dt)    norm: over Dv    layer: which layer of the pool is its own
    """

    def __init__(
        self,
        shape: DeltaShape,
        project: Linear,
        conv: Tensor,
        rate: Tensor,
        dt: Tensor,
        norm: RMSNorm,
        out: Linear,
        layer: int,
        eps: float = 1e-6,
    ) -> None:
        self.shape, self.project, self.conv, self.rate, self.dt = shape, project, conv, rate, dt
        self.norm, self.out, self.layer, self.eps = norm, out, layer, eps
        self.key_of = shape.key_of(conv.device)
        self.widths = [shape.channels, shape.value_width, len(rate), len(rate)]
        self.scale = torch.ones(2 * shape.key_heads, 1, device=conv.device)
        self.scale[: shape.key_heads] = shape.key_dim**-0.5

    def __call__(self, x: Tensor, normed: Tensor, forward: Forward) -> Tensor:
        """x, normed: [R, D] -> [R, D]"""
        shape, now = self.shape, forward.recurrence
        rows, heads = now.rows, shape.value_heads
        source, z, beta, alpha = self.project(normed).float()[:rows].split(self.widths, dim=1)
        mixed = rowwise(silu_, causal_conv(source, self.conv, now.pool.windows[self.layer], now.lineage))
        qk, v = mixed.split([2 * shape.key_width, shape.value_width], dim=1)
        q, k = self._unit(qk.view(rows, -1, shape.key_dim)).chunk(2, dim=1)
        v = v.view(rows, heads, shape.value_dim)
        g = (rowwise(_softplus, alpha + self.dt) * self.rate)[:, :heads]
        states = now.pool.matrices[self.layer]
        o, d = gated_delta(q, k, v, g, rowwise(torch.sigmoid_, beta)[:, :heads], states, now.lineage, self.key_of)
        now.record(source, k, d, g)
        y = self.norm(o).mul_(rowwise(silu_, z).view(o.shape)).flatten(1).to(x.dtype)
        return self.out.add(x, padded_rows(y))

    def _unit(self, heads: Tensor) -> Tensor:
        """x / sqrt(Σ x² + eps), queries divided by sqrt(Dk) too; operations that round alike in any shape."""
        length = torch.linalg.vector_norm(heads, dim=-1, keepdim=True)
        return heads * (self.scale / length.mul_(length).add_(self.eps).sqrt_())


def _softplus(x: Tensor) -> None:
    torch.ops.aten.softplus.out(x, out=x)


def padded(weight: Tensor) -> Tensor:
    """[Hv, ...] with zeros behind, up to a multiple of COLUMNS."""
    return torch.cat([weight, weight.new_zeros(-len(weight) % COLUMNS, *weight.shape[1:])])
