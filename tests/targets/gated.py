"""Random models of transformers whose attention has gates or norms of its own, of unfriendly sizes: Muse Glimmer, LFM3,
Laguna, and OLMo Hybrid; directories, and GGUF files of the families that a converter knows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.targets.tiny import model
from tests.targets.written import WHOLE, interleave, write

MUSE, LFM3, LAGUNA, OLMO = "muse_glimmer", "lfm3", "laguna", "olmo-hybrid"
FAMILIES = (MUSE, LFM3, LAGUNA, OLMO)
WITHOUT_GGUF = (LFM3, OLMO)
LOCAL, FULL = "sliding_attention", "full_attention"
BLOCK = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.g_proj.weight": "attn_gate.weight",
    "self_attn.gate_proj.weight": "attn_gate.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    **{f"self_attn.{x}_proj.weight": f"attn_{x}.weight" for x in "qkv"},
    **{f"mlp.{x}_proj.weight": f"ffn_{x}.weight" for x in ("gate", "up", "down")},
    **{f"mlp.shared_experts.{x}_proj.weight": f"ffn_{x}_shexp.weight" for x in ("gate", "up", "down")},
}
NORMS = {
    MUSE: {
        "post_attention_layernorm.weight": "post_attention_norm.weight",
        "pre_feedforward_layernorm.weight": "ffn_norm.weight",
        "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
    },
    LAGUNA: {"post_attention_layernorm.weight": "ffn_norm.weight"},
}


def draw_model(family: str, seed: int) -> PreTrainedModel:
    """A model with at least one block of each kind."""
    rng = random.Random(f"{family} {seed}")
    kv_heads = rng.randint(1, 3)
    heads = kv_heads * rng.randint(1, 3)
    sizes: dict[str, Any] = {
        "vocab_size": rng.randint(40, 130),
        "hidden_size": heads * rng.choice([6, 10, 12, 20]),
        "intermediate_size": rng.choice([20, 33, 48]),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 256,
        "head_dim": rng.choice([8, 12, 20]),
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    draw = {MUSE: _muse, LFM3: _lfm3, LAGUNA: _laguna, OLMO: _olmo}[family]
    if family == OLMO:
        del sizes["head_dim"]  # it follows from the width
    return model(family, seed, **sizes | draw(rng, sizes))


def _muse(rng: random.Random, sizes: dict[str, Any]) -> dict[str, Any]:
    kinds = _kinds(rng, [LOCAL, FULL], rng.randint(2, 5))
    base = rng.choice([1e4, 5e5])
    return {
        "num_hidden_layers": len(kinds),
        "layer_types": kinds,
        "layer_rope_theta": [base if kind == LOCAL else 0 for kind in kinds],
        "rope_parameters": {"rope_type": "default", "rope_theta": base},
        "sliding_window": rng.choice([3, 9, 16]),
        "rms_norm_eps": rng.choice([1e-5, 1e-6]),
    }


def _lfm3(rng: random.Random, sizes: dict[str, Any]) -> dict[str, Any]:
    kinds = _kinds(rng, ["conv", FULL, LOCAL], rng.randint(3, 6))
    return {
        "num_hidden_layers": len(kinds),
        "layer_types": kinds,
        "sliding_window": rng.choice([3, 9, 16]),
        "conv_L_cache": rng.randint(2, 7),
        "rope_parameters": {
            FULL: {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.5},
            LOCAL: {"rope_type": "default", "rope_theta": 1e4},
        },
    }


def _laguna(rng: random.Random, sizes: dict[str, Any]) -> dict[str, Any]:
    """GGUF files have blocks in a fixed order, with another factor of yarn."""
    layers, experts = rng.randint(2, 5), rng.randint(2, 7)
    dense = rng.randint(0, layers - 1)
    kv_heads = sizes["num_key_value_heads"]
    yarn = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32}
    return {
        "num_hidden_layers": layers,
        "layer_types": [LOCAL if i % 4 else FULL for i in range(layers)],
        "mlp_layer_types": ["dense"] * dense + ["sparse"] * (layers - dense),
        "num_attention_heads_per_layer": [kv_heads * rng.randint(1, 3) for _ in range(layers)],
        "sliding_window": rng.choice([3, 9, 16]),
        "gating": rng.choice([True, "per-element"]),
        "head_dim": rng.choice([8, 12, 20]),
        "num_experts": experts,
        "num_experts_per_tok": rng.randint(1, min(experts, 4)),
        "moe_intermediate_size": rng.choice([12, 17, 32]),
        "shared_expert_intermediate_size": rng.choice([12, 20]),
        "moe_routed_scaling_factor": rng.choice([1.0, 2.5]),
        "rope_parameters": {
            FULL: rng.choice([{"rope_type": "default"}, yarn]) | {"rope_theta": 5e5, "partial_rotary_factor": 0.5},
            LOCAL: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0},
        },
    }


def _olmo(rng: random.Random, sizes: dict[str, Any]) -> dict[str, Any]:
    kinds = _kinds(rng, ["linear_attention", FULL], rng.randint(2, 5))
    keys = rng.randint(1, 3)
    return {
        "num_hidden_layers": len(kinds),
        "layer_types": kinds,
        "linear_num_key_heads": keys,
        "linear_num_value_heads": keys * rng.randint(1, 3),
        "linear_key_head_dim": rng.choice([6, 8, 12]),
        "linear_value_head_dim": rng.choice([6, 12, 20]),
        "linear_conv_kernel_dim": rng.randint(2, 5),
        "linear_allow_neg_eigval": rng.random() < 0.7,
        "rope_parameters": rng.choice(
            [{"rope_type": "default", "rope_theta": None}, {"rope_type": "default", "rope_theta": 1e4}]
        ),
    }


def _kinds(rng: random.Random, kinds: list[str], layers: int) -> list[str]:
    """At least one block of each kind, in any order."""
    drawn = [*kinds, *rng.choices(kinds, k=max(0, layers - len(kinds)))]
    rng.shuffle(drawn)
    return drawn


def write_gguf(
    network: PreTrainedModel, family: str, path: Path, kind: str = "F32", tokenizer: str | None = None
) -> Path:
    """The file that llama.cpp's converter makes of a model. kind, tokenizer: see ``write``."""
    tensors: dict[str, Tensor] = {}
    for name, value in network.state_dict().items():
        tensors |= _tensors(network, family, name.replace("model.language_model.", "model."), value.clone())
    keys = {MUSE: _muse_keys, LAGUNA: _laguna_keys}[family](_text(network))
    return write(
        path, {MUSE: "muse-glimmer", LAGUNA: LAGUNA}[family], _keys(_text(network)) | keys, tensors, kind, tokenizer
    )


def _text(network: PreTrainedModel) -> Any:
    return getattr(network.config, "text_config", None) or network.config


def _tensors(network: PreTrainedModel, family: str, name: str, value: Tensor) -> dict[str, Tensor]:
    """The tensors of a file that a tensor of a checkpoint becomes; none of a vision tower."""
    if name in WHOLE:
        return {WHOLE[name]: value}
    if not name.startswith("model.layers."):
        return {}
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    stem, c = f"blk.{layer}.", _text(network)
    if rest == "mlp.experts.gate_up_proj":
        gate, up = value.chunk(2, 1)
        return {f"{stem}ffn_gate_exps.weight": gate, f"{stem}ffn_up_exps.weight": up}
    own = stem + (NORMS[family] | BLOCK)[rest]
    if family != MUSE:
        return {own: value}
    if rest in ("self_attn.q_proj.weight", "self_attn.k_proj.weight"):
        value = interleave(value, c.num_attention_heads if "q_proj" in rest else c.num_key_value_heads)
    more = {f"{stem}attn_q_norm.weight": torch.full((c.head_dim,), c.qk_scale_factor)} if "q_proj" in rest else {}
    more |= {f"{stem}attn_k_norm.weight": torch.ones(c.head_dim)} if "k_proj" in rest else {}
    return {own: value + 1 if "norm" in rest else value} | more


def _keys(c: Any) -> dict[str, Any]:
    return {
        "block_count": c.num_hidden_layers,
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": c.num_key_value_heads,
        "attention.key_length": c.head_dim,
        "attention.value_length": c.head_dim,
        "attention.layer_norm_rms_epsilon": float(c.rms_norm_eps),
        "attention.sliding_window": c.sliding_window,
    }


def _muse_keys(c: Any) -> dict[str, Any]:
    return {
        "rope.freq_base": float(c.rope_parameters["rope_theta"]),
        "final_logit_softcapping": float(c.final_logit_softcapping),
        "logit_scale": float(c.output_multiplier),
        "attention.sliding_window_pattern": [kind == LOCAL for kind in c.layer_types],
    }


def _laguna_keys(c: Any) -> dict[str, Any]:
    full, local = c.rope_parameters[FULL], c.rope_parameters[LOCAL]
    keys = {
        "attention.head_count": list(c.num_attention_heads_per_layer),
        "rope.freq_base": float(full["rope_theta"]),
        "rope.freq_base_swa": float(local["rope_theta"]),
        "rope.dimension_count": c.head_dim // 2,
        "rope.dimension_count_swa": c.head_dim,
        "expert_count": c.num_experts,
        "expert_used_count": c.num_experts_per_tok,
        "expert_feed_forward_length": c.moe_intermediate_size,
        "expert_shared_feed_forward_length": c.shared_expert_intermediate_size,
        "expert_weights_norm": True,
        "expert_weights_scale": float(c.moe_routed_scaling_factor),
        "expert_gating_func": 2,
        "leading_dense_block_count": c.mlp_layer_types.count("dense"),
    }
    if full["rope_type"] == "yarn":
        keys |= {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": float(full["factor"]),
            "rope.scaling.original_context_length": full["original_max_position_embeddings"],
        }
    return keys
