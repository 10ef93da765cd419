"""What families with latent attention (MLA) share: its sizes and tensors in files, and feed-forward layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Op
from spec_kernels.model.shapes import LatentShape
from torch import Tensor

from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.keys import Keys
from spec_targets.formats.stored_names import Name, Stored, stored_as

EPS = 1e-6
"""Epsilon of the norms of latents in checkpoints, whatever their config says."""


def keys_of(value: Tensor, c: Config) -> Tensor:
    """The matrices of a head that turn its query into the latent's space, [H, rank, plain]."""
    return _per_head(value, c)[0].transpose(1, 2)


def values_of(value: Tensor, c: Config) -> Tensor:
    """The matrices of a head that make values of latents, [H, value, rank]."""
    return _per_head(value, c)[1]


def _per_head(value: Tensor, c: Config) -> tuple[Tensor, ...]:
    s = c.latent
    assert s is not None
    return value.view(c.heads, s.plain + s.value, s.rank).split([s.plain, s.value], 1)


LATENT_NAMES: dict[str, Name] = {
    "attn_q_a.weight": "self_attn.q_a_proj.weight",
    "attn_q_a_norm.weight": "self_attn.q_a_layernorm.weight",
    "attn_q_b.weight": "self_attn.q_b_proj.weight",
    "attn_kv_a_mqa.weight": "self_attn.kv_a_proj_with_mqa.weight",
    "attn_kv_a_norm.weight": "self_attn.kv_a_layernorm.weight",
    "attn_k_b.weight": stored_as("self_attn.kv_b_proj.weight", change=keys_of),
    "attn_v_b.weight": stored_as("self_attn.kv_b_proj.weight", change=values_of),
}
FUSED: dict[str, Stored] = {
    "attn_k_b.weight": stored_as("attn_kv_b.weight", change=keys_of),
    "attn_v_b.weight": stored_as("attn_kv_b.weight", change=values_of),
}
"""The tensor of older GGUF files that has both matrices of every head."""


def feed_forward(b: Builder, c: Config, i: int, x: str = "x") -> Iterator[Op]:
    """The norm and the feed-forward part of a block: dense in the first ones, else experts and shared ones.

    x: ``h``: the input of the norm, and the result, while ``x`` stays.
    """
    yield b.norm(x, "h", "ffn_norm.weight")
    limits = c.limits_of(i)
    if c.experts is None or i < c.dense:
        yield from b.mlp(c.ff, residual=x == "x", limit=limits[1])
    else:
        yield from b.mixture(c.experts, c.expert_ff, c.shared_ff, residual=x == "x", limits=limits)


def latent_in_keys(keys: Keys, queries: int = 0, older: bool = False) -> dict[str, Any]:
    """Fields of a Config on latents. queries: see ``LatentShape``. older: files may have widths without ``_mla``."""
    shared = keys.integer("rope.dimension_count")
    suffix = "" if older and f"{keys.arch}.attention.key_length_mla" not in keys.file.metadata else "_mla"
    key, value = (keys.integer(f"attention.{name}_length{suffix}") for name in ("key", "value"))
    shape = LatentShape(keys.integer("attention.kv_lora_rank"), shared, key - shared, value, queries)
    eps = keys.number("attention.layer_norm_rms_epsilon")
    return {"latent": shape, "kv_heads": 1, "head": shape.rank + shared, "inner_eps": eps}


def latent_in_json(json: ConfigJson, queries: int = 0) -> dict[str, Any]:
    """Fields of a Config on latents. queries: see ``LatentShape``."""
    shape = LatentShape(
        rank=json.integer("kv_lora_rank"),
        shared=json.integer("qk_rope_head_dim"),
        plain=json.integer("qk_nope_head_dim"),
        value=json.integer("v_head_dim"),
        queries=queries,
    )
    return {"latent": shape, "kv_heads": 1, "head": shape.rank + shape.shared, "inner_eps": EPS}
