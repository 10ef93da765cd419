"""Matrices of experts that a checkpoint stores as ``NAME_blocks`` and ``NAME_scales`` (gpt-oss)."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import torch
from spec_kernels.ops.dequant import dequantize
from torch import Tensor

from spec_core.errors import UsageError
from spec_targets.formats.safetensors import StoredTensor

BYTES = 16
"""Bytes of the codes of a block of 32 numbers."""


@attrs.frozen(eq=False)
class Mxfp4:
    """An MXFP4 tensor, with the shape that it has as floats: [experts, inputs, outputs].

    codes: uint8 [experts, outputs, blocks, 16]; byte i has elements 2 i and 2 i + 1 of a block.
    scales: uint8 [experts, outputs, blocks]; a number is 2^(scale - 127) times the value of its code.
    """

    name: str
    codes: StoredTensor
    scales: StoredTensor
    type: str = "MXFP4"

    @property
    def shape(self) -> tuple[int, ...]:
        experts, outputs, count, _ = self.codes.shape
        return experts, 2 * BYTES * count, outputs

    def load(self) -> Tensor:
        """float32"""
        blocks = self.blocks().mT
        return dequantize(blocks.flatten(0, 1), self.type).view(*blocks.shape[:2], -1).mT

    def blocks(self) -> Tensor:
        """Blocks of GGUF's order, uint8 [experts, bytes of the inputs, outputs]: an exponent, then bytes whose low
        halves are the first 16 elements."""
        codes = self.codes.load()
        elements = torch.stack([codes & 15, codes >> 4], -1).flatten(-2)
        bytes_ = elements[..., :BYTES] | elements[..., BYTES:] << 4
        return torch.cat([self.scales.load().unsqueeze(-1), bytes_], -1).flatten(2).mT


def join_scales(tensors: Mapping[str, StoredTensor], where: str) -> dict[str, Mxfp4]:
    """All MXFP4 tensors by their names as floats. Raises UsageError for codes and scales that do not fit together."""
    matrices = {}
    for name, codes in tensors.items():
        stem, scales = name.removesuffix("_blocks"), tensors.get(f"{name.removesuffix('_blocks')}_scales")
        if stem == name or scales is None:
            continue
        fit = len(codes.shape) == 4 and codes.shape[3] == BYTES and codes.shape[:3] == scales.shape
        if not fit or (codes.type, scales.type) != ("U8", "U8"):
            raise UsageError(
                f"{where}: tensor {name[:80]!r} is {codes.type} {list(codes.shape)}, its scales are {scales.type} "
                f"{list(scales.shape)}; U8 [experts, rows, blocks, {BYTES}] and U8 [experts, rows, blocks] were needed",
                hint="the file is damaged; get it again",
            )
        matrices[stem] = Mxfp4(stem, codes, scales)
    return matrices
