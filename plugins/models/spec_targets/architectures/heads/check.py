"""Checks of a head's tensors against its description."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from spec_core.errors import UsageError
from spec_targets.architectures.heads.head import Head
from spec_targets.architectures.heads.tensors import DAMAGED, HeadTensors

UNREAD = ("d2t", "t2d", "rope_freqs.weight", "transfer_ready")
"""Tensors that are read separately, or not needed."""


def check_tensors(head: Head, tensors: HeadTensors, unread: Collection[str] = ()) -> None:
    """Raise UsageError for a tensor that is missing, misshapen, unknown or not finite. unread: more names that are not
    read."""
    shapes = head.tensor_shapes()
    for name, needed in shapes.items():
        shape = tensors.shape(name)
        if shape is None:
            raise UsageError(
                f"{tensors.where}: tensor {name!r} is missing, this {head.kind} head needs it",
                hint="use a head whose files hold it, or one that this kind of head can read",
            )
        if shape != needed:
            raise UsageError(
                f"{tensors.where}: tensor {name!r} has shape {list(shape)}, {list(needed)} was needed", hint=DAMAGED
            )
    for name in tensors.names():
        if name not in shapes and name not in (*UNREAD, *unread):
            raise UsageError(
                f"{tensors.where}: tensor {name[:80]!r} is not part of an {head.kind} head as supported here",
                hint="its drafts would be wrong without it; use another head",
            )
    _check_finite(shapes, tensors)


def _check_finite(shapes: Mapping[str, tuple[int, ...]], tensors: HeadTensors) -> None:
    for name in shapes:
        if not bool(torch.isfinite(tensors.load(name)).all()):
            raise UsageError(
                f"{tensors.where}: tensor {name!r} has NaN or infinite numbers",
                hint="its training or conversion failed; use another head",
            )
