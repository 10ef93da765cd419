"""What every training here shares: optimisers, the course of the learning rate, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

WARMUP, DECAY = 0.02, 0.6
"""Shares of the time in which the learning rate rises, and in which it falls to zero."""


def optimizers(
    model: nn.Module, lr: float, table: Callable[[str], bool] = lambda name: "embed" in name, slower: float = 1.0
) -> list[torch.optim.Optimizer]:
    """Muon for matrices, AdamW for vectors and for tables of tokens. Without Muon AdamW for all.

    table: whether a parameter of this name is one. slower: factor of its learning rate.
    """
    learning = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    tables = [p for n, p in learning if table(n)]
    matrices = [p for n, p in learning if p.dim() == 2 and not table(n)]
    others = [p for n, p in learning if p.dim() != 2 and not table(n)]
    if not hasattr(torch.optim, "Muon"):
        matrices, others = [], [*matrices, *others]
    groups = [{"params": others, "share": 1.0}, {"params": tables, "share": slower}]
    adam = torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
    if not matrices:
        return [adam]
    muon = torch.optim.Muon(matrices, lr=lr, momentum=0.95, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    return [muon, adam]


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
    of_cpu = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)  # not in every torch
    able = torch.cuda.is_bf16_supported() if device.type == "cuda" else of_cpu()
    return torch.autocast(device.type, torch.bfloat16, enabled=able)


def save(path: Path, model: nn.Module, opts: list[torch.optim.Optimizer], **more: Any) -> None:
    """A checkpoint, written beside and put in place."""
    state = {"model": model.state_dict(), "opts": [o.state_dict() for o in opts], **more}
    part = path.with_name(path.name + ".part")
    try:
        torch.save(state, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def restore(path: Path, model: nn.Module, opts: list[torch.optim.Optimizer]) -> Mapping[str, Any] | None:
    """Put a checkpoint back; what was saved beside weights and optimisers, or None where there is none."""
    if not path.exists():
        return None
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    for opt, saved in zip(opts, state["opts"], strict=True):
        opt.load_state_dict(saved)
    return state
