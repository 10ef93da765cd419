"""Where a decoder's tensors come from: names of GGUF, float values, shapes checked before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
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

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Shape in torch order, None when there is no such tensor. Reads no values."""

    def load(self, name: str) -> Tensor:
        """Values as float32, or in the type they are stored in where that is a float type."""


def expected(config: Config, has: Weights) -> dict[str, tuple[int, ...]]:
    """Every tensor the model must have, with its shape; optional ones where the file has them."""
    c, d = config, config.width
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (c.vocab, d), "output_norm.weight": (d,)}
    shapes |= optional(has, {"output.weight": (c.vocab, d), "output.bias": (c.vocab,)})
    for i in range(c.layers):
        shapes |= {f"blk.{i}.{name}": shape for name, shape in _block(c, has, f"blk.{i}.").items()}
    return shapes


def optional(has: Weights, shapes: Mapping[str, tuple[int, ...]], prefix: str = "") -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in shapes.items() if has.shape(prefix + name) is not None}


def _block(c: Config, has: Weights, prefix: str) -> dict[str, tuple[int, ...]]:
    d, q, kv, arch = c.width, c.heads * c.head, c.kv_heads * c.head, ARCHS[c.arch]
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (d,),
        "ffn_norm.weight": (d,),
        "attn_output.weight": (d, q),
    }
    rows = {"attn_q": q, "attn_k": kv, "attn_v": kv}
    if has.shape(prefix + "attn_qkv.weight") is not None:
        rows = {"attn_qkv": q + 2 * kv}
    for name, n in rows.items():
        shapes[f"{name}.weight"] = (n, d)
        if arch.biases or has.shape(f"{prefix}{name}.bias") is not None:
            shapes[f"{name}.bias"] = (n,)
    if arch.qk_norm:
        shapes |= {"attn_q_norm.weight": (c.head,), "attn_k_norm.weight": (c.head,)}
    shapes |= optional(has, {"attn_output.bias": (d,)}, prefix)
    return shapes | (_experts(c, has, prefix) if c.experts else _dense(c))


def _dense(c: Config) -> dict[str, tuple[int, ...]]:
    return {"ffn_gate.weight": (c.ff, c.width), "ffn_up.weight": (c.ff, c.width), "ffn_down.weight": (c.width, c.ff)}


def _experts(c: Config, has: Weights, prefix: str) -> dict[str, tuple[int, ...]]:
    shapes = {"ffn_gate_inp.weight": (c.experts, c.width), "ffn_down_exps.weight": (c.experts, c.width, c.ff)}
    if has.shape(prefix + "ffn_gate_up_exps.weight") is not None:
        return shapes | {"ffn_gate_up_exps.weight": (c.experts, 2 * c.ff, c.width)}
    one = (c.experts, c.ff, c.width)
    return shapes | {"ffn_gate_exps.weight": one, "ffn_up_exps.weight": one}


def check(config: Config, has: Weights) -> dict[str, tuple[int, ...]]:
    """Raise UsageError for the first tensor that is missing or of another shape; returns what is expected."""
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
    return shapes


def nbytes(shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype) -> int:
    """Memory of all weights, loaded in ``dtype``."""
    total = 0
    for shape in shapes.values():
        n = dtype.itemsize
        for size in shape:
            n *= size
        total += n
    return total
