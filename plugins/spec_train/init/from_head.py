"""A head that begins as another one: to go on with other data, or with more tokens that can be drafted."""

from __future__ import annotations

from pathlib import Path

import torch

from spec_core import load
from spec_core.errors import UsageError
from spec_train.pupils import Pupil

OUTPUT = "output.weight"


@torch.no_grad()
def follow(pupil: Pupil, path: Path, layers: int) -> None:
    """Take over the weights of a head's file. Rows of its output matrix go where the same tokens are drafted; those of
    other tokens stay the target's. layers: of the target. Raises UsageError for a head of another kind, size or source.
    """
    holder, shape = load(path, weights=False), pupil.head.shape
    head = holder.info.extras.get("head")
    if head is None or head.kind != shape.kind:
        raise UsageError(f"{path} is no {shape.kind} head", hint="give one of the kind that is trained")
    if (sources := head.sources(layers)) != shape.sources:
        hint = f"give --sources {','.join(map(str, sources))}"
        raise UsageError(f"{path} reads hidden states {sources}, not {shape.sources}", hint=hint)
    named = {name: holder.tensor(name).float() for name in holder.info.extras["tensors"]}
    for name, own in pupil.head.named_parameters():
        _take(path, own, name.replace("/", "."), named, pupil, head.d2t)


def _take(
    path: Path, own: torch.Tensor, name: str, named: dict[str, torch.Tensor], pupil: Pupil, d2t: torch.Tensor | None
) -> None:
    given = named.get(name)
    if name == OUTPUT and given is not None:
        _rows(own, given, pupil.lent.d2t, d2t)
    elif given is None or given.shape != own.shape:
        found = "none" if given is None else f"one of {tuple(given.shape)}"
        raise UsageError(
            f"{name} is of {tuple(own.shape)}, {path} has {found}", hint="give --layers, --heads and --ff of that head"
        )
    else:
        own.copy_(given)


def _rows(own: torch.Tensor, given: torch.Tensor, ids: torch.Tensor | None, given_ids: torch.Tensor | None) -> None:
    """ids: the token of every row; None: its own number."""
    ids = torch.arange(len(own)) if ids is None else ids.cpu()
    given_ids = torch.arange(len(given)) if given_ids is None else given_ids
    row = {int(token): i for i, token in enumerate(given_ids)}
    both = [(i, row[int(token)]) for i, token in enumerate(ids) if int(token) in row]
    here, there = (torch.tensor(x) for x in zip(*both, strict=True))
    own[here.to(own.device)] = given[there].to(own.device)
