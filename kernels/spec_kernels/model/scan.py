"""A Mamba-2 layer as operations (Dao and Gu, 2405.21060), as in Nemotron-H, Granite 4 H and Falcon-H1."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from spec_kernels.model.build import Builder
from spec_kernels.model.ops import GLU, Linear, Norm, Op, Scan
from spec_kernels.model.shapes import ScanShape


def scan_layer(b: Builder, shape: ScanShape, residual: bool = True) -> Iterator[Op]:
    """x + out(norm(scan(qkv) · silu(z))), with a norm of each group of heads if the file has its weight.

    Rows of ``ssm_in`` are z, x, B, C and the step of each head; the convolution's are x, B, C. They are read in the
    order C, B, x: queries, keys and values. residual: False: the result is ``h``, and ``x`` stays.
    """
    width, inner = b.shape.width, shape.value_width
    rows = 2 * inner + 2 * shape.key_width + shape.value_heads
    b.declare("ssm_in.weight", (rows, width))
    z, mixed, step = torch.arange(rows).split([inner, shape.channels, shape.value_heads])
    channels = _queries_first(shape)
    parts = {"z": z, "mix": mixed[channels], "step": step}
    weights = tuple(b.weight("ssm_in.weight", part) for part in parts.values())
    yield Linear("h", tuple(parts), weights, (None,) * 3)
    has_bias = b.has("ssm_conv1d.bias")
    yield Scan(
        *("mix", "step", "o"),
        shape=shape,
        conv=b.read("ssm_conv1d.weight", (shape.channels, shape.kernel))[channels].T.contiguous(),
        bias=b.vector("ssm_conv1d.bias", shape.channels)[channels] if has_bias else torch.zeros(shape.channels),
        rate=b.read_squeezed("ssm_a", (shape.value_heads,)),
        dt=b.vector("ssm_dt.bias", shape.value_heads),
        skip=b.read_squeezed("ssm_d", (shape.value_heads,)),
        layer=b.layer,
    )
    yield GLU("z", "o", "o")
    if b.has("ssm_norm.weight"):
        groups = shape.key_heads
        weight = b.read_squeezed("ssm_norm.weight", (groups, inner // groups)).flatten()
        yield Norm("o", "o", weight, b.shape.eps, groups)
    yield b.onto("o", "ssm_out", (width, inner), residual)


def _queries_first(shape: ScanShape) -> torch.Tensor:
    """int64 [C]: the stored channels x, B, C in the order C, B, x."""
    sizes = [shape.value_width, shape.key_width, shape.key_width]
    x, keys, queries = torch.arange(shape.channels).split(sizes)
    return torch.cat([queries, keys, x])
