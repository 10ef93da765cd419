"""Dense models of published sizes with random weights, for measurements and compilation: no file, no download."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Embed, Model, Op, Tap
from spec_kernels.model.shapes import BlockShape, HeadShape
from spec_kernels.ops.dequant import TYPES, dequantize
from spec_targets.architectures.config import Config
from spec_targets.runtime.checkpoint import Checkpoint
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


class RandomBlocks(RandomWeights):
    """Random matrices in quantised blocks, equal at every reading."""

    def __init__(self, shape: DenseShape, types: dict[str, str], device: str) -> None:
        """types: of tensors by their part of a name, as ``attn_v``; of others: ``""``."""
        super().__init__(shape, torch.float32, device)
        self.types = types

    def type(self, name: str) -> str:
        if len(self.shape(name)) == 1:
            return "F32"
        return self.types.get(name.split(".")[-2], self.types[""])

    def load(self, name: str) -> Tensor:
        return super().load(name) if self.type(name) == "F32" else dequantize(self.blocks(name), self.type(name))

    def blocks(self, name: str) -> Tensor:
        seed = torch.Generator(self.device).manual_seed(zlib.crc32(name.encode()))
        return random_blocks(self.type(name), *self.shape(name), seed)


Q4_K_M = {"": "Q4_K", "attn_v": "Q6_K", "ffn_down": "Q6_K", "output": "Q6_K"}
"""Types of tensors in a file of that name, of some layers."""
STEPS = {
    "Q8_0": (74, None), "Q4_0": (4.6, None), "Q4_1": (4.6, -7.5), "Q5_0": (9.2, None), "Q5_1": (9.2, -15.5),
    "Q4_K": (166, 7.5), "Q5_K": (331, 15.5), "Q6_K": (1370, None), "MXFP4": (5.6, None),
}  # fmt: skip
"""The root mean square of random integers, times integer scales, and the minimum that centres them, over a scale."""


def random_blocks(type: str, n: int, k: int, seed: torch.Generator) -> Tensor:
    """Bytes as in a file, uint8 [n, bytes of a row], of weights of about 1 / sqrt(k)."""
    kind, (step, minimum), how = TYPES[type], STEPS[type], {"generator": seed, "device": seed.device}
    data = torch.randint(0, 256, (n, k // kind.elements, kind.bytes), dtype=torch.uint8, **how)
    scale = (0.5 + torch.rand(n, k // kind.elements, 1, **how)) * k**-0.5 / step
    if type == "MXFP4":
        data[..., :1] = (128 + scale.log2()).to(torch.uint8)
        return data.flatten(1)
    at = 208 if type == "Q6_K" else 0
    data[..., at : at + 2] = scale.half().view(torch.uint8)
    if minimum is not None:
        data[..., 2:4] = (scale * minimum).half().view(torch.uint8)
    return data.flatten(1)


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
    return make_target(Checkpoint(config, source), device=device, dtype=named, kernels="gpu")
