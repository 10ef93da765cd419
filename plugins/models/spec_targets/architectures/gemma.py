"""Gemma 2, and the text models of Gemma 3: norms on both sides of a layer, windows, caps of scores and logits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Add, Op

from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.names import ATTENTION, ENDS, MLP
from spec_targets.formats.stored_names import plus_one

NAMES = plus_one(
    ENDS
    | ATTENTION
    | MLP
    | {
        "post_attention_norm.weight": "post_attention_layernorm.weight",
        "ffn_norm.weight": "pre_feedforward_layernorm.weight",
        "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
    }
)
PATTERN2 = 2
"""Period of Gemma 2's attention, in blocks: the last block of a period attends to everything, the others have a
window."""
PATTERN3 = 6
"""Period of Gemma 3's attention, in blocks, as ``PATTERN2``."""
BY_WIDTH = {("gemma2", 46), ("gemma3", 62)}
"""Models of 27B, by their number of blocks: scores are scaled by the width of the model over its heads, which GGUF
files do not say."""
DEFAULTS: dict[str, Any] = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "query_pre_attn_scalar": 256,
    "rope_local_base_freq": 10000.0,
    "rope_theta": 1000000.0,
    "sliding_window": 4096,
    "vocab_size": 262208,
}
"""Defaults of transformers, for configs of Gemma 3 that leave them out."""
READ = ("layer_types", "hidden_act")


def from_gguf(keys: Keys, pattern: int, window: int | None, **more: Any) -> Config:
    layers, heads = keys.layers(), keys.integer("attention.head_count")
    width = keys.integer("embedding_length")
    by_width = (keys.arch, layers) in BY_WIDTH and heads > 0
    return keys.decoder(
        windows=keys.windows(keys.integer("attention.sliding_window", window), pattern),
        scale=(width / heads) ** -0.5 if by_width else 0.0,
        embed_scale=width**0.5 if width > 0 else 0.0,
        **more,
    )


def gemma2_from_gguf(keys: Keys) -> Config:
    return from_gguf(
        keys,
        PATTERN2,
        4096,
        score_cap=keys.number("attn_logit_softcapping", 50.0),
        logit_cap=keys.number("final_logit_softcapping", 30.0),
    )


def gemma3_from_gguf(keys: Keys) -> Config:
    logit_cap = keys.number("final_logit_softcapping", 0.0)
    return from_gguf(keys, PATTERN3, None, local_base=keys.number("rope.freq_base_swa", 10000.0), logit_cap=logit_cap)


def from_hf(json: ConfigJson, pattern: int, **more: Any) -> Config:
    json.refuse(attention_bias=(None, False), hidden_activation=("gelu_pytorch_tanh", None))
    return json.decoder(
        READ,
        windows=json.windows(pattern),
        scale=json.number("query_pre_attn_scalar", 256) ** -0.5,
        embed_scale=json.integer("hidden_size") ** 0.5,
        score_cap=_cap(json, "attn_logit_softcapping"),
        logit_cap=_cap(json, "final_logit_softcapping"),
        **more,
    )


def gemma2_from_hf(json: ConfigJson) -> Config:
    return from_hf(json, PATTERN2)


def gemma3_from_hf(json: ConfigJson) -> Config:
    """Config of Gemma 3; newer files have the rotary parameters of both kinds of blocks in one object."""
    raw = {**DEFAULTS, **json.raw}
    rope = raw.get("rope_parameters")
    if isinstance(rope, Mapping) and isinstance(rope.get("full_attention"), Mapping):
        local = rope.get("sliding_attention")
        raw["rope_parameters"] = rope["full_attention"]
        raw["rope_local_base_freq"] = local.get("rope_theta") if isinstance(local, Mapping) else None
    json = ConfigJson(raw, json.arch, json.kind, json.where)
    return from_hf(json, PATTERN3, local_base=json.number("rope_local_base_freq", 10000.0))


def _cap(json: ConfigJson, key: str) -> float:
    return json.number(key) if json.raw.get(key) is not None else 0.0


def _block(b: Builder, c: Config, norms: bool) -> Iterator[Op]:
    yield b.norm("x", "h", "attn_norm.weight")
    yield from b.attention(norms=norms, biases=False, residual=False)
    yield b.norm("h", "h", "post_attention_norm.weight")
    yield Add("x", "h", "x")
    yield b.norm("x", "h", "ffn_norm.weight")
    yield from b.mlp(c.ff, act="gelu", residual=False)
    yield b.norm("h", "h", "post_ffw_norm.weight")
    yield Add("x", "h", "x")


GEMMA2 = Family(
    name="gemma2",
    classes=("Gemma2ForCausalLM",),
    model_types=("gemma2",),
    gguf=gemma2_from_gguf,
    hf=gemma2_from_hf,
    block=lambda b, c, i: _block(b, c, norms=False),
    names=NAMES,
)
GEMMA3 = Family(
    name="gemma3",
    classes=("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
    model_types=("gemma3_text", "gemma3"),
    gguf=gemma3_from_gguf,
    hf=gemma3_from_hf,
    block=lambda b, c, i: _block(b, c, norms=True),
    names=NAMES,
)
