"""Checkpoints: weights, optimizer states and plain values in one file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from spec_train import output


def save_checkpoint(path: Path, model: nn.Module, optimizers: list[torch.optim.Optimizer], **values: Any) -> None:
    """Save a checkpoint. Raises UsageError if the disk is full."""
    state = {"model": model.state_dict(), "opts": [o.state_dict() for o in optimizers], **values}
    output.save_tensors(path, state)


def restore_checkpoint(
    path: Path, model: nn.Module, optimizers: list[torch.optim.Optimizer]
) -> Mapping[str, Any] | None:
    """Load a checkpoint into a model and its optimizers. Returns the values saved with it, None without a file."""
    if not path.exists():
        return None
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    for optimizer, saved in zip(optimizers, state["opts"], strict=True):
        optimizer.load_state_dict(saved)
    return state
