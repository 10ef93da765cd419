"""Laguna: experts chosen by sigmoid scores, and attention whose output has gates of softplus; the number of heads
follows the block.

Of four blocks the first has no window, and half of its heads rotates, with yarn.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Op

from spec_core.errors import UsageError
from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.names import ATTENTION, ENDS, EXPERTS, MLP, SHARED
from spec_targets.formats.damage import AGAIN
from spec_targets.formats.stored_names import Name, stored_as

PATTERN = 4
"""Period of attention in GGUF files, which do not say it: the first block of a period has no window."""
SIGMOID = 2
"""``expert_gating_func`` of sigmoid scores."""
OWN: dict[str, Name] = {
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_gate.weight": "self_attn.g_proj.weight",
    "exp_probs_b.bias": stored_as("mlp.experts.e_score_correction_bias", "mlp.gate.e_score_correction_bias"),
}


def from_gguf(keys: Keys) -> Config:
    """Yarn's own factor of cos and sin stays, as in llama.cpp, which ignores the one in the file."""
    layers, function = keys.layers(), keys.integer("expert_gating_func", SIGMOID)
    if function != SIGMOID:
        raise UsageError(
            f"{keys.where}: {keys.arch}.expert_gating_func is {function}, {SIGMOID} was needed", hint=AGAIN
        )
    counts, window = keys.integers("attention.head_count", layers), keys.integer("attention.sliding_window")
    scaling = keys.scaling()
    return keys.decoder(
        heads=max(counts),
        heads_by_block=tuple(counts),
        windows=tuple(window if i % PATTERN else 0 for i in range(layers)),
        scaling=attrs.evolve(scaling, attention=1.0) if scaling.kind == "yarn" else scaling,
        local_base=keys.number("rope.freq_base_swa", 10000.0),
        local_head=keys.integer("rope.dimension_count_swa"),
        experts=keys.experts(sigmoid=True),
        shared_ff=keys.shared_ff(),
    )


def from_hf(json: ConfigJson) -> Config:
    json.refuse(
        attention_bias=(None, False),
        gating=(True, "per-head", "per-element", None),
        moe_apply_router_weight_on_input=(False, None),
        moe_router_logit_softcapping=(0, None),
    )
    layers = json.layers()
    kinds = json.kinds(layers, {"full_attention", "sliding_attention"}) or ["full_attention"] * layers
    counts = _counts(json, layers)
    usual = {"num_attention_heads": max(counts), "routed_scaling_factor": json.raw.get("moe_routed_scaling_factor")}
    json, local = ConfigJson({**json.raw, **usual}, json.arch, json.kind, json.where).split_rope()
    window = json.integer("sliding_window", 0)
    dense = json.dense_blocks() if json.raw.get("mlp_layer_types") is not None else 1
    return json.decoder(
        ("layer_types",),
        heads_by_block=counts,
        windows=tuple(window if kind == "sliding_attention" else 0 for kind in kinds),
        experts=json.experts(sigmoid=True, normalise=True),
        expert_ff=json.integer("moe_intermediate_size"),
        shared_ff=json.integer("shared_expert_intermediate_size", 0),
        dense=dense,
        **local,
    )


def _counts(json: ConfigJson, layers: int) -> tuple[int, ...]:
    """The number of heads of every block."""
    listed = json.raw.get("num_attention_heads_per_layer")
    if listed is None:
        return (json.integer("num_attention_heads"),) * layers
    if not isinstance(listed, list) or len(listed) != layers or not all(type(n) is int and n > 0 for n in listed):
        raise UsageError(
            f"{json.where}: config.json has num_attention_heads_per_layer = {str(listed)[:60]}",
            hint=f"a list of {layers} numbers, one for each block, is needed",
        )
    return tuple(listed)


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    yield b.norm("x", "h", "attn_norm.weight")
    yield from b.attention(norms=True, biases=False, own_gates=("softplus", _gates(b)))
    yield b.norm("x", "h", "ffn_norm.weight")
    if c.experts is None or i < c.dense:
        yield from b.mlp(c.ff)
    else:
        yield from b.mixture(c.experts, c.expert_ff, c.shared_ff)


def _gates(b: Builder) -> int:
    """Rows of the gate: one for each number of all heads, if the file has that many, else one for each head."""
    heads = b.shape.heads
    shape = b.source.shape(f"{b.prefix}attn_gate.weight")
    return heads.q_width if shape is not None and shape[:1] == (heads.q_width,) else heads.heads


LAGUNA = Family(
    name="laguna",
    classes=("LagunaForCausalLM",),
    model_types=("laguna",),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=ENDS | ATTENTION | MLP | EXPERTS | SHARED | OWN,
)
