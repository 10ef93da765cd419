"""A decoder's tensors by GGUF name, as floats or blocks, with shapes checked before values are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol

from spec_kernels.model.ops import Op
from spec_kernels.model.source import Shape, ShapeRecorder
from torch import Tensor

from spec_core.errors import UsageError
from spec_targets.architectures.config import Config
from spec_targets.architectures.decoder import decoder, nextn_layer


class Weights(Protocol):
    """Tensors of a model by GGUF name."""

    where: str
    interleaved: bool
    """Whether rows of q and k are stored so that neighbouring dimensions of a head rotate together, not its halves."""

    def names(self) -> Iterable[str]:
        """All tensor names; empty if the format does not use GGUF names."""

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Shape in torch order, None if there is no such tensor. Reads no values."""

    def type(self, name: str) -> str:
        """Storage type, by GGUF's names. Reads no values."""

    def load(self, name: str) -> Tensor:
        """Values as float32, or in their stored type if that is a float type."""

    def nbytes(self, name: str) -> int:
        """Bytes of its values as stored."""

    def blocks(self, name: str) -> Tensor:
        """The bytes of a matrix as stored, uint8 [rows, bytes of a row]."""


def trunk_shapes(config: Config, weights: Weights) -> dict[str, Shape]:
    """Every tensor that the trunk reads, with its shape; optional ones if the file has them."""
    return record_trunk(config, weights)[1]


def record_trunk(
    config: Config, weights: Weights, compare: Callable[[str, Shape | None, Shape], None] | None = None
) -> tuple[tuple[Op, ...], dict[str, Shape]]:
    """The operations of the trunk without values, and the shapes that they read. compare: see ``ShapeRecorder``."""
    recorder = ShapeRecorder(weights, compare)
    return decoder(config, recorder, weights.interleaved), recorder.wanted


def check_tensors(config: Config, weights: Weights) -> tuple[tuple[Op, ...], dict[str, Shape]]:
    """The operations of the trunk without values, and the shapes that they read.

    Raises UsageError for a missing, misshapen or unused tensor.
    """

    def compare(name: str, shape: Shape | None, needed: Shape) -> None:
        if shape is None:
            raise UsageError(
                f"{weights.where}: tensor {name!r} is missing",
                hint=f"a {config.arch} model needs it; get the file again",
            )
        if shape != needed:
            raise UsageError(
                f"{weights.where}: tensor {name[:80]!r} has shape {list(shape)}, {list(needed)} was needed",
                hint="its metadata and its tensors do not belong together; get the file again",
            )

    ops, shapes = record_trunk(config, weights, compare)
    for name in weights.names():
        if name not in shapes and not _is_spare(name, config):
            raise UsageError(
                f"{weights.where}: tensor {name[:80]!r} is not part of the {config.arch} architecture "
                "as supported here",
                hint="the text would be wrong without it; use a model without it",
            )
    return ops, shapes


class TensorMismatch(Exception):
    """The first fault in the tensors of a layer that a model can do without."""


IN_BLOCKS = ("attn_norm", "attn_output", "nextn.eh_proj")
"""Every block has one of these tensors, also without a norm before attention. A directory cannot list GGUF's names."""


def has_block(number: int, weights: Weights) -> bool:
    """Whether there are tensors of a block."""
    prefix = f"blk.{number}."
    stored = any(weights.shape(f"{prefix}{name}.weight") is not None for name in IN_BLOCKS)
    return stored or any(name.startswith(prefix) for name in weights.names())


def nextn(config: Config, weights: Weights, depth: int = 0) -> dict[str, Shape]:
    """Every tensor of a block after the trunk, which predicts further ahead. Raises TensorMismatch.

    depth: how many such blocks are before it.
    """

    def compare(name: str, shape: Shape | None, needed: Shape) -> None:
        if shape is None:
            raise TensorMismatch(f"{weights.where}: tensor {name!r} of the NextN layer is missing")
        if shape != needed:
            raise TensorMismatch(
                f"{weights.where}: tensor {name!r} of the NextN layer is {list(shape)}, {list(needed)} was needed"
            )

    recorder = ShapeRecorder(weights, compare)
    nextn_layer(config, recorder, weights.interleaved, depth)
    return recorder.wanted


def _is_spare(name: str, config: Config) -> bool:
    """Whether a trunk does not need this tensor: further blocks, scales of activations that stay floats, and keys and
    values of blocks that read other blocks'."""
    block = re.match(r"blk\.([0-9]{1,9})\.(.*)", name)
    if block is None:
        return name.endswith(".input_scale")
    i, unused = int(block[1]), block[2].startswith(("attn_k.", "attn_v.", "attn_k_norm."))
    return i >= config.layers or name.endswith(".input_scale") or (unused and i >= config.owners)
