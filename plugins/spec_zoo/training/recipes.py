"""How each model of the zoo begins before it is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from spec_zoo.training import induction, transfer
from spec_zoo.training.hybrid import Hybrid, MtpOnFrozen
from spec_zoo.training.model import SHAPES, Model

NAMES = (*SHAPES, "pico-hybrid", "pico-hybrid-mtp")
"""In this order: the hybrid begins as ``pico``, its MTP layer needs the trained hybrid."""
TRANSFER = 0.08
"""Share of the training time that the hybrid's delta nets spend on learning what attention did."""


def begin(name: str, out: Path, batch: Callable[[], Tensor], minutes: float) -> nn.Module:
    """A model with ``loss(rows)``. batch: rows [B, T + 1] to learn from before training proper."""
    if name in SHAPES:
        model = Model(SHAPES[name])
        induction.start(model)
        return model
    trunk = Hybrid()
    if name == "pico-hybrid":
        parent = Model(SHAPES["pico"])
        parent.load_state_dict(_checkpoint(out / "pico.pt"))
        transfer.copy(parent, trunk)
        if not (out / "pico-hybrid.pt").exists():
            transfer.teach(parent, trunk, batch, minutes * TRANSFER)
        return trunk
    trunk.load_state_dict(_checkpoint(out / "pico-hybrid.pt"))
    model = MtpOnFrozen(trunk)
    transfer.start_mtp(trunk, model.mtp)
    return model


def _checkpoint(path: Path) -> dict[str, Tensor]:
    return torch.load(path, weights_only=True)["model"]
