"""Functions of single numbers, with equal bits for every number of rows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from spec_kernels.model.ops import Activation
from spec_kernels.ops.rowwise import rowwise

LIMIT, ALPHA = 7.0, 1.702
"""Constants of the clamped gated unit (gpt-oss)."""


def silu(x: Tensor) -> Tensor:
    return rowwise(lambda rows: F.silu(rows, inplace=True), x.clone())


def sigmoid(x: Tensor) -> Tensor:
    return rowwise(torch.sigmoid_, x.clone())


def tanh(x: Tensor) -> Tensor:
    return rowwise(torch.tanh_, x.clone())


def gelu(x: Tensor) -> Tensor:
    """GELU by the tanh formula."""
    return rowwise(lambda rows: torch.ops.aten.gelu.out(rows, approximate="tanh", out=rows), x.clone())


def softplus(x: Tensor) -> Tensor:
    return rowwise(lambda rows: torch.ops.aten.softplus.out(rows, out=rows), x.clone())


def glu(act: Activation, gate: Tensor, up: Tensor, limit: float = 0.0) -> Tensor:
    """act(gate) · up; the formulas are in ``Activation``. limit: see ``GLU``."""
    if limit:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    if act == "gelu":
        return gelu(gate) * up
    if act == "clamped":
        gate, up = gate.clamp(max=LIMIT), up.clamp(-LIMIT, LIMIT)
        return gate * sigmoid(gate * ALPHA) * (up + 1)
    if act == "relu":
        return gate.clamp(min=0) * up
    return silu(gate) * up
