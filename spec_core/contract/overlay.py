"""Other weights for rows of a partial forward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import torch
from attrs.validators import ge, instance_of
from torch import Tensor

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def _check_matrix(instance: Any, attribute: attrs.Attribute[Any], value: Tensor) -> None:
    check_floats(attribute.name, value)
    if value.dim() != 2:
        raise ValueError(f"{attribute.name} has {value.dim()} dimensions, a matrix was needed")


@attrs.frozen(eq=False)
class LowRank:
    """A product of two matrices that is added to a matrix W: W x becomes W x + scale · up (down x).

    down: [r, k], LoRA's A. up: [n, r], its B. scale: alpha / r.
    """

    down: Tensor = attrs.field(validator=_check_matrix)
    up: Tensor = attrs.field(validator=_check_matrix)
    scale: float = attrs.field(default=1.0, converter=float)

    def __attrs_post_init__(self) -> None:
        if len(self.down) != self.up.shape[1]:
            raise ValueError(f"down {list(self.down.shape)} and up {list(self.up.shape)} have different ranks")


def _copy(tensors: Mapping[str, Tensor | LowRank]) -> dict[str, Tensor | LowRank]:
    return dict(tensors)


def _check_tensors(instance: Any, attribute: attrs.Attribute[Any], tensors: Mapping[str, Tensor | LowRank]) -> None:
    for name, tensor in tensors.items():
        if isinstance(tensor, Tensor):
            check_floats(name, tensor)
        elif not isinstance(tensor, LowRank):
            raise ValueError(f"{name!r} is a {type(tensor).__name__}, a tensor or LowRank was needed")


@attrs.frozen(eq=False)
class Overlay:
    """Weights with which rows of a partial forward run in place of the target's.

    tensors: by the GGUF name of the target's own, such as ``blk.0.attn_q.weight``: a matrix, a bias, or a norm of heads
        in its place, or a ``LowRank`` that is added to a matrix. Rows of q and k are in the order of Hugging Face
        checkpoints. They may be on the device ``meta`` where shapes alone are checked.
    plain_rows: number of first rows of each sequence in a forward that run without it.
    both_ways: rows of one sequence in a forward see each other in both directions, in place of earlier ones only.
    """

    tensors: Mapping[str, Tensor | LowRank] = attrs.field(converter=_copy, validator=_check_tensors)
    plain_rows: int = attrs.field(default=0, validator=[instance_of(int), ge(0)], kw_only=True)
    both_ways: bool = attrs.field(default=False, validator=instance_of(bool), kw_only=True)


def check_floats(name: str, tensor: Tensor) -> None:
    """Raise ValueError for a tensor that holds no float32, float16 or bfloat16 numbers."""
    if tensor.dtype not in FLOATS:
        kind = str(tensor.dtype).removeprefix("torch.")
        raise ValueError(f"{name!r} is of type {kind}; float32, float16 and bfloat16 are possible")
