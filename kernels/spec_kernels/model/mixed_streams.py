"""Hyper-connections (mHC, 2512.24880) in plain torch, with equal bits for every number of rows."""

from __future__ import annotations

import torch
from torch import Tensor

from spec_kernels.model.activations import sigmoid
from spec_kernels.model.shapes import StreamShape
from spec_kernels.ops.rowwise import rowwise


def stream_weights(x: Tensor, shape: StreamShape, base: Tensor, scale: Tensor) -> Tensor:
    """[R, 2 n + n²] -> weights of the same shape, see ``StreamWeights``; float32."""
    sizes = [shape.count, shape.count, shape.count**2]
    pre, post, mix = (
        part * by + own for part, by, own in zip(x.float().split(sizes, 1), scale, base.split(sizes), strict=True)
    )
    return torch.cat([sigmoid(pre) + shape.eps, sigmoid(post) * 2, _balance(mix, shape).flatten(1)], 1)


def _balance(mix: Tensor, shape: StreamShape) -> Tensor:
    """[R, n²] -> [R, n, n] with rows and columns that add up to 1."""
    matrices = mix.unflatten(1, (shape.count, shape.count))
    weights = rowwise(torch.exp_, (matrices - matrices.amax(2, keepdim=True)).flatten(1)).view_as(matrices)
    weights = weights / _add(weights, 2) + shape.eps
    for turn in range(2 * shape.rounds - 1):
        weights = weights / (_add(weights, 1 + turn % 2) + shape.eps)
    return weights


def _add(matrices: Tensor, dim: int) -> Tensor:
    """Sums over a dimension, which stays, one number after another."""
    total, *rest = matrices.split(1, dim)
    for more in rest:
        total = total + more
    return total


def sum_streams(x: Tensor, weights: Tensor | None, count: int) -> Tensor:
    """[R, n · W] -> [R, W], see ``StreamSum``."""
    streams = x.unflatten(1, (count, -1))
    total = torch.zeros_like(streams[:, 0])
    for i in range(count):
        total = total + streams[:, i] * (1 / count if weights is None else weights[:, i, None].to(x.dtype))
    return total


def mix_streams(x: Tensor, y: Tensor, weights: Tensor, count: int) -> Tensor:
    """[R, n · W] -> the mixed streams with the result of a layer [R, W], see ``StreamMix``."""
    streams, own = x.unflatten(1, (count, -1)), weights.to(x.dtype)
    mixed = []
    for i in range(count):
        total = y * own[:, count + i, None]
        for j in range(count):
            total = total + streams[:, j] * own[:, 2 * count + j * count + i, None]
        mixed.append(total)
    return torch.cat(mixed, 1)
