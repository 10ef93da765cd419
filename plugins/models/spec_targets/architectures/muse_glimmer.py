"""Muse Glimmer's text model: norms without weights of embeddings, q and k, a gate of attention, and rotation in blocks
with a window alone.

Norms stand on both sides of a layer, as in Gemma 3; those after a branch have an epsilon of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Add, Attend, Gate, Norm, Op, Store

from spec_core.errors import UsageError
from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.names import ATTENTION, ENDS, MLP
from spec_targets.formats.stored_names import Name, plus_one

PATTERN = 4
"""Period of attention, in blocks: the last block of a period has no window. The trunk ends with a whole period."""
POST_EPS = 1e-8
"""Epsilon of norms after a branch in GGUF files, which do not say it."""
QUERY_FACTOR = 3.87
"""Factor of normalised queries, where the config does not say."""
OWN: dict[str, Name] = {
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "pre_feedforward_layernorm.weight",
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
    "attn_gate.weight": "self_attn.gate_proj.weight",
}


def from_gguf(keys: Keys) -> Config:
    """A factor of queries is in ``attn_q_norm``."""
    layers, window = keys.layers(), keys.integer("attention.sliding_window")
    local = keys.flags("attention.sliding_window_pattern", layers) or _usual(layers)
    return keys.decoder(
        windows=tuple(window if one else 0 for one in local),
        still=True,
        inner_eps=POST_EPS,
        logit_scale=keys.number("logit_scale", 1.0),
        logit_cap=keys.number("final_logit_softcapping", 0.0),
    )


def _usual(layers: int) -> list[bool]:
    """Which blocks have a window, where a file does not say."""
    return [(layers - 1 - i) % PATTERN != 0 for i in range(layers)]


def from_hf(json: ConfigJson) -> Config:
    json.refuse(attention_bias=(None, False), hidden_activation=("silu", None))
    layers, window = json.layers(), json.integer("sliding_window", 2048)
    kinds = json.kinds(layers, {"full_attention", "sliding_attention"})
    local = [kind == "sliding_attention" for kind in kinds] if kinds else _usual(layers)
    config = json.decoder(
        ("layer_types",),
        windows=tuple(window if one else 0 for one in local),
        still=True,
        inner_eps=json.number("post_norm_eps", POST_EPS),
        logit_scale=json.number("output_multiplier", 1.0),
        logit_cap=json.number("final_logit_softcapping", 20.0),
        scale=json.number("qk_scale_factor", QUERY_FACTOR) * json.integer("head_dim") ** -0.5,
    )
    _check_rotation(json, local, config.rope_base)
    return config


def _check_rotation(json: ConfigJson, local: list[bool], base: float) -> None:
    """Refuse bases by block other than one for blocks with a window, and 0, no rotation, for the others."""
    listed, needed = json.raw.get("layer_rope_theta"), [base if one else 0 for one in local]
    if listed is not None and listed != needed:
        raise UsageError(
            f"{json.where}: config.json has layer_rope_theta = {str(listed)[:60]}",
            hint=f"{base} is needed in blocks with a window, and 0 in the others",
        )


def ops_before_blocks(b: Builder, c: Config) -> Iterator[Op]:
    yield Norm("x", "x", torch.ones(c.width), c.eps)


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    yield b.norm("x", "h", "attn_norm.weight")
    yield from _attention(b)
    yield Norm("h", "h", b.vector("post_attention_norm.weight", c.width), c.inner_eps)
    yield Add("x", "h", "x")
    yield b.norm("x", "h", "ffn_norm.weight")
    yield from b.mlp(c.ff, residual=False)
    yield Norm("h", "h", b.vector("post_ffw_norm.weight", c.width), c.inner_eps)
    yield Add("x", "h", "x")


def _attention(b: Builder) -> Iterator[Op]:
    """h = out(attention(rope(norm(q)), rope(norm(k)), v) · sigmoid(gate)); norms of directories have no weights."""
    heads = b.shape.heads
    yield b.projection(("q", "k", "v"), biases=False)
    yield b.linear("h", "gate", "attn_gate", (heads.q_width, b.shape.width))
    for x in "qk":
        name = f"attn_{x}_norm.weight"
        yield b.head_norm(x, name) if b.has(name) else Norm(x, x, torch.ones(heads.dim), b.shape.eps)
        yield from b.rotation(x)
    yield Store("k", "v", heads, b.layer)
    yield Attend("q", "a", heads, b.layer)
    yield Gate("a", "gate", "a", "sigmoid")
    yield b.onto("a", "attn_output", (b.shape.width, heads.q_width), residual=False)


MUSE_GLIMMER = Family(
    name="muse-glimmer",
    classes=("MuseGlimmerForConditionalGeneration",),
    model_types=("muse_glimmer", "muse_glimmer_text"),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=plus_one(ENDS | ATTENTION | MLP | OWN, "output_norm.weight", "attn_q_norm.weight", "attn_k_norm.weight"),
    before=ops_before_blocks,
    interleaved=True,
)
