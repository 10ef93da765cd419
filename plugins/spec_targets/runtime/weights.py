"""Where a decoder's tensors come from: names of GGUF, float values, shapes checked before anything is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from spec_core.errors import UsageError
from spec_targets.runtime.config import ARCHS, Config


class Weights(Protocol):
    """Tensors of a model by GGUF name."""

    where: str
    neighbours: bool
    """Rows of q and k are stored so that neighbouring dimensions of a head rotate together, not its halves."""

    def names(self) -> Iterable[str]:
        """What is there under names of GGUF; nothing where another format names tensors."""

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Shape in torch order, None when there is no such tensor. Reads no values."""

    def load(self, name: str) -> Tensor:
        """Values as float32, or in the type they are stored in where that is a float type."""


def expected(config: Config, has: Weights) -> dict[str, tuple[int, ...]]:
    """Every tensor the model must have, with its shape; optional ones where the file has them."""
    c, d = config, config.width
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (c.vocab, d), "output_norm.weight": (d,)}
    shapes |= optional(has, {"output.weight": (c.vocab, d), "output.bias": (c.vocab,)})
    shapes |= optional(has, {f"{prefix}rope_freqs.weight": (c.turned // 2,) for prefix in ("", "blk.0.")})
    for i in range(c.layers):
        shapes |= {f"blk.{i}.{name}": shape for name, shape in _block(c, has, f"blk.{i}.").items()}
    return shapes


def optional(has: Weights, shapes: Mapping[str, tuple[int, ...]], prefix: str = "") -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in shapes.items() if has.shape(prefix + name) is not None}


def _block(c: Config, has: Weights, prefix: str) -> dict[str, tuple[int, ...]]:
    d, arch = c.width, ARCHS[c.arch]
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (d,),
        "ffn_norm.weight": (d,),
        "attn_output.weight": (d, c.heads * c.head),
    }
    shapes |= {name: (rows, d) for name, rows in _qkv(c, has, prefix, "weight").items()}
    biases = _qkv(c, has, prefix, "bias")
    if arch.biases or any(has.shape(prefix + name) is not None for name in biases):
        shapes |= {name: (rows,) for name, rows in biases.items()}
    if arch.qk_norm:
        shapes |= {"attn_q_norm.weight": (c.head,), "attn_k_norm.weight": (c.head,)}
    shapes |= optional(has, {"attn_output.bias": (d,)}, prefix)
    return shapes | (_experts(c, has, prefix) if c.experts else _dense(c))


def _qkv(c: Config, has: Weights, prefix: str, kind: str) -> dict[str, int]:
    """Rows of q, k and v by name: apart, or fused. Weights may be fused and biases apart."""
    q, kv = c.heads * c.head, c.kv_heads * c.head
    if has.shape(f"{prefix}attn_qkv.{kind}") is not None:
        return {f"attn_qkv.{kind}": q + 2 * kv}
    return {f"attn_q.{kind}": q, f"attn_k.{kind}": kv, f"attn_v.{kind}": kv}


def _dense(c: Config) -> dict[str, tuple[int, ...]]:
    return {"ffn_gate.weight": (c.ff, c.width), "ffn_up.weight": (c.ff, c.width), "ffn_down.weight": (c.width, c.ff)}


def _experts(c: Config, has: Weights, prefix: str) -> dict[str, tuple[int, ...]]:
    shapes = {"ffn_gate_inp.weight": (c.experts, c.width), "ffn_down_exps.weight": (c.experts, c.width, c.ff)}
    if has.shape(prefix + "ffn_gate_up_exps.weight") is not None:
        return shapes | {"ffn_gate_up_exps.weight": (c.experts, 2 * c.ff, c.width)}
    one = (c.experts, c.ff, c.width)
    return shapes | {"ffn_gate_exps.weight": one, "ffn_up_exps.weight": one}


def check(config: Config, has: Weights) -> dict[str, tuple[int, ...]]:
    """Raise UsageError for a tensor that is missing, of another shape, or read by nobody; returns what is expected."""
    shapes = expected(config, has)
    for name, wanted in shapes.items():
        found = has.shape(name)
        if found is None:
            raise UsageError(
                f"{has.where}: tensor {name!r} is missing", mend=f"a {config.arch} model needs it; get the file again"
            )
        if found != wanted:
            raise UsageError(
                f"{has.where}: tensor {name!r} has shape {list(found)}, {list(wanted)} was needed",
                mend="its metadata and its tensors do not belong together; get the file again",
            )
    for name in has.names():
        if name not in shapes and not _spare(name, config.layers):
            raise UsageError(
                f"{has.where}: tensor {name!r} is no part of the {config.arch} architecture as it is run here",
                mend="the text would be wrong without it; use a model without it",
            )
    return shapes


def _spare(name: str, layers: int) -> bool:
    """Tensors that a trunk does not need: further blocks, and scales of activations that stay floats."""
    block = re.match(r"blk\.(\d+)\.", name)
    return (block is not None and int(block[1]) >= layers) or name.endswith(".input_scale")


def nbytes(shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype) -> int:
    """Memory of all weights, loaded in ``dtype``."""
    total = 0
    for shape in shapes.values():
        n = dtype.itemsize
        for size in shape:
            n *= size
        total += n
    return total
