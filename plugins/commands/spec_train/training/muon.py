"""Muon (Jordan, 2024): steps along the momentum, with all its singular values brought near 1.

Like ``torch.optim.Muon``, but with a choice of dtype: torch does the Newton-Schulz iterations in bfloat16 even on
processors without instructions for it, where they took most of a training step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

QUINTIC = (3.4445, -4.7750, 2.0315)
"""Coefficients of an iteration, chosen for fast growth near 0 rather than convergence to exactly 1."""
ITERATIONS = 5
UPDATE_RMS = 0.2
"""Root mean square of an update, as AdamW's, so that its learning rates can be used (Liu et al., 2502.16982)."""


class Muon(torch.optim.Optimizer):
    """Optimizer for matrices. dtype: of the Newton-Schulz iterations."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, group)

    def _update(self, p: Tensor, grad: Tensor, group: dict) -> None:
        momentum = self.state[p].setdefault("momentum", torch.zeros_like(grad))
        momentum.lerp_(grad, 1 - group["momentum"])
        update = orthogonalize_matrix(grad.lerp(momentum, group["momentum"]).to(self.dtype))
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.add_(update.to(p.dtype), alpha=-group["lr"] * UPDATE_RMS * max(p.shape) ** 0.5)


def orthogonalize_matrix(x: Tensor) -> Tensor:
    """[M, N] close to U V' of x = U S V': its singular values are between about 0.7 and 1.2."""
    wide = x.mT if x.shape[0] > x.shape[1] else x
    wide = wide / wide.norm().clamp_min(1e-7)
    a, b, c = QUINTIC
    for _ in range(ITERATIONS):
        gram = wide @ wide.mT
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.mT if x.shape[0] > x.shape[1] else wide
