"""Initialises a head with the weights of another one: to continue with other data, or with more draftable tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from spec_core import load
from spec_core.errors import UsageError
from spec_train.heads.student import Student

OUTPUT = "output.weight"


@torch.no_grad()
def copy_weights(student: Student, path: Path, layers: int) -> None:
    """Copy the weights of a head's file. Rows of its output matrix go to the rows of the same tokens; the rows of other
    tokens stay the target's. layers: of the target. Raises UsageError for a head of another kind, size or source.
    """
    source: Any = load(path, weights=False)
    shape = student.head.shape
    head = getattr(source, "head", None)
    if head is None or head.kind != shape.kind:
        raise UsageError(f"{path} is not a head of kind {shape.kind}", hint="pass a head of the kind that is trained")
    if (sources := head.sources(layers)) != shape.sources:
        hint = f"pass --sources {','.join(map(str, sources))}"
        raise UsageError(f"{path} reads hidden states {sources}, not {shape.sources}", hint=hint)
    tensors = {name: source.tensor(name).float() for name in source.names}
    for name, weight in student.head.named_parameters():
        _copy(path, weight, name.replace("/", "."), tensors, student, head.d2t)


def _copy(
    path: Path,
    weight: torch.Tensor,
    name: str,
    tensors: dict[str, torch.Tensor],
    student: Student,
    d2t: torch.Tensor | None,
) -> None:
    other = tensors.get(name)
    if name == OUTPUT and other is not None:
        _copy_rows(weight, other, student.vocab.d2t, d2t)
    elif other is None or other.shape != weight.shape:
        shapes = "none" if other is None else f"one of {tuple(other.shape)}"
        raise UsageError(
            f"{name} is of {tuple(weight.shape)}, {path} has {shapes}",
            hint="pass --layers, --heads and --ff of that head",
        )
    else:
        weight.copy_(other)


def _copy_rows(
    weight: torch.Tensor, other: torch.Tensor, ids: torch.Tensor | None, other_ids: torch.Tensor | None
) -> None:
    """ids: the token of every row; None: row i is token i."""
    ids = torch.arange(len(weight)) if ids is None else ids.cpu()
    other_ids = torch.arange(len(other)) if other_ids is None else other_ids
    row = {int(token): i for i, token in enumerate(other_ids)}
    both = [(i, row[int(token)]) for i, token in enumerate(ids) if int(token) in row]
    here, there = (torch.tensor(x) for x in zip(*both, strict=True))
    weight[here.to(weight.device)] = other[there].to(weight.device)
