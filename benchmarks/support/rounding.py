"""Rounding of weights: the step of every stored number, and weights rounded anew to another type.

``steps`` reads the steps of a file's blocks. ``rounded`` rounds to the nearest number of a type with the scales that
follow from the largest and the smallest number of a block; llama.cpp searches for slightly better scales. Blocks of 256
run over the ends of rows here, so that every matrix can be rounded to every type.
"""

from __future__ import annotations

import zlib

import torch
from spec_kernels.ops.dequant.bits import half_floats, numbers, scales_and_mins
from spec_kernels.ops.dequant.reference import TYPES
from torch import Tensor

FLOATS = ("F32", "F16", "BF16")


def steps(blocks: Tensor, type: str) -> Tensor:
    """Differences of neighbouring values, float32 [n]. blocks: uint8 [..., bytes of a row]."""
    b = blocks.reshape(-1, TYPES[type].bytes)
    if type in ("Q4_K", "Q5_K"):
        scales, _ = scales_and_mins(b[:, 4:16])
        each = half_floats(b[:, :2]) * scales.float()
    elif type == "Q6_K":
        each = half_floats(b[:, 208:]) * numbers(b[:, 192:208], torch.int8)
    else:
        each = half_floats(b[:, :2])
    return each.repeat_interleave(TYPES[type].elements // each.shape[1], 1).flatten()


def round_weights(weights: Tensor, type: str) -> tuple[Tensor, Tensor]:
    """Values that a type can have, and their steps, both of the shape of ``weights``, float32."""
    values, step = {"_0": _symmetric, "_1": _affine, "_K": _round_scales}[type[2:]](weights.float(), int(type[1]))
    return values.reshape(weights.shape), step.expand_as(values).reshape(weights.shape)


def _symmetric(weights: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """d * q in blocks of 32: of 8 bits by the largest amount, else the number of the largest amount is the lowest q."""
    x, low = weights.reshape(-1, 32), -(1 << bits - 1)
    top = x.abs().amax(1, keepdim=True) / 127 if bits == 8 else _extreme(x) / low
    return _levels(x, top.half().float(), low, -low - 1)


def _affine(weights: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """d * q + m in blocks of 32."""
    x, high = weights.reshape(-1, 32), (1 << bits) - 1
    low = x.amin(1, keepdim=True).half().float()
    values, step = _levels(x - low, ((x.amax(1, keepdim=True) - low) / high).half().float(), 0, high)
    return values + low, step


def _round_scales(weights: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Blocks of 256 whose 16 or 8 scales are rounded too: to 8 bits (Q6_K), or with minima to 6 bits."""
    if bits == 6:
        x = weights.reshape(-1, 16, 16)
        scale = _extreme(x) / -32
        unit = (_extreme(scale[..., 0])[..., None] / -128).half().float()
        return _levels(x, _levels(scale, unit, -128, 127)[0], -32, 31)
    x, high = weights.reshape(-1, 8, 32), (1 << bits) - 1
    low = -x.amin(2, keepdim=True).clamp_max(0)
    low = _levels(low, (low.amax(1, keepdim=True) / 63).half().float(), 0, 63)[0]
    scale = (x.amax(2, keepdim=True) + low).clamp_min(0) / high
    scale = _levels(scale, (scale.amax(1, keepdim=True) / 63).half().float(), 0, 63)[0]
    values, step = _levels(x + low, scale, 0, high)
    return values - low, step


def _extreme(x: Tensor) -> Tensor:
    """The number of the largest amount in the last dimension, with its sign."""
    return x.gather(-1, x.abs().argmax(-1, keepdim=True))


def _levels(x: Tensor, step: Tensor, low: int, high: int) -> tuple[Tensor, Tensor]:
    q = torch.where(step == 0, 0.0, x / torch.where(step == 0, 1.0, step)).round().clamp(low, high)
    return q * step, step.abs().expand_as(x)


class Rounded:
    """A source whose quantised matrices have other types: ``types`` gives one for a name, None keeps the file's."""

    def __init__(self, source, types) -> None:
        self.source, self.types = source, types

    def type(self, name: str) -> str:
        stored = self.source.type(name)
        return stored if stored in FLOATS else self.types(name) or stored

    def load(self, name: str) -> Tensor:
        return (
            self.source.load(name)
            if self.is_unchanged(name)
            else round_weights(self.source.load(name), self.type(name))[0]
        )

    def steps(self, name: str) -> Tensor:
        if not self.is_unchanged(name):
            return round_weights(self.source.load(name), self.type(name))[1]
        return steps(self.source.blocks(name), self.type(name))

    def is_unchanged(self, name: str) -> bool:
        return self.type(name) == self.source.type(name)

    def __getattr__(self, name: str):
        return getattr(self.source, name)


class Noisy:
    """Weights moved at random by at most half a step each: noise as large as that of rounding them."""

    def __init__(self, source: Rounded, seed: int) -> None:
        self.source, self.seed = source, seed

    def load(self, name: str) -> Tensor:
        stored = self.source.load(name)
        if self.source.type(name) in FLOATS:
            return stored
        draw = torch.Generator().manual_seed(zlib.crc32(f"{self.seed} {name}".encode()))
        moves = torch.rand(stored.numel(), generator=draw) - 0.5
        return stored + (moves * self.source.steps(name).flatten()).reshape(stored.shape)

    def __getattr__(self, name: str):
        return getattr(self.source, name)
