"""Gated feed-forward layers with gate and up in one product."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from spec_kernels.nn.linear import Linear
from spec_kernels.ops.rowwise import rowwise

if TYPE_CHECKING:
    from spec_kernels.nn.forward import Forward

silu_ = partial(F.silu, inplace=True)


class MlpScratch:
    """both: [R, 2 F], gate first; gate, up: its halves; inner: [R, F]"""

    __slots__ = ("both", "gate", "inner", "up")

    def __init__(self, rows: int, width: int, dtype: torch.dtype, device: torch.device) -> None:
        self.both = torch.empty(rows, 2 * width, dtype=dtype, device=device)
        self.gate, self.up = self.both.chunk(2, dim=1)
        self.inner = torch.empty(rows, width, dtype=dtype, device=device)


class GatedMLP:
    """x + down(silu(gate h) · up h)."""

    __slots__ = ("down", "gate_up", "width")

    def __init__(self, gate_up: Linear, down: Linear) -> None:
        """gate_up: D -> 2 F, gate first    down: F -> D"""
        self.gate_up, self.down = gate_up, down
        self.width = gate_up.weight.shape[1] // 2

    def __call__(self, x: Tensor, normed: Tensor, forward: Forward) -> Tensor:
        """x, normed: [R, D] -> [R, D]"""
        s = forward.scratch.mlp(self.width)
        self.gate_up(normed, out=s.both)
        rowwise(silu_, s.gate)
        torch.mul(s.gate, s.up, out=s.inner)
        return self.down.add(x, s.inner)
