"""Muon (Jordan, 2024): momentum whose singular values are all brought near 1 before it is followed.

As ``torch.optim.Muon``, which does the products of its Newton-Schulz steps in bfloat16 also where the processor has no
instructions for it: there they took most of a training step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

QUINTIC = (3.4445, -4.7750, 2.0315)
"""Coefficients of a step, chosen for speed near 0 rather than to end at exactly 1."""
STEPS = 5
LIKE_ADAM = 0.2
"""Root mean square of an update, which is that of AdamW: its learning rates fit (Liu et al., 2502.16982)."""


class Muon(torch.optim.Optimizer):
    """For matrices. kind: the type in which they are made orthogonal."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        kind: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.kind = kind

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._follow(p, p.grad, group)

    def _follow(self, p: Tensor, grad: Tensor, group: dict) -> None:
        momentum = self.state[p].setdefault("momentum", torch.zeros_like(grad))
        momentum.lerp_(grad, 1 - group["momentum"])
        update = orthogonal(grad.lerp(momentum, group["momentum"]).to(self.kind))
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.add_(update.to(p.dtype), alpha=-group["lr"] * LIKE_ADAM * max(p.shape) ** 0.5)


def orthogonal(x: Tensor) -> Tensor:
    """[M, N]: near U V' of x = U S V'; singular values end between about 0.7 and 1.2."""
    wide = x.mT if x.shape[0] > x.shape[1] else x
    wide = wide / wide.norm().clamp_min(1e-7)
    a, b, c = QUINTIC
    for _ in range(STEPS):
        gram = wide @ wide.mT
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.mT if x.shape[0] > x.shape[1] else wide
