"""Kimi Linear: most blocks are delta nets with a decay of every channel (KDA), the others have latent attention (MLA).

Nothing rotates. Experts are chosen by sigmoid scores, in addition to a shared one; the first block is dense.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spec_kernels.model.build import Builder
from spec_kernels.model.channel_delta import channel_delta
from spec_kernels.model.latent import latent_attention
from spec_kernels.model.ops import Op
from spec_kernels.model.shapes import DeltaShape

from spec_core.errors import UsageError
from spec_targets.architectures.config import Config
from spec_targets.architectures.config_json import ConfigJson
from spec_targets.architectures.family import Family
from spec_targets.architectures.keys import Keys
from spec_targets.architectures.latents import LATENT_NAMES, feed_forward, latent_in_json, latent_in_keys
from spec_targets.architectures.names import ATTENTION, ENDS
from spec_targets.formats.damage import AGAIN
from spec_targets.formats.stored_names import Name, stored_as

SIGMOID = 2
"""``expert_gating_func`` of sigmoid scores."""
PARTS = {"gate": "w1", "up": "w3", "down": "w2"}


NAMES: dict[str, Name] = (
    ENDS
    | ATTENTION
    | LATENT_NAMES
    | {f"ffn_{x}.weight": stored_as(f"mlp.{x}_proj.weight", f"block_sparse_moe.{x}_proj.weight") for x in PARTS}
    | {f"ssm_conv1d_{x}.weight": stored_as(f"self_attn.{x}_conv1d.weight", change=lambda v, c: v[:, 0]) for x in "qkv"}
    | {f"ssm_{x}.weight": f"self_attn.{x}_proj.weight" for x in ("f_a", "f_b", "g_a", "g_b")}
    | {f"ffn_{x}_exps.weight": f"block_sparse_moe.experts.{{}}.{w}.weight" for x, w in PARTS.items()}
    | {f"ffn_{x}_shexp.weight": f"block_sparse_moe.shared_experts.{x}_proj.weight" for x in PARTS}
    | {
        "ffn_norm.weight": "post_attention_layernorm.weight",
        "ffn_gate_inp.weight": "block_sparse_moe.gate.weight",
        "exp_probs_b.bias": "block_sparse_moe.gate.e_score_correction_bias",
        "ssm_a": stored_as("self_attn.A_log", change=lambda value, c: -value.float().exp().flatten()),
        "ssm_dt.bias": "self_attn.dt_bias",
        "ssm_beta.weight": "self_attn.b_proj.weight",
        "ssm_norm.weight": "self_attn.o_norm.weight",
    }
)
RENAMED = {
    "max_position_embeddings": "model_max_length",
    "num_experts_per_tok": "num_experts_per_token",
    "norm_topk_prob": "moe_renormalize",
    "n_group": "num_expert_group",
    "n_shared_experts": "num_shared_experts",
}
"""Options that other families call otherwise, by their usual names."""
LINEAR = {
    "head_dim": "linear_head_dim",
    "num_heads": "linear_num_heads",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
}
TYPES = {"linear_attention": "kda_layers", "full_attention": "full_attn_layers"}
"""Options of transformers 5 on recurrent blocks, and its types of blocks, by the published names."""


def from_gguf(keys: Keys) -> Config:
    layers, function = keys.layers(), keys.integer("expert_gating_func", SIGMOID)
    if function != SIGMOID:
        raise UsageError(
            f"{keys.where}: {keys.arch}.expert_gating_func is {function}, {SIGMOID} was needed", hint=AGAIN
        )
    return keys.decoder(
        unrotated=True,
        **latent_in_keys(keys),
        **delta_in_keys(keys, layers),
        experts=keys.experts(sigmoid=True),
        shared_ff=keys.shared_ff(),
    )


def delta_in_keys(keys: Keys, layers: int) -> dict[str, Any]:
    """Fields of a Config on recurrent blocks, which have no key heads."""
    kv_heads = keys.integers("attention.head_count_kv", layers)
    if not set(kv_heads) <= {0, 1}:
        raise UsageError(
            f"{keys.where}: {keys.arch}.attention.head_count_kv is {str(kv_heads)[:60]}, 0 and 1 were needed",
            hint=AGAIN,
        )
    heads, head = keys.integer("attention.head_count"), keys.integer("kda.head_dim")
    recurrent = frozenset(i for i, count in enumerate(kv_heads) if not count)
    return {"delta": delta_shape(heads, head, keys.integer("ssm.conv_kernel")), "recurrent": recurrent}


def delta_shape(heads: int, head: int, kernel: int) -> DeltaShape:
    """A delta net with a decay of every channel."""
    return DeltaShape(heads, heads, head, head, kernel, by_channel=True)


def from_hf(json: ConfigJson) -> Config:
    json.refuse(
        q_lora_rank=(None,),
        mla_use_nope=(True, None),
        moe_router_activation_func=("sigmoid", None),
        moe_layer_freq=(1, None),
    )
    usual = {name: json.raw[own] for name, own in RENAMED.items() if own in json.raw}
    json = ConfigJson({**json.raw, **usual}, json.arch, json.kind, json.where)
    layers, linear = json.layers(), _linear_config(json)
    return json.decoder(
        ("layer_types",),
        unrotated=True,
        **latent_in_json(json),
        delta=delta_shape(
            linear.integer("num_heads"), linear.integer("head_dim"), linear.integer("short_conv_kernel_size")
        ),
        recurrent=_recurrent(linear, layers),
        experts=json.experts(sigmoid=True, normalise=True) if json.raw.get("num_experts") else None,
        expert_ff=json.integer("moe_intermediate_size", 0),
        shared_ff=json.shared_ff(),
        dense=json.dense_blocks(),
    )


def _linear_config(json: ConfigJson) -> ConfigJson:
    """The part of a config on recurrent blocks; transformers 5 saves its values at the top, and types of blocks."""
    part, kinds = json.raw.get("linear_attn_config"), json.kinds(json.layers(), TYPES)
    if part is None and kinds is not None:
        part = {own: json.raw.get(name) for own, name in LINEAR.items()}
        part |= {own: [i + 1 for i, kind in enumerate(kinds) if kind == name] for name, own in TYPES.items()}
    if not isinstance(part, dict):
        raise UsageError(
            f"{json.where}: config.json has linear_attn_config = {repr(part)[:60]}", hint="a table is needed"
        )
    return ConfigJson(part, json.arch, json.kind, json.where)


def _recurrent(config: ConfigJson, layers: int) -> frozenset[int]:
    """The recurrent blocks; configs count from 1, and list all blocks of both kinds."""
    listed = [config.raw.get(key) for key in ("kda_layers", "full_attn_layers")]
    both = [i for kind in listed for i in (kind if isinstance(kind, list) else [0])]
    if not all(type(i) is int for i in both) or sorted(both) != list(range(1, layers + 1)):
        raise UsageError(
            f"{config.where}: config.json has kda_layers = {str(listed[0])[:60]}, full_attn_layers = "
            f"{str(listed[1])[:60]}",
            hint=f"every block of 1 to {layers} is needed in one of both lists",
        )
    return frozenset(i - 1 for i in listed[0])


def block(b: Builder, c: Config, i: int) -> Iterator[Op]:
    yield b.norm("x", "h", "attn_norm.weight")
    if i in c.recurrent:
        assert c.delta is not None
        yield from channel_delta(b, c.delta, c.inner_eps)
    else:
        assert c.latent is not None
        yield from latent_attention(b, c.latent, c.inner_eps)
    yield from feed_forward(b, c, i)


KIMI_LINEAR = Family(
    name="kimi-linear",
    classes=("KimiLinearForCausalLM",),
    model_types=("kimi_linear",),
    gguf=from_gguf,
    hf=from_hf,
    block=block,
    names=NAMES,
)
