"""Dense models of published sizes with random weights, for measurements and compilation: no file, no download."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Embed, Model, Op, Tap
from spec_kernels.model.shapes import BlockShape, HeadShape
from spec_targets.runtime.config import Config
from spec_targets.runtime.load import make_target
from torch import Tensor


@dataclass(frozen=True)
class DenseShape:
    """Sizes of a model of the Qwen3 family. tied: the embedding table is the output matrix."""

    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    dim: int
    inner: int
    vocab: int
    tied: bool = False

    @property
    def head_shape(self) -> HeadShape:
        return HeadShape(self.heads, self.kv_heads, self.dim, self.dim, self.dim**-0.5)

    @property
    def matrix_weights(self) -> int:
        """Weights that a row is multiplied with."""
        qkv = (self.heads + 2 * self.kv_heads) * self.dim
        layer = self.width * (qkv + self.heads * self.dim + 3 * self.inner)
        return self.layers * layer + self.width * self.vocab

    def cache_bytes(self, itemsize: int) -> int:
        """Bytes of keys and values of one position."""
        return 2 * self.layers * self.kv_heads * self.dim * itemsize


QWEN3_8B = DenseShape("Qwen3-8B", 36, 4096, 32, 8, 128, 12288, 151936)
QWEN3_06B = DenseShape("Qwen3-0.6B", 28, 1024, 16, 8, 128, 3072, 151936, tied=True)
TINY = DenseShape("tiny", 2, 64, 4, 2, 16, 96, 320)


class RandomWeights:
    """Tensors by GGUF name that keep the size of a row through all layers. Made anew at every ``load``."""

    where, interleaved = "random weights", False

    def __init__(self, shape: DenseShape, dtype: torch.dtype, device: str) -> None:
        self.of, self.dtype, self.device = shape, dtype, device

    def shape(self, name: str) -> tuple[int, ...] | None:
        s, part = self.of, name.split(".")[-2]
        q, kv = s.heads * s.dim, s.kv_heads * s.dim
        if name == "output.weight" and s.tied:
            return None
        shapes = {
            "token_embd": (s.vocab, s.width), "output": (s.vocab, s.width), "output_norm": (s.width,),
            "attn_norm": (s.width,), "ffn_norm": (s.width,), "attn_q": (q, s.width), "attn_k": (kv, s.width),
            "attn_v": (kv, s.width), "attn_q_norm": (s.dim,), "attn_k_norm": (s.dim,), "attn_output": (s.width, q),
            "ffn_gate": (s.inner, s.width), "ffn_up": (s.inner, s.width), "ffn_down": (s.width, s.inner),
        }  # fmt: skip
        return shapes.get(part) if name.endswith(".weight") else None

    def type(self, name: str) -> str:
        return {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}[self.dtype]

    def load(self, name: str) -> Tensor:
        shape = self.shape(name)
        if len(shape) == 1:
            return 1 + 0.1 * torch.randn(shape)
        scale = 1.0 if "token_embd" in name and not self.of.tied else shape[-1] ** -0.5
        return torch.empty(shape, dtype=self.dtype, device=self.device).normal_(0, scale)

    def names(self) -> list[str]:
        """No names: any tensor of the model can be asked for."""
        return []

    def nbytes(self, name: str) -> int:
        return math.prod(self.shape(name)) * self.dtype.itemsize

    def blocks(self, name: str) -> Tensor:
        raise NotImplementedError("random weights are floats")


def dense_model(shape: DenseShape, source: RandomWeights) -> Model:
    """The description of a model."""
    half = torch.arange(0, shape.dim, 2).float() / shape.dim
    return Model(
        tuple(_operations(shape, Builder(BlockShape(shape.width, shape.head_shape, 1e-6), source))), 1e6**-half
    )


def _operations(shape: DenseShape, b: Builder) -> Iterator[Op]:
    table = b.matrix("token_embd.weight", (shape.vocab, shape.width))
    yield Embed("x", table)
    for i in range(shape.layers):
        yield Tap("x", f"hidden.{i}")
        block = b.at(f"blk.{i}.", i)
        yield block.norm("x", "h", "attn_norm.weight")
        yield from block.attention()
        yield block.norm("x", "h", "ffn_norm.weight")
        yield from block.mlp(shape.inner)
    head = table if shape.tied else b.matrix("output.weight", (shape.vocab, shape.width))
    yield from b.output_ops("output_norm.weight", head)


def dense_target(shape: DenseShape, device: str, dtype: torch.dtype) -> Any:
    """A target of random weights without a tokenizer, on GPU kernels."""
    config = Config(
        arch="qwen3", name=f"{shape.name}, random", layers=shape.layers, width=shape.width, heads=shape.heads,
        kv_heads=shape.kv_heads, head=shape.dim, ff=shape.inner, vocab=shape.vocab, context=8192, eps=1e-6,
        rope_base=1e6, rotary_dim=shape.dim,
    )  # fmt: skip
    source = RandomWeights(shape, dtype, device)
    named = str(dtype).removeprefix("torch.")
    return make_target(config, source, None, device=device, dtype=named, kernels="gpu")
