"""Random models of transformers with latents and rotation, of unfriendly sizes: directories, and GGUF files in the
variations that converters produce."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.targets.tiny import model
from tests.targets.written import WHOLE, write

V3, V2, FLASH = "deepseek3", "deepseek2-lite", "glm4moelite"
FAMILIES = (V3, V2, FLASH)
BLOCK = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.q_a_proj.weight": "attn_q_a.weight",
    "self_attn.q_a_layernorm.weight": "attn_q_a_norm.weight",
    "self_attn.q_b_proj.weight": "attn_q_b.weight",
    "self_attn.kv_a_proj_with_mqa.weight": "attn_kv_a_mqa.weight",
    "self_attn.kv_a_layernorm.weight": "attn_kv_a_norm.weight",
    "self_attn.kv_b_proj.weight": "attn_kv_b.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    **{f"mlp.{x}_proj.weight": f"ffn_{x}.weight" for x in ("gate", "up", "down")},
    **{f"mlp.shared_experts.{x}_proj.weight": f"ffn_{x}_shexp.weight" for x in ("gate", "up", "down")},
}


def draw_model(family: str, seed: int) -> PreTrainedModel:
    """A model with at least one block of experts. Its eps is the one that checkpoints have in inner norms anyway."""
    rng = random.Random(f"{family} {seed}")
    layers, groups = rng.randint(2, 4), rng.choice([1, 2, 3]) if family == V3 else 1
    experts, dense = groups * rng.randint(2, 4), rng.randint(0, layers - 1)
    used, heads = rng.randint(1, groups), rng.randint(1, 6)
    sizes: dict[str, Any] = {
        "vocab_size": rng.randint(40, 130),
        "hidden_size": heads * rng.choice([6, 10, 12, 20]),
        "intermediate_size": rng.choice([20, 33, 48]),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-6,
        "q_lora_rank": rng.choice([None, 9, 24]) if family == V2 else rng.choice([9, 16, 24]),
        "kv_lora_rank": rng.choice([8, 12, 20, 34] if family == V2 else [7, 12, 20, 33]),
        "qk_rope_head_dim": rng.choice([2, 6, 8, 14]),
        "qk_nope_head_dim": rng.choice([5, 12, 20]),
        "v_head_dim": rng.choice([6, 11, 20]),
        "n_routed_experts": experts,
        "num_experts_per_tok": rng.randint(1, min(4, experts // groups * used)),
        "moe_intermediate_size": rng.choice([12, 17, 32]),
        "n_shared_experts": rng.randint(1, 2),
        "routed_scaling_factor": rng.choice([1.0, 2.5]),
        "n_group": groups,
        "topk_group": used,
        "norm_topk_prob": family != V2,
        "pad_token_id": None,
        "rope_parameters": rng.choice([_plain(rng), _yarn(rng)]),
    }
    return model(family, seed, **sizes | feed_forward(family, dense, layers))


def feed_forward(family: str, dense: int, layers: int) -> dict[str, Any]:
    """Options of the kinds of feed-forward layers."""
    if family == FLASH:
        return {"mlp_layer_types": ["dense"] * dense + ["sparse"] * (layers - dense)}
    return {"first_k_dense_replace": dense}


def _plain(rng: random.Random) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": rng.choice([1e4, 1e6])}


def _yarn(rng: random.Random) -> dict[str, Any]:
    scale = rng.choice([1.0, 0.707])
    return {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 16.0,
        "original_max_position_embeddings": 16,
        "mscale": scale,
        "mscale_all_dim": scale,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
    }


def dense_blocks(network: PreTrainedModel) -> int:
    """Number of blocks without experts."""
    kinds = getattr(network.config, "mlp_layer_types", None)
    return kinds.count("dense") if kinds else network.config.first_k_dense_replace


def write_gguf(
    network: PreTrainedModel,
    family: str,
    path: Path,
    kind: str = "F32",
    tokenizer: str | None = None,
    whole: bool = False,
    nextn: bool = False,
) -> Path:
    """The file that a converter makes of a model. kind, tokenizer: see ``write``. whole: an older file, with both
    matrices of latents in one tensor and without widths of latent heads. nextn: with a random block that predicts
    further.

    As plain converters do, it leaves ``expert_gating_func`` out where a bias of the choice says it, too.
    """
    tensors: dict[str, Tensor] = {}
    for name, value in network.state_dict().items():
        tensors |= _tensors(network, name, value.clone(), whole)
    keys = _keys(network, whole)
    if nextn:
        layers = network.config.num_hidden_layers
        keys |= {"block_count": layers + 1, "nextn_predict_layers": 1}
        tensors |= _nextn(network, tensors, layers)
    return write(path, "deepseek2", keys, tensors, kind, tokenizer)


def _tensors(network: PreTrainedModel, name: str, value: Tensor, whole: bool) -> dict[str, Tensor]:
    """The tensors of a file that a tensor of a checkpoint becomes."""
    if name in WHOLE:
        return {WHOLE[name]: value}
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    stem, c = f"blk.{layer}.", network.config
    if rest == "mlp.experts.gate_up_proj":
        gate, up = value.chunk(2, 1)
        return {f"{stem}ffn_gate_exps.weight": gate, f"{stem}ffn_up_exps.weight": up}
    if rest == "self_attn.kv_b_proj.weight" and not whole:
        heads = value.view(c.num_attention_heads, -1, c.kv_lora_rank)
        keys, values = heads.split([c.qk_nope_head_dim, c.v_head_dim], 1)
        return {f"{stem}attn_k_b.weight": keys.transpose(1, 2), f"{stem}attn_v_b.weight": values}
    return {stem + BLOCK[rest]: value}


def _nextn(network: PreTrainedModel, tensors: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """A block after the trunk: a copy of the last one, with matrices of its own around it."""
    last, stem, width = f"blk.{layers - 1}.", f"blk.{layers}.", network.config.hidden_size
    block = {name.replace(last, stem): value for name, value in tensors.items() if name.startswith(last)}
    torch.manual_seed(1)
    own = {f"{stem}nextn.{name}.weight": torch.ones(width) for name in ("enorm", "hnorm", "shared_head_norm")}
    return block | own | {f"{stem}nextn.eh_proj.weight": torch.randn(width, 2 * width) / width**0.5}


def _keys(network: PreTrainedModel, whole: bool) -> dict[str, Any]:
    c = network.config
    key, rope = c.qk_nope_head_dim + c.qk_rope_head_dim, c.rope_parameters
    keys = {
        "block_count": c.num_hidden_layers,
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": c.num_attention_heads if whole else 1,
        "attention.layer_norm_rms_epsilon": float(c.rms_norm_eps),
        "attention.kv_lora_rank": c.kv_lora_rank,
        "attention.key_length": key if whole else c.kv_lora_rank + c.qk_rope_head_dim,
        "attention.value_length": c.v_head_dim if whole else c.kv_lora_rank,
        "rope.dimension_count": c.qk_rope_head_dim,
        "rope.freq_base": float(rope["rope_theta"]),
        "expert_count": c.n_routed_experts,
        "expert_used_count": c.num_experts_per_tok,
        "expert_feed_forward_length": c.moe_intermediate_size,
        "expert_shared_count": c.n_shared_experts,
        "expert_weights_scale": float(c.routed_scaling_factor),
        "expert_weights_norm": bool(c.norm_topk_prob),
        "expert_group_count": c.n_group,
        "expert_group_used_count": c.topk_group,
        "leading_dense_block_count": dense_blocks(network),
    }
    if not whole:
        keys |= {"attention.key_length_mla": key, "attention.value_length_mla": c.v_head_dim}
    if c.q_lora_rank:
        keys["attention.q_lora_rank"] = c.q_lora_rank
    if rope["rope_type"] == "yarn":
        keys |= {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": float(rope["factor"]),
            "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
            "rope.scaling.yarn_log_multiplier": 0.1 * rope["mscale_all_dim"],
        }
    return keys
