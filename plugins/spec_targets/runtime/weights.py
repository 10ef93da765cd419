"""A decoder's tensors by GGUF name, as floats or blocks, with shapes checked before values are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Protocol

from torch import Tensor

from spec_core.errors import UsageError
from spec_targets.runtime.config import Config


class Weights(Protocol):
    """Tensors of a model by GGUF name."""

    where: str
    interleaved: bool
    """Whether rows of q and k are stored so that neighbouring dimensions of a head rotate together, not its halves."""

    def names(self) -> Iterable[str]:
        """All tensor names; empty if the format does not use GGUF names."""

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Shape in torch order, None if there is no such tensor. Reads no values."""

    def type(self, name: str) -> str:
        """Storage type, by GGUF's names. Reads no values."""

    def load(self, name: str) -> Tensor:
        """Values as float32, or in their stored type if that is a float type."""

    def nbytes(self, name: str) -> int:
        """Bytes of its values as stored."""

    def blocks(self, name: str) -> Tensor:
        """The bytes of a matrix as stored, uint8 [rows, bytes of a row]."""


def expected(config: Config, has: Weights) -> dict[str, tuple[int, ...]]:
    """Every tensor the trunk must have, with its shape; optional ones if the file has them."""
    c, d = config, config.width
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (c.vocab, d), "output_norm.weight": (d,)}
    shapes |= optional(has, {"output.weight": (c.vocab, d), "output.bias": (c.vocab,)})
    shapes |= optional(has, {f"{prefix}rope_freqs.weight": (c.rotary_dim // 2,) for prefix in ("", "blk.0.")})
    for i in range(c.layers):
        shapes |= block(c, has, i)
    return shapes


def optional(has: Weights, shapes: Mapping[str, tuple[int, ...]], prefix: str = "") -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in shapes.items() if has.shape(prefix + name) is not None}


def block(c: Config, has: Weights, i: int) -> dict[str, tuple[int, ...]]:
    """Tensors of block i, of the trunk or after it, by full name."""
    prefix = f"blk.{i}."
    shapes: dict[str, tuple[int, ...]] = {"attn_norm.weight": (c.width,), f"{c.facts.feed_norm}.weight": (c.width,)}
    shapes |= _delta(c) if i in c.recurrent else _attention(c, has, prefix)
    shapes |= _experts(c, has, prefix) if c.experts and i >= c.dense else _dense(c)
    return {prefix + name: shape for name, shape in shapes.items()}


def nextn(c: Config, has: Weights, i: int) -> dict[str, tuple[int, ...]]:
    """Tensors of a block after the trunk that predicts further ahead (DeepSeek-V3, 2412.19437, section 2.2)."""
    d, prefix = c.width, f"blk.{i}.nextn."
    own = {"eh_proj.weight": (d, 2 * d), "enorm.weight": (d,), "hnorm.weight": (d,)}
    shared = {
        "shared_head_norm.weight": (d,),
        "embed_tokens.weight": (c.vocab, d),
        "shared_head_head.weight": (c.vocab, d),
    }
    named = {prefix + name: shape for name, shape in (own | optional(has, shared, prefix)).items()}
    if f"{prefix}shared_head_norm.weight" not in named:
        named["output_norm.weight"] = (d,)
    return block(c, has, i) | named


def _attention(c: Config, has: Weights, prefix: str) -> dict[str, tuple[int, ...]]:
    d = c.width
    shapes: dict[str, tuple[int, ...]] = {"attn_output.weight": (d, c.heads * c.head)}
    shapes |= {name: (rows, d) for name, rows in _qkv(c, has, prefix, "weight").items()}
    biases = {} if c.facts.gated else _qkv(c, has, prefix, "bias")  # q includes the gate's rows, which have no bias
    if c.facts.biases or any(has.shape(prefix + name) is not None for name in biases):
        shapes |= {name: (rows,) for name, rows in biases.items()}
    norms = {"attn_q_norm.weight": (c.head,), "attn_k_norm.weight": (c.head,)}
    if c.facts.qk_norm or (c.facts.qk_norm is None and optional(has, norms, prefix)):
        shapes |= norms
    return shapes | optional(has, {"attn_output.bias": (d,)}, prefix)


def _qkv(c: Config, has: Weights, prefix: str, kind: str) -> dict[str, int]:
    """Rows of q, k and v by name, separate or fused. Weights may be fused while biases are separate."""
    q, kv = c.heads * c.head, c.kv_heads * c.head
    if has.shape(f"{prefix}attn_qkv.{kind}") is not None and not c.facts.gated:
        return {f"attn_qkv.{kind}": q + 2 * kv}
    return {f"attn_q.{kind}": 2 * q if c.facts.gated else q, f"attn_k.{kind}": kv, f"attn_v.{kind}": kv}


def _delta(c: Config) -> dict[str, tuple[int, ...]]:
    d, s = c.width, c.delta
    rates: dict[str, tuple[int, ...]] = {"ssm_ba.weight": (2 * s.value_heads, d)}
    if c.facts.tiled:
        rates = {"ssm_beta.weight": (s.value_heads, d), "ssm_alpha.weight": (s.value_heads, d)}
    return rates | {
        "attn_qkv.weight": (s.channels, d),
        "attn_gate.weight": (s.value_width, d),
        "ssm_conv1d.weight": (s.channels, s.kernel),
        "ssm_a": (s.value_heads,),
        "ssm_dt.bias": (s.value_heads,),
        "ssm_norm.weight": (s.value_dim,),
        "ssm_out.weight": (d, s.value_width),
    }


def _dense(c: Config) -> dict[str, tuple[int, ...]]:
    return {"ffn_gate.weight": (c.ff, c.width), "ffn_up.weight": (c.ff, c.width), "ffn_down.weight": (c.width, c.ff)}


def _experts(c: Config, has: Weights, prefix: str) -> dict[str, tuple[int, ...]]:
    n, f = c.experts.count, c.expert_ff
    shapes: dict[str, tuple[int, ...]] = {"ffn_gate_inp.weight": (n, c.width), "ffn_down_exps.weight": (n, c.width, f)}
    if has.shape(prefix + "ffn_gate_up_exps.weight") is not None:
        shapes["ffn_gate_up_exps.weight"] = (n, 2 * f, c.width)
    else:
        shapes |= {"ffn_gate_exps.weight": (n, f, c.width), "ffn_up_exps.weight": (n, f, c.width)}
    if c.facts.sigmoid:
        shapes |= optional(has, {"exp_probs_b.bias": (n,)}, prefix)
    return shapes | (_shared(c, has, prefix) if c.shared_ff else {})


def _shared(c: Config, has: Weights, prefix: str) -> dict[str, tuple[int, ...]]:
    f, name = c.shared_ff, "ffn_gate_inp_shexp.weight"
    shapes: dict[str, tuple[int, ...]] = {
        "ffn_gate_shexp.weight": (f, c.width),
        "ffn_up_shexp.weight": (f, c.width),
        "ffn_down_shexp.weight": (c.width, f),
    }
    if c.facts.shared_gate:
        flat = has.shape(prefix + name) == (c.width,)
        shapes[name] = (c.width,) if flat else (1, c.width)
    return shapes


def check(config: Config, has: Weights) -> dict[str, tuple[int, ...]]:
    """Raise UsageError for a missing, misshapen or unused tensor; returns the expected ones."""
    shapes = expected(config, has)
    for name, wanted in shapes.items():
        found = has.shape(name)
        if found is None:
            raise UsageError(
                f"{has.where}: tensor {name!r} is missing", hint=f"a {config.arch} model needs it; get the file again"
            )
        if found != wanted:
            raise UsageError(
                f"{has.where}: tensor {name[:80]!r} has shape {list(found)}, {list(wanted)} was needed",
                hint="its metadata and its tensors do not belong together; get the file again",
            )
    for name in has.names():
        if name not in shapes and not _spare(name, config.layers):
            raise UsageError(
                f"{has.where}: tensor {name[:80]!r} is not part of the {config.arch} architecture as supported here",
                hint="the text would be wrong without it; use a model without it",
            )
    return shapes


def _spare(name: str, layers: int) -> bool:
    """Whether a trunk does not need this tensor: further blocks, and scales of activations that stay floats."""
    block = re.match(r"blk\.([0-9]{1,9})\.", name)
    return (block is not None and int(block[1]) >= layers) or name.endswith(".input_scale")
