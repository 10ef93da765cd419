"""Qwen3-Next, Qwen3.5 and Qwen3.6: most blocks are gated delta nets, the others have gated attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from spec_kernels.model.build import Builder
from spec_kernels.model.ops import Op
from spec_kernels.model.shapes import DeltaShape
from torch import Tensor

from spec_core.errors import UsageError
from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.names import ATTENTION, ENDS, EXPERTS, MLP, SHARED
from spec_targets.formats.damage import AGAIN
from spec_targets.formats.stored_names import Name, plus_one, stored_as


def qkv_of(value: Tensor, c: Config) -> Tensor:
    """Rows q, k and v of the projection that has, per key head, [q | k | v | z]."""
    return torch.cat([part.flatten(0, 1) for part in _per_key_head(value, c)[:3]])


def z_of(value: Tensor, c: Config) -> Tensor:
    return _per_key_head(value, c)[3].flatten(0, 1)


def _per_key_head(value: Tensor, c: Config) -> tuple[Tensor, ...]:
    s = c.delta
    assert s is not None
    values = s.value_width // s.key_heads
    return value.view(s.key_heads, -1, value.shape[1]).split([s.key_dim, s.key_dim, values, values], 1)


NAMES = plus_one(
    ENDS
    | ATTENTION
    | MLP
    | EXPERTS
    | SHARED
    | {
        "post_attention_norm.weight": "post_attention_layernorm.weight",
        "ssm_a": stored_as("linear_attn.A_log", change=lambda value, c: -value.float().exp()),
        "ssm_dt.bias": "linear_attn.dt_bias",
        "ssm_conv1d.weight": stored_as("linear_attn.conv1d.weight", change=lambda value, c: value[:, 0]),
        "ssm_norm.weight": "linear_attn.norm.weight",
        "ssm_out.weight": "linear_attn.out_proj.weight",
        "nextn.eh_proj.weight": "/mtp.fc.weight",
        "nextn.enorm.weight": "/mtp.pre_fc_norm_embedding.weight",
        "nextn.hnorm.weight": "/mtp.pre_fc_norm_hidden.weight",
        "nextn.shared_head_norm.weight": "/mtp.norm.weight",
    },
    "ssm_norm.weight",
)
NEXT: dict[str, Name] = {
    "attn_qkv.weight": stored_as("linear_attn.in_proj_qkvz.weight", change=qkv_of),
    "attn_gate.weight": stored_as("linear_attn.in_proj_qkvz.weight", change=z_of),
    "ssm_ba.weight": "linear_attn.in_proj_ba.weight",
}
QWEN35_NAMES: dict[str, Name] = {
    "attn_qkv.weight": "linear_attn.in_proj_qkv.weight",
    "attn_gate.weight": "linear_attn.in_proj_z.weight",
    "ssm_beta.weight": "linear_attn.in_proj_b.weight",
    "ssm_alpha.weight": "linear_attn.in_proj_a.weight",
}


def from_gguf(keys: Keys, tiled: bool, **more: Any) -> Config:
    """tiled: the file has value heads in the order in which key heads take turns, as Qwen3.5's have."""
    return keys.decoder(delta=_delta(keys, tiled), recurrent=_recurrent(keys, keys.layers()), **more)


def moe_from_gguf(keys: Keys, tiled: bool) -> Config:
    return from_gguf(keys, tiled, experts=keys.experts(), shared_ff=keys.shared_ff())


def _delta(keys: Keys, tiled: bool) -> DeltaShape:
    heads, inner = keys.integer("ssm.time_step_rank"), keys.integer("ssm.inner_size")
    if heads < 1 or inner % heads:
        raise UsageError(
            f"{keys.where}: {keys.arch}.ssm.inner_size is {inner}, a multiple of {heads} was needed", hint=AGAIN
        )
    return DeltaShape(
        key_heads=keys.integer("ssm.group_count"),
        value_heads=heads,
        key_dim=keys.integer("ssm.state_size"),
        value_dim=inner // heads,
        kernel=keys.integer("ssm.conv_kernel"),
        tiled=tiled,
    )


def _recurrent(keys: Keys, layers: int) -> frozenset[int]:
    """The listed blocks, or all but every ``full_attention_interval``-th."""
    listed = keys.flags("attention.recurrent_layers", layers)
    if listed is not None:
        return frozenset(i for i, is_recurrent in enumerate(listed) if is_recurrent)
    interval = keys.integer("full_attention_interval", 4)
    if interval < 1:
        raise UsageError(
            f"{keys.where}: {keys.arch}.full_attention_interval is {interval}, 1 or more was needed", hint=AGAIN
        )
    return frozenset(i for i in range(layers) if (i + 1) % interval)


def from_hf(json: ConfigJson, **more: Any) -> Config:
    json.refuse(attention_bias=(None, False))
    recurrent = _recurrent_of(json, json.layers())
    return json.decoder(("layer_types",), partial=0.25, delta=_delta_of(json), recurrent=recurrent, **more)


def moe_from_hf(json: ConfigJson) -> Config:
    experts, width = json.experts(normalise=True), json.integer("moe_intermediate_size")
    return from_hf(json, experts=experts, expert_ff=width, shared_ff=json.shared_ff())


def _delta_of(json: ConfigJson) -> DeltaShape:
    return DeltaShape(
        key_heads=json.integer("linear_num_key_heads"),
        value_heads=json.integer("linear_num_value_heads"),
        key_dim=json.integer("linear_key_head_dim"),
        value_dim=json.integer("linear_value_head_dim"),
        kernel=json.integer("linear_conv_kernel_dim"),
    )


def _recurrent_of(json: ConfigJson, layers: int) -> frozenset[int]:
    kinds = json.kinds(layers, {"linear_attention", "full_attention"})
    if kinds is not None:
        return frozenset(i for i, kind in enumerate(kinds) if kind == "linear_attention")
    interval = json.integer("full_attention_interval", 4)
    return frozenset(i for i in range(layers) if (i + 1) % interval)


def _block(b: Builder, c: Config, i: int, apart: bool) -> Iterator[Op]:
    yield b.norm("x", "h", "attn_norm.weight")
    if i in c.recurrent:
        assert c.delta is not None
        yield from b.delta(c.delta, apart)
    else:
        yield from b.attention(norms=True, biases=False, gated=True)
    yield b.norm("x", "h", "post_attention_norm.weight")
    if c.experts is None or i < c.dense:
        yield from b.mlp(c.ff)
    else:
        yield from b.mixture(c.experts, c.expert_ff, c.shared_ff, shared_gate=True)


def next_block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    return _block(b, c, i, apart=False)


def qwen35_block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    return _block(b, c, i, apart=True)


QWEN3_NEXT = Family(
    name="qwen3next",
    classes=("Qwen3NextForCausalLM",),
    model_types=("qwen3_next",),
    gguf=lambda keys: moe_from_gguf(keys, tiled=False),
    hf=moe_from_hf,
    block=next_block,
    names=NAMES | NEXT,
)
QWEN35 = Family(
    name="qwen35",
    classes=("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"),
    model_types=("qwen3_5", "qwen3_5_text"),
    gguf=lambda keys: from_gguf(keys, tiled=True),
    hf=from_hf,
    block=qwen35_block,
    names=NAMES | QWEN35_NAMES,
)
QWEN35_MOE = Family(
    name="qwen35moe",
    classes=("Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"),
    model_types=("qwen3_5_moe", "qwen3_5_moe_text"),
    gguf=lambda keys: moe_from_gguf(keys, tiled=True),
    hf=moe_from_hf,
    block=qwen35_block,
    names=NAMES | QWEN35_NAMES,
)
