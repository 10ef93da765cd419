"""Kimi delta attention (KDA, 2510.26692) as operations: the gated delta rule with a decay of every channel."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Concat, Delta, Gate, Linear, Op
from spec_kernels.model.shapes import DeltaShape


def channel_delta(b: Builder, shape: DeltaShape, eps: float, floor: float = 0.0, residual: bool = True) -> Iterator[Op]:
    """x + out(norm(delta(q, k, v)) · sigmoid(gate)), where decays and the gate are products of two narrow matrices.

    A head has one rate and all of its channels a bias ``ssm_dt`` of their own. eps: of the unit length of q and k.
    floor: see ``Delta``. residual: False: the result is ``h``, and ``x`` stays.
    """
    width, narrow = b.shape.width, shape.key_dim
    widths = {"q": shape.key_width, "k": shape.key_width, "v": shape.value_width}
    inputs = [b.matrix(f"attn_{name}.weight", (n, width)) for name, n in widths.items()]
    beta = b.matrix("ssm_beta.weight", (shape.value_heads, width))
    yield Linear("h", (*widths, "beta"), (*inputs, beta), (None,) * 4)
    halves = tuple(b.matrix(f"ssm_{name}.weight", (narrow, width)) for name in ("f_a", "g_a"))
    yield Linear("h", ("f", "g"), halves, (None, None))
    yield b.linear("f", "alpha", "ssm_f_b", (shape.decays, narrow))
    yield b.linear("g", "gate", "ssm_g_b", (shape.value_width, narrow))
    yield Concat(tuple(widths), "mix")
    convs = [b.read_squeezed(f"ssm_conv1d_{name}.weight", (n, shape.kernel)) for name, n in widths.items()]
    yield Delta(
        *("mix", "beta", "alpha", "o"),
        shape=shape,
        conv=torch.cat(convs).T.contiguous(),
        rate=b.read_squeezed("ssm_a", (shape.value_heads,)).repeat_interleave(shape.key_dim),
        dt=b.vector("ssm_dt.bias", shape.decays),
        layer=b.layer,
        eps=eps,
        floor=floor,
    )
    yield b.norm("o", "o", "ssm_norm.weight", shape.value_dim)
    yield Gate("o", "gate", "o", "sigmoid")
    yield b.onto("o", "attn_output", (width, shape.value_width), residual)
