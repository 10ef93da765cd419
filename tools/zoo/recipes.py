"""Initialisation of each model of the zoo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from tools.zoo import induction, transfer
from tools.zoo.hybrid import Hybrid, MtpOnFrozen
from tools.zoo.model import SHAPES, Distilled, Model

NAMES = (*SHAPES, "pico-draft-distilled", "pico-hybrid", "pico-hybrid-mtp")
"""Names in order of training: the draft model is distilled from ``pico``, the hybrid starts from it; MTP is last."""
TRANSFER = 0.08
"""Share of the hybrid's training time in which its delta nets learn to imitate attention."""


def begin(name: str, out: Path, batch: Callable[[], Tensor], minutes: float) -> nn.Module:
    """A model with ``loss(rows)``. batch: rows [B, T + 1] for the initialisation."""
    if name in SHAPES:
        model = Model(SHAPES[name])
        induction.start(model)
        return model
    if name == "pico-draft-distilled":
        teacher, student = (_train(out, shape) for shape in SHAPES)
        return Distilled(teacher, student)
    trunk = Hybrid()
    if name == "pico-hybrid":
        parent = _train(out, "pico")
        transfer.copy(parent, trunk)
        if not (out / "pico-hybrid.pt").exists():
            transfer.teach(parent, trunk, batch, minutes * TRANSFER)
        return trunk
    trunk.load_state_dict(_checkpoint(out / "pico-hybrid.pt"))
    model = MtpOnFrozen(trunk)
    transfer.start_mtp(trunk, model.mtp)
    return model


def _train(out: Path, name: str) -> Model:
    model = Model(SHAPES[name])
    model.load_state_dict(_checkpoint(out / f"{name}.pt"))
    return model


def _checkpoint(path: Path) -> dict[str, Tensor]:
    return torch.load(path, weights_only=True)["model"]
