"""From tensors by name to a decoder."""

from __future__ import annotations

import torch
from spec_kernels.nn.build import BlockBuilder
from spec_kernels.nn.decoder import Decoder
from spec_kernels.nn.linear import Linear
from spec_kernels.nn.rotary import RotaryTable
from torch import Tensor

from spec_targets.runtime.config import Config
from spec_targets.runtime.weights import Weights, expected


def decoder(config: Config, weights: Weights, rotary: RotaryTable, dtype: torch.dtype, device: torch.device) -> Decoder:
    """The trunk: embedding, blocks, final norm, output matrix. Only tensors whose shapes were checked are found."""
    known = expected(config, weights)

    def find(name: str) -> Tensor | None:
        return weights.load(name) if name in known else None

    builder = BlockBuilder(config.block(weights.neighbours), find, dtype, device)
    embedding = builder.read("token_embd.weight")
    head = builder.maybe("output.weight")
    return Decoder(
        embedding=embedding,
        blocks=[builder.block(f"blk.{i}.", config.place(i)) for i in range(config.layers)],
        norm=builder.norm("output_norm.weight"),
        head=Linear(embedding if head is None else head, builder.maybe("output.bias")),
        rotary=rotary,
    )
