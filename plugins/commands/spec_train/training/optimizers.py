"""The optimizers of a training run, and the precision of its matrix products."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from spec_train.training.muon import Muon

MAX_GRADIENT_NORM = 1.0


def make_optimizers(
    model: nn.Module, lr: float, table: Callable[[str], bool] = lambda name: "embed" in name, table_share: float = 1.0
) -> list[torch.optim.Optimizer]:
    """Muon for matrices, AdamW for vectors and for tables of tokens.

    table: whether a parameter of this name is a table of tokens. table_share: factor of its learning rate.
    """
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    tables = [p for n, p in trained if table(n)]
    matrices = [p for n, p in trained if p.dim() == 2 and not table(n)]
    others = [p for n, p in trained if p.dim() != 2 and not table(n)]
    groups = [{"params": others, "share": 1.0}, {"params": tables, "share": table_share}]
    adam = torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
    if not matrices:
        return [adam]
    dtype = torch.bfloat16 if has_bfloat16(matrices[0].device) else torch.float32
    return [Muon(matrices, lr=lr, dtype=dtype), adam]


def optimizer_step(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> None:
    """One step along the accumulated gradients, whose norm is clipped to 1."""
    torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], MAX_GRADIENT_NORM)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def autocast(device: torch.device) -> torch.autocast:
    """Matrix products in bfloat16 if the device has instructions for them, else in float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=has_bfloat16(device))


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device has instructions for bfloat16 products; without them they are slower than float32."""
    of_cpu = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)  # not in every version of torch
    return torch.cuda.is_bf16_supported() if device.type == "cuda" else of_cpu()
