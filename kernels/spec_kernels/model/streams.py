"""Hyper-connections (mHC, 2512.24880) as operations: several residual streams, which every layer mixes.

``x`` holds the streams side by side. A layer reads a weighted sum of them, ``h``, and its result is added to each.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Linear, Norm, Op, StreamMix, StreamSum, StreamWeights, Weight
from spec_kernels.model.shapes import StreamShape


def read_streams(b: Builder, shape: StreamShape, name: str) -> Iterator[Op]:
    """``h``: the sum of the streams that a layer reads, by weights that follow from the streams.

    name: of the tensors ``_fn``, ``_base`` and ``_scale``; the first has a row for every weight.
    """
    width = shape.count * b.shape.width
    yield Norm("x", "flat", torch.ones(width), b.shape.eps)
    b.declare(f"{name}_fn.weight", (shape.weights, width))
    matrix = Weight(f"{b.prefix}{name}_fn.weight", shape.weights, width, wide=True)
    yield Linear("flat", ("mixing",), (matrix,), (None,))
    base, scale = b.vector(f"{name}_base.weight", shape.weights), b.vector(f"{name}_scale.weight", 3)
    yield StreamWeights("mixing", "mixing", shape, base, scale)
    yield StreamSum("x", "mixing", "h", shape.count)


def write_streams(shape: StreamShape) -> StreamMix:
    """The streams after a layer whose result is ``h``."""
    return StreamMix("x", "h", "mixing", shape.count)
