"""What every training here shares: optimisers, the clock, the course of the learning rate, checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import nn

from spec_train import place
from spec_train.muon import Muon

WARMUP, DECAY = 0.02, 0.6
"""Shares of the time in which the learning rate rises, and in which it falls to zero."""


def optimizers(
    model: nn.Module, lr: float, table: Callable[[str], bool] = lambda name: "embed" in name, slower: float = 1.0
) -> list[torch.optim.Optimizer]:
    """Muon for matrices, AdamW for vectors and for tables of tokens.

    table: whether a parameter of this name is one. slower: factor of its learning rate.
    """
    learning = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    tables = [p for n, p in learning if table(n)]
    matrices = [p for n, p in learning if p.dim() == 2 and not table(n)]
    others = [p for n, p in learning if p.dim() != 2 and not table(n)]
    groups = [{"params": others, "share": 1.0}, {"params": tables, "share": slower}]
    adam = torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
    if not matrices:
        return [adam]
    kind = torch.bfloat16 if has_bfloat16(matrices[0].device) else torch.float32
    return [Muon(matrices, lr=lr, kind=kind), adam]


@attrs.define
class Clock:
    """A time of ``minutes``; spent: seconds of it, those before an interruption included."""

    minutes: float
    spent: float = 0.0

    def shares(self) -> Iterator[float]:
        """What share of it is over, whenever asked, until it is."""
        began = time.monotonic() - self.spent
        while True:
            self.spent = time.monotonic() - began
            if self.spent >= 60 * self.minutes:
                return
            yield self.spent / (60 * self.minutes)


def rate(progress: float) -> float:
    """Factor of the learning rate at a share of the time: up, flat, down to zero."""
    if progress < WARMUP:
        return progress / WARMUP
    return min(1.0, max(0.0, (1 - progress) / DECAY))


def set_rate(opts: list[torch.optim.Optimizer], lr: float) -> None:
    for opt in opts:
        for group in opt.param_groups:
            group["lr"] = lr * group.get("share", 1.0)


def advance(model: nn.Module, opts: list[torch.optim.Optimizer]) -> None:
    """One step along gradients that were collected, no longer than 1."""
    torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
    for opt in opts:
        opt.step()
        opt.zero_grad(set_to_none=True)


def fast(device: torch.device) -> torch.autocast:
    """Products in bfloat16 where the device has instructions for them, else in float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=has_bfloat16(device))


def has_bfloat16(device: torch.device) -> bool:
    """Whether it has instructions for such products; without them they take longer than in float32."""
    of_cpu = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)  # not in every torch
    return torch.cuda.is_bf16_supported() if device.type == "cuda" else of_cpu()


def save(path: Path, model: nn.Module, opts: list[torch.optim.Optimizer], **more: Any) -> None:
    """A checkpoint. Raises UsageError for a full disk."""
    place.keep(path, {"model": model.state_dict(), "opts": [o.state_dict() for o in opts], **more})


def restore(path: Path, model: nn.Module, opts: list[torch.optim.Optimizer]) -> Mapping[str, Any] | None:
    """Put a checkpoint back; what was saved beside weights and optimisers, or None where there is none."""
    if not path.exists():
        return None
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    for opt, saved in zip(opts, state["opts"], strict=True):
        opt.load_state_dict(saved)
    return state
